-- mode: transactional
DROP INDEX {{prefix}}attempt_started;

ALTER TABLE {{prefix}}event DROP COLUMN trace_parent;
