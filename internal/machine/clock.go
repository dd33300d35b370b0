// Package machine is the machine's clock, which tests can set wrong.
package machine

import "time"

// Clock is the machine's clock. It is a webhook.Clock that the library does not
// believe: it measures its difference to the database's time, as it does where
// no Clock is given. Tests give one with an Offset to a process whose clock is to
// be wrong.
type Clock struct {
	// Offset is by how much the clock is fast; negative: slow.
	Offset time.Duration
}

// Now returns the machine's time.
func (c Clock) Now() time.Time { return time.Now().Add(c.Offset) }

// NewTimer returns a channel on which the time is sent once, when d has passed.
func (c Clock) NewTimer(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}
