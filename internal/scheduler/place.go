package scheduler

import "time"

// place moves the endpoint to where the verdict says that it belongs. Only
// Settle ends a claim.
func (s *Scheduler) place(now time.Time, e *endpoint) {
	if e.pos == claiming {
		return
	}
	at := entering
	if e.pos == queued {
		at = planning
	}
	n := nanos(now)
	s.put(now, n, e, s.verdict(now, n, e, at))
}

func (s *Scheduler) put(now time.Time, n int64, e *endpoint, v verdict) {
	e.why = v.why
	switch {
	case v.why == WaitNone:
		s.move(e, queued)
	case v.gate != nil:
		if e.pos != gated || e.waiting.gate != v.gate { // else it keeps its turn
			s.moveTo(e, gated, v.gate)
		}
		s.wakeAt(e, v.at)
	case v.tenant:
		s.move(e, byTenant)
		s.holdTenant(now, e.tenant)
	case v.why == WaitConcurrency:
		s.move(e, slots)
		s.wakeAt(e, v.at)
	case v.at > 0:
		s.move(e, timed)
		s.wakeAt(e, v.at)
	default:
		s.move(e, idle)
		s.forgetLater(n, e)
	}
}

func (s *Scheduler) wakeAt(e *endpoint, at int64) {
	if at == 0 {
		s.timers.clear(&e.timer)
		return
	}
	s.timers.set(&e.timer, at)
}

// forgetAfter is when an endpoint that has become idle is looked at once more,
// to drop a circuit that knows nothing any longer.
const forgetAfter = 2 * time.Minute

func (s *Scheduler) forgetLater(n int64, e *endpoint) {
	if e.timer.pos != 0 || e.inFlight+e.reserved > 0 || e.circuit == nil && e.adaptive == nil {
		return
	}
	s.timers.set(&e.timer, n+int64(forgetAfter))
}

// forget drops what an idle endpoint does not need.
func (s *Scheduler) forget(now time.Time, e *endpoint) {
	if e.inFlight+e.reserved > 0 {
		return
	}
	if e.circuit != nil && e.circuit.View(now).Quiet {
		s.seenCircuit(e, Closed)
		e.circuit = nil
	}
	if e.adaptive != nil && e.adaptive.limit == 0 {
		e.adaptive = nil
	}
}

// move takes the endpoint out of where it stands and into pos, which is any but
// gated.
func (s *Scheduler) move(e *endpoint, pos position) {
	if e.pos != pos {
		s.moveTo(e, pos, nil)
	}
}

// moveTo is move with the gate to wait at, if it is to one. It is one step: were
// the endpoint nowhere for a moment, the share of the others on its host would be
// larger for that moment, and one of them would be called for a slot that it
// cannot have, and make way in the same manner, without end.
func (s *Scheduler) moveTo(e *endpoint, pos position, at *gate) {
	wasContending := e.contends()
	s.positions[e.pos]--
	s.positions[pos]++
	old := e.pos
	s.timers.clear(&e.timer)
	switch old {
	case queued:
		s.unqueue(e)
	case gated:
		e.waiting.gate.leave(e)
	case byTenant:
		e.tenant.held.remove(e)
	case claiming:
		e.tenant.claiming--
	case idle, timed, slots:
	}
	e.pos = pos
	switch pos {
	case queued:
		s.enqueue(e)
	case byTenant:
		e.tenant.held.pushBack(e)
	case claiming:
		e.tenant.claiming++
	case gated:
		at.wait(e)
	case idle, timed, slots:
	}
	if old == queued || old == claiming {
		s.retire(e.tenant)
	}
	contends := e.contends()
	if contends == wasContending && old != queued {
		return
	}
	e.host.contending += boolInt(contends) - boolInt(wasContending)
	s.kickHost(e.host)
	if old == queued {
		s.kickLanes()
	}
}

func (s *Scheduler) enqueue(e *endpoint) {
	t := e.tenant
	switch {
	case s.cfg.Off.has(FairShare) && e.hasBacklog:
		t.queue.insert(e, nil) // whoever has work is served as long as it has
	case s.settling:
		// Claims are settled in any order. The turn among the endpoints of one
		// plan is by who was served last.
		after := t.queue.tail
		for after != nil && after.planned == e.planned && after.served > e.served {
			after = after.prev
		}
		t.queue.insert(e, after)
	default:
		t.queue.pushBack(e)
	}
	if !t.active {
		s.ring.add(t)
	}
	e.offered = 0
	e.host.gate.queued++
	if s.isSlow(e) {
		e.offered |= atSlow
		s.slow.queued++
		e.host.slow.queued++
	}
	s.offerUrgent(e)
	if e.ready[Replay] && !e.ready[Live] && !e.ready[Retry] {
		e.offered |= atReplay
		s.replay.queued++
	}
}

// offerUrgent counts a queued endpoint among those whose first attempts must not
// wait, if it is one: it succeeds, and in time, as far as is known. One that fails has
// one request in flight at a time, so that each result makes it queue again.
func (s *Scheduler) offerUrgent(e *endpoint) {
	if e.ready[Live] && e.offered&urgent == 0 && e.seen == Closed && !e.failing && !s.isSlow(e) {
		e.offered |= urgent
		s.urgent++
	}
}

// retire takes a tenant without any work out of the ring. One whose endpoints
// are all claiming stays: it keeps its place and what it has left of its turn
// for when they come back for more.
func (s *Scheduler) retire(t *tenant) {
	if t.active && t.queue.n == 0 && t.claiming == 0 && !s.settling {
		s.ring.remove(t)
	}
}

func (s *Scheduler) unqueue(e *endpoint) {
	t := e.tenant
	t.queue.remove(e)
	e.host.gate.queued--
	if e.offered&atSlow != 0 {
		s.slow.queued--
		e.host.slow.queued--
	}
	if e.offered&atReplay != 0 {
		s.replay.queued--
	}
	if e.offered&urgent != 0 {
		s.urgent--
	}
	e.offered = 0
}

// kickHost calls endpoints that wait for slots of the host.
func (s *Scheduler) kickHost(h *host) {
	for h.gate.first != nil && h.gate.offers() {
		e := h.gate.next(s.withinShare)
		if e == nil {
			break
		}
		s.call(e)
	}
	s.kick(&h.slow)
}

// kickLanes calls endpoints that wait for the slow lane and the replay lane.
func (s *Scheduler) kickLanes() {
	s.kick(&s.slow)
	s.kick(&s.replay)
}

func (s *Scheduler) kick(g *gate) {
	for g.first != nil && g.offers() {
		s.call(g.next(anyEndpoint))
	}
}

func anyEndpoint(*endpoint) bool { return true }

// call lets an endpoint that waited at a gate queue for a slot; the next Plan
// looks at whatever else it may have to wait for.
func (s *Scheduler) call(e *endpoint) {
	e.why = WaitNone
	s.move(e, queued)
}

// tenantPause is the shortest time after which a tenant that used up its rate
// is looked at again.
const tenantPause = 50 * time.Millisecond

func (s *Scheduler) holdTenant(now time.Time, t *tenant) {
	if t.timer.pos != 0 || t.bucket == nil {
		return
	}
	at := t.bucket.nextAt(now, t.reserved)
	s.timers.set(&t.timer, max(nanos(at), nanos(now.Add(tenantPause))))
}

// releaseTenant lets up to n of the endpoints that wait for their tenant's rate
// queue again.
func (s *Scheduler) releaseTenant(now time.Time, t *tenant, n int) {
	for ; n > 0 && t.held.head != nil; n-- {
		s.call(t.held.head)
	}
	if t.held.head != nil {
		s.holdTenant(now, t)
	}
}
