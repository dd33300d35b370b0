package webhooktest

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// delivery is a delivery with its lease. A zero token means that nobody holds
// it; a token holds it until it is claimed anew, recorded or cancelled, also
// after the lease has expired.
type delivery struct {
	webhook.Delivery
	lane       webhook.Lane
	token      uuid.UUID
	leaseUntil time.Time
	sentAt     time.Time // of an at-most-once delivery; zero: not marked

	replayed bool // a later run has begun

	ordered   bool
	key       string
	sequence  int64     // of the event
	overtaken bool      // a later one has passed it
	turnSince time.Time // of its first turn
}

func (d *delivery) leasedAt(now time.Time) bool {
	return d.token != uuid.Nil && now.Before(d.leaseUntil)
}

func (d *delivery) heldBy(token uuid.UUID) bool {
	return d.token != uuid.Nil && d.token == token
}

// loggedAttempt is an attempt with the lease that it was made under, by which a
// result that is recorded again is recognised.
type loggedAttempt struct {
	webhook.Attempt
	token uuid.UUID
}

// insertDelivery writes a run of an event to an endpoint. The lock is held.
func (s *Store) insertDelivery(e *event, endpointID uuid.UUID, ordering webhook.Ordering, run int, lane webhook.Lane, now time.Time) uuid.UUID {
	ids, err := s.ids.New(now, 1)
	if err != nil {
		panic("webhooktest: making an id: " + err.Error())
	}
	d := &delivery{
		Delivery: webhook.Delivery{
			ID:            ids[0],
			EventID:       e.ID,
			EndpointID:    endpointID,
			Run:           run,
			Tenant:        e.Tenant,
			EventType:     e.Type,
			State:         webhook.StatePending,
			NextAttemptAt: stored(now),
			CreatedAt:     stored(now),
		},
		lane: lane, sequence: e.Sequence,
	}
	if d.key, d.ordered = ordering.Key(&e.EventRecord); d.ordered {
		d.lane, d.AwaitsTurn = webhook.LaneWaiting, true
	}
	s.deliveries[d.ID] = d
	if s.unfinished[endpointID] == nil {
		s.unfinished[endpointID] = map[uuid.UUID]*delivery{}
	}
	s.unfinished[endpointID][d.ID] = d
	return d.ID
}

// Ready implements [webhook.DeliveryStore].
func (s *Store) Ready(ctx context.Context, p webhook.ReadyParams) ([]webhook.ReadyLane, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	endpoints := make([]uuid.UUID, 0, len(s.unfinished))
	for id := range s.unfinished {
		if compareIDs(id, p.After) > 0 {
			endpoints = append(endpoints, id)
		}
	}
	slices.SortFunc(endpoints, compareIDs)

	var ready []webhook.ReadyLane
	listed := 0
	for _, id := range endpoints {
		if listed == p.Limit {
			break
		}
		if lanes := s.readyLanes(id, p.Now); len(lanes) > 0 {
			ready = append(ready, lanes...)
			listed++
		}
	}
	return ready, ctx.Err()
}

func (s *Store) readyLanes(endpointID uuid.UUID, now time.Time) []webhook.ReadyLane {
	var lanes []webhook.ReadyLane
	for _, lane := range []webhook.Lane{webhook.LaneFirst, webhook.LaneRetry, webhook.LaneReplay} {
		var earliest time.Time
		for _, d := range s.unfinished[endpointID] {
			if d.lane != lane || d.leasedAt(now) {
				continue
			}
			if earliest.IsZero() || d.NextAttemptAt.Before(earliest) {
				earliest = d.NextAttemptAt
			}
		}
		if !earliest.IsZero() {
			lanes = append(lanes, webhook.ReadyLane{EndpointID: endpointID, Lane: lane, DueAt: earliest})
		}
	}
	return lanes
}

// CountBacklog implements [webhook.BacklogStore].
func (s *Store) CountBacklog(ctx context.Context, requests []webhook.BacklogRequest) ([]webhook.Backlog, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	counted := make([]webhook.Backlog, len(requests))
	for i, r := range requests {
		for _, d := range s.unfinished[r.EndpointID] {
			if d.lane != webhook.LaneFirst {
				continue
			}
			counted[i].Total++
			if !r.Since.IsZero() && d.NextAttemptAt.After(r.Since) {
				counted[i].Since++
			}
		}
		counted[i].Total = min(counted[i].Total, r.Limit)
		counted[i].Since = min(counted[i].Since, r.SinceLimit)
	}
	return counted, ctx.Err()
}

// Claim implements [webhook.DeliveryStore].
func (s *Store) Claim(ctx context.Context, p webhook.ClaimParams) ([]webhook.Claimed, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var claimed []webhook.Claimed
	for _, request := range p.Requests {
		endpoint := s.endpoints[request.EndpointID]
		if endpoint == nil || endpoint.State != webhook.EndpointActive || !endpoint.DeletedAt.IsZero() {
			continue
		}
		for _, d := range s.due(request, p.Now) {
			claimed = append(claimed, s.lease(d, endpoint, request, p))
		}
	}
	return claimed, nil
}

// due returns what a request may have, in the order that it asks for.
func (s *Store) due(request webhook.ClaimRequest, now time.Time) []*delivery {
	var due []*delivery
	for _, d := range s.unfinished[request.EndpointID] {
		tooOld := d.NextAttemptAt.Before(request.Since)
		if d.lane == request.Lane && d.sentAt.IsZero() && !d.NextAttemptAt.After(now) && !d.leasedAt(now) && !tooOld {
			due = append(due, d)
		}
	}
	slices.SortFunc(due, func(a, b *delivery) int {
		oldestFirst := cmp.Or(a.NextAttemptAt.Compare(b.NextAttemptAt), compareIDs(a.ID, b.ID))
		if request.Newest {
			return -oldestFirst
		}
		return oldestFirst
	})
	return due[:min(len(due), request.Limit)]
}

func (s *Store) lease(d *delivery, endpoint *webhook.EndpointRecord, request webhook.ClaimRequest, p webhook.ClaimParams) webhook.Claimed {
	claimed := webhook.Claimed{
		DeliveryID:       d.ID,
		EndpointID:       d.EndpointID,
		Event:            s.events[d.EventID].EventRecord,
		Run:              d.Run,
		Lane:             d.lane,
		Newest:           request.Newest,
		Attempts:         d.Attempts,
		CreatedAt:        d.CreatedAt,
		DueAt:            d.NextAttemptAt,
		TakenOver:        d.token != uuid.Nil,
		EndpointRevision: endpoint.Revision,
		OrderingSkipped:  d.OrderingSkipped,
	}
	if d.ordered {
		claimed.Order = d.order()
	}
	claimed.Event.Payload = bytes.Clone(claimed.Event.Payload)
	d.State = webhook.StateInFlight
	d.token = p.Token
	d.leaseUntil = stored(p.LeaseUntil)
	return claimed
}

// Renew implements [webhook.DeliveryStore].
func (s *Store) Renew(ctx context.Context, p webhook.RenewParams) ([]uuid.UUID, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var lost []uuid.UUID
	for _, lease := range p.Leases {
		d := s.deliveries[lease.DeliveryID]
		if d == nil || !d.heldBy(lease.Token) {
			lost = append(lost, lease.DeliveryID)
			continue
		}
		d.leaseUntil = stored(p.LeaseUntil)
	}
	return lost, nil
}

// Record implements [webhook.DeliveryStore].
func (s *Store) Record(ctx context.Context, p webhook.RecordParams) (webhook.RecordResult, error) {
	if err := ctx.Err(); err != nil {
		return webhook.RecordResult{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var result webhook.RecordResult
	for _, r := range p.Results {
		d := s.deliveries[r.DeliveryID]
		held := d != nil && d.heldBy(r.Token)
		s.logAttempt(r, !held)
		if !held {
			result.Lost = append(result.Lost, r.DeliveryID)
			continue
		}
		s.settle(d, r, p.Now)
		if r.Order != nil {
			result.Released = append(result.Released, s.release(*r.Order, p.Now, time.Time{})...)
		}
	}
	return result, nil
}

func (s *Store) logAttempt(r webhook.Result, late bool) {
	if r.Attempt == nil {
		return
	}
	logged := s.attempts[r.DeliveryID]
	for _, a := range logged {
		if a.token == r.Token && a.Number == r.Attempt.Number {
			return // recorded before; the caller did not hear of it
		}
	}
	attempt := cloneAttempt(*r.Attempt)
	attempt.DeliveryID = r.DeliveryID
	attempt.StartedAt = stored(attempt.StartedAt)
	attempt.Error = text(attempt.Error)
	attempt.Location = text(attempt.Location)
	attempt.Late = late
	s.attempts[r.DeliveryID] = append(logged, loggedAttempt{Attempt: attempt, token: r.Token})
	s.countAttempt(&attempt)
}

// settle applies a result to the delivery that its lease holds.
func (s *Store) settle(d *delivery, r webhook.Result, now time.Time) {
	if r.Attempt != nil {
		if !r.Uncounted {
			d.Attempts++
		}
		d.LastStatus = r.Attempt.Status
		d.LastClass = r.Attempt.Class
	}
	if r.State.Final() {
		s.finish(d, r.State, r.Reason, now)
		return
	}
	d.token = uuid.Nil
	d.leaseUntil = time.Time{}
	d.sentAt = time.Time{}
	d.State = webhook.StatePending
	d.NextAttemptAt = stored(r.NextAttemptAt)
	d.lane = r.Lane
}

func (s *Store) finish(d *delivery, state webhook.DeliveryState, reason string, now time.Time) {
	d.token = uuid.Nil
	d.leaseUntil = time.Time{}
	d.State = state
	d.AwaitsTurn = false
	d.Reason = text(reason)
	d.NextAttemptAt = time.Time{}
	d.FinishedAt = stored(now)
	s.countEnd(d)
	delete(s.unfinished[d.EndpointID], d.ID)
	if len(s.unfinished[d.EndpointID]) == 0 {
		delete(s.unfinished, d.EndpointID)
	}
}

// CancelDeliveries implements [webhook.DeliveryStore].
func (s *Store) CancelDeliveries(ctx context.Context, p webhook.CancelDeliveriesParams) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	endpoint := s.endpoints[p.EndpointID]
	if endpoint == nil || (endpoint.State != webhook.EndpointDisabled && endpoint.DeletedAt.IsZero()) {
		return 0, nil
	}
	cancelled := 0
	for _, d := range s.unfinished[p.EndpointID] {
		if cancelled == p.Limit {
			break
		}
		if d.leasedAt(p.Now) {
			continue
		}
		s.finish(d, webhook.StateCancelled, p.Reason, p.Now)
		cancelled++
	}
	return cancelled, nil
}

func compareIDs(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }
