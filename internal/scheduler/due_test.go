package scheduler_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/scheduler"
)

// arrive makes n first attempts due and tells of exactly so many.
func (b *bench) arrive(e scheduler.ID, n int) {
	b.due[e][scheduler.Live] += n
	b.s.Arrived(b.now, e, n)
}

func (b *bench) onlyGrant() scheduler.Grant {
	b.t.Helper()
	grants := b.s.Plan(b.now, 1<<20, nil)
	require.Len(b.t, grants, 1)
	return grants[0]
}

func TestAClaimAsksForWhatArrivedAndNoMore(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 5, 19, 20, 25} {
		b := newBench(t, scheduler.Config{})
		e := b.endpoint(1, nil)
		b.warm(e)
		b.arrive(e, n)
		assert.Equal(t, min(n, 20), b.onlyGrant().Total())
	}
}

func TestManyEndpointsWithOneArrivalEachShareAllSlotsInOnePlan(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{GlobalMax: 100})
	for i := range 150 {
		e := b.endpoint(i, nil)
		b.warm(e)
		b.arrive(e, 1)
	}
	assert.Len(t, b.s.Plan(b.now, 1<<20, nil), 100, "a slot each, and none that a claim could not fill")
}

func TestWhatArrivesDuringAClaimIsClaimedNext(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{})
	e := b.endpoint(1, nil)
	b.warm(e)
	b.arrive(e, 2)
	g := b.onlyGrant()
	require.Equal(t, 2, g.Total())
	b.s.Arrived(b.now, e, 3)
	b.s.Settle(b.now, g, scheduler.Claimed{Oldest: 1}) // a hand was quicker with one of them
	assert.Equal(t, 3, b.onlyGrant().Total())
}

func TestAnUnknownNumberIsLookedForUntilTheEndIsFound(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{})
	e := b.endpoint(1, nil)
	b.warm(e)
	b.arrive(e, 1)
	b.s.Ready(b.now, e, b.now, scheduler.Live) // by reconciliation
	g := b.onlyGrant()
	require.Equal(t, 4, g.Total(), "there may be more than what arrived")
	b.s.Settle(b.now, g, scheduler.Claimed{Oldest: 4})
	g = b.onlyGrant()
	require.Equal(t, 8, g.Total())
	b.s.Settle(b.now, g, scheduler.Claimed{Newest: 5})
	assert.Empty(t, b.s.Plan(b.now, 1<<20, nil), "a claim that is not filled has found the end")

	b.arrive(e, 1)
	assert.Equal(t, 1, b.onlyGrant().Total())
}

func TestOnlyWhatMustNotWaitIsUrgent(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{})
	first, retry, slow := b.endpoint(1, nil), b.endpoint(2, nil), b.endpoint(3, nil)
	b.warm(first, retry)
	b.s.Restore(b.now, slow, scheduler.Snapshot{At: b.now, LastSuccess: b.now, Latency: 5 * time.Second})
	b.s.Ready(b.now, retry, b.now, scheduler.Retry)
	b.arrive(slow, 1)
	require.Equal(t, 2, b.s.Totals().Queued)
	assert.Zero(t, b.s.Totals().Urgent)

	b.arrive(first, 1)
	assert.Equal(t, 1, b.s.Totals().Urgent)
	b.arrive(retry, 1)
	assert.Equal(t, 2, b.s.Totals().Urgent, "it has a first attempt now")
	b.s.Plan(b.now, 1<<20, nil)
	assert.Zero(t, b.s.Totals().Urgent)
}

func TestAnEndpointThatFailsIsNotUrgent(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{})
	e := b.endpoint(1, nil)
	b.warm(e)
	for _, o := range []scheduler.Outcome{scheduler.Failure, scheduler.Success} {
		b.arrive(e, 1)
		g := b.onlyGrant()
		b.s.Settle(b.now, g, scheduler.Claimed{Oldest: 1})
		f, _ := b.s.Start(b.now, e, scheduler.Attempt{Number: 1})
		require.NotNil(t, f)
		b.s.Done(b.now, e, scheduler.Result{Flight: f, Outcome: o})
		b.arrive(e, 1)
		require.Equal(t, 1, b.s.Totals().Queued)
		assert.Equal(t, o == scheduler.Success, b.s.Totals().Urgent == 1)
		b.s.Settle(b.now, b.onlyGrant(), scheduler.Claimed{})
	}
}
