-- mode: transactional
-- Until when an endpoint's new deliveries are recorded as shed. Fan-out reads those
-- that have one, which are few.
ALTER TABLE {{schema}}.endpoint_health ADD COLUMN shed_until timestamptz;

CREATE INDEX endpoint_health_shed_idx ON {{schema}}.endpoint_health (shed_until, endpoint_id) WHERE shed_until IS NOT NULL;
