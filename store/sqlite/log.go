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
	// Rides on the unique index of event.id.
	selectEventStatus query = `
		SELECT seq, id, tenant, type, resource_id, resource_version, content_type, created_at, payload, payload_ref,
			NOT EXISTS (SELECT 1 FROM {{prefix}}outbox WHERE event_seq = seq),
			EXISTS (SELECT 1 FROM {{prefix}}unmatched WHERE event_seq = seq)
		FROM {{prefix}}event WHERE id = ?`

	// The columns of the three tables of deliveries, as one.
	unfinishedColumns query = `id, event_id, endpoint_id, run, tenant, event_type,
		iif(lease_until = 0, 'pending', 'in_flight') AS state, '' AS reason, attempts, next_attempt_at, created_at,
		0 AS finished_at, last_status, last_class, lane = 3 AS awaits_turn, skipped`
	finishedColumns query = `id, event_id, endpoint_id, run, tenant, event_type,
		state, reason, attempts, 0 AS next_attempt_at, created_at, finished_at, last_status, last_class,
		0 AS awaits_turn, skipped`

	// Rides on the primary keys. One statement, so that a delivery that moves
	// meanwhile is seen exactly once.
	selectDelivery query = `
		SELECT ` + unfinishedColumns + ` FROM {{prefix}}delivery WHERE id = ?
		UNION ALL SELECT ` + finishedColumns + ` FROM {{prefix}}delivery_log WHERE id = ?
		UNION ALL SELECT ` + finishedColumns + ` FROM {{prefix}}delivery_dead WHERE id = ?`

	// Rides on the primary key of attempt.
	selectAttempts query = `
		SELECT number, started_at, latency, status, class, error, location, excerpt, truncated, body_hash, late
		FROM {{prefix}}attempt WHERE delivery_id = ? ORDER BY number, started_at`
)

// GetEvent implements [webhook.LogStore].
func (s *Store) GetEvent(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.EventStatus, error) {
	var status webhook.EventStatus
	err := s.read(ctx, "reading an event", func(ctx context.Context) error {
		row := s.db.QueryRowContext(ctx, s.sql(selectEventStatus), blob(id))
		var ref []byte
		e, err := scanEvent(row, &ref, &status.FannedOut, &status.Unmatched)
		if errors.Is(err, sql.ErrNoRows) || (err == nil && !scope.Includes(e.Tenant)) {
			return webhook.ErrNotFound
		}
		status.EventRecord = *e
		status.PayloadRef = ref
		return err
	})
	if err != nil {
		return webhook.EventStatus{}, err
	}
	return status, nil
}

// GetDelivery implements [webhook.LogStore]. A delivery is in flight from its
// claim until its result, or until someone else takes its expired lease over.
func (s *Store) GetDelivery(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.Delivery, error) {
	var d webhook.Delivery
	err := s.read(ctx, "reading a delivery", func(ctx context.Context) error {
		var err error
		d, err = scanDelivery(s.db.QueryRowContext(ctx, s.sql(selectDelivery), blob(id), blob(id), blob(id)))
		if errors.Is(err, sql.ErrNoRows) || (err == nil && !scope.Includes(d.Tenant)) {
			return webhook.ErrNotFound
		}
		return err
	})
	if err != nil {
		return webhook.Delivery{}, err
	}
	return d, nil
}

func scanDelivery(row scanner) (webhook.Delivery, error) {
	var d webhook.Delivery
	var nextAttemptAt, createdAt, finishedAt int64
	err := row.Scan(&d.ID, &d.EventID, &d.EndpointID, &d.Run, &d.Tenant, &d.EventType, &d.State, &d.Reason,
		&d.Attempts, &nextAttemptAt, &createdAt, &finishedAt, &d.LastStatus, &d.LastClass,
		&d.AwaitsTurn, &d.OrderingSkipped)
	d.NextAttemptAt, d.CreatedAt, d.FinishedAt = fromMicros(nextAttemptAt), fromMicros(createdAt), fromMicros(finishedAt)
	return d, err
}

// ListAttempts implements [webhook.LogStore]. A delivery that does not exist or
// is another tenant's has none.
func (s *Store) ListAttempts(ctx context.Context, scope webhook.Scope, deliveryID uuid.UUID) ([]webhook.Attempt, error) {
	d, err := s.GetDelivery(ctx, scope, deliveryID)
	if errors.Is(err, webhook.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var attempts []webhook.Attempt
	err = s.read(ctx, "listing attempts", func(ctx context.Context) error {
		attempts = nil
		rows, err := s.db.QueryContext(ctx, s.sql(selectAttempts), blob(deliveryID))
		return scanAll(rows, err, func(rows *sql.Rows) error {
			a := webhook.Attempt{DeliveryID: d.ID, EventID: d.EventID, EndpointID: d.EndpointID, Tenant: d.Tenant}
			var startedAt, latency int64
			err := rows.Scan(&a.Number, &startedAt, &latency, &a.Status, &a.Class, &a.Error, &a.Location,
				&a.Excerpt, &a.Truncated, &a.BodyHash, &a.Late)
			a.StartedAt, a.Latency = fromMicros(startedAt), time.Duration(latency)
			attempts = append(attempts, a)
			return err
		})
	})
	return attempts, err
}
