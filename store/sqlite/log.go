package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

const (
	// Rides on the unique index of event.id.
	selectEventStatus query = `
		SELECT seq, id, tenant, type, resource_id, resource_version, content_type, created_at, payload,
			NOT EXISTS (SELECT 1 FROM {{prefix}}outbox WHERE event_seq = seq),
			EXISTS (SELECT 1 FROM {{prefix}}unmatched WHERE event_seq = seq)
		FROM {{prefix}}event WHERE id = ?`

	// The columns of the three tables of deliveries, as one.
	unfinishedColumns query = `id, event_id, endpoint_id, run, tenant, event_type,
		iif(lease_until = 0, 'pending', 'in_flight'), '', attempts, next_attempt_at, created_at, 0,
		last_status, last_class, lane = 3, skipped`
	finishedColumns query = `id, event_id, endpoint_id, run, tenant, event_type,
		state, reason, attempts, 0, created_at, finished_at, last_status, last_class, 0, skipped`

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
		e, err := scanEvent(row, &status.FannedOut, &status.Unmatched)
		if errors.Is(err, sql.ErrNoRows) || (err == nil && !scope.Includes(e.Tenant)) {
			return webhook.ErrNotFound
		}
		status.EventRecord = *e
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

// ListDeliveries implements [webhook.LogStore].
func (s *Store) ListDeliveries(ctx context.Context, p webhook.ListDeliveriesParams) ([]webhook.Delivery, error) {
	if p.Limit <= 0 {
		return nil, nil
	}
	text, args := listDeliveries(p)
	if text == "" {
		return nil, nil
	}
	var deliveries []webhook.Delivery
	err := s.read(ctx, "listing deliveries", func(ctx context.Context) error {
		deliveries = nil
		rows, err := s.db.QueryContext(ctx, s.sql(text), args...)
		return scanAll(rows, err, func(rows *sql.Rows) error {
			d, err := scanDelivery(rows)
			deliveries = append(deliveries, d)
			return err
		})
	})
	return deliveries, err
}

// table is one of the tables of deliveries.
type table struct {
	name    query
	columns query
	// narrow is the condition on top of which states are told apart.
	narrow func(webhook.DeliveryState) (condition query, args []any)
	holds  func(webhook.DeliveryState) bool
}

var tables = []table{
	{
		name:    "{{prefix}}delivery",
		columns: unfinishedColumns,
		holds:   func(s webhook.DeliveryState) bool { return !s.Final() },
		narrow: func(s webhook.DeliveryState) (query, []any) {
			if s == webhook.StateInFlight {
				return " AND lease_until <> 0", nil
			}
			return " AND lease_until = 0", nil
		},
	},
	{
		name:    "{{prefix}}delivery_log",
		columns: finishedColumns,
		holds:   func(s webhook.DeliveryState) bool { return s == webhook.StateDelivered },
		narrow:  func(webhook.DeliveryState) (query, []any) { return "", nil },
	},
	{
		name:    "{{prefix}}delivery_dead",
		columns: finishedColumns,
		holds:   func(s webhook.DeliveryState) bool { return s.Final() && s != webhook.StateDelivered },
		narrow:  func(s webhook.DeliveryState) (query, []any) { return " AND state = ?", []any{string(s)} },
	},
}

// listDeliveries writes the statement for what p asks: the newest of each table
// that can hold it, and of these the newest. It is one statement, so that a
// delivery that moves meanwhile is seen exactly once. It is empty when nothing
// can match.
func listDeliveries(p webhook.ListDeliveriesParams) (query, []any) {
	var parts []string
	var args []any
	for _, t := range tables {
		if p.State != "" && !t.holds(p.State) {
			continue
		}
		part, partArgs := t.newest(p)
		parts = append(parts, "SELECT * FROM ("+part+")") //nolint:unqueryvet // part names the columns
		args = append(args, partArgs...)
	}
	if len(parts) == 0 {
		return "", nil
	}
	return query(strings.Join(parts, "\nUNION ALL ") + "\nORDER BY 1 DESC LIMIT ?"), append(args, p.Limit)
}

// newest selects from one table. Each case has its index: the event's; the
// endpoint's; for a tenant, that of each of its endpoints; the primary key.
func (t table) newest(p webhook.ListDeliveriesParams) (string, []any) {
	before := p.Before
	if before == uuid.Nil {
		before = uuid.Max
	}
	narrow, narrowArgs := t.narrowed(p.State)
	tenant, limited := p.Scope.Tenant()

	var where query
	var args []any
	order := "id"
	switch {
	case p.EventID != uuid.Nil:
		// The plus keeps SQLite from walking an index in the order of ids
		// through what other events have.
		order = "+id"
		where = "+id < ? AND event_seq = (SELECT seq FROM {{prefix}}event WHERE id = ?)"
		args = []any{blob(before), blob(p.EventID)}
		if p.EndpointID != uuid.Nil {
			where += " AND endpoint_id = ?"
			args = append(args, blob(p.EndpointID))
		}
	case p.EndpointID != uuid.Nil:
		where = "endpoint_id = ? AND id < ?"
		args = []any{blob(p.EndpointID), blob(before)}
	case limited:
		where = `id IN (
			SELECT of_endpoint.id FROM {{prefix}}endpoint AS mine CROSS JOIN ` + t.name + ` AS of_endpoint
			WHERE mine.tenant = ? AND of_endpoint.id IN (
				SELECT id FROM ` + t.name + ` AS newest
				WHERE newest.endpoint_id = mine.id AND newest.id < ?` + narrow + `
				ORDER BY newest.id DESC LIMIT ?))`
		args = append(append([]any{tenant, blob(before)}, narrowArgs...), p.Limit)
	default:
		where = "id < ?"
		args = []any{blob(before)}
	}
	if limited {
		where += " AND tenant = ?"
		args = append(args, tenant)
	}
	args = append(append(args, narrowArgs...), p.Limit)
	return "SELECT " + string(t.columns) + " FROM " + string(t.name) + " WHERE " + string(where+narrow) +
		" ORDER BY " + order + " DESC LIMIT ?", args
}

func (t table) narrowed(state webhook.DeliveryState) (query, []any) {
	if state == "" {
		return "", nil
	}
	return t.narrow(state)
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
