-- mode: transactional
-- A later run has begun. It may be delivered and removed long before the dead one is,
-- which then must not be replayed again.
ALTER TABLE {{prefix}}delivery_dead ADD COLUMN replayed INTEGER NOT NULL DEFAULT 0;

CREATE INDEX {{prefix}}replay_job_finished ON {{prefix}}replay_job (finished_at) WHERE finished_at > 0;
