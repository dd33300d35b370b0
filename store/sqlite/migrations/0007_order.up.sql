-- mode: transactional
-- What deliveries to an endpoint are kept in order by.
ALTER TABLE {{prefix}}endpoint ADD COLUMN ordering TEXT NOT NULL DEFAULT '';

-- Of a delivery that is kept in order: its key, whether a later one has passed it,
-- whether it has passed an earlier one, and when it first had its turn. Those whose
-- turn it is not are in lane 3, which is never claimed.
ALTER TABLE {{prefix}}delivery ADD COLUMN order_key TEXT;

ALTER TABLE {{prefix}}delivery ADD COLUMN overtaken INTEGER NOT NULL DEFAULT 0;

ALTER TABLE {{prefix}}delivery ADD COLUMN skipped INTEGER NOT NULL DEFAULT 0;

ALTER TABLE {{prefix}}delivery ADD COLUMN turn_since INTEGER NOT NULL DEFAULT 0;

-- Of an at-most-once delivery, from before it is sent.
ALTER TABLE {{prefix}}delivery ADD COLUMN sent_at INTEGER NOT NULL DEFAULT 0;

-- One of a key at most has its turn. Deliveries without a key are in neither index.
CREATE UNIQUE INDEX {{prefix}}delivery_turn ON {{prefix}}delivery (endpoint_id, order_key)
	WHERE order_key IS NOT NULL AND lane <> 3;

CREATE INDEX {{prefix}}delivery_waiting ON {{prefix}}delivery (endpoint_id, order_key, event_seq) WHERE lane = 3;

CREATE INDEX {{prefix}}delivery_sent ON {{prefix}}delivery (sent_at) WHERE sent_at > 0;

ALTER TABLE {{prefix}}delivery_log ADD COLUMN skipped INTEGER NOT NULL DEFAULT 0;

ALTER TABLE {{prefix}}delivery_dead ADD COLUMN skipped INTEGER NOT NULL DEFAULT 0;

-- Keys whose turn goes to nobody for now: a delivery was cancelled that may still be
-- on its way.
CREATE TABLE {{prefix}}order_hold (
	endpoint_id BLOB    NOT NULL,
	order_key   TEXT    NOT NULL,
	until       INTEGER NOT NULL,
	PRIMARY KEY (endpoint_id, order_key)
) WITHOUT ROWID;

CREATE INDEX {{prefix}}order_hold_until ON {{prefix}}order_hold (until);
