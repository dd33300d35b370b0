-- mode: transactional
-- Vacuum gives the empty end of a table back to the system, and locks everybody out of the
-- table for that: a claim then waits for as long as deadlock_timeout (1 s), after which
-- vacuum is the one to give up. These two are empty at one moment and full at the next, and
-- need the space again.
ALTER TABLE {{schema}}.outbox SET (vacuum_truncate = off);

ALTER TABLE {{schema}}.delivery SET (vacuum_truncate = off);
