package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// Takes the oldest entries that nobody else holds, by deleting them: what is not
// finished is put back before the commit. The revision comes from the same
// snapshot as the entries, so an endpoint that was committed before one of the
// events is counted in it. Rides on outbox_pkey and event_pkey.
const takeOutboxSQL = `
WITH taken AS (
    DELETE FROM {{schema}}.outbox
    WHERE position = ANY (ARRAY(
        SELECT position FROM {{schema}}.outbox
        ORDER BY position
        LIMIT $1::integer
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING position, event_id, after_endpoint
)
SELECT (SELECT revision FROM {{schema}}.endpoint_revision),
       t.position, t.after_endpoint IS NOT NULL, coalesce(t.after_endpoint, t.event_id),
       e.id, e.seq, e.tenant, e.type, e.resource_id, e.resource_version, e.content_type,
       CASE WHEN $2::boolean THEN e.payload END, e.created_at
FROM taken t
JOIN {{schema}}.event e ON e.id = t.event_id`

// Rides on no index: it only inserts. No conflict is possible, because the
// entry that a delivery comes from is removed in the same transaction.
const insertDeliveriesSQL = `
INSERT INTO {{schema}}.delivery
    (id, event_id, endpoint_id, run, lane, tenant, event_type, next_attempt_at, created_at)
SELECT d.id, d.event_id, d.endpoint_id, 0, 0, d.tenant, d.event_type, $6::timestamptz, $6::timestamptz
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[])
    AS d (id, event_id, endpoint_id, tenant, event_type)`

// Puts entries back: at their old position, or, where an endpoint has been
// reached, behind all others. Rides on no index.
const returnToOutboxSQL = `
INSERT INTO {{schema}}.outbox (position, event_id, after_endpoint)
SELECT CASE WHEN o.moved THEN nextval('{{schema}}.event_seq') ELSE o.position END,
       o.event_id, nullif(o.after_endpoint, '00000000-0000-0000-0000-000000000000'::uuid)
FROM unnest($1::bigint[], $2::boolean[], $3::uuid[], $4::uuid[]) AS o (position, moved, event_id, after_endpoint)`

// Rides on unmatched_pkey.
const insertUnmatchedSQL = `
INSERT INTO {{schema}}.unmatched (event_id, found_at)
SELECT u.event_id, $2::timestamptz
FROM unnest($1::uuid[]) AS u (event_id)
ON CONFLICT DO NOTHING`

// changedPage bounds how many endpoints are read at once while a matcher is
// brought up to date.
const changedPage = 1000

// outboxEntry is an entry of the outbox with its event.
type outboxEntry struct {
	position int64
	after    uuid.UUID // zero: no endpoint has been written yet
	event    webhook.EventRecord
}

// FanOut implements [webhook.FanOutStore].
func (s *core) FanOut(ctx context.Context, p webhook.FanOutParams) (webhook.FanOutResult, error) {
	if p.MaxEvents < 1 || p.MaxDeliveries < 1 {
		return webhook.FanOutResult{}, fmt.Errorf("postgres: fanning out: MaxEvents is %d and MaxDeliveries %d, want at least 1", p.MaxEvents, p.MaxDeliveries)
	}
	var result webhook.FanOutResult
	err := s.db.atomically(ctx, func(tx conn) error {
		var err error
		result, err = s.fanOut(ctx, tx, p)
		return err
	})
	if err != nil {
		return webhook.FanOutResult{}, fmt.Errorf("postgres: fanning out: %w", err)
	}
	s.fanOutRate.observe(result.Finished, result.Deliveries)
	return result, nil
}

func (s *core) fanOut(ctx context.Context, tx conn, p webhook.FanOutParams) (webhook.FanOutResult, error) {
	limit := s.fanOutRate.limit(p.MaxEvents, p.MaxDeliveries)
	entries, revision, err := s.takeOutbox(ctx, tx, limit, p.Matcher.WantsPayload())
	if err != nil {
		return webhook.FanOutResult{}, fmt.Errorf("reading the outbox: %w", err)
	}
	if len(entries) == 0 {
		return webhook.FanOutResult{}, nil
	}
	if revision != p.Matcher.Revision() {
		if err := s.refresh(ctx, tx, p.Matcher); err != nil {
			return webhook.FanOutResult{}, fmt.Errorf("reading endpoints: %w", err)
		}
	}

	out := match(entries, p)
	out.result.More = len(entries) == limit || len(out.returned) > 0
	if err := s.write(ctx, tx, p.Now, out); err != nil {
		return webhook.FanOutResult{}, fmt.Errorf("writing deliveries: %w", err)
	}
	return out.result, nil
}

func (s *core) takeOutbox(ctx context.Context, tx conn, limit int, payload bool) (entries []outboxEntry, revision int64, err error) {
	entries = make([]outboxEntry, 0, limit)
	err = collect(ctx, tx, &s.sql.takeOutbox, func(r rows) error {
		entries = append(entries, outboxEntry{})
		e := &entries[len(entries)-1]
		var moved bool
		if err := r.Scan(&revision, &e.position, &moved, &e.after,
			&e.event.ID, &e.event.Sequence, &e.event.Tenant, &e.event.Type, &e.event.ResourceID,
			&e.event.ResourceVersion, &e.event.ContentType, &e.event.Payload, &e.event.CreatedAt); err != nil {
			return err
		}
		if !moved {
			e.after = uuid.Nil
		}
		e.event.CreatedAt = e.event.CreatedAt.UTC()
		return nil
	}, limit, payload)
	slices.SortFunc(entries, func(a, b outboxEntry) int { return cmp.Compare(a.position, b.position) })
	return entries, revision, err
}

// refresh brings the matcher up to the newest revision that tx sees.
func (s *core) refresh(ctx context.Context, tx conn, m webhook.Matcher) error {
	for {
		endpoints, revision, err := s.changed(ctx, tx, m.Revision(), changedPage)
		if err != nil {
			return err
		}
		last := len(endpoints) < changedPage
		if !last {
			revision = endpoints[len(endpoints)-1].Revision
		}
		if err := m.Apply(endpoints, revision); err != nil {
			return fmt.Errorf("applying revision %d: %w", revision, err)
		}
		if last {
			return nil
		}
		if m.Revision() != revision {
			return errors.New("matcher did not take the revision it was given")
		}
	}
}

// fanOutWrites are the rows of one fan-out transaction.
type fanOutWrites struct {
	result webhook.FanOutResult

	// One element per delivery.
	events, endpoints []uuid.UUID
	tenants, types    []string

	returned  []outboxEntry // not finished
	unmatched []uuid.UUID
}

func match(entries []outboxEntry, p webhook.FanOutParams) fanOutWrites {
	var out fanOutWrites
	var ids []uuid.UUID
	distinct := make(map[uuid.UUID]struct{})
	for i := range entries {
		e := &entries[i]
		room := p.MaxDeliveries - out.result.Deliveries
		if room == 0 {
			out.returned = append(out.returned, entries[i:]...)
			break
		}
		out.result.Events++
		if out.result.OldestCreatedAt.IsZero() || e.event.CreatedAt.Before(out.result.OldestCreatedAt) {
			out.result.OldestCreatedAt = e.event.CreatedAt
		}

		var more bool
		ids, more = p.Matcher.Match(ids[:0], &e.event, e.after, room)
		for _, id := range ids {
			distinct[id] = struct{}{}
			out.events = append(out.events, e.event.ID)
			out.endpoints = append(out.endpoints, id)
			out.tenants = append(out.tenants, e.event.Tenant)
			out.types = append(out.types, e.event.Type)
		}
		out.result.Deliveries += len(ids)

		switch {
		case more && len(ids) > 0:
			e.position, e.after = moved, ids[len(ids)-1]
			out.returned = append(out.returned, *e)
		case len(ids) == 0 && e.after == uuid.Nil:
			out.unmatched = append(out.unmatched, e.event.ID)
			out.result.Unmatched++
			out.result.Finished++
		default:
			out.result.Finished++
		}
	}
	for id := range distinct {
		out.result.Endpoints = append(out.result.Endpoints, id)
	}
	return out
}

// moved is the position of an entry that is to get a new one.
const moved = math.MinInt64

func (s *core) write(ctx context.Context, tx conn, now time.Time, out fanOutWrites) error {
	if n := len(out.events); n > 0 {
		ids, err := newIDs(n)
		if err != nil {
			return err
		}
		if _, err := tx.exec(ctx, &s.sql.insertDeliveries, s.db.uuids(ids), s.db.uuids(out.events),
			s.db.uuids(out.endpoints), s.db.texts(out.tenants), s.db.texts(out.types), micros(now)); err != nil {
			return err
		}
	}
	if len(out.unmatched) > 0 {
		if _, err := tx.exec(ctx, &s.sql.insertUnmatched, s.db.uuids(out.unmatched), micros(now)); err != nil {
			return err
		}
	}
	if n := len(out.returned); n > 0 {
		positions := make([]int64, n)
		behind := make([]bool, n)
		events := make([]uuid.UUID, n)
		after := make([]uuid.UUID, n)
		for i, e := range out.returned {
			positions[i], behind[i], events[i], after[i] = e.position, e.position == moved, e.event.ID, e.after
		}
		if _, err := tx.exec(ctx, &s.sql.returnToOutbox, s.db.int64s(positions), s.db.bools(behind),
			s.db.uuids(events), s.db.uuids(after)); err != nil {
			return err
		}
	}
	return nil
}

// fanOutRate remembers how many deliveries an event makes, so that FanOut takes
// about as many entries as it can finish: each one more is deleted and written
// back for nothing.
type fanOutRate struct {
	perEvent atomic.Uint64 // float64 bits; 0 before the first observation
}

func (r *fanOutRate) observe(events, deliveries int) {
	if events == 0 {
		if deliveries == 0 {
			return
		}
		events = 1
	}
	rate := float64(deliveries) / float64(events)
	if old := math.Float64frombits(r.perEvent.Load()); old > 0 {
		rate = 0.7*old + 0.3*rate
	}
	r.perEvent.Store(math.Float64bits(rate))
}

func (r *fanOutRate) limit(maxEvents, maxDeliveries int) int {
	rate := math.Float64frombits(r.perEvent.Load())
	if rate == 0 {
		rate = 1
	}
	enough := float64(maxDeliveries)/rate*1.25 + 1
	return int(min(float64(maxEvents), max(enough, fewEntries)))
}

// fewEntries is how many entries cost next to nothing when they are written back.
const fewEntries = 32
