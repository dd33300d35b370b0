-- mode: transactional
DROP TABLE {{prefix}}order_hold;

ALTER TABLE {{prefix}}delivery_dead DROP COLUMN skipped;

ALTER TABLE {{prefix}}delivery_log DROP COLUMN skipped;

DROP INDEX {{prefix}}delivery_sent;

DROP INDEX {{prefix}}delivery_waiting;

DROP INDEX {{prefix}}delivery_turn;

-- What waits for its turn becomes due in no order.
UPDATE {{prefix}}delivery SET lane = CASE WHEN run > 0 THEN 2 WHEN attempts > 0 THEN 1 ELSE 0 END WHERE lane = 3;

ALTER TABLE {{prefix}}delivery DROP COLUMN sent_at;

ALTER TABLE {{prefix}}delivery DROP COLUMN turn_since;

ALTER TABLE {{prefix}}delivery DROP COLUMN skipped;

ALTER TABLE {{prefix}}delivery DROP COLUMN overtaken;

ALTER TABLE {{prefix}}delivery DROP COLUMN order_key;

ALTER TABLE {{prefix}}endpoint DROP COLUMN ordering;
