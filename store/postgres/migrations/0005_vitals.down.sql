-- mode: transactional
DROP TABLE {{schema}}.notice;

DROP TABLE {{schema}}.activity;

DROP TABLE {{schema}}.endpoint_vitals;
