package webhook

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/outhook/webhook/internal/scheduler"
)

// WaitReason says why a pending delivery has not been sent (docs/design.md §1). It is
// derived when it is asked for, and stored nowhere.
type WaitReason string

// The reasons, of which the first that applies counts.
const (
	WaitNone        WaitReason = ""             // it does not wait: it is in flight, or has ended
	WaitPaused      WaitReason = "paused"       // its endpoint is
	WaitOrdering    WaitReason = "ordering"     // an earlier one of its ordering key has not ended
	WaitRetry       WaitReason = "retry"        // the time of its next attempt has not come
	WaitCircuitOpen WaitReason = "circuit_open" // its endpoint failed so often that it is left alone
	WaitRateLimited WaitReason = "rate_limited" // its endpoint asked for patience, by a 429
	// WaitDue is that of a delivery that only waits for its endpoint to be come to:
	// for a slot, a rate limit, the retry budget, or a dispatcher.
	WaitDue WaitReason = "due"
)

// WaitReasons returns, for each of the deliveries, why it waits. Deliveries to few
// endpoints cost less than those to many: each is read.
func (s *Deliveries) WaitReasons(ctx context.Context, list []Delivery) ([]WaitReason, error) {
	now, err := s.core.now(ctx)
	if err != nil {
		return nil, err
	}
	endpoints, err := s.standing(ctx, list)
	if err != nil {
		return nil, err
	}
	reasons := make([]WaitReason, len(list))
	for i := range list {
		d := &list[i]
		e := endpoints[d.EndpointID]
		switch {
		case d.State != StatePending:
		case e.paused:
			reasons[i] = WaitPaused
		case d.AwaitsTurn:
			reasons[i] = WaitOrdering
		case d.NextAttemptAt.After(now):
			reasons[i] = WaitRetry
		case !e.health.Circuit.OpenedAt.IsZero():
			reasons[i] = WaitCircuitOpen
		case e.health.ThrottledUntil.After(now):
			reasons[i] = WaitRateLimited
		default:
			reasons[i] = WaitDue
		}
	}
	return reasons, nil
}

// standing is what an endpoint's deliveries wait by.
type standing struct {
	paused bool
	health scheduler.Snapshot
}

// standing reads the endpoints of pending deliveries.
func (s *Deliveries) standing(ctx context.Context, list []Delivery) (map[uuid.UUID]standing, error) {
	endpoints := make(map[uuid.UUID]standing)
	var ids []uuid.UUID
	for i := range list {
		id := list[i].EndpointID
		if _, known := endpoints[id]; known || list[i].State != StatePending {
			continue
		}
		rec, err := s.core.backend.GetEndpoint(ctx, AllTenants(), id)
		if err != nil && !errors.Is(err, ErrNotFound) { // a deleted one's deliveries are about to be cancelled
			return nil, fmt.Errorf("read endpoint %s: %w", id, err)
		}
		endpoints[id] = standing{paused: rec.State == EndpointPaused}
		ids = append(ids, id)
	}
	store, ok := s.core.backend.(ClusterStore)
	if !ok || len(ids) == 0 {
		return endpoints, nil
	}
	now, err := s.core.now(ctx)
	if err != nil {
		return nil, err
	}
	health, err := store.LoadHealth(ctx, LoadHealthParams{Now: now, Endpoints: ids})
	if err != nil {
		return nil, fmt.Errorf("read the health of endpoints: %w", err)
	}
	for _, h := range health {
		e := endpoints[h.EndpointID]
		l := loadedHealth{HealthRecord: h}
		e.health, _ = l.snapshot()
		endpoints[h.EndpointID] = e
	}
	return endpoints, nil
}
