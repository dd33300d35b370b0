-- mode: transactional

DROP TABLE {{prefix}}attempt;

DROP TABLE {{prefix}}delivery_dead;

DROP TABLE {{prefix}}delivery_log;

DROP TABLE {{prefix}}delivery;

DROP TABLE {{prefix}}endpoint_revision;

DROP TABLE {{prefix}}endpoint;

DROP TABLE {{prefix}}unmatched;

DROP TABLE {{prefix}}outbox;

DROP TABLE {{prefix}}idempotency_key;

DROP TABLE {{prefix}}event;
