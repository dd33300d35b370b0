package scheduler

import "time"

// Waits is, by lane, why what is due at an endpoint is not claimed now. WaitNone means
// that nothing but its turn is in the way.
type Waits [lanes]Wait

// Waits tells why what is due at an endpoint waits; false if the endpoint is unknown. It
// need not have been told of what is due, and moves nothing. Where several reasons
// apply it names the first of circuit_open, rate_limited, retry_budget, slow_lane and
// concurrency.
func (s *Scheduler) Waits(now time.Time, id ID) (Waits, bool) {
	e := s.endpoints[id]
	if e == nil || e.removed {
		return Waits{}, false
	}
	var why Waits
	for lane := range why {
		why[lane] = s.waitIn(now, e, Lane(lane))
	}
	return why, true
}

// waitIn differs from verdict, which asks for the first thing that is in the way of one
// more slot in any lane: here it is about one lane and in the order of Waits.
func (s *Scheduler) waitIn(now time.Time, e *endpoint, lane Lane) Wait {
	n, ramp := nanos(now), 0
	if e.circuit != nil {
		v := e.circuit.View(now)
		if v.State != Closed {
			return WaitCircuitOpen
		}
		ramp = v.MaxInFlight
	}
	switch {
	case e.spec.Paused:
		return WaitPaused
	case e.throttled > n, e.bucket.isEmpty(now, e.reserved), e.tenant.bucket.isEmpty(now, e.tenant.reserved):
		return WaitRateLimited
	case lane == Retry && !s.cfg.Off.has(RetryBudget) && e.budget.left(n, &s.cfg, e.reservedRetry) == 0:
		return WaitRetryBudget
	case s.isSlow(e) && (e.host.slow.free() <= 0 || s.slow.free() <= 0):
		return WaitSlowLane
	case e.used() >= s.limit(n, e, ramp),
		e.host.gate.free() <= 0, !s.withinShare(e),
		s.inFlight+s.reserved >= s.cfg.GlobalMax,
		lane == Replay && (!s.hasReplaySlot(e) || s.replay.free() <= 0):
		return WaitConcurrency
	}
	return WaitNone
}
