-- mode: transactional
-- Jobs that replay many deliveries. A running one is written with every batch.
CREATE TABLE {{prefix}}replay_job (
    id          BLOB    NOT NULL PRIMARY KEY,
    endpoint_id BLOB    NOT NULL,
    tenant      TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    reason      TEXT    NOT NULL,
    request     BLOB    NOT NULL,
    matched     INTEGER NOT NULL,
    handled     INTEGER NOT NULL,
    created     INTEGER NOT NULL,
    after_id    BLOB    NOT NULL,
    created_at  INTEGER NOT NULL,
    due_at      INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    lease_until INTEGER NOT NULL DEFAULT 0,
    lease_token BLOB    NOT NULL DEFAULT x''
) WITHOUT ROWID;

CREATE INDEX {{prefix}}replay_job_due ON {{prefix}}replay_job (due_at) WHERE state = 'running';

CREATE INDEX {{prefix}}replay_job_endpoint ON {{prefix}}replay_job (endpoint_id, id);

CREATE INDEX {{prefix}}replay_job_tenant ON {{prefix}}replay_job (tenant, id);
