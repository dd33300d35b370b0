package webhook

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook/internal/scheduler"
)

// The part of the loop that takes endpoints over and gives them up. An endpoint
// is known to the scheduler while it is this dispatcher's, and only then.

// takeChanged takes in endpoints that are new or changed.
func (l *loop) takeChanged(changed []*target) {
	var wanted []uuid.UUID
	for _, t := range changed {
		if l.assign(t) {
			wanted = append(wanted, t.record.ID)
		}
	}
	l.want(wanted)
}

// takeMembers takes in who is alive, and looks again at the endpoints that others
// still have leases on.
func (l *loop) takeMembers() {
	members := *l.r.cluster.members.Load()
	if slices.Equal(members, l.members) {
		l.recountForeign()
		return
	}
	l.members = members
	l.r.core.log.Info("webhook: dispatchers changed", "alive", len(members))
	l.takeChanged(l.r.registry.all())
}

func (l *loop) recountForeign() {
	var ids []uuid.UUID
	for id, p := range l.places {
		if p.foreign {
			ids = append(ids, id)
		}
	}
	l.r.cluster.wantHealth(ids, false)
}

// assign decides whose an endpoint is. It reports whether it is newly this
// dispatcher's, so that what its last owner left must be loaded first.
func (l *loop) assign(t *target) (wanted bool) {
	id := t.record.ID
	p := l.places[id]
	mine := t.record.DeletedAt.IsZero() && l.r.cluster.owns(t.host)
	switch {
	case mine && p == nil:
		l.places[id] = &place{}
		return true
	case mine && p.taken:
		l.sched.SetEndpoint(l.now(), l.r.spec(t))
	case !mine && p != nil:
		l.giveUp(id, p)
	}
	return false
}

// giveUp leaves an endpoint to its next owner.
func (l *loop) giveUp(id uuid.UUID, p *place) {
	if p.taken {
		l.keep(id)
		l.sched.RemoveEndpoint(id)
	}
	delete(l.places, id)
}

// keep has the endpoint's state stored, if there is anything to it.
func (l *loop) keep(id uuid.UUID) {
	snap, ok := l.sched.Snapshot(l.now(), id)
	if ok && (snap.Attempts > 0 || snap.Circuit != (scheduler.CircuitSnapshot{}) || !snap.ThrottledUntil.IsZero()) {
		l.r.cluster.keep(id, snap)
	}
}

// want takes endpoints over: at once if there is nobody to take them from, else
// when their health has been loaded.
func (l *loop) want(ids []uuid.UUID) {
	if l.r.cluster.store != nil {
		l.r.cluster.wantHealth(ids, false)
		return
	}
	health := make([]loadedHealth, len(ids))
	for i, id := range ids {
		health[i].EndpointID = id
	}
	l.takeHealth(health)
}

// takeHealth takes in what is stored about endpoints: those that wait for it are
// taken over, for the others it may tell of an opening, or of leases that have
// ended.
func (l *loop) takeHealth(health []loadedHealth) {
	now := l.now()
	for i := range health {
		h := &health[i]
		p := l.places[h.EndpointID]
		if p == nil {
			continue
		}
		snap, ok := h.snapshot()
		switch {
		case !p.taken:
			l.takeOver(now, h.EndpointID, p, snap)
		case h.opened && ok:
			l.sched.Told(now, h.EndpointID, snap.Circuit)
		}
		l.countForeign(now, h, p)
	}
}

func (l *loop) takeOver(now time.Time, id uuid.UUID, p *place, snap scheduler.Snapshot) {
	t := l.r.registry.get(id)
	if t == nil {
		return
	}
	p.taken = true
	l.sched.SetEndpoint(now, l.r.spec(t))
	l.sched.Restore(now, id, snap)
	for _, r := range p.early {
		l.sched.Ready(now, id, r.DueAt, scheduler.Lane(r.Lane))
	}
	p.early = nil
	if len(l.members) > 1 || snap.At.After(now.Add(-time.Hour)) {
		// It may have been another's until now: look for what that one left.
		poke(l.r.reconciled)
	}
}

// countForeign counts the leases of others against the endpoint's caps.
func (l *loop) countForeign(now time.Time, h *loadedHealth, p *place) {
	if h.Leased == 0 && !p.foreign {
		return
	}
	own := 0
	if st, ok := l.sched.State(now, h.EndpointID); ok {
		own = st.InFlight + st.Reserved
	}
	foreign := max(0, h.Leased-own)
	l.sched.SetForeign(now, h.EndpointID, foreign)
	p.foreign = foreign > 0
}
