-- mode: transactional
DROP TABLE {{prefix}}endpoint_health;

DROP TABLE {{prefix}}dispatcher;
