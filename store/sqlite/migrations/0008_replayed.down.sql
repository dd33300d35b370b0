-- mode: transactional
DROP INDEX {{prefix}}replay_job_finished;

ALTER TABLE {{prefix}}delivery_dead DROP COLUMN replayed;
