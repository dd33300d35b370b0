-- mode: transactional
DROP INDEX {{schema}}.event_resource_idx;

DROP INDEX {{schema}}.event_tenant_idx;
