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
	young  flights                // in flight and not slow yet
	full   map[*endpoint]struct{} // those with a backlog

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
	urgent    int // of the queued ones, those whose first attempts must not wait
}

// New returns a scheduler without endpoints.
func New(cfg Config) *Scheduler {
	cfg = cfg.withDefaults()
	s := &Scheduler{
		cfg:       cfg,
		endpoints: make(map[ID]*endpoint),
		hosts:     make(map[string]*host),
		tenants:   make(map[string]*tenant),
		full:      make(map[*endpoint]struct{}),
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

// Ready tells that the endpoint has at least one delivery in the lane that is
// due at that time. It is cheap and may be told any number of times.
func (s *Scheduler) Ready(now time.Time, id ID, due time.Time, lane Lane) {
	e := s.endpoints[id]
	if e == nil || e.removed {
		return
	}
	s.tell(e, nanos(now), nanos(due), lane)
	s.readied(now, e)
}

// Arrived tells that n first attempts have become due of which it was not told
// before. Where all are told like this, claims ask for exactly what is there.
func (s *Scheduler) Arrived(now time.Time, id ID, n int) {
	e := s.endpoints[id]
	if e == nil || e.removed || n <= 0 {
		return
	}
	e.firsts.arrived(n, e.pos == claiming)
	e.ready[Live] = true
	s.readied(now, e)
}

func (s *Scheduler) readied(now time.Time, e *endpoint) {
	switch {
	case e.pos == queued:
		s.offerUrgent(e)
	case e.pos == claiming, e.pos == gated && e.waiting.gate != &s.replay:
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
		e.readyNow(lane)
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

// readyNow notes that an unknown number is due in the lane.
func (e *endpoint) readyNow(lane Lane) {
	e.ready[lane], e.again[lane] = true, true
	if lane == Live {
		e.firsts.some(e.pos == claiming)
	}
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
			e.readyNow(Lane(lane))
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

	sized := !e.firsts.more
	backlog := e.firsts.settle(g.firsts(), got.firsts())
	e.ready[Live] = e.firsts.left()
	s.settleLane(e, Retry, g.Retries, got.Retries)
	s.settleLane(e, Replay, g.Replay, got.Replay)
	if g.firsts() > 0 {
		e.hasBacklog = got.More || backlog
		left := leavesOld(g, got)
		if got.More || left {
			e.readyNow(Live)
		}
		s.noteFull(n, e, e.hasBacklog || left)
	}
	if !got.NextDue.IsZero() {
		s.tell(e, n, nanos(got.NextDue), Live)
	}
	if unused == 0 && !sized {
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
			if g.firsts() > 0 {
				e.readyNow(Live)
			}
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

// leavesOld reports whether a grant fell short only because its newest end was
// asked for what had just become due: what is older may still be there. The next
// grant, without a known backlog, asks the oldest end alone and finds out.
func leavesOld(g Grant, got Claimed) bool {
	return !g.FreshSince.IsZero() && got.Newest < g.Newest && got.Oldest-got.Retries >= g.Oldest-g.Retries
}

func (s *Scheduler) settleLane(e *endpoint, lane Lane, asked, got int) {
	if asked > 0 {
		e.ready[lane] = got >= asked || e.again[lane]
	}
	e.again[lane] = false
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
