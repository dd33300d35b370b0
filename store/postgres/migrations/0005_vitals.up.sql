-- mode: transactional
-- How endpoints fare. Written every few seconds for the endpoints that had attempts,
-- with room for the new version on the same page; level, which is indexed, changes
-- rarely.
CREATE TABLE {{schema}}.endpoint_vitals (
    endpoint_id uuid     NOT NULL PRIMARY KEY,
    version     bigint   NOT NULL,
    level       smallint NOT NULL,
    data        bytea    NOT NULL
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000
);

CREATE INDEX endpoint_vitals_unwell_idx ON {{schema}}.endpoint_vitals (endpoint_id) INCLUDE (level) WHERE level > 0;

-- What each dispatcher did in some minutes.
CREATE TABLE {{schema}}.activity (
    at         timestamptz NOT NULL,
    dispatcher uuid        NOT NULL,
    data       bytea       NOT NULL,
    PRIMARY KEY (at, dispatcher)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 200);

-- What is told about endpoints, once for each streak.
CREATE TABLE {{schema}}.notice (
    id          uuid        NOT NULL PRIMARY KEY,
    endpoint_id uuid        NOT NULL,
    streak      timestamptz NOT NULL,
    created_at  timestamptz NOT NULL,
    due_at      timestamptz,
    attempts    integer     NOT NULL,
    kind        text        NOT NULL,
    tenant      text        NOT NULL,
    detail      bytea       NOT NULL
) WITH (fillfactor = 80);

CREATE UNIQUE INDEX notice_streak_idx ON {{schema}}.notice (endpoint_id, kind, streak);

CREATE INDEX notice_due_idx ON {{schema}}.notice (due_at) WHERE due_at IS NOT NULL;

CREATE INDEX notice_endpoint_idx ON {{schema}}.notice (endpoint_id, id);

CREATE INDEX notice_tenant_idx ON {{schema}}.notice (tenant, id);

CREATE INDEX notice_created_idx ON {{schema}}.notice (created_at);
