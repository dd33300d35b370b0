package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// Rides on event_pkey, outbox_pkey, outbox_moved_idx and unmatched_pkey.
const getEventSQL = `
SELECT e.id, e.seq, e.tenant, e.type, e.resource_id, e.resource_version, e.content_type, e.payload, e.created_at,
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
			&e.Payload, &e.CreatedAt, &waiting, &e.Unmatched)
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

// ListDeliveries implements [webhook.LogStore].
func (s *core) ListDeliveries(ctx context.Context, p webhook.ListDeliveriesParams) ([]webhook.Delivery, error) {
	if p.Limit <= 0 {
		return nil, nil
	}
	q, args, err := s.listDeliveries(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("postgres: listing deliveries: %w", err)
	}
	found, err := s.collectDeliveries(ctx, &q, args...)
	if err != nil {
		return nil, fmt.Errorf("postgres: listing deliveries: %w", err)
	}
	return found, nil
}

// fewEndpoints is up to how many endpoints of a tenant are looked at one by one.
// A tenant with more of them is so large a part of the whole that reading the
// newest deliveries of all, and keeping its own, finds them soon.
const fewEndpoints = 200

// listDeliveries builds the list's statement: one branch for each table that may
// hold what is wanted, each of them newest first and limited, so that none reads
// more than a page. They ride on the tables' indexes by id, by event, or by
// endpoint and id; the unfinished ones of an endpoint on delivery_claim_idx or
// delivery_pkey, whichever finds them sooner.
func (s *core) listDeliveries(ctx context.Context, p webhook.ListDeliveriesParams) (statement, []any, error) {
	var args []any
	parameter := func(value any, as string) string {
		args = append(args, value)
		return fmt.Sprintf("$%d::%s", len(args), as)
	}
	limit := parameter(p.Limit, "integer")

	var where []string
	if p.EventID != uuid.Nil {
		where = append(where, "d.event_id = "+parameter(s.db.id(p.EventID), "uuid"))
	}
	if p.EndpointID != uuid.Nil {
		where = append(where, "d.endpoint_id = "+parameter(s.db.id(p.EndpointID), "uuid"))
	}
	if p.Before != uuid.Nil {
		where = append(where, "d.id < "+parameter(s.db.id(p.Before), "uuid"))
	}
	each := ""
	if tenant, limited := p.Scope.Tenant(); limited {
		where = append(where, "d.tenant = "+parameter(tenant, "text"))
		if p.EventID == uuid.Nil && p.EndpointID == uuid.Nil {
			endpoints, err := s.tenantEndpoints(ctx, tenant)
			if err != nil {
				return statement{}, nil, err
			}
			if len(endpoints) <= fewEndpoints {
				each = parameter(s.db.uuids(endpoints), "uuid[]")
			}
		}
	}

	var branches []string
	branch := func(columns, table, filter string) {
		conditions := where
		if filter != "" {
			conditions = append(slices.Clip(conditions), filter)
		}
		if each != "" {
			conditions = append(slices.Clip(conditions), "d.endpoint_id = o.id")
		}
		b := "SELECT" + columns + " FROM " + quote(s.config.Schema) + "." + table + " d"
		if len(conditions) > 0 {
			b += "\n    WHERE " + strings.Join(conditions, " AND ")
		}
		if p.EventID != uuid.Nil {
			// All of an event's deliveries are found first: the planner likes to
			// look for them among the newest of all, in order.
			b = "SELECT * FROM (" + b + " OFFSET 0) d"
		}
		b += "\n    ORDER BY d.id DESC LIMIT " + limit
		if each != "" {
			b = "SELECT d.* FROM unnest(" + each + ") AS o (id) CROSS JOIN LATERAL (" + b + ") d"
		}
		branches = append(branches, "("+b+")")
	}
	switch p.State {
	case "":
		branch(pendingColumns, "delivery", "")
		branch(deliveredColumns, "delivery_log", "")
		branch(deadColumns, "delivery_dead", "")
	case webhook.StatePending:
		branch(pendingColumns, "delivery", "d.lease_token IS NULL")
	case webhook.StateInFlight:
		branch(pendingColumns, "delivery", "d.lease_token IS NOT NULL")
	case webhook.StateDelivered:
		branch(deliveredColumns, "delivery_log", "")
	case webhook.StateDead, webhook.StateCancelled, webhook.StateShed:
		branch(deadColumns, "delivery_dead", "d.state = "+parameter(string(p.State), "text"))
	default:
		return statement{}, nil, &webhook.InvalidError{Field: "ListDeliveriesParams.State", Problem: "is not a delivery's state"}
	}

	text := "SELECT * FROM (\n    " + strings.Join(branches, "\n    UNION ALL\n    ") + "\n) d\nORDER BY d.id DESC LIMIT " + limit
	return statement{text: text, replan: true}, args, nil
}

// tenantEndpoints returns a tenant's endpoints, deleted ones included, or just
// more than fewEndpoints of them. It rides on endpoint_tenant_idx.
func (s *core) tenantEndpoints(ctx context.Context, tenant string) ([]uuid.UUID, error) {
	q := statement{
		text: "SELECT id FROM " + quote(s.config.Schema) + ".endpoint\n" +
			"WHERE tenant = $1::text ORDER BY id LIMIT $2::integer",
		replan: true,
	}
	return s.collectIDs(ctx, s.db, &q, tenant, fewEndpoints+1)
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
