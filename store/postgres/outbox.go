package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// One event without a key. Rides on no index: it only inserts.
const insertEventSQL = `
WITH e AS (
    INSERT INTO {{schema}}.event
        (id, tenant, type, resource_id, resource_version, content_type, payload, created_at, trace_parent, payload_ref)
    VALUES ($1::uuid, $2::text, $3::text, $4::text, $5::bigint, $6::text, $7::bytea,
            coalesce($8::timestamptz, statement_timestamp()), nullif($9::text, ''), nullif($10::bytea, ''))
    RETURNING seq, id
)
INSERT INTO {{schema}}.outbox (position, event_id)
SELECT seq, id FROM e`

// One event with a key; writes nothing when the key is taken. Rides on
// idempotency_key_pkey.
const insertKeyedEventSQL = `
WITH k AS (
    INSERT INTO {{schema}}.idempotency_key (tenant, key, event_id)
    VALUES ($2::text, $11::text, $1::uuid)
    ON CONFLICT DO NOTHING
    RETURNING event_id, tenant, key
), e AS (
    INSERT INTO {{schema}}.event
        (id, tenant, type, resource_id, resource_version, content_type, payload, created_at, trace_parent, payload_ref,
         idempotency_key)
    SELECT k.event_id, k.tenant, $3::text, $4::text, $5::bigint, $6::text, $7::bytea,
           coalesce($8::timestamptz, statement_timestamp()), nullif($9::text, ''), nullif($10::bytea, ''), k.key
    FROM k
    RETURNING seq, id
)
INSERT INTO {{schema}}.outbox (position, event_id)
SELECT seq, id FROM e`

// The keys of many events, in one order everywhere, so that two hosts that take
// the same keys wait for one another but never in a circle. Returns the events
// whose keys were free. Rides on idempotency_key_pkey.
const insertKeysSQL = `
INSERT INTO {{schema}}.idempotency_key (tenant, key, event_id)
SELECT i.tenant, i.key, i.id
FROM unnest($1::text[], $2::text[], $3::uuid[]) AS i (tenant, key, id)
ORDER BY i.tenant COLLATE "C", i.key COLLATE "C"
ON CONFLICT DO NOTHING
RETURNING event_id`

// Many events, numbered in the order given. Rides on no index.
const insertEventsSQL = `
WITH e AS (
    INSERT INTO {{schema}}.event
        (id, tenant, type, resource_id, resource_version, content_type, payload, created_at, idempotency_key, trace_parent,
         payload_ref)
    SELECT i.id, i.tenant, i.type, i.resource_id, i.resource_version, i.content_type, i.payload,
           coalesce(nullif(i.created_at, '0001-01-01 00:00:00+00'::timestamptz), statement_timestamp()), nullif(i.key, ''),
           nullif(i.trace, ''), nullif(i.ref, '')
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::bytea[],
                $8::timestamptz[], $9::text[], $10::text[], $11::bytea[]) WITH ORDINALITY
        AS i (id, tenant, type, resource_id, resource_version, content_type, payload, created_at, key, trace, ref, ord)
    ORDER BY i.ord
    RETURNING seq, id
)
INSERT INTO {{schema}}.outbox (position, event_id)
SELECT seq, id FROM e`

// Who holds the keys. Rides on idempotency_key_pkey.
const readKeysSQL = `
SELECT k.tenant, k.key, k.event_id
FROM unnest($1::text[], $2::text[]) AS i (tenant, key)
JOIN {{schema}}.idempotency_key k ON k.tenant = i.tenant COLLATE "C" AND k.key = i.key COLLATE "C"`

// statementBytes bounds the payloads sent in one statement: the server refuses
// messages of a gigabyte, and both sides hold a statement in memory.
const statementBytes = 32 << 20

// keyAttempts bounds how often a key is tried whose holder vanished between the
// insert and the read, which takes a deletion of the event in just that moment.
const keyAttempts = 5

func (s *core) insertEvents(ctx context.Context, tx conn, e encoder, events []webhook.EventRecord) ([]webhook.EnqueueResult, error) {
	for i := range events {
		if err := checkEvent(&events[i]); err != nil {
			return nil, err
		}
	}
	if len(events) == 1 {
		result, err := s.insertOne(ctx, tx, e, &events[0])
		if err != nil {
			return nil, fmt.Errorf("postgres: inserting event: %w", orUnmigrated(err))
		}
		return []webhook.EnqueueResult{result}, nil
	}
	results, err := s.insertMany(ctx, tx, e, events)
	if err != nil {
		return nil, fmt.Errorf("postgres: inserting %d events: %w", len(events), orUnmigrated(err))
	}
	return results, nil
}

// checkEvent refuses text that the server would refuse: by then the host's
// transaction would be lost.
func checkEvent(e *webhook.EventRecord) error {
	for _, text := range [...]struct{ field, value string }{
		{"Event.Tenant", e.Tenant},
		{"Event.Type", e.Type},
		{"Event.ResourceID", e.ResourceID},
		{"Event.IdempotencyKey", e.IdempotencyKey},
		{"Event.ContentType", e.ContentType},
		{"EventRecord.TraceParent", e.TraceParent},
	} {
		if !storable(text.value) {
			return &webhook.InvalidError{Field: text.field, Problem: "is not UTF-8 without NUL"}
		}
	}
	return nil
}

func storable(s string) bool {
	return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0
}

func (s *core) insertOne(ctx context.Context, tx conn, enc encoder, e *webhook.EventRecord) (webhook.EnqueueResult, error) {
	args := []any{
		enc.id(e.ID), e.Tenant, e.Type, e.ResourceID, e.ResourceVersion, e.ContentType,
		blob(e.Payload), timestamp(e.CreatedAt), e.TraceParent, blob(e.PayloadRef),
	}
	if e.IdempotencyKey == "" {
		_, err := tx.exec(ctx, &s.sql.insertEvent, args...)
		return webhook.EnqueueResult{EventID: e.ID}, err
	}

	args = append(args, e.IdempotencyKey)
	key := tenantKey{e.Tenant, e.IdempotencyKey}
	for range keyAttempts {
		written, err := tx.exec(ctx, &s.sql.insertKeyedEvent, args...)
		if err != nil {
			return webhook.EnqueueResult{}, err
		}
		if written > 0 {
			return webhook.EnqueueResult{EventID: e.ID}, nil
		}
		holders, err := s.readKeys(ctx, tx, enc, []tenantKey{key})
		if err != nil {
			return webhook.EnqueueResult{}, err
		}
		if first, ok := holders[key]; ok {
			return webhook.EnqueueResult{EventID: first, Duplicate: true}, nil
		}
	}
	return webhook.EnqueueResult{}, errKeyUnsettled
}

var errKeyUnsettled = fmt.Errorf("idempotency key was taken and freed %d times meanwhile", keyAttempts)

// tenantKey is what idempotency keys are unique by.
type tenantKey struct{ tenant, key string }

func (s *core) insertMany(ctx context.Context, tx conn, e encoder, events []webhook.EventRecord) ([]webhook.EnqueueResult, error) {
	results := make([]webhook.EnqueueResult, len(events))
	if err := s.takeKeys(ctx, tx, e, events, results); err != nil {
		return nil, err
	}
	fresh := make([]*webhook.EventRecord, 0, len(events))
	for i := range events {
		if !results[i].Duplicate {
			results[i].EventID = events[i].ID
			fresh = append(fresh, &events[i])
		}
	}
	for len(fresh) > 0 {
		n, size := 0, 0
		for n < len(fresh) && (n == 0 || size+len(fresh[n].Payload) <= statementBytes) {
			size += len(fresh[n].Payload)
			n++
		}
		if err := s.insertBatch(ctx, tx, e, fresh[:n]); err != nil {
			return nil, err
		}
		fresh = fresh[n:]
	}
	return results, nil
}

// takeKeys takes the idempotency keys of the events, and marks the results of
// those whose key is taken, in the database or by an earlier event, as
// duplicates. The keys go first, for all events together, because only so are
// they taken in order.
func (s *core) takeKeys(ctx context.Context, tx conn, e encoder, events []webhook.EventRecord, results []webhook.EnqueueResult) error {
	owner := make(map[tenantKey]int) // the first event with the key
	var open []int
	for i := range events {
		if events[i].IdempotencyKey == "" {
			continue
		}
		key := tenantKey{events[i].Tenant, events[i].IdempotencyKey}
		if _, taken := owner[key]; !taken {
			owner[key] = i
			open = append(open, i)
		}
	}
	if len(open) == 0 {
		return nil
	}

	for attempt := 0; len(open) > 0; attempt++ {
		if attempt == keyAttempts {
			return errKeyUnsettled
		}
		free, err := s.insertKeys(ctx, tx, e, events, open)
		if err != nil {
			return err
		}
		var taken []tenantKey
		for _, i := range open {
			if !free[events[i].ID] {
				taken = append(taken, tenantKey{events[i].Tenant, events[i].IdempotencyKey})
			}
		}
		open = open[:0]
		if len(taken) == 0 {
			break
		}
		holders, err := s.readKeys(ctx, tx, e, taken)
		if err != nil {
			return err
		}
		for _, key := range taken {
			i := owner[key]
			if first, ok := holders[key]; ok {
				results[i] = webhook.EnqueueResult{EventID: first, Duplicate: true}
			} else {
				open = append(open, i)
			}
		}
	}

	for i := range events {
		if events[i].IdempotencyKey == "" {
			continue
		}
		first := owner[tenantKey{events[i].Tenant, events[i].IdempotencyKey}]
		if first == i {
			continue
		}
		id := events[first].ID
		if results[first].Duplicate {
			id = results[first].EventID
		}
		results[i] = webhook.EnqueueResult{EventID: id, Duplicate: true}
	}
	return nil
}

func (s *core) insertKeys(ctx context.Context, tx conn, e encoder, events []webhook.EventRecord, which []int) (free map[uuid.UUID]bool, err error) {
	tenants := make([]string, len(which))
	keys := make([]string, len(which))
	ids := make([]uuid.UUID, len(which))
	for n, i := range which {
		tenants[n], keys[n], ids[n] = events[i].Tenant, events[i].IdempotencyKey, events[i].ID
	}
	free = make(map[uuid.UUID]bool, len(which))
	err = collect(ctx, tx, &s.sql.insertKeys, func(r rows) error {
		var id uuid.UUID
		err := r.Scan(&id)
		free[id] = true
		return err
	}, e.texts(tenants), e.texts(keys), e.uuids(ids))
	return free, err
}

func (s *core) readKeys(ctx context.Context, tx conn, e encoder, wanted []tenantKey) (map[tenantKey]uuid.UUID, error) {
	tenants := make([]string, len(wanted))
	keys := make([]string, len(wanted))
	for i, w := range wanted {
		tenants[i], keys[i] = w.tenant, w.key
	}
	holders := make(map[tenantKey]uuid.UUID, len(wanted))
	err := collect(ctx, tx, &s.sql.readKeys, func(r rows) error {
		var key tenantKey
		var id uuid.UUID
		err := r.Scan(&key.tenant, &key.key, &id)
		holders[key] = id
		return err
	}, e.texts(tenants), e.texts(keys))
	return holders, err
}

// insertBatch sends no NULLs in its arrays: the zero time and the empty key stand
// for them.
func (s *core) insertBatch(ctx context.Context, tx conn, enc encoder, events []*webhook.EventRecord) error {
	n := len(events)
	ids := make([]uuid.UUID, n)
	tenants := make([]string, n)
	types := make([]string, n)
	resources := make([]string, n)
	versions := make([]int64, n)
	contents := make([]string, n)
	payloads := make([][]byte, n)
	refs := make([][]byte, n)
	times := make([]time.Time, n)
	keys := make([]string, n)
	traces := make([]string, n)
	for i, e := range events {
		ids[i], tenants[i], types[i] = e.ID, e.Tenant, e.Type
		resources[i], versions[i], contents[i] = e.ResourceID, e.ResourceVersion, e.ContentType
		payloads[i], times[i], keys[i] = blob(e.Payload), micros(e.CreatedAt), e.IdempotencyKey
		traces[i], refs[i] = e.TraceParent, blob(e.PayloadRef)
	}
	_, err := tx.exec(ctx, &s.sql.insertEvents,
		enc.uuids(ids), enc.texts(tenants), enc.texts(types), enc.texts(resources), enc.int64s(versions),
		enc.texts(contents), enc.bytes(payloads), enc.times(times), enc.texts(keys), enc.texts(traces),
		enc.bytes(refs))
	return err
}
