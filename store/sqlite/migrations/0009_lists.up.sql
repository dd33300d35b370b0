-- mode: transactional
-- A tenant's events in the order in which they were enqueued, which is that of their
-- rowids.
CREATE INDEX {{prefix}}event_tenant ON {{prefix}}event (tenant);

CREATE INDEX {{prefix}}event_resource ON {{prefix}}event (resource_id, tenant) WHERE resource_id <> '';
