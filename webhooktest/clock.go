package webhooktest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/outhook/webhook"
)

// Clock is a clock that moves only when told to. Give it to a host's Config as
// its Clock, and its Now to [Store.SetNow], and a test decides what time it is.
//
// A Clock is safe for concurrent use. Make it with [NewClock].
type Clock struct {
	mu      sync.Mutex // protects everything below
	now     time.Time
	timers  []*timer      // in ascending order of due
	changed chan struct{} // closed and replaced when timers are added
}

var _ webhook.Clock = (*Clock)(nil)

type timer struct {
	due time.Time
	c   chan time.Time // holds one, so that firing never waits
}

// NewClock returns a clock that stands at start.
func NewClock(start time.Time) *Clock {
	return &Clock{now: start, changed: make(chan struct{})}
}

// Now returns the time at which the clock stands.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// NewTimer returns a channel on which the clock's time is sent once, when it has
// been moved by d; at once if d is not positive. Calling stop releases the timer;
// it may be called more than once.
func (c *Clock) NewTimer(d time.Duration) (<-chan time.Time, func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &timer{due: c.now.Add(d), c: make(chan time.Time, 1)}
	if d <= 0 {
		t.c <- c.now
		return t.c, func() {}
	}
	at, _ := slices.BinarySearchFunc(c.timers, t, func(have, t *timer) int {
		if have.due.After(t.due) {
			return 1
		}
		return -1 // behind those due at the same time
	})
	c.timers = slices.Insert(c.timers, at, t)
	close(c.changed)
	c.changed = make(chan struct{})
	return t.c, func() { c.stop(t) }
}

// After is NewTimer for a timer that need not be stopped.
func (c *Clock) After(d time.Duration) <-chan time.Time {
	fired, _ := c.NewTimer(d)
	return fired
}

func (c *Clock) stop(t *timer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timers = slices.DeleteFunc(c.timers, func(have *timer) bool { return have == t })
}

// Advance moves the clock by d and fires the timers that are due by then, in the
// order of their times. A negative d sets the clock back and fires nothing.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moveTo(c.now.Add(d))
}

// Set moves the clock to t, forward or back, as Advance does.
func (c *Clock) Set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moveTo(t)
}

func (c *Clock) moveTo(t time.Time) {
	c.now = t
	for len(c.timers) > 0 && !c.timers[0].due.After(t) {
		c.timers[0].c <- c.timers[0].due
		c.timers = c.timers[1:]
	}
}

// Next returns the time of the timer that is due first; ok is false when there
// is none.
func (c *Clock) Next() (due time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.timers) == 0 {
		return time.Time{}, false
	}
	return c.timers[0].due, true
}

// WaitForTimers returns when at least n timers wait for the clock, so that a
// test can move it knowing that the program has come to rest. It returns the
// context's error if that ends first.
func (c *Clock) WaitForTimers(ctx context.Context, n int) error {
	for {
		c.mu.Lock()
		waiting, changed := len(c.timers), c.changed
		c.mu.Unlock()
		if waiting >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
