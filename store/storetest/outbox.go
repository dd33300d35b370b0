package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

func outboxTests[Tx any](h Harness[Tx]) []test[Tx] {
	tests := []test[Tx]{
		{name: "a rolled-back event never appears", run: func(e *env[Tx]) {
			e.endpoint("acme", "*")
			lost, kept := e.keyed("acme", "k"), e.event("acme", "order.created")
			tx := e.begin()
			tx.insert(lost)
			tx.rollback()
			e.enqueue(kept)

			m := newMatcher()
			result := e.fanOutWith(m, plenty, plenty)

			_, err := e.store.GetEvent(e.ctx, webhook.AllTenants(), lost.ID)
			e.wantError(webhook.ErrNotFound, err, "get the rolled-back event")
			e.equal(1, result.Events, "events fanned out")
			e.equal(0, len(e.reached(lost.ID)), "deliveries of the rolled-back event")
			e.equal(1, len(e.reached(kept.ID)), "deliveries of the other event")
		}},
		{name: "the events of one call are taken in the order given", run: func(e *env[Tx]) {
			events := e.eventsOf(50, "acme", "order.created")
			// Ids that do not ascend: the order is that of the call, not of ids.
			slices.Reverse(events)
			e.enqueue(events...)
			e.expectOrder(events)
		}},
		{name: "the events of successive calls and transactions are taken in that order", run: func(e *env[Tx]) {
			events := e.eventsOf(6, "acme", "order.created")
			slices.Reverse(events)
			tx := e.begin()
			tx.insert(events[0])
			tx.insert(events[1], events[2])
			tx.commit()
			e.enqueue(events[3])
			e.enqueue(events[4:]...)
			e.expectOrder(events)
		}},
		{name: "all fields of an event are kept but its idempotency key", run: func(e *env[Tx]) {
			event := webhook.EventRecord{
				ID: newID(), Tenant: "acme – ü", Type: "invoice.paid", ResourceID: "in_9/ä", ResourceVersion: 1 << 60,
				IdempotencyKey: "in_9:paid", ContentType: "text/plain; charset=utf-8", Payload: []byte("x"),
				CreatedAt: e.at(-time.Hour),
			}
			e.enqueue(event)

			got := e.getEvent(event.ID).EventRecord

			e.truth(got.Sequence > 0, "sequence: got %d, want a positive number", got.Sequence)
			e.equal("", got.IdempotencyKey, "idempotency key")
			e.equal(event.CreatedAt, got.CreatedAt, "created at")
			e.sameEvent(event, got)
		}},
		{name: "a claim brings the trace that an event was enqueued in", run: func(e *env[Tx]) {
			endpoint := e.endpoint("acme", "order.created")
			events := e.eventsOf(4, "acme", "order.created")
			trace := func(i int) string { return fmt.Sprintf("00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333%d-01", i) }
			events[0].TraceParent = trace(0)
			events[1].TraceParent, events[1].IdempotencyKey = trace(1), "with a key"
			events[2].TraceParent = trace(2)
			e.enqueue(events[0])
			e.enqueue(events[1])
			e.enqueue(events[2:]...)
			e.fanOut()

			got := make(map[uuid.UUID]string)
			for _, c := range e.claim(e.now, oldest(endpoint, webhook.LaneFirst, plenty)) {
				got[c.Event.ID] = c.Event.TraceParent
			}

			e.equal(trace(0), got[events[0].ID], "one event")
			e.equal(trace(1), got[events[1].ID], "one with a key")
			e.equal(trace(2), got[events[2].ID], "one of several")
			e.equal("", got[events[3].ID], "one without a trace")
		}},
		{name: "a time is kept to the microsecond and returned in UTC", run: func(e *env[Tx]) {
			event := e.event("acme", "order.created")
			given := e.now.Add(777_777 * time.Nanosecond).In(time.FixedZone("elsewhere", 5*3600))
			event.CreatedAt = given
			e.enqueue(event)

			got := e.getEvent(event.ID).CreatedAt

			e.equal(time.UTC, got.Location(), "location")
			e.equal(0, got.Nanosecond()%1000, "nanoseconds")
			e.truth(got.Sub(given).Abs() <= time.Microsecond, "created at: got %s, want %s", got, given)
		}},
		{name: "an event without a creation time gets the database's", run: func(e *env[Tx]) {
			event := e.event("acme", "order.created")
			event.CreatedAt = time.Time{}
			e.enqueue(event)
			after, err := e.store.Now(e.ctx)
			e.must(err, "read the database's time")

			got := e.getEvent(event.ID).CreatedAt

			e.truth(!got.Before(e.now.Add(-time.Second)) && !got.After(after.Add(time.Second)),
				"created at: got %s, want between %s and %s", got, e.now, after)
		}},
		{name: "a payload is kept byte for byte", run: func(e *env[Tx]) {
			for _, c := range payloads() {
				event := e.event("acme", "order.created")
				event.ContentType = c.contentType
				event.Payload = c.payload
				endpoint := e.endpoint("acme", "order.created")
				e.enqueue(event)
				e.sameBytes(c.payload, e.getEvent(event.ID).Payload, c.name+", read")

				e.fanOut()
				claimed := e.claimOne(e.now, endpoint, webhook.LaneFirst)

				e.sameBytes(c.payload, claimed.Event.Payload, c.name+", claimed")
				e.equal(c.contentType, claimed.Event.ContentType, "%s, content type", c.name)
				e.deleteEndpoint(endpoint)
			}
		}},
		{name: "ten thousand events are written by one call", run: func(e *env[Tx]) {
			const n = 10_000
			events := e.eventsOf(n, "acme", "order.created")
			results := e.enqueue(events...)
			for i, result := range results {
				if result != (webhook.EnqueueResult{EventID: events[i].ID}) {
					e.t.Fatalf("result %d: got %v, want %v", i, result, events[i].ID)
				}
			}
			// A sample: to fan all of them out would cost more than it shows.
			var last int64
			for i := 49; i < n; i += 50 {
				sequence := e.getEvent(events[i].ID).Sequence
				e.truth(sequence >= last+50 || last == 0, "sequence of event %d is %d, %d of the one 50 before", i, sequence, last)
				last = sequence
			}
		}},
		{name: "a call without events does nothing", run: func(e *env[Tx]) {
			tx := e.begin()
			tx.insert()
			event := e.event("acme", "order.created")
			tx.insert(event)
			tx.commit()
			e.equal(event.ID, e.getEvent(event.ID).ID, "event")
		}},
		{name: "the transaction stays the host's", run: func(e *env[Tx]) {
			// Whatever a call finds, it neither ends the transaction nor breaks it.
			e.enqueue(e.keyed("acme", "taken"))
			first, second := e.event("acme", "order.created"), e.event("acme", "order.created")
			tx := e.begin()
			tx.insert(first)
			tx.insert(e.keyed("acme", "taken"))
			tx.insert(second)
			tx.rollback()
			for _, id := range eventIDs(first, second) {
				_, err := e.store.GetEvent(e.ctx, webhook.AllTenants(), id)
				e.wantError(webhook.ErrNotFound, err, "get an event of the rolled-back transaction")
			}
		}},
	}
	if h.SingleConnection {
		return tests
	}
	return append(tests, test[Tx]{name: "an event appears when its transaction commits", run: func(e *env[Tx]) {
		event := e.event("acme", "order.created")
		tx := e.begin()
		results := tx.insert(event)
		_, err := e.db.Connect(e.t).GetEvent(e.ctx, webhook.AllTenants(), event.ID)
		e.wantError(webhook.ErrNotFound, err, "get the event before the commit")

		tx.commit()

		e.equal(webhook.EnqueueResult{EventID: event.ID}, results[0], "result")
		e.equal(event.ID, e.getEvent(event.ID).ID, "event")
	}})
}

// payloads are bytes that storage tends to change.
func payloads() []struct {
	name        string
	contentType string
	payload     []byte
} {
	json := func(name, payload string) struct {
		name        string
		contentType string
		payload     []byte
	} {
		return struct {
			name        string
			contentType string
			payload     []byte
		}{name, "", []byte(payload)}
	}
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	binary := json("every byte", string(every))
	binary.contentType = "application/octet-stream"
	latin1 := json("invalid UTF-8", "caf\xe9 \xff\xc3")
	latin1.contentType = "text/plain; charset=latin1"
	nul := json("NUL bytes", "a\x00b\x00")
	nul.contentType = "application/octet-stream"
	empty := json("empty", "")
	empty.contentType = "application/octet-stream"
	return []struct {
		name        string
		contentType string
		payload     []byte
	}{
		json("white space and the order of keys", "{\"b\" : 1,\n \"a\":\"\xc3\xa9\\/\" , \"b\":2}\n"),
		json("an escaped NUL", `{"diff":"a\u0000b"}`),
		json("large numbers", `{"n":10002318,"big":7615917337495251231,"f":1.0,"e":1E3}`),
		json("lone surrogates", `{"s":"\ud800"}`),
		json("256 KiB", `"`+string(bytes.Repeat([]byte("0123456789abcdef"), 16*1024))[2:]+`"`),
		binary, latin1, nul, empty,
	}
}

// expectOrder empties the outbox one event at a time and checks the order, and
// that sequences ascend likewise.
func (e *env[Tx]) expectOrder(events []webhook.EventRecord) {
	e.t.Helper()
	m := newMatcher()
	for range events {
		e.equal(1, e.fanOutWith(m, 1, plenty).Finished, "events finished in one step")
	}
	e.equal(eventIDs(events...), eventIDs(m.seen...), "order of fan-out")
	var last int64
	for i, event := range events {
		sequence := e.getEvent(event.ID).Sequence
		e.truth(sequence > last, "sequence of event %d is %d, not after %d", i, sequence, last)
		last = sequence
	}
}

// sameEvent compares what the host gave with what came back.
func (e *env[Tx]) sameEvent(want, got webhook.EventRecord) {
	e.t.Helper()
	e.sameBytes(want.Payload, got.Payload, "payload")
	want.Payload, got.Payload = nil, nil
	want.IdempotencyKey, got.IdempotencyKey = "", ""
	want.Sequence, got.Sequence = 0, 0
	want.CreatedAt, got.CreatedAt = want.CreatedAt.UTC(), got.CreatedAt.UTC()
	e.equal(want, got, "event")
}

func duplicateTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "a key that is taken in the database gives the first event's id", run: func(e *env[Tx]) {
			first, second := e.keyed("acme", "k"), e.keyed("acme", "k")
			e.enqueue(first)

			result := e.enqueue(second)[0]

			e.equal(webhook.EnqueueResult{EventID: first.ID, Duplicate: true}, result, "result")
			e.onlyThese(first)
		}},
		{name: "a key that an earlier event of the call has gives that event's id", run: func(e *env[Tx]) {
			first, second, other := e.keyed("acme", "k"), e.keyed("acme", "k"), e.keyed("acme", "other")

			results := e.enqueue(first, other, second)

			e.equal([]webhook.EnqueueResult{
				{EventID: first.ID}, {EventID: other.ID}, {EventID: first.ID, Duplicate: true},
			}, results, "results")
			e.onlyThese(first, other)
		}},
		{name: "a key that the transaction itself has taken gives the first event's id", run: func(e *env[Tx]) {
			first, second := e.keyed("acme", "k"), e.keyed("acme", "k")
			tx := e.begin()
			tx.insert(first)
			result := tx.insert(second)[0]
			tx.commit()

			e.equal(webhook.EnqueueResult{EventID: first.ID, Duplicate: true}, result, "result")
			e.onlyThese(first)
		}},
		{name: "results stand in the order of the events, duplicates among them", run: func(e *env[Tx]) {
			taken := e.keyed("acme", "b")
			e.enqueue(taken)
			a, again, c, plain := e.keyed("acme", "c"), e.keyed("acme", "b"), e.keyed("acme", "a"), e.event("acme", "x")

			results := e.enqueue(a, again, plain, c)

			e.equal([]webhook.EnqueueResult{
				{EventID: a.ID}, {EventID: taken.ID, Duplicate: true}, {EventID: plain.ID}, {EventID: c.ID},
			}, results, "results")
			e.expectOrder([]webhook.EventRecord{taken, a, plain, c})
		}},
		{name: "tenants do not share keys", run: func(e *env[Tx]) {
			acme, other := e.keyed("acme", "k"), e.keyed("other", "k")
			e.equal(webhook.EnqueueResult{EventID: acme.ID}, e.enqueue(acme)[0], "acme's")
			e.equal(webhook.EnqueueResult{EventID: other.ID}, e.enqueue(other)[0], "other's")
			e.onlyThese(acme, other)
		}},
		{name: "events without a key are never duplicates", run: func(e *env[Tx]) {
			events := e.eventsOf(3, "acme", "order.created")
			for i, result := range e.enqueue(events...) {
				e.equal(webhook.EnqueueResult{EventID: events[i].ID}, result, "result %d", i)
			}
			e.onlyThese(events...)
		}},
		{name: "a rolled-back key is free again", run: func(e *env[Tx]) {
			second := e.keyed("acme", "k")
			tx := e.begin()
			tx.insert(e.keyed("acme", "k"))
			tx.rollback()
			e.equal(webhook.EnqueueResult{EventID: second.ID}, e.enqueue(second)[0], "result")
		}},
		{name: "a duplicate changes nothing of the first event", run: func(e *env[Tx]) {
			first := e.keyed("acme", "k")
			first.Payload = []byte(`{"n":1}`)
			second := e.keyed("acme", "k")
			second.Payload, second.Type = []byte(`{"n":2}`), "order.changed"
			e.enqueue(first)
			e.enqueue(second)
			e.sameEvent(first, e.getEvent(first.ID).EventRecord)
		}},
		{name: "thousands of events with keys are written by one call", run: func(e *env[Tx]) {
			const n = 3_000
			events := make([]webhook.EventRecord, n)
			for i := range events {
				// Every third one repeats the key of the one before it.
				events[i] = e.keyed("acme", newID().String())
				if i%3 == 2 {
					events[i].IdempotencyKey = events[i-1].IdempotencyKey
				}
			}
			results := e.enqueue(events...)

			for i, result := range results {
				want := webhook.EnqueueResult{EventID: events[i].ID}
				if i%3 == 2 {
					want = webhook.EnqueueResult{EventID: events[i-1].ID, Duplicate: true}
				}
				if result != want {
					e.t.Fatalf("result %d: got %v, want %v", i, result, want)
				}
			}
			finished, err := e.drain(e.store, e.now, plenty)
			e.must(err, "fan out")
			e.equal(n/3*2, finished, "events written")
		}},
	}
}

// onlyThese checks that the outbox holds these events and no other.
func (e *env[Tx]) onlyThese(events ...webhook.EventRecord) {
	e.t.Helper()
	m := newMatcher()
	e.fanOutWith(m, plenty, plenty)
	var seen []uuid.UUID
	for _, event := range m.seen {
		seen = append(seen, event.ID)
	}
	e.sameSet(eventIDs(events...), seen, "events in the outbox")
}
