-- mode: transactional
-- A tenant's events in the order in which they were enqueued.
CREATE INDEX event_tenant_idx ON {{schema}}.event (tenant, seq);

CREATE INDEX event_resource_idx ON {{schema}}.event (resource_id, tenant, seq) WHERE resource_id <> '';
