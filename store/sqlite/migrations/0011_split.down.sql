-- mode: transactional
DROP TABLE {{prefix}}host_split;

DROP INDEX {{prefix}}endpoint_health_open;

ALTER TABLE {{prefix}}endpoint_health DROP COLUMN open_until;

ALTER TABLE {{prefix}}dispatcher DROP COLUMN serves;
