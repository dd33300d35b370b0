-- mode: transactional
-- Attempts whose partition is gone and whose delivery is not: an attempt lives as
-- long as its delivery. Each is looked at again when its delivery should be gone.
CREATE TABLE {{schema}}.attempt_kept (
    delivery_id uuid        NOT NULL,
    event_id    uuid        NOT NULL,
    endpoint_id uuid        NOT NULL,
    lease_token uuid        NOT NULL,
    started_at  timestamptz NOT NULL,
    check_at    timestamptz NOT NULL,
    latency_ns  bigint      NOT NULL,
    number      integer     NOT NULL,
    status      smallint    NOT NULL,
    truncated   boolean     NOT NULL,
    late        boolean     NOT NULL,
    tenant      text        NOT NULL,
    class       text        NOT NULL,
    error       text        NOT NULL,
    location    text        NOT NULL,
    excerpt     bytea       NOT NULL,
    body_hash   bytea       NOT NULL
);

CREATE UNIQUE INDEX attempt_kept_delivery_idx ON {{schema}}.attempt_kept (delivery_id, lease_token, started_at);

CREATE INDEX attempt_kept_check_idx ON {{schema}}.attempt_kept (check_at);

-- The default partitions are empty as a rule. Where they are not, their old rows
-- are found through these.
CREATE INDEX delivery_log_default_time_idx ON {{schema}}.delivery_log_default (finished_at);

CREATE INDEX delivery_dead_default_time_idx ON {{schema}}.delivery_dead_default (finished_at);

CREATE INDEX attempt_default_time_idx ON {{schema}}.attempt_default (started_at);

-- What happened per endpoint and day (UTC), kept for ever.
CREATE TABLE {{schema}}.counter (
    day         date   NOT NULL,
    endpoint_id uuid   NOT NULL,
    attempts    bigint NOT NULL,
    retries     bigint NOT NULL,
    delivered   bigint NOT NULL,
    dead        bigint NOT NULL,
    cancelled   bigint NOT NULL,
    shed        bigint NOT NULL,
    log_bytes   bigint NOT NULL,
    tenant      text   NOT NULL,
    PRIMARY KEY (day, endpoint_id)
);

CREATE INDEX counter_endpoint_idx ON {{schema}}.counter (endpoint_id, day);

CREATE INDEX counter_tenant_idx ON {{schema}}.counter (tenant, day, endpoint_id);

-- All days before this one are counted.
CREATE TABLE {{schema}}.counted (
    one    boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (one),
    before date    NOT NULL
);

INSERT INTO {{schema}}.counted (before) VALUES ('-infinity');

-- Who does what one process does for all.
CREATE TABLE {{schema}}.duty (
    name   text        NOT NULL PRIMARY KEY,
    holder uuid        NOT NULL,
    until  timestamptz NOT NULL
) WITH (fillfactor = 10);

-- Old rows leave a few at a time, from the low end of an index: they are to be
-- cleared away before a fifth of the table is dead.
ALTER TABLE {{schema}}.event SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000);

ALTER TABLE {{schema}}.idempotency_key SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000);
