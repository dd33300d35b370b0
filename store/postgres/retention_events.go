package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"
)

const (
	// removedAtOnce is how many rows are removed in one transaction.
	removedAtOnce = 1000

	// longestRest bounds the pause after one: as long as it took, so that upkeep
	// takes at most half of what one connection can do.
	longestRest = time.Second
)

// Locks old events, in the order of their ids, which begin with the time at which
// they were made. Whoever makes a delivery of an old event locks it as well. Rides
// on event_pkey.
const findOldEventsSQL = `
SELECT id FROM {{schema}}.event
WHERE id > $1::uuid AND id < $2::uuid AND created_at < $3::timestamptz
ORDER BY id LIMIT $4::integer
FOR UPDATE SKIP LOCKED`

// A statement of its own, so that it sees every delivery and outbox entry that was
// committed before the events were locked. Subqueries with a limit are not turned
// into joins, which the planner might want to hash. Rides on event_pkey,
// delivery_event_idx, outbox_pkey and outbox_moved_idx.
const removeEventsSQL = `
DELETE FROM {{schema}}.event e
WHERE e.id = ANY ($1::uuid[])
  AND (SELECT 1 FROM {{schema}}.delivery d WHERE d.event_id = e.id LIMIT 1) IS NULL
  AND (SELECT 1 FROM {{schema}}.outbox o WHERE o.position = e.seq LIMIT 1) IS NULL
  AND (SELECT 1 FROM {{schema}}.outbox o WHERE o.event_id = e.id AND o.after_endpoint IS NOT NULL LIMIT 1) IS NULL
RETURNING e.id, e.tenant, coalesce(e.idempotency_key, ''), e.payload_ref IS NOT NULL`

// Rides on idempotency_key_pkey.
const removeKeysSQL = `
DELETE FROM {{schema}}.idempotency_key
WHERE ctid = ANY (ARRAY(
    SELECT k.ctid FROM unnest($1::text[], $2::text[], $3::uuid[]) AS i (tenant, key, id)
    CROSS JOIN LATERAL (
        SELECT ctid FROM {{schema}}.idempotency_key
        WHERE tenant = i.tenant COLLATE "C" AND key = i.key COLLATE "C" AND event_id = i.id
        LIMIT 1
    ) k
))`

// Rides on unmatched_pkey.
const removeUnmatchedSQL = `DELETE FROM {{schema}}.unmatched WHERE event_id = ANY ($1::uuid[])`

// removeEvents removes events from before a time, with their keys, batch by batch.
func (s *core) removeEvents(ctx context.Context, before time.Time) error {
	if before.IsZero() {
		return nil
	}
	var after uuid.UUID
	err := s.inBatches(ctx, func() (more bool, err error) {
		err = s.db.atomically(ctx, func(tx conn) error {
			found, err := s.collectIDs(ctx, tx, &s.sql.findOldEvents, s.db.id(after), s.db.id(firstID(before)), micros(before), removedAtOnce)
			if err != nil || len(found) == 0 {
				return err
			}
			after, more = found[len(found)-1], len(found) == removedAtOnce
			return s.removeEventsIn(ctx, tx, found)
		})
		return more, err
	})
	if err != nil {
		return fmt.Errorf("postgres: removing old events: %w", err)
	}
	return nil
}

// removeEventsIn removes those of the events that nothing waits for.
func (s *core) removeEventsIn(ctx context.Context, tx conn, ids []uuid.UUID) error {
	var gone, keyed, referring []uuid.UUID
	var tenants, keys, owners []string
	err := collect(ctx, tx, &s.sql.removeEvents, func(r rows) error {
		var id uuid.UUID
		var tenant, key string
		var refers bool
		if err := r.Scan(&id, &tenant, &key, &refers); err != nil {
			return err
		}
		gone = append(gone, id)
		if refers {
			referring, owners = append(referring, id), append(owners, tenant)
		}
		if key != "" {
			keyed, tenants, keys = append(keyed, id), append(tenants, tenant), append(keys, key)
		}
		return nil
	}, s.db.uuids(ids))
	if err != nil || len(gone) == 0 {
		return err
	}
	if len(referring) > 0 {
		if _, err := tx.exec(ctx, &s.sql.insertGonePayloads, s.db.uuids(referring), s.db.texts(owners)); err != nil {
			return err
		}
	}
	if len(keyed) > 0 {
		if _, err := tx.exec(ctx, &s.sql.removeKeys, s.db.texts(tenants), s.db.texts(keys), s.db.uuids(keyed)); err != nil {
			return err
		}
	}
	_, err = tx.exec(ctx, &s.sql.removeUnmatched, s.db.uuids(gone))
	return err
}

// inBatches runs batch until it reports that there is no more, and rests after each.
func (s *core) inBatches(ctx context.Context, batch func() (more bool, err error)) error {
	for {
		began := time.Now()
		more, err := batch()
		if err != nil || !more {
			return err
		}
		if err := pause(ctx, min(time.Since(began), longestRest)); err != nil {
			return err
		}
	}
}

// firstID is the least id (UUID version 7) that may have been made at a time.
func firstID(at time.Time) uuid.UUID {
	var id uuid.UUID
	var stamp [8]byte
	binary.BigEndian.PutUint64(stamp[:], uint64(max(at.UnixMilli(), 0)))
	copy(id[:6], stamp[2:])
	return id
}
