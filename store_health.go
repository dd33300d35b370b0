package webhook

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// VitalsStore keeps how endpoints fare, for whoever sends to them next and for those
// who look on. It is written every few seconds for the endpoints that had attempts,
// not with each attempt.
type VitalsStore interface {
	// LoadVitals returns what is stored about endpoints, in any order; nothing for one
	// about which nothing is.
	LoadVitals(ctx context.Context, endpoints []uuid.UUID) ([]VitalsRecord, error)

	// SaveVitals stores vitals, each if its Version is the one stored, or 0 and none
	// is, and gives it the next version. It returns the endpoints of the others, which
	// it leaves as they are. With those that it stores, and in one transaction, it adds
	// p.Notices, of which each belongs to an endpoint in p.Vitals, as AddNotices does.
	SaveVitals(ctx context.Context, p SaveVitalsParams) (stale []uuid.UUID, err error)

	// ListUnwell returns the ids of endpoints that are not deleted and whose level is
	// at least p.Level, in ascending order after p.After.
	ListUnwell(ctx context.Context, p ListUnwellParams) ([]uuid.UUID, error)
}

// VitalsRecord is what is stored of how an endpoint fares.
type VitalsRecord struct {
	EndpointID uuid.UUID
	// Version counts how often it was stored; 0 when it never was.
	Version int64
	// Level is how bad it is.
	Level VitalsLevel
	// Data is a JSON document, written and read by this package alone.
	Data []byte
}

// VitalsLevel sorts endpoints, so that those with trouble are found among many.
type VitalsLevel int

// The levels.
const (
	LevelWell     VitalsLevel = iota // none of the latest 20 attempts failed
	LevelUnsteady                    // some did
	LevelFailing                     // the latest one did
)

// SaveVitalsParams is what [VitalsStore.SaveVitals] stores. An endpoint occurs once in
// Vitals.
type SaveVitalsParams struct {
	Vitals  []VitalsRecord
	Notices []NoticeRecord
}

// ListUnwellParams pages through endpoints with trouble.
type ListUnwellParams struct {
	Scope Scope
	After uuid.UUID   // zero starts at the beginning
	Level VitalsLevel // at least; LevelWell means LevelUnsteady
	Limit int         // 0 or less means none
}

// HealthStore reads what is known about endpoints, and keeps what dispatchers do.
type HealthStore interface {
	// ReadHealth returns what is known about p.Endpoints: one row for each, in any
	// order, whether or not the endpoint exists. What it costs depends on the number
	// of endpoints and on p.CountUpTo, not on what they have pending or in the log.
	ReadHealth(ctx context.Context, p ReadHealthParams) ([]HealthRow, error)

	// CountEndpoints counts the endpoints in a scope that are not deleted.
	CountEndpoints(ctx context.Context, scope Scope) (EndpointCounts, error)

	// SaveActivity stores what dispatchers did, each in place of what the same
	// dispatcher stored for the same time.
	SaveActivity(ctx context.Context, activity []ActivityRecord) error

	// ListActivity returns what was stored for times from one on and before another,
	// in the order of the times and for one time of the dispatchers.
	ListActivity(ctx context.Context, from, until time.Time) ([]ActivityRecord, error)
}

// ReadHealthParams says about which endpoints.
type ReadHealthParams struct {
	Now       time.Time
	Endpoints []uuid.UUID
	// CountUpTo bounds the counting of unfinished deliveries, of each endpoint.
	CountUpTo int
}

// HealthRow is what a store knows of an endpoint.
type HealthRow struct {
	EndpointID uuid.UUID
	// Circuit is the State that [ClusterStore.SaveHealth] stored, if any, and Vitals
	// the Data that [VitalsStore.SaveVitals] did.
	Circuit, Vitals []byte
	// OldestDueAt is the earliest NextAttemptAt of the unfinished deliveries that are
	// due and not under a valid lease; zero when there are none.
	OldestDueAt time.Time
	// Pending counts the unfinished deliveries, up to the bound.
	Pending int
}

// EndpointCounts are numbers of endpoints.
type EndpointCounts struct {
	// Active, Paused and Disabled count by state.
	Active, Paused, Disabled int
	// Failing and Unsteady count active endpoints by level: those whose latest
	// attempt failed, and those of whose latest 20 some did. The other active ones
	// are well.
	Failing, Unsteady int
}

// ActivityRecord is what one dispatcher did in some time.
type ActivityRecord struct {
	At         time.Time // when the time began
	Dispatcher uuid.UUID
	// Data is a JSON document, written and read by this package alone.
	Data []byte
}

// NoticeStore keeps what is to be told, until everybody was told.
type NoticeStore interface {
	// AddNotices writes notices, but none of which one of the same endpoint, kind and
	// streak exists, and returns the ids of those that it wrote. With a notice that
	// has an Event it also writes that event and its outbox entry; all in one
	// transaction.
	AddNotices(ctx context.Context, notices []NoticeRecord) (added []uuid.UUID, err error)

	// DueNotices returns notices whose DueAt is set and not after now, in the order of
	// DueAt.
	DueNotices(ctx context.Context, now time.Time, limit int) ([]NoticeRecord, error)

	// SettleNotices sets the DueAt, which may be zero, and the Attempts of notices.
	SettleNotices(ctx context.Context, notices []NoticeRecord) error

	// ListNotices returns notices, newest first by id.
	ListNotices(ctx context.Context, p ListNoticesParams) ([]NoticeRecord, error)
}

// NoticeRecord is a notice as it is stored.
type NoticeRecord struct {
	ID         uuid.UUID
	EndpointID uuid.UUID
	Tenant     string
	Kind       NoticeKind
	// Streak tells one of a kind from the next: of an endpoint and a kind, there is
	// one notice for each streak.
	Streak    time.Time
	CreatedAt time.Time
	// DueAt is when it is to be told; zero when there is nobody left to tell.
	DueAt time.Time
	// Attempts counts how often telling it was tried.
	Attempts int
	// Detail is a JSON document, written and read by this package alone.
	Detail []byte
	// Event is written along with the notice; nil for none. It is not read.
	Event *EventRecord
}

// ListNoticesParams filters and pages through notices. Zero fields do not filter, but
// for Scope, whose zero value is the tenant with the empty name, and Limit.
type ListNoticesParams struct {
	Scope      Scope
	EndpointID uuid.UUID
	Before     uuid.UUID // zero starts with the newest
	// Limit is how many notices to list at most. To a store 0 or less means none;
	// [Health.Notices] has a default.
	Limit int
}
