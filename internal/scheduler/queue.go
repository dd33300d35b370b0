package scheduler

// epList is an intrusive doubly linked list: an endpoint is in at most one.
type epList struct {
	head, tail *endpoint
	n          int
}

func (l *epList) pushBack(e *endpoint) { l.insert(e, l.tail) }

// insert puts e behind after, or at the front if that is nil.
func (l *epList) insert(e, after *endpoint) {
	e.prev, e.list = after, l
	if after == nil {
		e.next, l.head = l.head, e
	} else {
		e.next, after.next = after.next, e
	}
	if e.next == nil {
		l.tail = e
	} else {
		e.next.prev = e
	}
	l.n++
}

func (l *epList) remove(e *endpoint) {
	if e.prev == nil {
		l.head = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.tail = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next, e.list = nil, nil, nil
	l.n--
}

// gate is a limit that several endpoints share: a host, the slow lane, a host's
// part of the slow lane, the replay lane. Endpoints that find it full wait
// here, and tenants are called in turn, so that one with a thousand waiting
// endpoints does not hold back one with a single endpoint.
type gate struct {
	max  int
	used int // slots reserved or in flight
	// queued counts endpoints that stand in a tenant's queue because this gate
	// had room for them. Only as many are called as there are free slots, so
	// that a full host's waiters are not looked at over and over.
	queued int

	first, last *waiting // tenants with waiting endpoints, next one first
	byTenant    map[*tenant]*waiting
}

// waiting holds the endpoints of one tenant that wait at a gate.
type waiting struct {
	tenant     *tenant
	gate       *gate
	list       epList
	prev, next *waiting
}

func (g *gate) free() int { return g.max - g.used }

// offers reports whether another endpoint may queue for the gate's slots.
func (g *gate) offers() bool { return g.free() > g.queued }

func (g *gate) wait(e *endpoint) {
	w := g.byTenant[e.tenant]
	if w == nil {
		w = &waiting{tenant: e.tenant, gate: g}
		if g.byTenant == nil {
			g.byTenant = make(map[*tenant]*waiting)
		}
		g.byTenant[e.tenant] = w
		g.append(w)
	}
	w.list.pushBack(e)
	e.waiting = w
}

func (g *gate) leave(e *endpoint) {
	w := e.waiting
	w.list.remove(e)
	e.waiting = nil
	if w.list.n > 0 {
		return
	}
	g.unlink(w)
	delete(g.byTenant, w.tenant)
	if g.first == nil {
		g.byTenant = nil
	}
}

// next returns the waiting endpoint whose turn it is among those that fit, and
// moves its tenant to the end of the turn.
func (g *gate) next(fits func(*endpoint) bool) *endpoint {
	for w := g.first; w != nil; w = w.next {
		for e := w.list.head; e != nil; e = e.next {
			if !fits(e) {
				continue
			}
			g.unlink(w)
			g.append(w)
			return e
		}
	}
	return nil
}

func (g *gate) append(w *waiting) {
	w.prev, w.next = g.last, nil
	if g.last == nil {
		g.first = w
	} else {
		g.last.next = w
	}
	g.last = w
}

func (g *gate) unlink(w *waiting) {
	if w.prev == nil {
		g.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		g.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
}
