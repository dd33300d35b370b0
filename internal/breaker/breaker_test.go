package breaker

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outhook/webhook/internal/scheduler"
)

// These tests run in synctest bubbles because gobreaker reads the clock itself:
// there, time.Now is the bubble's.

type bench struct {
	t *testing.T
	b *Breaker
}

func newBench(t *testing.T, cfg Config) *bench {
	t.Helper()
	if cfg.OpenJitter == 0 {
		cfg.OpenJitter = -1
	}
	b, err := New(cfg)
	require.NoError(t, err)
	return &bench{t: t, b: b}
}

func (x *bench) record(o scheduler.Outcome, latency time.Duration) scheduler.CircuitChange {
	return x.b.Record(time.Now(), scheduler.CircuitAttempt{
		Cap: 20, Latency: latency, Outcome: o, Timeout: 10 * time.Second,
	})
}

func (x *bench) success() scheduler.CircuitChange {
	return x.record(scheduler.Success, 100*time.Millisecond)
}

func (x *bench) failure() scheduler.CircuitChange {
	return x.record(scheduler.Failure, 100*time.Millisecond)
}

// probe leases the probe and reports its result.
func (x *bench) probe(o scheduler.Outcome) scheduler.CircuitChange {
	now := time.Now()
	v := x.b.View(now)
	require.Equal(x.t, scheduler.HalfOpen, v.State)
	require.False(x.t, v.ProbeAt.After(now), "the probe is free")
	x.b.LeaseProbe(now.Add(90 * time.Second))
	return x.b.Record(now, scheduler.CircuitAttempt{Cap: 20, Latency: 100 * time.Millisecond, Outcome: o, Probe: true, Timeout: 10 * time.Second})
}

// trip opens a closed circuit by failures in a row.
func (x *bench) trip() {
	for range 5 {
		x.failure()
	}
	require.Equal(x.t, scheduler.Open, x.b.state(time.Now()))
}

func (x *bench) openFor() time.Duration {
	return time.Until(x.b.openUntil)
}

func (x *bench) waitOpen() { time.Sleep(x.openFor()) }

func TestBreakerOpens(t *testing.T) {
	t.Parallel()
	const fast, slow = 100 * time.Millisecond, 7 * time.Second
	type step struct {
		n       int
		outcome scheduler.Outcome
		latency time.Duration
		pause   time.Duration // before each
	}
	ok, bad := scheduler.Success, scheduler.Failure
	for _, tc := range []struct {
		name  string
		cfg   Config
		steps []step
		open  bool
	}{
		{name: "not at 4 failures in a row", steps: []step{{4, bad, fast, 0}}},
		{name: "at 5 failures in a row", steps: []step{{5, bad, fast, 0}}, open: true},
		{name: "at 5 failures in a row spread over days", steps: []step{{5, bad, fast, 24 * time.Hour}}, open: true},
		{name: "not when a success comes between", steps: []step{{4, bad, fast, 0}, {1, ok, fast, 0}, {4, bad, fast, 0}}},
		{name: "not at 5 in a row under high volume", steps: []step{{20, ok, fast, 0}, {5, bad, fast, 0}}},
		{name: "at 10 of 20 attempts", cfg: Config{ConsecutiveFailures: -1}, steps: []step{{10, ok, fast, 0}, {10, bad, fast, 0}}, open: true},
		{name: "not at 9 of 20 attempts", cfg: Config{ConsecutiveFailures: -1}, steps: []step{{11, ok, fast, 0}, {9, bad, fast, 0}}},
		{name: "not below 20 attempts", cfg: Config{ConsecutiveFailures: -1}, steps: []step{{19, bad, fast, 0}}},
		{name: "when a success completes the volume", cfg: Config{ConsecutiveFailures: -1}, steps: []step{{11, bad, fast, 0}, {9, ok, fast, 0}}, open: true},
		{name: "not when the failures have left the window", cfg: Config{ConsecutiveFailures: -1}, steps: []step{{15, bad, fast, 0}, {1, ok, fast, 66 * time.Second}, {14, ok, fast, 0}}},
		{name: "on slow successes", steps: []step{{20, ok, slow, 0}}, open: true},
		{name: "not on slow successes below 20 attempts", steps: []step{{19, ok, slow, 0}}},
		{name: "not on one slow success of 20", steps: []step{{1, ok, slow, 0}, {40, ok, fast, 0}}},
		{name: "on 2 slow successes of 100", steps: []step{{98, ok, fast, 0}, {2, ok, slow, 0}}, open: true},
		{name: "not on slow successes that left the window", steps: []step{{19, ok, slow, 0}, {20, ok, fast, 66 * time.Second}}},
		{name: "not on slow successes of long ago, with volume", steps: []step{{10, ok, slow, 0}, {1, ok, fast, 66 * time.Second}, {40, ok, fast, 0}}},
		{name: "not on slow successes when latency is off", cfg: Config{MaxLatency: -1}, steps: []step{{100, ok, slow, 0}}},
		{name: "never on 429s", steps: []step{{100, scheduler.Throttled, fast, 0}}},
		{name: "never on blocked", steps: []step{{100, scheduler.Blocked, fast, 0}}},
		{name: "never on our own faults", steps: []step{{100, scheduler.Neutral, fast, 0}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				x := newBench(t, tc.cfg)
				for _, s := range tc.steps {
					for range s.n {
						time.Sleep(s.pause)
						x.record(s.outcome, s.latency)
					}
				}
				want := scheduler.Closed
				if tc.open {
					want = scheduler.Open
				}
				assert.Equal(t, want, x.b.state(time.Now()))
			})
		})
	}
}

func TestBreakerLatencyThresholdFollowsTheTimeout(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ timeout, latency time.Duration }{
		{5 * time.Second, 3 * time.Second}, {10 * time.Second, 6 * time.Second}, {30 * time.Second, 10 * time.Second}, {0, 10 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			x := newBench(t, Config{})
			for _, over := range []time.Duration{0, time.Millisecond} {
				for range 20 {
					x.b.Record(time.Now(), scheduler.CircuitAttempt{Outcome: scheduler.Success, Latency: tc.latency + over, Timeout: tc.timeout})
				}
				assert.Equal(t, over > 0, x.b.state(time.Now()) == scheduler.Open, "timeout %v, latency %v", tc.timeout, tc.latency+over)
			}
		})
	}
}

func TestBreakerOpenTimeDoublesToItsCap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newBench(t, Config{})
		x.trip()
		var got []time.Duration
		for range 9 {
			got = append(got, x.openFor())
			x.waitOpen()
			x.probe(scheduler.Failure)
		}
		m := time.Minute
		assert.Equal(t, []time.Duration{m / 2, m, 2 * m, 4 * m, 8 * m, 16 * m, 30 * m, 30 * m, 30 * m}, got)
	})
}

func TestBreakerClosesOnlyByItsOwnProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newBench(t, Config{})
		x.trip()
		assert.Zero(t, x.success(), "sent before the opening")
		x.waitOpen()
		assert.Equal(t, scheduler.HalfOpen, x.b.state(time.Now()))
		assert.Zero(t, x.success(), "not the probe")
		assert.Zero(t, x.failure(), "not the probe")
		assert.Equal(t, scheduler.HalfOpen, x.b.state(time.Now()))
		assert.Equal(t, scheduler.CircuitChange{Changed: true, Closed: true}, x.probe(scheduler.Success))
		assert.Equal(t, scheduler.Closed, x.b.state(time.Now()))
	})
}

func TestBreakerLeasesALostProbeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newBench(t, Config{})
		x.trip()
		x.waitOpen()
		x.b.LeaseProbe(time.Now().Add(90 * time.Second))
		time.Sleep(89 * time.Second)
		assert.Equal(t, time.Second, time.Until(x.b.View(time.Now()).ProbeAt))
		time.Sleep(time.Second)
		assert.False(t, x.b.View(time.Now()).ProbeAt.After(time.Now()))
	})
}

func TestBreakerProbeThatSaysNothingWaitsWithoutDoubling(t *testing.T) {
	t.Parallel()
	for _, o := range []scheduler.Outcome{scheduler.Throttled, scheduler.Blocked, scheduler.Neutral} {
		synctest.Test(t, func(t *testing.T) {
			x := newBench(t, Config{})
			x.trip()
			x.waitOpen()
			x.probe(o)
			assert.Equal(t, scheduler.Open, x.b.state(time.Now()))
			assert.Equal(t, 30*time.Second, x.openFor())
			x.waitOpen()
			x.probe(scheduler.Failure)
			assert.Equal(t, time.Minute, x.openFor())
		})
	}
}

func TestBreakerSlowStart(t *testing.T) {
	t.Parallel()
	view := func(x *bench) (int, float64) {
		v := x.b.View(time.Now())
		return v.MaxInFlight, v.RateFactor
	}
	closed := func(t *testing.T) *bench {
		t.Helper()
		x := newBench(t, Config{})
		x.trip()
		x.waitOpen()
		x.probe(scheduler.Success)
		return x
	}
	t.Run("doubles every 30 s up to the cap", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := closed(t)
			for _, want := range []struct {
				slots int
				rate  float64
			}{{2, 0.1}, {4, 0.2}, {8, 0.4}, {16, 0.8}, {0, 0}} {
				slots, rate := view(x)
				assert.Equal(t, want.slots, slots)
				assert.InDelta(t, want.rate, rate, 1e-9)
				for range 30 {
					time.Sleep(time.Second)
					x.success()
				}
			}
		})
	})
	t.Run("stays where too little succeeds", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := closed(t)
			for i := range 300 {
				time.Sleep(time.Second)
				if i%10 == 0 {
					x.failure()
				} else {
					x.success()
				}
			}
			slots, _ := view(x)
			assert.Equal(t, 2, slots, "90 % is not more than 95 %")
		})
	})
	t.Run("steps back at once when a step is too much", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := closed(t)
			slots := func() int { n, _ := view(x); return n }
			for slots() < 8 {
				time.Sleep(time.Second)
				x.success()
			}
			time.Sleep(time.Second)
			x.record(scheduler.Failure, 5*time.Second)
			x.record(scheduler.Failure, 5*time.Second)
			x.record(scheduler.Failure, 5*time.Second)
			assert.Equal(t, 8, slots(), "they began before the step did")
			x.success()
			x.failure()
			x.failure()
			assert.Equal(t, 8, slots(), "two of the first twenty may")
			assert.True(t, x.failure().Changed)
			assert.Equal(t, 4, slots())
			x.failure()
			assert.Equal(t, 4, slots(), "it began before")
			for range 30 {
				time.Sleep(time.Second)
				x.success()
			}
			assert.Equal(t, 8, slots(), "and tries again")
		})
	})
	t.Run("stays while nothing is sent", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := closed(t)
			time.Sleep(time.Hour)
			slots, _ := view(x)
			assert.Equal(t, 2, slots)
		})
	})
	t.Run("does not speed up on slow successes", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := closed(t)
			for range 100 {
				time.Sleep(7 * time.Second)
				x.record(scheduler.Success, 7*time.Second)
			}
			slots, _ := view(x)
			assert.Equal(t, 2, slots)
		})
	})
}

func TestBreakerReportsFlapsAndGoesOnDoubling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newBench(t, Config{SlowStartSlots: -1})
		x.trip()
		x.waitOpen()
		x.probe(scheduler.Success)
		time.Sleep(9 * time.Minute)
		for range 4 {
			assert.False(t, x.failure().Flapped)
		}
		assert.True(t, x.failure().Flapped)
		assert.Equal(t, time.Minute, x.openFor(), "the second opening in a row")

		x.waitOpen()
		x.probe(scheduler.Success)
		time.Sleep(11 * time.Minute)
		x.trip()
		assert.Equal(t, 1, x.b.flaps)
		assert.Equal(t, 30*time.Second, x.openFor(), "it starts anew")
	})
}

func TestBreakerSurvivesAHandOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newBench(t, Config{})
		x.trip()
		x.waitOpen()
		x.probe(scheduler.Failure)
		y := newBench(t, Config{})
		y.b.Restore(time.Now(), x.b.Snapshot(time.Now()))
		assert.Equal(t, time.Minute, y.openFor())
		y.waitOpen()
		y.probe(scheduler.Failure)
		assert.Equal(t, 2*time.Minute, y.openFor())
		y.waitOpen()
		y.probe(scheduler.Success)

		z := newBench(t, Config{})
		z.b.Restore(time.Now(), y.b.Snapshot(time.Now()))
		assert.Equal(t, 2, z.b.View(time.Now()).MaxInFlight, "slow start goes on")

		stored := y.b.Snapshot(time.Now())
		stored.OpenUntil = time.Now().Add(24 * 365 * time.Hour)
		z.b.Restore(time.Now(), stored)
		assert.Equal(t, 30*time.Minute, z.openFor(), "an absurd open time is cut")
	})
}

func TestBreakerIsQuietOnlyWhenItKnowsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newBench(t, Config{})
		x.success()
		assert.False(t, x.b.View(time.Now()).Quiet, "the window holds an attempt")
		time.Sleep(61 * time.Second)
		assert.True(t, x.b.View(time.Now()).Quiet)
		x.failure()
		time.Sleep(time.Hour)
		assert.False(t, x.b.View(time.Now()).Quiet, "a failure in a row counts for ever")
	})
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"FailureRatio":     {FailureRatio: 1.5},
		"LatencyShare":     {LatencyShare: 2},
		"MinAttempts":      {MinAttempts: -1},
		"OpenFor":          {OpenFor: -1},
		"MaxOpenFor":       {OpenFor: time.Minute, MaxOpenFor: time.Second},
		"OpenJitter":       {OpenJitter: 1},
		"SlowStartEvery":   {SlowStartEvery: -1},
		"SlowStartRate":    {SlowStartRate: 1.1},
		"SlowStartSuccess": {SlowStartSuccess: 1},
		"Window":           {Window: 1},
	} {
		_, err := New(cfg)
		assert.ErrorContains(t, err, name)
	}
}

// failures collects what a property found wrong. A bubble's goroutine cannot
// stop rapid's, so the verdict is handed over when the bubble has ended.
type failures struct{ first string }

func (f *failures) Errorf(format string, args ...any) {
	if f.first == "" {
		f.first = fmt.Sprintf(format, args...)
	}
}

func TestBreakerProperties(t *testing.T) {
	t.Parallel()
	type step struct {
		Kind    string
		Outcome scheduler.Outcome
		Latency time.Duration
		Wait    time.Duration
	}
	steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
		return step{
			Kind:    rapid.SampledFrom([]string{"wait", "attempt", "burst", "take", "result", "result"}).Draw(rt, "kind"),
			Outcome: scheduler.Outcome(rapid.IntRange(int(scheduler.Neutral), int(scheduler.Blocked)).Draw(rt, "outcome")),
			Latency: rapid.SampledFrom([]time.Duration{time.Millisecond, 7 * time.Second}).Draw(rt, "latency"),
			Wait:    time.Duration(rapid.Int64Range(0, int64(40*time.Minute)).Draw(rt, "wait")),
		}
	}), 40, 200)
	rapid.Check(t, func(rt *rapid.T) {
		jitter := rapid.Float64Range(0, 0.999).Draw(rt, "jitter")
		history := steps.Draw(rt, "history")
		found := new(failures)
		synctest.Test(t, func(t *testing.T) {
			b, err := New(Config{Rand: func() float64 { return jitter }})
			require.NoError(t, err)
			var leasedUntil time.Time // the model's own record of the probe
			for _, s := range history {
				now := time.Now()
				before := b.state(now)
				a := scheduler.CircuitAttempt{Cap: 20, Timeout: 10 * time.Second, Outcome: s.Outcome, Latency: s.Latency}
				switch s.Kind {
				case "wait":
					time.Sleep(s.Wait)
				case "attempt":
					change := b.Record(now, a)
					if before != scheduler.Closed {
						assert.Equal(found, before, b.state(now), "only the probe decides")
						assert.Zero(found, change)
					}
					if a.Outcome != scheduler.Success && a.Outcome != scheduler.Failure {
						assert.Equal(found, before, b.state(now))
					}
					assert.Equal(found, before == scheduler.Closed && b.state(now) == scheduler.Open, change.Opened)
				case "burst":
					a.Outcome = scheduler.Failure
					for range 40 {
						b.Record(now, a)
					}
					assert.NotEqual(found, scheduler.Closed, b.state(now))
				case "take":
					v := b.View(now)
					if v.State != scheduler.HalfOpen || v.ProbeAt.After(now) {
						break
					}
					assert.False(found, leasedUntil.After(now), "never two probes")
					leasedUntil = now.Add(90 * time.Second)
					b.LeaseProbe(leasedUntil)
				case "result":
					if !leasedUntil.After(now) {
						break
					}
					leasedUntil = time.Time{}
					trips := b.trips
					a.Probe = true
					change := b.Record(now, a)
					assert.Equal(found, a.Outcome == scheduler.Success, b.state(now) == scheduler.Closed, "a probe's success closes, nothing else")
					assert.Equal(found, a.Outcome == scheduler.Success, change.Closed)
					if a.Outcome == scheduler.Failure {
						full := min(30*time.Minute, 30*time.Second<<min(trips, 20))
						assert.InDelta(found, full.Seconds()*(1+0.2*(2*jitter-1)), b.openUntil.Sub(now).Seconds(), 1e-3)
					}
				}
				now = time.Now()
				v := b.View(now)
				assert.LessOrEqual(found, b.openUntil.Sub(now), 36*time.Minute)
				assert.Equal(found, v.State == scheduler.Open, now.Before(b.openUntil))
				if v.State != scheduler.Closed {
					assert.Zero(found, v.MaxInFlight)
					assert.False(found, v.Quiet)
				}
			}
		})
		if found.first != "" {
			rt.Fatal(found.first)
		}
	})
}
