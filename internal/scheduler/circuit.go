package scheduler

import "time"

// CircuitState is the state of a circuit.
type CircuitState uint8

// The states.
const (
	// Closed: deliveries flow.
	Closed CircuitState = iota
	// Open: nothing flows until the open time has passed.
	Open
	// HalfOpen: the open time has passed and one probe decides.
	HalfOpen
)

// String returns the contract's word.
func (s CircuitState) String() string {
	switch s {
	case Closed:
		return "closed"
	case Open:
		return "open"
	case HalfOpen:
		return "half_open"
	default:
		return "unknown"
	}
}

// Circuit is the circuit breaker of one endpoint. The scheduler owns the slots
// and asks the circuit what it allows; like the scheduler, a circuit has one
// owner and does no locking.
type Circuit interface {
	// View tells what the circuit allows now.
	View(now time.Time) CircuitView
	// LeaseProbe marks the probe as taken until then; the zero time gives it
	// back. A probe whose lease has passed may be taken again.
	LeaseProbe(until time.Time)
	// Record takes the result of an attempt. Results of attempts that are not
	// the probe change nothing while the circuit is not closed.
	Record(now time.Time, a CircuitAttempt) CircuitChange
	// Snapshot returns what must survive a restart and a hand-over.
	Snapshot(now time.Time) CircuitSnapshot
	// Restore takes over a stored state.
	Restore(now time.Time, snap CircuitSnapshot)
}

// CircuitView is what a circuit allows at a moment.
type CircuitView struct {
	// MaxInFlight limits the requests in flight in slow start. Zero: no limit.
	MaxInFlight int
	// ProbeAt is when the next probe may go, while the circuit is not closed:
	// the end of the open time, or of the lease of a probe that is out.
	ProbeAt time.Time
	// Quiet tells that a new circuit would behave the same, so that this one
	// may be dropped while the endpoint is idle.
	Quiet bool
	// RateFactor scales the endpoint's rate limit in slow start. Zero: no
	// scaling.
	RateFactor float64
	// State is the state now.
	State CircuitState
}

// CircuitAttempt is a result as the circuit sees it.
type CircuitAttempt struct {
	// Cap is the endpoint's present cap, at which slow start ends.
	Cap int
	// Latency is how long the attempt took.
	Latency time.Duration
	// Outcome is what the result says about the endpoint.
	Outcome Outcome
	// Probe marks the result of the probe that holds the lease.
	Probe bool
	// Timeout is the endpoint's present timeout.
	Timeout time.Duration
}

// CircuitChange is what a result changed.
type CircuitChange struct {
	// Changed is set when the snapshot changed in a way worth storing.
	Changed bool
	// Closed, Flapped and Opened are as in [Change].
	Closed, Flapped, Opened bool
}

// CircuitSnapshot is the stored state of a circuit.
type CircuitSnapshot struct {
	// ClosedAt is when the circuit last closed. Zero: never opened.
	ClosedAt time.Time `json:"closed_at,omitzero"`
	// Failures is the number of failures in a row.
	Failures int `json:"failures,omitzero"`
	// Flaps counts how often the circuit opened again shortly after closing.
	Flaps int `json:"flaps,omitzero"`
	// OpenedAt is when the present open period began. Zero while closed.
	OpenedAt time.Time `json:"opened_at,omitzero"`
	// OpenUntil is when the probe may go. Zero while closed.
	OpenUntil time.Time `json:"open_until,omitzero"`
	// ProbeUntil is the lease of a probe that is out. Zero: none.
	ProbeUntil time.Time `json:"probe_until,omitzero"`
	// State is the state at the time of the snapshot.
	State CircuitState `json:"state,omitzero"`
	// Step is the step of slow start, from 1. Zero: not in slow start.
	Step int `json:"step,omitzero"`
	// StepSince is when the step began.
	StepSince time.Time `json:"step_since,omitzero"`
	// Trips counts the openings in a row, which set the open time.
	Trips int `json:"trips,omitzero"`
}
