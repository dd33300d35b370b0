package scheduler

import (
	"cmp"
	"time"
)

// backlog is what is remembered about an endpoint whose claims stay full: more is
// due than it can be sent. Nothing is counted for any other endpoint.
type backlog struct {
	fullSince int64
	marks     []backlogMark // oldest first, one a tenth of the growth time
	asked     int64         // of the mark that the last query was about; 0: none
	shedding  bool
}

// backlogMark is a moment to compare the backlog with: it has grown since if more
// of what became due since then still waits than was taken of what waited then. So
// neither side of the comparison needs the whole backlog counted.
type backlogMark struct {
	at    int64
	taken int64
}

// BacklogQuery asks how much waits for an endpoint, in the lane of first attempts.
type BacklogQuery struct {
	Endpoint ID
	// Limit is up to how many are counted.
	Limit int64
	// Since and SinceLimit ask, likewise, for those that became due after Since.
	// Zero: not asked.
	Since      time.Time
	SinceLimit int64
}

// BacklogCount answers a [BacklogQuery].
type BacklogCount struct {
	// Total is how much waits, or the query's Limit if that is more.
	Total int64
	// Since is how much of it became due after the query's Since, or SinceLimit.
	Since int64
}

// recentSuccess is how recent an endpoint's last success must be for it to
// count as answering: an outage is not an overload.
const recentSuccess = time.Minute

// BacklogInterval is how often [Scheduler.Backlogs] is to be asked.
func (s *Scheduler) BacklogInterval() time.Duration { return s.cfg.ShedGrowth / 10 }

// Backlogs appends to into for which endpoints to count what waits: those whose
// claims have stayed full for an interval, and may be shed. The answers go to
// [Scheduler.ShouldShed].
func (s *Scheduler) Backlogs(now time.Time, into []BacklogQuery) []BacklogQuery {
	n := nanos(now)
	for e := range s.full {
		b := e.backlog
		switch threshold := s.shedBacklog(e); {
		case !e.claimsFull || threshold < 0 || e.spec.Ordered:
			s.forgetBacklog(e)
		case n-b.fullSince >= int64(s.BacklogInterval()):
			q := BacklogQuery{Endpoint: e.spec.ID, Limit: threshold + 1}
			b.asked = 0
			if m := b.mark(n - int64(s.cfg.ShedGrowth)); m != nil {
				b.asked = m.at
				// What is taken until the answer is there counts as well.
				q.Since, q.SinceLimit = instant(m.at), m.taken+m.taken/10+100
			}
			into = append(into, q)
		}
	}
	return into
}

// shedBacklog is the backlog over which the endpoint may be shed; negative: never.
func (s *Scheduler) shedBacklog(e *endpoint) int64 {
	if s.cfg.Off.has(Shedding) {
		return -1
	}
	return cmp.Or(e.spec.ShedBacklog, s.cfg.ShedBacklog)
}

// ShouldShed takes the answer to a query and reports whether new deliveries of the
// endpoint are to be recorded as shed: its backlog is over the threshold and grew
// over the last ten minutes, although it answers. Never in an outage (circuit not
// closed, or no recent success) and never for an ordered endpoint, unless its spec
// allows it. Once begun, shedding goes on until the backlog is down to the
// threshold.
func (s *Scheduler) ShouldShed(now time.Time, id ID, c BacklogCount) bool {
	e := s.endpoints[id]
	if e == nil || e.backlog == nil {
		return false
	}
	b, n := e.backlog, nanos(now)
	threshold := s.shedBacklog(e)
	switch {
	case threshold < 0, e.spec.Ordered, c.Total < threshold/2:
		b.marks, b.shedding = nil, false
		return false
	case !s.answers(now, n, e):
		// What waits now waits because of the outage. Growth is measured anew.
		b.marks, b.shedding = nil, false
		return false
	}
	grew := b.grew(c)
	b.roll(n, s.cfg.ShedGrowth)
	switch {
	case c.Total <= threshold:
		b.shedding = false
	case grew:
		b.shedding = true
	}
	return b.shedding
}

// Shedding reports what the last answers came to. It ends by itself when claims are
// no longer full.
func (s *Scheduler) Shedding(id ID) bool {
	e := s.endpoints[id]
	return e != nil && e.backlog != nil && e.backlog.shedding
}

// answers reports whether the endpoint succeeds at all. A 429 is an answer: it says
// that the endpoint cannot keep up.
func (s *Scheduler) answers(now time.Time, n int64, e *endpoint) bool {
	if e.circuit != nil && e.circuit.View(now).State != Closed {
		return false
	}
	return !e.spec.Paused && (e.throttled > n || e.lastSuccess > 0 && n-e.lastSuccess <= int64(recentSuccess))
}

// noteFull takes in whether a claim of first attempts left some behind.
func (s *Scheduler) noteFull(now int64, e *endpoint, full bool) {
	e.claimsFull = full
	if full && e.backlog == nil && !s.cfg.Off.has(Shedding) {
		s.watchBacklog(e, &backlog{fullSince: now})
	}
}

func (s *Scheduler) watchBacklog(e *endpoint, b *backlog) {
	e.backlog = b
	s.full[e] = struct{}{}
}

func (s *Scheduler) forgetBacklog(e *endpoint) {
	e.backlog = nil
	delete(s.full, e)
}

// took counts a delivery that became due at an instant and no longer waits.
func (b *backlog) took(due int64) {
	for i := range b.marks {
		if due <= b.marks[i].at {
			b.marks[i].taken++
		}
	}
}

// mark returns the latest mark that is not after an instant.
func (b *backlog) mark(at int64) *backlogMark {
	for i := len(b.marks) - 1; i >= 0; i-- {
		if b.marks[i].at <= at {
			return &b.marks[i]
		}
	}
	return nil
}

// grew compares with the mark that was asked about; without one the answer is no.
func (b *backlog) grew(c BacklogCount) bool {
	if b.asked == 0 {
		return false
	}
	m := b.mark(b.asked)
	return m != nil && m.at == b.asked && c.Since > m.taken
}

// roll makes a mark when it is time and forgets those that will not be asked about
// again.
func (b *backlog) roll(now int64, over time.Duration) {
	for len(b.marks) > 1 && b.marks[1].at <= now-int64(over) {
		b.marks = b.marks[1:]
	}
	// A little early is in time: whoever asks does so in a rhythm of its own.
	if len(b.marks) == 0 || now-b.marks[len(b.marks)-1].at >= int64(over)*9/100 {
		b.marks = append(b.marks, backlogMark{at: now})
	}
}
