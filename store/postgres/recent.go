package postgres

import (
	"context"
	"fmt"

	"github.com/outhook/webhook"
)

// The latest attempts. Rides on attempt_started_idx, which finds the pages that were
// written since, and on event_pkey. The type is that of the event, which may be gone.
const recentAttemptsSQL = `
SELECT a.delivery_id, a.event_id, a.endpoint_id, a.tenant, a.number, a.started_at, a.latency_ns,
       a.status, a.class, a.error, a.location, a.excerpt, a.truncated, a.body_hash, a.late, coalesce(e.type, '')
FROM (
    SELECT * FROM {{schema}}.attempt
    WHERE started_at >= $1::timestamptz
      AND ($2::uuid = '00000000-0000-0000-0000-000000000000' OR endpoint_id = $2::uuid)
      AND ($3::boolean OR tenant = $4::text)
    ORDER BY started_at DESC LIMIT $5::integer
) a
LEFT JOIN {{schema}}.event e ON e.id = a.event_id
ORDER BY a.started_at DESC`

// RecentAttempts implements [webhook.AttemptFollower].
func (s *core) RecentAttempts(ctx context.Context, p webhook.RecentAttemptsParams) ([]webhook.RecentAttempt, error) {
	tenant, limited := p.Scope.Tenant()
	var found []webhook.RecentAttempt
	err := collect(ctx, s.db, &s.sql.recentAttempts, func(r rows) error {
		var a webhook.RecentAttempt
		err := r.Scan(&a.DeliveryID, &a.EventID, &a.EndpointID, &a.Tenant, &a.Number, &a.StartedAt, &a.Latency,
			&a.Status, &a.Class, &a.Error, &a.Location, &a.Excerpt, &a.Truncated, &a.BodyHash, &a.Late, &a.EventType)
		a.StartedAt = a.StartedAt.UTC()
		found = append(found, a)
		return err
	}, micros(p.Since), s.db.id(p.EndpointID), !limited, tenant, max(p.Limit, 0))
	if err != nil {
		return nil, fmt.Errorf("postgres: listing the latest attempts: %w", err)
	}
	return found, nil
}
