package webhook

import (
	"context"
	"fmt"

	"github.com/google/uuid"
)

// Deliveries reads deliveries and their attempts, and acts on single ones. It is
// safe for concurrent use. Get it from [Hooks.Deliveries].
//
// A delivery that does not exist and one outside of the scope are both
// [ErrNotFound].
type Deliveries struct {
	core *core
}

// Get returns a delivery, finished or not.
func (s *Deliveries) Get(ctx context.Context, scope Scope, id uuid.UUID) (Delivery, error) {
	d, err := s.core.backend.GetDelivery(ctx, scope, id)
	if err != nil {
		return Delivery{}, fmt.Errorf("get delivery %s: %w", id, err)
	}
	return d, nil
}

// Attempts returns a delivery's attempts in the order of their numbers.
func (s *Deliveries) Attempts(ctx context.Context, scope Scope, id uuid.UUID) ([]Attempt, error) {
	if _, err := s.Get(ctx, scope, id); err != nil {
		return nil, err
	}
	attempts, err := s.core.backend.ListAttempts(ctx, scope, id)
	if err != nil {
		return nil, fmt.Errorf("list attempts of delivery %s: %w", id, err)
	}
	return attempts, nil
}

// Cancel withdraws an unfinished delivery for the given reason, which may be
// empty, and returns it as it then is. A request that is on its way is not called
// back: its attempt is logged as late, whatever came of it, and none follows.
// Cancelling a cancelled delivery changes nothing; one that ended in another way
// gives [ErrFinished].
func (s *Deliveries) Cancel(ctx context.Context, scope Scope, id uuid.UUID, reason string) (Delivery, error) {
	if err := checkText("reason", reason, maxDescriptionBytes); err != nil {
		return Delivery{}, err
	}
	now, err := s.core.now(ctx)
	if err != nil {
		return Delivery{}, err
	}
	cancelled, err := s.core.backend.CancelDelivery(ctx, CancelDeliveryParams{
		Now: now, Scope: scope, DeliveryID: id, Reason: reason,
	})
	if err != nil {
		return Delivery{}, fmt.Errorf("cancel delivery %s: %w", id, err)
	}
	d, err := s.Get(ctx, scope, id)
	if err != nil {
		return Delivery{}, err
	}
	if !cancelled && d.State != StateCancelled {
		return d, fmt.Errorf("cancel delivery %s, which is %s: %w", id, d.State, ErrFinished)
	}
	return d, nil
}

// RetryNow sends a delivery again. A pending one becomes due now, in its present
// run; it still waits for its endpoint's circuit, limits and pause. One in flight
// is left alone. A finished one, delivered or not, gets a new run, as [Deliveries.Replay]
// makes it. The delivery that is returned is the one that will be sent.
func (s *Deliveries) RetryNow(ctx context.Context, scope Scope, id uuid.UUID) (Delivery, error) {
	now, err := s.core.now(ctx)
	if err != nil {
		return Delivery{}, err
	}
	hastened, err := s.core.backend.HastenDelivery(ctx, HastenDeliveryParams{Now: now, Scope: scope, DeliveryID: id})
	if err != nil {
		return Delivery{}, fmt.Errorf("retry delivery %s: %w", id, err)
	}
	if hastened {
		s.core.waker.deliveriesDue()
	}
	d, err := s.Get(ctx, scope, id)
	if err != nil || hastened || !d.State.Final() {
		return d, err
	}
	return s.Replay(ctx, scope, ReplayRequest{EventID: d.EventID, EndpointID: d.EndpointID})
}

// ReplayRequest says what [Deliveries.Replay] sends again, and to whom.
type ReplayRequest struct {
	EventID    uuid.UUID
	EndpointID uuid.UUID
}

// Replay sends an event to an endpoint of its tenant again: in a new run, with its
// own attempts and window, through the replay lane. What arrives has the same
// webhook-id, Idempotency-Key and body as before, a fresh signature, and
// webhook-replay: true. The runs before stay in the log as they are. The endpoint
// need not have had the event before, nor subscribe to its type.
//
// While a run of the event to the endpoint is unfinished, that one is returned and
// none is made, so that a double click sends once.
//
// Errors are [ErrNotFound] for an event or endpoint that does not exist, is deleted
// or foreign, [ErrEndpointDisabled], and [ErrEventGone] when the event is no longer
// stored. To a paused endpoint the run waits.
func (s *Deliveries) Replay(ctx context.Context, scope Scope, r ReplayRequest) (Delivery, error) {
	now, err := s.core.now(ctx)
	if err != nil {
		return Delivery{}, err
	}
	id, started, err := s.core.backend.StartRun(ctx, StartRunParams{
		Now: now, Scope: scope, EventID: r.EventID, EndpointID: r.EndpointID,
	})
	if err != nil {
		return Delivery{}, fmt.Errorf("replay event %s to endpoint %s: %w", r.EventID, r.EndpointID, err)
	}
	if started {
		s.core.waker.deliveriesDue()
	}
	return s.Get(ctx, scope, id)
}
