package webhook

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook/internal/scheduler"
)

// The part of the loop that takes endpoints over and gives them up. An endpoint
// is known to the scheduler while it is this dispatcher's, and only then.

const (
	// recounts is at how many heartbeats the leases and the circuit of an endpoint
	// that was taken over are looked at again: its last owner learns of the change
	// a heartbeat later, and goes on claiming until then.
	recounts = 3

	// keepBeats is after how many heartbeats the levels of rate limits are stored.
	keepBeats = 5

	// unservedEvery is after how many heartbeats it is told again that nobody serves a
	// tenant.
	unservedEvery = 30
)

// place is where the loop stands with an endpoint that is this dispatcher's.
type place struct {
	tenant string
	// taken is false until what the last owner left has been loaded; the scheduler
	// does not know the endpoint before.
	taken bool
	// early are the lanes that became ready before.
	early []ReadyLane
	// backlogged is set when the last claim brought deliveries that have been due for
	// so long that those which have just become due are not next to them. Only then
	// is it worth looking at both ends of the queue.
	backlogged bool
	// floors are from when on its lanes may hold something to claim.
	floors floors
	// foreign is set while other dispatchers have leases on its deliveries.
	foreign bool
	// recount is at how many heartbeats to look at the endpoint again.
	recount int
	// limited is set when the endpoint has a rate limit.
	limited bool
	// shedUntil is until when the endpoint's new deliveries are shed; zero: they are
	// not.
	shedUntil time.Time
	// stored is when the state was taken that this dispatcher had stored last.
	stored time.Time
}

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

// takeMembers takes in who is alive, after each heartbeat.
func (l *loop) takeMembers() {
	l.beats++
	l.recount()
	if l.beats%keepBeats == 0 {
		l.keepLevels()
	}
	l.watchHosts(l.now())
	l.reportUnserved()
	now, before := l.r.cluster.assigned.Load(), l.assigned
	if before != nil && now.sameAs(before) {
		return
	}
	l.assigned = now
	shared := len(now.members) > 1 || before != nil && len(before.members) > 1
	if before == nil || !slices.Equal(now.members, before.members) {
		l.r.core.log.Info("webhook: dispatchers changed", "alive", len(now.members))
	}
	l.assignAll()
	for _, p := range l.places {
		if shared && !p.taken {
			p.recount = recounts
		}
	}
}

// assignAll decides anew whose every endpoint is.
func (l *loop) assignAll() {
	unserved := l.unserved
	l.unserved = make(map[string]int)
	l.takeChanged(l.r.registry.all())
	for tenant := range l.unserved {
		if since, ok := unserved[tenant]; ok {
			l.unserved[tenant] = since
		}
	}
}

// takeOpened has the state loaded of endpoints of this dispatcher whose circuits are
// open, as somebody else has found.
func (l *loop) takeOpened(ids []uuid.UUID) {
	now := l.now()
	var wanted []uuid.UUID
	for _, id := range ids {
		if p := l.places[id]; p == nil || !p.taken {
			continue
		}
		if snap, ok := l.sched.Snapshot(now, id); ok && snap.Circuit.State == scheduler.Closed {
			wanted = append(wanted, id)
		}
	}
	l.r.cluster.wantHealth(wanted)
}

// recount looks again at the endpoints that others have leases on, or may have.
func (l *loop) recount() {
	var ids []uuid.UUID
	for id, p := range l.places {
		if !p.taken || p.recount == 0 && !p.foreign {
			continue
		}
		p.recount = max(0, p.recount-1)
		ids = append(ids, id)
	}
	l.r.cluster.wantHealth(ids)
}

// keepLevels has the state of endpoints with a rate limit stored, so that a next
// owner does not grant a fresh burst.
func (l *loop) keepLevels() {
	for id, p := range l.places {
		if p.taken && p.limited {
			l.keep(id, p)
		}
	}
}

// assign decides whose an endpoint is. It reports whether it is newly this
// dispatcher's, so that what its last owner left must be loaded first.
func (l *loop) assign(t *target) (wanted bool) {
	id := t.record.ID
	p := l.places[id]
	owner := l.r.cluster.assigned.Load().owner(t, l.learnRegion(t.record.Tenant))
	mine := t.record.DeletedAt.IsZero() && owner == l.r.cluster.id
	if owner == uuid.Nil && t.record.DeletedAt.IsZero() {
		if _, ok := l.unserved[t.record.Tenant]; !ok {
			l.unserved[t.record.Tenant] = l.beats
		}
	}
	switch {
	case mine && p == nil:
		l.places[id] = &place{tenant: t.record.Tenant}
		return true
	case mine && p.taken:
		l.setEndpoint(l.now(), p, t)
	case !mine && p != nil:
		l.giveUp(id, p)
	}
	return false
}

func (l *loop) setEndpoint(now time.Time, p *place, t *target) {
	spec := l.r.spec(t, l.limits(p.tenant))
	p.limited = spec.Rate > 0 || spec.Adaptive
	l.sched.SetEndpoint(now, spec)
}

// giveUp leaves an endpoint to its next owner.
func (l *loop) giveUp(id uuid.UUID, p *place) {
	if p.taken {
		l.keep(id, p)
		l.sched.RemoveEndpoint(id)
		l.leaveTenant(l.now(), p.tenant)
	}
	delete(l.places, id)
}

// keep has the endpoint's state stored, if there is anything to it.
func (l *loop) keep(id uuid.UUID, p *place) {
	snap, ok := l.sched.Snapshot(l.now(), id)
	if ok && (snap.Attempts > 0 || !p.shedUntil.IsZero() || snap.Circuit != (scheduler.CircuitSnapshot{}) || !snap.ThrottledUntil.IsZero()) {
		l.store(id, p, snap)
	}
}

// store has a state stored; p is nil for an endpoint that was given up.
func (l *loop) store(id uuid.UUID, p *place, snap scheduler.Snapshot) {
	var shedUntil time.Time
	if p != nil {
		p.stored = snap.At
		shedUntil = p.shedUntil
	}
	l.r.cluster.keep(id, snap, shedUntil)
}

// want takes endpoints over: at once if there is nobody to take them from, else
// when their health has been loaded.
func (l *loop) want(ids []uuid.UUID) {
	if l.r.cluster.store != nil {
		l.r.cluster.wantHealth(ids)
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
			l.takeOver(now, h.EndpointID, p, snap, h.ShedUntil)
		case ok && snap.At.After(p.stored):
			// What another dispatcher found out since. That it saw a circuit close
			// changes nothing here.
			if l.sched.Told(now, h.EndpointID, snap.Circuit) {
				l.r.core.log.Warn("webhook: circuit open, as another dispatcher tells", "endpoint", h.EndpointID,
					"until", snap.Circuit.OpenUntil)
			}
			p.stored = snap.At
		}
		l.countForeign(now, h, p)
	}
}

func (l *loop) takeOver(now time.Time, id uuid.UUID, p *place, snap scheduler.Snapshot, shedUntil time.Time) {
	t := l.r.registry.get(id)
	if t == nil {
		return
	}
	p.taken, p.stored = true, snap.At
	l.joinTenant(now, p.tenant)
	l.setEndpoint(now, p, t)
	l.sched.Restore(now, id, snap)
	l.inheritShedding(id, p, shedUntil)
	for _, r := range p.early {
		l.sched.Ready(now, id, r.DueAt, scheduler.Lane(r.Lane))
	}
	p.early = nil
	if l.assigned != nil && len(l.assigned.members) > 1 || snap.At.After(now.Add(-time.Hour)) {
		// It may have been another's until now: look for what that one left.
		poke(l.r.reconciled)
	}
}

// countForeign counts the leases of others against the endpoint's caps.
func (l *loop) countForeign(now time.Time, h *loadedHealth, p *place) {
	if h.Leased == 0 && !p.foreign {
		return
	}
	own := h.own
	if st, ok := l.sched.State(now, h.EndpointID); ok {
		own = max(own, st.InFlight) + st.Reserved
	}
	foreign := max(0, h.Leased-own)
	l.sched.SetForeign(now, h.EndpointID, foreign)
	p.foreign = foreign > 0
}
