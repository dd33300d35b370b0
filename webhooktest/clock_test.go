package webhooktest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/webhooktest"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestAClockMovesOnlyWhenToldTo(t *testing.T) {
	t.Parallel()
	clock := webhooktest.NewClock(start)
	assert.Equal(t, start, clock.Now())

	clock.Advance(time.Minute)
	assert.Equal(t, start.Add(time.Minute), clock.Now())

	clock.Set(start.Add(-time.Hour))
	assert.Equal(t, start.Add(-time.Hour), clock.Now())
}

func TestATimerFiresOnceWhenItsTimeHasCome(t *testing.T) {
	t.Parallel()
	clock := webhooktest.NewClock(start)
	fired, _ := clock.NewTimer(time.Minute)

	clock.Advance(time.Minute - 1)
	assert.Empty(t, fired)

	clock.Advance(1)
	assert.Equal(t, start.Add(time.Minute), <-fired)

	clock.Advance(time.Hour)
	assert.Empty(t, fired)
}

func TestTimersFireInTheOrderOfTheirTimes(t *testing.T) {
	t.Parallel()
	clock := webhooktest.NewClock(start)
	late, early := clock.After(2*time.Minute), clock.After(time.Minute)

	due, ok := clock.Next()
	require.True(t, ok)
	assert.Equal(t, start.Add(time.Minute), due)
	clock.Advance(time.Hour)

	assert.Equal(t, start.Add(time.Minute), <-early)
	assert.Equal(t, start.Add(2*time.Minute), <-late)
	_, ok = clock.Next()
	assert.False(t, ok)
}

func TestATimerThatIsDueFiresAtOnce(t *testing.T) {
	t.Parallel()
	clock := webhooktest.NewClock(start)
	assert.Equal(t, start, <-clock.After(0))
	assert.Equal(t, start, <-clock.After(-time.Hour))
}

func TestAStoppedTimerDoesNotFire(t *testing.T) {
	t.Parallel()
	clock := webhooktest.NewClock(start)
	fired, stop := clock.NewTimer(time.Minute)
	stop()
	stop()
	clock.Advance(time.Hour)
	assert.Empty(t, fired)
}

func TestAClockSetBackKeepsItsTimers(t *testing.T) {
	t.Parallel()
	clock := webhooktest.NewClock(start)
	fired := clock.After(time.Minute)
	clock.Advance(-time.Hour)
	clock.Advance(time.Hour)
	assert.Empty(t, fired)
	clock.Advance(time.Minute)
	assert.NotEmpty(t, fired)
}

func TestATestWaitsUntilTheProgramWaitsForTheClock(t *testing.T) {
	t.Parallel()
	clock := webhooktest.NewClock(start)
	woken := make(chan time.Time, 2)
	for range 2 {
		go func() { woken <- <-clock.After(time.Minute) }()
	}

	require.NoError(t, clock.WaitForTimers(t.Context(), 2))
	clock.Advance(time.Minute)
	assert.Equal(t, start.Add(time.Minute), <-woken)
	assert.Equal(t, start.Add(time.Minute), <-woken)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, clock.WaitForTimers(ctx, 1), context.Canceled)
}
