package webhooktest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// order is the delivery's ordering key.
func (d *delivery) order() *webhook.OrderKey {
	return &webhook.OrderKey{EndpointID: d.EndpointID, Key: d.key}
}

// deferred reports whether the delivery has been overtaken and gets no turn yet.
func (d *delivery) deferred(now time.Time) bool {
	return d.overtaken && d.NextAttemptAt.After(now)
}

// ReleaseOrdered implements [webhook.OrderStore].
func (s *Store) ReleaseOrdered(ctx context.Context, p webhook.ReleaseOrderedParams) (webhook.ReleaseOrderedResult, error) {
	if err := ctx.Err(); err != nil {
		return webhook.ReleaseOrderedResult{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := map[webhook.OrderKey]bool{}
	for _, deliveries := range s.unfinished {
		for _, d := range deliveries {
			if d.lane == webhook.LaneWaiting && compareKeys(*d.order(), p.After) > 0 {
				waiting[*d.order()] = true
			}
		}
	}
	keys := make([]webhook.OrderKey, 0, len(waiting))
	for key := range waiting {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, compareKeys)

	result := webhook.ReleaseOrderedResult{Next: p.After, More: len(keys) > p.Limit}
	for _, key := range keys[:min(len(keys), p.Limit)] {
		result.Next = key
		result.Released = append(result.Released, s.release(key, p.Now, p.HeldBefore)...)
	}
	return result, nil
}

// compareKeys compares in order; the zero key comes before all.
func compareKeys(a, b webhook.OrderKey) int {
	return cmp.Or(compareIDs(a.EndpointID, b.EndpointID), strings.Compare(a.Key, b.Key))
}

// release gives the key's turn, if it is free, to whose turn it is. The lock is held.
func (s *Store) release(key webhook.OrderKey, now, heldBefore time.Time) []webhook.ReadyLane {
	var holder *delivery
	var waiting []*delivery
	for _, d := range s.unfinished[key.EndpointID] {
		switch {
		case !d.ordered || d.key != key.Key:
		case d.lane == webhook.LaneWaiting:
			waiting = append(waiting, d)
		default:
			holder = d
		}
	}
	next := choose(waiting, now, holder == nil)
	if next == nil || s.orderHolds[key].After(now) || s.awaitsFanOut(next) {
		return nil
	}
	if holder != nil {
		if !s.gives(holder, next, now, heldBefore) {
			return nil
		}
		holder.lane, holder.AwaitsTurn = webhook.LaneWaiting, true
		holder.overtaken = holder.overtaken || next.sequence > holder.sequence
		waiting = append(waiting, holder)
	}
	skips := slices.ContainsFunc(waiting, func(d *delivery) bool { return d.sequence < next.sequence })
	next.OrderingSkipped = skips || next.OrderingSkipped && next.Attempts > 0
	next.AwaitsTurn = false
	if next.turnSince.IsZero() {
		next.turnSince = stored(now)
	}
	switch {
	case next.Run > 0:
		next.lane = webhook.LaneReplay
	case next.Attempts > 0:
		next.lane = webhook.LaneRetry
	default:
		next.lane = webhook.LaneFirst
	}
	return []webhook.ReadyLane{{EndpointID: key.EndpointID, Lane: next.lane, DueAt: next.NextAttemptAt}}
}

// choose returns the waiting delivery that goes next, or nil; those that are deferred
// only when anyone may go and nobody else waits.
func choose(waiting []*delivery, now time.Time, anyone bool) *delivery {
	if len(waiting) == 0 {
		return nil
	}
	first := slices.MinFunc(waiting, func(a, b *delivery) int {
		if a, b := a.deferred(now), b.deferred(now); a != b {
			if a {
				return 1
			}
			return -1
		}
		if a.deferred(now) {
			return a.NextAttemptAt.Compare(b.NextAttemptAt)
		}
		return cmp.Compare(a.sequence, b.sequence)
	})
	if first.deferred(now) && !anyone {
		return nil
	}
	return first
}

// awaitsFanOut reports whether an earlier event of the delivery's key has not been
// fanned out to its endpoint yet.
func (s *Store) awaitsFanOut(d *delivery) bool {
	return slices.ContainsFunc(s.outbox, func(e *entry) bool {
		return e.event.Tenant == d.Tenant && e.event.Sequence < d.sequence &&
			(d.key == "" || e.event.ResourceID == d.key) && compareIDs(e.after, d.EndpointID) < 0
	})
}

// gives reports whether the holder of a turn gives way to another.
func (s *Store) gives(holder, next *delivery, now, heldBefore time.Time) bool {
	switch {
	case holder.leasedAt(now):
		return false
	case next.sequence < holder.sequence || holder.deferred(now):
		return true
	case heldBefore.IsZero() || holder.Attempts == 0 || holder.turnSince.After(heldBefore):
		return false
	}
	endpoint := s.endpoints[holder.EndpointID]
	return endpoint != nil && endpoint.State == webhook.EndpointActive && !endpoint.StateChangedAt.After(heldBefore)
}

// MarkSent implements [webhook.OnceStore].
func (s *Store) MarkSent(ctx context.Context, p webhook.MarkSentParams) (lost []uuid.UUID, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, lease := range p.Leases {
		d := s.deliveries[lease.DeliveryID]
		if d == nil || !d.heldBy(lease.Token) {
			lost = append(lost, lease.DeliveryID)
			continue
		}
		d.sentAt = stored(p.Now)
	}
	return lost, nil
}

// EndUnknown implements [webhook.OnceStore].
func (s *Store) EndUnknown(ctx context.Context, p webhook.EndUnknownParams) ([]webhook.EndedDeliveries, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var ended []webhook.EndedDeliveries
	room := p.Limit
	for endpoint, deliveries := range s.unfinished {
		count := webhook.EndedDeliveries{EndpointID: endpoint}
		for _, d := range deliveries {
			if room == 0 {
				break
			}
			if d.sentAt.IsZero() || d.leasedAt(p.ExpiredBefore) {
				continue
			}
			a := &webhook.Attempt{
				DeliveryID: d.ID, EventID: d.EventID, EndpointID: d.EndpointID, Tenant: d.Tenant,
				Number: d.Attempts + 1, StartedAt: d.sentAt, Class: webhook.ClassOutcomeUnknown,
			}
			// Under no lease: what its holder may still say comes late, and is logged too.
			r := webhook.Result{Lease: webhook.Lease{DeliveryID: d.ID}, Attempt: a, State: webhook.StateDead, Reason: webhook.ReasonOutcomeUnknown}
			s.logAttempt(r, false)
			s.settle(d, r, p.Now)
			count.Tenant = d.Tenant
			count.Deliveries++
			room--
		}
		if count.Deliveries > 0 {
			ended = append(ended, count)
		}
	}
	return ended, nil
}

// EndOverdue implements [webhook.WindowStore].
func (s *Store) EndOverdue(ctx context.Context, p webhook.EndOverdueParams) (webhook.EndOverdueResult, error) {
	if err := ctx.Err(); err != nil {
		return webhook.EndOverdueResult{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var due []*delivery
	for _, d := range s.unfinished[p.EndpointID] {
		if d.lane == p.Lane && !d.NextAttemptAt.After(p.Now) && !d.NextAttemptAt.Before(p.DueFrom) {
			due = append(due, d)
		}
	}
	slices.SortFunc(due, func(a, b *delivery) int { return a.NextAttemptAt.Compare(b.NextAttemptAt) })
	result := webhook.EndOverdueResult{DueFrom: p.DueFrom, More: len(due) > p.Limit}
	for _, d := range due[:min(len(due), p.Limit)] {
		result.DueFrom = d.NextAttemptAt
		if d.leasedAt(p.Now) || !d.CreatedAt.Before(p.BegunBefore) || (d.Attempts == 0 && !p.Unattempted) {
			continue
		}
		s.finish(d, webhook.StateDead, p.Reason, p.Now)
		result.Ended++
	}
	return result, nil
}
