package scenario

import (
	"testing"
	"time"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/scheduler"
)

// fragile is a receiver that turns away what it cannot take, and falls over for a
// minute when it has had too much.
type fragile struct {
	w        *world
	latency  time.Duration
	capacity func() float64 // per second, now
	// slack is how much over its capacity, as a part of it, is too much, and
	// patience for how many seconds in a row it bears that.
	slack    float64
	patience int

	second   time.Time
	in       int
	overload int
	down     time.Time
	falls    int
}

func (f *fragile) receive(n int) answer {
	now := time.Now()
	if now.Before(f.down) {
		return answer{latency: 5 * time.Second, outcome: scheduler.Failure}
	}
	tooMuch := f.capacity() * (1 + f.slack)
	if now.Sub(f.second) >= time.Second {
		if float64(f.in) <= tooMuch {
			f.overload = 0
		}
		f.second, f.in = now, 0
	}
	f.in++
	if float64(f.in) <= f.capacity() {
		return f.w.answers(f.latency)(n)
	}
	if float64(f.in) > tooMuch && float64(f.in-1) <= tooMuch {
		f.overload++
	}
	if f.overload > f.patience {
		f.falls++
		f.overload = 0
		f.down = now.Add(time.Minute)
	}
	return answer{latency: 20 * time.Millisecond, outcome: scheduler.Failure}
}

// An endpoint with a rate of 30/s was down for 60 hours, and 2,000,000
// deliveries wait. When it comes back its caches are cold: it takes 6 requests
// a second at first and 40 after four minutes. Above that it falls over.
func recoveryStampede(w *world) {
	const backlog = 2_000_000
	up := time.Now().Add(60 * time.Hour)
	f := &fragile{w: w, latency: 150 * time.Millisecond, capacity: func() float64 {
		return min(40, 6+34*time.Since(up).Minutes()/4)
	}}
	e := w.endpoint("back", func(n int) answer {
		if time.Now().Before(up) {
			return answer{latency: 30 * time.Second, outcome: scheduler.Failure}
		}
		return f.receive(n)
	}, func(s *scheduler.EndpointSpec) { s.Rate = 30 })
	warm(e)
	for range 60 {
		e.publish(backlog / 60)
		w.run(time.Hour)
	}
	w.checkf(e.sent < 300, "%d attempts were made in the outage", e.sent)
	w.checkf(e.live.n+len(e.retries) > backlog-100, "%d of %d are kept", e.live.n+len(e.retries), backlog)

	w.run(40 * time.Minute) // the last open time, and slow start
	flaps, done := e.flapped, e.done
	w.run(15 * time.Minute)
	w.checkf(f.falls == 0, "the receiver was knocked over %d times", f.falls)
	w.checkf(e.flapped == flaps && flaps == 0, "the circuit flapped %d times", e.flapped)
	w.checkf(float64(e.done-done) > 0.9*30*15*60, "%d drained in a quarter of an hour", e.done-done)
	w.checkf(e.shed == 0, "%d deliveries were shed", e.shed)
}

func TestRecoveryStampede(t *testing.T) {
	incident(t, recoveryStampede,
		without{name: "the rate limit", off: scheduler.RateLimit},
		without{name: "the ramp of the rate", off: scheduler.RateRamp},
		without{name: "slow start", off: scheduler.SlowStart},
		without{name: "circuits", off: scheduler.CircuitBreaking},
	)
}

// Nobody has set a rate, and slow start begins with twice what the receiver takes. It
// turns away what is over 40 requests a second, and falls over when it had to turn away
// a quarter more than that for five seconds.
func adaptiveRecovery(w *world) {
	up := time.Now().Add(3 * time.Hour)
	f := &fragile{w: w, latency: 25 * time.Millisecond, capacity: func() float64 { return 40 }, slack: 0.25, patience: 5}
	e := w.endpoint("back", func(n int) answer {
		if time.Now().Before(up) {
			return answer{latency: time.Second, outcome: scheduler.Failure}
		}
		return f.receive(n)
	}, func(s *scheduler.EndpointSpec) { s.Adaptive = true })
	warm(e)
	e.publish(200_000)
	w.run(3*time.Hour + 45*time.Minute)
	done := e.done
	w.run(20 * time.Minute)
	w.checkf(f.falls == 0, "the receiver was knocked over %d times", f.falls)
	w.checkf(float64(e.done-done) > 0.75*40*20*60, "%d drained in 20 minutes", e.done-done)
}

func TestRecoveryWithoutAKnownRate(t *testing.T) {
	incident(t, adaptiveRecovery, without{name: "the adaptive rate", off: scheduler.AdaptiveRate})
}

// A receiver that was down for an hour takes two requests at a time when it is back, and
// one more every minute that it is used: slower than slow start goes ahead. What is too
// much it turns away; it falls over when that is most of what it gets for three seconds in
// a row.
func slowWarmUp(w *world) {
	const backlog = 20_000
	up := time.Now().Add(time.Hour)
	var used, second, down time.Time
	takes := func() int { return 2 + int(time.Since(used)/time.Minute) }
	var in, away, bad, falls int
	e := w.endpoint("back", func(n int) answer {
		now := time.Now()
		switch {
		case now.Before(up), now.Before(down):
			return answer{latency: 5 * time.Second, outcome: scheduler.Failure}
		case used.IsZero():
			used = now
		case now.Sub(second) >= time.Second:
			if 2*away <= in {
				bad = 0
			} else if bad++; bad > 3 {
				bad = 0
				falls++
				down = now.Add(time.Minute)
			}
			second, in, away = now, 0, 0
		}
		in++
		if n <= takes() {
			return w.answers(200 * time.Millisecond)(n)
		}
		away++
		return answer{latency: 20 * time.Millisecond, outcome: scheduler.Failure}
	}, nil)
	warm(e)
	e.publish(backlog)
	w.run(2 * time.Hour) // the last open time, and slow start
	w.checkf(falls == 0, "the receiver was knocked over %d times", falls)
	w.checkf(e.flapped == 0, "the circuit flapped %d times", e.flapped)
	w.checkf(e.done == backlog, "%d of %d drained", e.done, backlog)
}

func TestRecoveryOfASlowStarter(t *testing.T) {
	incident(t, slowWarmUp,
		without{name: "slow start", off: scheduler.SlowStart},
		without{name: "stepping back", breaker: func(c *webhook.BreakerConfig) { c.SlowStartSuccess = 0.4 }},
	)
}

// 3 % of the endpoints are dead for three days. Each endpoint has an event every
// half minute; healthy ones hold a slot for 120 ms with it, dead ones hang until
// the timeout.
func deadEndpoints(w *world) {
	const dead, perSecond, days = 3, 1.0 / 30, 3
	var es []*endpoint
	for range dead {
		e := w.endpoint("dead", func(int) answer { return answer{latency: time.Hour} }, nil)
		e.quiet = true
		es = append(es, e)
	}
	w.traffic(dead*perSecond, days*24*time.Hour, es...)
	w.run(days * 24 * time.Hour)

	var busy time.Duration
	for _, e := range es {
		busy += e.busy
		w.checkf(e.spec.MaxInFlight == 0 && e.done == 0, "dead is dead")
	}
	// By Little's law, with the same traffic for each of the other 97 %.
	healthy := dead / 0.03 * 0.97 * perSecond * 0.120 * days * 24 * 3600
	share := busy.Seconds() / (busy.Seconds() + healthy)
	w.checkf(share < 0.05, "dead endpoints had %.1f %% of the time in flight", 100*share)
}

func TestDeadEndpointsForThreeDays(t *testing.T) {
	incident(t, deadEndpoints,
		without{name: "circuits", off: scheduler.CircuitBreaking},
		without{name: "doubling", breaker: func(c *webhook.BreakerConfig) { c.MaxOpenFor = 30 * time.Second }},
	)
}
