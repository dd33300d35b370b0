-- mode: transactional
DROP INDEX {{prefix}}endpoint_health_shed;

ALTER TABLE {{prefix}}endpoint_health DROP COLUMN shed_until;
