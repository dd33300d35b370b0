package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// Rides on delivery_pkey.
const cancelDeliverySQL = `
WITH gone AS (
    DELETE FROM {{schema}}.delivery
    WHERE id = $2::uuid AND ($3::boolean OR tenant = $4::text)
    RETURNING *
)
INSERT INTO {{schema}}.delivery_dead
    (id, event_id, endpoint_id, created_at, finished_at, run, attempts, last_status, state, reason, tenant, event_type, last_class)
SELECT id, event_id, endpoint_id, created_at, $1::timestamptz, run, attempts, last_status, 'cancelled', $5::text,
       tenant, event_type, last_class
FROM gone`

// Rides on delivery_pkey.
const hastenSQL = `
UPDATE {{schema}}.delivery SET next_attempt_at = least(next_attempt_at, $1::timestamptz)
WHERE id = $2::uuid AND ($3::boolean OR tenant = $4::text) AND lease_until <= $1::timestamptz`

// Whoever begins runs to an endpoint has its row locked, so that two never begin
// the same one, and it is neither disabled nor deleted meanwhile. Claims and
// fan-out do not look at the lock. Rides on endpoint_pkey.
const lockEndpointSQL = `
SELECT tenant, state FROM {{schema}}.endpoint
WHERE id = $1::uuid AND deleted_at IS NULL AND ($2::boolean OR tenant = $3::text)
FOR NO KEY UPDATE`

// Begins the next run of each event that has none unfinished. It has to see what
// was begun before the endpoint was locked, and so is a statement of its own. The
// events are locked so that upkeep, which locks those that it removes, neither misses
// the run nor is missed. Rides
// on event_pkey and on the indexes by event of delivery, delivery_log and
// delivery_dead.
const insertRunsSQL = `
INSERT INTO {{schema}}.delivery
    (id, event_id, endpoint_id, run, lane, tenant, event_type, next_attempt_at, created_at)
SELECT r.id, e.id, $2::uuid, greatest(1, 1 + l.run, 1 + d.run), 2, e.tenant, e.type, $1::timestamptz, $1::timestamptz
FROM unnest($4::uuid[], $5::uuid[]) AS r (id, event_id)
JOIN {{schema}}.event e ON e.id = r.event_id AND e.tenant = $3::text
CROSS JOIN LATERAL (
    SELECT max(run) AS run FROM {{schema}}.delivery_log WHERE event_id = e.id AND endpoint_id = $2::uuid
) l
CROSS JOIN LATERAL (
    SELECT max(run) AS run FROM {{schema}}.delivery_dead WHERE event_id = e.id AND endpoint_id = $2::uuid
) d
WHERE NOT EXISTS (SELECT FROM {{schema}}.delivery p WHERE p.event_id = e.id AND p.endpoint_id = $2::uuid)
FOR KEY SHARE OF e`

// Rides on delivery_event_idx.
const unfinishedRunSQL = `
SELECT id FROM {{schema}}.delivery WHERE event_id = $1::uuid AND endpoint_id = $2::uuid ORDER BY run LIMIT 1`

// Tells an event that is gone from one that was never there. Rides on event_pkey
// and on the indexes by event of delivery_log and delivery_dead.
const eventGoneSQL = `
SELECT NOT EXISTS (SELECT FROM {{schema}}.event WHERE id = $1::uuid)
   AND (EXISTS (SELECT FROM {{schema}}.delivery_log WHERE event_id = $1::uuid AND endpoint_id = $2::uuid)
     OR EXISTS (SELECT FROM {{schema}}.delivery_dead WHERE event_id = $1::uuid AND endpoint_id = $2::uuid))`

// CancelDelivery implements [webhook.ActionStore].
func (s *core) CancelDelivery(ctx context.Context, p webhook.CancelDeliveryParams) (bool, error) {
	tenant, limited := p.Scope.Tenant()
	n, err := s.db.exec(ctx, &s.sql.cancelDelivery, micros(p.Now), s.db.id(p.DeliveryID), !limited, tenant, text(p.Reason))
	if err != nil {
		return false, fmt.Errorf("postgres: cancelling delivery %s: %w", p.DeliveryID, err)
	}
	return n > 0, nil
}

// HastenDelivery implements [webhook.ActionStore].
func (s *core) HastenDelivery(ctx context.Context, p webhook.HastenDeliveryParams) (bool, error) {
	tenant, limited := p.Scope.Tenant()
	n, err := s.db.exec(ctx, &s.sql.hasten, micros(p.Now), s.db.id(p.DeliveryID), !limited, tenant)
	if err != nil {
		return false, fmt.Errorf("postgres: hastening delivery %s: %w", p.DeliveryID, err)
	}
	return n > 0, nil
}

// StartRun implements [webhook.ActionStore].
func (s *core) StartRun(ctx context.Context, p webhook.StartRunParams) (id uuid.UUID, started bool, err error) {
	err = s.db.atomically(ctx, func(tx conn) error {
		id, started, err = s.startRun(ctx, tx, p)
		return err
	})
	if err != nil {
		return uuid.Nil, false, fmt.Errorf("postgres: starting a run of event %s: %w", p.EventID, err)
	}
	return id, started, nil
}

func (s *core) startRun(ctx context.Context, tx conn, p webhook.StartRunParams) (uuid.UUID, bool, error) {
	tenant, err := s.lockEndpoint(ctx, tx, p.Scope, p.EndpointID)
	if err != nil {
		return uuid.Nil, false, err
	}
	ids, err := newIDs(1)
	if err != nil {
		return uuid.Nil, false, err
	}
	n, err := s.insertRuns(ctx, tx, p.Now, p.EndpointID, tenant, ids, []uuid.UUID{p.EventID})
	if err != nil {
		return uuid.Nil, false, err
	}
	if n > 0 {
		return ids[0], true, nil
	}
	unfinished, err := s.collectIDs(ctx, tx, &s.sql.unfinishedRun, s.db.id(p.EventID), s.db.id(p.EndpointID))
	if err != nil {
		return uuid.Nil, false, err
	}
	if len(unfinished) > 0 {
		return unfinished[0], false, nil
	}
	gone := false
	err = collect(ctx, tx, &s.sql.eventGone, func(r rows) error { return r.Scan(&gone) }, s.db.id(p.EventID), s.db.id(p.EndpointID))
	switch {
	case err != nil:
		return uuid.Nil, false, err
	case gone:
		return uuid.Nil, false, webhook.ErrEventGone
	}
	return uuid.Nil, false, webhook.ErrNotFound
}

// lockEndpoint locks an endpoint that may be replayed to and returns its tenant.
func (s *core) lockEndpoint(ctx context.Context, tx conn, scope webhook.Scope, id uuid.UUID) (tenant string, err error) {
	only, limited := scope.Tenant()
	found := false
	var state webhook.EndpointState
	err = collect(ctx, tx, &s.sql.lockEndpoint, func(r rows) error {
		found = true
		return r.Scan(&tenant, &state)
	}, s.db.id(id), !limited, only)
	switch {
	case err != nil:
		return "", err
	case !found:
		return "", webhook.ErrNotFound
	case state == webhook.EndpointDisabled:
		return "", webhook.ErrEndpointDisabled
	}
	return tenant, nil
}

// insertRuns begins runs of different events to an endpoint that is locked.
func (s *core) insertRuns(ctx context.Context, tx conn, now time.Time, endpoint uuid.UUID, tenant string, ids, events []uuid.UUID) (int64, error) {
	return tx.exec(ctx, &s.sql.insertRuns, micros(now), s.db.id(endpoint), tenant, s.db.uuids(ids), s.db.uuids(events))
}

func newIDs(n int) ([]uuid.UUID, error) {
	ids := make([]uuid.UUID, n)
	for i := range ids {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		ids[i] = id
	}
	return ids, nil
}
