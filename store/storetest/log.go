package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

func logTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "events, deliveries and attempts are found within their scope only", run: func(e *env[Tx]) {
			held := e.claimOne(e.now, e.delivery("acme"), webhook.LaneFirst)
			e.record(e.now, retry(held, e.now, e.at(time.Minute)))
			for round, finished := range []bool{false, true} {
				if finished {
					again := e.claimOne(e.at(time.Minute), e.getEndpoint(held.EndpointID), webhook.LaneRetry)
					e.record(e.at(time.Minute), delivered(again, e.at(time.Minute)))
				}
				for _, scope := range []webhook.Scope{webhook.AllTenants(), webhook.TenantScope("acme")} {
					e.visible(scope, held, round+1)
				}
				for _, scope := range []webhook.Scope{webhook.TenantScope("other"), webhook.TenantScope("ACME"), {}} {
					e.invisible(scope, held)
				}
			}
		}},
		{name: "what nobody knows is not found", run: func(e *env[Tx]) {
			_, err := e.store.GetEvent(e.ctx, webhook.AllTenants(), newID())
			e.wantError(webhook.ErrNotFound, err, "get an unknown event")
			_, err = e.store.GetDelivery(e.ctx, webhook.AllTenants(), newID())
			e.wantError(webhook.ErrNotFound, err, "get an unknown delivery")
		}},
		{name: "a delivery can be read in every state", run: func(e *env[Tx]) {
			deliveries := e.inAllStates("acme")
			for state, id := range deliveries {
				e.equal(state, e.getDelivery(id).State, "state")
			}
		}},
		{name: "deliveries are listed newest first, finished or not", run: func(e *env[Tx]) {
			var want []uuid.UUID
			for _, id := range e.inAllStates("acme") {
				want = append(want, id)
			}
			slices.SortFunc(want, func(a, b uuid.UUID) int { return compareIDs(b, a) })
			listed := e.list(webhook.ListDeliveriesParams{Scope: webhook.AllTenants()})
			e.equal(want, idsOf(listed), "deliveries")
			for _, d := range listed {
				e.equal(e.getDelivery(d.ID), d, "delivery, listed and read")
			}
		}},
		{name: "a delivery made later is listed earlier", run: func(e *env[Tx]) {
			e.endpoint("acme", "*")
			var want []uuid.UUID
			for range 4 {
				event := e.event("acme", "order.created")
				e.enqueue(event)
				e.fanOut()
				want = append([]uuid.UUID{event.ID}, want...)
			}
			e.equal(want, e.deliveredEvents(), "events of the deliveries listed")
		}},
		{name: "deliveries are listed in pages without gaps or doubles", run: func(e *env[Tx]) {
			endpoint := e.deliveries(11, "acme")
			for i, held := range e.claim(e.now, oldest(endpoint, webhook.LaneFirst, plenty)) {
				if i%2 == 0 {
					e.record(e.now, delivered(held, e.now))
				}
			}
			all := idsOf(e.list(webhook.ListDeliveriesParams{Scope: webhook.AllTenants()}))
			e.equal(11, len(all), "deliveries in one page")
			for _, scope := range []webhook.Scope{webhook.AllTenants(), webhook.TenantScope("acme")} {
				e.equal(all, e.paged(webhook.ListDeliveriesParams{Scope: scope, Limit: 3}), "deliveries in pages of 3")
				e.equal(all, e.paged(webhook.ListDeliveriesParams{Scope: scope, Limit: 1}), "deliveries in pages of 1")
			}
			for _, limit := range []int{0, -1} {
				none, err := e.store.ListDeliveries(e.ctx, webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), Limit: limit})
				e.must(err, "list no deliveries")
				e.equal(0, len(none.Deliveries), "deliveries in a page of none")
			}
		}},
		{name: "deliveries are filtered by scope, event, endpoint and state", run: func(e *env[Tx]) {
			e.inAllStates("acme")
			e.inAllStates("other")
			e.endpoint("acme", "*")
			shared := e.event("acme", "order.created")
			e.enqueue(shared)
			e.fanOut()
			all := e.list(webhook.ListDeliveriesParams{Scope: webhook.AllTenants()})
			e.truth(len(all) > 10, "only %d deliveries to filter", len(all))

			tried := map[webhook.ListDeliveriesParams]bool{}
			for _, scope := range []webhook.Scope{webhook.AllTenants(), webhook.TenantScope("acme"), webhook.TenantScope("nobody")} {
				for _, d := range all {
					for _, p := range []webhook.ListDeliveriesParams{
						{Scope: scope, EventID: d.EventID},
						{Scope: scope, EndpointID: d.EndpointID},
						{Scope: scope, State: d.State},
						{Scope: scope, EndpointID: d.EndpointID, State: d.State},
						{Scope: scope, EventID: shared.ID, EndpointID: d.EndpointID},
						{Scope: scope, EventID: shared.ID, EndpointID: d.EndpointID, State: d.State},
					} {
						if !tried[p] {
							tried[p] = true
							e.equal(filtered(all, p), idsOf(e.list(p)), "deliveries filtered by %+v", p)
						}
					}
				}
			}
		}},
	}
}

func listTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "deliveries are filtered by type, status and resource", run: func(e *env[Tx]) {
			e.endpoint("acme", "*")
			failing := e.endpoint("acme", "*")
			e.endpoint("other", "*")
			var events []webhook.EventRecord
			for i, tenant := range []string{"acme", "acme", "acme", "acme", "other", "other"} {
				event := e.event(tenant, []string{"order.created", "order.paid"}[i%2])
				event.ResourceID = []string{"", "or_1", "or_2"}[i%3]
				events = append(events, event)
			}
			e.enqueue(events...)
			e.fanOut()
			for i, held := range e.claim(e.now, oldest(failing, webhook.LaneFirst, plenty)) {
				result := retry(held, e.now, e.at(time.Hour))
				if i%2 == 0 {
					result = dead(held, e.now, "gone")
				}
				result.Attempt.Status = []int{503, 404, 0, 302}[i]
				e.record(e.now, result)
			}
			all := e.list(webhook.ListDeliveriesParams{Scope: webhook.AllTenants()})
			e.equal(10, len(all), "deliveries")
			resources := map[uuid.UUID]string{}
			for _, event := range events {
				resources[event.ID] = event.ResourceID
			}
			for _, p := range e.everyFilter(failing.ID) {
				var want []uuid.UUID
				for _, d := range all {
					if passes(p, d, resources[d.EventID]) {
						want = append(want, d.ID)
					}
				}
				e.equal(len(want), len(e.list(p)), "deliveries filtered by %+v", p)
				p.Limit = 2
				e.sameSet(want, e.paged(p), fmt.Sprintf("deliveries in pages of 2 filtered by %+v", p))
			}
		}},
		{name: "deliveries are filtered by the time at which they were made", run: func(e *env[Tx]) {
			endpoint := e.endpoint("acme", "*")
			var ids []uuid.UUID
			for hour := range 5 {
				e.enqueue(e.event("acme", "order.created"))
				e.fanOutAt(e.at(time.Duration(hour) * time.Hour))
			}
			ids = idsOf(e.list(webhook.ListDeliveriesParams{Scope: webhook.AllTenants()}))
			e.equal(5, len(ids), "deliveries")
			for _, p := range []webhook.ListDeliveriesParams{
				{Scope: webhook.AllTenants()}, {Scope: webhook.TenantScope("acme")}, {Scope: webhook.AllTenants(), EndpointID: endpoint.ID},
			} {
				p.From = e.at(time.Hour)
				e.equal(ids[:4], idsOf(e.list(p)), "from the second on")
				p.Until = e.at(3 * time.Hour)
				e.equal(ids[2:4], idsOf(e.list(p)), "and until before the fourth")
				p.From = time.Time{}
				e.equal(ids[2:], idsOf(e.list(p)), "until before the fourth")
				p.From, p.Until = e.at(time.Hour+time.Microsecond), e.at(2*time.Hour)
				e.equal(0, len(e.list(p)), "between two")
			}
		}},
		{name: "events are listed within their scope, in both directions, in pages", run: func(e *env[Tx]) {
			e.endpoint("acme", "order.*")
			var acme, all []uuid.UUID
			for i := range 9 {
				tenant := []string{"acme", "other", "acme"}[i%3]
				event := e.event(tenant, "order.created")
				e.enqueue(event)
				all = append(all, event.ID)
				if tenant == "acme" {
					acme = append(acme, event.ID)
				}
			}
			for _, c := range []struct {
				scope webhook.Scope
				want  []uuid.UUID
			}{{webhook.AllTenants(), all}, {webhook.TenantScope("acme"), acme}, {webhook.TenantScope("nobody"), nil}} {
				for _, limit := range []int{1, 2, plenty} {
					p := webhook.ListEventsParams{Scope: c.scope, Limit: limit, OldestFirst: true}
					e.equal(len(c.want), len(e.events(p)), "events, oldest first")
					e.truth(slices.Equal(c.want, e.events(p)), "events in pages of %d, oldest first: %v, want %v", limit, e.events(p), c.want)
					p.OldestFirst = false
					newest := slices.Clone(c.want)
					slices.Reverse(newest)
					e.truth(slices.Equal(newest, e.events(p)), "events in pages of %d, newest first: %v, want %v", limit, e.events(p), newest)
				}
			}
			none, err := e.store.ListEvents(e.ctx, webhook.ListEventsParams{Scope: webhook.AllTenants()})
			e.must(err, "list no events")
			e.equal(0, len(none.Events), "events in a page of none")
		}},
		{name: "events are filtered, and tell how far they have come", run: func(e *env[Tx]) {
			e.endpoint("acme", "order.*")
			var events []webhook.EventRecord
			for i := range 8 {
				event := e.event("acme", []string{"order.created", "user.created"}[i%2])
				event.ResourceID = []string{"", "us_1"}[i/4]
				event.CreatedAt = e.at(time.Duration(i) * time.Minute)
				event.Payload = []byte(`{"large":"payload"}`)
				events = append(events, event)
			}
			e.enqueue(events...)
			e.fanOut()
			waiting := e.event("acme", "order.created")
			waiting.CreatedAt = e.at(time.Hour)
			e.enqueue(waiting)
			all := eventIDs(append(events, waiting)...)
			for _, scope := range []webhook.Scope{webhook.AllTenants(), webhook.TenantScope("acme")} {
				oldest := webhook.ListEventsParams{Scope: scope, OldestFirst: true, Limit: 3}
				with := func(change func(p *webhook.ListEventsParams)) []uuid.UUID {
					p := oldest
					change(&p)
					return e.events(p)
				}
				pick := func(which ...int) []uuid.UUID {
					var ids []uuid.UUID
					for _, i := range which {
						ids = append(ids, all[i])
					}
					return ids
				}
				e.equal(pick(1, 3, 5, 7), with(func(p *webhook.ListEventsParams) { p.Type = "user.created" }), "of a type")
				e.equal(pick(4, 5, 6, 7), with(func(p *webhook.ListEventsParams) { p.ResourceID = "us_1" }), "of a resource")
				e.equal(pick(1, 3, 5, 7), with(func(p *webhook.ListEventsParams) { p.Unmatched = true }), "without an endpoint")
				e.equal(pick(5, 7), with(func(p *webhook.ListEventsParams) { p.Unmatched, p.ResourceID = true, "us_1" }), "of a resource without an endpoint")
				e.equal(pick(2, 3), with(func(p *webhook.ListEventsParams) {
					p.From, p.Until = e.at(2*time.Minute), e.at(4*time.Minute)
				}), "of a time")
			}
			listing, err := e.store.ListEvents(e.ctx, webhook.ListEventsParams{Scope: webhook.AllTenants(), Limit: plenty})
			e.must(err, "list events")
			for _, listed := range listing.Events {
				want := e.getEvent(listed.ID)
				want.Payload = nil
				e.equal(want, listed, "event, listed and read")
			}
			e.equal(false, e.getEvent(waiting.ID).FannedOut, "fanned out")
		}},
		{name: "events that are not settled are waited for", run: func(e *env[Tx]) {
			var events []webhook.EventRecord
			for _, minute := range []int{0, 5, 1, 2} { // the second is the newest
				event := e.event("acme", "order.created")
				event.CreatedAt = e.at(time.Duration(minute) * time.Minute)
				events = append(events, event)
			}
			e.enqueue(events...)
			all := eventIDs(events...)
			for _, scope := range []webhook.Scope{webhook.AllTenants(), webhook.TenantScope("acme")} {
				p := webhook.ListEventsParams{Scope: scope, OldestFirst: true, SettledAt: e.at(3 * time.Minute), Limit: plenty}
				first, err := e.store.ListEvents(e.ctx, p)
				e.must(err, "list settled events")
				e.equal(all[:1], listedEvents(first), "events before the first that is not settled")
				e.equal(false, first.More, "more")
				p.After, p.SettledAt = first.Next, e.at(10*time.Minute)
				rest, err := e.store.ListEvents(e.ctx, p)
				e.must(err, "list the rest")
				e.equal(all[1:], listedEvents(rest), "events from there on")
				p.After = rest.Next
				e.equal(0, len(e.events(p)), "events after the last")
			}
		}},
	}
}

// everyFilter combines filters by scope, endpoint, state, type, status and resource.
func (e *env[Tx]) everyFilter(endpoint uuid.UUID) []webhook.ListDeliveriesParams {
	var all []webhook.ListDeliveriesParams
	for _, scope := range []webhook.Scope{webhook.AllTenants(), webhook.TenantScope("acme"), webhook.TenantScope("other")} {
		for _, by := range []webhook.ListDeliveriesParams{{}, {EndpointID: endpoint}, {State: webhook.StateDead}, {State: webhook.StatePending}} {
			for _, eventType := range []string{"", "order.paid"} {
				for _, status := range []webhook.StatusClass{"", webhook.Status5xx, webhook.Status4xx, webhook.Status3xx, webhook.Status2xx, webhook.StatusNone} {
					for _, resource := range []string{"", "or_1", "or_7"} {
						p := by
						p.Scope, p.EventType, p.Status, p.ResourceID = scope, eventType, status, resource
						all = append(all, p)
					}
				}
			}
		}
	}
	return all
}

// passes is what the filters mean.
func passes(p webhook.ListDeliveriesParams, d webhook.Delivery, resource string) bool {
	first, last, limited := p.Status.Bounds()
	return p.Scope.Includes(d.Tenant) &&
		(p.EndpointID == uuid.Nil || p.EndpointID == d.EndpointID) &&
		(p.State == "" || p.State == d.State) &&
		(p.EventType == "" || p.EventType == d.EventType) &&
		(!limited || first <= d.LastStatus && d.LastStatus <= last) &&
		(p.ResourceID == "" || p.ResourceID == resource)
}

// events lists events part by part.
func (e *env[Tx]) events(p webhook.ListEventsParams) []uuid.UUID {
	e.t.Helper()
	var ids []uuid.UUID
	for {
		part, err := e.store.ListEvents(e.ctx, p)
		e.must(err, "list events")
		e.truth(len(part.Events) <= p.Limit, "a part of %d holds %d", p.Limit, len(part.Events))
		ids = append(ids, listedEvents(part)...)
		if !part.More {
			return ids
		}
		e.need(false, part.Next == p.After, "the next part begins where this one did")
		p.After = part.Next
	}
}

func listedEvents(part webhook.EventListing) []uuid.UUID {
	ids := make([]uuid.UUID, len(part.Events))
	for i := range part.Events {
		ids[i] = part.Events[i].ID
	}
	return ids
}

func attemptLogTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "an attempt is kept with all its fields", run: func(e *env[Tx]) {
			held := e.claimOne(e.now, e.delivery("acme"), webhook.LaneFirst)
			a := attempt(held, e.at(time.Second), 302)
			a.Latency = 1_234_567 * time.Microsecond
			a.Class = webhook.ClassRedirect
			a.Error = "it redirected – ü"
			a.Location = "https://hooks.example/login?next=%2F"
			a.Excerpt = []byte("<html>")
			a.Truncated = true
			a.BodyHash = bytes.Repeat([]byte{0, 255, 7, 128}, 8)
			e.record(e.now, webhook.Result{
				Lease: held.lease(), State: webhook.StatePending, NextAttemptAt: e.at(time.Minute), Lane: webhook.LaneRetry, Attempt: a,
			})
			logged := e.attempts(held.DeliveryID)
			e.need(1, len(logged), "attempts logged")
			e.sameAttempt(*a, logged[0])
			d := e.getDelivery(held.DeliveryID)
			e.equal([2]any{302, webhook.ClassRedirect}, [2]any{d.LastStatus, d.LastClass}, "last status and class")
		}},
		{name: "an attempt without a response has neither status nor excerpt", run: func(e *env[Tx]) {
			held := e.claimOne(e.now, e.delivery("acme"), webhook.LaneFirst)
			a := attempt(held, e.now, 0)
			a.Class, a.Latency = webhook.ClassTimeout, 0
			result := dead(held, e.now, "gone")
			result.Attempt = a
			e.record(e.now, result)
			logged := e.attempts(held.DeliveryID)
			e.need(1, len(logged), "attempts logged")
			e.sameAttempt(*a, logged[0])
			e.equal(0, len(logged[0].Excerpt)+len(logged[0].BodyHash), "bytes of excerpt and hash")
		}},
		{name: "an excerpt is kept byte for byte, also if it is not text", run: func(e *env[Tx]) {
			every := make([]byte, 1024)
			for i := range every {
				every[i] = byte(i)
			}
			for _, excerpt := range [][]byte{[]byte("caf\xe9 \xff\xc3"), []byte("\x00\x00a"), every, []byte(`{"a":"\u0000"}`), nil} {
				endpoint := e.delivery("acme")
				held := e.claimOne(e.now, endpoint, webhook.LaneFirst)
				result := dead(held, e.now, "gone")
				result.Attempt.Excerpt = excerpt
				e.record(e.now, result)
				logged := e.attempts(held.DeliveryID)
				e.need(1, len(logged), "attempts logged")
				e.sameBytes(excerpt, logged[0].Excerpt, "excerpt")
				e.deleteEndpoint(endpoint)
			}
		}},
		{name: "attempts are listed in the order of their numbers", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			slow := e.claimOne(e.now, endpoint, webhook.LaneFirst)
			at := e.at(leaseTime + time.Second)
			held := e.claimOne(at, endpoint, webhook.LaneFirst)
			for range 11 {
				e.record(at, retry(held, at, at.Add(time.Minute)))
				at = at.Add(time.Minute)
				held = e.claimOne(at, endpoint, webhook.LaneRetry)
			}
			e.record(at, delivered(slow, e.now)) // comes last, and is of the first number
			var numbers []int
			for _, a := range e.attempts(slow.DeliveryID) {
				numbers = append(numbers, a.Number)
			}
			e.equal([]int{1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, numbers, "numbers")
		}},
		{name: "a delivery that was not attempted has no attempts", run: func(e *env[Tx]) {
			held := e.claimOne(e.now, e.delivery("acme"), webhook.LaneFirst)
			e.equal(0, len(e.attempts(held.DeliveryID)), "attempts")
		}},
	}
}

// visible checks what a scope that includes a delivery's tenant is shown of it.
func (e *env[Tx]) visible(scope webhook.Scope, held leased, attempts int) {
	e.t.Helper()
	_, err := e.store.GetEvent(e.ctx, scope, held.Event.ID)
	e.must(err, "get the event")
	_, err = e.store.GetDelivery(e.ctx, scope, held.DeliveryID)
	e.must(err, "get the delivery")
	logged, err := e.store.ListAttempts(e.ctx, scope, held.DeliveryID)
	e.must(err, "list the attempts")
	e.equal(attempts, len(logged), "attempts")
	for _, p := range filtersFor(scope, held) {
		e.equal(1, len(e.list(p)), "deliveries listed by %+v", p)
	}
}

// invisible checks that a scope that does not include a delivery's tenant is
// shown nothing of it.
func (e *env[Tx]) invisible(scope webhook.Scope, held leased) {
	e.t.Helper()
	_, err := e.store.GetEvent(e.ctx, scope, held.Event.ID)
	e.wantError(webhook.ErrNotFound, err, "get a foreign event")
	_, err = e.store.GetDelivery(e.ctx, scope, held.DeliveryID)
	e.wantError(webhook.ErrNotFound, err, "get a foreign delivery")
	logged, err := e.store.ListAttempts(e.ctx, scope, held.DeliveryID)
	e.truth(err == nil || errors.Is(err, webhook.ErrNotFound), "list foreign attempts: %v", err)
	e.equal(0, len(logged), "foreign attempts")
	for _, p := range filtersFor(scope, held) {
		e.equal(0, len(e.list(p)), "foreign deliveries listed by %+v", p)
	}
}

func filtersFor(scope webhook.Scope, held leased) []webhook.ListDeliveriesParams {
	return []webhook.ListDeliveriesParams{
		{Scope: scope}, {Scope: scope, EventID: held.Event.ID}, {Scope: scope, EndpointID: held.EndpointID},
	}
}

// inAllStates makes one delivery in each state.
func (e *env[Tx]) inAllStates(tenant string) map[webhook.DeliveryState]uuid.UUID {
	e.t.Helper()
	endpoint := e.deliveries(6, tenant)
	claimed := e.claim(e.now, oldest(endpoint, webhook.LaneFirst, plenty))
	e.need(6, len(claimed), "deliveries claimed")
	byState := map[webhook.DeliveryState]uuid.UUID{}
	for i, state := range []webhook.DeliveryState{
		webhook.StatePending, webhook.StateInFlight, webhook.StateDelivered, webhook.StateDead, webhook.StateCancelled, webhook.StateShed,
	} {
		byState[state] = claimed[i].DeliveryID
		switch state {
		case webhook.StateInFlight:
		case webhook.StatePending:
			e.record(e.now, retry(claimed[i], e.now, e.at(time.Hour)))
		default:
			e.record(e.now, webhook.Result{
				Lease: claimed[i].lease(), State: state, Reason: "over", Attempt: attempt(claimed[i], e.now, 200),
			})
		}
	}
	return byState
}

// filtered is what a list of deliveries must hold after the filter.
func filtered(all []webhook.Delivery, p webhook.ListDeliveriesParams) []uuid.UUID {
	ids := []uuid.UUID{}
	for _, d := range all {
		if p.Scope.Includes(d.Tenant) &&
			(p.EventID == uuid.Nil || p.EventID == d.EventID) &&
			(p.EndpointID == uuid.Nil || p.EndpointID == d.EndpointID) &&
			(p.State == "" || p.State == d.State) {
			ids = append(ids, d.ID)
		}
	}
	return ids
}

// paged lists deliveries page by page, of p.Limit each.
func (e *env[Tx]) paged(p webhook.ListDeliveriesParams) []uuid.UUID {
	e.t.Helper()
	var ids []uuid.UUID
	for {
		page, err := e.store.ListDeliveries(e.ctx, p)
		e.must(err, "list deliveries")
		e.truth(len(page.Deliveries) <= p.Limit, "a page of %d holds %d", p.Limit, len(page.Deliveries))
		ids = append(ids, idsOf(page.Deliveries)...)
		if page.Next == uuid.Nil {
			return ids
		}
		e.truth(p.Before == uuid.Nil || compareIDs(page.Next, p.Before) < 0, "a part does not begin before the one before it")
		p.Before = page.Next
	}
}

func idsOf(deliveries []webhook.Delivery) []uuid.UUID {
	ids := make([]uuid.UUID, len(deliveries))
	for i, d := range deliveries {
		ids[i] = d.ID
	}
	return ids
}

func (e *env[Tx]) sameAttempt(want, got webhook.Attempt) {
	e.t.Helper()
	e.sameBytes(want.Excerpt, got.Excerpt, "excerpt")
	e.sameBytes(want.BodyHash, got.BodyHash, "body hash")
	want.Excerpt, want.BodyHash, got.Excerpt, got.BodyHash = nil, nil, nil, nil
	e.equal(want, got, "attempt")
}
