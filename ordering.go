package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Ordering says in which order deliveries go to an endpoint. Without one they go as
// slots are free, and a failed one is passed by those after it.
type Ordering string

// The orderings (docs/design.md §4).
const (
	OrderingNone Ordering = ""
	// OrderingPerResource sends events about the same [Event.ResourceID] one after the
	// other, in the order in which they were enqueued: the next goes when the one
	// before has been delivered, or has ended otherwise. Events without a resource are
	// not ordered.
	OrderingPerResource Ordering = "per_resource"
	// OrderingPerEndpoint sends all events one after the other.
	OrderingPerEndpoint Ordering = "per_endpoint"
)

// DefaultOrderingHold is how long a delivery that keeps failing holds up those after
// it (docs/design.md §4).
const DefaultOrderingHold = 4 * time.Hour

// Key returns what a delivery of the event is kept in order by; ok is false when it is
// not ordered. It is for stores.
func (o Ordering) Key(e *EventRecord) (key string, ok bool) {
	switch o {
	case OrderingPerEndpoint:
		return "", true
	case OrderingPerResource:
		return e.ResourceID, e.ResourceID != ""
	case OrderingNone:
	}
	return "", false
}

// releasePage is how many ordering keys are looked at in one transaction.
const releasePage = 500

// giveTurns gives the turns of ordering keys that are free, at every poll and when
// deliveries have become due by another way than fan-out.
func (r *run) giveTurns(ctx context.Context) {
	stop := r.core.waker.listenDue(r.turns)
	defer stop()
	var took pace
	for {
		select {
		case <-r.turns:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		if err := errors.Join(r.releaseOrdered(ctx), r.endUnknown(ctx)); err != nil && ctx.Err() == nil {
			r.core.log.WarnContext(ctx, "webhook: cannot give turns", "error", err)
		}
		if !r.sleep(ctx, took.rest(time.Since(began))-r.cfg.PollInterval) {
			return
		}
	}
}

// releaseOrdered looks through the ordering keys: for holds that have passed, and for
// turns that what gives them at once could not. Without ordered deliveries it costs one
// look into an empty index.
func (r *run) releaseOrdered(ctx context.Context) error {
	p := ReleaseOrderedParams{Limit: releasePage}
	for more := true; more && ctx.Err() == nil; {
		p.Now = r.d.clock.now()
		if r.cfg.OrderingHold > 0 {
			p.HeldBefore = p.Now.Add(-r.cfg.OrderingHold)
		}
		res, err := r.core.backend.ReleaseOrdered(ctx, p)
		if err != nil {
			return fmt.Errorf("release ordered deliveries: %w", err)
		}
		r.released(res.Released)
		p.After, more = res.Next, res.More
	}
	return nil
}

// released tells the loop, and the dispatchers whose endpoints they are, of
// deliveries that got their turn.
func (r *run) released(lanes []ReadyLane) {
	if len(lanes) == 0 {
		return
	}
	var others []uuid.UUID
	for _, lane := range lanes {
		if t := r.registry.get(lane.EndpointID); t != nil && !r.cluster.owns(t) {
			others = append(others, lane.EndpointID)
		}
	}
	r.loop.ready(lanes) // it leaves out what is not its own
	if len(others) > 0 {
		r.cluster.signal(SignalReady, others...)
	}
}
