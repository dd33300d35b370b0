-- mode: transactional
-- Until when an endpoint's new deliveries are recorded as shed; 0: they are not.
ALTER TABLE {{prefix}}endpoint_health ADD COLUMN shed_until INTEGER NOT NULL DEFAULT 0;

CREATE INDEX {{prefix}}endpoint_health_shed ON {{prefix}}endpoint_health (shed_until, endpoint_id) WHERE shed_until > 0;
