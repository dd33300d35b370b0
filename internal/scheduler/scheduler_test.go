package scheduler_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/scheduler"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func id(n int) scheduler.ID {
	var x scheduler.ID
	binary.BigEndian.PutUint64(x[8:], uint64(n))
	return x
}

// bench drives a scheduler against backlogs kept in memory, with the clock in
// the test's hand.
type bench struct {
	t       testing.TB
	s       *scheduler.Scheduler
	now     time.Time
	due     map[scheduler.ID]*[3]int // by lane
	flights map[scheduler.ID][]*scheduler.Flight
	started map[scheduler.ID]int
}

func newBench(t testing.TB, cfg scheduler.Config) *bench {
	t.Helper()
	return &bench{
		t: t, s: scheduler.New(cfg), now: t0, due: map[scheduler.ID]*[3]int{},
		flights: map[scheduler.ID][]*scheduler.Flight{}, started: map[scheduler.ID]int{},
	}
}

func (b *bench) endpoint(n int, change func(*scheduler.EndpointSpec)) scheduler.ID {
	spec := scheduler.EndpointSpec{ID: id(n), Tenant: "t", Host: "https://h" + string(rune('a'+n%26)) + string(rune('a'+n/26)) + ":443", Timeout: 10 * time.Second}
	if change != nil {
		change(&spec)
	}
	b.s.SetEndpoint(b.now, spec)
	if b.due[spec.ID] == nil {
		b.due[spec.ID] = new([3]int)
	}
	return spec.ID
}

// warm gives the endpoint a recent success, so that it is not cold.
func (b *bench) warm(ids ...scheduler.ID) {
	for _, e := range ids {
		b.s.Restore(b.now, e, scheduler.Snapshot{At: b.now, LastSuccess: b.now, Tokens: 1e9})
	}
}

func (b *bench) add(e scheduler.ID, lane scheduler.Lane, n int) {
	b.due[e][lane] += n
	b.s.Ready(b.now, e, b.now, lane)
}

// round plans, claims, settles and starts once, and returns what was started.
func (b *bench) round(limit int) int {
	started := 0
	for _, g := range b.s.Plan(b.now, limit, nil) {
		due := b.due[g.Endpoint]
		require.LessOrEqual(b.t, g.Retries, g.Oldest)
		firsts := min(g.Oldest+g.Newest-g.Retries, due[scheduler.Live])
		retries := min(g.Retries, due[scheduler.Retry])
		replays := min(g.Replay, due[scheduler.Replay])
		due[scheduler.Live] -= firsts
		due[scheduler.Retry] -= retries
		due[scheduler.Replay] -= replays
		b.s.Settle(b.now, g, scheduler.Claimed{Oldest: firsts + retries, Retries: retries, Replay: replays})
		for lane, n := range [3]int{firsts, retries, replays} {
			for range n {
				number := 1
				if scheduler.Lane(lane) == scheduler.Retry {
					number = 2
				}
				f, why := b.s.Start(b.now, g.Endpoint, scheduler.Attempt{Lane: scheduler.Lane(lane), Number: number, Probe: g.Probe})
				require.NotNil(b.t, f, why.String())
				b.flights[g.Endpoint] = append(b.flights[g.Endpoint], f)
				b.started[g.Endpoint]++
				started++
			}
		}
	}
	return started
}

// drain plans until nothing more is granted.
func (b *bench) drain() int {
	total := 0
	for range 10_000 {
		n := b.round(1 << 20)
		total += n
		if wake, ok := b.s.NextWake(b.now); n == 0 && (!ok || wake.After(b.now)) {
			return total
		}
	}
	b.t.Fatal("planning does not come to an end")
	return 0
}

// finish ends the oldest request of the endpoint.
func (b *bench) finish(e scheduler.ID, r scheduler.Result) scheduler.Change {
	require.NotEmpty(b.t, b.flights[e])
	r.Flight = b.flights[e][0]
	b.flights[e] = b.flights[e][1:]
	return b.s.Done(b.now, e, r)
}

func (b *bench) state(e scheduler.ID) scheduler.State {
	st, ok := b.s.State(b.now, e)
	require.True(b.t, ok)
	return st
}

var ok200 = scheduler.Result{Outcome: scheduler.Success, Latency: 100 * time.Millisecond}

func TestAnEndpointIsHeldToItsCap(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{})
	e := b.endpoint(1, nil)
	b.warm(e)
	b.add(e, scheduler.Live, 1000)
	assert.Equal(t, 20, b.drain())
	assert.Equal(t, scheduler.WaitConcurrency, b.state(e).Wait)

	b.finish(e, ok200)
	assert.Equal(t, 1, b.drain(), "a slot that comes free is used again")
}

func TestAColdEndpointStartsWithTwoSlots(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{})
	e := b.endpoint(1, nil)
	b.add(e, scheduler.Live, 1000)
	assert.Equal(t, 2, b.drain())
	b.finish(e, ok200)
	assert.Equal(t, 19, b.drain(), "its first success gives it all of its slots")

	for len(b.flights[e]) > 0 {
		b.finish(e, ok200)
	}
	b.now = b.now.Add(6 * time.Minute)
	assert.Equal(t, 2, b.drain(), "without a recent success it is cold again")
}

func TestAnEndpointThatGoesSilentIsCold(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{})
	e := b.endpoint(1, nil)
	b.warm(e)
	b.add(e, scheduler.Live, 3)
	require.Equal(t, 3, b.drain())
	b.now = b.now.Add(400 * time.Millisecond)
	b.add(e, scheduler.Live, 1)
	require.Equal(t, 1, b.drain())
	b.now = b.now.Add(200 * time.Millisecond)
	b.add(e, scheduler.Live, 100)
	assert.Zero(t, b.drain(), "nothing has ended for half a second")
	b.finish(e, ok200)
	assert.Equal(t, 17, b.drain(), "one sign of life is enough")
}

func TestAHostIsHeldToItsCapAndSharedEvenly(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{})
	var ids []scheduler.ID
	for i := range 4 {
		e := b.endpoint(i, func(s *scheduler.EndpointSpec) { s.Host = "https://shared:443" })
		b.warm(e)
		b.add(e, scheduler.Live, 1000)
		ids = append(ids, e)
	}
	assert.Equal(t, 20, b.drain())
	for _, e := range ids {
		assert.Equal(t, 5, b.started[e])
	}
}

func TestASingleActiveEndpointHasTheWholeHost(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{})
	shared := func(s *scheduler.EndpointSpec) { s.Host = "https://shared:443" }
	busy, other := b.endpoint(1, shared), b.endpoint(2, shared)
	b.warm(busy, other)
	b.add(busy, scheduler.Live, 1000)
	assert.Equal(t, 20, b.drain())

	b.add(other, scheduler.Live, 1000)
	assert.Zero(t, b.drain())
	for range 15 {
		b.finish(busy, ok200)
		b.drain()
	}
	assert.Equal(t, 10, b.state(busy).InFlight)
	assert.Equal(t, 10, b.state(other).InFlight)
}

func TestTheProcessIsHeldToItsGlobalLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{GlobalMax: 50})
	for i := range 30 {
		e := b.endpoint(i, nil)
		b.warm(e)
		b.add(e, scheduler.Live, 1000)
	}
	assert.Equal(t, 50, b.drain())
	assert.Equal(t, 50, b.s.Totals().InFlight)
}

func TestTenantsShareByWeight(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{GlobalMax: 40})
	n := 0
	byTenant := map[string][]scheduler.ID{}
	for tenant, endpoints := range map[string]int{"small": 1, "big": 100, "paying": 3} {
		for range endpoints {
			n++
			e := b.endpoint(n, func(s *scheduler.EndpointSpec) {
				s.Tenant = tenant
				s.Host = "https://h" + string(rune('a'+n/26)) + string(rune('a'+n%26))
				s.Weight = 1
				s.MaxInFlight = 40
				s.HostMax = 40
				if tenant == "paying" {
					s.Weight = 2
				}
			})
			b.warm(e)
			b.add(e, scheduler.Live, 1_000_000)
			byTenant[tenant] = append(byTenant[tenant], e)
		}
	}
	sum := func(tenant string) (started int) {
		for _, e := range byTenant[tenant] {
			started += b.started[e]
		}
		return started
	}
	for range 400 {
		b.drain()
		for e := range b.flights {
			for len(b.flights[e]) > 0 {
				b.finish(e, ok200)
			}
		}
	}
	total := float64(sum("small") + sum("big") + sum("paying"))
	assert.InDelta(t, 0.25, float64(sum("small"))/total, 0.03)
	assert.InDelta(t, 0.25, float64(sum("big"))/total, 0.03)
	assert.InDelta(t, 0.50, float64(sum("paying"))/total, 0.03)
}
