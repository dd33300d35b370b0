package webhook

import (
	"time"
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
}
