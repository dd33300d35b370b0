-- mode: transactional
ALTER TABLE {{schema}}.delivery RESET (vacuum_truncate);

ALTER TABLE {{schema}}.outbox RESET (vacuum_truncate);
