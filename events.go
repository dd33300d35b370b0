package webhook

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook/internal/egress"
)

// settleTime is how old an event is before a list that goes forward in time shows it
// (see EventQuery.OldestFirst).
const settleTime = time.Minute

// Events reads events. It is safe for concurrent use. Get it from [Hooks.Events].
//
// An event that does not exist, is no longer stored, or is outside of the scope is
// [ErrNotFound].
type Events struct {
	core *core
}

// Get returns an event with its payload: the bytes that were enqueued, unless
// [Config.Redaction] leaves some of them out. Where the payload cannot be read from the
// [PayloadStore], the rest of the event is returned, and its PayloadFault says why.
func (s *Events) Get(ctx context.Context, scope Scope, id uuid.UUID) (EventStatus, error) {
	e, err := s.core.backend.GetEvent(ctx, scope, id)
	if err != nil {
		return EventStatus{}, fmt.Errorf("get event %s: %w", id, err)
	}
	if e.Payload, err = s.core.payloads.read(ctx, &e.EventRecord); err != nil {
		if ctx.Err() != nil {
			return EventStatus{}, fmt.Errorf("get event %s: %w", id, ctx.Err())
		}
		e.PayloadFault = faultOf(err)
		s.core.log.WarnContext(ctx, "webhook: an event without its payload", "event", id, "tenant", e.Tenant, "error", egress.Detail(err))
		return e, nil
	}
	s.core.redactPayload(&e)
	return e, nil
}

// EventQuery says which events [Events.List] returns. Zero fields do not filter, but
// for Scope, whose zero value is the tenant with the empty name.
type EventQuery struct {
	// Cursor is the Next of the page before. Empty begins at the beginning of the
	// order. It goes with the scope, the filter and the order that it was made for;
	// with others it is refused with [ErrCursor].
	Cursor string

	// From and Until limit the times at which events were enqueued; Until is not
	// among them.
	From, Until time.Time

	// Limit is how many events a page has at most. Zero means 100; more than 1,000
	// means 1,000; negative is refused.
	Limit int

	// OldestFirst lists in the order in which events were enqueued, for a customer
	// who compares what has arrived with what was sent: with the last cursor the list
	// can be gone on with later. Transactions commit in another order than they
	// enqueue in, so an event is listed so when it is a minute old. One whose
	// transaction took longer than that from the enqueuing to the commit may have
	// been passed by: whoever must not miss it reads some hours again. False means
	// newest first, with the newest.
	OldestFirst bool

	ResourceID string
	Scope      Scope

	// Type is a type, not a pattern.
	Type string

	// Unmatched asks for events that no endpoint was subscribed to.
	Unmatched bool
}

// EventPage is a page of a list of events.
type EventPage struct {
	// Events have no payloads; [Events.Get] has.
	Events []EventStatus
	// Next is the cursor of the next page. Newest first it is empty after the last
	// page. Oldest first there is always one, since events may follow: More says
	// whether some are there already. A page may be short, or empty, and not be the
	// last, as in [DeliveryPage].
	Next string
	More bool
}

// List returns events, newest first or oldest first. Pages that follow one another
// have neither gaps nor doubles.
func (s *Events) List(ctx context.Context, q EventQuery) (EventPage, error) {
	limit, err := pageLimit("EventQuery.Limit", q.Limit)
	if err != nil {
		return EventPage{}, err
	}
	if err := checkText("Type", q.Type, maxTypeBytes); err != nil {
		return EventPage{}, err.in("EventQuery")
	}
	if err := checkText("ResourceID", q.ResourceID, maxIDBytes); err != nil {
		return EventPage{}, err.in("EventQuery")
	}
	mark := q.mark()
	p := ListEventsParams{
		Scope: q.Scope, Type: q.Type, ResourceID: q.ResourceID, Unmatched: q.Unmatched,
		From: q.From, Until: q.Until, OldestFirst: q.OldestFirst,
	}
	if p.After, err = q.position(mark); err != nil {
		return EventPage{}, err
	}
	if q.OldestFirst {
		now, err := s.core.now(ctx)
		if err != nil {
			return EventPage{}, err
		}
		p.SettledAt = now.Add(-settleTime)
	}
	return s.page(ctx, p, mark, limit)
}

func (s *Events) page(ctx context.Context, p ListEventsParams, mark *listMark, limit int) (EventPage, error) {
	var page EventPage
	for round := 0; round < listRounds && len(page.Events) < limit; round++ {
		p.Limit = limit - len(page.Events)
		part, err := s.core.backend.ListEvents(ctx, p)
		if err != nil {
			return EventPage{}, fmt.Errorf("list events: %w", err)
		}
		page.Events = append(page.Events, part.Events...)
		page.More, p.After = part.More, part.Next
		if !page.More {
			break
		}
	}
	if page.More || p.OldestFirst {
		page.Next = mark.cursor(binary.BigEndian.AppendUint64(p.After.ID[:], uint64(p.After.Sequence)))
	}
	return page, nil
}

func (q *EventQuery) mark() *listMark {
	m := newListMark("events", q.Scope)
	m.add(q.Type)
	m.add(q.ResourceID)
	m.flag(q.Unmatched)
	m.flag(q.OldestFirst)
	m.time(q.From)
	m.time(q.Until)
	return m
}

// position reads the cursor.
func (q *EventQuery) position(mark *listMark) (EventPosition, error) {
	if q.Cursor == "" {
		return EventPosition{}, nil
	}
	const idBytes = len(uuid.UUID{})
	b, err := mark.position("EventQuery.Cursor", q.Cursor, idBytes+8)
	if err != nil {
		return EventPosition{}, err
	}
	return EventPosition{ID: uuid.UUID(b[:idBytes]), Sequence: int64(binary.BigEndian.Uint64(b[idBytes:]))}, nil
}
