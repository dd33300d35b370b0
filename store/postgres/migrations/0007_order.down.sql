-- mode: transactional
DROP TABLE {{schema}}.order_hold;

ALTER TABLE {{schema}}.delivery_dead DROP COLUMN skipped;

ALTER TABLE {{schema}}.delivery_log DROP COLUMN skipped;

DROP INDEX {{schema}}.delivery_sent_idx;

DROP INDEX {{schema}}.delivery_waiting_idx;

DROP INDEX {{schema}}.delivery_turn_idx;

-- What waits for its turn becomes due in no order.
UPDATE {{schema}}.delivery SET lane = CASE WHEN run > 0 THEN 2 WHEN attempts > 0 THEN 1 ELSE 0 END WHERE lane = 3;

ALTER TABLE {{schema}}.delivery
    DROP COLUMN skipped,
    DROP COLUMN overtaken,
    DROP COLUMN sent_at,
    DROP COLUMN turn_since,
    DROP COLUMN order_seq,
    DROP COLUMN order_key;

ALTER TABLE {{schema}}.endpoint DROP COLUMN ordering;
