package scheduler

import "time"

// Plan appends to into what to claim now, at most max slots in all, and returns
// it. The slots count as taken until Settle. Calling Plan, claiming and
// settling over and over until Plan grants nothing uses every slot that may be
// used.
func (s *Scheduler) Plan(now time.Time, limit int, into []Grant) []Grant {
	s.Advance(now)
	n := nanos(now)
	s.plan++
	base := len(into)
	left := min(limit, s.cfg.GlobalMax-s.inFlight-s.reserved)
	for left > 0 && s.positions[queued] > 0 {
		t := s.ring.head
		if t.queue.n == 0 {
			s.ring.turn()
			continue
		}
		if !t.served {
			t.served = true
			t.deficit += float64(s.cfg.Quantum) * t.weight
		}
		if t.deficit < 1 {
			s.ring.turn()
			continue
		}
		e := t.queue.head
		v := s.verdict(now, n, e, planning)
		granted := e.planned == s.plan
		if v.why != WaitNone || granted && e.isServed(&into[e.grantIdx]) {
			if granted {
				s.move(e, claiming)
			} else {
				s.put(now, n, e, v)
			}
			continue
		}
		if !granted {
			e.planned, e.grantIdx = s.plan, int32(len(into))
			into = append(into, Grant{Endpoint: e.spec.ID})
			s.grants++
		}
		s.grantSlot(now, e, v, &into[e.grantIdx])
		t.deficit--
		left--
		// The next turn of the tenant is its next endpoint's.
		t.queue.remove(e)
		t.queue.pushBack(e)
	}
	for _, g := range into[base:] {
		if e := s.endpoints[g.Endpoint]; e.pos == queued {
			s.move(e, claiming)
		}
	}
	return into
}

// isServed reports whether the grant is as large as it may become in one plan: what is
// known to be there, or as much as past claims make likely.
func (e *endpoint) isServed(g *Grant) bool {
	return g.Probe || g.Total() >= e.want && e.firsts.told == 0
}

// Advance lets time pass: what was waiting for an instant that has come is
// placed anew, and requests that have hung for too long move to the slow lane. Plan
// does so by itself.
func (s *Scheduler) Advance(now time.Time) {
	n := nanos(now)
	if !s.cfg.Off.has(SlowLane) {
		s.age(n)
	}
	for t := s.timers.due(n); t != nil; t = s.timers.due(n) {
		if t.tn != nil {
			free := unlimited
			if b := t.tn.bucket; b != nil {
				free = b.free(now, t.tn.reserved) - t.tn.queue.n
			}
			s.releaseTenant(now, t.tn, free)
			continue
		}
		if t.ep.pos == idle {
			s.forget(now, t.ep)
			continue
		}
		s.place(now, t.ep)
	}
}

// grantSlot gives one slot of the verdict's lane.
func (s *Scheduler) grantSlot(now time.Time, e *endpoint, v verdict, g *Grant) {
	s.served++
	e.served = s.served
	e.reserved++
	s.reserved++
	e.tenant.reserved++
	e.host.gate.used++
	if s.isSlow(e) {
		e.reservedSlow++
		s.slow.used++
		e.host.slow.used++
	}
	if v.probe {
		g.Probe = true
		e.circuit.LeaseProbe(now.Add(s.cfg.ProbeLease))
	}
	e.again[v.lane] = false
	switch v.lane {
	case Replay:
		g.Replay++
		e.replays++
		e.reservedRepl++
		s.replay.used++
		e.replayCredit = max(0, e.replayCredit-1)
		return
	case Retry:
		g.Oldest++
		g.Retries++
		e.reservedRetry++
	default:
		s.grantFirst(now, e, g)
	}
	if e.ready[Replay] {
		e.replayCredit = min(2, e.replayCredit+s.cfg.ReplayShare)
	}
}

// grantFirst gives a slot to a first attempt: to the oldest where there is no
// backlog to divide, else the floor's part to the oldest and the rest to new
// ones.
func (s *Scheduler) grantFirst(now time.Time, e *endpoint, g *Grant) {
	e.firsts.granted()
	e.ready[Live] = e.firsts.left()
	if e.spec.Ordered || !e.hasBacklog {
		g.Oldest++
		return
	}
	if !s.cfg.Off.has(BacklogFloor) {
		e.floorCredit += s.cfg.BacklogFloor
	}
	// Up to rounding: five fifths are one.
	if e.floorCredit >= 1-1e-9 {
		e.floorCredit--
		g.Oldest++
		return
	}
	g.Newest++
	if !e.spec.NewestFirst && !s.cfg.Off.has(BacklogFloor) {
		g.FreshSince = now.Add(-s.cfg.FreshFor)
	}
}

// NextWake returns the earliest moment at which Plan could grant something
// without another call before it: now, if it could already, and false if only
// Ready, Settle or Done can change anything.
func (s *Scheduler) NextWake(now time.Time) (time.Time, bool) {
	if s.positions[queued] > 0 && s.inFlight+s.reserved < s.cfg.GlobalMax {
		return now, true
	}
	if len(s.timers) == 0 {
		return time.Time{}, false
	}
	at := instant(s.timers[0].at)
	if at.Before(now) {
		at = now
	}
	return at, true
}
