-- mode: transactional
DROP INDEX {{schema}}.attempt_started_idx;

ALTER TABLE {{schema}}.event DROP COLUMN trace_parent;
