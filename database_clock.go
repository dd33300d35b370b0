package webhook

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// clockInterval is how often the difference to the database's clock is measured.
const clockInterval = 30 * time.Second

// databaseClock tells the database's time by the machine's clock and the
// measured difference between the two, so that dispatchers whose clocks are
// wrong agree on what is due and whose lease is over (DESIGN.md §2). With an
// injected Clock there is no difference to measure.
type databaseClock struct {
	core   *core
	clock  Clock
	offset atomic.Int64 // nanoseconds to add to clock.Now
}

func newDatabaseClock(c *core) *databaseClock {
	clock := c.clock
	if clock == nil {
		clock = systemClock{}
	}
	return &databaseClock{core: c, clock: clock}
}

// now returns the database's time in UTC, without a monotonic reading: it is
// compared with times from the database only.
func (c *databaseClock) now() time.Time {
	return c.clock.Now().Add(time.Duration(c.offset.Load())).Round(0).UTC()
}

// measure compares the clocks. The database's answer was made between the two
// readings around it; the error is at most half of that time.
func (c *databaseClock) measure(ctx context.Context) error {
	if c.core.clock != nil {
		return nil
	}
	before := c.clock.Now()
	now, err := c.core.backend.Now(ctx)
	if err != nil {
		return fmt.Errorf("read the database's time: %w", err)
	}
	took := c.clock.Now().Sub(before)
	c.offset.Store(int64(now.Sub(before.Add(took / 2))))
	return nil
}
