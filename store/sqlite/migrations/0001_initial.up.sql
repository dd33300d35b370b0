-- mode: transactional

-- Times are microseconds since 1970 UTC, and 0 stands for none. Ids are the 16
-- bytes of a UUID.

-- Events stay until their retention ends. The sequence is never used twice, so
-- it is an order of enqueuing and a cursor.
CREATE TABLE {{prefix}}event (
	seq              INTEGER PRIMARY KEY AUTOINCREMENT,
	id               BLOB    NOT NULL UNIQUE,
	tenant           TEXT    NOT NULL,
	type             TEXT    NOT NULL,
	resource_id      TEXT    NOT NULL,
	resource_version INTEGER NOT NULL,
	idempotency_key  TEXT    NOT NULL,
	content_type     TEXT    NOT NULL,
	created_at       INTEGER NOT NULL,
	payload          BLOB    NOT NULL
);

-- Keys live in a table of their own, as long as their event.
CREATE TABLE {{prefix}}idempotency_key (
	tenant   TEXT NOT NULL,
	key      TEXT NOT NULL,
	event_id BLOB NOT NULL,
	PRIMARY KEY (tenant, key)
) WITHOUT ROWID;

-- Events not yet fanned out, in the order in which they are taken. An event that
-- is only partly fanned out moves to the end, with the last endpoint written.
CREATE TABLE {{prefix}}outbox (
	position       INTEGER PRIMARY KEY,
	event_seq      INTEGER NOT NULL UNIQUE,
	after_endpoint BLOB    NOT NULL
);

-- Events that had no endpoint to go to.
CREATE TABLE {{prefix}}unmatched (
	event_seq  INTEGER PRIMARY KEY,
	matched_at INTEGER NOT NULL
);

-- Deleted endpoints stay, so that their ids are never used again and every
-- dispatcher learns of the deletion.
CREATE TABLE {{prefix}}endpoint (
	id               BLOB    NOT NULL PRIMARY KEY,
	tenant           TEXT    NOT NULL,
	url              TEXT    NOT NULL,
	types            TEXT    NOT NULL,
	state            TEXT    NOT NULL,
	state_reason     TEXT    NOT NULL,
	state_changed_at INTEGER NOT NULL,
	revision         INTEGER NOT NULL UNIQUE,
	created_at       INTEGER NOT NULL,
	updated_at       INTEGER NOT NULL,
	deleted_at       INTEGER NOT NULL,
	options          BLOB,
	secrets          BLOB,
	headers          BLOB
);

CREATE INDEX {{prefix}}endpoint_tenant ON {{prefix}}endpoint (tenant, id);

-- The revision of the endpoint that was written last.
CREATE TABLE {{prefix}}endpoint_revision (
	one      INTEGER PRIMARY KEY CHECK (one = 1),
	revision INTEGER NOT NULL
);

INSERT INTO {{prefix}}endpoint_revision (one, revision) VALUES (1, 0);

-- Unfinished deliveries only: claims never meet history. A lease is written to
-- the row and to no index, so that claiming and renewing rewrite one row.
CREATE TABLE {{prefix}}delivery (
	id              BLOB    NOT NULL PRIMARY KEY,
	event_seq       INTEGER NOT NULL,
	event_id        BLOB    NOT NULL,
	endpoint_id     BLOB    NOT NULL,
	run             INTEGER NOT NULL,
	tenant          TEXT    NOT NULL,
	event_type      TEXT    NOT NULL,
	lane            INTEGER NOT NULL,
	next_attempt_at INTEGER NOT NULL,
	lease_until     INTEGER NOT NULL,
	lease_token     BLOB    NOT NULL,
	attempts        INTEGER NOT NULL,
	created_at      INTEGER NOT NULL,
	last_status     INTEGER NOT NULL,
	last_class      TEXT    NOT NULL
) WITHOUT ROWID;

CREATE UNIQUE INDEX {{prefix}}delivery_run ON {{prefix}}delivery (event_seq, endpoint_id, run);

CREATE INDEX {{prefix}}delivery_claim ON {{prefix}}delivery (endpoint_id, lane, next_attempt_at, id);

CREATE INDEX {{prefix}}delivery_endpoint ON {{prefix}}delivery (endpoint_id, id);

-- Deliveries that were delivered.
CREATE TABLE {{prefix}}delivery_log (
	id          BLOB    NOT NULL PRIMARY KEY,
	event_seq   INTEGER NOT NULL,
	event_id    BLOB    NOT NULL,
	endpoint_id BLOB    NOT NULL,
	run         INTEGER NOT NULL,
	tenant      TEXT    NOT NULL,
	event_type  TEXT    NOT NULL,
	state       TEXT    NOT NULL,
	reason      TEXT    NOT NULL,
	attempts    INTEGER NOT NULL,
	created_at  INTEGER NOT NULL,
	finished_at INTEGER NOT NULL,
	last_status INTEGER NOT NULL,
	last_class  TEXT    NOT NULL
) WITHOUT ROWID;

CREATE UNIQUE INDEX {{prefix}}delivery_log_run ON {{prefix}}delivery_log (event_seq, endpoint_id, run);

CREATE INDEX {{prefix}}delivery_log_endpoint ON {{prefix}}delivery_log (endpoint_id, id);

-- Deliveries that ended in another way: dead, cancelled or shed. Kept longer.
CREATE TABLE {{prefix}}delivery_dead (
	id          BLOB    NOT NULL PRIMARY KEY,
	event_seq   INTEGER NOT NULL,
	event_id    BLOB    NOT NULL,
	endpoint_id BLOB    NOT NULL,
	run         INTEGER NOT NULL,
	tenant      TEXT    NOT NULL,
	event_type  TEXT    NOT NULL,
	state       TEXT    NOT NULL,
	reason      TEXT    NOT NULL,
	attempts    INTEGER NOT NULL,
	created_at  INTEGER NOT NULL,
	finished_at INTEGER NOT NULL,
	last_status INTEGER NOT NULL,
	last_class  TEXT    NOT NULL
) WITHOUT ROWID;

CREATE UNIQUE INDEX {{prefix}}delivery_dead_run ON {{prefix}}delivery_dead (event_seq, endpoint_id, run);

CREATE INDEX {{prefix}}delivery_dead_endpoint ON {{prefix}}delivery_dead (endpoint_id, id);

-- Two leases of one delivery may log the same number, when the first was lost;
-- one lease logs a number once, so recording may be repeated.
CREATE TABLE {{prefix}}attempt (
	delivery_id BLOB    NOT NULL,
	number      INTEGER NOT NULL,
	lease_token BLOB    NOT NULL,
	started_at  INTEGER NOT NULL,
	latency     INTEGER NOT NULL, -- nanoseconds
	status      INTEGER NOT NULL,
	class       TEXT    NOT NULL,
	error       TEXT    NOT NULL,
	location    TEXT    NOT NULL,
	excerpt     BLOB,
	truncated   INTEGER NOT NULL,
	body_hash   BLOB,
	late        INTEGER NOT NULL,
	PRIMARY KEY (delivery_id, number, lease_token)
) WITHOUT ROWID;
