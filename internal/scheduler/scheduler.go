package scheduler

import (
	"math"
	"time"
)

// Scheduler decides what may be claimed. It has one owner: see the package
// comment.
type Scheduler struct {
	cfg       Config
	endpoints map[ID]*endpoint
	hosts     map[string]*host
	tenants   map[string]*tenant

	ring   ring
	timers timers
	young  flights // in flight and not slow yet

	inFlight int
	reserved int
	slow     gate
	replay   gate

	plan      uint64 // number of the present Plan
	settling  bool   // in Settle: an endpoint comes back from a claim
	served    uint64 // slots granted so far
	grants    uint64
	attempts  uint64
	retries   uint64
	flaps     uint64
	circuits  [HalfOpen + 1]int // endpoints by circuit state as last seen
	positions [positions]int
}

// New returns a scheduler without endpoints.
func New(cfg Config) *Scheduler {
	cfg = cfg.withDefaults()
	s := &Scheduler{
		cfg:       cfg,
		endpoints: make(map[ID]*endpoint),
		hosts:     make(map[string]*host),
		tenants:   make(map[string]*tenant),
	}
	s.slow.max = s.part(cfg.GlobalMax, cfg.SlowShare, SlowLane)
	s.replay.max = s.part(cfg.GlobalMax, cfg.ReplayShare, ReplayLane)
	return s
}

// part is a lane's share of a limit, at least one slot.
func (s *Scheduler) part(limit int, share float64, lane Mechanisms) int {
	if s.cfg.Off.has(lane) || limit >= unlimited {
		return unlimited
	}
	return max(1, int(math.Floor(float64(limit)*share+1e-9)))
}

// SetEndpoint adds an endpoint or changes it; changes take effect at once. A
// lowered cap interrupts nothing: no more is granted until enough has ended.
func (s *Scheduler) SetEndpoint(now time.Time, spec EndpointSpec) {
	if spec.MaxInFlight <= 0 {
		spec.MaxInFlight = s.cfg.EndpointMax
	}
	if spec.HostMax == 0 {
		spec.HostMax = s.cfg.HostMax
	}
	if s.cfg.Off.has(FairShare) {
		spec.Tenant = ""
	}
	e := s.endpoints[spec.ID]
	if e == nil {
		e = &endpoint{want: s.cfg.ClaimStart, why: WaitDue}
		e.timer.ep = e
		s.endpoints[spec.ID] = e
		s.positions[idle]++
	}
	if e.pos != claiming {
		s.move(e, idle)
	}
	e.removed = false
	old := e.spec
	e.spec = spec
	s.joinHost(e)
	s.joinTenant(e, old)
	s.updateBucket(now, e)
	s.place(now, e)
}

// SetTenant limits a tenant as a whole and sets its weight. The zero spec lifts
// the limit.
func (s *Scheduler) SetTenant(now time.Time, name string, spec TenantSpec) {
	if s.cfg.Off.has(FairShare) {
		return
	}
	t := s.tenant(name)
	t.pinned = spec != TenantSpec{}
	if spec.Weight > 0 {
		t.weight = clampWeight(spec.Weight)
	}
	if spec.Rate <= 0 || s.cfg.Off.has(RateLimit) {
		t.bucket = nil
		s.releaseTenant(now, t, math.MaxInt)
		s.dropTenant(t)
		return
	}
	if t.bucket == nil {
		t.bucket = new(bucket)
	}
	t.bucket.update(now, spec.Rate, burstOf(spec.Rate, spec.Burst))
}

// RemoveEndpoint forgets an endpoint. What it has in flight keeps its slots
// until Done.
func (s *Scheduler) RemoveEndpoint(id ID) {
	e := s.endpoints[id]
	if e == nil {
		return
	}
	e.removed = true
	e.ready, e.later = [lanes]bool{}, [lanes][]int64{}
	if e.pos != claiming {
		s.move(e, idle)
	}
	s.timers.clear(&e.timer)
	s.dropIfDone(e)
}

func (s *Scheduler) dropIfDone(e *endpoint) {
	if !e.removed || e.pos == claiming || e.inFlight > 0 || e.reserved > 0 {
		return
	}
	s.timers.clear(&e.timer)
	e.host.gate.used -= e.foreign
	s.seenCircuit(e, Closed)
	s.positions[e.pos]--
	delete(s.endpoints, e.spec.ID)
	s.kickHost(e.host)
	s.leaveHost(e)
	s.leaveTenant(e)
}

// joinHost puts the endpoint on the host of its spec, with the slots that it
// has been granted. What is in flight still counts at the host that it went to.
func (s *Scheduler) joinHost(e *endpoint) {
	h := e.host
	if h == nil || h.name != e.spec.Host {
		h = s.hosts[e.spec.Host]
		if h == nil {
			h = &host{name: e.spec.Host}
			s.hosts[e.spec.Host] = h
		}
		h.refs++
		h.gate.used += e.reserved + e.foreign
		h.slow.used += e.reservedSlow
		if e.host != nil {
			e.host.gate.used -= e.reserved + e.foreign
			e.host.slow.used -= e.reservedSlow
			if e.pos == claiming {
				e.host.contending--
				h.contending++
			}
			s.leaveHost(e)
			s.kickHost(e.host)
		}
		e.host = h
	}
	h.gate.max = e.spec.HostMax
	if h.gate.max < 0 || s.cfg.Off.has(HostCap) {
		h.gate.max = unlimited
	}
	h.slow.max = s.part(h.gate.max, s.cfg.SlowShare, SlowLane)
	s.kickHost(h)
}

func (s *Scheduler) leaveHost(e *endpoint) {
	e.host.refs--
	if e.host.refs == 0 {
		delete(s.hosts, e.host.name)
	}
}

func (s *Scheduler) tenant(name string) *tenant {
	t := s.tenants[name]
	if t == nil {
		t = &tenant{name: name, weight: 1}
		t.timer.tn = t
		s.tenants[name] = t
	}
	return t
}

func (s *Scheduler) joinTenant(e *endpoint, old EndpointSpec) {
	if e.tenant == nil || old.Tenant != e.spec.Tenant {
		t := s.tenant(e.spec.Tenant)
		t.refs++
		t.reserved += e.reserved
		if e.pos == claiming {
			t.claiming++
			if !t.active {
				s.ring.add(t)
			}
		}
		if e.tenant != nil {
			e.tenant.reserved -= e.reserved
			if e.pos == claiming {
				e.tenant.claiming--
				s.retire(e.tenant)
			}
			s.leaveTenant(e)
		}
		e.tenant = t
	}
	if e.spec.Weight > 0 {
		e.tenant.weight = clampWeight(e.spec.Weight)
	}
}

func (s *Scheduler) leaveTenant(e *endpoint) {
	e.tenant.refs--
	s.dropTenant(e.tenant)
}

func (s *Scheduler) dropTenant(t *tenant) {
	if t.refs == 0 && !t.pinned {
		s.timers.clear(&t.timer)
		delete(s.tenants, t.name)
	}
}

// clampWeight keeps a turn of the round robin from being endless or useless.
func clampWeight(w float64) float64 { return math.Min(math.Max(w, 0.01), 1000) }

// Ready tells that the endpoint has at least one delivery in the lane that is
// due at that time. It is cheap and may be told any number of times.
func (s *Scheduler) Ready(now time.Time, id ID, due time.Time, lane Lane) {
	e := s.endpoints[id]
	if e == nil || e.removed {
		return
	}
	s.tell(e, nanos(now), nanos(due), lane)
	switch {
	case e.pos == queued, e.pos == claiming, e.pos == gated && e.waiting.gate != &s.replay:
		// Nothing that is due now changes what it waits for.
	default:
		s.place(now, e)
	}
}

// maxLater bounds the due times remembered per lane; beyond it the latest are
// forgotten, and reconciliation tells them again.
const maxLater = 16

func (s *Scheduler) tell(e *endpoint, now, due int64, lane Lane) {
	if due <= now {
		e.ready[lane], e.again[lane] = true, true
		return
	}
	if due-now > int64(10*time.Second) {
		// Far due times are rounded up, so that many retries make one claim.
		due = (due + int64(time.Second) - 1) / int64(time.Second) * int64(time.Second)
	}
	later := e.later[lane]
	i := len(later)
	for i > 0 && later[i-1] > due {
		i--
	}
	if i > 0 && later[i-1] == due || i == maxLater {
		return
	}
	if len(later) == maxLater {
		later = later[:maxLater-1]
	}
	later = append(later, 0)
	copy(later[i+1:], later[i:])
	later[i] = due
	e.later[lane] = later
}

// promote makes what has become due ready and returns the next due time, or 0.
func (e *endpoint) promote(now int64) int64 {
	next := int64(0)
	for lane := range e.later {
		later := e.later[lane]
		i := 0
		for i < len(later) && later[i] <= now {
			i++
		}
		if i > 0 {
			e.ready[lane] = true
			e.later[lane] = append(later[:0], later[i:]...)
			if len(e.later[lane]) == 0 {
				e.later[lane] = nil
			}
		}
		if l := e.later[lane]; len(l) > 0 && (next == 0 || l[0] < next) {
			next = l[0]
		}
	}
	return next
}

// SetForeign tells how many deliveries of the endpoint other dispatchers hold
// under live leases: they count against its caps and its host's.
func (s *Scheduler) SetForeign(now time.Time, id ID, n int) {
	e := s.endpoints[id]
	if e == nil || e.foreign == n {
		return
	}
	e.host.gate.used += n - e.foreign
	e.foreign = n
	s.kickHost(e.host)
	s.place(now, e)
}

// Settle tells what the claim of a grant brought. Slots that it did not fill
// are free again.
func (s *Scheduler) Settle(now time.Time, g Grant, got Claimed) {
	e := s.endpoints[g.Endpoint]
	if e == nil || e.pos != claiming {
		return
	}
	n := nanos(now)
	unused := max(0, g.Total()-got.total())
	s.unreserve(e, unused, max(0, g.Replay-got.Replay), max(0, g.Retries-got.Retries))

	s.settleLane(e, Live, g.firsts(), got.firsts())
	s.settleLane(e, Retry, g.Retries, got.Retries)
	s.settleLane(e, Replay, g.Replay, got.Replay)
	if g.firsts() > 0 {
		e.hasBacklog = got.More || got.firsts() >= g.firsts()
		e.ready[Live] = e.ready[Live] || got.More
	}
	if !got.NextDue.IsZero() {
		s.tell(e, n, nanos(got.NextDue), Live)
	}
	if unused == 0 {
		e.want = max(s.cfg.ClaimStart, min(2*e.want, e.spec.MaxInFlight))
	} else {
		e.want = max(s.cfg.ClaimStart, got.total())
	}
	if g.Probe && got.total() == 0 {
		if e.circuit != nil {
			e.circuit.LeaseProbe(got.ProbeHeld)
		}
		if !got.ProbeHeld.IsZero() {
			// Nothing was looked for, so nothing is known to be gone.
			e.ready[Live] = e.ready[Live] || g.firsts() > 0
			e.ready[Retry] = e.ready[Retry] || g.Retries > 0
			e.ready[Replay] = e.ready[Replay] || g.Replay > 0
		}
	}
	s.settling = true
	s.move(e, idle)
	s.place(now, e)
	s.settling = false
	s.retire(e.tenant)
	s.dropIfDone(e)
}

func (s *Scheduler) settleLane(e *endpoint, lane Lane, asked, got int) {
	if asked > 0 {
		e.ready[lane] = got >= asked || e.again[lane]
	}
	e.again[lane] = false
}

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
		e.ready[a.Lane], e.again[a.Lane] = true, true
	}
}

func boolInt(b bool) int { //nolint:revive // a conversion, not a flag
	if b {
		return 1
	}
	return 0
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
		if e.spec.Ordered {
			s.tell(e, n, n, f.lane)
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
