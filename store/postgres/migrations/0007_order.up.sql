-- mode: transactional
-- What deliveries to an endpoint are kept in order by.
ALTER TABLE {{schema}}.endpoint ADD COLUMN ordering text NOT NULL DEFAULT '';

-- Of a delivery that is kept in order: its key, its event's seq, whether a later one
-- has passed it, whether it has passed an earlier one, and when it first had its turn.
-- Those whose turn it is not are in lane 3, which is never claimed.
ALTER TABLE {{schema}}.delivery
    ADD COLUMN order_key text COLLATE "C",
    ADD COLUMN order_seq bigint,
    ADD COLUMN turn_since timestamptz,
    ADD COLUMN sent_at timestamptz, -- of an at-most-once delivery, from before it is sent
    ADD COLUMN overtaken boolean NOT NULL DEFAULT false,
    ADD COLUMN skipped boolean NOT NULL DEFAULT false;

-- One of a key at most has its turn, whatever the processes do. A claim changes none
-- of these columns, and deliveries without a key are in neither index.
CREATE UNIQUE INDEX delivery_turn_idx ON {{schema}}.delivery (endpoint_id, order_key)
    WHERE order_key IS NOT NULL AND lane <> 3;

CREATE INDEX delivery_waiting_idx ON {{schema}}.delivery (endpoint_id, order_key, order_seq) WHERE lane = 3;

CREATE INDEX delivery_sent_idx ON {{schema}}.delivery (id) WHERE sent_at IS NOT NULL;

ALTER TABLE {{schema}}.delivery_log ADD COLUMN skipped boolean NOT NULL DEFAULT false;

ALTER TABLE {{schema}}.delivery_dead ADD COLUMN skipped boolean NOT NULL DEFAULT false;

-- Keys whose turn goes to nobody for now: a delivery was cancelled that may still be
-- on its way.
CREATE TABLE {{schema}}.order_hold (
    endpoint_id uuid             NOT NULL,
    order_key   text COLLATE "C" NOT NULL,
    until       timestamptz      NOT NULL,
    PRIMARY KEY (endpoint_id, order_key)
);

CREATE INDEX order_hold_until_idx ON {{schema}}.order_hold (until);
