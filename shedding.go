package webhook

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook/internal/scheduler"
)

// DefaultShedBacklog and DefaultShedGrowth are the defaults of
// [IsolationConfig.ShedBacklog] and [IsolationConfig.ShedGrowth] (docs/design.md §3).
const (
	DefaultShedBacklog = 100_000
	DefaultShedGrowth  = 10 * time.Minute
)

const (
	// shedIntervals is for how many of the intervals at which backlogs are counted
	// shedding goes on without being renewed, and leastShed for how long at least.
	shedIntervals = 3
	leastShed     = 10 * time.Second
)

// SheddingObserver is an [Observer] that is also told of shedding: an endpoint that
// answers but does not keep up, whose new deliveries are recorded as [StateShed].
type SheddingObserver interface {
	// SheddingChanged is called when an endpoint's new deliveries begin to be shed,
	// and when that ends. It is for people; an endpoint that changes hands meanwhile
	// may begin twice.
	SheddingChanged(SheddingReport)

	// DeliveriesShed is called with the deliveries that were recorded as shed, a few
	// or a few hundred at a time.
	DeliveriesShed(ShedReport)
}

// SheddingReport tells that shedding began or ended.
type SheddingReport struct {
	EndpointID uuid.UUID
	Tenant     string
	// Shedding is true at the beginning.
	Shedding bool
	// Backlog is how many deliveries waited when that was decided, counted no
	// further than one more than the endpoint may have.
	Backlog int
}

// ShedReport counts deliveries that were recorded as shed.
type ShedReport struct {
	EndpointID uuid.UUID
	Tenant     string
	Count      int
}

// countedBacklogs are the answers to queries of the scheduler.
type countedBacklogs struct {
	queries []scheduler.BacklogQuery
	counts  []Backlog
	err     error
}

// countBacklogs has the backlogs counted that the scheduler asks for: those of
// endpoints whose claims stay full, and of no others.
func (l *loop) countBacklogs(ctx context.Context) {
	now := l.now()
	l.endShedding(now)
	if l.counting {
		return
	}
	queries := l.sched.Backlogs(now, nil)
	if len(queries) == 0 {
		return
	}
	l.counting = true
	l.r.attempts.Go(func() {
		counts, err := l.r.countBacklogs(ctx, queries)
		l.countedC <- countedBacklogs{queries, counts, err}
	})
}

func (r *run) countBacklogs(ctx context.Context, queries []scheduler.BacklogQuery) ([]Backlog, error) {
	ctx, cancel := context.WithTimeout(ctx, storePatience)
	defer cancel()
	requests := make([]BacklogRequest, len(queries))
	for i, q := range queries {
		requests[i] = BacklogRequest{
			EndpointID: q.Endpoint, Limit: int(q.Limit), Since: q.Since, SinceLimit: int(q.SinceLimit),
		}
	}
	counts, err := r.core.backend.CountBacklog(ctx, requests)
	if err == nil && len(counts) != len(queries) {
		err = fmt.Errorf("asked for %d backlogs, got %d", len(queries), len(counts))
	}
	return counts, err
}

// takeCounted takes in what was counted, and has stored and told what follows.
func (l *loop) takeCounted(ctx context.Context, c countedBacklogs) {
	l.counting = false
	if c.err != nil {
		if ctx.Err() == nil {
			l.r.core.log.WarnContext(ctx, "webhook: cannot count backlogs", "error", c.err)
		}
		return
	}
	now := l.now()
	for i, q := range c.queries {
		p := l.places[q.Endpoint]
		if p == nil {
			continue
		}
		count := scheduler.BacklogCount{Total: int64(c.counts[i].Total), Since: int64(c.counts[i].Since)}
		if l.sched.ShouldShed(now, q.Endpoint, count) {
			l.shed(now, q.Endpoint, p, c.counts[i].Total)
		}
	}
	l.endShedding(now)
}

// shed has an endpoint's new deliveries shed for some more time. If this dispatcher
// is gone by then, that ends by itself.
func (l *loop) shed(now time.Time, id uuid.UUID, p *place, backlog int) {
	began := p.shedUntil.IsZero()
	p.shedUntil = now.Add(max(leastShed, shedIntervals*l.sched.BacklogInterval()))
	l.shedding[id] = struct{}{}
	l.keep(id, p)
	if began {
		l.r.core.log.Warn("webhook: endpoint does not keep up, its new deliveries are shed", "endpoint", id, "tenant", p.tenant, "backlog", backlog)
		l.r.tellShedding(SheddingReport{EndpointID: id, Tenant: p.tenant, Shedding: true, Backlog: backlog})
		l.r.noticeShedding(id, now, backlog)
	}
}

// endShedding ends it for the endpoints for which the scheduler has.
func (l *loop) endShedding(now time.Time) {
	for id := range l.shedding {
		p := l.places[id]
		switch {
		case p == nil:
			delete(l.shedding, id) // its next owner goes on
		case !l.sched.Shedding(id):
			delete(l.shedding, id)
			p.shedUntil = time.Time{}
			if snap, ok := l.sched.Snapshot(now, id); ok {
				l.store(id, p, snap)
			}
			l.r.core.log.Info("webhook: endpoint's new deliveries are no longer shed", "endpoint", id, "tenant", p.tenant)
			l.r.tellShedding(SheddingReport{EndpointID: id, Tenant: p.tenant})
		}
	}
}

// inheritShedding goes on with what the last owner began.
func (l *loop) inheritShedding(id uuid.UUID, p *place, until time.Time) {
	if l.sched.Shedding(id) {
		p.shedUntil = until
		l.shedding[id] = struct{}{}
	}
}

// tellShedding tells the observer, without keeping the loop from its work.
func (r *run) tellShedding(report SheddingReport) {
	o, ok := r.cfg.Observer.(SheddingObserver)
	if !ok {
		return
	}
	r.attempts.Go(func() { r.observe(func() { o.SheddingChanged(report) }) })
}

// noticeShedding makes a notice of the beginning, once an hour at most: one that sheds
// does so now and again.
func (r *run) noticeShedding(id uuid.UUID, now time.Time, backlog int) {
	r.attempts.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.attemptCtx), storePatience)
		defer cancel()
		detail := NoticeDetail{Reason: fmt.Sprintf("new deliveries are shed: at least %d wait", backlog)}
		if err := r.notice(ctx, id, NoticeShedding, now.Truncate(time.Hour), detail); err != nil {
			r.core.log.WarnContext(ctx, "webhook: cannot make a notice of shedding", "endpoint", id, "error", err)
		}
	})
}

// tellShed tells how many deliveries were shed.
func (r *run) tellShed(shed map[uuid.UUID]int) {
	o, ok := r.cfg.Observer.(SheddingObserver)
	if !ok {
		return
	}
	for id, n := range shed {
		report := ShedReport{EndpointID: id, Count: n}
		if t := r.registry.get(id); t != nil {
			report.Tenant = t.record.Tenant
		}
		r.observe(func() { o.DeliveriesShed(report) })
	}
}
