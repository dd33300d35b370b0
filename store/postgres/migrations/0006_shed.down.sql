-- mode: transactional
DROP INDEX {{schema}}.endpoint_health_shed_idx;

ALTER TABLE {{schema}}.endpoint_health DROP COLUMN shed_until;
