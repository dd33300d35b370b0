package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook/internal/matcher"
)

// ReplayJobRequest says what a replay job sends again. Times are limits from which
// a zero one is left out; From is included, To is not.
type ReplayJobRequest struct {
	// EndpointID is the endpoint that everything goes to. Required.
	EndpointID uuid.UUID `json:"endpoint_id"`

	// EventsFrom and EventsTo limit when the events were enqueued.
	EventsFrom time.Time `json:"events_from,omitzero"`
	EventsTo   time.Time `json:"events_to,omitzero"`

	// FinishedFrom and FinishedTo limit when the latest runs finished.
	FinishedFrom time.Time `json:"finished_from,omitzero"`
	FinishedTo   time.Time `json:"finished_to,omitzero"`

	// IdempotencyKey makes Create idempotent for 24 hours or a little more: a second call
	// for an endpoint with the same key makes nothing and returns the job that the first
	// made. It gives ErrConflict when the endpoint is another one. At most 255 bytes; not
	// returned by reads. Empty means that every call makes a job.
	IdempotencyKey string `json:"-"`

	// PerSecond is how many runs the job begins in a second at most. Zero means no
	// limit but those that all replays have: the replay lane's share of the slots,
	// and the endpoint's rate. Negative is refused.
	PerSecond int `json:"per_second,omitempty"`

	// Rematch replays events of which the endpoint has no delivery, too: because
	// those were deleted at the end of their retention, or because the endpoint is
	// newer than the event. Such an event is replayed if the endpoint, as it is now,
	// subscribes to it. It needs EventsFrom, and excludes FinishedFrom and FinishedTo.
	Rematch bool `json:"rematch,omitempty"`

	// States are the states in which the latest run of what is replayed is. Only
	// final ones; none means dead, cancelled and shed: all that did not arrive.
	States []DeliveryState `json:"states,omitempty"`

	// Types are patterns of the event types that are replayed, as an endpoint's.
	// None means all.
	Types []string `json:"types,omitempty"`
}

// ReplayEstimate is what a replay job would do.
type ReplayEstimate struct {
	// Matched counts the deliveries that the job would make, if nothing changed
	// until it makes them.
	Matched int `json:"matched"`
	// Rematched counts those of them that are there because the endpoint's patterns
	// match now, and not because there was a delivery.
	Rematched int `json:"rematched"`
}

// ReplayJob is a replay job and how far it has come.
type ReplayJob struct {
	ReplayJobRequest

	ID     uuid.UUID      `json:"id"`
	Tenant string         `json:"tenant"`
	State  ReplayJobState `json:"state"`
	// Reason says why a job failed.
	Reason string `json:"reason,omitempty"`
	// Matched is what the request covered when the job was made; Handled is how much
	// of that the job has got to.
	Matched int `json:"matched"`
	Handled int `json:"handled"`
	// Created counts the runs begun. What is handled and has none was being sent
	// already, or its event is gone.
	Created    int       `json:"created"`
	CreatedAt  time.Time `json:"created_at"`
	FinishedAt time.Time `json:"finished_at,omitzero"`
	// Duplicate is true of what Create returns for an IdempotencyKey that had made a job
	// before.
	Duplicate bool `json:"-"`
}

// Replays manages replay jobs, which send many deliveries of an endpoint again. A
// job is kept in the database and carried out by dispatchers, in batches, one
// process at a time; one that is stopped or crashes is followed by another, which
// goes on where it was, so that nothing is sent twice for it. Each run that a job
// begins is like one of [Deliveries.Replay]. A job never has more than a thousand
// runs waiting, so that an endpoint that is slow or paused holds its job up.
//
// It is safe for concurrent use. Get it from [Hooks.Replays].
type Replays struct {
	core *core
}

// DryRun counts what a job would replay, exactly, and changes nothing. It takes the
// longer the more deliveries, or with Rematch events, there are in the range.
// Errors are as those of [Replays.Create].
func (s *Replays) DryRun(ctx context.Context, scope Scope, r ReplayJobRequest) (ReplayEstimate, error) {
	scan, err := s.scan(ctx, scope, r)
	if err != nil {
		return ReplayEstimate{}, err
	}
	return scan.count(ctx)
}

// Create makes a job. It has counted what there is to replay when it returns, which
// takes as long as [Replays.DryRun]; a dispatcher begins within a second. What
// finishes after the call is not part of the job.
//
// Errors are an [InvalidError], [ErrNotFound] for an endpoint that does not exist, is
// deleted or outside of the scope, and [ErrEndpointDisabled]. A job whose endpoint is
// disabled or deleted later fails.
func (s *Replays) Create(ctx context.Context, scope Scope, r ReplayJobRequest) (ReplayJob, error) {
	scan, err := s.scan(ctx, scope, r)
	if err != nil {
		return ReplayJob{}, err
	}
	id, made, err := s.keyed(ctx, scan)
	if err != nil {
		return ReplayJob{}, err
	}
	if made != nil {
		return *made, nil
	}
	estimate, err := scan.count(ctx)
	if err != nil {
		return ReplayJob{}, err
	}
	doc, err := json.Marshal(scan.request)
	if err != nil {
		return ReplayJob{}, fmt.Errorf("write a replay job's request: %w", err)
	}
	rec := ReplayJobRecord{
		ID: id, EndpointID: r.EndpointID, Tenant: scan.endpoint.Tenant, State: ReplayRunning, Request: doc,
		Matched: estimate.Matched, Cursor: scan.first, CreatedAt: scan.before, DueAt: scan.before,
	}
	err = s.core.backend.CreateReplayJob(ctx, rec)
	if errors.Is(err, ErrConflict) && r.IdempotencyKey != "" {
		job, err := s.Get(ctx, TenantScope(rec.Tenant), id) // a twin was faster
		job.Duplicate = true
		return job, err
	}
	if err != nil {
		return ReplayJob{}, fmt.Errorf("create replay job: %w", err)
	}
	s.core.waker.deliveriesDue()
	return replayJob(&rec)
}

// keyed returns the id of a job to be made, or the job that an earlier call with the
// same idempotency key made.
func (s *Replays) keyed(ctx context.Context, scan *replayScan) (uuid.UUID, *ReplayJob, error) {
	key := scan.request.IdempotencyKey
	if key == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return uuid.Nil, nil, fmt.Errorf("make a replay job's id: %w", err)
		}
		return id, nil, nil
	}
	ids := keyedIDs("replay", scan.endpoint.Tenant, key, scan.before)
	for _, id := range ids {
		job, err := s.Get(ctx, TenantScope(scan.endpoint.Tenant), id)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err == nil && job.EndpointID != scan.endpoint.ID {
			err = fmt.Errorf("create replay job: the idempotency key was used for another endpoint: %w", ErrConflict)
		}
		job.Duplicate = true
		return id, &job, err
	}
	return ids[0], nil, nil
}

// Get returns a job, or ErrNotFound.
func (s *Replays) Get(ctx context.Context, scope Scope, id uuid.UUID) (ReplayJob, error) {
	rec, err := s.core.backend.GetReplayJob(ctx, scope, id)
	if err != nil {
		return ReplayJob{}, fmt.Errorf("get replay job %s: %w", id, err)
	}
	return replayJob(&rec)
}

// List returns jobs, newest first. For the next page set p.Before to the last id of
// this one. A limit of zero or over 1,000 means 1,000.
func (s *Replays) List(ctx context.Context, p ListReplayJobsParams) ([]ReplayJob, error) {
	if p.Limit <= 0 || p.Limit > maxListLimit {
		p.Limit = maxListLimit
	}
	recs, err := s.core.backend.ListReplayJobs(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("list replay jobs: %w", err)
	}
	list := make([]ReplayJob, len(recs))
	for i := range recs {
		if list[i], err = replayJob(&recs[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Cancel ends a job and returns it as it then is. Runs that it has begun are
// deliveries like any other, at most a thousand unfinished ones, and stay.
// Cancelling a cancelled job changes nothing; one that ended in another way gives
// [ErrFinished].
func (s *Replays) Cancel(ctx context.Context, scope Scope, id uuid.UUID) (ReplayJob, error) {
	now, err := s.core.now(ctx)
	if err != nil {
		return ReplayJob{}, err
	}
	cancelled, err := s.core.backend.CancelReplayJob(ctx, CancelReplayJobParams{Now: now, Scope: scope, JobID: id})
	if err != nil {
		return ReplayJob{}, fmt.Errorf("cancel replay job %s: %w", id, err)
	}
	job, err := s.Get(ctx, scope, id)
	if err != nil {
		return ReplayJob{}, err
	}
	if !cancelled && job.State != ReplayCancelled {
		return job, fmt.Errorf("cancel replay job %s, which is %s: %w", id, job.State, ErrFinished)
	}
	return job, nil
}

func replayJob(rec *ReplayJobRecord) (ReplayJob, error) {
	j := ReplayJob{
		ID: rec.ID, Tenant: rec.Tenant, State: rec.State, Reason: rec.Reason,
		Matched: rec.Matched, Handled: rec.Handled, Created: rec.Created,
		CreatedAt: rec.CreatedAt, FinishedAt: rec.FinishedAt,
	}
	if err := json.Unmarshal(rec.Request, &j.ReplayJobRequest); err != nil {
		return ReplayJob{}, fmt.Errorf("read the request of replay job %s: %w", rec.ID, err)
	}
	return j, nil
}

// scan checks a request and prepares to look for what it covers now.
func (s *Replays) scan(ctx context.Context, scope Scope, r ReplayJobRequest) (*replayScan, error) {
	if err := r.check(); err != nil {
		return nil, err.in("ReplayJobRequest")
	}
	rec, err := s.core.backend.GetEndpoint(ctx, scope, r.EndpointID)
	if err != nil {
		return nil, fmt.Errorf("get endpoint %s: %w", r.EndpointID, err)
	}
	if rec.State == EndpointDisabled {
		return nil, fmt.Errorf("replay to endpoint %s: %w", r.EndpointID, ErrEndpointDisabled)
	}
	now, err := s.core.now(ctx)
	if err != nil {
		return nil, err
	}
	if len(r.States) == 0 {
		r.States = []DeliveryState{StateDead, StateCancelled, StateShed}
	}
	return newReplayScan(s.core, rec, r, now.Truncate(time.Microsecond)), nil
}

func (r *ReplayJobRequest) check() *InvalidError {
	if r.EndpointID == uuid.Nil {
		return invalid("EndpointID", "is missing")
	}
	if !r.EventsTo.IsZero() && !r.EventsFrom.Before(r.EventsTo) {
		return invalid("EventsTo", "is not after EventsFrom")
	}
	if !r.FinishedTo.IsZero() && !r.FinishedFrom.Before(r.FinishedTo) {
		return invalid("FinishedTo", "is not after FinishedFrom")
	}
	if err := checkText("IdempotencyKey", r.IdempotencyKey, maxKeyBytes); err != nil {
		return err
	}
	if r.PerSecond < 0 {
		return invalid("PerSecond", "is negative")
	}
	if r.Rematch && r.EventsFrom.IsZero() {
		return invalid("EventsFrom", "is missing: Rematch needs it")
	}
	if r.Rematch && !(r.FinishedFrom.IsZero() && r.FinishedTo.IsZero()) {
		return invalid("Rematch", "cannot be limited by when deliveries finished")
	}
	for i, state := range r.States {
		if !state.Final() {
			return invalid("States["+strconv.Itoa(i)+"]", "is not a final state of a delivery")
		}
	}
	if n := len(r.Types); n > maxPatterns {
		return &InvalidError{Field: "Types", Problem: "has " + strconv.Itoa(n) + " patterns, over the limit of " + strconv.Itoa(maxPatterns), Limit: maxPatterns}
	}
	for i, pattern := range r.Types {
		if err := matcher.ValidatePattern(pattern); err != nil {
			return &InvalidError{Field: "Types[" + strconv.Itoa(i) + "]", Problem: err.Error(), cause: err}
		}
	}
	return nil
}

const (
	// replayPage is how many rows a dry run looks at in one statement.
	replayPage = 2000

	// replaySkew is by how much an event's id, which is made by the clock of the
	// host's machine, may be off its time, which is the database's.
	replaySkew = time.Hour

	// replayTolerance is by how much the time at which a dispatcher says that a
	// delivery finished may be ahead of the database's. What began later than the
	// job, as its own runs did, is not looked at in any case.
	replayTolerance = 5 * time.Second
)

// replayScan looks for what a request covers.
type replayScan struct {
	core     *core
	endpoint EndpointRecord
	request  ReplayJobRequest
	before   time.Time // what began, finished or was enqueued later is not looked at

	first, until uuid.UUID // the cursor to begin with, and the id to stop at

	types      *matcher.Matcher // nil: all
	subscribed *matcher.Matcher // with Rematch: what the endpoint subscribes to
}

func newReplayScan(c *core, endpoint EndpointRecord, r ReplayJobRequest, before time.Time) *replayScan {
	s := &replayScan{core: c, endpoint: endpoint, request: r, before: before, until: uuid.Max}
	if len(r.Types) > 0 {
		s.types = matcher.New()
		s.types.Apply(0, []matcher.Endpoint{{ID: endpoint.ID, Tenant: endpoint.Tenant, Patterns: r.Types}}, nil)
	}
	if r.Rematch {
		s.subscribed = matcher.New()
		s.subscribed.Apply(0, []matcher.Endpoint{subscription(&endpoint)}, nil)
		if c.clock == nil { // ids do not follow a clock that tests move
			s.first = firstIDAt(r.EventsFrom.Add(-replaySkew))
			s.until = firstIDAt(s.eventsTo().Add(replaySkew))
		}
	}
	return s
}

// firstIDAt is the lowest UUIDv7 of a time.
func firstIDAt(t time.Time) (id uuid.UUID) {
	ms := max(t.UnixMilli(), 0)
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}

// eventsTo is the limit of a rematch: events enqueued after the job was made would
// otherwise be part of it.
func (s *replayScan) eventsTo() time.Time { return earlier(s.request.EventsTo, s.before) }

// earlier returns the earlier of two limits, of which a is none when it is zero.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// next looks at up to limit rows after the cursor and returns those that the
// request covers.
func (s *replayScan) next(ctx context.Context, after uuid.UUID, limit int) (ReplayPage, error) {
	var page ReplayPage
	var err error
	if s.request.Rematch {
		page, err = s.core.backend.StoredEvents(ctx, StoredEventsParams{
			EndpointID: s.endpoint.ID,
			Tenant:     s.endpoint.Tenant,
			EventsFrom: s.request.EventsFrom,
			EventsTo:   s.eventsTo(),
			After:      after,
			Until:      s.until,
			Limit:      limit,
			Payload:    s.subscribed.WantsPayload(),
		})
	} else {
		from := s.request.FinishedFrom
		if s.request.EventsFrom.After(from) {
			from = s.request.EventsFrom // nothing finishes before it was enqueued
		}
		page, err = s.core.backend.FinishedDeliveries(ctx, FinishedDeliveriesParams{
			EndpointID:   s.endpoint.ID,
			States:       s.request.States,
			BegunTo:      s.before,
			FinishedFrom: from,
			FinishedTo:   earlier(s.request.FinishedTo, s.before.Add(replayTolerance)),
			EventsFrom:   s.request.EventsFrom,
			EventsTo:     s.request.EventsTo,
			After:        after,
			Limit:        limit,
		})
	}
	if err != nil {
		return ReplayPage{}, fmt.Errorf("look for what to replay: %w", err)
	}
	var unread error
	page.Candidates = slices.DeleteFunc(page.Candidates, func(c ReplayCandidate) bool {
		covered, err := s.covers(ctx, &c)
		if err != nil && unread == nil {
			unread = fmt.Errorf("look for what to replay: event %s: %w", c.Event.ID, err)
		}
		return !covered
	})
	if unread != nil {
		return ReplayPage{}, unread
	}
	return page, nil
}

// covers decides what the store does not. An event whose payload is missing, or is not
// what it was, cannot be sent, and so is not covered where a filter is to look at it.
func (s *replayScan) covers(ctx context.Context, c *ReplayCandidate) (bool, error) {
	if s.types != nil && !matchesOne(s.types, &c.Event) {
		return false, nil
	}
	if c.State != "" {
		return slices.Contains(s.request.States, c.State), nil
	}
	e := c.Event
	if len(e.PayloadRef) > 0 && s.subscribed.WantsPayloadOf(e.Tenant, e.Type) {
		payload, err := s.core.payloads.read(ctx, &e)
		if faultOf(err) == PayloadUnreachable {
			return false, err
		}
		e.Payload = payload
	}
	return matchesOne(s.subscribed, &e), nil
}

func matchesOne(m *matcher.Matcher, e *EventRecord) bool {
	ids, _ := m.Match(nil, e.Tenant, e.Type, e.Payload, uuid.Nil, 1)
	return len(ids) > 0
}

// count goes through everything.
func (s *replayScan) count(ctx context.Context) (ReplayEstimate, error) {
	var sum ReplayEstimate
	for cursor, more := s.first, true; more; {
		page, err := s.next(ctx, cursor, replayPage)
		if err != nil {
			return ReplayEstimate{}, err
		}
		for i := range page.Candidates {
			sum.Matched++
			if page.Candidates[i].State == "" {
				sum.Rematched++
			}
		}
		cursor, more = page.Next, page.More
	}
	return sum, nil
}
