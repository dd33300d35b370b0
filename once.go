package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
)

// endUnknownBatch is how many deliveries end in one transaction.
const endUnknownBatch = 500

// errNotHeld says that a delivery went to another dispatcher.
var errNotHeld = errors.New("the lease is no longer held")

// answering is since when the database has answered this dispatcher at each look. After a
// long time without a look that begins anew. It belongs to the goroutine that gives turns.
type answering struct {
	since, lookedAt time.Time
}

// steady looks whether the database has answered for some time now without a break. When
// this dispatcher began, or stood still, it does not know.
func (a *answering) steady(ctx context.Context, backend Backend, now time.Time, lease, seldom time.Duration) (bool, error) {
	if now.Sub(a.lookedAt) > seldom || now.Before(a.lookedAt) {
		a.since = now
	}
	a.lookedAt = now
	if now.Sub(a.since) >= lease {
		return true, nil
	}
	_, err := backend.Now(ctx)
	return false, err
}

// broken takes in that the database did not answer.
func (a *answering) broken() { a.lookedAt = time.Time{} }

// endUnknown ends the deliveries to at-most-once endpoints whose dispatcher died after
// it had marked them as sent. After an outage of the database, results wait in the
// dispatchers' memories to be written; whoever is alive gets the time of a lease for it,
// and a third of one in any case, as an outage may be over before it is noticed.
func (r *run) endUnknown(ctx context.Context) error {
	now := r.d.clock.now()
	steady, err := r.answers.steady(ctx, r.core.backend, now, r.cfg.Lease, max(r.cfg.Lease, 2*r.cfg.PollInterval))
	for n := endUnknownBatch; steady && err == nil && n >= endUnknownBatch && ctx.Err() == nil; {
		var ended []EndedDeliveries
		ended, err = r.core.backend.EndUnknown(ctx, EndUnknownParams{Now: now, ExpiredBefore: now.Add(-r.cfg.Lease / 3), Limit: endUnknownBatch})
		n = 0
		for _, e := range ended {
			n += e.Deliveries
			r.died(e, ReasonOutcomeUnknown, now)
		}
		if n > 0 {
			r.core.log.WarnContext(ctx, "webhook: deliveries ended that may have arrived: their dispatcher died", "deliveries", n)
		}
	}
	if err != nil {
		r.answers.broken()
		return fmt.Errorf("end deliveries of unknown outcome: %w", err)
	}
	return nil
}

// died takes in deliveries that the store ended as dead: they count in the endpoint's
// health, its owner is told of the first of a streak, and the observer of all.
func (r *run) died(e EndedDeliveries, reason string, now time.Time) {
	r.health.died(e.EndpointID, int64(e.Deliveries), now)
	r.tellDied(e, reason)
}

func (r *run) tellDied(e EndedDeliveries, reason string) {
	if o, ok := r.cfg.Observer.(EndingObserver); ok {
		r.observe(func() { o.DeliveriesDied(DeathReport{EndedDeliveries: e, Reason: reason}) })
	}
}

// marker marks deliveries to at-most-once endpoints before they are sent. While one
// write is on its way those that come gather for the next.
type marker struct {
	r *run

	mu      sync.Mutex
	waiting []*mark
	writing bool
}

// mark is one to be written.
type mark struct {
	lease Lease
	done  chan error // cap 1
}

// mark returns when the mark is committed. After an error it may be or not, and the
// delivery must not be sent.
func (m *marker) mark(lease Lease) error {
	k := &mark{lease: lease, done: make(chan error, 1)}
	m.mu.Lock()
	m.waiting = append(m.waiting, k)
	begin := !m.writing
	m.writing = true
	m.mu.Unlock()
	if begin {
		m.r.attempts.Go(m.write)
	}
	return <-k.done
}

// write writes what waits until nothing does.
func (m *marker) write() {
	for {
		m.mu.Lock()
		batch := m.waiting[:min(len(m.waiting), maxBatch)]
		m.waiting = m.waiting[len(batch):]
		m.writing = len(batch) > 0
		m.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		m.writeBatch(batch)
	}
}

func (m *marker) writeBatch(batch []*mark) {
	p := MarkSentParams{Now: m.r.d.clock.now(), Leases: make([]Lease, len(batch))}
	for i, k := range batch {
		p.Leases[i] = k.lease
	}
	ctx, cancel := context.WithTimeout(m.r.attemptCtx, m.r.cfg.RequestTimeout)
	defer cancel()
	lost, err := m.r.core.backend.MarkSent(ctx, p)
	gone := make(map[uuid.UUID]bool, len(lost))
	for _, id := range lost {
		gone[id] = true
	}
	for _, k := range batch {
		if err == nil && gone[k.lease.DeliveryID] {
			k.done <- errNotHeld
			continue
		}
		k.done <- err
	}
}
