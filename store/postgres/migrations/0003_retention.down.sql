-- mode: transactional
ALTER TABLE {{schema}}.idempotency_key RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);

ALTER TABLE {{schema}}.event RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);

DROP TABLE {{schema}}.duty;

DROP TABLE {{schema}}.counted;

DROP TABLE {{schema}}.counter;

DROP INDEX {{schema}}.attempt_default_time_idx;

DROP INDEX {{schema}}.delivery_dead_default_time_idx;

DROP INDEX {{schema}}.delivery_log_default_time_idx;

DROP TABLE {{schema}}.attempt_kept;
