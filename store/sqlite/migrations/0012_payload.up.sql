-- mode: transactional
-- What an event's payload must be that is kept elsewhere; null where it stands in payload.
-- Written by the library, opaque to the store.
ALTER TABLE {{prefix}}event ADD COLUMN payload_ref BLOB;

-- Payloads that were kept elsewhere for events that have been removed, until they are
-- removed there too.
CREATE TABLE {{prefix}}payload_gone (
    event_id BLOB NOT NULL PRIMARY KEY,
    tenant   TEXT NOT NULL
) WITHOUT ROWID;
