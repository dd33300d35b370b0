-- mode: transactional
DROP TABLE {{schema}}.replay_job;

CREATE INDEX delivery_dead_event_idx ON {{schema}}.delivery_dead (event_id);

DROP INDEX {{schema}}.delivery_dead_run_idx;

CREATE INDEX delivery_log_event_idx ON {{schema}}.delivery_log (event_id);

DROP INDEX {{schema}}.delivery_log_run_idx;
