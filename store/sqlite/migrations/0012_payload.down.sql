-- mode: transactional
DROP TABLE {{prefix}}payload_gone;

ALTER TABLE {{prefix}}event DROP COLUMN payload_ref;
