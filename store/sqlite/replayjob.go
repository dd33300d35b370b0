package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

const (
	jobColumns query = `id, endpoint_id, tenant, state, reason, request, matched, handled, created, after_id,
		created_at, due_at, finished_at`

	insertJob query = `
		INSERT INTO {{prefix}}replay_job (` + jobColumns + `)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`

	// Rides on the primary key of replay_job, as do all that name an id.
	selectJob query = `SELECT ` + jobColumns + ` FROM {{prefix}}replay_job WHERE id = ?`

	// Each rides, in order, on the index that begins with what it filters by.
	selectJobs           query = `SELECT ` + jobColumns + ` FROM {{prefix}}replay_job WHERE id < ? ORDER BY id DESC LIMIT ?`
	selectJobsOfTenant   query = `SELECT ` + jobColumns + ` FROM {{prefix}}replay_job WHERE tenant = ? AND id < ? ORDER BY id DESC LIMIT ?`
	selectJobsOfEndpoint query = `
		SELECT ` + jobColumns + ` FROM {{prefix}}replay_job
		WHERE endpoint_id = ? AND id < ? AND (? OR tenant = ?) ORDER BY id DESC LIMIT ?`

	updateCancelledJob query = `
		UPDATE {{prefix}}replay_job SET state = 'cancelled', finished_at = ?, lease_until = 0, lease_token = x''
		WHERE id = ? AND state = 'running' AND (? OR tenant = ?)`

	// Running jobs are few. Rides on replay_job_due.
	selectDueJob query = `
		SELECT id FROM {{prefix}}replay_job
		WHERE state = 'running' AND due_at <= ? AND lease_until <= ? ORDER BY due_at LIMIT 1`

	updateTakenJob query = `UPDATE {{prefix}}replay_job SET lease_until = ?, lease_token = ? WHERE id = ?`

	// Rides on replay_job_finished.
	deleteJobs query = `DELETE FROM {{prefix}}replay_job WHERE finished_at > 0 AND finished_at < ?`

	// Rides on delivery_claim.
	countWaiting query = `
		SELECT (SELECT count(*) FROM (SELECT 1 FROM {{prefix}}delivery WHERE endpoint_id = ?1 AND lane = 2 LIMIT 1000))
			+ (SELECT count(*) FROM (SELECT run FROM {{prefix}}delivery WHERE endpoint_id = ?1 AND lane = 3
				ORDER BY next_attempt_at DESC LIMIT 1000) WHERE run > 0)`

	selectHeldJob query = `
		SELECT endpoint_id FROM {{prefix}}replay_job WHERE id = ? AND lease_token = ? AND state = 'running'`

	updateAdvancedJob query = `
		UPDATE {{prefix}}replay_job
		SET after_id = ?, due_at = ?, state = ?, reason = ?, handled = handled + ?, created = created + ?,
			finished_at = ?, lease_until = 0, lease_token = x''
		WHERE id = ?`
)

func scanJob(row scanner) (webhook.ReplayJobRecord, error) {
	var j webhook.ReplayJobRecord
	var createdAt, dueAt, finishedAt int64
	err := row.Scan(&j.ID, &j.EndpointID, &j.Tenant, &j.State, &j.Reason, &j.Request, &j.Matched, &j.Handled, &j.Created,
		&j.Cursor, &createdAt, &dueAt, &finishedAt)
	j.CreatedAt, j.DueAt, j.FinishedAt = fromMicros(createdAt), fromMicros(dueAt), fromMicros(finishedAt)
	return j, err
}

// CreateReplayJob implements [webhook.ReplayJobStore].
func (s *Store) CreateReplayJob(ctx context.Context, j webhook.ReplayJobRecord) error {
	return s.write(ctx, "creating a replay job", nil, func(ctx context.Context, c *sql.Conn) error {
		written, err := changed(c.ExecContext(ctx, s.sql(insertJob), blob(j.ID), blob(j.EndpointID), j.Tenant, string(j.State),
			text(j.Reason), present(j.Request), j.Matched, j.Handled, j.Created, blob(j.Cursor),
			micros(j.CreatedAt), micros(j.DueAt), micros(j.FinishedAt)))
		if err == nil && !written {
			err = webhook.ErrConflict
		}
		return err
	})
}

// GetReplayJob implements [webhook.ReplayJobStore].
func (s *Store) GetReplayJob(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.ReplayJobRecord, error) {
	var job webhook.ReplayJobRecord
	err := s.read(ctx, "reading a replay job", func(ctx context.Context) error {
		var err error
		job, err = scanJob(s.db.QueryRowContext(ctx, s.sql(selectJob), blob(id)))
		if errors.Is(err, sql.ErrNoRows) || (err == nil && !scope.Includes(job.Tenant)) {
			return webhook.ErrNotFound
		}
		return err
	})
	if err != nil {
		return webhook.ReplayJobRecord{}, err
	}
	return job, nil
}

// ListReplayJobs implements [webhook.ReplayJobStore].
func (s *Store) ListReplayJobs(ctx context.Context, p webhook.ListReplayJobsParams) ([]webhook.ReplayJobRecord, error) {
	if p.Limit <= 0 {
		return nil, nil
	}
	before := p.Before
	if before == uuid.Nil {
		before = uuid.Max
	}
	tenant, limited := p.Scope.Tenant()
	text, args := selectJobs, []any{blob(before), p.Limit}
	switch {
	case p.EndpointID != uuid.Nil:
		text, args = selectJobsOfEndpoint, []any{blob(p.EndpointID), blob(before), !limited, tenant, p.Limit}
	case limited:
		text, args = selectJobsOfTenant, []any{tenant, blob(before), p.Limit}
	}
	var jobs []webhook.ReplayJobRecord
	err := s.read(ctx, "listing replay jobs", func(ctx context.Context) error {
		jobs = nil
		rows, err := s.db.QueryContext(ctx, s.sql(text), args...)
		return scanAll(rows, err, func(rows *sql.Rows) error {
			job, err := scanJob(rows)
			jobs = append(jobs, job)
			return err
		})
	})
	return jobs, err
}

// CancelReplayJob implements [webhook.ReplayJobStore].
func (s *Store) CancelReplayJob(ctx context.Context, p webhook.CancelReplayJobParams) (cancelled bool, err error) {
	tenant, limited := p.Scope.Tenant()
	err = s.write(ctx, "cancelling a replay job", nil, func(ctx context.Context, c *sql.Conn) error {
		var err error
		cancelled, err = changed(c.ExecContext(ctx, s.sql(updateCancelledJob), micros(p.Now), blob(p.JobID), !limited, tenant))
		return err
	})
	return cancelled && err == nil, err
}

// TakeReplayJob implements [webhook.ReplayWorkStore]. It takes the lock only when
// there is a job.
func (s *Store) TakeReplayJob(ctx context.Context, p webhook.TakeReplayJobParams) (work webhook.ReplayWork, ok bool, err error) {
	now := micros(p.Now)
	err = s.read(ctx, "looking for a replay job", func(ctx context.Context) error {
		var id uuid.UUID
		err := s.db.QueryRowContext(ctx, s.sql(selectDueJob), now, now).Scan(&id)
		ok = err == nil
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	if err != nil || !ok {
		return webhook.ReplayWork{}, false, err
	}
	err = s.write(ctx, "taking a replay job", nil, func(ctx context.Context, c *sql.Conn) error {
		var id uuid.UUID
		err := c.QueryRowContext(ctx, s.sql(selectDueJob), now, now).Scan(&id)
		if ok = err == nil; !ok {
			if errors.Is(err, sql.ErrNoRows) {
				return nil
			}
			return err
		}
		if _, err := c.ExecContext(ctx, s.sql(updateTakenJob), micros(p.LeaseUntil), blob(p.Token), blob(id)); err != nil {
			return err
		}
		if work.Job, err = scanJob(c.QueryRowContext(ctx, s.sql(selectJob), blob(id))); err != nil {
			return err
		}
		return c.QueryRowContext(ctx, s.sql(countWaiting), blob(work.Job.EndpointID)).Scan(&work.Waiting)
	})
	if err != nil || !ok {
		return webhook.ReplayWork{}, false, err
	}
	return work, true, nil
}

// AdvanceReplayJob implements [webhook.ReplayWorkStore].
func (s *Store) AdvanceReplayJob(ctx context.Context, p webhook.AdvanceReplayJobParams) (created int, held bool, err error) {
	err = s.write(ctx, "advancing a replay job", nil, func(ctx context.Context, c *sql.Conn) error {
		created, held = 0, false
		var endpoint uuid.UUID
		err := c.QueryRowContext(ctx, s.sql(selectHeldJob), blob(p.JobID), blob(p.Token)).Scan(&endpoint)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		held = true
		if len(p.Events) > 0 {
			if created, err = s.startRuns(ctx, c, endpoint, p); err != nil {
				return err
			}
		}
		var finished int64
		if p.State != webhook.ReplayRunning {
			finished = micros(p.Now)
		}
		_, err = c.ExecContext(ctx, s.sql(updateAdvancedJob), blob(p.Cursor), micros(p.DueAt), string(p.State), text(p.Reason),
			p.Handled, created, finished, blob(p.JobID))
		return err
	})
	if err != nil {
		return 0, false, err
	}
	return created, held, nil
}

// removeReplayJobs removes jobs that ended before a time.
func (s *Store) removeReplayJobs(ctx context.Context, before time.Time) error {
	if before.IsZero() {
		return nil
	}
	return s.write(ctx, "removing old replay jobs", nil, func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, s.sql(deleteJobs), micros(before))
		return err
	})
}

// startRuns begins a run of each event that may have one. It runs under the lock.
func (s *Store) startRuns(ctx context.Context, c *sql.Conn, endpoint uuid.UUID, p webhook.AdvanceReplayJobParams) (created int, err error) {
	to, err := s.replayable(ctx, c, webhook.AllTenants(), endpoint)
	if err != nil {
		return 0, err
	}
	for _, event := range p.Events {
		_, started, err := s.startRun(ctx, c, to, webhook.StartRunParams{Now: p.Now, EventID: event, EndpointID: endpoint})
		switch {
		case errors.Is(err, webhook.ErrNotFound), errors.Is(err, webhook.ErrEventGone): // left out
		case err != nil:
			return 0, err
		case started:
			created++
		}
	}
	return created, nil
}
