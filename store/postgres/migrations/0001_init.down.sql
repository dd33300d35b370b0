-- mode: transactional
DROP TABLE {{schema}}.endpoint;

DROP TABLE {{schema}}.endpoint_revision;

DROP TABLE {{schema}}.attempt;

DROP TABLE {{schema}}.delivery_dead;

DROP TABLE {{schema}}.delivery_log;

DROP TABLE {{schema}}.delivery;

DROP TABLE {{schema}}.unmatched;

DROP TABLE {{schema}}.idempotency_key;

DROP TABLE {{schema}}.outbox;

DROP TABLE {{schema}}.event;

DROP SEQUENCE {{schema}}.event_seq;
