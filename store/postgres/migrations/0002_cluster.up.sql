-- mode: transactional
-- The dispatchers that are alive. A handful of rows, each written every few
-- seconds, so there is room for new versions on the same page.
CREATE TABLE {{schema}}.dispatcher (
    id      uuid        NOT NULL PRIMARY KEY,
    seen_at timestamptz NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

-- What one dispatcher leaves to the next about an endpoint. Written when a circuit
-- changes, not with every attempt.
CREATE TABLE {{schema}}.endpoint_health (
    endpoint_id uuid        NOT NULL PRIMARY KEY,
    updated_at  timestamptz NOT NULL DEFAULT '-infinity',
    probe_until timestamptz NOT NULL DEFAULT '-infinity',
    state       bytea       NOT NULL DEFAULT ''
) WITH (fillfactor = 70);
