-- mode: transactional
DROP INDEX {{schema}}.replay_job_finished_idx;

ALTER TABLE {{schema}}.delivery_dead DROP COLUMN replayed;
