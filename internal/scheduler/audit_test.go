package scheduler

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// audit recounts everything that the scheduler counts as it goes, from the
// endpoints and the test's own list of requests in flight.
func audit(t require.TestingT, s *Scheduler, flying []*Flight) {
	type sums struct{ used, slow, queued, slowQueued, contending int }
	hosts := map[*host]*sums{}
	of := func(h *host) *sums {
		if hosts[h] == nil {
			hosts[h] = new(sums)
		}
		return hosts[h]
	}
	var reserved, slow, replays, slowQueued, replayQueued int
	inFlight, aged, flyingReplays := map[*endpoint]int{}, map[*endpoint]int{}, map[*endpoint]int{}
	probes := map[*endpoint]int{}
	for _, f := range flying {
		inFlight[f.ep]++
		of(f.host).used++
		if f.slow {
			slow++
			of(f.host).slow++
		}
		aged[f.ep] += boolInt(f.aged)
		flyingReplays[f.ep] += boolInt(f.lane == Replay && !f.test)
		probes[f.ep] += boolInt(f.probe && f.ep.probe == f)
	}
	tenants := map[*tenant][4]int{}
	var positionsSeen [positions]int
	for _, e := range s.endpoints {
		positionsSeen[e.pos]++
		require.Equal(t, inFlight[e], e.inFlight)
		require.Equal(t, aged[e], e.aged)
		require.Equal(t, flyingReplays[e]+e.reservedRepl, e.replays)
		require.LessOrEqual(t, probes[e], 1)
		require.GreaterOrEqual(t, e.reserved, 0)
		require.GreaterOrEqual(t, e.reserved, e.reservedSlow)
		require.GreaterOrEqual(t, e.reserved, e.reservedRepl+e.reservedRetry)
		reserved += e.reserved
		slow += e.reservedSlow
		replays += e.replays
		h := of(e.host)
		h.used += e.reserved + e.foreign
		h.slow += e.reservedSlow
		h.queued += boolInt(e.pos == queued)
		h.slowQueued += boolInt(e.offered&atSlow != 0)
		h.contending += boolInt(e.contends())
		slowQueued += boolInt(e.offered&atSlow != 0)
		replayQueued += boolInt(e.offered&atReplay != 0)
		c := tenants[e.tenant]
		c[0] += e.reserved
		c[1] += boolInt(e.pos == queued)
		c[2] += boolInt(e.pos == byTenant)
		c[3] += boolInt(e.pos == claiming)
		tenants[e.tenant] = c
		require.Equal(t, e.pos == gated, e.waiting != nil)
		if e.pos == timed {
			require.NotZero(t, e.timer.pos)
		}
	}
	require.Equal(t, positionsSeen, s.positions)
	require.Equal(t, len(flying), s.inFlight)
	require.Equal(t, reserved, s.reserved)
	require.Equal(t, slow, s.slow.used, "slow lane")
	require.Equal(t, replays, s.replay.used, "replay lane")
	require.Equal(t, slowQueued, s.slow.queued)
	require.Equal(t, replayQueued, s.replay.queued)
	for _, h := range s.hosts {
		got := sums{h.gate.used, h.slow.used, h.gate.queued, h.slow.queued, h.contending}
		require.Equal(t, *of(h), got, "host %s", h.name)
	}
	active := 0
	for _, tn := range s.tenants {
		counted := [4]int{tn.reserved, tn.queue.n, tn.held.n, tn.claiming}
		require.Equal(t, tenants[tn], counted, "tenant %s", tn.name)
		require.Equal(t, tn.active, tn.queue.n+tn.claiming > 0)
		active += boolInt(tn.active)
		if tn.held.n > 0 {
			require.NotZero(t, tn.timer.pos)
		}
	}
	require.Equal(t, active, s.ring.n)
}

// conserves checks that nothing which could be granted is left: planning has
// come to an end, so every endpoint with due work is held back by something
// that can be named, and is named to whoever asks.
func conserves(t require.TestingT, s *Scheduler, now time.Time) {
	for id, e := range s.endpoints {
		why, known := s.Waits(now, id)
		require.Equal(t, !e.removed, known)
		for lane, ready := range e.ready {
			if ready && !e.removed { // one that is removed stays until its claims are settled
				require.NotEqual(t, WaitNone, why[lane], "lane %d of an endpoint in position %d", lane, e.pos)
			}
		}
	}
	if s.inFlight+s.reserved >= s.cfg.GlobalMax {
		return
	}
	n := nanos(now)
	for _, e := range s.endpoints {
		if e.pos == claiming {
			continue
		}
		v := s.verdict(now, n, e, planning)
		require.NotEqual(t, WaitNone, v.why, "endpoint in position %d, waiting for %v, could be granted a slot", e.pos, e.why)
	}
}

// stubCircuit opens when told to.
type stubCircuit struct{ open, probe time.Time }

func (c *stubCircuit) View(now time.Time) CircuitView {
	v := CircuitView{Quiet: c.open.IsZero()}
	if !c.open.IsZero() {
		v.State, v.ProbeAt = Open, c.open
		if c.probe.After(c.open) {
			v.ProbeAt = c.probe
		}
		if !now.Before(c.open) {
			v.State = HalfOpen
		}
	}
	return v
}
func (c *stubCircuit) LeaseProbe(until time.Time) { c.probe = until }
func (c *stubCircuit) Record(now time.Time, a CircuitAttempt) CircuitChange {
	switch {
	case !c.open.IsZero() && !a.Probe:
		return CircuitChange{}
	case a.Outcome == Failure:
		*c = stubCircuit{open: now.Add(30 * time.Second)}
		return CircuitChange{Changed: true, Opened: true}
	case a.Probe:
		*c = stubCircuit{}
		return CircuitChange{Changed: true, Closed: true}
	}
	return CircuitChange{}
}

func (c *stubCircuit) Snapshot(time.Time) CircuitSnapshot {
	return CircuitSnapshot{OpenUntil: c.open, ProbeUntil: c.probe}
}

func (c *stubCircuit) Restore(_ time.Time, s CircuitSnapshot) {
	*c = stubCircuit{open: s.OpenUntil, probe: s.ProbeUntil}
}

func TestSchedulerInvariants(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := New(Config{
			GlobalMax:  rapid.IntRange(4, 40).Draw(rt, "global"),
			NewCircuit: func(EndpointSpec) Circuit { return new(stubCircuit) },
			Rand:       func() float64 { return 0.5 },
		})
		now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
		var flying []*Flight
		var grants []Grant
		type claimed struct {
			id ID
			a  Attempt
		}
		var waiting []claimed
		pick := func(rt *rapid.T) ID { return ID{15: byte(rapid.IntRange(0, 9).Draw(rt, "endpoint"))} }
		lane := func(rt *rapid.T) Lane { return Lane(rapid.IntRange(0, int(lanes)-1).Draw(rt, "lane")) }
		rt.Repeat(map[string]func(*rapid.T){
			"set": func(rt *rapid.T) {
				id := pick(rt)
				s.SetEndpoint(now, EndpointSpec{
					ID:          id,
					Tenant:      fmt.Sprint(rapid.IntRange(0, 3).Draw(rt, "tenant")),
					Host:        fmt.Sprint(rapid.IntRange(0, 3).Draw(rt, "host")),
					MaxInFlight: rapid.IntRange(1, 20).Draw(rt, "cap"),
					HostMax:     rapid.SampledFrom([]int{-1, 3, 8, 20}).Draw(rt, "host cap"),
					Rate:        rapid.SampledFrom([]float64{0, 0, 5}).Draw(rt, "rate"),
					Weight:      rapid.SampledFrom([]float64{0, 0.5, 3}).Draw(rt, "weight"),
					Paused:      rapid.IntRange(0, 9).Draw(rt, "paused") == 0,
					Ordered:     rapid.IntRange(0, 9).Draw(rt, "ordered") == 0,
					Adaptive:    rapid.Bool().Draw(rt, "adaptive"),
				})
			},
			"set tenant": func(rt *rapid.T) {
				s.SetTenant(now, fmt.Sprint(rapid.IntRange(0, 3).Draw(rt, "tenant")), TenantSpec{
					Rate: rapid.SampledFrom([]float64{0, 0, 20}).Draw(rt, "rate"),
				})
			},
			"remove":  func(rt *rapid.T) { s.RemoveEndpoint(pick(rt)) },
			"foreign": func(rt *rapid.T) { s.SetForeign(now, pick(rt), rapid.IntRange(0, 5).Draw(rt, "n")) },
			"told": func(rt *rapid.T) {
				s.Told(now, pick(rt), CircuitSnapshot{State: Open, OpenUntil: now.Add(time.Minute)})
			},
			"ready": func(rt *rapid.T) {
				s.Ready(now, pick(rt), now.Add(rapid.SampledFrom([]time.Duration{0, 0, time.Second, time.Hour}).Draw(rt, "in")), lane(rt))
			},
			"test send": func(rt *rapid.T) {
				if f, _ := s.StartTest(now, pick(rt)); f != nil {
					flying = append(flying, f)
				}
			},
			"time": func(rt *rapid.T) {
				now = now.Add(time.Duration(rapid.Int64Range(1, int64(20*time.Second)).Draw(rt, "passes")))
			},
			"plan": func(rt *rapid.T) {
				for _, g := range s.Plan(now, rapid.IntRange(1, 40).Draw(rt, "max"), nil) {
					e := s.endpoints[g.Endpoint]
					require.Positive(rt, g.Total())
					require.LessOrEqual(rt, g.Retries, g.Oldest)
					require.LessOrEqual(rt, e.used(), e.spec.MaxInFlight, "endpoint cap")
					require.LessOrEqual(rt, e.host.gate.used, e.host.gate.max, "host cap")
					require.LessOrEqual(rt, e.replays, max(1, e.spec.MaxInFlight/10), "replay lane")
					require.LessOrEqual(rt, s.inFlight+s.reserved, s.cfg.GlobalMax, "global limit")
					if e.latency > 3 {
						require.LessOrEqual(rt, s.slow.used, s.slow.max)
					}
					require.False(rt, e.spec.Paused)
					if c := e.circuit; c != nil && c.View(now).State != Closed {
						require.True(rt, g.Probe)
					}
					if g.Probe {
						require.Equal(rt, 1, g.Total())
					}
					grants = append(grants, g)
				}
			},
			"settle": func(rt *rapid.T) {
				if len(grants) == 0 {
					rt.Skip("no grant")
				}
				i := rapid.IntRange(0, len(grants)-1).Draw(rt, "grant")
				g := grants[i]
				grants = append(grants[:i], grants[i+1:]...)
				got := Claimed{
					Newest:  rapid.IntRange(0, g.Newest).Draw(rt, "newest"),
					Retries: rapid.IntRange(0, g.Retries).Draw(rt, "retries"),
					Replay:  rapid.IntRange(0, g.Replay).Draw(rt, "replays"),
				}
				got.Oldest = got.Retries + rapid.IntRange(0, g.Oldest-g.Retries).Draw(rt, "oldest")
				if g.Probe && got.total() == 0 && rapid.Bool().Draw(rt, "held") {
					got.ProbeHeld = now.Add(time.Minute)
				}
				s.Settle(now, g, got)
				for l, n := range [lanes]int{got.firsts(), got.Retries, got.Replay} {
					for range n {
						waiting = append(waiting, claimed{g.Endpoint, Attempt{Lane: Lane(l), Number: 1 + l%2, Probe: g.Probe}})
					}
				}
			},
			"start": func(rt *rapid.T) {
				if len(waiting) == 0 {
					rt.Skip("nothing claimed")
				}
				c := waiting[0]
				waiting = waiting[1:]
				if rapid.IntRange(0, 9).Draw(rt, "hand back") == 0 {
					s.Release(now, c.id, c.a)
					return
				}
				if f, _ := s.Start(now, c.id, c.a); f != nil {
					flying = append(flying, f)
				}
			},
			"done": func(rt *rapid.T) {
				if len(flying) == 0 {
					rt.Skip("nothing in flight")
				}
				i := rapid.IntRange(0, len(flying)-1).Draw(rt, "request")
				f := flying[i]
				flying = append(flying[:i], flying[i+1:]...)
				r := Result{
					Flight:  f,
					Latency: now.Sub(time.Unix(0, f.started)),
					Outcome: Outcome(rapid.IntRange(0, int(Blocked)).Draw(rt, "outcome")),
				}
				if rapid.Bool().Draw(rt, "retry") {
					r.RetryAt = now.Add(5 * time.Second)
				}
				s.Done(now, f.ep.spec.ID, r)
			},
			"plan to the end": func(rt *rapid.T) {
				for range 200 {
					gs := s.Plan(now, 1000, nil)
					if len(gs) == 0 {
						break
					}
					for _, g := range gs {
						s.Settle(now, g, Claimed{Oldest: g.Oldest, Newest: g.Newest, Replay: g.Replay, Retries: g.Retries})
						for l, n := range [lanes]int{g.firsts(), g.Retries, g.Replay} {
							for range n {
								waiting = append(waiting, claimed{g.Endpoint, Attempt{Lane: Lane(l), Number: 1 + l%2, Probe: g.Probe}})
							}
						}
					}
				}
				if len(grants) == 0 {
					conserves(rt, s, now)
				}
				at, ok := s.NextWake(now)
				require.False(rt, ok && !at.After(now), "there is nothing left to do now")
			},
			"": func(rt *rapid.T) { audit(rt, s, flying) },
		})
	})
}

// BenchmarkDecisions measures plan, settle, start and done of one delivery each,
// over 40,000 endpoints of 10,000 tenants that always have something due.
func BenchmarkDecisions(b *testing.B) {
	const endpoints, tenants = 40_000, 10_000
	s := New(Config{NewCircuit: func(EndpointSpec) Circuit { return new(stubCircuit) }})
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for i := range endpoints {
		id := ID{12: byte(i >> 24), 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)}
		s.SetEndpoint(now, EndpointSpec{ID: id, Tenant: fmt.Sprint(i % tenants), Host: fmt.Sprint(i), Timeout: 10 * time.Second})
		s.Ready(now, id, now, Live)
	}
	var grants []Grant
	flying := make([]*Flight, 0, 1024)
	rng := rand.New(rand.NewPCG(1, 2))
	b.ReportAllocs()
	b.ResetTimer()
	decisions := 0
	for decisions < b.N {
		now = now.Add(time.Millisecond)
		grants = s.Plan(now, 64, grants[:0])
		for _, g := range grants {
			s.Settle(now, g, Claimed{Oldest: g.Oldest, Newest: g.Newest})
			for range g.Total() {
				if f, _ := s.Start(now, g.Endpoint, Attempt{Number: 1}); f != nil {
					flying = append(flying, f)
				}
				decisions++
			}
		}
		for len(flying) > 256 {
			i := rng.IntN(len(flying))
			f := flying[i]
			flying[i] = flying[len(flying)-1]
			flying = flying[:len(flying)-1]
			s.Done(now, f.ep.spec.ID, Result{Flight: f, Outcome: Success, Latency: 100 * time.Millisecond})
		}
	}
	b.ReportMetric(float64(decisions)/b.Elapsed().Seconds(), "decisions/s")
}
