-- mode: transactional
-- What an event's payload must be that is kept elsewhere; null where it stands in payload.
-- Written by the library, opaque to the store.
ALTER TABLE {{schema}}.event ADD COLUMN payload_ref bytea;

-- Payloads that were kept elsewhere for events that have been removed, until they are
-- removed there too.
CREATE TABLE {{schema}}.payload_gone (
    event_id uuid NOT NULL PRIMARY KEY,
    tenant   text NOT NULL
);
