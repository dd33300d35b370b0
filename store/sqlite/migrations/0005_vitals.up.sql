-- mode: transactional
-- How endpoints fare. Written every few seconds for the endpoints that had attempts.
CREATE TABLE {{prefix}}endpoint_vitals (
    endpoint_id BLOB    NOT NULL PRIMARY KEY,
    version     INTEGER NOT NULL,
    level       INTEGER NOT NULL,
    data        BLOB    NOT NULL
) WITHOUT ROWID;

CREATE INDEX {{prefix}}endpoint_vitals_unwell ON {{prefix}}endpoint_vitals (endpoint_id, level) WHERE level > 0;

-- What each dispatcher did in some minutes.
CREATE TABLE {{prefix}}activity (
    at         INTEGER NOT NULL,
    dispatcher BLOB    NOT NULL,
    data       BLOB    NOT NULL,
    PRIMARY KEY (at, dispatcher)
) WITHOUT ROWID;

-- What is told about endpoints, once for each streak.
CREATE TABLE {{prefix}}notice (
    id          BLOB    NOT NULL PRIMARY KEY,
    endpoint_id BLOB    NOT NULL,
    tenant      TEXT    NOT NULL,
    kind        TEXT    NOT NULL,
    streak      INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    due_at      INTEGER NOT NULL, -- 0: told
    attempts    INTEGER NOT NULL,
    detail      BLOB    NOT NULL
) WITHOUT ROWID;

CREATE UNIQUE INDEX {{prefix}}notice_streak ON {{prefix}}notice (endpoint_id, kind, streak);

CREATE INDEX {{prefix}}notice_due ON {{prefix}}notice (due_at) WHERE due_at > 0;

CREATE INDEX {{prefix}}notice_endpoint ON {{prefix}}notice (endpoint_id, id);

CREATE INDEX {{prefix}}notice_tenant ON {{prefix}}notice (tenant, id);

CREATE INDEX {{prefix}}notice_created ON {{prefix}}notice (created_at);
