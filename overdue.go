package webhook

import (
	"context"
	"time"

	"github.com/google/uuid"
)

const (
	// overdueInterval is how often deliveries are looked for whose retry window has
	// passed while they could not be attempted.
	overdueInterval = 5 * time.Minute

	// overdueAfter is for how long an endpoint must have had something due before its
	// deliveries are looked at.
	overdueAfter = 10 * time.Minute

	// overduePage is how many deliveries are looked at in one transaction.
	overduePage = 5000
)

// endOverdue ends the deliveries to this dispatcher's endpoints that have been waiting
// for so long that their window has passed: behind an open circuit, or a pause that
// outlasts the events. Those that only wait for a slot or a rate are looked at when
// they are claimed; and what has never been attempted waits on, unless it is the
// endpoint that keeps it from being so: not our own standing still.
func (r *run) endOverdue(ctx context.Context) error {
	var after uuid.UUID
	for {
		now := r.d.clock.now()
		lanes, err := r.core.backend.Ready(ctx, ReadyParams{Now: now, After: after, Limit: reconcilePage})
		if err != nil || len(lanes) == 0 {
			return err
		}
		after = lanes[len(lanes)-1].EndpointID
		stuck := make(map[uuid.UUID]*target)
		for _, lane := range lanes {
			t := r.registry.get(lane.EndpointID)
			if t != nil && lane.DueAt.Before(now.Add(-overdueAfter)) && retryWindow(r.retryPolicy(t)) > 0 && r.cluster.owns(t) {
				stuck[lane.EndpointID] = t
			}
		}
		open, err := r.cluster.openCircuits(ctx, stuck)
		if err != nil {
			return err
		}
		for id, t := range stuck {
			if err := r.endOverdueOf(ctx, t, open[id] || t.record.State == EndpointPaused); err != nil {
				return err
			}
		}
	}
}

// endOverdueOf ends the overdue deliveries of an endpoint; of those never attempted only
// if the endpoint itself is what keeps them waiting.
func (r *run) endOverdueOf(ctx context.Context, t *target, unattempted bool) error {
	now := r.d.clock.now()
	p := EndOverdueParams{
		EndpointID: t.record.ID, Unattempted: unattempted, Reason: reasonWindow, Limit: overduePage,
		BegunBefore: r.overdueBefore(t, now),
	}
	ended := 0
	for p.Lane = LaneFirst; p.Lane <= LaneWaiting; p.Lane++ {
		if p.Lane == LaneFirst && !unattempted {
			continue // nothing in it has been attempted
		}
		p.DueFrom = time.Time{}
		for more := true; more; {
			p.Now = r.d.clock.now()
			res, err := r.core.backend.EndOverdue(ctx, p)
			if err != nil {
				return err
			}
			ended += res.Ended
			p.DueFrom, more = res.DueFrom, res.More
		}
	}
	if ended > 0 {
		r.died(EndedDeliveries{EndpointID: t.record.ID, Tenant: t.record.Tenant, Deliveries: ended}, reasonWindow, now)
		r.core.log.WarnContext(ctx, "webhook: deliveries dead: their retry window has passed while they waited",
			"endpoint", t.record.ID, "tenant", t.record.Tenant, "deliveries", ended)
		poke(r.turns)
	}
	return nil
}

// overdueBefore is the time before which a delivery must have begun for its window to
// have passed. A delivery that began later has no less of its window left, whatever
// pauses there were; so halving an interval finds it.
func (r *run) overdueBefore(t *target, now time.Time) time.Time {
	window := retryWindow(r.retryPolicy(t)) + windowLeeway
	passed := func(began time.Time) bool {
		return now.After(began.Add(t.paused(began, now, r.cfg.Retention.Events) + window))
	}
	late := now.Add(-window)
	if passed(late.Add(-time.Second)) {
		return late
	}
	early := late.Add(-2 * pausesKept)
	for late.Sub(early) > time.Second {
		middle := early.Add(late.Sub(early) / 2)
		if passed(middle) {
			early = middle
		} else {
			late = middle
		}
	}
	return early
}
