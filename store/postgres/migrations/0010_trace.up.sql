-- mode: transactional
-- The context of the trace in which an event was enqueued. Adding a column without a
-- default rewrites nothing.
ALTER TABLE {{schema}}.event ADD COLUMN trace_parent text;

-- Who follows attempts as they happen looks at the latest. Attempts are written nearly
-- in the order of their starts, so a few bytes for each range of pages are enough, and
-- writing them costs nothing.
CREATE INDEX attempt_started_idx ON {{schema}}.attempt USING brin (started_at)
WITH (pages_per_range = 32, autosummarize = on);
