-- mode: transactional
-- A later run has begun. It may be delivered and removed long before the dead one is,
-- which then must not be replayed again.
ALTER TABLE {{schema}}.delivery_dead ADD COLUMN replayed boolean NOT NULL DEFAULT false;

CREATE INDEX replay_job_finished_idx ON {{schema}}.replay_job (finished_at) WHERE finished_at IS NOT NULL;
