package scheduler

import "time"

// Snapshot is what must survive a restart and be inherited by the next owner of
// an endpoint.
type Snapshot struct {
	// AdaptiveRate is the rate that the adaptive limit found. Zero: none.
	AdaptiveRate float64 `json:"adaptive_rate,omitzero"`
	// At is when the snapshot was taken.
	At time.Time `json:"at,omitzero"`
	// Attempts and Retries are those of the last 60 s: the retry budget.
	Attempts int `json:"attempts,omitzero"`
	Retries  int `json:"retries,omitzero"`
	// Circuit is the circuit's state; the zero value is a closed circuit.
	Circuit CircuitSnapshot `json:"circuit,omitzero"`
	// LastSuccess is when the endpoint last answered with success.
	LastSuccess time.Time `json:"last_success,omitzero"`
	// Latency is the moving average.
	Latency time.Duration `json:"latency,omitzero"`
	// Shedding is set while new deliveries are shed.
	Shedding bool `json:"shedding,omitzero"`
	// ThrottledUntil is until when a 429 holds the endpoint back.
	ThrottledUntil time.Time `json:"throttled_until,omitzero"`
	// Tokens is the level of the rate limit's bucket, if the endpoint has one.
	Tokens float64 `json:"tokens,omitzero"`
}

// State is an endpoint as the scheduler sees it now.
type State struct {
	Snapshot
	// Foreign counts other dispatchers' live leases.
	Foreign int
	// InFlight counts requests in flight, Reserved slots granted and not used
	// yet.
	InFlight, Reserved int
	// Limit is what may be in flight now: the cap, less for a cold endpoint and
	// in slow start.
	Limit int
	// Rate is the rate limit in force in requests per second. Zero: none.
	Rate float64
	// RetriesLeft is what the retry budget has left.
	RetriesLeft int
	// Slow is set when the endpoint is in the slow lane.
	Slow bool
	// Until is when the reason in Wait ends by itself. Zero: with an event.
	Until time.Time
	// Wait is why the endpoint's pending deliveries wait.
	Wait Wait
}

// State returns the endpoint's state; false if it is unknown.
func (s *Scheduler) State(now time.Time, id ID) (State, bool) {
	e := s.endpoints[id]
	if e == nil || e.removed {
		return State{}, false
	}
	n := nanos(now)
	st := State{
		Snapshot:    s.snapshot(now, e),
		Foreign:     e.foreign,
		InFlight:    e.inFlight,
		Reserved:    e.reserved,
		RetriesLeft: e.budget.left(n, &s.cfg, e.reservedRetry),
		Slow:        s.isSlow(e),
		Wait:        e.why,
	}
	ramp := 0
	if e.circuit != nil {
		ramp = e.circuit.View(now).MaxInFlight
	}
	st.Limit = s.limit(n, e, ramp)
	if e.bucket != nil {
		st.Rate = e.bucket.limit
	}
	if e.pos == timed {
		st.Until = instant(e.timer.at)
	}
	if e.pos == byTenant {
		st.Until = instant(e.tenant.timer.at)
	}
	return st, true
}

// Snapshot returns what to store of the endpoint; false if it is unknown.
func (s *Scheduler) Snapshot(now time.Time, id ID) (Snapshot, bool) {
	e := s.endpoints[id]
	if e == nil {
		return Snapshot{}, false
	}
	return s.snapshot(now, e), true
}

func (s *Scheduler) snapshot(now time.Time, e *endpoint) Snapshot {
	n := nanos(now)
	snap := Snapshot{
		At:             now,
		LastSuccess:    instant(e.lastSuccess),
		Latency:        time.Duration(e.latency * float64(time.Second)),
		ThrottledUntil: instant(e.throttled),
	}
	snap.Attempts, snap.Retries = e.budget.sums(n)
	if e.circuit != nil {
		snap.Circuit = e.circuit.Snapshot(now)
	}
	snap.Shedding = e.backlog != nil && e.backlog.shedding
	if e.bucket != nil {
		snap.Tokens = e.bucket.lim.TokensAt(now)
	}
	if e.adaptive != nil {
		snap.AdaptiveRate = e.adaptive.limit
	}
	return snap
}

// Restore takes over what the last owner of the endpoint stored. It is called
// after SetEndpoint and before the endpoint's first grant.
func (s *Scheduler) Restore(now time.Time, id ID, snap Snapshot) {
	e := s.endpoints[id]
	if e == nil || snap.At.IsZero() {
		return
	}
	n := nanos(now)
	e.lastSuccess = nanos(snap.LastSuccess)
	e.latency = snap.Latency.Seconds()
	e.throttled = nanos(snap.ThrottledUntil)
	age := now.Sub(snap.At)
	if age < budgetWindow {
		i := e.budget.roll(n)
		e.budget.attempts[i] += uint32(max(0, snap.Attempts))
		e.budget.retries[i] += uint32(max(0, snap.Retries))
	}
	if snap.Shedding && age < s.cfg.ShedGrowth && !s.cfg.Off.has(Shedding) {
		e.claimsFull = true // until a claim says otherwise
		s.watchBacklog(e, &backlog{fullSince: nanos(snap.At), shedding: true})
	}
	if snap.Circuit != (CircuitSnapshot{}) {
		s.restoreCircuit(now, e, snap.Circuit)
	}
	if e.spec.Adaptive && snap.AdaptiveRate > 0 {
		e.adaptive = &adaptive{since: n, limit: snap.AdaptiveRate, last: snap.AdaptiveRate}
	}
	s.updateBucket(now, e)
	if e.bucket != nil {
		e.bucket.refill(now, snap.Tokens+max(0, age.Seconds())*e.bucket.limit)
	}
	s.place(now, e)
}

func (s *Scheduler) restoreCircuit(now time.Time, e *endpoint, snap CircuitSnapshot) {
	if s.cfg.Off.has(CircuitBreaking) {
		return
	}
	if e.circuit == nil {
		e.circuit = s.cfg.NewCircuit(e.spec)
	}
	e.circuit.Restore(now, snap)
	s.seenCircuit(e, e.circuit.View(now).State)
}

// Told takes over an opening that another process reports, and reports whether it
// was news. A closing that is reported changes nothing: each process must see its
// own success.
func (s *Scheduler) Told(now time.Time, id ID, snap CircuitSnapshot) (opened bool) {
	e := s.endpoints[id]
	if e == nil || snap.State == Closed || snap.OpenUntil.IsZero() {
		return false
	}
	if e.circuit != nil {
		own := e.circuit.Snapshot(now)
		if own.State != Closed && !snap.OpenUntil.After(own.OpenUntil) {
			return false
		}
	}
	s.restoreCircuit(now, e, snap)
	s.place(now, e)
	return true
}

// HostState is a host as the scheduler sees it now.
type HostState struct {
	Name string
	// Endpoints are those known on the host, and Open those of them whose circuit is
	// not closed, as it was when they were last looked at.
	Endpoints, Open int
	// InFlight counts the slots of the host that are taken.
	InFlight int
	// Waiting is set when an endpoint would take a slot if there were one.
	Waiting bool
}

// Hosts calls see for every host.
func (s *Scheduler) Hosts(see func(HostState)) {
	for _, h := range s.hosts {
		see(HostState{
			Name: h.name, Endpoints: h.refs, Open: h.open, InFlight: h.gate.used, Waiting: h.contending > 0,
		})
	}
}

// Totals are the scheduler's figures for metrics.
type Totals struct {
	// Attempts, Flaps, Grants and Retries are counted since New.
	Attempts, Flaps, Grants, Retries uint64
	// CircuitsHalfOpen and CircuitsOpen count endpoints by circuit state, as it
	// was when they were last looked at.
	CircuitsHalfOpen, CircuitsOpen int
	// Endpoints and Tenants are those known.
	Endpoints, Tenants int
	// InFlight and Reserved count the slots of the process.
	InFlight, Reserved int
	// Parked counts endpoints that wait for an instant, Queued those that may be
	// granted slots, Waiting those that wait for a slot of their own, of their
	// host or of a lane, or for their tenant's rate.
	Parked, Queued, Waiting int
	// Replays and Slow count the slots used in the two lanes.
	Replays, Slow int
	// Urgent counts the queued endpoints whose first attempts must not wait. Others have
	// only retries and replays, fail, are slow, or are to be probed.
	Urgent int
}

// Totals returns the present figures.
func (s *Scheduler) Totals() Totals {
	return Totals{
		Attempts: s.attempts, Flaps: s.flaps, Grants: s.grants, Retries: s.retries,
		CircuitsHalfOpen: s.circuits[HalfOpen],
		CircuitsOpen:     s.circuits[Open],
		Endpoints:        len(s.endpoints),
		Tenants:          len(s.tenants),
		InFlight:         s.inFlight,
		Reserved:         s.reserved,
		Parked:           s.positions[timed],
		Queued:           s.positions[queued],
		Waiting:          s.positions[slots] + s.positions[gated] + s.positions[byTenant],
		Replays:          s.replay.used,
		Slow:             s.slow.used,
		Urgent:           s.urgent,
	}
}
