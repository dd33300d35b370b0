-- mode: transactional
-- What a dispatcher is limited to.
ALTER TABLE {{prefix}}dispatcher ADD COLUMN serves TEXT NOT NULL DEFAULT '';

-- Until when an endpoint's circuit is open; 0: it is not. Those who cannot be told of an
-- opening look here.
ALTER TABLE {{prefix}}endpoint_health ADD COLUMN open_until INTEGER NOT NULL DEFAULT 0;

CREATE INDEX {{prefix}}endpoint_health_open ON {{prefix}}endpoint_health (open_until, endpoint_id) WHERE open_until > 0;

-- Hosts whose endpoints are shared out one by one.
CREATE TABLE {{prefix}}host_split (
    host       TEXT    NOT NULL PRIMARY KEY,
    until      INTEGER NOT NULL,
    not_before INTEGER NOT NULL
) WITHOUT ROWID;
