-- mode: transactional
DROP INDEX {{prefix}}event_resource;

DROP INDEX {{prefix}}event_tenant;
