package postgres

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// A deleted endpoint of the tenant that still holds something: its URL goes last. Rides
// on endpoint_tenant_idx.
const findErasableSQL = `
SELECT id FROM {{schema}}.endpoint
WHERE tenant = $1::text AND deleted_at IS NOT NULL AND url <> ''
ORDER BY id LIMIT 1`

// The deliveries of one table to one endpoint go with their attempts. These ride on
// delivery_claim_idx, delivery_log_endpoint_idx and delivery_dead_endpoint_idx, and on
// the indexes by id and by delivery.
const (
	eraseOpenSQL = `
WITH d AS MATERIALIZED (
    SELECT id FROM {{schema}}.delivery
    WHERE endpoint_id = $1::uuid AND lease_until <= $3::timestamptz
    ORDER BY lane, next_attempt_at LIMIT $2::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM {{schema}}.delivery WHERE id = ANY (ARRAY(SELECT id FROM d)) RETURNING 1
)` + eraseAttempts
	eraseLogSQL = `
WITH d AS MATERIALIZED (
    SELECT id FROM {{schema}}.delivery_log WHERE endpoint_id = $1::uuid ORDER BY id LIMIT $2::integer
), gone AS (
    DELETE FROM {{schema}}.delivery_log WHERE id = ANY (ARRAY(SELECT id FROM d)) RETURNING 1
)` + eraseAttempts
	eraseDeadSQL = `
WITH d AS MATERIALIZED (
    SELECT id FROM {{schema}}.delivery_dead WHERE endpoint_id = $1::uuid ORDER BY id LIMIT $2::integer
), gone AS (
    DELETE FROM {{schema}}.delivery_dead WHERE id = ANY (ARRAY(SELECT id FROM d)) RETURNING 1
)` + eraseAttempts

	eraseAttempts = `, attempts AS (
    DELETE FROM {{schema}}.attempt WHERE delivery_id = ANY (ARRAY(SELECT id FROM d))
), kept AS (
    DELETE FROM {{schema}}.attempt_kept WHERE delivery_id = ANY (ARRAY(SELECT id FROM d))
)
SELECT count(*) FROM gone`
)

// Rides on delivery_claim_idx.
const stillOpenSQL = `SELECT EXISTS (SELECT FROM {{schema}}.delivery WHERE endpoint_id = $1::uuid)`

// What is known about an endpoint, and at last what it holds itself. Rides on the
// primary keys, replay_job_endpoint_idx and notice_endpoint_idx.
const eraseEndpointSQL = `
WITH jobs AS (DELETE FROM {{schema}}.replay_job WHERE endpoint_id = $1::uuid),
notices AS (DELETE FROM {{schema}}.notice WHERE endpoint_id = $1::uuid),
vitals AS (DELETE FROM {{schema}}.endpoint_vitals WHERE endpoint_id = $1::uuid),
health AS (DELETE FROM {{schema}}.endpoint_health WHERE endpoint_id = $1::uuid),
holds AS (DELETE FROM {{schema}}.order_hold WHERE endpoint_id = $1::uuid)
UPDATE {{schema}}.endpoint
SET url = '', types = '{}', state_reason = '', options = NULL, secrets = NULL, headers = NULL
WHERE id = $1::uuid AND deleted_at IS NOT NULL`

// Events go with their keys and whatever tells of them. Rides on event_tenant_idx, in
// order, and on event_pkey, idempotency_key_pkey, unmatched_pkey, outbox_pkey and
// outbox_moved_idx.
const eraseEventsSQL = `
WITH e AS MATERIALIZED (
    SELECT id, seq, tenant, idempotency_key, payload_ref FROM {{schema}}.event WHERE tenant = $1::text ORDER BY seq LIMIT $2::integer
), waiting AS (
    DELETE FROM {{schema}}.outbox WHERE position = ANY (ARRAY(SELECT seq FROM e))
), moved AS (
    DELETE FROM {{schema}}.outbox WHERE event_id = ANY (ARRAY(SELECT id FROM e)) AND after_endpoint IS NOT NULL
), unmatched AS (
    DELETE FROM {{schema}}.unmatched WHERE event_id = ANY (ARRAY(SELECT id FROM e))
), keys AS (
    DELETE FROM {{schema}}.idempotency_key
    WHERE tenant = $1::text COLLATE "C" AND key = ANY (ARRAY(SELECT idempotency_key COLLATE "C" FROM e WHERE idempotency_key IS NOT NULL))
), payloads AS (
    INSERT INTO {{schema}}.payload_gone (event_id, tenant)
    SELECT id, tenant FROM e WHERE payload_ref IS NOT NULL
    ON CONFLICT DO NOTHING
), gone AS (
    DELETE FROM {{schema}}.event WHERE id = ANY (ARRAY(SELECT id FROM e)) RETURNING 1
)
SELECT count(*) FROM gone`

// Rides on replay_job_tenant_idx, notice_tenant_idx and counter_tenant_idx; the last
// looks whether an endpoint of the tenant is there still, by endpoint_tenant_idx.
const eraseRestSQL = `
WITH jobs AS (DELETE FROM {{schema}}.replay_job WHERE tenant = $1::text),
notices AS (DELETE FROM {{schema}}.notice WHERE tenant = $1::text),
counters AS (DELETE FROM {{schema}}.counter WHERE tenant = $1::text AND $2::boolean)
SELECT NOT EXISTS (SELECT FROM {{schema}}.endpoint WHERE tenant = $1::text AND deleted_at IS NULL)`

// EraseTenant implements [webhook.EraseStore].
func (s *core) EraseTenant(ctx context.Context, p webhook.EraseTenantParams) (progress webhook.EraseProgress, err error) {
	err = s.db.atomically(ctx, func(tx conn) error {
		progress, err = s.eraseTenant(ctx, tx, p)
		return err
	})
	if err != nil {
		return webhook.EraseProgress{}, fmt.Errorf("postgres: erasing a tenant: %w", err)
	}
	return progress, nil
}

func (s *core) eraseTenant(ctx context.Context, tx conn, p webhook.EraseTenantParams) (webhook.EraseProgress, error) {
	endpoints, err := s.collectIDs(ctx, tx, &s.sql.findErasable, p.Tenant)
	if err != nil {
		return webhook.EraseProgress{}, err
	}
	if len(endpoints) > 0 {
		n, err := s.eraseEndpoint(ctx, tx, endpoints[0], p)
		return webhook.EraseProgress{Removed: n}, err
	}
	var progress webhook.EraseProgress
	if progress.Removed, err = number(ctx, tx, &s.sql.eraseEvents, p.Tenant, p.Limit); err != nil || progress.Removed > 0 {
		return progress, err
	}
	err = collect(ctx, tx, &s.sql.eraseRest, func(r rows) error { return r.Scan(&progress.Done) }, p.Tenant, p.Counters)
	return progress, err
}

// eraseEndpoint removes deliveries of an endpoint, or, when there are none, the rest.
func (s *core) eraseEndpoint(ctx context.Context, tx conn, id uuid.UUID, p webhook.EraseTenantParams) (int, error) {
	for _, q := range []*statement{&s.sql.eraseOpen, &s.sql.eraseLog, &s.sql.eraseDead} {
		args := []any{s.db.id(id), p.Limit}
		if q == &s.sql.eraseOpen {
			args = append(args, micros(p.Now))
		}
		if n, err := number(ctx, tx, q, args...); err != nil || n > 0 {
			return n, err
		}
	}
	open := false
	err := collect(ctx, tx, &s.sql.stillOpen, func(r rows) error { return r.Scan(&open) }, s.db.id(id))
	if err != nil || open {
		return 0, err
	}
	n, err := tx.exec(ctx, &s.sql.eraseEndpoint, s.db.id(id))
	return int(n), err
}

func number(ctx context.Context, c conn, q *statement, args ...any) (n int, err error) {
	err = collect(ctx, c, q, func(r rows) error { return r.Scan(&n) }, args...)
	return n, err
}
