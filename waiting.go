package webhook

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook/internal/scheduler"
)

// waitsPatience is how long a dispatcher's loop has to say why what is due waits. It
// answers between two claims; more than microseconds means that it is stuck.
const waitsPatience = 250 * time.Millisecond

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
	// WaitRateLimited: its endpoint asked for patience, by a 429, or the rate limit of
	// the endpoint or of its tenant is used up.
	WaitRateLimited WaitReason = "rate_limited"
	// WaitRetryBudget: it was attempted before, and its endpoint has had as many retries
	// in the last minute as it may ([IsolationConfig.RetryShare]).
	WaitRetryBudget WaitReason = "retry_budget"
	// WaitSlowLane: its endpoint is slow, and those that are share fewer slots, which are
	// taken ([IsolationConfig.SlowShare]).
	WaitSlowLane WaitReason = "slow_lane"
	// WaitConcurrency: as many requests as may be are in flight, to its endpoint, to its
	// host, of replays, or in all.
	WaitConcurrency WaitReason = "concurrency"
	// WaitDue is that of a delivery that only waits for its endpoint to be come to, or
	// for a dispatcher.
	WaitDue WaitReason = "due"
)

// WaitReasons returns, for each of the deliveries, why it waits. Deliveries to few
// endpoints cost less than those to many: each is read.
//
// Whether a rate limit, the retry budget, the slow lane or a slot is what a due delivery
// waits for is known to the dispatcher that sends to its endpoint, and to nobody else. It
// is asked where it was made by the same [Hooks]. Of an endpoint that another process
// sends to the store tells of pauses, circuits and answers 429, and that the slots are
// taken which its own [EndpointParams.MaxInFlight] gives it; else the reason is WaitDue.
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
	due := make(map[uuid.UUID]struct{})
	for i := range list {
		reasons[i] = endpoints[list[i].EndpointID].reason(&list[i], now)
		if reasons[i] == WaitDue {
			due[list[i].EndpointID] = struct{}{}
		}
	}
	waits := s.core.running.waits(ctx, slices.Collect(maps.Keys(due)))
	for i := range list {
		if reasons[i] != WaitDue {
			continue
		}
		if known, ok := waits[list[i].EndpointID]; ok {
			reasons[i] = reasonOf(known[laneOf(&list[i])])
		} else if endpoints[list[i].EndpointID].full {
			reasons[i] = WaitConcurrency
		}
	}
	return reasons, nil
}

// laneOf is the scheduler's lane that a pending delivery waits in.
func laneOf(d *Delivery) scheduler.Lane {
	switch {
	case d.Run > 0:
		return scheduler.Replay
	case d.Attempts > 0:
		return scheduler.Retry
	default:
		return scheduler.Live
	}
}

// reasonOf is the scheduler's reason for what is due. A pause and a removal are not for
// it to tell: the store says otherwise, and the scheduler is about to learn of that.
func reasonOf(w scheduler.Wait) WaitReason {
	switch w {
	case scheduler.WaitCircuitOpen:
		return WaitCircuitOpen
	case scheduler.WaitRateLimited:
		return WaitRateLimited
	case scheduler.WaitRetryBudget:
		return WaitRetryBudget
	case scheduler.WaitSlowLane:
		return WaitSlowLane
	case scheduler.WaitConcurrency:
		return WaitConcurrency
	default:
		return WaitDue
	}
}

// standing is what an endpoint's deliveries wait by, as far as it is stored.
type standing struct {
	paused bool
	slots  int  // of the endpoint's own cap; 0: it has none
	full   bool // as many deliveries as that are under a lease
	health scheduler.Snapshot
}

// reason is why the delivery waits; WaitDue where nothing that is stored holds it up.
func (e standing) reason(d *Delivery, now time.Time) WaitReason {
	switch {
	case d.State != StatePending:
		return WaitNone
	case e.paused:
		return WaitPaused
	case d.AwaitsTurn:
		return WaitOrdering
	case d.NextAttemptAt.After(now):
		return WaitRetry
	case !e.health.Circuit.OpenedAt.IsZero():
		return WaitCircuitOpen
	case e.health.ThrottledUntil.After(now):
		return WaitRateLimited
	default:
		return WaitDue
	}
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
		endpoints[id] = standing{paused: rec.State == EndpointPaused, slots: optionsOf(&rec).MaxInFlight}
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
		e.full = e.slots > 0 && h.Leased >= e.slots
		endpoints[h.EndpointID] = e
	}
	return endpoints, nil
}

// waitsAsk asks why what is due at endpoints is not claimed.
type waitsAsk struct {
	endpoints []uuid.UUID
	reply     chan map[uuid.UUID]scheduler.Waits // cap 1; of those alone that are the dispatcher's
}

// waits asks the dispatchers of this process why what is due at endpoints waits. It
// leaves out those that are none of theirs, and whoever does not answer.
func (d *running) waits(ctx context.Context, endpoints []uuid.UUID) map[uuid.UUID]scheduler.Waits {
	waits := make(map[uuid.UUID]scheduler.Waits, len(endpoints))
	if len(endpoints) == 0 {
		return waits
	}
	ctx, cancel := context.WithTimeout(ctx, waitsPatience)
	defer cancel()
	for _, r := range d.all() {
		maps.Copy(waits, r.loop.askWaits(ctx, endpoints))
	}
	return waits
}

// askWaits is safe from any goroutine; nil means that there was no answer.
func (l *loop) askWaits(ctx context.Context, endpoints []uuid.UUID) map[uuid.UUID]scheduler.Waits {
	ask := waitsAsk{endpoints: endpoints, reply: make(chan map[uuid.UUID]scheduler.Waits, 1)}
	select {
	case l.waitsC <- ask:
	case <-l.over:
		return nil
	case <-ctx.Done():
		return nil
	}
	select {
	case waits := <-ask.reply:
		return waits
	case <-ctx.Done():
		return nil
	}
}

// takeWaits answers who wants to know what deliveries wait for.
func (l *loop) takeWaits(ask waitsAsk) {
	now := l.now()
	l.sched.Advance(now) // what hangs by now counts as slow
	waits := make(map[uuid.UUID]scheduler.Waits, len(ask.endpoints))
	for _, id := range ask.endpoints {
		if w, ok := l.sched.Waits(now, id); ok {
			waits[id] = w
		}
	}
	ask.reply <- waits
}
