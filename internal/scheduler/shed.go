package scheduler

import "time"

// backlog remembers how an endpoint's backlog developed, one sample a minute,
// from half of the shedding threshold on.
type backlog struct {
	samples  []backlogSample // oldest first
	shedding bool
}

type backlogSample struct {
	at    int64
	count int64
}

// recentSuccess is how recent an endpoint's last success must be for it to
// count as answering: an outage is not an overload.
const recentSuccess = time.Minute

// ShouldShed reports whether new deliveries of the endpoint are to be recorded
// as shed: its backlog is over the threshold and grew over the last ten
// minutes, although it answers. Never in an outage (circuit not closed, or no
// recent success) and never for an ordered endpoint, unless its spec allows it.
// Once begun, shedding goes on until the backlog is down to the threshold.
//
// It must be asked regularly, since growth is known from what it was told.
func (s *Scheduler) ShouldShed(now time.Time, id ID, count int64) bool {
	e := s.endpoints[id]
	if e == nil || s.cfg.Off.has(Shedding) {
		return false
	}
	threshold := e.spec.ShedBacklog
	if threshold == 0 {
		threshold = s.cfg.ShedBacklog
	}
	if threshold < 0 || count < threshold/2 {
		e.backlog = nil
		return false
	}
	if e.backlog == nil {
		e.backlog = new(backlog)
	}
	n := nanos(now)
	grew := e.backlog.grew(n, count, s.cfg.ShedGrowth)
	switch {
	case count <= threshold, e.spec.Ordered && !e.spec.ShedOrdered, !s.answers(now, n, e):
		e.backlog.shedding = false
	case grew:
		e.backlog.shedding = true
	}
	return e.backlog.shedding
}

func (s *Scheduler) answers(now time.Time, n int64, e *endpoint) bool {
	if e.spec.Paused || e.throttled > n || e.lastSuccess == 0 || n-e.lastSuccess > int64(recentSuccess) {
		return false
	}
	return e.circuit == nil || e.circuit.View(now).State == Closed
}

// grew takes a sample and compares it with the one that is as old as the growth
// time; without one that old the answer is no.
func (b *backlog) grew(now, count int64, over time.Duration) bool {
	cutoff := now - int64(over)
	for len(b.samples) > 1 && b.samples[1].at <= cutoff {
		b.samples = b.samples[1:]
	}
	if len(b.samples) == 0 || now-b.samples[len(b.samples)-1].at >= int64(over/10) {
		b.samples = append(b.samples, backlogSample{at: now, count: count})
	}
	first := b.samples[0]
	return first.at <= cutoff && count > first.count
}
