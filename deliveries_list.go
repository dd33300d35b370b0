package webhook

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
)

const (
	// defaultPage is the size of a page when none is asked for.
	defaultPage = 100

	// listRounds bounds how many parts a store is asked for to fill one page. Each
	// takes some tens of milliseconds at worst, and a page may take a tenth of a
	// second; one that is not full then has a cursor to go on with.
	listRounds = 2
)

// DeliveryQuery says which deliveries [Deliveries.List] returns. Zero fields do not
// filter, but for Scope, whose zero value is the tenant with the empty name.
type DeliveryQuery struct {
	// Cursor is the Next of the page before. Empty begins with the newest. It goes
	// with the scope and the filter that it was made for; with others it is refused
	// with [ErrCursor].
	Cursor string

	EndpointID uuid.UUID
	EventID    uuid.UUID

	// EventType is a type, not a pattern.
	EventType string

	// From and Until limit the times at which deliveries were made; Until is not
	// among them.
	From, Until time.Time

	// Limit is how many deliveries a page has at most. Zero means 100; more than
	// 1,000 means 1,000; negative is refused.
	Limit int

	// ResourceID is that of the event. A delivery whose event is no longer stored
	// is not found by it.
	ResourceID string

	Scope Scope
	State DeliveryState

	// Status is that of the latest attempt.
	Status StatusClass
}

// DeliveryPage is a page of a list of deliveries.
type DeliveryPage struct {
	Deliveries []Delivery
	// Next is the cursor of the next page; empty after the last one. A page may be
	// short, or empty, and have a next one: where few of many deliveries match, one
	// page looks at so many of them and no more.
	Next string
}

// List returns deliveries, finished or not, in one order: those that were made last
// come first. While deliveries are made and end, pages that follow one another have
// neither gaps nor doubles.
func (s *Deliveries) List(ctx context.Context, q DeliveryQuery) (DeliveryPage, error) {
	limit, err := pageLimit("DeliveryQuery.Limit", q.Limit)
	if err != nil {
		return DeliveryPage{}, err
	}
	if err := q.check(); err != nil {
		return DeliveryPage{}, err
	}
	mark := q.mark()
	p := ListDeliveriesParams{
		Scope: q.Scope, EventID: q.EventID, EndpointID: q.EndpointID, State: q.State, EventType: q.EventType,
		ResourceID: q.ResourceID, Status: q.Status, From: q.From, Until: q.Until,
	}
	if q.Cursor != "" {
		position, err := mark.position("DeliveryQuery.Cursor", q.Cursor, len(uuid.UUID{}))
		if err != nil {
			return DeliveryPage{}, err
		}
		p.Before = uuid.UUID(position)
	}
	var page DeliveryPage
	for round := 0; round < listRounds && len(page.Deliveries) < limit; round++ {
		p.Limit = limit - len(page.Deliveries)
		part, err := s.core.backend.ListDeliveries(ctx, p)
		if err != nil {
			return DeliveryPage{}, fmt.Errorf("list deliveries: %w", err)
		}
		page.Deliveries = append(page.Deliveries, part.Deliveries...)
		if part.Next == uuid.Nil {
			return page, nil
		}
		p.Before = part.Next
	}
	page.Next = mark.cursor(p.Before[:])
	return page, nil
}

// check refuses a filter that nothing can match.
func (q *DeliveryQuery) check() error {
	switch q.State {
	case "", StatePending, StateInFlight, StateDelivered, StateDead, StateCancelled, StateShed:
	default:
		return invalid("DeliveryQuery.State", "is not a delivery's state")
	}
	if _, _, ok := q.Status.Bounds(); q.Status != "" && !ok {
		return invalid("DeliveryQuery.Status", "is not a class of status")
	}
	if err := checkText("EventType", q.EventType, maxTypeBytes); err != nil {
		return err.in("DeliveryQuery")
	}
	if err := checkText("ResourceID", q.ResourceID, maxIDBytes); err != nil {
		return err.in("DeliveryQuery")
	}
	return nil
}

func (q *DeliveryQuery) mark() *listMark {
	m := newListMark("deliveries", q.Scope)
	m.id(q.EndpointID)
	m.id(q.EventID)
	m.add(string(q.State))
	m.add(q.EventType)
	m.add(q.ResourceID)
	m.add(string(q.Status))
	m.time(q.From)
	m.time(q.Until)
	return m
}

// pageLimit is how many entries a page has.
func pageLimit(field string, limit int) (int, error) {
	switch {
	case limit < 0:
		return 0, invalid(field, "is negative")
	case limit == 0:
		return defaultPage, nil
	}
	return min(limit, maxListLimit), nil
}
