package webhook

import (
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Observer is told what a [Dispatcher] does. Methods are called from many
// goroutines and should return soon; a panic in one is logged and does no harm.
//
// This interface does not grow: whatever else there will be to tell comes as further
// interfaces, and an Observer that implements one of them is told.
type Observer interface {
	// AttemptDone is called after each attempt, before its result is in the
	// database.
	AttemptDone(AttemptReport)
}

// AttemptReport tells of one attempt and what follows from it.
type AttemptReport struct {
	Attempt
	EventType string
	Run       int
	// State is what becomes of the delivery: pending when it will be retried.
	State DeliveryState
	// Reason says why a delivery is dead.
	Reason string
	// NextAttemptAt is when a pending delivery is due again.
	NextAttemptAt time.Time
	// Uncounted is true of an attempt that failed through no fault of the endpoint
	// and uses up none of the delivery's attempts: see [ErrorClass].
	Uncounted bool
	// WasHealthy is true when none of the endpoint's latest 20 attempts before this one
	// had failed, as far as was known a few seconds before.
	WasHealthy bool
	// Circuit is where the endpoint's circuit stood when the attempt began: half open
	// for a probe, else closed.
	Circuit CircuitState
	// EnqueuedAt is when the event was enqueued, and DueAt when the attempt was due.
	EnqueuedAt, DueAt time.Time
	// TakenOver is true when an earlier lease on the delivery had run out without a
	// result.
	TakenOver bool
}

// DispatchObserver is an [Observer] that is also told of the work around the attempts:
// what metrics are made of. Its methods must not block: some are called by the one
// goroutine that decides what is sent.
type DispatchObserver interface {
	// FanOutDone is called after each transaction that fanned events out.
	FanOutDone(FanOutReport)
	// ClaimDone is called after each claim.
	ClaimDone(ClaimReport)
	// CircuitChanged is called when a circuit opens or closes, by the dispatcher whose
	// endpoint it is.
	CircuitChanged(CircuitReport)
	// ReplayAdvanced is called after each step of a replay job that this dispatcher did.
	ReplayAdvanced(ReplayReport)
	// StateSampled is called every [DispatcherConfig.PollInterval].
	StateSampled(DispatcherSample)
}

// EndingObserver is an [Observer] that is also told of deliveries that ended as dead
// without an attempt of this dispatcher, which AttemptDone would tell of: their window
// passed while they waited, or nobody knows what became of them. Of the dispatchers on one
// database, one is told of each.
type EndingObserver interface {
	DeliveriesDied(DeathReport)
}

// DeathReport tells of deliveries of one endpoint that ended as dead.
type DeathReport struct {
	EndedDeliveries
	// Reason is that of each [Delivery].
	Reason string
}

// FanOutReport tells of one transaction that fanned events out.
type FanOutReport struct {
	// Took is how long it took.
	Took time.Duration
	// Lag is the age of the oldest event in it; zero when there was none.
	Lag time.Duration
	// Events counts those looked at, Unmatched those that had no endpoint to go to, and
	// Deliveries the rows written.
	Events, Unmatched, Deliveries int
	// Failed is true when the database did not take it.
	Failed bool
}

// ClaimReport tells of one claim.
type ClaimReport struct {
	// Took is how long it took.
	Took time.Duration
	// Lag is for how long the delivery that waited longest had been due; zero when
	// nothing was claimed. Deliveries that a circuit, a limit or a pause held back
	// count, so it says more of a single endpoint than of the dispatcher.
	Lag time.Duration
	// Claimed counts deliveries, and TakenOver those of them whose earlier lease had
	// run out without a result: another dispatcher crashed, or stood still.
	Claimed, TakenOver int
	// Failed is true when the database did not answer.
	Failed bool
}

// CircuitReport tells that a circuit opened or closed.
type CircuitReport struct {
	EndpointID uuid.UUID
	Tenant     string
	// State is open or closed.
	State CircuitState
	// Until is when an open circuit lets a probe through.
	Until time.Time
	// Flapped is true when it opened again shortly after it had closed.
	Flapped bool
}

// ReplayReport tells how far a replay job has come.
type ReplayReport struct {
	JobID      uuid.UUID
	EndpointID uuid.UUID
	Tenant     string
	State      ReplayJobState
	// Matched, Handled and Created are those of [ReplayJob], and Begun is how many runs
	// this step began.
	Matched, Handled, Created, Begun int
}

// DispatcherSample is how a dispatcher is at a moment.
type DispatcherSample struct {
	DispatcherGauges

	// Listening is true while signals of other processes are heard. Where the store has
	// none, or nobody else to signal, it is false, and everything is found by polling.
	Listening bool
	// Notifies is true when the store can signal at all.
	Notifies bool
	// Members counts the dispatchers that share the database, this one included.
	Members int
	// OldestReadyHealthy and OldestReadyOthers are for how long the oldest due delivery
	// of this dispatcher's active endpoints has been due, by whether none of the
	// endpoint's latest 20 attempts failed; zero when nothing is due. An open circuit
	// does not stop it.
	OldestReadyHealthy, OldestReadyOthers time.Duration
}

// observe calls the observer, which may panic.
func (r *run) observe(tell func()) { r.core.guard("observer", tell) }

// guard calls a part that the host gave, which may panic.
func (c *core) guard(part string, call func()) {
	defer func() {
		if v := recover(); v != nil {
			c.log.Error("webhook: panic in the "+part, "panic", fmt.Sprintf("%T", v))
		}
	}()
	call()
}

// dispatching returns the observer's wider part; nil when it has none.
func (r *run) dispatching() DispatchObserver {
	o, _ := r.cfg.Observer.(DispatchObserver)
	return o
}
