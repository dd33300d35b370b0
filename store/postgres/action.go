package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// One that is kept in order and under a lease may be on its way: the next waits until
// the lease has ended. Rides on delivery_pkey and order_hold_pkey.
const cancelDeliverySQL = `
WITH gone AS (
    DELETE FROM {{schema}}.delivery
    WHERE id = $2::uuid AND ($3::boolean OR tenant = $4::text)
    RETURNING *
), dead AS (
    INSERT INTO {{schema}}.delivery_dead
        (id, event_id, endpoint_id, created_at, finished_at, run, attempts, last_status, state, reason, tenant, event_type, last_class,
         skipped)
    SELECT id, event_id, endpoint_id, created_at, $1::timestamptz, run, attempts, last_status, 'cancelled', $5::text,
           tenant, event_type, last_class, skipped
    FROM gone
), held AS (
    INSERT INTO {{schema}}.order_hold AS h (endpoint_id, order_key, until)
    SELECT endpoint_id, order_key, lease_until FROM gone WHERE order_key IS NOT NULL AND lease_until > $1::timestamptz
    ON CONFLICT (endpoint_id, order_key) DO UPDATE SET until = greatest(h.until, excluded.until)
)
SELECT endpoint_id, order_key IS NOT NULL, coalesce(order_key, '') FROM gone`

// Rides on delivery_pkey.
const hastenSQL = `
UPDATE {{schema}}.delivery SET next_attempt_at = least(next_attempt_at, $1::timestamptz)
WHERE id = $2::uuid AND ($3::boolean OR tenant = $4::text) AND lease_until <= $1::timestamptz`

// Whoever begins runs to an endpoint has its row locked, so that two never begin
// the same one, and it is neither disabled nor deleted meanwhile. Claims and
// fan-out do not look at the lock. Rides on endpoint_pkey.
const lockEndpointSQL = `
SELECT tenant, state, ordering FROM {{schema}}.endpoint
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
    (id, event_id, endpoint_id, run, lane, tenant, event_type, next_attempt_at, created_at, order_key, order_seq)
SELECT r.id, e.id, $2::uuid, greatest(1, 1 + l.run, 1 + d.run), CASE WHEN o.key IS NULL THEN 2 ELSE 3 END,
       e.tenant, e.type, $1::timestamptz, $1::timestamptz, o.key, CASE WHEN o.key IS NOT NULL THEN e.seq END
FROM unnest($4::uuid[], $5::uuid[]) AS r (id, event_id)
JOIN {{schema}}.event e ON e.id = r.event_id AND e.tenant = $3::text
CROSS JOIN LATERAL (
    SELECT CASE $6::text WHEN 'per_endpoint' THEN '' WHEN 'per_resource' THEN nullif(e.resource_id, '') END AS key
) o
CROSS JOIN LATERAL (
    SELECT max(run) AS run FROM {{schema}}.delivery_log WHERE event_id = e.id AND endpoint_id = $2::uuid
) l
CROSS JOIN LATERAL (
    SELECT max(run) AS run FROM {{schema}}.delivery_dead WHERE event_id = e.id AND endpoint_id = $2::uuid
) d
WHERE NOT EXISTS (SELECT FROM {{schema}}.delivery p WHERE p.event_id = e.id AND p.endpoint_id = $2::uuid)
FOR KEY SHARE OF e`

// Remembers of dead runs that there are later ones. Rides on delivery_dead_run_idx.
const markReplayedSQL = `
UPDATE {{schema}}.delivery_dead SET replayed = true
WHERE event_id = ANY ($1::uuid[]) AND endpoint_id = $2::uuid AND NOT replayed`

// Rides on event_pkey.
const orderKeysSQL = `
SELECT DISTINCT CASE $2::text WHEN 'per_endpoint' THEN '' ELSE resource_id END
FROM {{schema}}.event
WHERE id = ANY ($1::uuid[]) AND ($2::text = 'per_endpoint' OR resource_id <> '')`

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
	cancelled := false
	err := s.giveTurns(ctx, func(tx conn) error {
		var keys orderKeys
		cancelled = false
		err := collect(ctx, tx, &s.sql.cancelDelivery, func(r rows) error {
			cancelled = true
			var key webhook.OrderKey
			var ordered bool
			err := r.Scan(&key.EndpointID, &ordered, &key.Key)
			if ordered {
				keys.add(key)
			}
			return err
		}, micros(p.Now), s.db.id(p.DeliveryID), !limited, tenant, text(p.Reason))
		if err != nil {
			return err
		}
		_, err = s.releaseKeys(ctx, tx, p.Now, keys)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("postgres: cancelling delivery %s: %w", p.DeliveryID, err)
	}
	return cancelled, nil
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
	err = s.giveTurns(ctx, func(tx conn) error {
		id, started, err = s.startRun(ctx, tx, p)
		return err
	})
	if err != nil {
		return uuid.Nil, false, fmt.Errorf("postgres: starting a run of event %s: %w", p.EventID, err)
	}
	return id, started, nil
}

func (s *core) startRun(ctx context.Context, tx conn, p webhook.StartRunParams) (uuid.UUID, bool, error) {
	to, err := s.lockEndpoint(ctx, tx, p.Scope, p.EndpointID)
	if err != nil {
		return uuid.Nil, false, err
	}
	ids, err := s.ids.New(p.Now, 1)
	if err != nil {
		return uuid.Nil, false, err
	}
	n, err := s.insertRuns(ctx, tx, p.Now, to, ids, []uuid.UUID{p.EventID})
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

// replayTarget is an endpoint that may be replayed to, locked.
type replayTarget struct {
	id       uuid.UUID
	tenant   string
	ordering webhook.Ordering
}

// lockEndpoint locks an endpoint that may be replayed to.
func (s *core) lockEndpoint(ctx context.Context, tx conn, scope webhook.Scope, id uuid.UUID) (replayTarget, error) {
	only, limited := scope.Tenant()
	found := false
	to := replayTarget{id: id}
	var state webhook.EndpointState
	err := collect(ctx, tx, &s.sql.lockEndpoint, func(r rows) error {
		found = true
		return r.Scan(&to.tenant, &state, &to.ordering)
	}, s.db.id(id), !limited, only)
	switch {
	case err != nil:
		return replayTarget{}, err
	case !found:
		return replayTarget{}, webhook.ErrNotFound
	case state == webhook.EndpointDisabled:
		return replayTarget{}, webhook.ErrEndpointDisabled
	}
	return to, nil
}

// insertRuns begins runs of different events to an endpoint that is locked.
func (s *core) insertRuns(ctx context.Context, tx conn, now time.Time, to replayTarget, ids, events []uuid.UUID) (int64, error) {
	n, err := tx.exec(ctx, &s.sql.insertRuns, micros(now), s.db.id(to.id), to.tenant, s.db.uuids(ids), s.db.uuids(events), string(to.ordering))
	if err != nil || n == 0 {
		return n, err
	}
	if _, err := tx.exec(ctx, &s.sql.markReplayed, s.db.uuids(events), s.db.id(to.id)); err != nil {
		return n, err
	}
	if to.ordering == webhook.OrderingNone {
		return n, nil
	}
	var keys orderKeys
	err = collect(ctx, tx, &s.sql.orderKeys, func(r rows) error {
		key := webhook.OrderKey{EndpointID: to.id}
		err := r.Scan(&key.Key)
		keys.add(key)
		return err
	}, s.db.uuids(events), string(to.ordering))
	if err != nil {
		return n, err
	}
	_, err = s.releaseKeys(ctx, tx, now, keys)
	return n, err
}
