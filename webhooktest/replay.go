package webhooktest

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// replayJob is a job with its lease.
type replayJob struct {
	webhook.ReplayJobRecord
	token      uuid.UUID
	leaseUntil time.Time
}

// CreateReplayJob implements [webhook.ReplayJobStore].
func (s *Store) CreateReplayJob(ctx context.Context, job webhook.ReplayJobRecord) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replayJobs[job.ID] != nil {
		return webhook.ErrConflict
	}
	job.Request = bytes.Clone(job.Request)
	job.CreatedAt, job.DueAt, job.FinishedAt = stored(job.CreatedAt), stored(job.DueAt), stored(job.FinishedAt)
	s.replayJobs[job.ID] = &replayJob{ReplayJobRecord: job}
	return nil
}

// GetReplayJob implements [webhook.ReplayJobStore].
func (s *Store) GetReplayJob(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.ReplayJobRecord, error) {
	if err := ctx.Err(); err != nil {
		return webhook.ReplayJobRecord{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	job := s.replayJobs[id]
	if job == nil || !scope.Includes(job.Tenant) {
		return webhook.ReplayJobRecord{}, webhook.ErrNotFound
	}
	return job.shown(), nil
}

func (j *replayJob) shown() webhook.ReplayJobRecord {
	job := j.ReplayJobRecord
	job.Request = bytes.Clone(job.Request)
	return job
}

// ListReplayJobs implements [webhook.ReplayJobStore].
func (s *Store) ListReplayJobs(ctx context.Context, p webhook.ListReplayJobsParams) ([]webhook.ReplayJobRecord, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []webhook.ReplayJobRecord
	for _, job := range s.replayJobs {
		switch {
		case !p.Scope.Includes(job.Tenant):
		case p.EndpointID != uuid.Nil && job.EndpointID != p.EndpointID:
		case p.Before != uuid.Nil && compareIDs(job.ID, p.Before) >= 0:
		default:
			found = append(found, job.shown())
		}
	}
	slices.SortFunc(found, func(a, b webhook.ReplayJobRecord) int { return compareIDs(b.ID, a.ID) })
	return found[:min(len(found), max(p.Limit, 0))], nil
}

// CancelReplayJob implements [webhook.ReplayJobStore].
func (s *Store) CancelReplayJob(ctx context.Context, p webhook.CancelReplayJobParams) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	job := s.replayJobs[p.JobID]
	if job == nil || job.State != webhook.ReplayRunning || !p.Scope.Includes(job.Tenant) {
		return false, nil
	}
	job.State, job.FinishedAt, job.token = webhook.ReplayCancelled, stored(p.Now), uuid.Nil
	return true, nil
}

func within(t, from, to time.Time) bool {
	return (from.IsZero() || !t.Before(from)) && (to.IsZero() || t.Before(to))
}

// FinishedDeliveries implements [webhook.ReplayWorkStore].
func (s *Store) FinishedDeliveries(ctx context.Context, p webhook.FinishedDeliveriesParams) (webhook.ReplayPage, error) {
	if err := ctx.Err(); err != nil {
		return webhook.ReplayPage{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var finished []*delivery
	for _, d := range s.deliveries {
		if d.EndpointID == p.EndpointID && d.State.Final() && compareIDs(d.ID, p.After) > 0 &&
			within(d.FinishedAt, p.FinishedFrom, p.FinishedTo) && within(d.CreatedAt, time.Time{}, p.BegunTo) {
			finished = append(finished, d)
		}
	}
	slices.SortFunc(finished, func(a, b *delivery) int { return compareIDs(a.ID, b.ID) })
	page := webhook.ReplayPage{Next: p.After, More: len(finished) >= p.Limit}
	for _, d := range finished[:min(len(finished), p.Limit)] {
		page.Next = d.ID
		e := s.events[d.EventID]
		if e == nil || !within(e.CreatedAt, p.EventsFrom, p.EventsTo) ||
			!slices.Contains(p.States, d.State) || d.replayed || s.latestRun(d.EventID, d.EndpointID) != d {
			continue
		}
		page.Candidates = append(page.Candidates, candidate(d.ID, e, d.State))
	}
	return page, nil
}

func candidate(cursor uuid.UUID, e *event, state webhook.DeliveryState) webhook.ReplayCandidate {
	c := webhook.ReplayCandidate{Cursor: cursor, Event: e.EventRecord, State: state}
	c.Event.Payload = nil
	return c
}

// StoredEvents implements [webhook.ReplayWorkStore].
func (s *Store) StoredEvents(ctx context.Context, p webhook.StoredEventsParams) (webhook.ReplayPage, error) {
	if err := ctx.Err(); err != nil {
		return webhook.ReplayPage{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var events []*event
	for _, e := range s.events {
		if compareIDs(e.ID, p.After) > 0 && compareIDs(e.ID, p.Until) < 0 {
			events = append(events, e)
		}
	}
	slices.SortFunc(events, func(a, b *event) int { return compareIDs(a.ID, b.ID) })
	page := webhook.ReplayPage{Next: p.After, More: len(events) >= p.Limit}
	for _, e := range events[:min(len(events), p.Limit)] {
		page.Next = e.ID
		if e.Tenant != p.Tenant || !e.fannedOut || !within(e.CreatedAt, p.EventsFrom, p.EventsTo) {
			continue
		}
		c := candidate(e.ID, e, "")
		if latest := s.latestRun(e.ID, p.EndpointID); latest != nil {
			if !latest.State.Final() {
				continue
			}
			c.State = latest.State
			if latest.replayed {
				c.State = webhook.StateDelivered // by the run after it, which is gone
			}
		}
		if p.Payload {
			c.Event.Payload = bytes.Clone(e.Payload)
		}
		page.Candidates = append(page.Candidates, c)
	}
	return page, nil
}

// TakeReplayJob implements [webhook.ReplayWorkStore].
func (s *Store) TakeReplayJob(ctx context.Context, p webhook.TakeReplayJobParams) (webhook.ReplayWork, bool, error) {
	if err := ctx.Err(); err != nil {
		return webhook.ReplayWork{}, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var next *replayJob
	for _, job := range s.replayJobs {
		leased := job.token != uuid.Nil && job.leaseUntil.After(p.Now)
		if job.State == webhook.ReplayRunning && !leased && !job.DueAt.After(p.Now) &&
			(next == nil || job.DueAt.Before(next.DueAt)) {
			next = job
		}
	}
	if next == nil {
		return webhook.ReplayWork{}, false, nil
	}
	next.token, next.leaseUntil = p.Token, stored(p.LeaseUntil)
	work := webhook.ReplayWork{Job: next.shown()}
	for _, d := range s.unfinished[next.EndpointID] {
		if d.Run > 0 {
			work.Waiting++
		}
	}
	return work, true, nil
}

// AdvanceReplayJob implements [webhook.ReplayWorkStore].
func (s *Store) AdvanceReplayJob(ctx context.Context, p webhook.AdvanceReplayJobParams) (created int, held bool, err error) {
	if err := ctx.Err(); err != nil {
		return 0, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	job := s.replayJobs[p.JobID]
	if job == nil || job.State != webhook.ReplayRunning || job.token == uuid.Nil || job.token != p.Token {
		return 0, false, nil
	}
	if len(p.Events) > 0 {
		if created, err = s.startRuns(job.EndpointID, p.Events, p.Now); err != nil {
			return 0, false, err
		}
	}
	job.token = uuid.Nil
	job.Cursor, job.DueAt, job.State, job.Reason = p.Cursor, stored(p.DueAt), p.State, p.Reason
	job.Handled += p.Handled
	job.Created += created
	if p.State != webhook.ReplayRunning {
		job.FinishedAt = stored(p.Now)
	}
	return created, true, nil
}

// startRuns begins a run of each event that may have one. The lock is held.
func (s *Store) startRuns(endpointID uuid.UUID, events []uuid.UUID, now time.Time) (started int, err error) {
	endpoint := s.endpoints[endpointID]
	switch {
	case endpoint == nil || !endpoint.DeletedAt.IsZero():
		return 0, webhook.ErrNotFound
	case endpoint.State == webhook.EndpointDisabled:
		return 0, webhook.ErrEndpointDisabled
	}
	for _, id := range events {
		e, latest := s.events[id], s.latestRun(id, endpointID)
		if e == nil || e.Tenant != endpoint.Tenant || (latest != nil && !latest.State.Final()) {
			continue
		}
		s.startRun(e, endpoint, latest, now)
		started++
	}
	return started, nil
}
