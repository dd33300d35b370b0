package scheduler_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/scheduler"
)

// plan returns the only grant of a plan.
func (b *bench) plan() scheduler.Grant {
	b.t.Helper()
	grants := b.s.Plan(b.now, 1<<20, nil)
	require.Len(b.t, grants, 1)
	return grants[0]
}

func (b *bench) wake() time.Duration {
	b.t.Helper()
	at, ok := b.s.NextWake(b.now)
	require.True(b.t, ok)
	return at.Sub(b.now)
}

func TestRetriesStayWithinTheirBudget(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{})
	e := b.endpoint(1, nil)
	b.warm(e)
	b.add(e, scheduler.Retry, 100)
	assert.Equal(t, 7, b.drain(), "one per 10 s, and 20 % of themselves")
	assert.Equal(t, scheduler.WaitRetryBudget, b.state(e).Wait)
	assert.LessOrEqual(t, b.wake(), 5*time.Second)

	b.add(e, scheduler.Live, 10)
	assert.Equal(t, 10+2, b.drain(), "first attempts are not held back, and allow more retries")

	for len(b.flights[e]) > 0 {
		b.finish(e, ok200)
	}
	b.now = b.now.Add(66 * time.Second)
	assert.Equal(t, 7, b.drain(), "a minute later there is a new budget")
}

func TestAnEmptyClaimGivesItsSlotsBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{})
	e := b.endpoint(1, nil)
	b.warm(e)
	b.s.Ready(b.now, e, b.now, scheduler.Live)
	g := b.plan()
	assert.Equal(t, g.Total(), b.state(e).Reserved)
	b.s.Settle(b.now, g, scheduler.Claimed{})
	assert.Zero(t, b.state(e).Reserved)
	assert.Empty(t, b.s.Plan(b.now, 100, nil))
	assert.Equal(t, scheduler.WaitDue, b.state(e).Wait)
}

func TestReadyDuringAClaimIsNotLost(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{})
	e := b.endpoint(1, nil)
	b.s.Ready(b.now, e, b.now, scheduler.Live)
	g := b.plan()
	b.s.Ready(b.now, e, b.now, scheduler.Live)
	b.s.Settle(b.now, g, scheduler.Claimed{})
	assert.Len(t, b.s.Plan(b.now, 100, nil), 1)
}

func TestARetryIsLookedForWhenItIsDue(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{})
	e := b.endpoint(1, nil)
	b.add(e, scheduler.Live, 1)
	require.Equal(t, 1, b.drain())
	b.finish(e, scheduler.Result{Outcome: scheduler.Failure, RetryAt: b.now.Add(5 * time.Second)})
	assert.Zero(t, b.drain())
	assert.Equal(t, 5*time.Second, b.wake())
	assert.Equal(t, 5*time.Second, b.state(e).Until.Sub(b.now))
	b.now = b.now.Add(5 * time.Second)
	g := b.plan()
	assert.Equal(t, 1, min(g.Retries, 1))
	assert.Zero(t, g.Total()-g.Retries, "nothing else is due")
}

func TestReplaysHaveATenthOfTheSlots(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{})
	e := b.endpoint(1, nil)
	b.warm(e)
	b.add(e, scheduler.Replay, 100)
	assert.Equal(t, 2, b.drain(), "also when there is nothing else to do")
	b.add(e, scheduler.Live, 100)
	assert.Equal(t, 18, b.drain())
}

func TestReplaysOfAllEndpointsHaveATenthOfTheProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{GlobalMax: 100})
	var ids []scheduler.ID
	for i := range 20 {
		e := b.endpoint(i, nil)
		b.warm(e)
		b.add(e, scheduler.Replay, 100)
		ids = append(ids, e)
	}
	assert.Equal(t, 10, b.drain())
	for _, e := range ids {
		if len(b.flights[e]) > 0 {
			b.finish(e, ok200)
			break
		}
	}
	assert.Equal(t, 1, b.drain(), "a slot that comes free goes to one that waits")
}

func TestReplaysYieldToLiveDeliveriesUnderARate(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{})
	e := b.endpoint(1, func(s *scheduler.EndpointSpec) { s.Rate, s.Burst = 10, 1 })
	b.warm(e)
	b.add(e, scheduler.Live, 10_000)
	b.add(e, scheduler.Replay, 10_000)
	for range 1000 {
		b.drain()
		for len(b.flights[e]) > 0 {
			b.finish(e, ok200)
		}
		b.now = b.now.Add(100*time.Millisecond + time.Microsecond)
	}
	replayed := 10_000 - b.due[e][scheduler.Replay]
	assert.InDelta(t, 1000, b.started[e], 2)
	assert.InDelta(t, 91, replayed, 3, "one for every ten")
}

func TestABacklogIsSharedBetweenItsEnds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change         func(*scheduler.EndpointSpec)
		oldest, newest int
		bounded        bool
	}{
		"oldest first":    {nil, 4, 16, true},
		"newest first":    {func(s *scheduler.EndpointSpec) { s.NewestFirst = true }, 4, 16, false},
		"ordered":         {func(s *scheduler.EndpointSpec) { s.Ordered = true }, 20, 0, false},
		"ordered, newest": {func(s *scheduler.EndpointSpec) { s.Ordered, s.NewestFirst = true, true }, 20, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, scheduler.Config{})
			e := b.endpoint(1, tc.change)
			b.warm(e)
			b.add(e, scheduler.Live, 1000)
			b.drain()
			for len(b.flights[e]) > 0 {
				b.finish(e, ok200)
			}
			g := b.plan()
			assert.Equal(t, []int{tc.oldest, tc.newest}, []int{g.Oldest, g.Newest})
			assert.Equal(t, tc.bounded, !g.FreshSince.IsZero())
		})
	}
}

func TestOverItsRateAnEndpointWaits(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{})
	e := b.endpoint(1, func(s *scheduler.EndpointSpec) { s.Rate, s.Burst = 5, 3 })
	b.warm(e)
	b.add(e, scheduler.Live, 100)
	assert.Equal(t, 3, b.drain())
	assert.Equal(t, scheduler.WaitRateLimited, b.state(e).Wait)
	assert.InDelta(t, 0.2, b.wake().Seconds(), 0.001)
	b.now = b.now.Add(b.wake())
	assert.Equal(t, 1, b.drain())

	for range 50 {
		for len(b.flights[e]) > 0 {
			b.finish(e, ok200)
		}
		b.now = b.now.Add(200 * time.Millisecond)
		b.drain()
	}
	assert.InDelta(t, 4+50, b.started[e], 1)
}

func TestOverItsRateATenantWaits(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{SilentAfter: -1})
	b.s.SetTenant(b.now, "t", scheduler.TenantSpec{Rate: 10, Burst: 5})
	other := b.endpoint(99, func(s *scheduler.EndpointSpec) { s.Tenant = "other" })
	for i := range 20 {
		e := b.endpoint(i, nil)
		b.warm(e)
		b.add(e, scheduler.Live, 10)
	}
	b.add(other, scheduler.Live, 1)
	assert.Equal(t, 5+1, b.drain())
	started := 0
	for range 10 {
		b.now = b.now.Add(200 * time.Millisecond)
		started += b.drain()
	}
	assert.InDelta(t, 20, started, 1)
	b.s.SetTenant(b.now, "t", scheduler.TenantSpec{})
	assert.Greater(t, b.drain(), 100, "without a rate nothing waits for it")
}

func TestA429HoldsTheEndpointBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{Rand: func() float64 { return 0 }})
	e := b.endpoint(1, nil)
	b.warm(e)
	b.add(e, scheduler.Live, 4)
	b.drain()
	b.add(e, scheduler.Live, 100)
	assert.True(t, b.finish(e, scheduler.Result{Outcome: scheduler.Throttled, RetryAfter: 30 * time.Second}).Throttled)
	assert.Zero(t, b.drain())
	assert.Equal(t, scheduler.WaitRateLimited, b.state(e).Wait)
	assert.Equal(t, 30*time.Second, b.wake())

	b.finish(e, scheduler.Result{Outcome: scheduler.Throttled, RetryAfter: 24 * time.Hour})
	assert.Equal(t, time.Hour, b.wake(), "an absurd Retry-After is cut")
}

func TestA429WithoutRetryAfterBacksOff(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{Rand: func() float64 { return 0 }})
	e := b.endpoint(1, nil)
	b.add(e, scheduler.Live, 100)
	for _, want := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second} {
		b.round(1)
		b.finish(e, scheduler.Result{Outcome: scheduler.Throttled})
		b.drain()
		assert.Equal(t, want, b.wake())
		b.now = b.now.Add(want)
	}
}

func TestSlowEndpointsShareTheSlowLane(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{GlobalMax: 100})
	slow := func(e scheduler.ID) {
		b.s.Restore(b.now, e, scheduler.Snapshot{At: b.now, LastSuccess: b.now, Latency: 4 * time.Second})
	}
	var ids []scheduler.ID
	for i := range 20 {
		e := b.endpoint(i, nil)
		slow(e)
		b.add(e, scheduler.Live, 100)
		ids = append(ids, e)
	}
	assert.Equal(t, 25, b.drain(), "a quarter of the process")
	for _, e := range ids {
		assert.LessOrEqual(t, b.state(e).InFlight, 5, "a quarter of a host")
		assert.True(t, b.state(e).Slow)
	}
	assert.Equal(t, scheduler.WaitSlowLane, b.state(ids[19]).Wait)
	fast := b.endpoint(50, nil)
	b.warm(fast)
	b.add(fast, scheduler.Live, 100)
	assert.Equal(t, 20, b.drain())
}

func TestARequestThatHangsCountsAsSlowAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{GlobalMax: 100, SilentAfter: -1})
	e := b.endpoint(1, func(s *scheduler.EndpointSpec) { s.MaxInFlight, s.HostMax = 80, 80 })
	b.warm(e)
	b.add(e, scheduler.Live, 30)
	require.Equal(t, 30, b.drain())
	b.now = b.now.Add(3 * time.Second)
	b.add(e, scheduler.Live, 30)
	assert.Zero(t, b.drain(), "it hangs, and is over its part of the slow lane")
	assert.Equal(t, 30, b.s.Totals().Slow)
	assert.Equal(t, scheduler.WaitSlowLane, b.state(e).Wait)
	for range 30 {
		b.finish(e, ok200)
	}
	assert.Equal(t, 30, b.drain())
	assert.Zero(t, b.s.Totals().Slow)
}

func TestPausedEndpointsGetNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{})
	paused := func(s *scheduler.EndpointSpec) { s.Paused = true }
	e := b.endpoint(1, nil)
	b.add(e, scheduler.Live, 100)
	g := b.plan()
	b.s.Settle(b.now, g, scheduler.Claimed{Oldest: 1})
	b.endpoint(1, paused)
	f, why := b.s.Start(b.now, e, scheduler.Attempt{Number: 1})
	assert.Nil(t, f)
	assert.Equal(t, scheduler.WaitPaused, why)
	assert.Zero(t, b.drain())
	assert.Equal(t, scheduler.WaitPaused, b.state(e).Wait)
	b.endpoint(1, nil)
	assert.Equal(t, 2, b.drain(), "what waited is not forgotten")
}

func TestForeignLeasesCountAgainstTheCaps(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{})
	e := b.endpoint(1, nil)
	b.warm(e)
	b.s.SetForeign(b.now, e, 15)
	b.add(e, scheduler.Live, 100)
	assert.Equal(t, 5, b.drain())
	b.s.SetForeign(b.now, e, 0)
	assert.Equal(t, 15, b.drain())
}

func TestARemovedEndpointLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{})
	e := b.endpoint(1, nil)
	b.warm(e)
	b.add(e, scheduler.Live, 100)
	b.drain()
	b.s.RemoveEndpoint(e)
	assert.Equal(t, 20, b.s.Totals().InFlight)
	for len(b.flights[e]) > 0 {
		b.finish(e, ok200)
	}
	assert.Equal(t, scheduler.Totals{Attempts: 20, Grants: b.s.Totals().Grants}, b.s.Totals())
	_, known := b.s.State(b.now, e)
	assert.False(t, known)
}

func TestParkedEndpointsAreNotLookedAt(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{})
	for i := range 600 {
		e := b.endpoint(i, func(s *scheduler.EndpointSpec) { s.Rate, s.Burst = 0.001, 1 })
		b.warm(e)
		b.add(e, scheduler.Live, 100)
	}
	require.Equal(t, 512, b.drain())
	for e := range b.flights {
		b.finish(e, ok200)
	}
	b.drain()
	totals := b.s.Totals()
	assert.Equal(t, []int{0, 600}, []int{totals.Queued, totals.Parked})
	assert.InDelta(t, 1000, b.wake().Seconds(), 1, "nothing happens until then")
}

func TestTestSendsObeyTheCaps(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{})
	e := b.endpoint(1, func(s *scheduler.EndpointSpec) { s.MaxInFlight = 1 })
	f, why := b.s.StartTest(b.now, e)
	require.NotNil(t, f, why)
	_, why = b.s.StartTest(b.now, e)
	assert.Equal(t, scheduler.WaitConcurrency, why)
	assert.Zero(t, b.s.Done(b.now, e, scheduler.Result{Flight: f, Outcome: scheduler.Failure}))
	assert.Zero(t, b.s.Done(b.now, e, scheduler.Result{Flight: f, Outcome: scheduler.Failure}), "only once")
	assert.Zero(t, b.s.Totals().InFlight)
}

// overloaded is an endpoint that has deliveries waiting and gets more every minute.
// It takes twenty a minute, the oldest first.
type overloaded struct {
	*bench
	id      scheduler.ID
	arrived []arrivals
	waiting int
}

type arrivals struct {
	at time.Time
	n  int
}

func (o *overloaded) arrive(n int) {
	o.arrived = append(o.arrived, arrivals{o.now, n})
	o.waiting += n
	o.add(o.id, scheduler.Live, n)
}

// minute lets one pass and returns whether the endpoint is to be shed, and whether
// that was asked.
func (o *overloaded) minute(n int, outage bool) (shed, asked bool) {
	o.arrive(n)
	if !outage {
		o.warm(o.id)
	}
	o.waiting -= o.drain()
	for len(o.flights[o.id]) > 0 {
		o.finish(o.id, scheduler.Result{})
	}
	for _, q := range o.s.Backlogs(o.now, nil) {
		c := scheduler.BacklogCount{Total: min(q.Limit, int64(o.waiting))}
		for _, a := range o.arrived {
			if !q.Since.IsZero() && a.at.After(q.Since) {
				c.Since = min(q.SinceLimit, c.Since+int64(a.n))
			}
		}
		shed, asked = o.s.ShouldShed(o.now, q.Endpoint, c), true
	}
	o.now = o.now.Add(time.Minute)
	return shed, asked
}

func TestSheddingNeedsABacklogThatGrowsWhileTheEndpointAnswers(t *testing.T) {
	t.Parallel()
	const threshold = 200
	for name, tc := range map[string]struct {
		change    func(*scheduler.EndpointSpec)
		begin     int // waiting at first
		perMinute int
		outage    bool
		off       scheduler.Mechanisms
		want      bool
	}{
		"grows":                {begin: 1000, perMinute: 21, want: true},
		"grows a lot":          {begin: 1000, perMinute: 500, want: true},
		"shrinks":              {begin: 1000, perMinute: 19},
		"stays":                {begin: 1000, perMinute: 20},
		"is below the limit":   {begin: 150, perMinute: 22},
		"in an outage":         {begin: 1000, perMinute: 30, outage: true},
		"ordered":              {change: func(s *scheduler.EndpointSpec) { s.Ordered = true }, begin: 1000, perMinute: 30},
		"off for the endpoint": {change: func(s *scheduler.EndpointSpec) { s.ShedBacklog = -1 }, begin: 1000, perMinute: 30},
		"more by the plan":     {change: func(s *scheduler.EndpointSpec) { s.ShedBacklog = 5000 }, begin: 1000, perMinute: 30},
		"less by the plan":     {change: func(s *scheduler.EndpointSpec) { s.ShedBacklog = 100 }, begin: 110, perMinute: 30, want: true},
		"switched off":         {begin: 1000, perMinute: 30, off: scheduler.Shedding},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, scheduler.Config{ColdAfter: -1, ShedBacklog: threshold, Off: tc.off})
			o := &overloaded{bench: b, id: b.endpoint(1, tc.change)}
			o.arrive(tc.begin)
			shed := false
			for m := range 15 {
				shed, _ = o.minute(tc.perMinute, tc.outage)
				assert.False(t, shed && m < 10, "growth is not known yet")
			}
			assert.Equal(t, tc.want, shed)
			assert.Equal(t, tc.want, o.s.Shedding(o.id))
		})
	}
}

func TestSheddingGoesOnDownToTheThreshold(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{ColdAfter: -1, ShedBacklog: 200})
	o := &overloaded{bench: b, id: b.endpoint(1, nil)}
	o.arrive(250)
	for range 15 {
		o.minute(22, false)
	}
	require.True(t, o.s.Shedding(o.id))
	for o.waiting > 220 {
		shed, asked := o.minute(0, false)
		require.True(t, shed && asked, "%d wait", o.waiting)
	}
	o.minute(0, false)
	o.minute(0, false)
	assert.False(t, o.s.Shedding(o.id))
}

func TestSheddingIsInheritedAndEndsInAnOutage(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{ColdAfter: -1, ShedBacklog: 200})
	o := &overloaded{bench: b, id: b.endpoint(1, nil)}
	o.arrive(1000)
	for range 15 {
		o.minute(30, false)
	}
	snap, ok := o.s.Snapshot(o.now, o.id)
	require.True(t, ok)

	next := newBench(t, scheduler.Config{ColdAfter: -1, ShedBacklog: 200})
	next.now = o.now
	n := &overloaded{bench: next, id: next.endpoint(1, nil)}
	next.s.Restore(next.now, n.id, snap)
	assert.True(t, next.s.Shedding(n.id))
	n.arrive(1000)
	n.minute(0, true)
	assert.True(t, next.s.Shedding(n.id), "the last success was a minute ago")
	n.minute(0, true)
	n.minute(0, true)
	assert.False(t, next.s.Shedding(n.id), "there was none for a while")
}

func TestOnlyBacklogsOfEndpointsWhoseClaimsStayFullAreCounted(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{ColdAfter: -1})
	o := &overloaded{bench: b, id: b.endpoint(1, nil)}
	for range 5 {
		_, asked := o.minute(3, false)
		assert.False(t, asked, "it sends what it gets")
	}
	o.arrive(200)
	_, asked := o.minute(0, false)
	assert.False(t, asked, "it has got a lot just now")
	_, asked = o.minute(0, false)
	assert.True(t, asked)
	for o.waiting > 0 {
		o.minute(0, false)
	}
	_, asked = o.minute(1, false)
	assert.False(t, asked, "it has caught up")
}

func TestClaimsGrowAsLongAsTheyAreFilled(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{})
	e := b.endpoint(1, nil)
	b.warm(e)
	b.s.Ready(b.now, e, b.now, scheduler.Live)
	for _, want := range []int{4, 8, 8} { // 20 in all
		g := b.plan()
		assert.Equal(t, want, g.Total())
		b.s.Settle(b.now, g, scheduler.Claimed{Oldest: g.Oldest, Newest: g.Newest})
	}
}

func TestAnEndpointThatMovesLeavesItsSlotsToTheOldHost(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{})
	shared := func(s *scheduler.EndpointSpec) { s.Host, s.HostMax = "https://shared:443", 3 }
	moving, waiting := b.endpoint(1, shared), b.endpoint(2, shared)
	b.s.SetForeign(b.now, moving, 3)
	b.add(waiting, scheduler.Live, 10)
	require.Zero(t, b.drain())
	b.endpoint(1, func(s *scheduler.EndpointSpec) { s.Host = "https://elsewhere:443" })
	assert.Equal(t, 2, b.drain())
}

func TestAnOfferedLaneSlotThatIsNotTakenIsOfferedOn(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{GlobalMax: 4}) // one slot in the slow lane
	first, second := b.endpoint(1, nil), b.endpoint(2, nil)
	for _, e := range []scheduler.ID{first, second} {
		b.s.Restore(b.now, e, scheduler.Snapshot{At: b.now, LastSuccess: b.now, Latency: 4 * time.Second})
		b.add(e, scheduler.Live, 10)
	}
	b.endpoint(1, func(s *scheduler.EndpointSpec) { s.Paused = true })
	assert.Equal(t, 1, b.drain())
	assert.Equal(t, 1, b.started[second])
}
