package webhook

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// ReplayJobStore keeps replay jobs.
type ReplayJobStore interface {
	// CreateReplayJob writes a new job. An id that exists gives ErrConflict.
	CreateReplayJob(ctx context.Context, job ReplayJobRecord) error

	// GetReplayJob returns a job, or ErrNotFound.
	GetReplayJob(ctx context.Context, scope Scope, id uuid.UUID) (ReplayJobRecord, error)

	// ListReplayJobs returns jobs, newest first by id.
	ListReplayJobs(ctx context.Context, p ListReplayJobsParams) ([]ReplayJobRecord, error)

	// CancelReplayJob ends a running job as cancelled; whoever works on it no
	// longer holds it. It reports false, and changes nothing, when no running job
	// within p.Scope has the id.
	CancelReplayJob(ctx context.Context, p CancelReplayJobParams) (cancelled bool, err error)
}

// ReplayWorkStore is what dispatchers work on replay jobs with.
type ReplayWorkStore interface {
	// FinishedDeliveries looks at up to p.Limit finished deliveries of an endpoint,
	// in ascending order of their ids after p.After, that began and finished within
	// p's times, and returns those of them that may be replayed: whose state is one of
	// p.States, whose event is stored and was created within p's times, and after
	// whose run no further one was begun, whether that is still stored or not.
	FinishedDeliveries(ctx context.Context, p FinishedDeliveriesParams) (ReplayPage, error)

	// StoredEvents looks at up to p.Limit events, in ascending order of their ids
	// after p.After and before p.Until, and returns those of the endpoint's tenant
	// that were created within p's times, have been fanned out, and have no
	// unfinished delivery to the endpoint; each with the state of its latest run. Where
	// that is gone and an earlier one is not, it was delivered.
	StoredEvents(ctx context.Context, p StoredEventsParams) (ReplayPage, error)

	// TakeReplayJob leases the running job that has been due longest at p.Now and
	// is under no lease that is valid then. It reports false when there is none.
	// Calls at once never return the same job.
	TakeReplayJob(ctx context.Context, p TakeReplayJobParams) (work ReplayWork, ok bool, err error)

	// AdvanceReplayJob records, in one transaction, what was done of a leased job,
	// and gives the lease back: it begins a run, as StartRun does, of each of
	// p.Events that is stored and has no unfinished one, moves the job to p.Cursor,
	// p.DueAt and p.State, and adds to its counters. When p.Token no longer holds
	// the job, or the job is not running, it changes nothing and reports false. When
	// there are p.Events and the endpoint is deleted or disabled it changes nothing
	// and gives ErrNotFound or ErrEndpointDisabled.
	AdvanceReplayJob(ctx context.Context, p AdvanceReplayJobParams) (created int, held bool, err error)
}

// ReplayJobRecord is a replay job as it is stored.
type ReplayJobRecord struct {
	ID         uuid.UUID
	EndpointID uuid.UUID
	Tenant     string
	State      ReplayJobState
	// Reason says why a job failed.
	Reason string
	// Request is a JSON document, written and read by this package alone.
	Request []byte
	// Matched counts what the request covered when the job was made, Handled what
	// of it the job has got to, and Created the runs begun.
	Matched, Handled, Created int
	// Cursor is the id up to which everything has been handled.
	Cursor    uuid.UUID
	CreatedAt time.Time
	// DueAt is when a running job goes on.
	DueAt time.Time
	// FinishedAt is zero while the job runs.
	FinishedAt time.Time
}

// ReplayJobState is where a replay job stands. All but running are final.
type ReplayJobState string

// The states of a replay job.
const (
	ReplayRunning   ReplayJobState = "running"
	ReplayDone      ReplayJobState = "done"
	ReplayCancelled ReplayJobState = "cancelled"
	// ReplayFailed ended before its time: its endpoint was disabled or deleted.
	ReplayFailed ReplayJobState = "failed"
)

// ListReplayJobsParams filters and pages through jobs. Zero fields do not filter.
type ListReplayJobsParams struct {
	Scope      Scope
	EndpointID uuid.UUID
	Before     uuid.UUID // zero starts with the newest
	Limit      int
}

// CancelReplayJobParams says which job is to end.
type CancelReplayJobParams struct {
	Now   time.Time
	Scope Scope
	JobID uuid.UUID
}

// FinishedDeliveriesParams says which deliveries are looked at. A zero time is no
// limit; From is included, To is not.
type FinishedDeliveriesParams struct {
	EndpointID               uuid.UUID
	States                   []DeliveryState // final ones; at least one
	BegunTo                  time.Time       // of their CreatedAt
	FinishedFrom, FinishedTo time.Time
	EventsFrom, EventsTo     time.Time
	After                    uuid.UUID
	Limit                    int
}

// StoredEventsParams says which events are looked at. A zero time is no limit;
// From is included, To is not.
type StoredEventsParams struct {
	EndpointID           uuid.UUID
	Tenant               string
	EventsFrom, EventsTo time.Time
	After, Until         uuid.UUID
	Limit                int
	// Payload asks for the events' payloads.
	Payload bool
}

// ReplayPage is a part of what may be replayed.
type ReplayPage struct {
	// Candidates are in the order of their cursors.
	Candidates []ReplayCandidate
	// Next is where the next page begins; More is false when this was the last.
	Next uuid.UUID
	More bool
}

// ReplayCandidate is an event that may be replayed to an endpoint.
type ReplayCandidate struct {
	// Cursor is the id in whose order the page is.
	Cursor uuid.UUID
	// Event has no payload unless it was asked for.
	Event EventRecord
	// State is that of the latest run; empty when the endpoint has none.
	State DeliveryState
}

// TakeReplayJobParams leases a job.
type TakeReplayJobParams struct {
	Now        time.Time
	LeaseUntil time.Time
	Token      uuid.UUID
}

// ReplayWork is a leased job.
type ReplayWork struct {
	Job ReplayJobRecord
	// Waiting counts the unfinished deliveries in the endpoint's LaneReplay; it may
	// stop counting at 1,000.
	Waiting int
}

// AdvanceReplayJobParams says how far a job has come.
type AdvanceReplayJobParams struct {
	Now    time.Time
	JobID  uuid.UUID
	Token  uuid.UUID
	Cursor uuid.UUID
	// Handled is added to the job's, and may be more than there are Events.
	Handled int
	// Events are different ones.
	Events []uuid.UUID
	DueAt  time.Time
	// State is ReplayRunning or how the job ends, at Now.
	State  ReplayJobState
	Reason string
}
