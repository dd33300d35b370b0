package scheduler

import (
	"math"
	"time"
)

// latencyWeight is the weight of the newest attempt in the moving average.
const latencyWeight = 0.2

// judge draws the conclusions from a result: latency, throttling, rate, circuit.
func (s *Scheduler) judge(now time.Time, n int64, e *endpoint, f *Flight, r Result) Change {
	var change Change
	if r.Outcome == Success || r.Outcome == Failure {
		seconds := r.Latency.Seconds()
		if e.latency == 0 {
			e.latency = seconds
		} else {
			e.latency += latencyWeight * (seconds - e.latency)
		}
	}
	switch r.Outcome {
	case Failure:
		e.failing = true
	case Success:
		e.lastSuccess, e.lastSign, e.failing = n, n, false
		e.throttles = 0
	case Neutral, Throttled, Blocked:
	}
	if r.Outcome == Throttled && !s.cfg.Off.has(Throttling) {
		s.throttle(n, e, r.RetryAfter)
		change.Throttled = true
	}
	s.adapt(now, n, e, r)

	c := e.circuit
	if c == nil {
		return change
	}
	probe := f.probe && e.probe == f
	if f.probe && e.probe == f {
		e.probe = nil
	}
	cc := c.Record(now, CircuitAttempt{
		Cap: e.spec.MaxInFlight, Latency: r.Latency, Outcome: r.Outcome, Probe: probe, Timeout: e.spec.Timeout,
	})
	change.Circuit, change.Opened, change.Closed, change.Flapped = cc.Changed, cc.Opened, cc.Closed, cc.Flapped
	if cc.Flapped {
		s.flaps++
	}
	if cc.Changed {
		s.seenCircuit(e, c.View(now).State)
		s.updateBucket(now, e)
	}
	return change
}

// maxThrottles bounds the doublings of the time for which a 429 holds back.
const maxThrottles = 10

// throttle holds an endpoint back after a 429: for as long as it asked, which
// is a lower bound, or for longer each time where it did not say.
func (s *Scheduler) throttle(n int64, e *endpoint, after time.Duration) {
	hold := after
	if hold <= 0 {
		hold = s.cfg.ThrottleFor << e.throttles
	}
	e.throttles = min(e.throttles+1, maxThrottles)
	hold = min(hold, s.cfg.ThrottleMax)
	// Up to a tenth more, so that endpoints told the same do not return at once.
	hold += time.Duration(0.1 * s.cfg.Rand() * float64(hold))
	e.throttled = max(e.throttled, n+int64(min(hold, s.cfg.ThrottleMax)))
}

// adapt feeds the adaptive limit.
func (s *Scheduler) adapt(now time.Time, n int64, e *endpoint, r Result) {
	if !e.spec.Adaptive || s.cfg.Off.has(AdaptiveRate) {
		return
	}
	if r.Outcome != Success && r.Outcome != Failure && r.Outcome != Throttled {
		return
	}
	if e.adaptive == nil {
		e.adaptive = &adaptive{since: n}
	}
	a := e.adaptive
	before := a.limit
	a.roll(n, e.spec.Rate)
	if r.Outcome == Success && r.Latency <= s.cfg.SlowAfter {
		a.ok++
	} else {
		a.trouble(n, &s.cfg)
	}
	if a.limit != before {
		s.updateBucket(now, e)
	}
}

// updateBucket sets the endpoint's rate limit from its spec, its adaptive limit
// and its slow start.
func (s *Scheduler) updateBucket(now time.Time, e *endpoint) {
	if s.cfg.Off.has(RateLimit) {
		return
	}
	limit, burst := e.spec.Rate, burstOf(e.spec.Rate, e.spec.Burst)
	if a := e.adaptive; a != nil && e.spec.Adaptive && a.limit > 0 && (limit <= 0 || a.limit < limit) {
		// A burst would be the overload that the limit was found by.
		limit, burst = a.limit, max(1, int(math.Ceil(a.limit/10)))
	}
	if limit <= 0 {
		e.bucket = nil
		return
	}
	if e.circuit != nil && !s.cfg.Off.has(RateRamp) && !s.cfg.Off.has(SlowStart) {
		if factor := e.circuit.View(now).RateFactor; factor > 0 {
			limit, burst = limit*factor, int(float64(burst)*factor)
		}
	}
	if e.bucket == nil {
		e.bucket = new(bucket)
	}
	e.bucket.update(now, limit, burst)
}

// seenCircuit keeps the count of circuits by state.
func (s *Scheduler) seenCircuit(e *endpoint, state CircuitState) {
	if state == e.seen {
		return
	}
	s.circuits[e.seen]--
	s.circuits[state]++
	e.host.open += boolInt(state != Closed) - boolInt(e.seen != Closed)
	e.seen = state
}

// isSlow reports whether the endpoint belongs in the slow lane: by its moving
// average, or because most of what it has in flight has hung for too long.
func (s *Scheduler) isSlow(e *endpoint) bool {
	if s.cfg.Off.has(SlowLane) {
		return false
	}
	return s.isUsuallySlow(e) || e.aged > 0 && 2*e.aged >= e.inFlight
}

func (s *Scheduler) isUsuallySlow(e *endpoint) bool { return e.latency > s.cfg.SlowAfter.Seconds() }

// age moves the requests that have been in flight for too long to the slow
// lane, whatever endpoint they belong to.
func (s *Scheduler) age(n int64) {
	limit := n - int64(s.cfg.SlowAfter)
	for f := s.young.head; f != nil && f.started <= limit; f = s.young.head {
		s.young.remove(f)
		f.aged = true
		f.ep.aged++
		if !f.slow {
			f.slow = true
			s.slow.used++
			f.host.slow.used++
		}
	}
}
