package postgres

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// Rides on no index: it only inserts.
const logTestSQL = `
WITH d AS MATERIALIZED (
    SELECT $1::uuid AS id, $2::uuid AS event_id, $3::uuid AS endpoint_id, $4::timestamptz AS created_at, $5::timestamptz AS finished_at,
           $6::integer AS run, $7::integer AS attempts, $8::smallint AS last_status, $9::text AS state, $10::text AS reason,
           $11::text AS tenant, $12::text AS event_type, $13::text AS last_class
), delivered AS (
    INSERT INTO {{schema}}.delivery_log
        (id, event_id, endpoint_id, created_at, finished_at, run, attempts, last_status, tenant, event_type, last_class)
    SELECT id, event_id, endpoint_id, created_at, finished_at, run, attempts, last_status, tenant, event_type, last_class
    FROM d WHERE state = 'delivered'
), other AS (
    INSERT INTO {{schema}}.delivery_dead
        (id, event_id, endpoint_id, created_at, finished_at, run, attempts, last_status, state, reason, tenant, event_type, last_class)
    SELECT id, event_id, endpoint_id, created_at, finished_at, run, attempts, last_status, state, reason, tenant, event_type, last_class
    FROM d WHERE state <> 'delivered'
)
INSERT INTO {{schema}}.attempt
    (delivery_id, event_id, endpoint_id, lease_token, started_at, latency_ns, number, status, truncated, late,
     tenant, class, error, location, excerpt, body_hash)
SELECT d.id, d.event_id, d.endpoint_id, $14::uuid, $15::timestamptz, $16::bigint, $17::integer, $18::smallint, $19::boolean, false,
       d.tenant, d.last_class, $20::text, $21::text, $22::bytea, $23::bytea
FROM d`

// LogTest implements [webhook.ActionStore].
func (s *core) LogTest(ctx context.Context, p webhook.LogTestParams) error {
	d, a := &p.Delivery, &p.Attempt
	_, err := s.db.exec(ctx, &s.sql.logTest,
		s.db.id(d.ID), s.db.id(d.EventID), s.db.id(d.EndpointID), micros(d.CreatedAt), micros(d.FinishedAt),
		d.Run, d.Attempts, int16(d.LastStatus), string(d.State), text(d.Reason), d.Tenant, d.EventType, string(d.LastClass),
		s.db.id(uuid.Nil), micros(a.StartedAt), int64(a.Latency), a.Number, int16(a.Status), a.Truncated,
		text(a.Error), text(a.Location), blob(a.Excerpt), blob(a.BodyHash))
	if err != nil {
		return fmt.Errorf("postgres: logging test %s: %w", d.ID, err)
	}
	return nil
}
