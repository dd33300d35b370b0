-- mode: transactional
-- What happened per endpoint and day (UTC), kept for ever.
CREATE TABLE {{prefix}}counter (
    day         INTEGER NOT NULL, -- when it began
    endpoint_id BLOB    NOT NULL,
    tenant      TEXT    NOT NULL,
    attempts    INTEGER NOT NULL,
    retries     INTEGER NOT NULL,
    delivered   INTEGER NOT NULL,
    dead        INTEGER NOT NULL,
    cancelled   INTEGER NOT NULL,
    shed        INTEGER NOT NULL,
    log_bytes   INTEGER NOT NULL,
    PRIMARY KEY (day, endpoint_id)
) WITHOUT ROWID;

CREATE INDEX {{prefix}}counter_endpoint ON {{prefix}}counter (endpoint_id, day);

CREATE INDEX {{prefix}}counter_tenant ON {{prefix}}counter (tenant, day, endpoint_id);

-- Who does what one process does for all.
CREATE TABLE {{prefix}}duty (
    name   TEXT    NOT NULL PRIMARY KEY,
    holder BLOB    NOT NULL,
    until  INTEGER NOT NULL
) WITHOUT ROWID;
