package scheduler

import (
	"math"
	"time"
)

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
	e.ready, e.firsts, e.later = [lanes]bool{}, due{}, [lanes][]int64{}
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
	s.forgetBacklog(e)
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
		h.open += boolInt(e.seen != Closed)
		if e.host != nil {
			e.host.gate.used -= e.reserved + e.foreign
			e.host.slow.used -= e.reservedSlow
			e.host.open -= boolInt(e.seen != Closed)
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
