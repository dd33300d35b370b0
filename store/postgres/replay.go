package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

const replayJobColumns = `
       j.id, j.endpoint_id, j.tenant, j.state, j.reason, j.request, j.matched, j.handled, j.created, j.after_id,
       j.created_at, j.due_at, j.finished_at`

// Rides on replay_job_pkey.
const createReplayJobSQL = `
INSERT INTO {{schema}}.replay_job
    (id, endpoint_id, tenant, state, reason, request, matched, handled, created, after_id, created_at, due_at, finished_at)
VALUES ($1::uuid, $2::uuid, $3::text, $4::text, $5::text, $6::bytea, $7::bigint, $8::bigint, $9::bigint, $10::uuid,
        $11::timestamptz, $12::timestamptz, $13::timestamptz)
ON CONFLICT DO NOTHING`

// Rides on replay_job_pkey.
const getReplayJobSQL = `
SELECT` + replayJobColumns + `
FROM {{schema}}.replay_job j
WHERE j.id = $1::uuid AND ($2::boolean OR j.tenant = $3::text)`

// Each rides, in order, on the index that begins with what it filters by, the
// first on replay_job_pkey.
const (
	listReplayJobsSQL         = listReplayJobsFrom + "true" + listReplayJobsOrder
	listTenantReplayJobsSQL   = listReplayJobsFrom + "j.tenant = $3::text" + listReplayJobsOrder
	listEndpointReplayJobsSQL = listReplayJobsFrom + "j.endpoint_id = $3::uuid AND ($5::boolean OR j.tenant = $4::text)" + listReplayJobsOrder

	listReplayJobsFrom = `
SELECT` + replayJobColumns + `
FROM {{schema}}.replay_job j
WHERE j.id < $1::uuid AND `
	listReplayJobsOrder = `
ORDER BY j.id DESC
LIMIT $2::integer`
)

// Rides on replay_job_pkey.
const cancelReplayJobSQL = `
UPDATE {{schema}}.replay_job
SET state = 'cancelled', finished_at = $1::timestamptz, lease_token = NULL, lease_until = '-infinity'
WHERE id = $2::uuid AND state = 'running' AND ($3::boolean OR tenant = $4::text)`

// Looks at a page of an endpoint's finished deliveries in the partitions of the
// days that matter, and then up the event and the later runs of each. Rides on
// delivery_log_endpoint_idx and delivery_dead_endpoint_idx, in order, and on
// event_pkey, delivery_event_idx, delivery_log_run_idx and delivery_dead_run_idx.
const finishedDeliveriesSQL = `
WITH page AS MATERIALIZED (
    SELECT * FROM (
        (SELECT d.id, d.event_id, d.run, 'delivered' AS state, false AS replayed FROM {{schema}}.delivery_log d
         WHERE d.endpoint_id = $1::uuid AND d.id > $2::uuid
           AND d.finished_at >= $4::timestamptz AND d.finished_at < $5::timestamptz AND d.created_at < $9::timestamptz
         ORDER BY d.id LIMIT $3::integer)
        UNION ALL
        (SELECT d.id, d.event_id, d.run, d.state, d.replayed FROM {{schema}}.delivery_dead d
         WHERE d.endpoint_id = $1::uuid AND d.id > $2::uuid
           AND d.finished_at >= $4::timestamptz AND d.finished_at < $5::timestamptz AND d.created_at < $9::timestamptz
         ORDER BY d.id LIMIT $3::integer)
    ) d
    ORDER BY d.id
    LIMIT $3::integer
)
SELECT p.id, p.state, e.id IS NOT NULL, coalesce(e.id, p.id), coalesce(e.seq, 0), coalesce(e.tenant, ''), coalesce(e.type, ''),
       coalesce(e.resource_id, ''), coalesce(e.resource_version, 0), coalesce(e.content_type, ''), ''::bytea, e.payload_ref,
       coalesce(e.created_at, 'epoch'::timestamptz)
FROM page p
LEFT JOIN LATERAL (
    SELECT * FROM {{schema}}.event
    WHERE id = p.event_id AND p.state = ANY ($8::text[]) AND NOT p.replayed
      AND created_at >= $6::timestamptz AND created_at < $7::timestamptz
      AND NOT EXISTS (SELECT FROM {{schema}}.delivery d WHERE d.event_id = p.event_id AND d.endpoint_id = $1::uuid)
      AND NOT EXISTS (SELECT FROM {{schema}}.delivery_log d
                      WHERE d.event_id = p.event_id AND d.endpoint_id = $1::uuid AND d.run > p.run)
      AND NOT EXISTS (SELECT FROM {{schema}}.delivery_dead d
                      WHERE d.event_id = p.event_id AND d.endpoint_id = $1::uuid AND d.run > p.run)
    LIMIT 1
) e ON true
ORDER BY p.id`

// Looks at a page of events, and up the latest run of each. Rides on event_pkey, in
// order, and on outbox_pkey, outbox_moved_idx, delivery_event_idx,
// delivery_log_run_idx and delivery_dead_run_idx.
const storedEventsSQL = `
WITH page AS MATERIALIZED (
    SELECT * FROM {{schema}}.event
    WHERE id > $2::uuid AND id < $3::uuid
    ORDER BY id
    LIMIT $4::integer
)
SELECT p.id, coalesce(f.state, ''),
       p.tenant = $5::text AND p.created_at >= $6::timestamptz AND p.created_at < $7::timestamptz AND b.busy IS NULL,
       p.id, p.seq, p.tenant, p.type, p.resource_id, p.resource_version, p.content_type,
       CASE WHEN $8::boolean AND p.tenant = $5::text THEN p.payload ELSE '' END, p.payload_ref, p.created_at
FROM page p
LEFT JOIN LATERAL (
    SELECT true AS busy FROM (
        (SELECT FROM {{schema}}.outbox WHERE position = p.seq LIMIT 1)
        UNION ALL
        (SELECT FROM {{schema}}.outbox WHERE event_id = p.id AND after_endpoint IS NOT NULL LIMIT 1)
        UNION ALL
        (SELECT FROM {{schema}}.delivery WHERE event_id = p.id AND endpoint_id = $1::uuid LIMIT 1)
    ) x
    LIMIT 1
) b ON true
LEFT JOIN LATERAL (
    SELECT state FROM (
        SELECT run, 'delivered' AS state FROM {{schema}}.delivery_log
        WHERE event_id = p.id AND endpoint_id = $1::uuid AND p.tenant = $5::text
        UNION ALL
        SELECT run, CASE WHEN replayed THEN 'delivered' ELSE state END FROM {{schema}}.delivery_dead
        WHERE event_id = p.id AND endpoint_id = $1::uuid AND p.tenant = $5::text
    ) r
    ORDER BY run DESC
    LIMIT 1
) f ON true
ORDER BY p.id`

// Running jobs are few. Rides on replay_job_due_idx, in order, and on
// replay_job_pkey and delivery_claim_idx.
const takeReplayJobSQL = `
WITH taken AS (
    UPDATE {{schema}}.replay_job
    SET lease_token = $3::uuid, lease_until = $2::timestamptz
    WHERE id = ANY (ARRAY(
        SELECT id FROM {{schema}}.replay_job
        WHERE state = 'running' AND due_at <= $1::timestamptz AND lease_until <= $1::timestamptz
        ORDER BY due_at
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING *
)
SELECT` + replayJobColumns + `,
       (SELECT count(*) FROM (
           SELECT FROM {{schema}}.delivery d WHERE d.endpoint_id = j.endpoint_id AND d.lane = 2 LIMIT 1000
       ) w)
       + (SELECT count(*) FROM (
           SELECT run FROM {{schema}}.delivery d WHERE d.endpoint_id = j.endpoint_id AND d.lane = 3
           ORDER BY d.next_attempt_at DESC LIMIT 1000
       ) w WHERE w.run > 0)
FROM taken j`

// Rides on replay_job_pkey.
const lockReplayJobSQL = `
SELECT endpoint_id FROM {{schema}}.replay_job
WHERE id = $1::uuid AND lease_token = $2::uuid AND state = 'running'
FOR UPDATE`

// Rides on replay_job_pkey.
const advanceReplayJobSQL = `
UPDATE {{schema}}.replay_job
SET after_id = $2::uuid, due_at = $3::timestamptz, state = $4::text, reason = $5::text,
    handled = handled + $6::bigint, created = created + $7::bigint, finished_at = $8::timestamptz,
    lease_token = NULL, lease_until = '-infinity'
WHERE id = $1::uuid`

// Rides on replay_job_finished_idx.
const removeReplayJobsSQL = `DELETE FROM {{schema}}.replay_job WHERE finished_at < $1::timestamptz`

// removeReplayJobs removes jobs that ended before a time.
func (s *core) removeReplayJobs(ctx context.Context, before time.Time) error {
	if before.IsZero() {
		return nil
	}
	if _, err := s.db.exec(ctx, &s.sql.removeReplayJobs, micros(before)); err != nil {
		return fmt.Errorf("postgres: removing old replay jobs: %w", err)
	}
	return nil
}

// The ends of time, for limits that are not given.
var (
	earliest = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	latest   = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
)

func from(t time.Time) time.Time {
	if t.IsZero() {
		return earliest
	}
	return micros(t)
}

func to(t time.Time) time.Time {
	if t.IsZero() {
		return latest
	}
	return micros(t)
}

func scanReplayJob(r rows, more ...any) (webhook.ReplayJobRecord, error) {
	var j webhook.ReplayJobRecord
	var finished *time.Time
	err := r.Scan(append([]any{
		&j.ID, &j.EndpointID, &j.Tenant, &j.State, &j.Reason, &j.Request, &j.Matched, &j.Handled, &j.Created,
		&j.Cursor, &j.CreatedAt, &j.DueAt, &finished,
	}, more...)...)
	j.CreatedAt, j.DueAt = j.CreatedAt.UTC(), j.DueAt.UTC()
	if finished != nil {
		j.FinishedAt = finished.UTC()
	}
	return j, err
}

// CreateReplayJob implements [webhook.ReplayJobStore].
func (s *core) CreateReplayJob(ctx context.Context, j webhook.ReplayJobRecord) error {
	n, err := s.db.exec(ctx, &s.sql.createReplayJob, s.db.id(j.ID), s.db.id(j.EndpointID), j.Tenant, string(j.State),
		text(j.Reason), blob(j.Request), j.Matched, j.Handled, j.Created, s.db.id(j.Cursor),
		micros(j.CreatedAt), micros(j.DueAt), timestamp(j.FinishedAt))
	if err == nil && n == 0 {
		err = webhook.ErrConflict
	}
	if err != nil {
		return fmt.Errorf("postgres: creating replay job %s: %w", j.ID, err)
	}
	return nil
}

// GetReplayJob implements [webhook.ReplayJobStore].
func (s *core) GetReplayJob(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.ReplayJobRecord, error) {
	tenant, limited := scope.Tenant()
	found, err := s.collectReplayJobs(ctx, &s.sql.getReplayJob, s.db.id(id), !limited, tenant)
	if err == nil && len(found) == 0 {
		err = webhook.ErrNotFound
	}
	if err != nil {
		return webhook.ReplayJobRecord{}, fmt.Errorf("postgres: reading replay job %s: %w", id, err)
	}
	return found[0], nil
}

func (s *core) collectReplayJobs(ctx context.Context, q *statement, args ...any) (all []webhook.ReplayJobRecord, err error) {
	err = collect(ctx, s.db, q, func(r rows) error {
		j, err := scanReplayJob(r)
		all = append(all, j)
		return err
	}, args...)
	return all, err
}

// ListReplayJobs implements [webhook.ReplayJobStore].
func (s *core) ListReplayJobs(ctx context.Context, p webhook.ListReplayJobsParams) ([]webhook.ReplayJobRecord, error) {
	if p.Limit <= 0 {
		return nil, nil
	}
	if p.Before == uuid.Nil {
		p.Before = uuid.Max
	}
	tenant, limited := p.Scope.Tenant()
	q, args := &s.sql.listReplayJobs, []any{s.db.id(p.Before), p.Limit}
	switch {
	case p.EndpointID != uuid.Nil:
		q, args = &s.sql.listEndpointReplayJobs, append(args, s.db.id(p.EndpointID), tenant, !limited)
	case limited:
		q, args = &s.sql.listTenantReplayJobs, append(args, tenant)
	}
	found, err := s.collectReplayJobs(ctx, q, args...)
	if err != nil {
		return nil, fmt.Errorf("postgres: listing replay jobs: %w", err)
	}
	return found, nil
}

// CancelReplayJob implements [webhook.ReplayJobStore].
func (s *core) CancelReplayJob(ctx context.Context, p webhook.CancelReplayJobParams) (bool, error) {
	tenant, limited := p.Scope.Tenant()
	n, err := s.db.exec(ctx, &s.sql.cancelReplayJob, micros(p.Now), s.db.id(p.JobID), !limited, tenant)
	if err != nil {
		return false, fmt.Errorf("postgres: cancelling replay job %s: %w", p.JobID, err)
	}
	return n > 0, nil
}

// FinishedDeliveries implements [webhook.ReplayWorkStore].
func (s *core) FinishedDeliveries(ctx context.Context, p webhook.FinishedDeliveriesParams) (webhook.ReplayPage, error) {
	states := make([]string, len(p.States))
	for i, state := range p.States {
		states[i] = string(state)
	}
	page, err := s.replayPage(ctx, p.After, p.Limit, &s.sql.finishedDeliveries, s.db.id(p.EndpointID), s.db.id(p.After), p.Limit,
		from(p.FinishedFrom), to(p.FinishedTo), from(p.EventsFrom), to(p.EventsTo), s.db.texts(states), to(p.BegunTo))
	if err != nil {
		return webhook.ReplayPage{}, fmt.Errorf("postgres: looking for deliveries to replay: %w", err)
	}
	return page, nil
}

// StoredEvents implements [webhook.ReplayWorkStore].
func (s *core) StoredEvents(ctx context.Context, p webhook.StoredEventsParams) (webhook.ReplayPage, error) {
	page, err := s.replayPage(ctx, p.After, p.Limit, &s.sql.storedEvents, s.db.id(p.EndpointID), s.db.id(p.After), s.db.id(p.Until),
		p.Limit, p.Tenant, from(p.EventsFrom), to(p.EventsTo), p.Payload)
	if err != nil {
		return webhook.ReplayPage{}, fmt.Errorf("postgres: looking for events to replay: %w", err)
	}
	return page, nil
}

// replayPage reads what was looked at, and keeps what may be replayed.
func (s *core) replayPage(ctx context.Context, after uuid.UUID, limit int, q *statement, args ...any) (webhook.ReplayPage, error) {
	page := webhook.ReplayPage{Next: after}
	looked := 0
	err := collect(ctx, s.db, q, func(r rows) error {
		var c webhook.ReplayCandidate
		var fits bool
		e := &c.Event
		if err := r.Scan(&c.Cursor, &c.State, &fits, &e.ID, &e.Sequence, &e.Tenant, &e.Type, &e.ResourceID,
			&e.ResourceVersion, &e.ContentType, &e.Payload, &e.PayloadRef, &e.CreatedAt); err != nil {
			return err
		}
		looked++
		page.Next = c.Cursor
		if fits {
			e.CreatedAt = e.CreatedAt.UTC()
			page.Candidates = append(page.Candidates, c)
		}
		return nil
	}, args...)
	page.More = looked >= limit
	return page, err
}

// TakeReplayJob implements [webhook.ReplayWorkStore].
func (s *core) TakeReplayJob(ctx context.Context, p webhook.TakeReplayJobParams) (work webhook.ReplayWork, ok bool, err error) {
	err = collect(ctx, s.db, &s.sql.takeReplayJob, func(r rows) (err error) {
		ok = true
		work.Job, err = scanReplayJob(r, &work.Waiting)
		return err
	}, micros(p.Now), micros(p.LeaseUntil), s.db.id(p.Token))
	if err != nil {
		return webhook.ReplayWork{}, false, fmt.Errorf("postgres: taking a replay job: %w", err)
	}
	return work, ok, nil
}

var errJobLost = errors.New("the job is no longer held")

// AdvanceReplayJob implements [webhook.ReplayWorkStore].
func (s *core) AdvanceReplayJob(ctx context.Context, p webhook.AdvanceReplayJobParams) (created int, held bool, err error) {
	err = s.giveTurns(ctx, func(tx conn) (err error) {
		created, err = s.advanceReplayJob(ctx, tx, p)
		return err
	})
	switch {
	case errors.Is(err, errJobLost):
		return 0, false, nil
	case err != nil:
		return 0, false, fmt.Errorf("postgres: advancing replay job %s: %w", p.JobID, err)
	}
	return created, true, nil
}

func (s *core) advanceReplayJob(ctx context.Context, tx conn, p webhook.AdvanceReplayJobParams) (created int, err error) {
	endpoint, err := s.collectIDs(ctx, tx, &s.sql.lockReplayJob, s.db.id(p.JobID), s.db.id(p.Token))
	if err != nil {
		return 0, err
	}
	if len(endpoint) == 0 {
		return 0, errJobLost
	}
	if len(p.Events) > 0 {
		to, err := s.lockEndpoint(ctx, tx, webhook.AllTenants(), endpoint[0])
		if err != nil {
			return 0, err
		}
		ids, err := s.ids.New(p.Now, len(p.Events))
		if err != nil {
			return 0, err
		}
		n, err := s.insertRuns(ctx, tx, p.Now, to, ids, p.Events)
		if err != nil {
			return 0, err
		}
		created = int(n)
	}
	var finished any
	if p.State != webhook.ReplayRunning {
		finished = micros(p.Now)
	}
	_, err = tx.exec(ctx, &s.sql.advanceReplayJob, s.db.id(p.JobID), s.db.id(p.Cursor), micros(p.DueAt), string(p.State),
		text(p.Reason), p.Handled, created, finished)
	return created, err
}
