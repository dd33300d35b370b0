package webhook

import "time"

// Clock tells the time and makes timers. A nil Clock in [Config] means the
// database's time: the machine's clock, corrected by the measured difference to
// the database's, so that processes with wrong clocks agree. Tests give one that
// they control, such as webhooktest.Clock.
//
// A Clock is safe for concurrent use.
type Clock interface {
	// Now returns the present time.
	Now() time.Time

	// NewTimer returns a channel on which the time is sent once, when d has
	// passed. Calling stop releases the timer early; it may be called more than
	// once.
	NewTimer(d time.Duration) (c <-chan time.Time, stop func())
}
