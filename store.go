package webhook

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// Store keeps everything that the library must not forget. Package
// store/postgres and store/sqlite implement it; package store/storetest holds
// the conformance suite that any other implementation must pass.
//
// Tx is the transaction type of the host, fixed by the store: pgx.Tx or
// *sql.Tx. Only the outbox sees it.
//
// All methods are safe for concurrent use. Times are stored with microsecond
// precision and returned in UTC. Methods that take parameters in a struct may
// gain fields; an implementation must treat a field's zero value as it is
// documented.
type Store[Tx any] interface {
	OutboxStore[Tx]
	Backend
}

// Backend is the part of a [Store] that does not depend on the host's
// transaction type: what a [Dispatcher] and the admin handler work on.
//
//nolint:interfacebloat // it is composed of roles, each of a few methods
type Backend interface {
	FanOutStore
	DeliveryStore
	BacklogStore
	OrderStore
	OnceStore
	WindowStore
	ActionStore
	ReplayJobStore
	ReplayWorkStore
	EndpointStore
	LogStore
	CounterStore
	EraseStore
	PayloadRefStore
	VitalsStore
	HealthStore
	NoticeStore
	SystemStore
}

// OutboxStore writes events inside the host's transactions.
type OutboxStore[Tx any] interface {
	// InsertEvents writes the events and their outbox entries through tx, in
	// the order given, and never commits, rolls back or otherwise ends tx. It
	// returns one result per event, in the same order.
	//
	// An event whose (Tenant, IdempotencyKey) is taken, in the database or by an
	// earlier event of the same call, is not written: its result carries the
	// first event's id and Duplicate. A twin in a transaction that has not
	// ended is waited for. Apart from that wait InsertEvents takes no lock that
	// another InsertEvents needs.
	//
	// One event costs one round trip, two when it is a duplicate.
	InsertEvents(ctx context.Context, tx Tx, events []EventRecord) ([]EnqueueResult, error)
}

// EventRecord is an event as it is stored.
type EventRecord struct {
	ID uuid.UUID
	// Sequence is the position in the order of enqueuing, assigned by the
	// database; ignored by InsertEvents.
	Sequence        int64
	Tenant          string
	Type            string
	ResourceID      string
	ResourceVersion int64
	IdempotencyKey  string // not returned by reads
	ContentType     string // empty means application/json
	Payload         []byte
	// PayloadRef is set where the payload is kept in a [PayloadStore], and Payload is then
	// empty: what it must be, as this package writes and reads it. A store keeps it as it
	// is, and returns it wherever it returns an event with its payload.
	PayloadRef []byte
	// TraceParent is the context of the trace that the event was enqueued in, as the
	// header of that name in W3C Trace Context has it: at most 55 characters, empty for
	// none. Claim returns it; other reads need not.
	TraceParent string
	// CreatedAt zero means the database's present time.
	CreatedAt time.Time
}

// FanOutStore turns events of the outbox into deliveries.
type FanOutStore interface {
	// FanOut takes the oldest entries of the outbox that no other transaction
	// holds, asks p.Matcher for the endpoints of each, writes the deliveries,
	// created and due at p.Now, and removes the entries; all in one transaction. An event
	// with more endpoints than fit keeps its entry, with the last endpoint
	// written, behind all the others. An event without any endpoint is
	// recorded as unmatched.
	//
	// A delivery to an endpoint whose ShedUntil, as SaveHealth stored it, is after
	// p.Now is written as finished at once: as StateShed, with [ReasonShed], created
	// and finished at p.Now. It counts against p.MaxDeliveries like any other.
	//
	// Before it matches, FanOut compares the endpoint revision that the
	// transaction sees with p.Matcher.Revision(), and applies the endpoints
	// changed since to the matcher when they differ: so an endpoint whose
	// creation committed before the event did always gets its delivery.
	//
	// FanOut is not called again with the same matcher until it has returned.
	FanOut(ctx context.Context, p FanOutParams) (FanOutResult, error)
}

// FanOutParams says how much a [FanOutStore] does in one transaction.
type FanOutParams struct {
	Now           time.Time
	MaxEvents     int // outbox entries taken; at least 1
	MaxDeliveries int // delivery rows written; at least 1
	Matcher       Matcher
}

// FanOutResult tells what one fan-out transaction did.
type FanOutResult struct {
	// Events counts the outbox entries looked at, Finished those removed, and
	// Unmatched those of the removed ones that had no endpoint.
	Events, Finished, Unmatched int
	// Deliveries counts the rows written, those recorded as shed included.
	Deliveries int
	// Shed counts, per endpoint, the deliveries that were recorded as shed.
	Shed map[uuid.UUID]int
	// Endpoints are the distinct endpoints that got a delivery which was not shed.
	Endpoints []uuid.UUID
	// OldestCreatedAt is the creation time of the oldest event taken; zero when
	// there was none. Its age is the fan-out lag.
	OldestCreatedAt time.Time
	// More is true when the outbox probably holds further entries.
	More bool
}

// Matcher finds the endpoints that an event goes to. The dispatcher implements
// it; a [FanOutStore] calls it from one goroutine at a time.
type Matcher interface {
	// Revision is the endpoint revision that the matcher reflects; -1 before
	// the first Apply.
	Revision() int64
	// Apply brings the matcher up to revision. The endpoints are all that
	// changed after Revision(), deleted ones included.
	Apply(endpoints []EndpointRecord, revision int64) error
	// Ordering returns that of an endpoint that Match returned.
	Ordering(endpoint uuid.UUID) Ordering
	// WantsPayload reports whether Match looks at payloads. When it does not,
	// Match may be called with events whose Payload is nil.
	WantsPayload() bool
	// Match appends to dst, in ascending order of id, up to max endpoints of
	// the event whose id is greater than after, and reports whether there are
	// more.
	Match(dst []uuid.UUID, event *EventRecord, after uuid.UUID, max int) (ids []uuid.UUID, more bool)
}

// Lane separates an endpoint's due deliveries by what they are, so that each
// kind can be given its own share of the endpoint's slots.
type Lane int

// The lanes of an endpoint.
const (
	LaneFirst   Lane = iota // not yet attempted
	LaneRetry               // attempted and failed
	LaneReplay              // runs after the first
	LaneWaiting             // not yet their turn; see OrderStore. Never claimed
)

// DeliveryStore leases due deliveries and records what became of them.
type DeliveryStore interface {
	// Ready lists endpoints that have unfinished deliveries not under a valid
	// lease, with the earliest time at which each lane is due, in ascending
	// order of endpoint id after p.After. It is for reconciliation, not for
	// every tick.
	Ready(ctx context.Context, p ReadyParams) ([]ReadyLane, error)

	// Claim leases due deliveries of the given endpoints in one round trip.
	// A delivery is claimable when NextAttemptAt <= p.Now, no lease on it is
	// valid at p.Now, and its endpoint is active. Claims of different
	// dispatchers never return the same delivery, and never wait for one
	// another. An expired lease is taken over like any due delivery.
	Claim(ctx context.Context, p ClaimParams) ([]Claimed, error)

	// Renew prolongs leases to p.LeaseUntil and returns the ids of those that
	// are no longer held by their token.
	Renew(ctx context.Context, p RenewParams) (lost []uuid.UUID, err error)

	// Record applies results in one transaction: it finishes deliveries,
	// schedules their next attempt or hands them back, and logs the attempts.
	// A result whose lease token no longer holds the delivery changes no
	// delivery; its attempt is logged as late. Record may be repeated with the
	// same results after an error: an attempt that is logged already is not
	// logged again. Text that came from a receiver (Reason, Error, Location) may
	// hold any bytes and be long; a store that cannot keep it whole changes it,
	// as it must not fail for it. Excerpts are kept byte for byte.
	Record(ctx context.Context, p RecordParams) (RecordResult, error)

	// CancelDeliveries finishes up to p.Limit unfinished deliveries of an
	// endpoint that is disabled or deleted as cancelled, except those under a
	// valid lease, and returns how many it finished.
	CancelDeliveries(ctx context.Context, p CancelDeliveriesParams) (int, error)
}

// BacklogStore tells how much waits for an endpoint.
type BacklogStore interface {
	// CountBacklog counts deliveries that have not been attempted, LaneFirst, leased
	// or not. It stops counting at the limits that it is given, so that it costs no
	// more than those, however much waits. There is one result for each request, in
	// the same order.
	CountBacklog(ctx context.Context, requests []BacklogRequest) ([]Backlog, error)
}

// BacklogRequest says how far to count the deliveries that wait for an endpoint.
type BacklogRequest struct {
	EndpointID uuid.UUID
	// Limit is up to how many are counted.
	Limit int
	// Since and SinceLimit ask likewise for those of them that became due after
	// Since. A zero Since asks for none.
	Since      time.Time
	SinceLimit int
}

// Backlog is what waits for an endpoint, as far as it was to be counted.
type Backlog struct {
	Total int
	Since int
}

// ReadyParams pages through [DeliveryStore.Ready].
type ReadyParams struct {
	Now   time.Time
	After uuid.UUID // zero starts at the beginning
	Limit int       // endpoints per call
}

// ReadyLane is an endpoint's lane with unfinished deliveries.
type ReadyLane struct {
	EndpointID uuid.UUID
	Lane       Lane
	// DueAt is the earliest NextAttemptAt in the lane; it may lie in the future.
	DueAt time.Time
}

// ClaimParams asks for due deliveries.
type ClaimParams struct {
	Now        time.Time
	LeaseUntil time.Time
	// Token fences everything that the claim returns: later calls about these
	// deliveries must present it.
	Token    uuid.UUID
	Requests []ClaimRequest
}

// ClaimRequest asks for deliveries of one lane of one endpoint. An endpoint may
// have several requests in one claim, but at most one per lane and direction.
type ClaimRequest struct {
	EndpointID uuid.UUID
	Lane       Lane
	Limit      int
	// Newest takes the deliveries that became due last instead of those that
	// have been due longest.
	Newest bool
	// Since, unless zero, narrows the request to deliveries that became due at or
	// after it. What lies before need not even be looked at: for the oldest, that is
	// where a database keeps what has been finished and not been cleared away.
	Since time.Time
}

// Claimed is a delivery under a lease, with the event that it carries.
type Claimed struct {
	DeliveryID uuid.UUID
	EndpointID uuid.UUID
	Event      EventRecord
	Run        int
	Lane       Lane
	Newest     bool // which direction of the lane's request brought it
	// Attempts counts the attempts recorded before this lease.
	Attempts int
	// CreatedAt is when the delivery's run began: the retry window counts from it.
	CreatedAt time.Time
	// DueAt is the NextAttemptAt that made it claimable.
	DueAt time.Time
	// TakenOver is true when an earlier lease had expired without a result.
	TakenOver bool
	// Order is the delivery's ordering key; nil for one that is not ordered.
	Order *OrderKey
	// OrderingSkipped is true when the delivery got its turn while an earlier one of
	// its key was unfinished.
	OrderingSkipped bool
	// EndpointRevision is the endpoint's revision at the time of the claim: a
	// dispatcher that knows an older one reads the endpoint again before it sends.
	EndpointRevision int64
}

// Lease identifies one leased delivery. Its token holds the delivery until that
// is claimed anew, recorded, handed back or cancelled. That the time has run out
// does not end the hold by itself: a result that comes before anyone else has
// taken over still counts.
type Lease struct {
	DeliveryID uuid.UUID
	Token      uuid.UUID
}

// RenewParams prolongs leases.
type RenewParams struct {
	Now        time.Time
	LeaseUntil time.Time
	Leases     []Lease
}

// RecordParams carries results to be recorded.
type RecordParams struct {
	Now     time.Time
	Results []Result
}

// Result is what became of one leased delivery.
type Result struct {
	Lease
	// State is StateDelivered, StateDead, StateCancelled or StateShed to finish
	// the delivery, and StatePending to make it due again at NextAttemptAt in
	// Lane.
	State         DeliveryState
	NextAttemptAt time.Time
	Lane          Lane
	Reason        string
	// Attempt is nil when the delivery is handed back and there is nothing to tell:
	// no attempt is counted.
	Attempt *Attempt
	// Uncounted makes Attempt one that is logged and is the delivery's latest, but
	// does not count: the delivery's Attempts stays as it is, and so the next
	// attempt has the same number. Without an Attempt it means nothing.
	Uncounted bool
	// Order is what Claim returned. Without it an ordered delivery that ends leaves its
	// key's turn to ReleaseOrdered.
	Order *OrderKey
}

// RecordResult tells which results came too late, and what they set free.
type RecordResult struct {
	// Lost are the deliveries whose lease the result no longer held.
	Lost []uuid.UUID
	// Released are the lanes of the deliveries whose turn it is now; see OrderStore.
	Released []ReadyLane
}

// CancelDeliveriesParams withdraws an endpoint's unfinished deliveries.
type CancelDeliveriesParams struct {
	Now        time.Time
	EndpointID uuid.UUID
	Reason     string
	Limit      int
}

// ActionStore changes single deliveries because a person asked for it.
type ActionStore interface {
	// CancelDelivery finishes an unfinished delivery as cancelled. One under a
	// lease is cancelled too: the lease no longer holds it, and its result comes
	// late. It reports false, and changes nothing, when no unfinished delivery
	// within p.Scope has the id.
	CancelDelivery(ctx context.Context, p CancelDeliveryParams) (cancelled bool, err error)

	// HastenDelivery makes an unfinished delivery that is not under a lease valid
	// at p.Now due at p.Now; one that was due before stays as it is. Its lane and
	// its attempts stay. It reports false, and changes nothing, when no such
	// delivery within p.Scope has the id.
	HastenDelivery(ctx context.Context, p HastenDeliveryParams) (hastened bool, err error)

	// LogTest writes a delivery that was never pending, with its one attempt: what
	// came of a test. The delivery is finished, its Run is TestRun, and its event is
	// not stored. An id that exists gives an error.
	LogTest(ctx context.Context, p LogTestParams) error

	// StartRun begins another run of an event to an endpoint: a delivery in
	// LaneReplay, or LaneWaiting where it is ordered, created and due at p.Now, whose run is one more than that of the
	// latest, and at least 1. While a run of the two is unfinished it begins none
	// and returns that one, and false; however many calls come at once, one run is
	// begun. Earlier runs stay as they are.
	//
	// It gives ErrNotFound for an endpoint that is unknown, deleted or outside of
	// p.Scope, and for an event that is unknown or another tenant's than the
	// endpoint; ErrEndpointDisabled for a disabled endpoint; and ErrEventGone for
	// an event that has a delivery to the endpoint but is itself no longer stored.
	StartRun(ctx context.Context, p StartRunParams) (deliveryID uuid.UUID, started bool, err error)
}

// CancelDeliveryParams says which delivery is withdrawn, and why.
type CancelDeliveryParams struct {
	Now        time.Time
	Scope      Scope
	DeliveryID uuid.UUID
	Reason     string
}

// TestRun is the Run of a delivery that [Endpoints.SendTest] made.
const TestRun = -1

// LogTestParams is what came of a test.
type LogTestParams struct {
	Delivery Delivery
	Attempt  Attempt
}

// HastenDeliveryParams says which delivery is wanted now.
type HastenDeliveryParams struct {
	Now        time.Time
	Scope      Scope
	DeliveryID uuid.UUID
}

// StartRunParams says what is sent again, and to whom.
type StartRunParams struct {
	Now        time.Time
	Scope      Scope
	EventID    uuid.UUID
	EndpointID uuid.UUID
}

// EndpointStore keeps endpoints. Every write gives the endpoint a new revision
// from one counter, in commit order, so that "all that changed since revision
// r" has an exact answer.
type EndpointStore interface {
	// CreateEndpoint writes a new endpoint and returns it as stored. An id that
	// exists gives ErrConflict.
	CreateEndpoint(ctx context.Context, e EndpointRecord) (EndpointRecord, error)

	// UpdateEndpoint replaces the endpoint e.ID of tenant e.Tenant if its
	// revision is still e.Revision, and returns it with its new revision.
	// A different revision gives ErrConflict; an unknown, foreign or deleted
	// endpoint gives ErrNotFound. DeletedAt set deletes it; its id is never
	// used again.
	UpdateEndpoint(ctx context.Context, e EndpointRecord) (EndpointRecord, error)

	// GetEndpoint returns an endpoint that is not deleted, or ErrNotFound.
	GetEndpoint(ctx context.Context, scope Scope, id uuid.UUID) (EndpointRecord, error)

	// ListEndpoints returns endpoints that are not deleted, in ascending order
	// of id after p.After.
	ListEndpoints(ctx context.Context, p ListEndpointsParams) ([]EndpointRecord, error)

	// ChangedEndpoints returns the present revision and, in ascending order of
	// revision, up to limit endpoints whose revision is greater than since,
	// deleted ones included. When nothing changed it costs one read of one row.
	ChangedEndpoints(ctx context.Context, since int64, limit int) (endpoints []EndpointRecord, revision int64, err error)
}

// EndpointRecord is an endpoint as it is stored. Options, Secrets and Headers
// are written and read by this package alone: a store keeps them as they are.
type EndpointRecord struct {
	ID     uuid.UUID
	Tenant string
	URL    string
	// Types are the patterns of the event types subscribed to.
	Types []string
	// State is active, paused or disabled. Only active endpoints are claimed for;
	// active and paused ones get deliveries from fan-out, and so do disabled
	// ones, whose deliveries are then cancelled, visibly.
	State          EndpointState
	StateReason    string
	StateChangedAt time.Time
	// Revision is assigned by the store.
	Revision  int64
	CreatedAt time.Time
	UpdatedAt time.Time
	// Ordering is that of deliveries to be made.
	Ordering Ordering
	// DeletedAt is zero unless the endpoint is deleted.
	DeletedAt time.Time
	// Options is a JSON document.
	Options []byte
	// Secrets is a JSON document; the secrets in it are sealed.
	Secrets []byte
	// Headers are the custom headers and TLS settings, sealed; nil when there are
	// none.
	Headers []byte
}

// ListEndpointsParams pages through endpoints. The zero Scope is the tenant with the
// empty name.
type ListEndpointsParams struct {
	Scope Scope
	After uuid.UUID // zero starts at the beginning
	// Limit is how many endpoints to list at most. To a store 0 or less means none;
	// [Endpoints.List] has a default.
	Limit int
}

// LogStore reads what happened.
type LogStore interface {
	// GetEvent returns an event with its payload, or ErrNotFound.
	GetEvent(ctx context.Context, scope Scope, id uuid.UUID) (EventStatus, error)

	// GetDelivery returns a delivery, finished or not, or ErrNotFound.
	GetDelivery(ctx context.Context, scope Scope, id uuid.UUID) (Delivery, error)

	// ListDeliveries returns deliveries, finished or not, newest first by id. Where
	// it would have to look at many that the filters leave out, it returns what it
	// has found by then, even nothing, and how far it came.
	ListDeliveries(ctx context.Context, p ListDeliveriesParams) (DeliveryListing, error)

	// ListEvents returns events without their payloads. One tenant's are in the order
	// of their sequences; those of all tenants in that of their ids. It returns less
	// than it could under the same circumstances as ListDeliveries.
	ListEvents(ctx context.Context, p ListEventsParams) (EventListing, error)

	// ListAttempts returns a delivery's attempts in the order of their numbers, and
	// those of one number in the order of their starts.
	ListAttempts(ctx context.Context, scope Scope, deliveryID uuid.UUID) ([]Attempt, error)
}

// EventStatus is an event and how far it has come.
type EventStatus struct {
	EventRecord
	// FannedOut is false while the event waits in the outbox.
	FannedOut bool
	// Unmatched is true when the event had no endpoint to go to.
	Unmatched bool
	// PayloadFault says why Payload is empty that should not be; set by [Events.Get], and
	// not by a store.
	PayloadFault PayloadFault
}

// ListDeliveriesParams filters and pages through deliveries. Zero fields do not
// filter, but for Scope, whose zero value is the tenant with the empty name, and
// Limit.
type ListDeliveriesParams struct {
	Scope      Scope
	EventID    uuid.UUID
	EndpointID uuid.UUID
	State      DeliveryState
	// EventType is a type, not a pattern.
	EventType string
	// ResourceID is that of the event. A delivery whose event is no longer stored
	// matches none.
	ResourceID string
	// Status is of the latest attempt.
	Status StatusClass
	// From and Until are times of Delivery.CreatedAt; Until is not among them.
	From, Until time.Time
	Before      uuid.UUID // zero starts with the newest
	// Limit is how many deliveries to list at most; 0 or less means none.
	Limit int
}

// DeliveryListing is a part of the deliveries that match.
type DeliveryListing struct {
	Deliveries []Delivery
	// Next, when there may be more, is what Before is to be for the next part: every
	// match that is not before it has been listed. It is zero after the last one.
	Next uuid.UUID
}

// ListEventsParams filters and pages through events. Zero fields do not filter, but
// for Scope and Limit, as in [ListDeliveriesParams].
type ListEventsParams struct {
	Scope      Scope
	Type       string // not a pattern
	ResourceID string
	// Unmatched asks for events that had no endpoint to go to.
	Unmatched bool
	// From and Until are times of EventRecord.CreatedAt; Until is not among them.
	From, Until time.Time
	// OldestFirst turns the order around. The list then ends, for now, before the first
	// event, match or not, that was not created before SettledAt, unless that is zero.
	OldestFirst bool
	SettledAt   time.Time
	// After is the Next of the part before; zero starts at the beginning of the order.
	After EventPosition
	// Limit is how many events to list at most; 0 or less means none.
	Limit int
}

// EventPosition is a place in the order of events.
type EventPosition struct {
	Sequence int64
	ID       uuid.UUID
}

// EventListing is a part of the events that match.
type EventListing struct {
	Events []EventStatus
	// Next is where the next part begins, and after the last one what comes later,
	// oldest first. More is false after the last one.
	Next EventPosition
	More bool
}

// EraseStore removes a tenant for good.
type EraseStore interface {
	// EraseTenant removes up to p.Limit rows of what is stored of a tenant, in one
	// transaction, and what hangs on them: deliveries, finished or not, with their
	// attempts, events with their payloads and keys, replay jobs, what is known about
	// endpoints, and at last what the deleted endpoints themselves hold but for their
	// ids, which are never used again. It is called until it reports Done, after all of
	// the tenant's endpoints have been deleted; those that have not are left alone.
	// Deliveries under a lease that is valid at p.Now are left for a later call.
	EraseTenant(ctx context.Context, p EraseTenantParams) (EraseProgress, error)
}

// EraseTenantParams says who is erased.
type EraseTenantParams struct {
	Now    time.Time
	Tenant string
	// Counters removes the tenant's counters as well.
	Counters bool
	Limit    int // at least 1
}

// EraseProgress tells what one call erased.
type EraseProgress struct {
	// Removed counts deliveries, events and endpoints.
	Removed int
	// Done is true when nothing of the tenant is left.
	Done bool
}

// CounterStore tells what was done for whom: per endpoint and day, for ever.
type CounterStore interface {
	// ListCounters returns the counters of endpoints on days, in the order of days
	// and on one day of endpoint ids. A day begins and ends in UTC. It is complete
	// when it has been over for a few hours and maintained since; before, it may be
	// missing or partial.
	ListCounters(ctx context.Context, p ListCountersParams) ([]DayCounters, error)
}

// DayCounters are what happened to an endpoint's deliveries on one day.
type DayCounters struct {
	Day        time.Time // midnight in UTC
	EndpointID uuid.UUID
	Tenant     string

	// Attempts counts what the log shows as attempts begun on the day, late and
	// uncounted ones included, and Retries those of them that were not the first
	// of their delivery by number.
	Attempts, Retries int64

	// Delivered, Dead, Cancelled and Shed count the deliveries that ended so on
	// the day.
	Delivered, Dead, Cancelled, Shed int64

	// LogBytes is the size of what the attempts left in the log: excerpts, errors
	// and locations.
	LogBytes int64
}

// ListCountersParams filters and pages through counters. Zero fields do not filter.
type ListCountersParams struct {
	Scope      Scope
	EndpointID uuid.UUID
	// From and Until are days; that of Until is not among them.
	From, Until time.Time
	// AfterDay and AfterEndpoint are those of the last counters of the page before.
	AfterDay      time.Time
	AfterEndpoint uuid.UUID
	Limit         int
}

// SystemStore is what the library needs of the database itself.
type SystemStore interface {
	// Now returns the database's present time.
	Now(ctx context.Context) (time.Time, error)

	// CheckSchema returns ErrSchemaOutdated when migrations are missing and
	// ErrSchemaNewer when the database is newer than this code.
	CheckSchema(ctx context.Context) error

	// Maintain does the upkeep that is due: it counts the days that are over,
	// removes what has been kept for long enough, makes partitions ahead of time.
	// It may take long, in small transactions that get in nobody's way; it ends
	// early with ctx, and the next call goes on where it ended. Calling it often,
	// and from several processes, is harmless.
	Maintain(ctx context.Context, p MaintainParams) error

	// TakeDuty makes p.Holder the one that does the duty until p.Until, unless
	// somebody else has it at p.Now, and reports whether p.Holder has it. Whoever
	// has it may prolong it, and gives it back with an Until that is not after Now.
	TakeDuty(ctx context.Context, p DutyParams) (held bool, err error)
}

// MaintainParams says what has been kept for long enough. A zero time keeps for
// ever. A store may keep things for up to a day longer, where it removes whole days.
type MaintainParams struct {
	Now time.Time

	// DeliveriesBefore removes deliveries that were delivered before it, and
	// DeadBefore those that ended in another way, each with its attempts; but none
	// that is not in the counters yet.
	DeliveriesBefore, DeadBefore time.Time

	// EventsBefore removes events that were created before it, with what belongs
	// to them alone, such as their idempotency keys; but no event that waits in the
	// outbox or has an unfinished delivery. It removes replay jobs that ended before it.
	EventsBefore time.Time

	// ActivityBefore removes what dispatchers did in times that began before it, and
	// NoticesBefore notices that were created before it.
	ActivityBefore, NoticesBefore time.Time

	// DeletedBefore removes the vitals of endpoints that were deleted before it.
	DeletedBefore time.Time
}

// DutyParams names something that one process at a time does for all.
type DutyParams struct {
	Name   string
	Holder uuid.UUID
	Now    time.Time
	Until  time.Time
}

// Signal is what one process tells the others: one of the words below, for some
// of them followed by a list of endpoints. To a store it is opaque text of at most
// 7,000 ASCII characters.
type Signal string

// The signals.
const (
	SignalEvents    Signal = "events"    // events were enqueued
	SignalEndpoints Signal = "endpoints" // endpoints changed
	SignalReady     Signal = "ready"     // the listed endpoints have due deliveries
	SignalOpened    Signal = "opened"    // the circuits of the listed endpoints opened
	SignalHosts     Signal = "hosts"     // hosts were split, or are no longer
)

// Notifier is an optional part of a [Store]: it lets processes wake one another.
// Nothing depends on a signal arriving, since everything is polled for as well.
type Notifier interface {
	// Notify tells all listeners. It is called outside of any transaction of
	// the host, at most every few milliseconds.
	Notify(ctx context.Context, s Signal) error

	// Listen calls ready once it hears signals, then handle for each, until ctx
	// ends (nil) or it can no longer hear any (an error). The caller calls it
	// again.
	Listen(ctx context.Context, ready func(), handle func(Signal)) error
}

// ClusterStore is an optional part of a [Store]: through it the dispatchers on
// one database share the endpoints out among themselves, so that caps, rates and
// circuits hold for all of them together. Without it every dispatcher sends to
// every endpoint, and they hold per dispatcher. Nothing else depends on it: that
// no delivery is lost or claimed twice rests on leases alone.
type ClusterStore interface {
	// Heartbeat records that p.Dispatcher is alive at p.Now and serves what
	// p.Serves says, forgets those not heard of since p.DeadBefore, and returns all
	// that are alive, p.Dispatcher included, in ascending order of id.
	Heartbeat(ctx context.Context, p HeartbeatParams) ([]Member, error)

	// Leave forgets a dispatcher, so that others take over at once.
	Leave(ctx context.Context, dispatcher uuid.UUID) error

	// SaveHealth stores what is known about endpoints, each unless something
	// with a later UpdatedAt is stored already. An endpoint occurs once in a call.
	// A ShedUntil takes effect in the fan-outs that begin after it.
	SaveHealth(ctx context.Context, health []HealthRecord) error

	// LoadHealth returns what is stored about p.Endpoints and how many of their
	// deliveries are under a lease that is valid at p.Now; one entry for each
	// endpoint, in any order, with a zero UpdatedAt where nothing is stored.
	LoadHealth(ctx context.Context, p LoadHealthParams) ([]HealthRecord, error)

	// ListOpened returns the endpoints whose OpenUntil, as SaveHealth stored it, is
	// after now, in any order. Without a [Notifier] it is asked at every poll.
	ListOpened(ctx context.Context, now time.Time) ([]uuid.UUID, error)

	// TakeProbes takes the right to send the one request that tests an endpoint
	// with an open circuit, for each of p.Endpoints, until p.Until, unless
	// somebody else holds it at p.Now. It returns the endpoints for which
	// somebody does, and until when. It works whether or not anything was saved
	// about the endpoint; SaveHealth gives the right back.
	TakeProbes(ctx context.Context, p TakeProbesParams) (held map[uuid.UUID]time.Time, err error)
}

// HeartbeatParams says who is alive.
type HeartbeatParams struct {
	Now        time.Time
	DeadBefore time.Time
	Dispatcher uuid.UUID
	// Serves is text that is written and read by this package alone.
	Serves string
}

// Member is a dispatcher that is alive.
type Member struct {
	ID     uuid.UUID
	Serves string // as in its last heartbeat
}

// HealthRecord is what one dispatcher leaves to the next one that takes an
// endpoint over.
type HealthRecord struct {
	EndpointID uuid.UUID
	UpdatedAt  time.Time
	// State is a JSON document, written and read by this package alone.
	State []byte
	// OpenUntil is until when the endpoint's circuit is open; zero when it is not.
	OpenUntil time.Time
	// ShedUntil is until when new deliveries to the endpoint are recorded as shed;
	// zero: they are not. Fan-out goes by it.
	ShedUntil time.Time
	// Leased counts the endpoint's deliveries under valid leases. It is read, not
	// saved, and may stop counting at 1,000.
	Leased int
}

// LoadHealthParams says about which endpoints.
type LoadHealthParams struct {
	Now       time.Time
	Endpoints []uuid.UUID
}

// TakeProbesParams asks for the right to probe.
type TakeProbesParams struct {
	Now       time.Time
	Until     time.Time
	Endpoints []uuid.UUID
}

// SplitStore is an optional part of a [ClusterStore]: it keeps which hosts' endpoints
// are shared out one by one instead of going to one dispatcher together. Without it no
// host is split.
type SplitStore interface {
	// SaveSplit stores a split, unless what is stored about the host has a later
	// NotBefore, or the same NotBefore and a later Until.
	SaveSplit(ctx context.Context, s HostSplit) error

	// ListSplits returns the splits whose Until or NotBefore is after now, in
	// ascending order of hosts, and may remove the others.
	ListSplits(ctx context.Context, now time.Time) ([]HostSplit, error)
}

// HostSplit says that a host's endpoints are shared out one by one.
type HostSplit struct {
	Host string // scheme, host and port
	// Until is when the split ends, unless it is saved again; zero: there is none.
	Until time.Time
	// NotBefore is until when the host is not to be split, because it failed; with an
	// Until it is when the split was saved.
	NotBefore time.Time
}

// Scope limits what a read or a change may touch: one tenant, or everything.
// The zero Scope is the tenant with the empty name, which exists only under
// [Config.SingleTenant].
type Scope struct {
	tenant string
	all    bool
}

// TenantScope limits to one tenant.
func TenantScope(tenant string) Scope { return Scope{tenant: tenant} }

// AllTenants is the operators' scope: no limit.
func AllTenants() Scope { return Scope{all: true} }

// Tenant returns the tenant that the scope is limited to; ok is false when the
// scope is not limited.
func (s Scope) Tenant() (tenant string, ok bool) { return s.tenant, !s.all }

// Includes reports whether the scope covers the tenant.
func (s Scope) Includes(tenant string) bool { return s.all || s.tenant == tenant }
