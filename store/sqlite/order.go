package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

const (
	// Rides on delivery_turn.
	selectTurn query = `
		SELECT id, event_seq, overtaken AND next_attempt_at > ?1, attempts, turn_since, lease_until
		FROM {{prefix}}delivery
		WHERE endpoint_id = ?2 AND order_key = ?3 AND order_key IS NOT NULL AND lane <> 3`

	// Rides on delivery_waiting, in order: those that are left out have been overtaken,
	// and are few.
	selectNextTurn query = `
		SELECT id, event_seq, tenant, lane, next_attempt_at FROM {{prefix}}delivery
		WHERE endpoint_id = ?2 AND order_key = ?3 AND lane = 3 AND NOT (overtaken AND next_attempt_at > ?1)
		ORDER BY event_seq LIMIT 1`

	// As selectNextTurn, when all that wait have been overtaken.
	selectDeferredTurn query = `
		SELECT id, event_seq, tenant, lane, next_attempt_at FROM {{prefix}}delivery
		WHERE endpoint_id = ? AND order_key = ? AND lane = 3 ORDER BY next_attempt_at LIMIT 1`

	// Rides on the primary key of order_hold.
	selectOrderHold query = `
		SELECT 1 FROM {{prefix}}order_hold WHERE endpoint_id = ? AND order_key = ? AND until > ?`

	// Rides on the unique index of outbox.event_seq and the rowid of event. What is
	// older than a delivery is fanned out, but for what is being moved behind.
	selectEarlierEvent query = `
		SELECT 1 FROM {{prefix}}outbox o JOIN {{prefix}}event e ON e.seq = o.event_seq
		WHERE o.event_seq < ?1 AND e.tenant = ?2 AND (?3 = '' OR e.resource_id = ?3) AND o.after_endpoint < ?4 LIMIT 1`

	// Rides on the unique index of endpoint.id.
	selectActiveSince query = `
		SELECT 1 FROM {{prefix}}endpoint WHERE id = ? AND state = 'active' AND max(state_changed_at, created_at) <= ?`

	// Both ride on the primary key of delivery, the second also on delivery_waiting.
	updateGivesWay query = `
		UPDATE {{prefix}}delivery SET lane = 3, overtaken = overtaken OR ? WHERE id = ?`
	updateTurn query = `
		UPDATE {{prefix}}delivery AS d
		SET lane = CASE WHEN run > 0 THEN 2 WHEN attempts > 0 THEN 1 ELSE 0 END,
			turn_since = iif(turn_since = 0, ?1, turn_since),
			skipped = (skipped AND attempts > 0) OR EXISTS (SELECT 1 FROM {{prefix}}delivery x
				WHERE x.endpoint_id = d.endpoint_id AND x.order_key = d.order_key AND x.lane = 3 AND x.event_seq < d.event_seq)
		WHERE id = ?2
		RETURNING lane, next_attempt_at`

	// A seek in delivery_waiting.
	selectNextKey query = `
		SELECT endpoint_id, order_key FROM {{prefix}}delivery
		WHERE lane = 3 AND (endpoint_id, order_key) > (?, ?) ORDER BY endpoint_id, order_key LIMIT 1`

	insertOrderHold query = `
		INSERT INTO {{prefix}}order_hold (endpoint_id, order_key, until) VALUES (?, ?, ?)
		ON CONFLICT (endpoint_id, order_key) DO UPDATE SET until = max(until, excluded.until)`

	// Rides on order_hold_until.
	deleteOrderHolds query = `DELETE FROM {{prefix}}order_hold WHERE until <= ?`

	// keysPerWrite keeps the lock short.
	keysPerWrite = 100
)

// turn is who has the turn of a key.
type turn struct {
	id                uuid.UUID
	seq               int64
	deferred          bool // was overtaken, and is not due
	attempts          int
	since, leaseUntil int64
}

// waiter is who gets it.
type waiter struct {
	id     uuid.UUID
	seq    int64
	tenant string
	lane   webhook.Lane
	dueAt  int64
}

func (w *waiter) into() []any { return []any{&w.id, &w.seq, &w.tenant, &w.lane, &w.dueAt} }

// release gives the key's turn, if it is free, to whose turn it is. It runs under the
// lock.
func (s *Store) release(ctx context.Context, c *sql.Conn, key webhook.OrderKey, now, heldBefore int64) (released []webhook.ReadyLane, err error) {
	endpoint := blob(key.EndpointID)
	var has turn
	held, err := found(c.QueryRowContext(ctx, s.sql(selectTurn), now, endpoint, key.Key).
		Scan(&has.id, &has.seq, &has.deferred, &has.attempts, &has.since, &has.leaseUntil))
	if err != nil || (held && has.leaseUntil > now) {
		return nil, err
	}
	var next waiter
	waits, err := found(c.QueryRowContext(ctx, s.sql(selectNextTurn), now, endpoint, key.Key).Scan(next.into()...))
	if err == nil && !waits && !held {
		waits, err = found(c.QueryRowContext(ctx, s.sql(selectDeferredTurn), endpoint, key.Key).Scan(next.into()...))
	}
	if err != nil || !waits {
		return nil, err
	}
	if held && next.seq > has.seq && !has.deferred {
		if passed, err := s.holdPassed(ctx, c, endpoint, &has, heldBefore); err != nil || !passed {
			return nil, err
		}
	}
	if blocked, err := s.blocked(ctx, c, key, &next, now); err != nil || blocked {
		return nil, err
	}
	if held {
		if _, err := c.ExecContext(ctx, s.sql(updateGivesWay), next.seq > has.seq, blob(has.id)); err != nil {
			return nil, err
		}
	}
	if err := c.QueryRowContext(ctx, s.sql(updateTurn), now, blob(next.id)).Scan(&next.lane, &next.dueAt); err != nil {
		return nil, err
	}
	return []webhook.ReadyLane{{EndpointID: key.EndpointID, Lane: next.lane, DueAt: fromMicros(next.dueAt)}}, nil
}

// found tells no row from an error.
func found(err error) (bool, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// holdPassed reports whether who has the turn has held the others up for too long.
func (s *Store) holdPassed(ctx context.Context, c *sql.Conn, endpoint any, has *turn, heldBefore int64) (bool, error) {
	if heldBefore == 0 || has.attempts == 0 || has.since > heldBefore {
		return false, nil
	}
	var one int
	return found(c.QueryRowContext(ctx, s.sql(selectActiveSince), endpoint, heldBefore).Scan(&one))
}

// blocked reports whether the turn goes to nobody for now.
func (s *Store) blocked(ctx context.Context, c *sql.Conn, key webhook.OrderKey, next *waiter, now int64) (bool, error) {
	var one int
	blocked, err := found(c.QueryRowContext(ctx, s.sql(selectOrderHold), blob(key.EndpointID), key.Key, now).Scan(&one))
	if err != nil || blocked {
		return blocked, err
	}
	return found(c.QueryRowContext(ctx, s.sql(selectEarlierEvent), next.seq, next.tenant, key.Key, blob(key.EndpointID)).Scan(&one))
}

// releaseAll is release for the keys of a transaction.
func (s *Store) releaseAll(ctx context.Context, c *sql.Conn, keys map[webhook.OrderKey]struct{}, now time.Time) (released []webhook.ReadyLane, err error) {
	for key := range keys {
		lanes, err := s.release(ctx, c, key, micros(now), 0)
		if err != nil {
			return nil, err
		}
		released = append(released, lanes...)
	}
	return released, nil
}

// ReleaseOrdered implements [webhook.OrderStore]. It takes the lock only when there is
// a key, and looks at no more than 100 in one transaction.
func (s *Store) ReleaseOrdered(ctx context.Context, p webhook.ReleaseOrderedParams) (webhook.ReleaseOrderedResult, error) {
	result := webhook.ReleaseOrderedResult{Next: p.After}
	limit := min(p.Limit, keysPerWrite)
	if limit <= 0 {
		return result, nil
	}
	some := false
	err := s.read(ctx, "looking for ordered deliveries", func(ctx context.Context) error {
		var key webhook.OrderKey
		var err error
		some, err = found(s.db.QueryRowContext(ctx, s.sql(selectNextKey), blob(p.After.EndpointID), p.After.Key).Scan(&key.EndpointID, &key.Key))
		return err
	})
	if err != nil || !some {
		return result, err
	}
	err = s.write(ctx, "releasing ordered deliveries", nil, func(ctx context.Context, c *sql.Conn) error {
		result = webhook.ReleaseOrderedResult{Next: p.After}
		for range limit {
			var key webhook.OrderKey
			row := c.QueryRowContext(ctx, s.sql(selectNextKey), blob(result.Next.EndpointID), result.Next.Key)
			if result.More, err = found(row.Scan(&key.EndpointID, &key.Key)); err != nil || !result.More {
				return err
			}
			result.Next = key
			lanes, err := s.release(ctx, c, key, micros(p.Now), micros(p.HeldBefore))
			if err != nil {
				return err
			}
			result.Released = append(result.Released, lanes...)
		}
		return nil
	})
	if err != nil {
		return webhook.ReleaseOrderedResult{}, err
	}
	return result, nil
}

func (s *Store) removeOrderHolds(ctx context.Context, now time.Time) error {
	return s.write(ctx, "removing holds", nil, func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, s.sql(deleteOrderHolds), micros(now))
		return err
	})
}
