package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

const (
	// Rides on the primary key of delivery.
	selectCancelledOne query = `
		SELECT tenant, lease_token, lease_until, endpoint_id, order_key FROM {{prefix}}delivery WHERE id = ?`

	// Rides on the primary key of delivery.
	updateHastened query = `
		UPDATE {{prefix}}delivery SET next_attempt_at = min(next_attempt_at, ?1)
		WHERE id = ?2 AND lease_until <= ?1 AND (?3 OR tenant = ?4)`

	// Rides on the unique index of endpoint.id.
	selectReplayable query = `
		SELECT tenant, state, ordering FROM {{prefix}}endpoint WHERE id = ? AND deleted_at = 0`

	// Rides on delivery_run.
	selectUnfinishedRun query = `
		SELECT id FROM {{prefix}}delivery WHERE event_seq = ? AND endpoint_id = ? ORDER BY run LIMIT 1`

	// Rides on the unique index of event.id and on delivery_log_run and
	// delivery_dead_run.
	selectNextRun query = `
		SELECT seq, tenant, type, resource_id, 1 + max(0,
			coalesce((SELECT max(run) FROM {{prefix}}delivery_log WHERE event_seq = seq AND endpoint_id = ?1), 0),
			coalesce((SELECT max(run) FROM {{prefix}}delivery_dead WHERE event_seq = seq AND endpoint_id = ?1), 0))
		FROM {{prefix}}event WHERE id = ?2`

	insertRun query = `
		INSERT INTO {{prefix}}delivery
		(id, event_seq, event_id, endpoint_id, run, tenant, event_type, lane, next_attempt_at,
		lease_until, lease_token, attempts, created_at, last_status, last_class, order_key)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, x'', 0, ?, 0, '', ?)`

	// Remembers of dead runs that there are later ones. Rides on delivery_dead_run.
	updateReplayed query = `UPDATE {{prefix}}delivery_dead SET replayed = 1 WHERE event_seq = ? AND endpoint_id = ?`

	// Looks through what the endpoint has had: the event, by which it would be found
	// sooner, is gone. Rides on the indexes by endpoint.
	selectHadEvent query = `
		SELECT EXISTS (SELECT 1 FROM {{prefix}}delivery_log WHERE endpoint_id = ?1 AND event_id = ?2)
			OR EXISTS (SELECT 1 FROM {{prefix}}delivery_dead WHERE endpoint_id = ?1 AND event_id = ?2)
			OR EXISTS (SELECT 1 FROM {{prefix}}delivery WHERE endpoint_id = ?1 AND event_id = ?2)`
)

// CancelDelivery implements [webhook.ActionStore].
func (s *Store) CancelDelivery(ctx context.Context, p webhook.CancelDeliveryParams) (cancelled bool, err error) {
	err = s.write(ctx, "cancelling a delivery", nil, func(ctx context.Context, c *sql.Conn) error {
		cancelled = false
		f := finish{id: p.DeliveryID, state: webhook.StateCancelled, reason: p.Reason}
		var tenant string
		var leaseUntil int64
		var order webhook.OrderKey
		var key sql.NullString
		err := c.QueryRowContext(ctx, s.sql(selectCancelledOne), blob(p.DeliveryID)).
			Scan(&tenant, &f.token, &leaseUntil, &order.EndpointID, &key)
		if errors.Is(err, sql.ErrNoRows) || (err == nil && !p.Scope.Includes(tenant)) {
			return nil
		}
		if err != nil {
			return err
		}
		f.token = present(f.token) // drivers may give an empty blob as nil
		r, st, err := s.newRecorder(ctx, c)
		if err != nil {
			return err
		}
		defer st.close()
		r.now = micros(p.Now)
		if cancelled, err = r.finish(ctx, f); err != nil {
			return err
		}
		if key.Valid && cancelled {
			order.Key = key.String
			if err := s.passTurn(ctx, c, order, r.now, leaseUntil); err != nil {
				return err
			}
		}
		return s.saveCounts(ctx, c, r.counts)
	})
	return cancelled && err == nil, err
}

// passTurn gives the turn of a delivery that was cancelled to the next, when it cannot
// be on its way any more. It runs under the lock.
func (s *Store) passTurn(ctx context.Context, c *sql.Conn, key webhook.OrderKey, now, leaseUntil int64) error {
	if leaseUntil > now {
		_, err := c.ExecContext(ctx, s.sql(insertOrderHold), blob(key.EndpointID), key.Key, leaseUntil)
		return err
	}
	_, err := s.release(ctx, c, key, now, 0)
	return err
}

// HastenDelivery implements [webhook.ActionStore].
func (s *Store) HastenDelivery(ctx context.Context, p webhook.HastenDeliveryParams) (hastened bool, err error) {
	tenant, limited := p.Scope.Tenant()
	err = s.write(ctx, "hastening a delivery", nil, func(ctx context.Context, c *sql.Conn) error {
		var err error
		hastened, err = changed(c.ExecContext(ctx, s.sql(updateHastened), micros(p.Now), blob(p.DeliveryID), !limited, tenant))
		return err
	})
	return hastened && err == nil, err
}

// StartRun implements [webhook.ActionStore].
func (s *Store) StartRun(ctx context.Context, p webhook.StartRunParams) (id uuid.UUID, started bool, err error) {
	err = s.write(ctx, "starting a run", nil, func(ctx context.Context, c *sql.Conn) error {
		to, err := s.replayable(ctx, c, p.Scope, p.EndpointID)
		if err != nil {
			return err
		}
		id, started, err = s.startRun(ctx, c, to, p)
		return err
	})
	if err != nil {
		return uuid.Nil, false, err
	}
	return id, started, nil
}

// replayTarget is an endpoint that may be replayed to.
type replayTarget struct {
	tenant   string
	ordering webhook.Ordering
}

func (s *Store) replayable(ctx context.Context, c *sql.Conn, scope webhook.Scope, id uuid.UUID) (to replayTarget, err error) {
	var state webhook.EndpointState
	err = c.QueryRowContext(ctx, s.sql(selectReplayable), blob(id)).Scan(&to.tenant, &state, &to.ordering)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return replayTarget{}, webhook.ErrNotFound
	case err != nil:
		return replayTarget{}, err
	case !scope.Includes(to.tenant):
		return replayTarget{}, webhook.ErrNotFound
	case state == webhook.EndpointDisabled:
		return replayTarget{}, webhook.ErrEndpointDisabled
	}
	return to, nil
}

// startRun runs under the lock.
func (s *Store) startRun(ctx context.Context, c *sql.Conn, to replayTarget, p webhook.StartRunParams) (uuid.UUID, bool, error) {
	var seq, run int64
	var e webhook.EventRecord
	row := c.QueryRowContext(ctx, s.sql(selectNextRun), blob(p.EndpointID), blob(p.EventID))
	err := row.Scan(&seq, &e.Tenant, &e.Type, &e.ResourceID, &run)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return uuid.Nil, false, s.noEvent(ctx, c, p)
	case err != nil:
		return uuid.Nil, false, err
	case e.Tenant != to.tenant:
		return uuid.Nil, false, webhook.ErrNotFound
	}
	var id uuid.UUID
	err = c.QueryRowContext(ctx, s.sql(selectUnfinishedRun), seq, blob(p.EndpointID)).Scan(&id)
	if !errors.Is(err, sql.ErrNoRows) {
		return id, false, err
	}
	ids, err := s.ids.New(p.Now, 1)
	if err != nil {
		return uuid.Nil, false, fmt.Errorf("making a delivery id: %w", err)
	}
	if _, err := c.ExecContext(ctx, s.sql(updateReplayed), seq, blob(p.EndpointID)); err != nil {
		return uuid.Nil, false, err
	}
	id = ids[0]
	due := micros(p.Now)
	lane, order := webhook.LaneReplay, any(nil)
	key, ordered := to.ordering.Key(&e)
	if ordered {
		lane, order = webhook.LaneWaiting, key
	}
	_, err = c.ExecContext(ctx, s.sql(insertRun), blob(id), seq, blob(p.EventID), blob(p.EndpointID), run,
		e.Tenant, e.Type, int(lane), due, due, order)
	if err == nil && ordered {
		_, err = s.release(ctx, c, webhook.OrderKey{EndpointID: p.EndpointID, Key: key}, due, 0)
	}
	return id, true, err
}

// noEvent tells an event that is gone from one that was never there.
func (s *Store) noEvent(ctx context.Context, c *sql.Conn, p webhook.StartRunParams) error {
	var had bool
	err := c.QueryRowContext(ctx, s.sql(selectHadEvent), blob(p.EndpointID), blob(p.EventID)).Scan(&had)
	switch {
	case err != nil:
		return err
	case had:
		return webhook.ErrEventGone
	}
	return webhook.ErrNotFound
}
