package webhooktest

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// CancelDelivery implements [webhook.ActionStore].
func (s *Store) CancelDelivery(ctx context.Context, p webhook.CancelDeliveryParams) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.deliveries[p.DeliveryID]
	if d == nil || d.State.Final() || !p.Scope.Includes(d.Tenant) {
		return false, nil
	}
	if d.ordered && d.leasedAt(p.Now) {
		s.orderHolds[*d.order()] = d.leaseUntil
	}
	s.finish(d, webhook.StateCancelled, p.Reason, p.Now)
	if d.ordered {
		s.release(*d.order(), p.Now, time.Time{})
	}
	return true, nil
}

// HastenDelivery implements [webhook.ActionStore].
func (s *Store) HastenDelivery(ctx context.Context, p webhook.HastenDeliveryParams) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.deliveries[p.DeliveryID]
	if d == nil || d.State.Final() || d.leasedAt(p.Now) || !p.Scope.Includes(d.Tenant) {
		return false, nil
	}
	if now := stored(p.Now); now.Before(d.NextAttemptAt) {
		d.NextAttemptAt = now
	}
	return true, nil
}

// LogTest implements [webhook.ActionStore].
func (s *Store) LogTest(ctx context.Context, p webhook.LogTestParams) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := &delivery{Delivery: p.Delivery}
	if s.deliveries[d.ID] != nil {
		return webhook.ErrConflict
	}
	d.CreatedAt, d.FinishedAt = stored(d.CreatedAt), stored(d.FinishedAt)
	s.deliveries[d.ID] = d
	s.logAttempt(webhook.Result{Lease: webhook.Lease{DeliveryID: d.ID}, Attempt: &p.Attempt}, false)
	s.countEnd(d)
	return nil
}

// StartRun implements [webhook.ActionStore].
func (s *Store) StartRun(ctx context.Context, p webhook.StartRunParams) (uuid.UUID, bool, error) {
	if err := ctx.Err(); err != nil {
		return uuid.Nil, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	endpoint := s.endpoints[p.EndpointID]
	switch {
	case endpoint == nil || !endpoint.DeletedAt.IsZero() || !p.Scope.Includes(endpoint.Tenant):
		return uuid.Nil, false, webhook.ErrNotFound
	case endpoint.State == webhook.EndpointDisabled:
		return uuid.Nil, false, webhook.ErrEndpointDisabled
	}
	latest := s.latestRun(p.EventID, p.EndpointID)
	e := s.events[p.EventID]
	switch {
	case latest != nil && !latest.State.Final():
		return latest.ID, false, nil
	case e == nil && latest != nil:
		return uuid.Nil, false, webhook.ErrEventGone
	case e == nil || e.Tenant != endpoint.Tenant:
		return uuid.Nil, false, webhook.ErrNotFound
	}
	return s.startRun(e, endpoint, latest, p.Now), true, nil
}

// latestRun is the delivery of the event to the endpoint that counts, or nil: the
// one that is unfinished, or the last. The lock is held.
func (s *Store) latestRun(eventID, endpointID uuid.UUID) *delivery {
	var latest *delivery
	for _, d := range s.deliveries {
		if d.EventID != eventID || d.EndpointID != endpointID {
			continue
		}
		if !d.State.Final() {
			return d
		}
		if latest == nil || d.Run > latest.Run {
			latest = d
		}
	}
	return latest
}

// startRun begins the run after the latest, which is finished or nil. The lock is
// held.
func (s *Store) startRun(e *event, endpoint *webhook.EndpointRecord, latest *delivery, now time.Time) uuid.UUID {
	run := 1
	if latest != nil {
		run = latest.Run + 1
		latest.replayed = true
	}
	id := s.insertDelivery(e, endpoint.ID, endpoint.Ordering, run, webhook.LaneReplay, now)
	if d := s.deliveries[id]; d.ordered {
		s.release(*d.order(), now, time.Time{})
	}
	return id
}
