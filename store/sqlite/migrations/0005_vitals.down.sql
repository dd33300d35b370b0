-- mode: transactional
DROP TABLE {{prefix}}notice;

DROP TABLE {{prefix}}activity;

DROP TABLE {{prefix}}endpoint_vitals;
