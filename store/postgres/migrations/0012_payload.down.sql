-- mode: transactional
DROP TABLE {{schema}}.payload_gone;

ALTER TABLE {{schema}}.event DROP COLUMN payload_ref;
