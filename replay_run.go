package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

const (
	// replayBatch is how many runs a replay job begins in one transaction, and how
	// many rows it looks at for them.
	replayBatch = 500
	replayLook  = 1000

	// replayWaiting is how many replays may wait for an endpoint before its jobs
	// begin no more, and replayPause how long they then wait.
	replayWaiting = 500
	replayPause   = time.Second

	// replayLease is how long a job is held up by a dispatcher that crashed. A batch
	// takes a small part of it.
	replayLease = 30 * time.Second
)

// replay carries out replay jobs, a batch of one at a time, until ctx ends. Which
// dispatcher gets which batch is decided by a lease on the job.
func (r *run) replay(ctx context.Context) {
	wake := make(chan struct{}, 1)
	stop := r.core.waker.listenDue(wake)
	defer stop()
	var wait backoff
	for ctx.Err() == nil {
		worked, err := r.replayOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.core.log.WarnContext(ctx, "webhook: replay job waits", "error", err)
			if !wait.sleep(ctx) {
				return
			}
			continue
		case worked:
			wait.reset()
			continue
		}
		timer, stop := r.d.clock.clock.NewTimer(r.cfg.PollInterval)
		select {
		case <-timer:
		case <-wake:
		case <-ctx.Done():
		}
		stop()
	}
}

// replayOnce does a batch of the job that has waited longest, if any is due.
func (r *run) replayOnce(ctx context.Context) (worked bool, err error) {
	token, err := uuid.NewRandom()
	if err != nil {
		return false, fmt.Errorf("make a lease token: %w", err)
	}
	now := r.d.clock.now()
	work, ok, err := r.core.backend.TakeReplayJob(ctx, TakeReplayJobParams{Now: now, LeaseUntil: now.Add(replayLease), Token: token})
	if err != nil || !ok {
		return false, err
	}
	if err := r.replayStep(ctx, &work, token, now); err != nil {
		r.giveJobBack(ctx, &work.Job, token)
		return false, err
	}
	return true, nil
}

// replayStep does a batch of a leased job and gives the lease back.
func (r *run) replayStep(ctx context.Context, work *ReplayWork, token uuid.UUID, now time.Time) error {
	if now.Before(work.Job.CreatedAt) {
		now = work.Job.CreatedAt // the scan tells the job's own runs by their beginning
	}
	step, err := r.replayBatch(ctx, work, now)
	if err != nil {
		return err
	}
	step.JobID, step.Token = work.Job.ID, token
	created, held, err := r.core.backend.AdvanceReplayJob(ctx, step)
	if reason, over := replayFailure(err); over {
		// Nothing was changed, so the lease still holds the job.
		step.Events, step.Handled, step.Cursor = nil, 0, work.Job.Cursor
		step.State, step.Reason = ReplayFailed, reason
		created, held, err = r.core.backend.AdvanceReplayJob(ctx, step)
	}
	if err != nil {
		return err
	}
	r.replayed(ctx, &work.Job, &step, created, held)
	return nil
}

// giveJobBack lets another dispatcher go on at once with a job whose step failed or
// was cut off. It changes nothing if the step took place after all.
func (r *run) giveJobBack(ctx context.Context, job *ReplayJobRecord, token uuid.UUID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replayPause)
	defer cancel()
	now := r.d.clock.now()
	// An error leaves the job to its lease. The pause lets other jobs pass one that
	// cannot be worked on.
	_, _, err := r.core.backend.AdvanceReplayJob(ctx, AdvanceReplayJobParams{
		Now: now, JobID: job.ID, Token: token, Cursor: job.Cursor, DueAt: now.Add(replayPause), State: ReplayRunning,
	})
	if err != nil {
		r.core.log.DebugContext(ctx, "webhook: replay job left to its lease", "job", job.ID, "error", err)
	}
}

// readReplayRequest returns what the job was asked for; false when it is not what
// this package writes.
func readReplayRequest(job *ReplayJobRecord) (request ReplayJobRequest, ok bool) {
	ok = json.Unmarshal(job.Request, &request) == nil
	return request, ok
}

// replayBatch decides what the next step of a job is.
func (r *run) replayBatch(ctx context.Context, work *ReplayWork, now time.Time) (AdvanceReplayJobParams, error) {
	job := &work.Job
	step := AdvanceReplayJobParams{Now: now, DueAt: now, Cursor: job.Cursor, State: ReplayRunning}
	fail := func(reason string) AdvanceReplayJobParams {
		step.State, step.Reason = ReplayFailed, reason
		return step
	}
	request, ok := readReplayRequest(job)
	if !ok {
		return fail("the request cannot be read"), nil
	}
	if work.Waiting >= replayWaiting {
		step.DueAt = now.Add(replayPause)
		return step, nil
	}
	endpoint, err := r.core.backend.GetEndpoint(ctx, AllTenants(), job.EndpointID)
	if reason, over := replayFailure(err); over {
		return fail(reason), nil
	}
	if err != nil {
		return step, fmt.Errorf("get endpoint %s: %w", job.EndpointID, err)
	}
	page, err := newReplayScan(r.core, endpoint, request, job.CreatedAt).next(ctx, job.Cursor, replayLook)
	if err != nil {
		return step, err
	}

	limit := replayBatch
	if request.PerSecond > 0 {
		limit = min(limit, request.PerSecond)
	}
	if len(page.Candidates) > limit {
		page.Candidates = page.Candidates[:limit]
		page.Next, page.More = page.Candidates[limit-1].Cursor, true
	}
	step.Cursor, step.Handled = page.Next, len(page.Candidates)
	for i := range page.Candidates {
		step.Events = append(step.Events, page.Candidates[i].Event.ID)
	}
	if !page.More {
		step.State = ReplayDone
	}
	if n := len(step.Events); n > 0 && request.PerSecond > 0 {
		step.DueAt = now.Add(time.Duration(n) * time.Second / time.Duration(request.PerSecond))
	}
	return step, nil
}

// replayFailure tells errors that a job cannot outlive from those that pass.
func replayFailure(err error) (reason string, over bool) {
	switch {
	case errors.Is(err, ErrNotFound):
		return "endpoint deleted", true
	case errors.Is(err, ErrEndpointDisabled):
		return "endpoint disabled", true
	}
	return "", false
}

// replayed tells what came of a step.
func (r *run) replayed(ctx context.Context, job *ReplayJobRecord, step *AdvanceReplayJobParams, created int, held bool) {
	if created > 0 {
		// Another dispatcher's endpoint is found by that one's reconciliation.
		r.loop.ready([]ReadyLane{{EndpointID: job.EndpointID, Lane: LaneReplay, DueAt: step.Now}})
	}
	if o := r.telling.observer; o != nil && held {
		report := ReplayReport{
			JobID: job.ID, EndpointID: job.EndpointID, Tenant: job.Tenant, State: step.State,
			Matched: job.Matched, Handled: job.Handled + step.Handled, Created: job.Created + created, Begun: created,
		}
		r.observe(func() { o.ReplayAdvanced(report) })
	}
	if held && step.State != ReplayRunning {
		r.core.log.InfoContext(ctx, "webhook: replay job over", "job", job.ID, "endpoint", job.EndpointID, "state", step.State,
			"reason", step.Reason, "matched", job.Matched, "created", job.Created+created)
	}
}
