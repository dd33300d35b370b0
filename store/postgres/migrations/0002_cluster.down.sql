-- mode: transactional
DROP TABLE {{schema}}.endpoint_health;

DROP TABLE {{schema}}.dispatcher;
