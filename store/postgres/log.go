package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// Rides on event_pkey, outbox_pkey, outbox_moved_idx and unmatched_pkey.
const getEventSQL = `
SELECT e.id, e.seq, e.tenant, e.type, e.resource_id, e.resource_version, e.content_type, e.payload, e.payload_ref,
       e.created_at,
       EXISTS (SELECT FROM {{schema}}.outbox o WHERE o.position = e.seq)
           OR EXISTS (SELECT FROM {{schema}}.outbox o WHERE o.event_id = e.id AND o.after_endpoint IS NOT NULL),
       EXISTS (SELECT FROM {{schema}}.unmatched u WHERE u.event_id = e.id)
FROM {{schema}}.event e
WHERE e.id = $1::uuid AND ($2::boolean OR e.tenant = $3::text)`

// The columns of a delivery in each of the tables that may hold it.
const (
	pendingColumns = `
       d.id, d.event_id, d.endpoint_id, d.run, d.tenant, d.event_type,
       CASE WHEN d.lease_token IS NULL THEN 'pending' ELSE 'in_flight' END AS state, '' AS reason, d.attempts,
       d.next_attempt_at, d.created_at, NULL::timestamptz AS finished_at, d.last_status, d.last_class,
       d.lane = 3 AS awaits_turn, d.skipped`
	deliveredColumns = `
       d.id, d.event_id, d.endpoint_id, d.run, d.tenant, d.event_type, 'delivered' AS state, '' AS reason, d.attempts,
       NULL::timestamptz AS next_attempt_at, d.created_at, d.finished_at, d.last_status, d.last_class,
       false AS awaits_turn, d.skipped`
	deadColumns = `
       d.id, d.event_id, d.endpoint_id, d.run, d.tenant, d.event_type, d.state, d.reason, d.attempts,
       NULL::timestamptz AS next_attempt_at, d.created_at, d.finished_at, d.last_status, d.last_class,
       false AS awaits_turn, d.skipped`
)

// Rides on delivery_pkey, delivery_log_id_idx and delivery_dead_id_idx.
const getDeliverySQL = `
SELECT * FROM (
    SELECT` + pendingColumns + ` FROM {{schema}}.delivery d WHERE d.id = $1::uuid
    UNION ALL
    SELECT` + deliveredColumns + ` FROM {{schema}}.delivery_log d WHERE d.id = $1::uuid
    UNION ALL
    SELECT` + deadColumns + ` FROM {{schema}}.delivery_dead d WHERE d.id = $1::uuid
) d
WHERE $2::boolean OR d.tenant = $3::text
LIMIT 1`

// Rides on attempt_delivery_idx and attempt_kept_delivery_idx; sorts one delivery's
// attempts. While upkeep moves them, an attempt may be in both tables.
const listAttemptsSQL = `
SELECT a.delivery_id, a.event_id, a.endpoint_id, a.tenant, a.number, a.started_at, a.latency_ns, a.status, a.class,
       a.error, a.location, a.excerpt, a.truncated, a.body_hash, a.late, a.lease_token
FROM {{schema}}.attempt a
WHERE a.delivery_id = $1::uuid AND ($2::boolean OR a.tenant = $3::text)
UNION
SELECT a.delivery_id, a.event_id, a.endpoint_id, a.tenant, a.number, a.started_at, a.latency_ns, a.status, a.class,
       a.error, a.location, a.excerpt, a.truncated, a.body_hash, a.late, a.lease_token
FROM {{schema}}.attempt_kept a
WHERE a.delivery_id = $1::uuid AND ($2::boolean OR a.tenant = $3::text)
ORDER BY number, started_at`

// GetEvent implements [webhook.LogStore].
func (s *core) GetEvent(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.EventStatus, error) {
	tenant, limited := scope.Tenant()
	var e webhook.EventStatus
	found, waiting := false, false
	err := collect(ctx, s.db, &s.sql.getEvent, func(r rows) error {
		found = true
		return r.Scan(&e.ID, &e.Sequence, &e.Tenant, &e.Type, &e.ResourceID, &e.ResourceVersion, &e.ContentType,
			&e.Payload, &e.PayloadRef, &e.CreatedAt, &waiting, &e.Unmatched)
	}, s.db.id(id), !limited, tenant)
	if err != nil {
		return webhook.EventStatus{}, fmt.Errorf("postgres: reading event %s: %w", id, err)
	}
	if !found {
		return webhook.EventStatus{}, fmt.Errorf("postgres: event %s: %w", id, webhook.ErrNotFound)
	}
	e.FannedOut = !waiting
	e.CreatedAt = e.CreatedAt.UTC()
	return e, nil
}

func scanDelivery(r rows) (webhook.Delivery, error) {
	var d webhook.Delivery
	var next, finished *time.Time
	err := r.Scan(&d.ID, &d.EventID, &d.EndpointID, &d.Run, &d.Tenant, &d.EventType, &d.State, &d.Reason, &d.Attempts,
		&next, &d.CreatedAt, &finished, &d.LastStatus, &d.LastClass, &d.AwaitsTurn, &d.OrderingSkipped)
	if err != nil {
		return webhook.Delivery{}, err
	}
	d.CreatedAt = d.CreatedAt.UTC()
	if next != nil {
		d.NextAttemptAt = next.UTC()
	}
	if finished != nil {
		d.FinishedAt = finished.UTC()
	}
	return d, nil
}

// GetDelivery implements [webhook.LogStore].
func (s *core) GetDelivery(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.Delivery, error) {
	tenant, limited := scope.Tenant()
	found, err := s.collectDeliveries(ctx, &s.sql.getDelivery, s.db.id(id), !limited, tenant)
	if err != nil {
		return webhook.Delivery{}, fmt.Errorf("postgres: reading delivery %s: %w", id, err)
	}
	if len(found) == 0 {
		return webhook.Delivery{}, fmt.Errorf("postgres: delivery %s: %w", id, webhook.ErrNotFound)
	}
	return found[0], nil
}

func (s *core) collectDeliveries(ctx context.Context, q *statement, args ...any) (all []webhook.Delivery, err error) {
	err = collect(ctx, s.db, q, func(r rows) error {
		d, err := scanDelivery(r)
		all = append(all, d)
		return err
	}, args...)
	return all, err
}

// ListAttempts implements [webhook.LogStore].
func (s *core) ListAttempts(ctx context.Context, scope webhook.Scope, deliveryID uuid.UUID) ([]webhook.Attempt, error) {
	tenant, limited := scope.Tenant()
	var all []webhook.Attempt
	err := collect(ctx, s.db, &s.sql.listAttempts, func(r rows) error {
		var a webhook.Attempt
		var token uuid.UUID // tells the attempts of two leases apart
		if err := r.Scan(&a.DeliveryID, &a.EventID, &a.EndpointID, &a.Tenant, &a.Number, &a.StartedAt, &a.Latency,
			&a.Status, &a.Class, &a.Error, &a.Location, &a.Excerpt, &a.Truncated, &a.BodyHash, &a.Late, &token); err != nil {
			return err
		}
		a.StartedAt = a.StartedAt.UTC()
		all = append(all, a)
		return nil
	}, s.db.id(deliveryID), !limited, tenant)
	if err != nil {
		return nil, fmt.Errorf("postgres: reading attempts of delivery %s: %w", deliveryID, err)
	}
	return all, nil
}
