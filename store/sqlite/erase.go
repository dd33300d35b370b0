package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

const (
	// erasedPerWrite keeps the lock short.
	erasedPerWrite = 200

	// A deleted endpoint that still holds something: its URL goes last. Rides on
	// endpoint_tenant.
	selectErasable query = `
		SELECT id FROM {{prefix}}endpoint WHERE tenant = ? AND deleted_at <> 0 AND url <> '' ORDER BY id LIMIT 1`

	// These ride on the indexes by endpoint and id.
	selectErasableOpen query = `
		SELECT id FROM {{prefix}}delivery WHERE endpoint_id = ? AND lease_until <= ? ORDER BY id LIMIT ?`
	selectErasableLog  query = `SELECT id FROM {{prefix}}delivery_log WHERE endpoint_id = ? ORDER BY id LIMIT ?`
	selectErasableDead query = `SELECT id FROM {{prefix}}delivery_dead WHERE endpoint_id = ? ORDER BY id LIMIT ?`
	selectStillOpen    query = `SELECT EXISTS (SELECT 1 FROM {{prefix}}delivery WHERE endpoint_id = ?)`

	eraseEndpoint query = `
		UPDATE {{prefix}}endpoint
		SET url = '', types = '[]', state_reason = '', options = NULL, secrets = NULL, headers = NULL
		WHERE id = ? AND deleted_at <> 0`

	// Rides on event_tenant.
	selectErasableEvents query = `SELECT seq FROM {{prefix}}event WHERE tenant = ? ORDER BY seq LIMIT ?`

	// Rides on endpoint_tenant.
	selectNotDeleted query = `SELECT EXISTS (SELECT 1 FROM {{prefix}}endpoint WHERE tenant = ? AND deleted_at = 0)`
)

// erasures are the statements that each take one id, and what they ride on.
var (
	// By endpoint: the indexes that begin with it, and the primary keys.
	eraseOfEndpoint = []query{
		`DELETE FROM {{prefix}}replay_job WHERE endpoint_id = ?`,
		`DELETE FROM {{prefix}}notice WHERE endpoint_id = ?`,
		`DELETE FROM {{prefix}}endpoint_vitals WHERE endpoint_id = ?`,
		`DELETE FROM {{prefix}}endpoint_health WHERE endpoint_id = ?`,
		`DELETE FROM {{prefix}}order_hold WHERE endpoint_id = ?`,
	}
	// By event: the primary keys and the unique index of outbox.event_seq.
	eraseOfEvent = []query{
		`DELETE FROM {{prefix}}outbox WHERE event_seq = ?`,
		`DELETE FROM {{prefix}}unmatched WHERE event_seq = ?`,
		`DELETE FROM {{prefix}}idempotency_key WHERE (tenant, key) = (SELECT tenant, idempotency_key FROM {{prefix}}event WHERE seq = ?)`,
		`INSERT INTO {{prefix}}payload_gone (event_id, tenant) SELECT id, tenant FROM {{prefix}}event
			WHERE seq = ? AND payload_ref IS NOT NULL ON CONFLICT DO NOTHING`,
		`DELETE FROM {{prefix}}event WHERE seq = ?`,
	}
	// By tenant: the indexes that begin with it.
	eraseOfTenant = []query{
		`DELETE FROM {{prefix}}replay_job WHERE tenant = ?`,
		`DELETE FROM {{prefix}}notice WHERE tenant = ?`,
	}
)

const eraseCounters query = `DELETE FROM {{prefix}}counter WHERE tenant = ?`

// EraseTenant implements [webhook.EraseStore].
func (s *Store) EraseTenant(ctx context.Context, p webhook.EraseTenantParams) (webhook.EraseProgress, error) {
	p.Limit = min(p.Limit, erasedPerWrite)
	var progress webhook.EraseProgress
	err := s.write(ctx, "erasing a tenant", nil, func(ctx context.Context, c *sql.Conn) error {
		var err error
		progress, err = s.eraseTenant(ctx, c, p)
		return err
	})
	return progress, err
}

func (s *Store) eraseTenant(ctx context.Context, c *sql.Conn, p webhook.EraseTenantParams) (progress webhook.EraseProgress, err error) {
	var id uuid.UUID
	err = c.QueryRowContext(ctx, s.sql(selectErasable), p.Tenant).Scan(&id)
	switch {
	case err == nil:
		progress.Removed, err = s.eraseEndpointOf(ctx, c, id, p)
		return progress, err
	case !errors.Is(err, sql.ErrNoRows):
		return progress, err
	}
	seqs, err := column[int64](ctx, c, s.sql(selectErasableEvents), p.Tenant, p.Limit)
	if err != nil {
		return progress, err
	}
	for _, seq := range seqs {
		if err := s.execAll(ctx, c, eraseOfEvent, seq); err != nil {
			return progress, err
		}
	}
	if progress.Removed = len(seqs); progress.Removed > 0 {
		return progress, nil
	}
	if err := s.execAll(ctx, c, eraseOfTenant, p.Tenant); err != nil {
		return progress, err
	}
	if p.Counters {
		if _, err := c.ExecContext(ctx, s.sql(eraseCounters), p.Tenant); err != nil {
			return progress, err
		}
	}
	var left bool
	err = c.QueryRowContext(ctx, s.sql(selectNotDeleted), p.Tenant).Scan(&left)
	progress.Done = !left
	return progress, err
}

// eraseEndpointOf removes deliveries of an endpoint, or, when there are none, the rest.
func (s *Store) eraseEndpointOf(ctx context.Context, c *sql.Conn, id uuid.UUID, p webhook.EraseTenantParams) (int, error) {
	for _, from := range []struct {
		find, remove query
		args         []any
	}{
		{selectErasableOpen, deleteDelivery, []any{blob(id), micros(p.Now), p.Limit}},
		{selectErasableLog, deleteOldLog, []any{blob(id), p.Limit}},
		{selectErasableDead, deleteOldDead, []any{blob(id), p.Limit}},
	} {
		ids, err := column[uuid.UUID](ctx, c, s.sql(from.find), from.args...)
		if err != nil {
			return 0, err
		}
		for _, delivery := range ids {
			if err := s.execAll(ctx, c, []query{deleteAttempts, from.remove}, blob(delivery)); err != nil {
				return 0, err
			}
		}
		if len(ids) > 0 {
			return len(ids), nil
		}
	}
	var open bool
	if err := c.QueryRowContext(ctx, s.sql(selectStillOpen), blob(id)).Scan(&open); err != nil || open {
		return 0, err
	}
	if err := s.execAll(ctx, c, eraseOfEndpoint, blob(id)); err != nil {
		return 0, err
	}
	_, err := c.ExecContext(ctx, s.sql(eraseEndpoint), blob(id))
	return 1, err
}

// execAll runs statements that take one argument.
func (s *Store) execAll(ctx context.Context, c *sql.Conn, all []query, arg any) error {
	for _, q := range all {
		if _, err := c.ExecContext(ctx, s.sql(q), arg); err != nil {
			return err
		}
	}
	return nil
}

// column reads the one column of a query.
func column[T any](ctx context.Context, c *sql.Conn, text string, args ...any) (all []T, err error) {
	rows, err := c.QueryContext(ctx, text, args...)
	err = scanAll(rows, err, func(rows *sql.Rows) error {
		var v T
		err := rows.Scan(&v)
		all = append(all, v)
		return err
	})
	return all, err
}
