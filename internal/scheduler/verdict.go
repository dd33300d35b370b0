package scheduler

import "time"

// verdict says whether an endpoint may have one more slot now. If not, it says
// why and what it waits for: an instant, a gate, its tenant, or (all zero) its
// own next event.
type verdict struct {
	why    Wait
	at     int64
	gate   *gate
	tenant bool
	lane   Lane
	probe  bool
}

// stage is where a verdict is asked for.
type stage uint8

const (
	// planning is about an endpoint that is queued: what is free may be had.
	planning stage = iota
	// entering is about one that wants to queue: only slots of gates and tokens
	// of the tenant count that no queued endpoint has been offered before.
	entering
)

// verdict finds the verdict.
func (s *Scheduler) verdict(now time.Time, n int64, e *endpoint, at stage) verdict {
	next := e.promote(n)
	switch {
	case e.removed:
		return verdict{why: WaitRemoved}
	case e.spec.Paused:
		return verdict{why: WaitPaused}
	case e.ready == [lanes]bool{}:
		return verdict{why: WaitDue, at: next}
	case e.throttled > n:
		return verdict{why: WaitRateLimited, at: e.throttled}
	}

	probe, ramp := false, 0
	if e.circuit != nil {
		v := e.circuit.View(now)
		s.seenCircuit(e, v.State)
		switch {
		case v.State == Closed:
			ramp = v.MaxInFlight
		case v.ProbeAt.After(now):
			return verdict{why: WaitCircuitOpen, at: nanos(v.ProbeAt)}
		default:
			probe = true
		}
	}
	limit := s.capOf(e) // a probe is alone anyway, but for lost ones
	if !probe {
		limit = s.limit(n, e, ramp)
	}
	if e.used() >= limit {
		return verdict{why: WaitConcurrency}
	}
	if e.bucket != nil && e.bucket.free(now, e.reserved) <= 0 {
		return verdict{why: WaitRateLimited, at: nanos(e.bucket.nextAt(now, e.reserved))}
	}

	retries := unlimited
	if e.ready[Retry] && !probe && !s.cfg.Off.has(RetryBudget) {
		retries = e.budget.left(n, &s.cfg, e.reservedRetry)
	}
	v := s.chooseLane(n, next, e, retries, at)
	if v.why != WaitNone {
		return v
	}
	v.probe = probe
	if b := e.tenant.bucket; b != nil {
		free := b.free(now, e.tenant.reserved)
		if at == entering {
			free -= e.tenant.queue.n
		}
		if free <= 0 {
			return verdict{why: WaitRateLimited, tenant: true}
		}
	}
	return s.checkGates(e, v, at)
}

// limit is what the endpoint may have in flight now, with ramp the limit of its
// slow start, if any.
func (s *Scheduler) limit(n int64, e *endpoint, ramp int) int {
	limit := s.capOf(e)
	switch {
	case s.cfg.Off.has(ColdStart):
	case s.isSilent(n, e) && !s.isUsuallySlow(e):
		limit = min(limit, 1) // which it has in flight
	case s.isCold(n, e), s.isSilent(n, e):
		limit = min(limit, s.cfg.ColdSlots)
	}
	if ramp > 0 && !s.cfg.Off.has(SlowStart) {
		limit = min(limit, ramp)
	}
	return limit
}

func (s *Scheduler) capOf(e *endpoint) int {
	if s.cfg.Off.has(EndpointCap) {
		return unlimited
	}
	return e.spec.MaxInFlight
}

// isCold reports whether the endpoint is without a recent success.
func (s *Scheduler) isCold(n int64, e *endpoint) bool {
	return e.lastSuccess == 0 || n-e.lastSuccess > int64(s.cfg.ColdAfter)
}

// isSilent reports whether the endpoint has requests in flight and none has
// succeeded for longer than it usually takes. A timeout is no sign of life. It gets
// nothing more then, unless it is one that is always slow: where hundreds of endpoints
// begin to hang at the same instant, two requests to each would be half of all slots.
func (s *Scheduler) isSilent(n int64, e *endpoint) bool {
	if s.cfg.SilentAfter < 0 || e.inFlight == 0 {
		return false
	}
	silence := s.cfg.SilentAfter
	if e.latency > 0 {
		usual := time.Duration(silentLatencies * e.latency * float64(time.Second))
		silence = max(silence/2, min(usual, s.cfg.SlowAfter))
	}
	return n-e.lastSign > int64(silence)
}

// silentLatencies is how many times its usual latency an endpoint may take
// before it counts as silent.
const silentLatencies = 5

// chooseLane picks the lane of the next slot: retries as far as their budget
// goes, then first attempts; replays get their share beside those, and no more
// than their lane. Where only a lane is held back, the next due time of any lane
// ends the wait as well.
func (s *Scheduler) chooseLane(n, next int64, e *endpoint, retries int, at stage) verdict {
	retry := e.ready[Retry] && retries > 0
	replay := e.ready[Replay] && s.hasReplaySlot(e)
	live := retry || e.ready[Live]
	switch {
	case replay && (!live || e.replayCredit >= 1 || s.cfg.Off.has(ReplayLane)):
		if !room(&s.replay, at) {
			if live {
				break
			}
			return verdict{why: WaitConcurrency, gate: &s.replay, at: next}
		}
		return verdict{lane: Replay}
	case !live && e.ready[Retry]:
		wake := e.budget.nextChange(n)
		if next > 0 {
			wake = min(wake, next)
		}
		return verdict{why: WaitRetryBudget, at: wake}
	case !live:
		return verdict{why: WaitConcurrency, at: next} // its own replays are in the way
	}
	if retry {
		return verdict{lane: Retry}
	}
	return verdict{lane: Live}
}

func (s *Scheduler) hasReplaySlot(e *endpoint) bool {
	return e.replays < s.part(e.spec.MaxInFlight, s.cfg.ReplayShare, ReplayLane)
}

func room(g *gate, at stage) bool {
	if at == entering {
		return g.offers()
	}
	return g.free() > 0
}

func (s *Scheduler) checkGates(e *endpoint, v verdict, at stage) verdict {
	h := e.host
	if !room(&h.gate, at) || !s.withinShare(e) {
		return verdict{why: WaitConcurrency, gate: &h.gate}
	}
	if s.isSlow(e) {
		if !room(&h.slow, at) {
			return verdict{why: WaitSlowLane, gate: &h.slow}
		}
		if !room(&s.slow, at) {
			return verdict{why: WaitSlowLane, gate: &s.slow}
		}
	}
	return v
}

// withinShare reports whether the endpoint has less than its even share of its
// host's slots.
func (s *Scheduler) withinShare(e *endpoint) bool {
	if s.cfg.Off.has(HostSharing) || e.host.gate.max >= unlimited {
		return true
	}
	if e.contends() {
		return e.used() < e.host.share()
	}
	e.host.contending++
	share := e.host.share()
	e.host.contending--
	return e.used() < share
}

// contends reports whether the endpoint is one of those that share its host.
func (e *endpoint) contends() bool {
	switch e.pos {
	case queued, claiming:
		return true
	case gated:
		return e.waiting.gate == &e.host.gate
	default:
		return false
	}
}
