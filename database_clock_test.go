package webhook

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/machine"
)

// timeServer is a database that tells nothing but the time.
type timeServer struct {
	Backend

	asked int
	slow  time.Duration // from reading its clock to answering
	set   time.Duration // by how much its clock was set
}

func (s *timeServer) Now(context.Context) (time.Time, error) {
	s.asked++
	now := time.Now().Add(s.set).Round(0).UTC()
	time.Sleep(s.slow)
	return now, nil
}

func TestTheDatabasesTimeRulesOverAWrongClock(t *testing.T) {
	t.Parallel()
	for _, offset := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			_, injected := machineClock(machine.Clock{Offset: offset})
			require.Nil(t, injected, "a machine's clock is not taken for the truth")
			c := newDatabaseClock(&core{backend: &timeServer{}, machine: machine.Clock{Offset: offset}})
			require.NoError(t, c.measure(t.Context()))
			time.Sleep(20 * time.Second)
			assert.Equal(t, time.Now().Round(0).UTC(), c.now())
		})
	}
}

// settableClock is a machine's clock that somebody sets while it runs.
type settableClock struct {
	machine.Clock

	set time.Duration
}

func (c *settableClock) Now() time.Time { return time.Now().Add(c.set) }

func TestAClockThatIsSetMeanwhileChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		database, clock := &timeServer{}, &settableClock{}
		c := newDatabaseClock(&core{backend: database})
		c.clock = clock
		require.NoError(t, c.measure(t.Context()))
		time.Sleep(time.Second)
		require.NoError(t, c.settle(t.Context()))
		assert.Equal(t, 1, database.asked, "a clock that runs is believed")

		clock.set = 10 * time.Minute
		assert.Equal(t, time.Now().Round(0).UTC(), c.now())
		require.NoError(t, c.settle(t.Context()))
		assert.Equal(t, 2, database.asked)
		assert.Equal(t, time.Now().Round(0).UTC(), c.now())
	})
}

func TestAMachineThatSleptAsksForTheTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		database := &timeServer{}
		c := newDatabaseClock(&core{backend: database})
		awake := c.running
		require.NoError(t, c.measure(t.Context()))

		time.Sleep(time.Hour)
		c.running = func() time.Duration { return awake() - time.Hour }
		require.NoError(t, c.settle(t.Context()))

		assert.Equal(t, 2, database.asked)
		assert.Equal(t, time.Now().Round(0).UTC(), c.now())
	})
}

func TestASlowAnswerDoesNotMoveAClockThatIsRight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		database := &timeServer{}
		c := newDatabaseClock(&core{backend: database})
		off := func() time.Duration { return time.Until(c.now()) }
		database.slow = 100 * time.Millisecond
		require.NoError(t, c.measure(t.Context()))
		assert.Equal(t, -50*time.Millisecond, off(), "half of the time that it took")
		database.slow = 2 * time.Millisecond
		require.NoError(t, c.measure(t.Context()))
		assert.Equal(t, -time.Millisecond, off(), "a better reading")

		database.slow = 100 * time.Millisecond
		require.NoError(t, c.measure(t.Context()))
		assert.Equal(t, -time.Millisecond, off(), "a worse one changes nothing")

		database.set = 300 * time.Millisecond
		require.NoError(t, c.measure(t.Context()))
		assert.Equal(t, 250*time.Millisecond, off(), "but the database is right, whatever it says")

		time.Sleep(time.Hour)
		database.slow = 20 * time.Millisecond
		require.NoError(t, c.measure(t.Context()))
		assert.Equal(t, 290*time.Millisecond, off(), "and a reading grows old")
	})
}
