package sqlite

import (
	"context"

	"github.com/outhook/webhook"
)

// Both ride on delivery_claim alone.
const (
	countFirsts query = `
		SELECT count(*) FROM (SELECT 1 FROM {{prefix}}delivery WHERE endpoint_id = ? AND lane = 0 LIMIT ?)`

	countFreshFirsts query = `
		SELECT count(*) FROM (
			SELECT 1 FROM {{prefix}}delivery WHERE endpoint_id = ? AND lane = 0 AND next_attempt_at > ? LIMIT ?)`
)

// CountBacklog implements [webhook.BacklogStore].
func (s *Store) CountBacklog(ctx context.Context, requests []webhook.BacklogRequest) ([]webhook.Backlog, error) {
	var counted []webhook.Backlog
	err := s.read(ctx, "counting backlogs", func(ctx context.Context) error {
		counted = make([]webhook.Backlog, len(requests))
		for i, r := range requests {
			id := blob(r.EndpointID)
			if err := s.db.QueryRowContext(ctx, s.sql(countFirsts), id, max(0, r.Limit)).Scan(&counted[i].Total); err != nil {
				return err
			}
			if r.Since.IsZero() {
				continue
			}
			err := s.db.QueryRowContext(ctx, s.sql(countFreshFirsts), id, micros(r.Since), max(0, r.SinceLimit)).Scan(&counted[i].Since)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return counted, err
}
