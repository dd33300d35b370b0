package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// Gives the turns of keys that are free. For each key it looks at who has the turn, and
// at the first in the queue; then the one gives way and the other gets it, unless a
// claim or another release was faster, which the conditions that are checked again on
// the locked rows, and in the end the unique index, tell. Demoting comes first, since
// promoting reads what it returns.
//
// An earlier event that is not fanned out yet stands in the outbox, also while another
// transaction that has not ended is taking it out. Nothing of the queue beyond the first
// that may go is read: those before it have been overtaken, and are few. Ranges between
// bounds of which the planner does not know one are narrow to it, so that it takes the
// outbox by its indexes, as is right: hardly an entry is as old as what is fanned out. Rides on
// delivery_turn_idx, delivery_waiting_idx (in order), order_hold_pkey, endpoint_pkey,
// outbox_pkey, outbox_moved_idx and event_pkey.
const (
	releaseKeysSQL = `
WITH k AS MATERIALIZED (
    SELECT DISTINCT k.endpoint_id, k.order_key COLLATE "C" AS order_key
    FROM unnest($3::uuid[], $4::text[]) AS k (endpoint_id, order_key)
)` + releaseSQL

	// Goes from key to key through delivery_waiting_idx.
	releasePageSQL = `
WITH RECURSIVE page AS (
    (SELECT endpoint_id, order_key, 1 AS n FROM {{schema}}.delivery
     WHERE lane = 3 AND (endpoint_id, order_key) > ($3::uuid, $4::text COLLATE "C")
     ORDER BY endpoint_id, order_key LIMIT 1)
    UNION ALL
    SELECT d.endpoint_id, d.order_key, p.n + 1 FROM page p CROSS JOIN LATERAL (
        SELECT endpoint_id, order_key FROM {{schema}}.delivery
        WHERE lane = 3 AND (endpoint_id, order_key) > (p.endpoint_id, p.order_key)
        ORDER BY endpoint_id, order_key LIMIT 1
    ) d
    WHERE p.n < $5::integer
), k AS MATERIALIZED (
    SELECT endpoint_id, order_key, n FROM page
)` + releaseSQL

	releaseSQL = `, look AS MATERIALIZED (
    SELECT k.endpoint_id, k.order_key, h.id AS holder, h.order_seq AS holder_seq, n.id, n.order_seq, n.tenant
    FROM k
    LEFT JOIN LATERAL (
        SELECT id, order_seq, overtaken, next_attempt_at, lease_until, attempts, turn_since FROM {{schema}}.delivery
        WHERE endpoint_id = k.endpoint_id AND order_key = k.order_key AND lane <> 3
        LIMIT 1
    ) h ON true
    CROSS JOIN LATERAL (
        SELECT * FROM (
            (SELECT id, order_seq, tenant FROM {{schema}}.delivery
             WHERE endpoint_id = k.endpoint_id AND order_key = k.order_key AND lane = 3
               AND NOT (overtaken AND next_attempt_at > $1::timestamptz)
             ORDER BY order_seq LIMIT 1)
            UNION ALL
            (SELECT id, order_seq, tenant FROM {{schema}}.delivery
             WHERE endpoint_id = k.endpoint_id AND order_key = k.order_key AND lane = 3 AND h.id IS NULL
             ORDER BY next_attempt_at LIMIT 1)
        ) q
        LIMIT 1
    ) n
    WHERE h.id IS NULL OR h.lease_until <= $1::timestamptz AND (
        n.order_seq < h.order_seq
        OR h.overtaken AND h.next_attempt_at > $1::timestamptz
        OR h.attempts > 0 AND h.turn_since <= $2::timestamptz
           AND EXISTS (SELECT FROM {{schema}}.endpoint e
                       WHERE e.id = k.endpoint_id AND e.state = 'active'
                         AND coalesce(e.state_changed_at, e.created_at) <= $2::timestamptz)
    )
), early AS MATERIALIZED (
    SELECT e.tenant, e.resource_id, e.seq, '00000000-0000-0000-0000-000000000000'::uuid AS after
    FROM {{schema}}.outbox o JOIN {{schema}}.event e ON e.id = o.event_id
    WHERE o.position > 0 AND o.position < (SELECT max(order_seq) FROM look) AND o.after_endpoint IS NULL
    UNION ALL
    SELECT e.tenant, e.resource_id, e.seq, o.after_endpoint
    FROM {{schema}}.outbox o JOIN {{schema}}.event e ON e.id = o.event_id
    WHERE o.after_endpoint IS NOT NULL AND EXISTS (SELECT FROM look)
      AND o.event_id > '00000000-0000-0000-0000-000000000000'::uuid
      AND o.event_id < (SELECT 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
), next AS MATERIALIZED (
    SELECT l.* FROM look l
    WHERE NOT EXISTS (SELECT FROM early x
                      WHERE x.tenant = l.tenant AND x.seq < l.order_seq AND x.after < l.endpoint_id
                        AND (l.order_key = '' OR x.resource_id = l.order_key))
      AND NOT EXISTS (SELECT FROM {{schema}}.order_hold w
                      WHERE w.endpoint_id = l.endpoint_id AND w.order_key = l.order_key AND w.until > $1::timestamptz)
), demoted AS (
    UPDATE {{schema}}.delivery d SET lane = 3, overtaken = d.overtaken OR n.order_seq > n.holder_seq
    FROM next n
    WHERE d.id = n.holder AND d.lane <> 3 AND d.lease_until <= $1::timestamptz
    RETURNING d.id
), promoted AS (
    UPDATE {{schema}}.delivery d
    SET lane = CASE WHEN d.run > 0 THEN 2 WHEN d.attempts > 0 THEN 1 ELSE 0 END,
        turn_since = coalesce(d.turn_since, $1::timestamptz),
        skipped = d.skipped AND d.attempts > 0 OR coalesce(n.holder_seq < n.order_seq, false)
            OR EXISTS (SELECT FROM {{schema}}.delivery x
                       WHERE x.endpoint_id = n.endpoint_id AND x.order_key = n.order_key AND x.lane = 3
                         AND x.order_seq < n.order_seq)
    FROM next n LEFT JOIN demoted m ON m.id = n.holder
    WHERE d.id = n.id AND d.lane = 3 AND (n.holder IS NULL OR m.id IS NOT NULL)
    RETURNING d.endpoint_id, d.lane, d.next_attempt_at
)`

	releasedKeys = `
SELECT endpoint_id, lane, next_attempt_at FROM promoted`

	// The last key looked at comes with whatever was released.
	releasedPage = `
SELECT coalesce(p.endpoint_id, l.endpoint_id), coalesce(p.lane, 3), p.next_attempt_at, l.endpoint_id, l.order_key, l.n
FROM (SELECT endpoint_id, order_key, n FROM k ORDER BY n DESC LIMIT 1) l LEFT JOIN promoted p ON true`
)

// orderKeys are keys as columns.
type orderKeys struct {
	endpoints []uuid.UUID
	keys      []string
}

func (k *orderKeys) add(key webhook.OrderKey) {
	k.endpoints = append(k.endpoints, key.EndpointID)
	k.keys = append(k.keys, key.Key)
}

// releaseKeys gives the turns of the keys that are free, once others have passed for
// nothing but being overtaken.
func (s *core) releaseKeys(ctx context.Context, c conn, now time.Time, keys orderKeys) (released []webhook.ReadyLane, err error) {
	if len(keys.keys) == 0 {
		return nil, nil
	}
	err = collect(ctx, c, &s.sql.releaseKeys, func(r rows) error {
		var l webhook.ReadyLane
		if err := r.Scan(&l.EndpointID, &l.Lane, &l.DueAt); err != nil {
			return err
		}
		l.DueAt = l.DueAt.UTC()
		released = append(released, l)
		return nil
	}, micros(now), nil, s.db.uuids(keys.endpoints), s.db.texts(keys.keys))
	return released, err
}

// ReleaseOrdered implements [webhook.OrderStore].
func (s *core) ReleaseOrdered(ctx context.Context, p webhook.ReleaseOrderedParams) (webhook.ReleaseOrderedResult, error) {
	result := webhook.ReleaseOrderedResult{Next: p.After}
	if p.Limit <= 0 {
		return result, nil
	}
	looked := 0
	err := collect(ctx, s.db, &s.sql.releasePage, func(r rows) error {
		var l webhook.ReadyLane
		var due *time.Time // of one that was released
		if err := r.Scan(&l.EndpointID, &l.Lane, &due, &result.Next.EndpointID, &result.Next.Key, &looked); err != nil {
			return err
		}
		if due != nil {
			l.DueAt = due.UTC()
			result.Released = append(result.Released, l)
		}
		return nil
	}, micros(p.Now), timestamp(p.HeldBefore), s.db.id(p.After.EndpointID), p.After.Key, p.Limit)
	if isConflict(err) {
		// Somebody else gave a turn at the same time: the next look sees it.
		return webhook.ReleaseOrderedResult{Next: p.After}, nil
	}
	if err != nil {
		return webhook.ReleaseOrderedResult{}, fmt.Errorf("postgres: releasing ordered deliveries: %w", err)
	}
	result.More = looked == p.Limit
	return result, nil
}

// isConflict reports whether two transactions gave the same turn at once.
func isConflict(err error) bool {
	const uniqueViolation = "23505"
	return err != nil && sqlState(err) == uniqueViolation
}

// giveTurns runs a transaction that ends with releaseKeys, again if somebody else gave
// the same turn meanwhile.
func (s *core) giveTurns(ctx context.Context, fn func(conn) error) error {
	err := s.db.atomically(ctx, fn)
	for tries := 1; tries < turnTries && isConflict(err); tries++ {
		err = s.db.atomically(ctx, fn)
	}
	return err
}

// turnTries bounds how often a turn is given by others at the very moment.
const turnTries = 3
