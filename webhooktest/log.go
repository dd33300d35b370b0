package webhooktest

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// GetEvent implements [webhook.LogStore].
func (s *Store) GetEvent(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.EventStatus, error) {
	if err := ctx.Err(); err != nil {
		return webhook.EventStatus{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.events[id]
	if e == nil || !scope.Includes(e.Tenant) {
		return webhook.EventStatus{}, webhook.ErrNotFound
	}
	status := webhook.EventStatus{EventRecord: e.EventRecord, FannedOut: e.fannedOut, Unmatched: e.unmatched}
	status.Payload = bytes.Clone(status.Payload)
	return status, nil
}

// GetDelivery implements [webhook.LogStore].
func (s *Store) GetDelivery(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.Delivery, error) {
	if err := ctx.Err(); err != nil {
		return webhook.Delivery{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.deliveries[id]
	if d == nil || !scope.Includes(d.Tenant) {
		return webhook.Delivery{}, webhook.ErrNotFound
	}
	return d.Delivery, nil
}

// ListDeliveries implements [webhook.LogStore].
func (s *Store) ListDeliveries(ctx context.Context, p webhook.ListDeliveriesParams) ([]webhook.Delivery, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []webhook.Delivery
	for _, d := range s.deliveries {
		switch {
		case !p.Scope.Includes(d.Tenant):
		case p.EventID != uuid.Nil && d.EventID != p.EventID:
		case p.EndpointID != uuid.Nil && d.EndpointID != p.EndpointID:
		case p.State != "" && d.State != p.State:
		case p.Before != uuid.Nil && compareIDs(d.ID, p.Before) >= 0:
		default:
			found = append(found, d.Delivery)
		}
	}
	slices.SortFunc(found, func(a, b webhook.Delivery) int { return compareIDs(b.ID, a.ID) })
	return found[:max(0, min(len(found), p.Limit))], nil
}

// ListAttempts implements [webhook.LogStore].
func (s *Store) ListAttempts(ctx context.Context, scope webhook.Scope, deliveryID uuid.UUID) ([]webhook.Attempt, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []webhook.Attempt
	for _, a := range s.attempts[deliveryID] {
		if scope.Includes(a.Tenant) {
			found = append(found, cloneAttempt(a.Attempt))
		}
	}
	slices.SortStableFunc(found, func(a, b webhook.Attempt) int { return cmp.Compare(a.Number, b.Number) })
	return found, nil
}

func cloneAttempt(a webhook.Attempt) webhook.Attempt {
	a.Excerpt = bytes.Clone(a.Excerpt)
	a.BodyHash = bytes.Clone(a.BodyHash)
	return a
}
