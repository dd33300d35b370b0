package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

const (
	// countAfter is how long after its end a day is counted: by then what came
	// late, because the database was away or a process stood still, is there.
	countAfter = 6 * time.Hour

	// countSlice is how many rows are counted at a time: so few that no snapshot
	// is held long enough to keep autovacuum from the queue's tables.
	countSlice = 5_000

	// countersAtOnce is how many counters are written in one transaction.
	countersAtOnce = 1000
)

const countedSQL = `SELECT before FROM {{schema}}.counted WHERE before > '-infinity'`

const setCountedSQL = `UPDATE {{schema}}.counted SET before = $1::date WHERE before < $1::date`

// Replaces what is there, so that a day may be counted twice. Rides on counter_pkey.
const saveCountersSQL = `
INSERT INTO {{schema}}.counter AS c
    (day, endpoint_id, attempts, retries, delivered, dead, cancelled, shed, log_bytes, tenant)
SELECT $1::date, r.* FROM unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
                                 $9::bigint[], $10::text[]) AS r
ON CONFLICT (day, endpoint_id) DO UPDATE
SET attempts = excluded.attempts, retries = excluded.retries, delivered = excluded.delivered, dead = excluded.dead,
    cancelled = excluded.cancelled, shed = excluded.shed, log_bytes = excluded.log_bytes, tenant = excluded.tenant`

// tally is a table of a family that is counted, in slices in the order of key, an
// indexed column. Counts are those of a DayCounters, in the order of its fields.
type tally struct {
	family
	key    string
	counts string
}

var tallies = [...]tally{
	{families[0], "delivery_id", `count(*), count(*) FILTER (WHERE number > 1), 0, 0, 0, 0,
       coalesce(sum(octet_length(excerpt) + octet_length(error) + octet_length(location)), 0)::bigint`},
	{families[1], "id", `0, 0, 0, count(*) FILTER (WHERE state = 'dead'), count(*) FILTER (WHERE state = 'cancelled'),
       count(*) FILTER (WHERE state = 'shed'), 0`},
	{families[2], "id", `0, 0, count(*), 0, 0, 0, 0`},
}

// countDays counts the days that are over and not yet counted, and returns the day
// before which all are.
func (s *core) countDays(ctx context.Context, now time.Time, days []partition) (counted time.Time, err error) {
	err = collect(ctx, s.db, &s.sql.counted, func(r rows) error { return r.Scan(&counted) })
	if err != nil {
		return time.Time{}, fmt.Errorf("postgres: reading up to when days are counted: %w", err)
	}
	limit := dayOf(now.Add(-countAfter))
	if !counted.Before(limit) {
		return counted, nil
	}
	open, err := s.openDays(ctx, counted, limit, days)
	if err != nil {
		return time.Time{}, fmt.Errorf("postgres: looking for days to count: %w", err)
	}
	for _, day := range open {
		err := s.countDay(ctx, day, days)
		if err == nil {
			err = s.setCounted(ctx, day.AddDate(0, 0, 1))
		}
		if err != nil {
			return time.Time{}, fmt.Errorf("postgres: counting %s: %w", day.Format(time.DateOnly), err)
		}
	}
	if err := s.setCounted(ctx, limit); err != nil {
		return time.Time{}, fmt.Errorf("postgres: counting up to %s: %w", limit.Format(time.DateOnly), err)
	}
	return limit, nil
}

func (s *core) setCounted(ctx context.Context, before time.Time) error {
	_, err := s.db.exec(ctx, &s.sql.setCounted, before)
	return err
}

// openDays returns the days from one to another that have rows or a partition, in
// order.
func (s *core) openDays(ctx context.Context, from, until time.Time, days []partition) ([]time.Time, error) {
	var open []time.Time
	for _, p := range days {
		if !p.day.Before(from) && p.day.Before(until) {
			open = append(open, p.day)
		}
	}
	for _, f := range families {
		// Rides on the time index of the default partition, from day to day.
		q := statement{replan: true, text: `SELECT min(` + f.column + `) FROM ` + s.table(f.table+"_default") +
			` WHERE ` + f.column + ` >= $1::timestamptz AND ` + f.column + ` < $2::timestamptz`}
		for day := from; ; day = day.AddDate(0, 0, 1) {
			var at *time.Time
			if err := collect(ctx, s.db, &q, func(r rows) error { return r.Scan(&at) }, day, until); err != nil {
				return nil, err
			}
			if at == nil {
				break
			}
			day = dayOf(*at)
			open = append(open, day)
		}
	}
	slices.SortFunc(open, time.Time.Compare)
	return slices.Compact(open), nil
}

// countDay counts one day and writes its counters.
func (s *core) countDay(ctx context.Context, day time.Time, days []partition) error {
	counters := make(map[uuid.UUID]*webhook.DayCounters)
	for _, t := range tallies {
		source, filter := s.table(t.table+"_default"), ` AND `+t.column+` >= '`+midnight(day)+`' AND `+t.column+` < '`+midnight(day.AddDate(0, 0, 1))+`'`
		if own := (partition{t.family, day}); slices.ContainsFunc(days, own.same) {
			source, filter = s.table(own.name()), ""
		}
		if err := s.countTable(ctx, t, source, filter, counters); err != nil {
			return err
		}
	}
	return s.saveCounters(ctx, day, counters)
}

// countTable adds what one table has of a day.
func (s *core) countTable(ctx context.Context, t tally, source, filter string, into map[uuid.UUID]*webhook.DayCounters) error {
	// Both ride on the index by key.
	end := statement{replan: true, text: `SELECT ` + t.key + ` FROM ` + source + ` WHERE ` + t.key + ` > $1::uuid` + filter +
		` ORDER BY ` + t.key + ` OFFSET $2::integer LIMIT 1`}
	slice := statement{replan: true, text: `SELECT endpoint_id, tenant, ` + t.counts + ` FROM ` + source +
		` WHERE ` + t.key + ` > $1::uuid AND ` + t.key + ` <= $2::uuid` + filter + ` GROUP BY endpoint_id, tenant`}
	for after := uuid.Nil; after != uuid.Max; {
		until := uuid.Max
		if err := collect(ctx, s.db, &end, func(r rows) error { return r.Scan(&until) }, s.db.id(after), countSlice-1); err != nil {
			return err
		}
		if err := collect(ctx, s.db, &slice, func(r rows) error {
			var c webhook.DayCounters
			if err := r.Scan(&c.EndpointID, &c.Tenant, &c.Attempts, &c.Retries, &c.Delivered, &c.Dead, &c.Cancelled, &c.Shed, &c.LogBytes); err != nil {
				return err
			}
			add(into, c)
			return nil
		}, s.db.id(after), s.db.id(until)); err != nil {
			return err
		}
		after = until
	}
	return nil
}

func add(into map[uuid.UUID]*webhook.DayCounters, c webhook.DayCounters) {
	sum := into[c.EndpointID]
	if sum == nil {
		into[c.EndpointID] = &c
		return
	}
	sum.Attempts += c.Attempts
	sum.Retries += c.Retries
	sum.Delivered += c.Delivered
	sum.Dead += c.Dead
	sum.Cancelled += c.Cancelled
	sum.Shed += c.Shed
	sum.LogBytes += c.LogBytes
}

func (s *core) saveCounters(ctx context.Context, day time.Time, counters map[uuid.UUID]*webhook.DayCounters) error {
	ids := make([]uuid.UUID, 0, len(counters))
	for id := range counters {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, compareIDs)
	for batch := range slices.Chunk(ids, countersAtOnce) {
		var columns [7][]int64
		var tenants []string
		for _, id := range batch {
			c := counters[id]
			for i, n := range [...]int64{c.Attempts, c.Retries, c.Delivered, c.Dead, c.Cancelled, c.Shed, c.LogBytes} {
				columns[i] = append(columns[i], n)
			}
			tenants = append(tenants, c.Tenant)
		}
		args := []any{day, s.db.uuids(batch)}
		for _, c := range columns {
			args = append(args, s.db.int64s(c))
		}
		if _, err := s.db.exec(ctx, &s.sql.saveCounters, append(args, s.db.texts(tenants))...); err != nil {
			return err
		}
	}
	return nil
}

// Rides on counter_endpoint_idx, counter_tenant_idx or counter_pkey; zero parameters
// are widened by the caller.
const (
	listCountersSQL = `
SELECT day, endpoint_id, tenant, attempts, retries, delivered, dead, cancelled, shed, log_bytes FROM {{schema}}.counter
WHERE day >= $1::date AND day < $2::date AND (day, endpoint_id) > ($3::date, $4::uuid)`
	counterOrder = `
ORDER BY day, endpoint_id LIMIT $5::integer`

	listAllCountersSQL      = listCountersSQL + counterOrder
	listTenantCountersSQL   = listCountersSQL + ` AND tenant = $6::text` + counterOrder
	listEndpointCountersSQL = listCountersSQL + ` AND endpoint_id = $6::uuid AND ($7::boolean OR tenant = $8::text)` + counterOrder
)

// ListCounters implements [webhook.CounterStore]. A day is counted six hours after
// its end.
func (s *core) ListCounters(ctx context.Context, p webhook.ListCountersParams) ([]webhook.DayCounters, error) {
	if p.Limit <= 0 {
		return nil, nil
	}
	until := p.Until
	if until.IsZero() {
		until = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	tenant, limited := p.Scope.Tenant()
	args := []any{dayOf(p.From), dayOf(until), dayOf(p.AfterDay), s.db.id(p.AfterEndpoint), p.Limit}
	q := &s.sql.listAllCounters
	switch {
	case p.EndpointID != uuid.Nil:
		q = &s.sql.listEndpointCounters
		args = append(args, s.db.id(p.EndpointID), !limited, tenant)
	case limited:
		q = &s.sql.listTenantCounters
		args = append(args, tenant)
	}
	var found []webhook.DayCounters
	err := collect(ctx, s.db, q, func(r rows) error {
		var c webhook.DayCounters
		err := r.Scan(&c.Day, &c.EndpointID, &c.Tenant, &c.Attempts, &c.Retries, &c.Delivered, &c.Dead, &c.Cancelled, &c.Shed, &c.LogBytes)
		c.Day = c.Day.UTC()
		found = append(found, c)
		return err
	}, args...)
	if err != nil {
		return nil, fmt.Errorf("postgres: listing counters: %w", err)
	}
	return found, nil
}

// dayOf returns the midnight in UTC that began the day of t.
func dayOf(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }
