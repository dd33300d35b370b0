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
// events is counted in it. Rides on outbox_pkey, event_pkey and
// endpoint_health_shed_idx.
const takeOutboxSQL = `
WITH taken AS (
    DELETE FROM {{schema}}.outbox
    WHERE position = ANY (ARRAY(
        SELECT position FROM {{schema}}.outbox
        WHERE position >= $4::bigint
        ORDER BY position
        LIMIT $1::integer
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING position, event_id, after_endpoint
)
SELECT (SELECT revision FROM {{schema}}.endpoint_revision
        WHERE set_config('synchronous_commit', 'off', true) IS NOT NULL),
       EXISTS (SELECT FROM {{schema}}.endpoint_health WHERE shed_until > $3::timestamptz),
       t.position, t.after_endpoint IS NOT NULL, coalesce(t.after_endpoint, t.event_id),
       e.id, e.seq, e.tenant, e.type, e.resource_id, e.resource_version, e.content_type,
       CASE WHEN $2::boolean THEN e.payload END, e.payload_ref, e.created_at
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

// Rides on endpoint_health_shed_idx, which holds the few that have been shed.
const readSheddingSQL = `SELECT endpoint_id FROM {{schema}}.endpoint_health WHERE shed_until > $1::timestamptz`

// Rides on no index: it only inserts.
const insertShedSQL = `
INSERT INTO {{schema}}.delivery_dead
    (id, event_id, endpoint_id, created_at, finished_at, run, attempts, last_status, state, reason, tenant, event_type, last_class)
SELECT d.id, d.event_id, d.endpoint_id, $6::timestamptz, $6::timestamptz, 0, 0, 0, 'shed', $7::text, d.tenant, d.event_type, ''
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[])
    AS d (id, event_id, endpoint_id, tenant, event_type)`

// As insertDeliveriesSQL, for those that wait for their turn.
const insertOrderedSQL = `
INSERT INTO {{schema}}.delivery
    (id, event_id, endpoint_id, run, lane, tenant, event_type, next_attempt_at, created_at, order_key, order_seq)
SELECT d.id, d.event_id, d.endpoint_id, 0, 3, d.tenant, d.event_type, $6::timestamptz, $6::timestamptz, d.order_key, d.order_seq
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $7::text[], $8::bigint[])
    AS d (id, event_id, endpoint_id, tenant, event_type, order_key, order_seq)`

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
	err := s.giveTurns(ctx, func(tx conn) error {
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
	entries, revision, shedding, err := s.takeOutbox(ctx, tx, limit, p)
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

	var shed map[uuid.UUID]bool
	if shedding {
		if shed, err = s.readShedding(ctx, tx, p.Now); err != nil {
			return webhook.FanOutResult{}, fmt.Errorf("reading which endpoints are shed: %w", err)
		}
	}

	out := match(entries, p, shed)
	out.result.More = len(entries) == limit || len(out.returned) > 0
	if err := s.write(ctx, tx, p.Now, out); err != nil {
		return webhook.FanOutResult{}, fmt.Errorf("writing deliveries: %w", err)
	}
	return out.result, nil
}

// takeOutbox also returns the revision of the endpoints, and whether any of them is
// being shed, which is read only where it is so.
func (s *core) takeOutbox(ctx context.Context, tx conn, limit int, p webhook.FanOutParams) (entries []outboxEntry, revision int64, shedding bool, err error) {
	entries = make([]outboxEntry, 0, limit)
	began := time.Now()
	from := s.outboxFloor.from(began)
	err = collect(ctx, tx, &s.sql.takeOutbox, func(r rows) error {
		entries = append(entries, outboxEntry{})
		e := &entries[len(entries)-1]
		var moved bool
		if err := r.Scan(&revision, &shedding, &e.position, &moved, &e.after,
			&e.event.ID, &e.event.Sequence, &e.event.Tenant, &e.event.Type, &e.event.ResourceID,
			&e.event.ResourceVersion, &e.event.ContentType, &e.event.Payload,
			&e.event.PayloadRef, &e.event.CreatedAt); err != nil {
			return err
		}
		if !moved {
			e.after = uuid.Nil
		}
		e.event.CreatedAt = e.event.CreatedAt.UTC()
		return nil
	}, limit, p.Matcher.WantsPayload(), micros(p.Now), from)
	if err != nil {
		return nil, 0, false, err
	}
	slices.SortFunc(entries, func(a, b outboxEntry) int { return cmp.Compare(a.position, b.position) })
	var first, last int64
	if len(entries) > 0 {
		first, last = entries[0].position, entries[len(entries)-1].position
	}
	s.outboxFloor.looked(from, first, last, began, time.Now())
	return entries, revision, shedding, nil
}

func (s *core) readShedding(ctx context.Context, tx conn, now time.Time) (map[uuid.UUID]bool, error) {
	ids, err := s.collectIDs(ctx, tx, &s.sql.readShedding, micros(now))
	shed := make(map[uuid.UUID]bool, len(ids))
	for _, id := range ids {
		shed[id] = true
	}
	return shed, err
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

	pending, shed deliveries

	ordered orderedDeliveries

	returned  []outboxEntry // not finished
	unmatched []uuid.UUID
}

// deliveries are new rows, as columns.
type deliveries struct {
	events, endpoints []uuid.UUID
	tenants, types    []string
}

func (d *deliveries) add(e *webhook.EventRecord, endpoint uuid.UUID) {
	d.events = append(d.events, e.ID)
	d.endpoints = append(d.endpoints, endpoint)
	d.tenants = append(d.tenants, e.Tenant)
	d.types = append(d.types, e.Type)
}

// match finds the deliveries of the entries; those to the endpoints in shed are shed.
func match(entries []outboxEntry, p webhook.FanOutParams, shed map[uuid.UUID]bool) fanOutWrites {
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
			if shed[id] {
				out.shed.add(&e.event, id)
				continue
			}
			distinct[id] = struct{}{}
			if key, ok := p.Matcher.Ordering(id).Key(&e.event); ok {
				out.ordered.add(&e.event, id, key)
				continue
			}
			out.pending.add(&e.event, id)
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
	if len(out.shed.endpoints) > 0 {
		out.result.Shed = make(map[uuid.UUID]int)
	}
	for _, id := range out.shed.endpoints {
		out.result.Shed[id]++
	}
	return out
}

// moved is the position of an entry that is to get a new one.
const moved = math.MinInt64

func (s *core) write(ctx context.Context, tx conn, now time.Time, out fanOutWrites) error {
	if err := s.insert(ctx, tx, &s.sql.insertDeliveries, now, &out.pending, micros(now)); err != nil {
		return err
	}
	if err := s.insert(ctx, tx, &s.sql.insertShed, now, &out.shed, micros(now), webhook.ReasonShed); err != nil {
		return err
	}
	if err := s.insert(ctx, tx, &s.sql.insertOrdered, now, &out.ordered.deliveries, micros(now),
		s.db.texts(out.ordered.keys), s.db.int64s(out.ordered.seqs)); err != nil {
		return err
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
	// When all of the outbox is as it is going to be.
	_, err := s.releaseKeys(ctx, tx, now, orderKeys{endpoints: out.ordered.endpoints, keys: out.ordered.keys})
	return err
}

// orderedDeliveries are deliveries that wait for their turn, as columns.
type orderedDeliveries struct {
	deliveries

	keys []string
	seqs []int64
}

func (d *orderedDeliveries) add(e *webhook.EventRecord, endpoint uuid.UUID, key string) {
	d.deliveries.add(e, endpoint)
	d.keys = append(d.keys, key)
	d.seqs = append(d.seqs, e.Sequence)
}

// insert writes deliveries, if there are any.
func (s *core) insert(ctx context.Context, tx conn, q *statement, now time.Time, d *deliveries, more ...any) error {
	n := len(d.events)
	if n == 0 {
		return nil
	}
	ids, err := s.ids.New(now, n)
	if err != nil {
		return err
	}
	args := []any{s.db.uuids(ids), s.db.uuids(d.events), s.db.uuids(d.endpoints), s.db.texts(d.tenants), s.db.texts(d.types)}
	_, err = tx.exec(ctx, q, append(args, more...)...)
	return err
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
