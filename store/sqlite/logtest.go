package sqlite

import (
	"context"
	"database/sql"
	"math/rand/v2"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

const (
	insertTestLog  query = `INSERT INTO {{prefix}}delivery_log ` + testRow
	insertTestDead query = `INSERT INTO {{prefix}}delivery_dead ` + testRow

	testRow query = `
		(id, event_seq, event_id, endpoint_id, run, tenant, event_type, state, reason, attempts,
		created_at, finished_at, last_status, last_class)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
)

// LogTest implements [webhook.ActionStore]. The event, which is not stored, gets a
// sequence that no stored one has.
func (s *Store) LogTest(ctx context.Context, p webhook.LogTestParams) error {
	d, a := &p.Delivery, &p.Attempt
	insert := insertTestDead
	if d.State == webhook.StateDelivered {
		insert = insertTestLog
	}
	return s.write(ctx, "logging a test", nil, func(ctx context.Context, c *sql.Conn) error {
		if _, err := c.ExecContext(ctx, s.sql(insert), blob(d.ID), -1-rand.Int64(), blob(d.EventID), blob(d.EndpointID), d.Run,
			d.Tenant, d.EventType, string(d.State), text(d.Reason), d.Attempts, micros(d.CreatedAt), micros(d.FinishedAt),
			d.LastStatus, string(d.LastClass)); err != nil {
			return err
		}
		if _, err := c.ExecContext(ctx, s.sql(insertAttempt), blob(d.ID), a.Number, blob(uuid.Nil), micros(a.StartedAt),
			int64(a.Latency), a.Status, string(a.Class), text(a.Error), text(a.Location), a.Excerpt, a.Truncated, a.BodyHash, false); err != nil {
			return err
		}
		counted := counts{}
		counted.attempt(a)
		counted.end(d.State, d.EndpointID, d.Tenant, micros(d.FinishedAt))
		return s.saveCounts(ctx, c, counted)
	})
}
