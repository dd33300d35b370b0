package webhook

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/outhook/webhook/internal/machine"
)

const (
	// clockInterval is how often the database's clock is read.
	clockInterval = 30 * time.Second

	// clockTolerance is by how much the machine's two clocks, the one that is set
	// and the one that only runs, may part between two readings.
	clockTolerance = time.Second

	// clockDrift is the part of a time that passes by which a machine's clock may be
	// wrong about it: quartz is off by a tenth of that.
	clockDrift = 1.0 / 5000
)

// databaseClock tells the database's time: what that was when it was last read,
// and what has passed since. So dispatchers whose clocks are wrong, or are set
// while they run, agree on what is due and whose lease is over (docs/design.md §2).
// With an injected Clock there is nothing to read.
type databaseClock struct {
	core    *core
	clock   Clock
	running func() time.Duration         // the machine's monotonic clock
	last    atomic.Pointer[clockReading] // nil with an injected Clock, and at first
}

// clockReading is one moment on all clocks.
type clockReading struct {
	database time.Time
	running  time.Duration
	shown    time.Time     // by the clock that can be set
	within   time.Duration // of the truth
}

func newDatabaseClock(c *core) *databaseClock {
	clock := c.clock
	if clock == nil {
		clock = c.machine
	}
	began := time.Now()
	return &databaseClock{core: c, clock: clock, running: func() time.Duration { return time.Since(began) }}
}

// now returns the database's time in UTC, without a monotonic reading: it is
// compared with times from the database only.
func (c *databaseClock) now() time.Time {
	last := c.last.Load()
	if last == nil {
		return c.clock.Now().Round(0).UTC()
	}
	return last.database.Add(c.running() - last.running)
}

// measure reads the database's clock. The answer was made between the two
// moments around it; the error is at most half of the time between.
func (c *databaseClock) measure(ctx context.Context) error {
	if c.core.clock != nil {
		return nil
	}
	before := c.running()
	now, err := c.core.backend.Now(ctx)
	if err != nil {
		return fmt.Errorf("read the database's time: %w", err)
	}
	after := c.running()
	reading := &clockReading{
		database: now.UTC().Add((after - before) / 2),
		running:  after,
		shown:    c.clock.Now().Round(0),
		within:   (after - before) / 2,
	}
	if !c.knowsBetter(reading) {
		c.last.Store(reading)
	}
	return nil
}

// knowsBetter reports whether the last reading still tells the time better than a new
// one, whose answer was slow: a clock that leaps about makes what has just become due
// not due again.
func (c *databaseClock) knowsBetter(reading *clockReading) bool {
	last := c.last.Load()
	if last == nil || !c.settled() {
		return false
	}
	passed := reading.running - last.running
	within := last.within + time.Duration(float64(passed)*clockDrift)
	apart := last.database.Add(passed).Sub(reading.database).Abs()
	return within < reading.within && apart <= within+reading.within
}

// settle measures again unless now can be relied on.
func (c *databaseClock) settle(ctx context.Context) error {
	if c.settled() {
		return nil
	}
	return c.measure(ctx)
}

// settled is false when now cannot be relied on: the machine slept, which its
// monotonic clock does not count, or somebody set its clock.
func (c *databaseClock) settled() bool {
	last := c.last.Load()
	if last == nil {
		return true
	}
	shown := c.clock.Now().Round(0).Sub(last.shown)
	return (shown - (c.running() - last.running)).Abs() <= clockTolerance
}

// machineClock returns the clock of the machine, and the one that is injected in
// its place, or nil.
func machineClock(configured Clock) (machine.Clock, Clock) {
	if wrong, ok := configured.(machine.Clock); ok {
		return wrong, nil
	}
	return machine.Clock{}, configured
}
