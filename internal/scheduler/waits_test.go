package scheduler_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/scheduler"
)

func (b *bench) waits(e scheduler.ID) [3]string {
	b.t.Helper()
	waits, ok := b.s.Waits(b.now, e)
	require.True(b.t, ok)
	return [3]string{waits[scheduler.Live].String(), waits[scheduler.Retry].String(), waits[scheduler.Replay].String()}
}

func TestOfSeveralReasonsTheFirstIsNamed(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{GlobalMax: 8, SlowShare: 0.5, RetryFloor: time.Minute})
	e := b.endpoint(1, func(s *scheduler.EndpointSpec) { s.MaxInFlight = 4 })
	b.warm(e)
	assert.Equal(t, [3]string{"none", "none", "none"}, b.waits(e), "it would get a slot at once")

	b.add(e, scheduler.Replay, 2)
	require.Equal(t, 1, b.drain())
	assert.Equal(t, [3]string{"none", "none", "concurrency"}, b.waits(e), "the replays' one slot is taken")

	b.add(e, scheduler.Retry, 2)
	require.Equal(t, 1, b.drain())
	assert.Equal(t, [3]string{"none", "retry_budget", "concurrency"}, b.waits(e))

	b.add(e, scheduler.Live, 3)
	require.Equal(t, 2, b.drain())
	assert.Equal(t, [3]string{"concurrency", "retry_budget", "concurrency"}, b.waits(e), "all four slots are")

	b.now = b.now.Add(4 * time.Second)
	b.s.Advance(b.now)
	assert.Equal(t, [3]string{"slow_lane", "retry_budget", "slow_lane"}, b.waits(e), "all hang, and fill the slow lane")

	b.finish(e, scheduler.Result{Outcome: scheduler.Throttled, RetryAfter: time.Minute})
	assert.Equal(t, [3]string{"rate_limited", "rate_limited", "rate_limited"}, b.waits(e))

	b.s.RemoveEndpoint(e)
	_, known := b.s.Waits(b.now, e)
	assert.False(t, known)
}

func TestAFullProcessIsAReasonForThoseThatQueue(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{GlobalMax: 3})
	busy, other := b.endpoint(1, nil), b.endpoint(2, nil)
	b.warm(busy, other)
	b.add(busy, scheduler.Live, 9)
	for b.round(1) > 0 {
	}
	require.Len(t, b.flights[busy], 3)
	b.add(other, scheduler.Live, 1)
	assert.Equal(t, [3]string{"concurrency", "concurrency", "concurrency"}, b.waits(other))
	b.finish(busy, ok200)
	assert.Equal(t, [3]string{"none", "none", "none"}, b.waits(other))
}
