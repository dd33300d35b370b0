-- mode: transactional
-- The dispatchers that are alive.
CREATE TABLE {{prefix}}dispatcher (
    id      BLOB    NOT NULL PRIMARY KEY,
    seen_at INTEGER NOT NULL
) WITHOUT ROWID;

-- What one dispatcher leaves to the next about an endpoint.
CREATE TABLE {{prefix}}endpoint_health (
    endpoint_id BLOB    NOT NULL PRIMARY KEY,
    updated_at  INTEGER NOT NULL DEFAULT 0,
    probe_until INTEGER NOT NULL DEFAULT 0,
    state       BLOB    NOT NULL DEFAULT ''
) WITHOUT ROWID;
