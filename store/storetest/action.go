package storetest

import (
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// actionTests are about what a person does to one delivery.
func actionTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "a delivery that is cancelled is finished for the reason given", run: func(e *env[Tx]) {
			endpoint := e.deliveries(2, "acme")
			held := e.claim(e.now, oldest(endpoint, webhook.LaneFirst, 1))
			e.record(e.now, retry(held[0], e.now, e.at(time.Minute)))
			at := e.at(time.Second)
			e.truth(e.cancelOne(at, webhook.TenantScope("acme"), held[0].DeliveryID), "not cancelled")
			d := e.getDelivery(held[0].DeliveryID)
			e.equal([4]any{webhook.StateCancelled, "not wanted", 1, 503}, [4]any{d.State, d.Reason, d.Attempts, d.LastStatus}, "delivery")
			e.equal(at, d.FinishedAt, "finished at")
			e.equal(0, len(e.claim(e.at(time.Hour), oldest(endpoint, webhook.LaneRetry, plenty))), "claimed of what is cancelled")
			e.equal(1, len(e.claim(e.now, oldest(endpoint, webhook.LaneFirst, plenty))), "claimed of the other delivery")
		}},
		{name: "a delivery that is cancelled in flight ends, and its result is late", run: func(e *env[Tx]) {
			held := e.claimOne(e.now, e.delivery("acme"), webhook.LaneFirst)
			e.truth(e.cancelOne(e.at(time.Second), webhook.AllTenants(), held.DeliveryID), "not cancelled")
			e.equal([]uuid.UUID{held.DeliveryID}, e.record(e.at(2*time.Second), delivered(held, e.now)).Lost, "leases lost")
			e.equal(webhook.StateCancelled, e.getDelivery(held.DeliveryID).State, "state")
			e.equal([]bool{true}, lateness(e.attempts(held.DeliveryID)), "late attempts")
		}},
		{name: "what is finished, foreign or unknown is not cancelled", run: func(e *env[Tx]) {
			for state, id := range e.inAllStates("acme") {
				if state.Final() {
					e.truth(!e.cancelOne(e.now, webhook.AllTenants(), id), "a %s delivery was cancelled", state)
				}
				e.truth(!e.cancelOne(e.now, webhook.TenantScope("other"), id), "another tenant's delivery was cancelled")
				e.equal(state, e.getDelivery(id).State, "state")
			}
			e.truth(!e.cancelOne(e.now, webhook.AllTenants(), newID()), "an unknown delivery was cancelled")
		}},
		{name: "a hastened delivery is due at once, in its lane", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			held := e.claimOne(e.now, endpoint, webhook.LaneFirst)
			e.record(e.now, retry(held, e.now, e.at(time.Hour)))
			at := e.at(time.Minute)
			e.truth(e.hasten(at, webhook.TenantScope("acme"), held.DeliveryID), "not hastened")
			e.equal(at, e.getDelivery(held.DeliveryID).NextAttemptAt, "next attempt")
			again := e.claimOne(at, endpoint, webhook.LaneRetry)
			e.equal([2]any{held.DeliveryID, 1}, [2]any{again.DeliveryID, again.Attempts}, "delivery and its attempts")
		}},
		{name: "what is due already keeps its place when it is hastened", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			id := e.list(webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), EndpointID: endpoint.ID})[0].ID
			e.truth(e.hasten(e.at(time.Hour), webhook.AllTenants(), id), "not hastened")
			e.equal(e.now, e.getDelivery(id).NextAttemptAt, "next attempt")
		}},
		{name: "what is in flight, finished, foreign or unknown is not hastened", run: func(e *env[Tx]) {
			for state, id := range e.inAllStates("acme") {
				if state != webhook.StatePending {
					e.truth(!e.hasten(e.now, webhook.AllTenants(), id), "a delivery was hastened that is %s", state)
				}
				before := e.getDelivery(id)
				e.truth(!e.hasten(e.at(-time.Hour), webhook.TenantScope("other"), id), "another tenant's delivery was hastened")
				e.equal(before, e.getDelivery(id), "delivery")
			}
			e.truth(!e.hasten(e.now, webhook.AllTenants(), newID()), "an unknown delivery was hastened")
		}},
	}
}

// runTests are about sending an event again.
func testLogTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "a test is in the log, and nowhere else", run: func(e *env[Tx]) {
			endpoint := e.endpoint("acme", "*")
			for i, state := range []webhook.DeliveryState{webhook.StateDelivered, webhook.StateCancelled, webhook.StateCancelled} {
				d := webhook.Delivery{
					ID: newID(), EventID: newID(), EndpointID: endpoint.ID, Run: webhook.TestRun, Tenant: "acme", EventType: "order.created",
					State: state, Attempts: 1, CreatedAt: e.now, FinishedAt: e.at(time.Second), LastStatus: 200,
				}
				if state != webhook.StateDelivered {
					d.Reason, d.LastStatus, d.LastClass = "test", 500, webhook.ClassHTTP5xx
				}
				a := webhook.Attempt{
					DeliveryID: d.ID, EventID: d.EventID, EndpointID: d.EndpointID, Tenant: "acme", Number: 1, StartedAt: e.now,
					Latency: time.Millisecond, Status: d.LastStatus, Class: d.LastClass, Excerpt: []byte("caf\xe9\x00"), BodyHash: []byte{1, 0},
				}
				e.must(e.store.LogTest(e.ctx, webhook.LogTestParams{Delivery: d, Attempt: a}), "log a test")
				e.equal(d, e.getDelivery(d.ID), "delivery")
				logged := e.attempts(d.ID)
				e.need(1, len(logged), "attempts")
				e.sameAttempt(a, logged[0])
				e.equal(i+1, len(e.list(webhook.ListDeliveriesParams{Scope: webhook.TenantScope("acme")})), "deliveries listed")
				_, err := e.store.GetDelivery(e.ctx, webhook.TenantScope("other"), d.ID)
				e.wantError(webhook.ErrNotFound, err, "get a foreign test")
				_, _, err = e.store.StartRun(e.ctx, webhook.StartRunParams{Now: e.now, Scope: webhook.AllTenants(), EventID: d.EventID, EndpointID: endpoint.ID})
				e.truth(err != nil, "a test was replayed")
			}
			e.equal(0, len(e.claim(e.at(time.Hour), oldest(endpoint, webhook.LaneFirst, plenty), oldest(endpoint, webhook.LaneReplay, plenty))), "deliveries claimed")
		}},
	}
}

func runTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "a replay is a further run in its own lane, and the runs before stay", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			first := e.claimOne(e.now, endpoint, webhook.LaneFirst)
			e.record(e.now, dead(first, e.now, "retries used up"))
			before := e.getDelivery(first.DeliveryID)
			for run := 1; run <= 3; run++ {
				at := e.at(time.Duration(run) * time.Hour)
				id := e.startRun(at, first.Event.ID, endpoint)
				d := e.getDelivery(id)
				e.equal([4]any{run, webhook.StatePending, 0, "acme"}, [4]any{d.Run, d.State, d.Attempts, d.Tenant}, "run, state, attempts and tenant")
				e.equal([2]any{first.Event.ID, first.Event.Type}, [2]any{d.EventID, d.EventType}, "event")
				e.equal([2]time.Time{at, at}, [2]time.Time{d.CreatedAt, d.NextAttemptAt}, "beginning and next attempt")
				e.equal(0, len(e.claim(at, oldest(endpoint, webhook.LaneFirst, plenty), oldest(endpoint, webhook.LaneRetry, plenty))), "claimed of the other lanes")
				held := e.claimOne(at, endpoint, webhook.LaneReplay)
				e.equal([3]any{id, run, 0}, [3]any{held.DeliveryID, held.Run, held.Attempts}, "delivery, run and attempts claimed")
				e.sameBytes(first.Event.Payload, held.Event.Payload, "payload")
				result := delivered(held, at)
				if run == 2 {
					result = dead(held, at, "again")
				}
				e.record(at, result)
			}
			e.equal(before, e.getDelivery(first.DeliveryID), "the first run")
			e.equal(4, len(e.list(webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), EventID: first.Event.ID})), "runs listed")
		}},
		{name: "while a run is unfinished a replay is that run", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			event := e.list(webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), EndpointID: endpoint.ID})[0]
			same := func(want uuid.UUID, when string) {
				id, started, err := e.store.StartRun(e.ctx, webhook.StartRunParams{
					Now: e.at(time.Minute), Scope: webhook.AllTenants(), EventID: event.EventID, EndpointID: endpoint.ID,
				})
				e.must(err, "replay while the run is %s", when)
				e.equal([2]any{want, false}, [2]any{id, started}, "replay while the run is %s", when)
			}
			same(event.ID, "pending")
			held := e.claimOne(e.now, endpoint, webhook.LaneFirst)
			same(event.ID, "in flight")
			e.record(e.now, delivered(held, e.now))
			second := e.startRun(e.at(time.Minute), event.EventID, endpoint)
			same(second, "a replay")
		}},
		{name: "of many replays at once one begins a run", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			held := e.claimOne(e.now, endpoint, webhook.LaneFirst)
			e.record(e.now, delivered(held, e.now))
			stores := make([]webhook.Store[Tx], 6)
			for i := range stores {
				stores[i] = e.db.Connect(e.t)
			}
			ids := make([]uuid.UUID, len(stores))
			var begun atomic.Int32
			e.concurrently(len(stores), func(i int) (err error) {
				var started bool
				ids[i], started, err = stores[i].StartRun(e.ctx, webhook.StartRunParams{
					Now: e.now, Scope: webhook.AllTenants(), EventID: held.Event.ID, EndpointID: endpoint.ID,
				})
				if started {
					begun.Add(1)
				}
				return err
			})
			e.equal(int32(1), begun.Load(), "runs begun")
			for _, id := range ids {
				e.equal(ids[0], id, "run returned")
			}
			e.equal(2, len(e.list(webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), EventID: held.Event.ID})), "runs")
		}},
		{name: "an event can be replayed to an endpoint that never had it", run: func(e *env[Tx]) {
			event := e.event("acme", "order.created")
			e.enqueue(event)
			e.fanOut()
			endpoint := e.endpoint("acme", "invoice.*")
			e.equal(1, e.getDelivery(e.startRun(e.now, event.ID, endpoint)).Run, "run: 0 is fan-out's")
		}},
		{name: "nothing is replayed across tenants, nor to what is not there", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			held := e.claimOne(e.now, endpoint, webhook.LaneFirst)
			e.record(e.now, delivered(held, e.now))
			foreign := e.endpoint("other", "*")
			deleted := e.deleteEndpoint(e.endpoint("acme", "invoice.*"))
			refused := func(scope webhook.Scope, event, endpoint uuid.UUID, what string) {
				_, _, err := e.store.StartRun(e.ctx, webhook.StartRunParams{Now: e.now, Scope: scope, EventID: event, EndpointID: endpoint})
				e.wantError(webhook.ErrNotFound, err, what)
			}
			refused(webhook.AllTenants(), held.Event.ID, foreign.ID, "replay to another tenant's endpoint")
			refused(webhook.TenantScope("other"), held.Event.ID, foreign.ID, "replay of another tenant's event")
			refused(webhook.TenantScope("other"), held.Event.ID, endpoint.ID, "replay outside of the scope")
			refused(webhook.AllTenants(), held.Event.ID, deleted.ID, "replay to a deleted endpoint")
			refused(webhook.AllTenants(), held.Event.ID, newID(), "replay to an unknown endpoint")
			refused(webhook.AllTenants(), newID(), endpoint.ID, "replay of an unknown event")
			e.equal(1, len(e.list(webhook.ListDeliveriesParams{Scope: webhook.AllTenants()})), "deliveries")
		}},
		{name: "a disabled endpoint refuses a replay, a paused one takes it", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			held := e.claimOne(e.now, endpoint, webhook.LaneFirst)
			e.record(e.now, delivered(held, e.now))
			endpoint = e.setState(endpoint, webhook.EndpointDisabled)
			_, _, err := e.store.StartRun(e.ctx, webhook.StartRunParams{
				Now: e.now, Scope: webhook.AllTenants(), EventID: held.Event.ID, EndpointID: endpoint.ID,
			})
			e.wantError(webhook.ErrEndpointDisabled, err, "replay to a disabled endpoint")
			endpoint = e.setState(endpoint, webhook.EndpointPaused)
			e.startRun(e.now, held.Event.ID, endpoint)
		}},
	}
}

func (e *env[Tx]) cancelOne(at time.Time, scope webhook.Scope, id uuid.UUID) bool {
	e.t.Helper()
	cancelled, err := e.store.CancelDelivery(e.ctx, webhook.CancelDeliveryParams{Now: at, Scope: scope, DeliveryID: id, Reason: "not wanted"})
	e.must(err, "cancel a delivery")
	return cancelled
}

func (e *env[Tx]) hasten(at time.Time, scope webhook.Scope, id uuid.UUID) bool {
	e.t.Helper()
	hastened, err := e.store.HastenDelivery(e.ctx, webhook.HastenDeliveryParams{Now: at, Scope: scope, DeliveryID: id})
	e.must(err, "hasten a delivery")
	return hastened
}

// startRun begins a run, which must not have been there.
func (e *env[Tx]) startRun(at time.Time, event uuid.UUID, endpoint webhook.EndpointRecord) uuid.UUID {
	e.t.Helper()
	id, started, err := e.store.StartRun(e.ctx, webhook.StartRunParams{
		Now: at, Scope: webhook.TenantScope(endpoint.Tenant), EventID: event, EndpointID: endpoint.ID,
	})
	e.must(err, "replay")
	e.need(true, started, "replay begins a run")
	return id
}
