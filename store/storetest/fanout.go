package storetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

func fanOutTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "every matching endpoint gets one delivery, due now", run: func(e *env[Tx]) {
			all, prefix, exact := e.endpoint("acme", "*"), e.endpoint("acme", "order.*"), e.endpoint("acme", "order.created")
			e.endpoint("acme", "order.deleted", "invoice.*")
			event := e.event("acme", "order.created")
			e.enqueue(event)
			later := e.at(time.Minute)
			e.fanOutAt(later)

			deliveries := e.list(webhook.ListDeliveriesParams{Scope: webhook.AllTenants()})

			e.need(3, len(deliveries), "deliveries")
			e.sameSet(endpointIDs(all, prefix, exact), e.reached(event.ID), "endpoints reached")
			for _, d := range deliveries {
				e.equal(webhook.Delivery{
					ID: d.ID, EventID: event.ID, EndpointID: d.EndpointID, Tenant: "acme", EventType: "order.created",
					State: webhook.StatePending, NextAttemptAt: later, CreatedAt: later,
				}, d, "delivery")
			}
		}},
		{name: "the result tells what was done", run: func(e *env[Tx]) {
			first, second := e.endpoint("acme", "*"), e.endpoint("acme", "order.*")
			events := []webhook.EventRecord{e.event("acme", "order.a"), e.event("acme", "invoice.a"), e.event("nobody", "x"), e.event("acme", "y")}
			events[1].CreatedAt = e.at(-time.Hour)
			events[3].CreatedAt = e.at(-2 * time.Hour)
			e.enqueue(events...)
			m := newMatcher()

			result := e.fanOutWith(m, 3, plenty)

			e.sameSet(endpointIDs(first, second), result.Endpoints, "endpoints")
			e.truth(result.More, "more: got false with an event left")
			e.equal(events[1].CreatedAt, result.OldestCreatedAt, "oldest creation time")
			e.equal([4]int{3, 3, 1, 3}, [4]int{result.Events, result.Finished, result.Unmatched, result.Deliveries},
				"events, finished, unmatched, deliveries")
		}},
		{name: "an empty outbox gives an empty result", run: func(e *env[Tx]) {
			e.endpoint("acme", "*")
			e.equal(webhook.FanOutResult{}, e.fanOutWith(newMatcher(), plenty, plenty), "result")
			e.delivery("acme")
			e.equal(webhook.FanOutResult{}, e.fanOutWith(newMatcher(), plenty, plenty), "result when all is done")
		}},
		{name: "no more entries are taken than asked for, the oldest first", run: func(e *env[Tx]) {
			events := e.eventsOf(5, "acme", "order.created")
			e.enqueue(events...)
			m := newMatcher()
			for _, want := range []int{2, 2, 1, 0} {
				e.equal(want, e.fanOutWith(m, 2, plenty).Events, "events of one step")
			}
			e.equal(eventIDs(events...), eventIDs(m.seen...), "order")
		}},
		{name: "no more deliveries are written than asked for, and the rest follows", run: func(e *env[Tx]) {
			endpoints := e.endpoints(3, "acme", "*")
			events := e.eventsOf(4, "acme", "order.created")
			e.enqueue(events...)
			m := newMatcher()
			for range 20 {
				if result := e.fanOutWith(m, plenty, 5); result.Deliveries > 5 {
					e.t.Fatalf("one step wrote %d deliveries, more than 5", result.Deliveries)
				}
			}
			for _, event := range events {
				e.sameSet(endpointIDs(endpoints...), e.reached(event.ID), "endpoints reached")
				e.truth(e.getEvent(event.ID).FannedOut, "event is still in the outbox")
			}
		}},
		{name: "an event is fanned out once it has left the outbox, and once only", run: func(e *env[Tx]) {
			e.endpoint("acme", "*")
			event := e.event("acme", "order.created")
			e.enqueue(event)
			e.truth(!e.getEvent(event.ID).FannedOut, "an event in the outbox says that it is fanned out")

			e.fanOut()
			e.fanOut()

			status := e.getEvent(event.ID)
			e.truth(status.FannedOut, "an event that left the outbox says that it is in it")
			e.truth(!status.Unmatched, "a matched event says that it is unmatched")
			e.equal(1, len(e.reached(event.ID)), "deliveries")
		}},
		{name: "an event without any endpoint is recorded as unmatched", run: func(e *env[Tx]) {
			event := e.event("acme", "order.created")
			e.enqueue(event)
			e.truth(!e.getEvent(event.ID).Unmatched, "an event in the outbox says that it is unmatched")

			result := e.fanOutWith(newMatcher(), plenty, plenty)

			e.equal([3]int{1, 1, 1}, [3]int{result.Events, result.Finished, result.Unmatched}, "events, finished, unmatched")
			e.equal(0, len(result.Endpoints), "endpoints")
			status := e.getEvent(event.ID)
			e.truth(status.FannedOut && status.Unmatched, "fanned out %t, unmatched %t; want both", status.FannedOut, status.Unmatched)
		}},
		{name: "an event reaches endpoints of its own tenant only", run: func(e *env[Tx]) {
			tenants := []string{"acme", "other", "ACME", "acme "}
			endpoints := map[string]webhook.EndpointRecord{}
			var events []webhook.EventRecord
			for _, tenant := range tenants {
				endpoints[tenant] = e.endpoint(tenant, "*")
				events = append(events, e.event(tenant, "order.created"))
			}
			e.enqueue(events...)
			e.fanOut()
			for _, event := range events {
				e.equal([]uuid.UUID{endpoints[event.Tenant].ID}, e.reached(event.ID), "endpoints reached by tenant %q", event.Tenant)
				for _, d := range e.list(webhook.ListDeliveriesParams{Scope: webhook.TenantScope(event.Tenant)}) {
					e.equal(event.Tenant, d.Tenant, "tenant of a delivery")
					e.equal(event.ID, d.EventID, "event of a delivery")
				}
			}
		}},
		{name: "paused and disabled endpoints get deliveries, deleted ones none", run: func(e *env[Tx]) {
			paused := e.setState(e.endpoint("acme", "*"), webhook.EndpointPaused)
			disabled := e.setState(e.endpoint("acme", "*"), webhook.EndpointDisabled)
			e.deleteEndpoint(e.endpoint("acme", "*"))
			event := e.event("acme", "order.created")
			e.enqueue(event)
			e.fanOut()
			e.sameSet(endpointIDs(paused, disabled), e.reached(event.ID), "endpoints reached")
		}},
		{name: "an error of the matcher leaves everything as it was", run: func(e *env[Tx]) {
			endpoint := e.endpoint("acme", "*")
			events := e.eventsOf(3, "acme", "order.created")
			e.enqueue(events...)
			broken := errors.New("the matcher is broken")
			m := newMatcher()
			m.beforeApply = func() error { return broken }

			_, err := e.store.FanOut(e.ctx, webhook.FanOutParams{Now: e.now, MaxEvents: plenty, MaxDeliveries: plenty, Matcher: m})

			e.wantError(broken, err, "fan out with a broken matcher")
			e.expectUntouched(endpoint, events)
		}},
		{name: "a panic of the matcher leaves everything as it was", run: func(e *env[Tx]) {
			endpoint := e.endpoint("acme", "*")
			events := e.eventsOf(3, "acme", "order.created")
			e.enqueue(events...)
			m := newMatcher()
			m.beforeMatch = func(event *webhook.EventRecord) {
				if event.ID == events[1].ID {
					panic("the matcher is broken")
				}
			}
			// As often as it takes to use up a pool of connections.
			for range 20 {
				e.expectPanic(func() {
					_, _ = e.store.FanOut(e.ctx, webhook.FanOutParams{Now: e.now, MaxEvents: plenty, MaxDeliveries: plenty, Matcher: m})
				})
			}
			e.expectUntouched(endpoint, events)
		}},
		{name: "a cancelled fan-out leaves everything as it was", run: func(e *env[Tx]) {
			endpoint := e.endpoint("acme", "*")
			events := e.eventsOf(3, "acme", "order.created")
			e.enqueue(events...)
			ctx, cancel := context.WithCancel(e.ctx)
			m := newMatcher()
			m.beforeApply = func() error {
				cancel()
				return ctx.Err()
			}

			_, err := e.store.FanOut(ctx, webhook.FanOutParams{Now: e.now, MaxEvents: plenty, MaxDeliveries: plenty, Matcher: m})

			e.truth(err != nil, "a cancelled fan-out returned no error")
			e.expectUntouched(endpoint, events)
		}},
	}
}

// expectPanic runs fn and checks that its panic comes through: a store must not
// take a bug for a success.
func (e *env[Tx]) expectPanic(fn func()) {
	e.t.Helper()
	defer func() {
		e.t.Helper()
		if recover() == nil {
			e.t.Fatal("the matcher's panic did not reach the caller")
		}
	}()
	fn()
}

// expectUntouched checks that nothing was done with the events so far, and that
// everything still can be.
func (e *env[Tx]) expectUntouched(endpoint webhook.EndpointRecord, events []webhook.EventRecord) {
	e.t.Helper()
	for i, event := range events {
		e.truth(!e.getEvent(event.ID).FannedOut, "event %d left the outbox", i)
		e.equal(0, len(e.reached(event.ID)), "deliveries of event %d", i)
	}
	result := e.fanOutWith(newMatcher(), plenty, plenty)
	e.equal(len(events), result.Finished, "events finished by the next fan-out")
	for i, event := range events {
		e.equal([]uuid.UUID{endpoint.ID}, e.reached(event.ID), "endpoints of event %d", i)
	}
}

// giantTests are about events with more endpoints than one transaction writes.
func giantTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "an event with many endpoints proceeds in steps and reaches each once", run: func(e *env[Tx]) {
			endpoints := e.endpoints(10, "acme", "*")
			giant := e.event("acme", "order.created")
			e.enqueue(giant)
			m := newMatcher()
			for step, want := range []webhook.FanOutResult{
				{Events: 1, Deliveries: 4}, {Events: 1, Deliveries: 4}, {Events: 1, Deliveries: 2, Finished: 1},
			} {
				got := e.fanOutWith(m, plenty, 4)
				e.equal([3]int{want.Events, want.Deliveries, want.Finished}, [3]int{got.Events, got.Deliveries, got.Finished},
					"events, deliveries, finished of step %d", step)
				e.equal(want.Deliveries, len(got.Endpoints), "endpoints of step %d", step)
				e.equal(want.Finished == 1, e.getEvent(giant.ID).FannedOut, "fanned out after step %d", step)
				if want.Finished == 0 {
					e.truth(got.More, "more after step %d: got false", step)
				}
			}
			e.sameSet(endpointIDs(endpoints...), e.reached(giant.ID), "endpoints reached")
			e.truth(!e.getEvent(giant.ID).Unmatched, "the giant says that it is unmatched")
		}},
		{name: "another process goes on where one stopped", run: func(e *env[Tx]) {
			endpoints := e.endpoints(10, "acme", "*")
			giant := e.event("acme", "order.created")
			e.enqueue(giant)
			for range 4 {
				_, err := e.db.Connect(e.t).FanOut(e.ctx, webhook.FanOutParams{
					Now: e.now, MaxEvents: plenty, MaxDeliveries: 3, Matcher: newMatcher(),
				})
				e.must(err, "fan out")
			}
			e.sameSet(endpointIDs(endpoints...), e.reached(giant.ID), "endpoints reached")
			e.truth(e.getEvent(giant.ID).FannedOut, "the giant is still in the outbox")
		}},
		{name: "others pass an event with many endpoints", run: func(e *env[Tx]) {
			e.endpoints(10, "giant", "*")
			e.endpoint("acme", "*")
			giant := e.event("giant", "order.created")
			small := e.eventsOf(2, "acme", "order.created")
			e.enqueue(giant, small[0], small[1])
			m := newMatcher()
			for range 5 {
				e.fanOutWith(m, 1, 4)
			}
			e.equal(eventIDs(giant, small[0], small[1], giant, giant), eventIDs(m.seen...), "order of the steps")
			e.equal(10, len(e.reached(giant.ID)), "deliveries of the giant")
		}},
		{name: "a steady stream of events does not starve an event with many endpoints", run: func(e *env[Tx]) {
			e.endpoints(10, "giant", "*")
			e.endpoint("acme", "*")
			giant := e.event("giant", "order.created")
			e.enqueue(giant)
			m := newMatcher()
			for range 12 {
				e.enqueue(e.event("acme", "order.created"))
				e.fanOutWith(m, 1, 4)
			}
			e.truth(e.getEvent(giant.ID).FannedOut, "the giant is still in the outbox after 12 steps")
		}},
		{name: "events that the step had no room for keep their order", run: func(e *env[Tx]) {
			e.endpoints(4, "acme", "*")
			events := e.eventsOf(4, "acme", "order.created")
			e.enqueue(events...)
			m := newMatcher()
			var finished []uuid.UUID
			for range 10 {
				e.fanOutWith(m, plenty, 4)
				for _, event := range events {
					if len(finished) < 4 && e.getEvent(event.ID).FannedOut && !slices.Contains(finished, event.ID) {
						finished = append(finished, event.ID)
					}
				}
			}
			e.equal(eventIDs(events...), finished, "order in which the events were finished")
		}},
		{name: "an endpoint deleted half-way gets nothing from the later steps", run: func(e *env[Tx]) {
			endpoints := e.endpoints(6, "acme", "*")
			giant := e.event("acme", "order.created")
			e.enqueue(giant)
			m := newMatcher()
			e.fanOutWith(m, 1, 3)
			e.deleteEndpoint(endpoints[5])
			e.fanOutWith(m, 1, 3)
			e.sameSet(endpointIDs(endpoints[:5]...), e.reached(giant.ID), "endpoints reached")
			e.truth(e.getEvent(giant.ID).FannedOut, "the giant is still in the outbox")
		}},
	}
}
