package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// The limits bound how much of the index is read; the outer ones tell the planner,
// which knows nothing of the inner ones, that this is little. Rides on
// delivery_claim_idx alone.
const countBacklogSQL = `
SELECT total.n, since.n
FROM unnest($1::uuid[], $2::bigint[], $3::timestamptz[], $4::bigint[])
    WITH ORDINALITY AS r (endpoint_id, most, since, most_since, i)
CROSS JOIN LATERAL (SELECT count(*) AS n FROM (
    SELECT FROM (
        SELECT FROM {{schema}}.delivery WHERE endpoint_id = r.endpoint_id AND lane = 0
        LIMIT r.most
    ) d LIMIT $5::bigint
) d) total
CROSS JOIN LATERAL (SELECT count(*) AS n FROM (
    SELECT FROM (
        SELECT FROM {{schema}}.delivery WHERE endpoint_id = r.endpoint_id AND lane = 0 AND next_attempt_at > r.since
        LIMIT r.most_since
    ) d LIMIT $5::bigint
) d) since
ORDER BY r.i`

// CountBacklog implements [webhook.BacklogStore].
func (s *core) CountBacklog(ctx context.Context, requests []webhook.BacklogRequest) ([]webhook.Backlog, error) {
	if len(requests) == 0 {
		return nil, nil
	}
	ids := make([]uuid.UUID, len(requests))
	limits := make([]int64, len(requests))
	since := make([]time.Time, len(requests))
	sinceLimits := make([]int64, len(requests))
	most := int64(0)
	for i, r := range requests {
		ids[i], limits[i], since[i] = r.EndpointID, int64(max(0, r.Limit)), micros(r.Since)
		if !r.Since.IsZero() {
			sinceLimits[i] = int64(max(0, r.SinceLimit))
		}
		most = max(most, limits[i], sinceLimits[i])
	}
	counted := make([]webhook.Backlog, 0, len(requests))
	err := collect(ctx, s.db, &s.sql.countBacklog, func(r rows) error {
		var b webhook.Backlog
		if err := r.Scan(&b.Total, &b.Since); err != nil {
			return err
		}
		counted = append(counted, b)
		return nil
	}, s.db.uuids(ids), s.db.int64s(limits), s.db.times(since), s.db.int64s(sinceLimits), most)
	if err != nil {
		return nil, fmt.Errorf("postgres: counting the backlog of %d endpoints: %w", len(requests), err)
	}
	return counted, nil
}
