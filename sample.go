package webhook

import (
	"context"
	"math/bits"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// telling is what a run keeps for its observer.
type telling struct {
	observer DispatchObserver // nil: nobody is told

	mu     sync.Mutex // protects latest
	latest map[uuid.UUID]outcomes

	// Since when the oldest due deliveries have been due, as of the last
	// reconciliation, in nanoseconds of the database's time; 0 for none.
	oldestHealthy, oldestOther atomic.Int64
}

func newTelling(o DispatchObserver) *telling {
	return &telling{observer: o, latest: make(map[uuid.UUID]outcomes)}
}

// outcomes are those of the latest 20 attempts of an endpoint, the newest in the lowest
// bit; a failure is 1.
type outcomes uint32

// steady is how many attempts without a failure make an endpoint a healthy one
// (docs/design.md §1).
const steady = 20

func (o outcomes) healthy() bool { return bits.OnesCount32(uint32(o)) == 0 }

// seen takes in an attempt and reports whether the endpoint was healthy before it. Only
// endpoints with failures are kept.
func (t *telling) seen(id uuid.UUID, report *AttemptReport) (wasHealthy bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.latest[id]
	if report.Uncounted || report.Status == http.StatusTooManyRequests {
		return before.healthy() // neither says anything about the endpoint
	}
	now := before << 1
	if report.Class != ClassNone {
		now |= 1
	}
	if now &= 1<<steady - 1; now == 0 {
		delete(t.latest, id)
	} else {
		t.latest[id] = now
	}
	return before.healthy()
}

func (t *telling) healthy(id uuid.UUID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.latest[id].healthy()
}

// oldestDue finds since when the oldest due deliveries have been due.
type oldestDue struct{ healthy, other time.Time }

// look takes in lanes of a reconciliation.
func (o *oldestDue) look(r *run, lanes []ReadyLane, now time.Time) {
	for i := range lanes {
		lane := &lanes[i]
		if lane.DueAt.After(now) {
			continue
		}
		t := r.registry.get(lane.EndpointID)
		if t == nil || !t.sendable() || !r.cluster.owns(t) {
			continue
		}
		oldest := &o.other
		if r.telling.healthy(lane.EndpointID) {
			oldest = &o.healthy
		}
		if oldest.IsZero() || lane.DueAt.Before(*oldest) {
			*oldest = lane.DueAt
		}
	}
}

// waited keeps what a whole reconciliation found.
func (t *telling) waited(o *oldestDue) {
	keep := func(into *atomic.Int64, at time.Time) {
		if at.IsZero() {
			into.Store(0)
			return
		}
		into.Store(at.UnixNano())
	}
	keep(&t.oldestHealthy, o.healthy)
	keep(&t.oldestOther, o.other)
}

// sample tells the observer how the dispatcher is.
func (r *run) sample(context.Context) error {
	now := r.d.clock.now()
	age := func(at *atomic.Int64) time.Duration {
		since := at.Load()
		if since == 0 {
			return 0
		}
		return max(now.Sub(time.Unix(0, since)), 0)
	}
	s := DispatcherSample{
		DispatcherGauges:   r.gauges(),
		Listening:          r.listening.Load(),
		Notifies:           r.cluster.notifier != nil,
		Members:            len(r.cluster.assigned.Load().members),
		OldestReadyHealthy: age(&r.telling.oldestHealthy),
		OldestReadyOthers:  age(&r.telling.oldestOther),
	}
	r.observe(func() { r.telling.observer.StateSampled(s) })
	return nil
}

// gauges are what the dispatcher has at hand.
func (r *run) gauges() DispatcherGauges {
	g := DispatcherGauges{MaxInFlight: r.cfg.MaxInFlight, Unrecorded: r.recorder.unrecorded()}
	t := r.loop.totals.Load()
	if t == nil {
		return g
	}
	g.Endpoints, g.Tenants = t.Endpoints, t.Tenants
	g.InFlight, g.Slow = t.InFlight, t.Slow
	g.Ready, g.Waiting, g.Parked = t.Queued, t.Waiting, t.Parked
	g.CircuitsOpen, g.CircuitsHalfOpen = t.CircuitsOpen, t.CircuitsHalfOpen
	return g
}
