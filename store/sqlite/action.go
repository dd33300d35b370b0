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
		SELECT tenant, lease_token FROM {{prefix}}delivery WHERE id = ?`

	// Rides on the primary key of delivery.
	updateHastened query = `
		UPDATE {{prefix}}delivery SET next_attempt_at = min(next_attempt_at, ?1)
		WHERE id = ?2 AND lease_until <= ?1 AND (?3 OR tenant = ?4)`

	// Rides on the unique index of endpoint.id.
	selectReplayable query = `
		SELECT tenant, state FROM {{prefix}}endpoint WHERE id = ? AND deleted_at = 0`

	// Rides on delivery_run.
	selectUnfinishedRun query = `
		SELECT id FROM {{prefix}}delivery WHERE event_seq = ? AND endpoint_id = ? ORDER BY run LIMIT 1`

	// Rides on the unique index of event.id and on delivery_log_run and
	// delivery_dead_run.
	selectNextRun query = `
		SELECT seq, tenant, type, 1 + max(0,
			coalesce((SELECT max(run) FROM {{prefix}}delivery_log WHERE event_seq = seq AND endpoint_id = ?1), 0),
			coalesce((SELECT max(run) FROM {{prefix}}delivery_dead WHERE event_seq = seq AND endpoint_id = ?1), 0))
		FROM {{prefix}}event WHERE id = ?2`

	insertRun query = `
		INSERT INTO {{prefix}}delivery
		(id, event_seq, event_id, endpoint_id, run, tenant, event_type, lane, next_attempt_at,
		lease_until, lease_token, attempts, created_at, last_status, last_class)
		VALUES (?, ?, ?, ?, ?, ?, ?, 2, ?, 0, x'', 0, ?, 0, '')`

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
		err := c.QueryRowContext(ctx, s.sql(selectCancelledOne), blob(p.DeliveryID)).Scan(&tenant, &f.token)
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
		return s.saveCounts(ctx, c, r.counts)
	})
	return cancelled && err == nil, err
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
		tenant, err := s.replayable(ctx, c, p.Scope, p.EndpointID)
		if err != nil {
			return err
		}
		id, started, err = s.startRun(ctx, c, tenant, p)
		return err
	})
	if err != nil {
		return uuid.Nil, false, err
	}
	return id, started, nil
}

// replayable returns the tenant of an endpoint that may be replayed to.
func (s *Store) replayable(ctx context.Context, c *sql.Conn, scope webhook.Scope, id uuid.UUID) (tenant string, err error) {
	var state webhook.EndpointState
	err = c.QueryRowContext(ctx, s.sql(selectReplayable), blob(id)).Scan(&tenant, &state)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", webhook.ErrNotFound
	case err != nil:
		return "", err
	case !scope.Includes(tenant):
		return "", webhook.ErrNotFound
	case state == webhook.EndpointDisabled:
		return "", webhook.ErrEndpointDisabled
	}
	return tenant, nil
}

// startRun runs under the lock.
func (s *Store) startRun(ctx context.Context, c *sql.Conn, tenant string, p webhook.StartRunParams) (uuid.UUID, bool, error) {
	var seq, run int64
	var eventTenant, eventType string
	row := c.QueryRowContext(ctx, s.sql(selectNextRun), blob(p.EndpointID), blob(p.EventID))
	err := row.Scan(&seq, &eventTenant, &eventType, &run)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return uuid.Nil, false, s.noEvent(ctx, c, p)
	case err != nil:
		return uuid.Nil, false, err
	case eventTenant != tenant:
		return uuid.Nil, false, webhook.ErrNotFound
	}
	var id uuid.UUID
	err = c.QueryRowContext(ctx, s.sql(selectUnfinishedRun), seq, blob(p.EndpointID)).Scan(&id)
	if !errors.Is(err, sql.ErrNoRows) {
		return id, false, err
	}
	if id, err = uuid.NewV7(); err != nil {
		return uuid.Nil, false, fmt.Errorf("making a delivery id: %w", err)
	}
	due := micros(p.Now)
	_, err = c.ExecContext(ctx, s.sql(insertRun), blob(id), seq, blob(p.EventID), blob(p.EndpointID), run,
		tenant, eventType, due, due)
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
