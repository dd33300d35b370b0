package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

const (
	// Rides on the primary key of counter.
	upsertCounter query = `
		INSERT INTO {{prefix}}counter
		(day, endpoint_id, tenant, attempts, retries, delivered, dead, cancelled, shed, log_bytes)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (day, endpoint_id) DO UPDATE
		SET attempts = attempts + excluded.attempts, retries = retries + excluded.retries,
			delivered = delivered + excluded.delivered, dead = dead + excluded.dead,
			cancelled = cancelled + excluded.cancelled, shed = shed + excluded.shed,
			log_bytes = log_bytes + excluded.log_bytes`

	// These ride on the primary key, counter_tenant and counter_endpoint.
	selectCounters query = `
		SELECT day, endpoint_id, tenant, attempts, retries, delivered, dead, cancelled, shed, log_bytes
		FROM {{prefix}}counter WHERE day >= ? AND day < ? AND (day, endpoint_id) > (?, ?)`

	counterOrder query = ` ORDER BY day, endpoint_id LIMIT ?`
)

// day is how long a day is, in microseconds.
const day = int64(24 * time.Hour / time.Microsecond)

// dayOf returns when the day of a time began, both in microseconds since 1970 UTC.
func dayOf(at int64) int64 {
	since := at % day
	if since < 0 {
		since += day
	}
	return at - since
}

// counterKey is what counters are kept by.
type counterKey struct {
	day      int64
	endpoint uuid.UUID
}

// counts gathers what one transaction adds to the counters. Here the writer stands
// alone: a row more per endpoint and batch is cheaper than to read the log again when
// the day is over.
type counts map[counterKey]*webhook.DayCounters

func (c counts) of(endpoint uuid.UUID, tenant string, at int64) *webhook.DayCounters {
	k := counterKey{dayOf(at), endpoint}
	if c[k] == nil {
		c[k] = &webhook.DayCounters{Tenant: tenant}
	}
	return c[k]
}

func (c counts) attempt(a *webhook.Attempt) {
	n := c.of(a.EndpointID, a.Tenant, micros(a.StartedAt))
	n.Attempts++
	if a.Number > 1 {
		n.Retries++
	}
	n.LogBytes += int64(len(a.Excerpt) + len(text(a.Error)) + len(text(a.Location)))
}

func (c counts) end(state webhook.DeliveryState, endpoint uuid.UUID, tenant string, at int64) {
	n := c.of(endpoint, tenant, at)
	switch state {
	case webhook.StateDelivered:
		n.Delivered++
	case webhook.StateDead:
		n.Dead++
	case webhook.StateCancelled:
		n.Cancelled++
	case webhook.StateShed:
		n.Shed++
	}
}

// saveCounts adds them to what is there.
func (s *Store) saveCounts(ctx context.Context, c *sql.Conn, counted counts) error {
	if len(counted) == 0 {
		return nil
	}
	upsert, err := c.PrepareContext(ctx, s.sql(upsertCounter))
	if err != nil {
		return err
	}
	defer func() { _ = upsert.Close() }() // releases memory only
	for k, n := range counted {
		if _, err := upsert.ExecContext(ctx, k.day, blob(k.endpoint), n.Tenant,
			n.Attempts, n.Retries, n.Delivered, n.Dead, n.Cancelled, n.Shed, n.LogBytes); err != nil {
			return err
		}
	}
	return nil
}

// ListCounters implements [webhook.CounterStore]. Counters here are never late.
func (s *Store) ListCounters(ctx context.Context, p webhook.ListCountersParams) ([]webhook.DayCounters, error) {
	if p.Limit <= 0 {
		return nil, nil
	}
	until := p.Until
	if until.IsZero() {
		until = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	text := selectCounters
	args := []any{dayOf(micros(p.From)), dayOf(micros(until)), dayOf(micros(p.AfterDay)), blob(p.AfterEndpoint)}
	if p.EndpointID != uuid.Nil {
		text += " AND endpoint_id = ?"
		args = append(args, blob(p.EndpointID))
	}
	if tenant, limited := p.Scope.Tenant(); limited {
		text += " AND tenant = ?"
		args = append(args, tenant)
	}
	var found []webhook.DayCounters
	err := s.read(ctx, "listing counters", func(ctx context.Context) error {
		found = nil
		rows, err := s.db.QueryContext(ctx, s.sql(text+counterOrder), append(args, p.Limit)...)
		return scanAll(rows, err, func(rows *sql.Rows) error {
			var c webhook.DayCounters
			var began int64
			err := rows.Scan(&began, &c.EndpointID, &c.Tenant, &c.Attempts, &c.Retries, &c.Delivered, &c.Dead, &c.Cancelled, &c.Shed, &c.LogBytes)
			c.Day = time.UnixMicro(began).UTC()
			found = append(found, c)
			return err
		})
	})
	return found, err
}
