-- mode: transactional
-- No foreign keys among the tables that every event passes through: each would
-- cost a lookup and a row lock per insert, and the library alone writes here.

-- One order for all events. An outbox entry that goes to the back takes its new
-- position from here as well.
CREATE SEQUENCE {{schema}}.event_seq AS bigint;

-- Events, written once and never changed.
CREATE TABLE {{schema}}.event (
    id               uuid        NOT NULL PRIMARY KEY,
    seq              bigint      NOT NULL DEFAULT nextval('{{schema}}.event_seq'),
    resource_version bigint      NOT NULL,
    created_at       timestamptz NOT NULL,
    tenant           text        NOT NULL,
    type             text        NOT NULL,
    resource_id      text        NOT NULL,
    content_type     text        NOT NULL,
    idempotency_key  text,
    payload          bytea       NOT NULL
);

-- Events that wait for fan-out. after_endpoint is set on an entry whose event
-- has more endpoints than one transaction writes: it has moved to the back, so
-- its position is no longer its event's seq.
CREATE TABLE {{schema}}.outbox (
    position       bigint NOT NULL PRIMARY KEY,
    event_id       uuid   NOT NULL,
    after_endpoint uuid
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_insert_threshold = -1,
    autovacuum_vacuum_cost_delay = 0
);

-- Tells whether a moved event is still in the outbox.
CREATE INDEX outbox_moved_idx ON {{schema}}.outbox (event_id) WHERE after_endpoint IS NOT NULL;

-- Keys live apart from events, so that events without one do not pay for them.
CREATE TABLE {{schema}}.idempotency_key (
    tenant   text COLLATE "C" NOT NULL,
    key      text COLLATE "C" NOT NULL,
    event_id uuid NOT NULL,
    PRIMARY KEY (tenant, key)
);

-- Events that had no endpoint to go to.
CREATE TABLE {{schema}}.unmatched (
    event_id uuid        NOT NULL PRIMARY KEY,
    found_at timestamptz NOT NULL
);

-- Unfinished deliveries, and nothing else. A claim changes only lease_token and
-- lease_until, which no index covers, and finds room for the new row version on
-- the same page, so that it touches no index (a heap-only update).
CREATE TABLE {{schema}}.delivery (
    id              uuid        NOT NULL PRIMARY KEY,
    event_id        uuid        NOT NULL,
    endpoint_id     uuid        NOT NULL,
    next_attempt_at timestamptz NOT NULL,
    created_at      timestamptz NOT NULL,
    lease_until     timestamptz NOT NULL DEFAULT '-infinity',
    run             integer     NOT NULL,
    attempts        integer     NOT NULL DEFAULT 0,
    lane            smallint    NOT NULL,
    last_status     smallint    NOT NULL DEFAULT 0,
    lease_token     uuid,
    tenant          text        NOT NULL,
    event_type      text        NOT NULL,
    last_class      text        NOT NULL DEFAULT ''
) WITH (
    fillfactor = 40,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE UNIQUE INDEX delivery_event_idx ON {{schema}}.delivery (event_id, endpoint_id, run);

CREATE INDEX delivery_claim_idx ON {{schema}}.delivery (endpoint_id, lane, next_attempt_at);

-- Delivered deliveries, partitioned by the day on which they finished.
CREATE TABLE {{schema}}.delivery_log (
    id          uuid        NOT NULL,
    event_id    uuid        NOT NULL,
    endpoint_id uuid        NOT NULL,
    created_at  timestamptz NOT NULL,
    finished_at timestamptz NOT NULL,
    run         integer     NOT NULL,
    attempts    integer     NOT NULL,
    last_status smallint    NOT NULL,
    tenant      text        NOT NULL,
    event_type  text        NOT NULL,
    last_class  text        NOT NULL
) PARTITION BY RANGE (finished_at);

CREATE INDEX delivery_log_id_idx ON {{schema}}.delivery_log (id);

CREATE INDEX delivery_log_event_idx ON {{schema}}.delivery_log (event_id);

CREATE INDEX delivery_log_endpoint_idx ON {{schema}}.delivery_log (endpoint_id, id);

CREATE TABLE {{schema}}.delivery_log_default PARTITION OF {{schema}}.delivery_log DEFAULT;

-- Dead, cancelled and shed deliveries, which are kept longer.
CREATE TABLE {{schema}}.delivery_dead (
    id          uuid        NOT NULL,
    event_id    uuid        NOT NULL,
    endpoint_id uuid        NOT NULL,
    created_at  timestamptz NOT NULL,
    finished_at timestamptz NOT NULL,
    run         integer     NOT NULL,
    attempts    integer     NOT NULL,
    last_status smallint    NOT NULL,
    state       text        NOT NULL,
    reason      text        NOT NULL,
    tenant      text        NOT NULL,
    event_type  text        NOT NULL,
    last_class  text        NOT NULL
) PARTITION BY RANGE (finished_at);

CREATE INDEX delivery_dead_id_idx ON {{schema}}.delivery_dead (id);

CREATE INDEX delivery_dead_event_idx ON {{schema}}.delivery_dead (event_id);

CREATE INDEX delivery_dead_endpoint_idx ON {{schema}}.delivery_dead (endpoint_id, id);

CREATE TABLE {{schema}}.delivery_dead_default PARTITION OF {{schema}}.delivery_dead DEFAULT;

-- The log of HTTP requests, partitioned by the day on which they started.
CREATE TABLE {{schema}}.attempt (
    delivery_id uuid        NOT NULL,
    event_id    uuid        NOT NULL,
    endpoint_id uuid        NOT NULL,
    lease_token uuid        NOT NULL,
    started_at  timestamptz NOT NULL,
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
) PARTITION BY RANGE (started_at);

CREATE INDEX attempt_delivery_idx ON {{schema}}.attempt (delivery_id);

CREATE TABLE {{schema}}.attempt_default PARTITION OF {{schema}}.attempt DEFAULT;

-- The counter behind endpoint.revision. Its row stays locked until the change
-- commits, so revisions follow the order of commits.
CREATE TABLE {{schema}}.endpoint_revision (
    one      boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (one),
    revision bigint  NOT NULL
) WITH (fillfactor = 10);

INSERT INTO {{schema}}.endpoint_revision (revision) VALUES (0);

CREATE TABLE {{schema}}.endpoint (
    id               uuid        NOT NULL PRIMARY KEY,
    revision         bigint      NOT NULL,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    state_changed_at timestamptz,
    deleted_at       timestamptz,
    tenant           text        NOT NULL,
    url              text        NOT NULL,
    types            text[]      NOT NULL,
    state            text        NOT NULL CHECK (state IN ('active', 'paused', 'disabled')),
    state_reason     text        NOT NULL,
    options          bytea,
    secrets          bytea,
    headers          bytea
);

CREATE UNIQUE INDEX endpoint_revision_idx ON {{schema}}.endpoint (revision);

CREATE INDEX endpoint_tenant_idx ON {{schema}}.endpoint (tenant, id);
