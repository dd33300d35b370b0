-- mode: transactional
-- The context of the trace in which an event was enqueued; NULL for none.
ALTER TABLE {{prefix}}event ADD COLUMN trace_parent TEXT;

-- Who follows attempts as they happen looks at the latest.
CREATE INDEX {{prefix}}attempt_started ON {{prefix}}attempt (started_at);
