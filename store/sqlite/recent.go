package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// The latest attempts, with what the log keeps once for all attempts of a delivery.
// Rides on attempt_started and the primary keys of the three tables of deliveries.
const selectRecentAttempts query = `
	SELECT a.delivery_id,
		coalesce(p.event_id, l.event_id, d.event_id), coalesce(p.endpoint_id, l.endpoint_id, d.endpoint_id),
		coalesce(p.tenant, l.tenant, d.tenant), coalesce(p.event_type, l.event_type, d.event_type),
		a.number, a.started_at, a.latency, a.status, a.class, a.error, a.location, a.excerpt, a.truncated, a.body_hash, a.late
	FROM {{prefix}}attempt a
	LEFT JOIN {{prefix}}delivery p ON p.id = a.delivery_id
	LEFT JOIN {{prefix}}delivery_log l ON l.id = a.delivery_id
	LEFT JOIN {{prefix}}delivery_dead d ON d.id = a.delivery_id
	WHERE a.started_at >= ?
		AND (? OR coalesce(p.endpoint_id, l.endpoint_id, d.endpoint_id) = ?)
		AND (? OR coalesce(p.tenant, l.tenant, d.tenant) = ?)
		AND coalesce(p.event_id, l.event_id, d.event_id) IS NOT NULL
	ORDER BY a.started_at DESC LIMIT ?`

// RecentAttempts implements [webhook.AttemptFollower].
func (s *Store) RecentAttempts(ctx context.Context, p webhook.RecentAttemptsParams) ([]webhook.RecentAttempt, error) {
	tenant, limited := p.Scope.Tenant()
	var found []webhook.RecentAttempt
	err := s.read(ctx, "listing the latest attempts", func(ctx context.Context) error {
		found = nil
		rows, err := s.db.QueryContext(ctx, s.sql(selectRecentAttempts), micros(p.Since),
			p.EndpointID == uuid.Nil, blob(p.EndpointID), !limited, tenant, max(p.Limit, 0))
		return scanAll(rows, err, func(rows *sql.Rows) error {
			var a webhook.RecentAttempt
			var startedAt, latency int64
			err := rows.Scan(&a.DeliveryID, &a.EventID, &a.EndpointID, &a.Tenant, &a.EventType,
				&a.Number, &startedAt, &latency, &a.Status, &a.Class, &a.Error, &a.Location,
				&a.Excerpt, &a.Truncated, &a.BodyHash, &a.Late)
			a.StartedAt, a.Latency = fromMicros(startedAt), time.Duration(latency)
			found = append(found, a)
			return err
		})
	})
	return found, err
}
