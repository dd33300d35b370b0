-- mode: transactional
-- What a dispatcher is limited to.
ALTER TABLE {{schema}}.dispatcher ADD COLUMN serves text NOT NULL DEFAULT '';

-- Until when an endpoint's circuit is open. Those who cannot be told of an opening look
-- here.
ALTER TABLE {{schema}}.endpoint_health ADD COLUMN open_until timestamptz;

CREATE INDEX endpoint_health_open_idx ON {{schema}}.endpoint_health (open_until, endpoint_id) WHERE open_until IS NOT NULL;

-- Hosts whose endpoints are shared out one by one. A few rows, each written every few
-- seconds.
CREATE TABLE {{schema}}.host_split (
    host       text        NOT NULL PRIMARY KEY,
    until      timestamptz NOT NULL,
    not_before timestamptz NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
