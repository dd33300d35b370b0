package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// Rides on delivery_pkey.
const markSentSQL = `
WITH l AS MATERIALIZED (
    SELECT * FROM unnest($2::uuid[], $3::uuid[]) AS l (id, token)
), marked AS (
    UPDATE {{schema}}.delivery d SET sent_at = $1::timestamptz
    FROM l WHERE d.id = l.id AND d.lease_token = l.token
    RETURNING d.id
)
SELECT l.id FROM l WHERE NOT EXISTS (SELECT FROM marked m WHERE m.id = l.id)`

// The attempts are under no lease: what their holders may still say comes late, and is
// logged too. Rides on delivery_sent_idx, which holds what is being sent; the order is what
// makes the planner take it: of a table that was never analysed it takes nearly every row
// for sent, and would read them all to find none.
const endUnknownSQL = `
WITH gone AS (
    DELETE FROM {{schema}}.delivery
    WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM {{schema}}.delivery
        WHERE sent_at IS NOT NULL AND lease_until <= $5::timestamptz
        ORDER BY id
        LIMIT $2::integer
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING *
), logged AS (
    INSERT INTO {{schema}}.attempt
        (delivery_id, event_id, endpoint_id, lease_token, started_at, latency_ns, number, status, truncated, late,
         tenant, class, error, location, excerpt, body_hash)
    SELECT id, event_id, endpoint_id, '00000000-0000-0000-0000-000000000000', sent_at, 0, attempts + 1, 0, false, false,
           tenant, $3::text, '', '', '', ''
    FROM gone
), dead AS (
    INSERT INTO {{schema}}.delivery_dead
        (id, event_id, endpoint_id, created_at, finished_at, run, attempts, last_status, state, reason, tenant, event_type, last_class,
         skipped)
    SELECT id, event_id, endpoint_id, created_at, $1::timestamptz, run, attempts + 1, 0, 'dead', $4::text, tenant, event_type, $3::text,
           skipped
    FROM gone
)
SELECT endpoint_id, tenant, count(*) FROM gone GROUP BY endpoint_id, tenant`

// Rides on delivery_claim_idx, in order, and on what it found there.
const endOverdueSQL = `
WITH looked AS MATERIALIZED (
    SELECT ctid AS row, next_attempt_at, created_at, attempts FROM {{schema}}.delivery
    WHERE endpoint_id = $2::uuid AND lane = $3::smallint
      AND next_attempt_at >= $4::timestamptz AND next_attempt_at <= $1::timestamptz
    ORDER BY next_attempt_at
    LIMIT $7::integer
), gone AS (
    DELETE FROM {{schema}}.delivery
    WHERE ctid = ANY (ARRAY(SELECT row FROM looked WHERE created_at < $5::timestamptz AND (attempts > 0 OR $6::boolean)))
      AND endpoint_id = $2::uuid AND created_at < $5::timestamptz AND lease_until <= $1::timestamptz
    RETURNING *
), dead AS (
    INSERT INTO {{schema}}.delivery_dead
        (id, event_id, endpoint_id, created_at, finished_at, run, attempts, last_status, state, reason, tenant, event_type, last_class,
         skipped)
    SELECT id, event_id, endpoint_id, created_at, $1::timestamptz, run, attempts, last_status, 'dead', $8::text, tenant, event_type,
           last_class, skipped
    FROM gone
)
SELECT (SELECT count(*) FROM looked), (SELECT max(next_attempt_at) FROM looked), (SELECT count(*) FROM gone)`

// Rides on order_hold_until_idx.
const removeOrderHoldsSQL = `DELETE FROM {{schema}}.order_hold WHERE until <= $1::timestamptz`

// MarkSent implements [webhook.OnceStore].
func (s *core) MarkSent(ctx context.Context, p webhook.MarkSentParams) ([]uuid.UUID, error) {
	if len(p.Leases) == 0 {
		return nil, nil
	}
	ids, tokens := columnsOf(p.Leases)
	lost, err := s.collectIDs(ctx, s.db, &s.sql.markSent, micros(p.Now), s.db.uuids(ids), s.db.uuids(tokens))
	if err != nil {
		return nil, fmt.Errorf("postgres: marking %d deliveries as sent: %w", len(ids), err)
	}
	return lost, nil
}

// EndUnknown implements [webhook.OnceStore].
func (s *core) EndUnknown(ctx context.Context, p webhook.EndUnknownParams) ([]webhook.EndedDeliveries, error) {
	var ended []webhook.EndedDeliveries
	err := collect(ctx, s.db, &s.sql.endUnknown, func(r rows) error {
		var e webhook.EndedDeliveries
		err := r.Scan(&e.EndpointID, &e.Tenant, &e.Deliveries)
		ended = append(ended, e)
		return err
	}, micros(p.Now), p.Limit, string(webhook.ClassOutcomeUnknown), webhook.ReasonOutcomeUnknown, micros(p.ExpiredBefore))
	if err != nil {
		return nil, fmt.Errorf("postgres: ending deliveries of unknown outcome: %w", err)
	}
	return ended, nil
}

// EndOverdue implements [webhook.WindowStore].
func (s *core) EndOverdue(ctx context.Context, p webhook.EndOverdueParams) (webhook.EndOverdueResult, error) {
	result := webhook.EndOverdueResult{DueFrom: p.DueFrom}
	err := collect(ctx, s.db, &s.sql.endOverdue, func(r rows) error {
		var looked int
		var last *time.Time
		if err := r.Scan(&looked, &last, &result.Ended); err != nil {
			return err
		}
		if last != nil {
			result.DueFrom = last.UTC()
		}
		result.More = looked == p.Limit
		return nil
	}, micros(p.Now), s.db.id(p.EndpointID), int16(p.Lane), from(p.DueFrom), micros(p.BegunBefore), p.Unattempted, p.Limit, text(p.Reason))
	if err != nil {
		return webhook.EndOverdueResult{}, fmt.Errorf("postgres: ending overdue deliveries of endpoint %s: %w", p.EndpointID, err)
	}
	return result, nil
}

func (s *core) removeOrderHolds(ctx context.Context, now time.Time) error {
	if _, err := s.db.exec(ctx, &s.sql.removeOrderHolds, micros(now)); err != nil {
		return fmt.Errorf("postgres: removing holds: %w", err)
	}
	return nil
}
