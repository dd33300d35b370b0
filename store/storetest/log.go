package storetest

import (
	"bytes"
	"errors"
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
				e.equal(0, len(none), "deliveries in a page of none")
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
		e.truth(len(page) <= p.Limit, "a page of %d holds %d", p.Limit, len(page))
		if len(page) == 0 {
			return ids
		}
		ids = append(ids, idsOf(page)...)
		p.Before = page[len(page)-1].ID
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
