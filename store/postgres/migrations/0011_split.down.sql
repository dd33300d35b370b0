-- mode: transactional
DROP TABLE {{schema}}.host_split;

DROP INDEX {{schema}}.endpoint_health_open_idx;

ALTER TABLE {{schema}}.endpoint_health DROP COLUMN open_until;

ALTER TABLE {{schema}}.dispatcher DROP COLUMN serves;
