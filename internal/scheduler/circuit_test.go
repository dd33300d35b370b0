package scheduler_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/scheduler"
)

// scripted is a circuit in the test's hand.
type scripted struct {
	view   scheduler.CircuitView
	change scheduler.CircuitChange
	lease  time.Time
	got    []scheduler.CircuitAttempt
	snap   scheduler.CircuitSnapshot
}

func (c *scripted) View(now time.Time) scheduler.CircuitView {
	v := c.view
	if v.State != scheduler.Closed && c.lease.After(v.ProbeAt) {
		v.ProbeAt = c.lease
	}
	return v
}

func (c *scripted) LeaseProbe(until time.Time) { c.lease = until }

func (c *scripted) Record(_ time.Time, a scheduler.CircuitAttempt) scheduler.CircuitChange {
	c.got = append(c.got, a)
	return c.change
}

func (c *scripted) Snapshot(time.Time) scheduler.CircuitSnapshot        { return c.snap }
func (c *scripted) Restore(_ time.Time, snap scheduler.CircuitSnapshot) { c.snap = snap }

// circuitBench has one endpoint whose circuit has seen one success.
func circuitBench(t *testing.T) (*bench, scheduler.ID, *scripted) {
	t.Helper()
	c := new(scripted)
	b := newBench(t, scheduler.Config{NewCircuit: func(scheduler.EndpointSpec) scheduler.Circuit { return c }})
	e := b.endpoint(1, nil)
	b.add(e, scheduler.Live, 1)
	b.drain()
	b.finish(e, ok200)
	require.Len(t, c.got, 1)
	return b, e, c
}

func TestAnOpenCircuitHoldsEverythingUntilItsProbe(t *testing.T) {
	t.Parallel()
	b, e, c := circuitBench(t)
	c.view = scheduler.CircuitView{State: scheduler.Open, ProbeAt: b.now.Add(30 * time.Second)}
	b.add(e, scheduler.Live, 100)
	b.add(e, scheduler.Retry, 100)
	assert.Zero(t, b.drain())
	assert.Equal(t, scheduler.WaitCircuitOpen, b.state(e).Wait)
	assert.Equal(t, 30*time.Second, b.wake())

	b.now = b.now.Add(30 * time.Second)
	c.view.State = scheduler.HalfOpen
	g := b.plan()
	assert.Equal(t, scheduler.Grant{Endpoint: e, Oldest: 1, Retries: 1, Probe: true}, g)
	assert.Empty(t, b.s.Plan(b.now, 100, nil))
	b.s.Settle(b.now, g, scheduler.Claimed{Oldest: 1, Retries: 1})
	f, _ := b.s.Start(b.now, e, scheduler.Attempt{Lane: scheduler.Retry, Number: 2, Probe: true})
	require.NotNil(t, f)
	assert.Empty(t, b.s.Plan(b.now, 100, nil), "one probe and no more")

	c.view = scheduler.CircuitView{}
	c.change = scheduler.CircuitChange{Changed: true, Closed: true}
	change := b.s.Done(b.now, e, scheduler.Result{Flight: f, Outcome: scheduler.Success})
	assert.True(t, change.Closed && change.Circuit)
	assert.True(t, c.got[1].Probe)
	assert.Positive(t, b.drain())
}

func TestALostProbeIsLeasedAgain(t *testing.T) {
	t.Parallel()
	b, e, c := circuitBench(t)
	c.view = scheduler.CircuitView{State: scheduler.HalfOpen}
	b.add(e, scheduler.Live, 100)
	require.Equal(t, 1, b.round(100))
	assert.Zero(t, b.drain())
	assert.Equal(t, 90*time.Second, b.wake())
	b.now = b.now.Add(90 * time.Second)
	assert.Equal(t, 1, b.drain(), "its result never came")

	b.finish(e, ok200)
	assert.False(t, c.got[1].Probe, "the lost one no longer decides")
	b.finish(e, ok200)
	assert.True(t, c.got[2].Probe)
}

func TestAProbeThatAnotherProcessHoldsIsWaitedFor(t *testing.T) {
	t.Parallel()
	b, e, c := circuitBench(t)
	c.view = scheduler.CircuitView{State: scheduler.HalfOpen}
	b.add(e, scheduler.Live, 100)
	b.s.Settle(b.now, b.plan(), scheduler.Claimed{ProbeHeld: b.now.Add(time.Minute)})
	assert.Empty(t, b.s.Plan(b.now, 100, nil))
	assert.Equal(t, time.Minute, b.wake())
	b.now = b.now.Add(time.Minute)
	assert.True(t, b.plan().Probe)
}

func TestAProbeThatFindsNothingIsGivenBack(t *testing.T) {
	t.Parallel()
	b, e, c := circuitBench(t)
	c.view = scheduler.CircuitView{State: scheduler.HalfOpen}
	b.s.Ready(b.now, e, b.now, scheduler.Live)
	b.s.Ready(b.now, e, b.now, scheduler.Retry)
	g := b.plan()
	assert.Equal(t, 1, g.Retries)
	b.s.Settle(b.now, g, scheduler.Claimed{})
	g = b.plan()
	assert.Equal(t, scheduler.Grant{Endpoint: e, Oldest: 1, Probe: true}, g)
	b.s.Settle(b.now, g, scheduler.Claimed{Oldest: 1})
	b.s.Release(b.now, e, scheduler.Attempt{Number: 1, Probe: true})
	assert.True(t, b.plan().Probe)
}

func TestWhatWasClaimedBeforeTheOpeningIsNotSent(t *testing.T) {
	t.Parallel()
	b, e, c := circuitBench(t)
	b.add(e, scheduler.Live, 10)
	g := b.plan()
	b.s.Settle(b.now, g, scheduler.Claimed{Oldest: g.Oldest})
	c.view = scheduler.CircuitView{State: scheduler.Open, ProbeAt: b.now.Add(time.Minute)}
	for range g.Oldest {
		f, why := b.s.Start(b.now, e, scheduler.Attempt{Number: 1})
		assert.Nil(t, f)
		assert.Equal(t, scheduler.WaitCircuitOpen, why)
	}
	assert.Zero(t, b.state(e).Reserved)
	c.view = scheduler.CircuitView{}
	b.now = b.now.Add(time.Minute)
	assert.Equal(t, 10, b.drain(), "it is due again")
}

func TestSlowStartLimitsSlotsAndRate(t *testing.T) {
	t.Parallel()
	b, e, c := circuitBench(t)
	b.endpoint(1, func(s *scheduler.EndpointSpec) { s.Rate, s.Burst = 100, 100 })
	c.view = scheduler.CircuitView{MaxInFlight: 4, RateFactor: 0.2}
	c.change.Changed = true
	b.add(e, scheduler.Live, 1)
	b.drain()
	b.finish(e, ok200)
	b.add(e, scheduler.Live, 100)
	assert.Equal(t, 4, b.drain())
	st := b.state(e)
	assert.Equal(t, 4, st.Limit)
	assert.InDelta(t, 20, st.Rate, 1e-9)
}

func TestOpeningsAreTakenOverFromOthersAndClosingsAreNot(t *testing.T) {
	t.Parallel()
	b, e, c := circuitBench(t)
	until := b.now.Add(time.Minute)
	b.s.Told(b.now, e, scheduler.CircuitSnapshot{State: scheduler.Open, OpenUntil: until})
	assert.Equal(t, until, c.snap.OpenUntil)

	b.s.Told(b.now, e, scheduler.CircuitSnapshot{State: scheduler.Closed})
	assert.Equal(t, until, c.snap.OpenUntil, "a closing")
	b.s.Told(b.now, e, scheduler.CircuitSnapshot{State: scheduler.Open, OpenUntil: until.Add(-time.Second)})
	assert.Equal(t, until, c.snap.OpenUntil, "an earlier end")
}

func TestAnEndpointIsHandedOver(t *testing.T) {
	t.Parallel()
	newCircuit := func(scheduler.EndpointSpec) scheduler.Circuit { return new(scripted) }
	limited := func(s *scheduler.EndpointSpec) { s.Rate, s.Burst = 1, 10 }
	a := newBench(t, scheduler.Config{NewCircuit: newCircuit})
	e := a.endpoint(1, limited)
	a.warm(e)
	a.add(e, scheduler.Retry, 100)
	require.Equal(t, 7, a.drain())
	a.finish(e, scheduler.Result{Outcome: scheduler.Success, Latency: 4 * time.Second})
	snap, known := a.s.Snapshot(a.now, e)
	require.True(t, known)
	assert.Equal(t, 7, snap.Retries)
	assert.InDelta(t, 3, snap.Tokens, 0.001)
	snap.Circuit = scheduler.CircuitSnapshot{Trips: 3}

	b := newBench(t, scheduler.Config{NewCircuit: newCircuit})
	b.endpoint(1, limited)
	b.s.Restore(b.now.Add(time.Second), e, snap)
	b.now = b.now.Add(time.Second)
	b.add(e, scheduler.Retry, 100)
	assert.Zero(t, b.drain(), "the retry budget is inherited")
	b.add(e, scheduler.Live, 100)
	assert.Equal(t, 4, b.drain(), "so is the level of the rate, and what came in since")
	st := b.state(e)
	assert.Equal(t, 3, st.Circuit.Trips)
	assert.Equal(t, 4*time.Second, st.Latency)
	assert.True(t, st.Slow)
}
