package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// Applies results that still hold their lease and logs their attempts; returns
// those that do not. Each delivery is found through delivery_pkey; the logs are
// only inserted into.
const recordSQL = `
WITH done AS MATERIALIZED (
    SELECT * FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::smallint[], $7::smallint[], $8::text[])
        AS r (id, token, state, reason, counted, status, class)
), again AS MATERIALIZED (
    SELECT * FROM unnest($9::uuid[], $10::uuid[], $11::timestamptz[], $12::smallint[], $13::smallint[], $14::smallint[], $15::text[])
        AS r (id, token, next_attempt_at, lane, counted, status, class)
), finished AS (
    DELETE FROM {{schema}}.delivery d USING done r
    WHERE d.id = r.id AND d.lease_token = r.token
    RETURNING d.id, d.event_id, d.endpoint_id, d.created_at, d.run, d.attempts + r.counted AS attempts,
              CASE r.status WHEN -1 THEN d.last_status ELSE r.status END AS last_status,
              CASE r.status WHEN -1 THEN d.last_class ELSE r.class END AS last_class,
              r.state, r.reason, r.token, d.tenant, d.event_type, d.skipped
), delivered AS (
    INSERT INTO {{schema}}.delivery_log
        (id, event_id, endpoint_id, created_at, finished_at, run, attempts, last_status, tenant, event_type, last_class, skipped)
    SELECT id, event_id, endpoint_id, created_at, $1::timestamptz, run, attempts, last_status, tenant, event_type, last_class, skipped
    FROM finished WHERE state = 'delivered'
), dead AS (
    INSERT INTO {{schema}}.delivery_dead
        (id, event_id, endpoint_id, created_at, finished_at, run, attempts, last_status, state, reason, tenant, event_type, last_class,
         skipped)
    SELECT id, event_id, endpoint_id, created_at, $1::timestamptz, run, attempts, last_status, state, reason, tenant, event_type, last_class,
           skipped
    FROM finished WHERE state <> 'delivered'
), pending AS (
    UPDATE {{schema}}.delivery d
    SET next_attempt_at = r.next_attempt_at, lane = r.lane, attempts = d.attempts + r.counted,
        last_status = CASE r.status WHEN -1 THEN d.last_status ELSE r.status END,
        last_class = CASE r.status WHEN -1 THEN d.last_class ELSE r.class END,
        lease_token = NULL, lease_until = '-infinity', sent_at = NULL
    FROM again r
    WHERE d.id = r.id AND d.lease_token = r.token
    RETURNING d.id, r.token
), held AS MATERIALIZED (
    SELECT id, token FROM finished UNION ALL SELECT id, token FROM pending
), logged AS (
    INSERT INTO {{schema}}.attempt
        (delivery_id, event_id, endpoint_id, lease_token, started_at, latency_ns, number, status, truncated, late,
         tenant, class, error, location, excerpt, body_hash)
    SELECT a.delivery_id, a.event_id, a.endpoint_id, a.lease_token, a.started_at, a.latency_ns, a.number, a.status,
           a.truncated, false, a.tenant, a.class, a.error, a.location, a.excerpt, a.body_hash
    FROM unnest($16::uuid[], $17::uuid[], $18::uuid[], $19::uuid[], $20::timestamptz[], $21::bigint[], $22::bigint[],
                $23::smallint[], $24::boolean[], $25::text[], $26::text[], $27::text[], $28::text[], $29::bytea[], $30::bytea[])
        AS a (delivery_id, event_id, endpoint_id, lease_token, started_at, latency_ns, number,
              status, truncated, tenant, class, error, location, excerpt, body_hash)
    WHERE (a.delivery_id, a.lease_token) IN (SELECT id, token FROM held)
)
SELECT r.id, r.token FROM (SELECT id, token FROM done UNION ALL SELECT id, token FROM again) r
WHERE (r.id, r.token) NOT IN (SELECT id, token FROM held)`

// Logs attempts whose delivery was no longer held, unless the same attempt is
// there already: then an earlier call recorded it and only its answer was lost.
// Such results were applied, so only the others come back. It is a statement of
// its own so that it sees what a call that recordSQL waited for has written.
// Rides on attempt_delivery_idx.
const logLateSQL = `
WITH a AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::timestamptz[], $6::bigint[], $7::bigint[],
                         $8::smallint[], $9::boolean[], $10::text[], $11::text[], $12::text[], $13::text[], $14::bytea[], $15::bytea[])
        AS a (delivery_id, event_id, endpoint_id, lease_token, started_at, latency_ns, number,
              status, truncated, tenant, class, error, location, excerpt, body_hash)
), known AS MATERIALIZED (
    SELECT a.delivery_id, a.lease_token, x.late
    FROM a CROSS JOIN LATERAL (
        SELECT x.late FROM {{schema}}.attempt x
        WHERE x.delivery_id = a.delivery_id AND x.lease_token = a.lease_token AND x.started_at = a.started_at
        LIMIT 1
    ) x
), logged AS (
    INSERT INTO {{schema}}.attempt
        (delivery_id, event_id, endpoint_id, lease_token, started_at, latency_ns, number, status, truncated, late,
         tenant, class, error, location, excerpt, body_hash)
    SELECT a.delivery_id, a.event_id, a.endpoint_id, a.lease_token, a.started_at, a.latency_ns, a.number, a.status,
           a.truncated, true, a.tenant, a.class, a.error, a.location, a.excerpt, a.body_hash
    FROM a WHERE (a.delivery_id, a.lease_token) NOT IN (SELECT delivery_id, lease_token FROM known)
)
SELECT delivery_id, lease_token FROM known WHERE NOT late`

// Rides on endpoint_pkey and, in order, on delivery_claim_idx.
const cancelSQL = `
WITH gone AS (
    DELETE FROM {{schema}}.delivery
    WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM {{schema}}.delivery
        WHERE endpoint_id = $2::uuid AND lease_until <= $1::timestamptz
          AND EXISTS (SELECT FROM {{schema}}.endpoint
                      WHERE id = $2::uuid AND (state = 'disabled' OR deleted_at IS NOT NULL))
        ORDER BY lane, next_attempt_at
        LIMIT $4::integer
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING *
)
INSERT INTO {{schema}}.delivery_dead
    (id, event_id, endpoint_id, created_at, finished_at, run, attempts, last_status, state, reason, tenant, event_type, last_class,
     skipped)
SELECT id, event_id, endpoint_id, created_at, $1::timestamptz, run, attempts, last_status, 'cancelled', $3::text,
       tenant, event_type, last_class, skipped
FROM gone`

// outcomes are the results of one kind, as columns.
type outcomes struct {
	ids, tokens []uuid.UUID
	counted     []int16 // 1 where an attempt counts
	statuses    []int16 // noAttempt where there is none
	classes     []string

	states, reasons []string    // finished deliveries only
	next            []time.Time // pending ones only
	lanes           []int16     // pending ones only
}

// noAttempt stands for the status of a result without an attempt.
const noAttempt = -1

func (o *outcomes) add(r *webhook.Result) {
	o.ids = append(o.ids, r.DeliveryID)
	o.tokens = append(o.tokens, r.Token)
	if r.Attempt == nil {
		o.counted = append(o.counted, 0)
		o.statuses = append(o.statuses, noAttempt)
		o.classes = append(o.classes, "")
		return
	}
	counted := int16(1)
	if r.Uncounted {
		counted = 0
	}
	o.counted = append(o.counted, counted)
	o.statuses = append(o.statuses, int16(r.Attempt.Status))
	o.classes = append(o.classes, text(string(r.Attempt.Class)))
}

// attempts are rows of the attempt log, as columns.
type attempts struct {
	deliveries, events, endpoints, tokens []uuid.UUID
	started                               []time.Time
	latencies, numbers                    []int64
	statuses                              []int16
	truncated                             []bool
	tenants, classes, errors, locations   []string
	excerpts, hashes                      [][]byte
}

func newAttempts(n int) *attempts {
	ids := make([]uuid.UUID, 4*n)
	words := make([]string, 4*n)
	numbers := make([]int64, 2*n)
	blobs := make([][]byte, 2*n)
	return &attempts{
		deliveries: ids[0:0:n], events: ids[n : n : 2*n], endpoints: ids[2*n : 2*n : 3*n], tokens: ids[3*n : 3*n : 4*n],
		tenants: words[0:0:n], classes: words[n : n : 2*n], errors: words[2*n : 2*n : 3*n], locations: words[3*n : 3*n : 4*n],
		latencies: numbers[0:0:n], numbers: numbers[n : n : 2*n],
		excerpts: blobs[0:0:n], hashes: blobs[n : n : 2*n],
		started:   make([]time.Time, 0, n),
		statuses:  make([]int16, 0, n),
		truncated: make([]bool, 0, n),
	}
}

func (a *attempts) add(l webhook.Lease, t *webhook.Attempt) {
	a.deliveries = append(a.deliveries, l.DeliveryID)
	a.events = append(a.events, t.EventID)
	a.endpoints = append(a.endpoints, t.EndpointID)
	a.tokens = append(a.tokens, l.Token)
	a.started = append(a.started, micros(t.StartedAt))
	a.latencies = append(a.latencies, int64(t.Latency))
	a.numbers = append(a.numbers, int64(t.Number))
	a.statuses = append(a.statuses, int16(t.Status))
	a.truncated = append(a.truncated, t.Truncated)
	a.tenants = append(a.tenants, text(t.Tenant))
	a.classes = append(a.classes, text(string(t.Class)))
	a.errors = append(a.errors, text(t.Error))
	a.locations = append(a.locations, text(t.Location))
	a.excerpts = append(a.excerpts, blob(t.Excerpt))
	a.hashes = append(a.hashes, blob(t.BodyHash))
}

func (a *attempts) args(e encoder) []any {
	return []any{
		e.uuids(a.deliveries), e.uuids(a.events), e.uuids(a.endpoints), e.uuids(a.tokens), e.times(a.started),
		e.int64s(a.latencies), e.int64s(a.numbers), e.int16s(a.statuses), e.bools(a.truncated),
		e.texts(a.tenants), e.texts(a.classes), e.texts(a.errors), e.texts(a.locations),
		e.bytes(a.excerpts), e.bytes(a.hashes),
	}
}

// text makes s storable. Receivers choose parts of errors and locations, and one
// bad byte would otherwise fail the whole batch, again and again.
func text(s string) string {
	if storable(s) {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// Record implements [webhook.DeliveryStore]. What holds its lease is written in
// one statement; attempts that came late follow in another. When that one
// fails, repeating the call logs them.
func (s *core) Record(ctx context.Context, p webhook.RecordParams) (webhook.RecordResult, error) {
	if len(p.Results) == 0 {
		return webhook.RecordResult{}, nil
	}
	var keys orderKeys
	for i := range p.Results {
		if key := p.Results[i].Order; key != nil {
			keys.add(*key)
		}
	}
	result, err := s.recordOrdered(ctx, p, keys)
	if err != nil {
		return webhook.RecordResult{}, fmt.Errorf("postgres: recording %d results: %w", len(p.Results), err)
	}
	return result, nil
}

// recordOrdered records, and gives the turns that are free then, in one transaction.
func (s *core) recordOrdered(ctx context.Context, p webhook.RecordParams, keys orderKeys) (result webhook.RecordResult, err error) {
	if len(keys.keys) == 0 {
		return s.record(ctx, s.db, p)
	}
	err = s.giveTurns(ctx, func(tx conn) (err error) {
		if result, err = s.record(ctx, tx, p); err != nil {
			return err
		}
		result.Released, err = s.releaseKeys(ctx, tx, p.Now, keys)
		return err
	})
	return result, err
}

func (s *core) record(ctx context.Context, c conn, p webhook.RecordParams) (webhook.RecordResult, error) {
	var done, again outcomes
	log := newAttempts(len(p.Results))
	for _, i := range lockOrder(p.Results) {
		r := &p.Results[i]
		switch r.State {
		case webhook.StateDelivered, webhook.StateDead, webhook.StateCancelled, webhook.StateShed:
			done.add(r)
			done.states = append(done.states, string(r.State))
			done.reasons = append(done.reasons, text(r.Reason))
		case webhook.StatePending:
			again.add(r)
			again.next = append(again.next, micros(r.NextAttemptAt))
			again.lanes = append(again.lanes, int16(r.Lane))
		default:
			return webhook.RecordResult{}, fmt.Errorf("result of delivery %s has state %q", r.DeliveryID, r.State)
		}
		if r.Attempt != nil {
			log.add(r.Lease, r.Attempt)
		}
	}

	e := s.db
	args := append([]any{
		micros(p.Now),
		e.uuids(done.ids), e.uuids(done.tokens), e.texts(done.states), e.texts(done.reasons),
		e.int16s(done.counted), e.int16s(done.statuses), e.texts(done.classes),
		e.uuids(again.ids), e.uuids(again.tokens), e.times(again.next), e.int16s(again.lanes),
		e.int16s(again.counted), e.int16s(again.statuses), e.texts(again.classes),
	}, log.args(e)...)
	lost, err := s.collectLeases(ctx, c, &s.sql.record, args...)
	if err != nil {
		return webhook.RecordResult{}, err
	}
	if len(lost) == 0 {
		return webhook.RecordResult{}, nil
	}
	return s.recordLate(ctx, c, p, lost)
}

// lockOrder returns the indexes of the results in the order in which all statements lock
// deliveries (see columnsOf).
func lockOrder(results []webhook.Result) []int {
	order := make([]int, len(results))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return compareIDs(results[a].DeliveryID, results[b].DeliveryID)
	})
	return order
}

func (s *core) collectLeases(ctx context.Context, c conn, q *statement, args ...any) (leases []webhook.Lease, err error) {
	err = collect(ctx, c, q, func(r rows) error {
		var l webhook.Lease
		if err := r.Scan(&l.DeliveryID, &l.Token); err != nil {
			return err
		}
		leases = append(leases, l)
		return nil
	}, args...)
	return leases, err
}

// recordLate logs the attempts of results that lost their lease.
func (s *core) recordLate(ctx context.Context, c conn, p webhook.RecordParams, lost []webhook.Lease) (webhook.RecordResult, error) {
	isLost := make(map[webhook.Lease]bool, len(lost))
	for _, l := range lost {
		isLost[l] = true
	}
	late := newAttempts(len(lost))
	for i := range p.Results {
		if r := &p.Results[i]; r.Attempt != nil && isLost[r.Lease] {
			late.add(r.Lease, r.Attempt)
		}
	}
	if len(late.deliveries) > 0 {
		applied, err := s.collectLeases(ctx, c, &s.sql.logLate, late.args(s.db)...)
		if err != nil {
			return webhook.RecordResult{}, fmt.Errorf("logging late attempts: %w", err)
		}
		for _, l := range applied {
			delete(isLost, l)
		}
	}
	var result webhook.RecordResult
	for _, l := range lost {
		if isLost[l] {
			result.Lost = append(result.Lost, l.DeliveryID)
		}
	}
	return result, nil
}

// CancelDeliveries implements [webhook.DeliveryStore].
func (s *core) CancelDeliveries(ctx context.Context, p webhook.CancelDeliveriesParams) (int, error) {
	cancelled, err := s.db.exec(ctx, &s.sql.cancel, micros(p.Now), s.db.id(p.EndpointID), text(p.Reason), p.Limit)
	if err != nil {
		return 0, fmt.Errorf("postgres: cancelling deliveries of endpoint %s: %w", p.EndpointID, err)
	}
	return int(cancelled), nil
}
