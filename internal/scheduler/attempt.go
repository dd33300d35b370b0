package scheduler

import (
	"time"
)

// unreserve gives back n slots, of which so many are replays and retries.
func (s *Scheduler) unreserve(e *endpoint, n, replays, retries int) {
	n = min(n, e.reserved)
	if n == 0 {
		return
	}
	e.reserved -= n
	s.reserved -= n
	e.tenant.reserved -= n
	e.host.gate.used -= n
	replays = min(replays, e.reservedRepl)
	e.reservedRepl -= replays
	e.replays -= replays
	s.replay.used -= replays
	e.reservedRetry -= min(retries, e.reservedRetry)
	slow := min(n, e.reservedSlow)
	e.reservedSlow -= slow
	s.slow.used -= slow
	e.host.slow.used -= slow
	s.kickHost(e.host)
	s.kickLanes()
}

// Release gives back the slot of a claimed delivery that is not sent, because
// the dispatcher stops or the lease is too short. The delivery is due again.
func (s *Scheduler) Release(now time.Time, id ID, a Attempt) {
	e := s.endpoints[id]
	if e == nil {
		return
	}
	s.release(e, a)
	s.place(now, e)
	s.dropIfDone(e)
}

func (s *Scheduler) release(e *endpoint, a Attempt) {
	s.unreserve(e, 1, boolInt(a.Lane == Replay), boolInt(a.Lane == Retry))
	if a.Probe && e.circuit != nil {
		e.circuit.LeaseProbe(time.Time{})
	}
	if !e.removed {
		e.readyNow(a.Lane)
	}
}

// Start is asked right before a claimed delivery is sent. It returns the
// request in flight, or nil and the reason why it must not be sent now: then
// its slot is given back, as if by Release, and the delivery goes back to
// pending without an attempt. That happens only when things changed after the
// grant: the circuit opened, the endpoint was paused or removed, or its rate
// was lowered.
func (s *Scheduler) Start(now time.Time, id ID, a Attempt) (*Flight, Wait) {
	e := s.endpoints[id]
	if e == nil {
		return nil, WaitRemoved
	}
	if why := s.refuse(now, e, a); why != WaitNone {
		s.release(e, a)
		s.place(now, e)
		s.dropIfDone(e)
		return nil, why
	}
	n := nanos(now)
	f := &Flight{
		ep: e, host: e.host, started: n, number: a.Number, lane: a.Lane, probe: a.Probe,
		slow: e.reservedSlow > 0,
	}
	s.startSlot(e, f)
	if a.Probe {
		e.probe = f
	}
	e.budget.count(n, a.Number)
	if e.backlog != nil && a.Lane == Live {
		e.backlog.took(nanos(a.Due))
	}
	s.attempts++
	if a.Number > 1 {
		s.retries++
	}
	if e.why == WaitRetryBudget {
		s.place(now, e) // one more attempt may allow one more retry
	}
	if e.circuit == nil && !s.cfg.Off.has(CircuitBreaking) {
		e.circuit = s.cfg.NewCircuit(e.spec)
	}
	return f, WaitNone
}

func (s *Scheduler) refuse(now time.Time, e *endpoint, a Attempt) Wait {
	switch {
	case e.removed:
		return WaitRemoved
	case e.spec.Paused:
		return WaitPaused
	case !a.Probe && e.circuit != nil && e.circuit.View(now).State != Closed:
		return WaitCircuitOpen
	case e.bucket != nil && !e.bucket.take(now):
		return WaitRateLimited
	}
	if b := e.tenant.bucket; b != nil && !b.take(now) {
		return WaitRateLimited
	}
	return WaitNone
}

// startSlot turns a reserved slot, where there is one, into one in flight.
func (s *Scheduler) startSlot(e *endpoint, f *Flight) {
	if e.reserved > 0 {
		e.reserved--
		s.reserved--
		e.tenant.reserved--
	} else {
		e.host.gate.used++
	}
	s.fly(e, f)
	if f.slow {
		e.reservedSlow--
	}
	if f.lane == Retry && e.reservedRetry > 0 {
		e.reservedRetry--
	}
	if f.lane == Replay && !f.test {
		if e.reservedRepl > 0 {
			e.reservedRepl--
		} else {
			e.replays++
			s.replay.used++
		}
	}
}

func (s *Scheduler) fly(e *endpoint, f *Flight) {
	if e.inFlight == 0 && !e.failing {
		e.lastSign = f.started
	}
	e.inFlight++
	s.inFlight++
	if !s.cfg.Off.has(SlowLane) {
		s.young.pushBack(f)
	}
}

// StartTest takes a slot for a test send. It passes an open circuit and obeys
// the caps; nil means that there is no slot now, and why.
func (s *Scheduler) StartTest(now time.Time, id ID) (*Flight, Wait) {
	e := s.endpoints[id]
	switch {
	case e == nil || e.removed:
		return nil, WaitRemoved
	case e.used() >= e.spec.MaxInFlight, e.host.gate.free() <= 0, s.inFlight+s.reserved >= s.cfg.GlobalMax:
		return nil, WaitConcurrency
	}
	f := &Flight{ep: e, host: e.host, started: nanos(now), test: true}
	e.host.gate.used++
	s.fly(e, f)
	return f, WaitNone
}

// used is how many of the endpoint's slots are taken.
func (e *endpoint) used() int { return e.inFlight + e.reserved + e.foreign }

// Done tells how a started request ended and frees its slot.
func (s *Scheduler) Done(now time.Time, id ID, r Result) Change {
	f := r.Flight
	if f == nil || f.done {
		return Change{}
	}
	e := f.ep
	n := nanos(now)
	s.endSlot(e, f)
	var change Change
	if !f.test {
		change = s.judge(now, n, e, f, r)
	}
	if !e.removed {
		if !r.RetryAt.IsZero() {
			lane := f.lane
			if lane == Live {
				lane = Retry
			}
			s.tell(e, n, nanos(r.RetryAt), lane)
		}
		s.place(now, e)
	}
	s.dropIfDone(e)
	return change
}

func (s *Scheduler) endSlot(e *endpoint, f *Flight) {
	f.done = true
	e.inFlight--
	s.inFlight--
	f.host.gate.used--
	switch {
	case f.aged:
		e.aged--
	case !s.cfg.Off.has(SlowLane):
		s.young.remove(f)
	}
	if f.slow {
		s.slow.used--
		f.host.slow.used--
	}
	if f.lane == Replay && !f.test {
		e.replays--
		s.replay.used--
	}
	s.kickHost(f.host)
	s.kickLanes()
}
