-- mode: transactional
-- Replays look for the runs of an event to one endpoint, and an event may have a
-- hundred thousand endpoints. The new indexes serve what the old ones did.
CREATE INDEX delivery_log_run_idx ON {{schema}}.delivery_log (event_id, endpoint_id);

DROP INDEX {{schema}}.delivery_log_event_idx;

CREATE INDEX delivery_dead_run_idx ON {{schema}}.delivery_dead (event_id, endpoint_id);

DROP INDEX {{schema}}.delivery_dead_event_idx;

-- Jobs that replay many deliveries. A running one is written with every batch.
CREATE TABLE {{schema}}.replay_job (
    id           uuid        NOT NULL PRIMARY KEY,
    endpoint_id  uuid        NOT NULL,
    after_id     uuid        NOT NULL,
    created_at   timestamptz NOT NULL,
    due_at       timestamptz NOT NULL,
    lease_until  timestamptz NOT NULL DEFAULT '-infinity',
    finished_at  timestamptz,
    matched      bigint      NOT NULL,
    handled      bigint      NOT NULL,
    created      bigint      NOT NULL,
    lease_token  uuid,
    tenant       text        NOT NULL,
    state        text        NOT NULL,
    reason       text        NOT NULL,
    request      bytea       NOT NULL
) WITH (fillfactor = 50);

CREATE INDEX replay_job_due_idx ON {{schema}}.replay_job (due_at) WHERE state = 'running';

CREATE INDEX replay_job_endpoint_idx ON {{schema}}.replay_job (endpoint_id, id);

CREATE INDEX replay_job_tenant_idx ON {{schema}}.replay_job (tenant, id);
