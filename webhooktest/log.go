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
func (s *Store) ListDeliveries(ctx context.Context, p webhook.ListDeliveriesParams) (webhook.DeliveryListing, error) {
	if err := ctx.Err(); err != nil || p.Limit <= 0 {
		return webhook.DeliveryListing{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []webhook.Delivery
	for _, d := range s.deliveries {
		if (p.Before == uuid.Nil || compareIDs(d.ID, p.Before) < 0) && s.listed(&d.Delivery, &p) {
			found = append(found, d.Delivery)
		}
	}
	slices.SortFunc(found, func(a, b webhook.Delivery) int { return compareIDs(b.ID, a.ID) })
	listing := webhook.DeliveryListing{Deliveries: found}
	if len(found) > p.Limit {
		listing.Deliveries = found[:p.Limit]
		listing.Next = found[p.Limit-1].ID
	}
	return listing, nil
}

// listed reports whether a delivery passes the filters. The lock is held.
func (s *Store) listed(d *webhook.Delivery, p *webhook.ListDeliveriesParams) bool {
	first, last, limited := p.Status.Bounds()
	return p.Scope.Includes(d.Tenant) &&
		(p.EventID == uuid.Nil || d.EventID == p.EventID) &&
		(p.EndpointID == uuid.Nil || d.EndpointID == p.EndpointID) &&
		(p.State == "" || d.State == p.State) &&
		(p.EventType == "" || d.EventType == p.EventType) &&
		(!limited || first <= d.LastStatus && d.LastStatus <= last) &&
		within(d.CreatedAt, p.From, p.Until) &&
		(p.ResourceID == "" || s.events[d.EventID] != nil && s.events[d.EventID].ResourceID == p.ResourceID)
}

// ListEvents implements [webhook.LogStore].
func (s *Store) ListEvents(ctx context.Context, p webhook.ListEventsParams) (webhook.EventListing, error) {
	listing := webhook.EventListing{Next: p.After}
	if err := ctx.Err(); err != nil || p.Limit <= 0 {
		return listing, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.eventsInOrder(&p) {
		if p.OldestFirst && !p.SettledAt.IsZero() && !e.CreatedAt.Before(p.SettledAt) {
			break
		}
		match := within(e.CreatedAt, p.From, p.Until) &&
			(p.Type == "" || e.Type == p.Type) &&
			(p.ResourceID == "" || e.ResourceID == p.ResourceID) &&
			(!p.Unmatched || e.unmatched)
		if match && len(listing.Events) == p.Limit {
			listing.More = true
			break
		}
		if match {
			status := webhook.EventStatus{EventRecord: e.EventRecord, FannedOut: e.fannedOut, Unmatched: e.unmatched}
			status.Payload, status.PayloadRef = nil, nil
			listing.Events = append(listing.Events, status)
		}
		listing.Next = webhook.EventPosition{Sequence: e.Sequence, ID: e.ID}
	}
	return listing, nil
}

// eventsInOrder returns those of the scope after p.After. The lock is held.
func (s *Store) eventsInOrder(p *webhook.ListEventsParams) []*event {
	order := func(a, b webhook.EventPosition) int {
		if _, limited := p.Scope.Tenant(); limited {
			return cmp.Compare(a.Sequence, b.Sequence)
		}
		return compareIDs(a.ID, b.ID)
	}
	if !p.OldestFirst {
		forward := order
		order = func(a, b webhook.EventPosition) int { return forward(b, a) }
	}
	position := func(e *event) webhook.EventPosition { return webhook.EventPosition{Sequence: e.Sequence, ID: e.ID} }
	var found []*event
	for _, e := range s.events {
		if p.Scope.Includes(e.Tenant) && (p.After == (webhook.EventPosition{}) || order(p.After, position(e)) < 0) {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(a, b *event) int { return order(position(a), position(b)) })
	return found
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
