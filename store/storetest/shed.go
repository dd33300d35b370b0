package storetest

import (
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// shedTests are about counting what waits and about recording as shed what would
// wait for too long. The latter needs the optional [webhook.ClusterStore].
func shedTests[Tx any]() []test[Tx] {
	on := func(name string, run func(*env[Tx], webhook.ClusterStore)) test[Tx] {
		return test[Tx]{name: name, run: func(e *env[Tx]) {
			if store, ok := e.store.(webhook.ClusterStore); ok {
				run(e, store)
			}
		}}
	}
	return []test[Tx]{
		{name: "a backlog is what was never attempted, leased or not", run: func(e *env[Tx]) {
			endpoint, other := e.deliveries(5, "acme"), e.deliveries(2, "other")
			held := e.claim(e.now, oldest(endpoint, webhook.LaneFirst, 3))
			e.need(3, len(held), "deliveries claimed")
			retry := webhook.Result{Lease: held[0].lease(), State: webhook.StatePending, Lane: webhook.LaneRetry, NextAttemptAt: e.at(time.Minute)}
			e.record(e.now, retry, webhook.Result{Lease: held[1].lease(), State: webhook.StateDelivered})
			e.equal([]webhook.Backlog{{Total: 3}, {Total: 2}, {}}, e.backlogs(
				webhook.BacklogRequest{EndpointID: endpoint.ID, Limit: plenty},
				webhook.BacklogRequest{EndpointID: other.ID, Limit: plenty},
				webhook.BacklogRequest{EndpointID: newID(), Limit: plenty},
			), "backlogs")
			e.equal(0, len(e.backlogs()), "backlogs of no endpoints")
		}},
		{name: "counting a backlog ends at its limits", run: func(e *env[Tx]) {
			endpoint := e.deliveries(5, "acme")
			e.equal([]webhook.Backlog{{Total: 4, Since: 2}}, e.backlogs(webhook.BacklogRequest{
				EndpointID: endpoint.ID, Limit: 4, Since: e.at(-time.Hour), SinceLimit: 2,
			}), "backlog")
			e.equal([]webhook.Backlog{{}}, e.backlogs(webhook.BacklogRequest{EndpointID: endpoint.ID}), "backlog without limits")
		}},
		{name: "what became due since an instant is counted by itself", run: func(e *env[Tx]) {
			endpoint, _ := e.staggered(4)
			for _, since := range []struct {
				at   time.Time
				want int
			}{{e.at(-time.Microsecond), 4}, {e.now, 3}, {e.at(2 * time.Minute), 1}, {e.at(3 * time.Minute), 0}, {time.Time{}, 0}} {
				e.equal([]webhook.Backlog{{Total: 4, Since: since.want}}, e.backlogs(webhook.BacklogRequest{
					EndpointID: endpoint.ID, Limit: plenty, Since: since.at, SinceLimit: plenty,
				}), "backlog since %v", since.at)
			}
		}},
		on("until when an endpoint is shed is stored with its health", func(e *env[Tx], s webhook.ClusterStore) {
			id := uuid.UUID{1}
			e.shed(s, id, e.now, e.at(time.Minute))
			e.equal(e.at(time.Minute), e.health(s, id).ShedUntil, "shed until")
			e.shed(s, id, e.at(-time.Second), e.at(time.Hour))
			e.equal(e.at(time.Minute), e.health(s, id).ShedUntil, "shed until, after what is older was saved")
			e.shed(s, id, e.at(time.Second), time.Time{})
			e.truth(e.health(s, id).ShedUntil.IsZero(), "shed until after it was taken back: got a time")
		}),
		on("new deliveries to an endpoint that is shed are recorded as shed", func(e *env[Tx], s webhook.ClusterStore) {
			shed, other := e.endpoint("acme", "*"), e.endpoint("acme", "*")
			before := e.event("acme", "order.created")
			e.enqueue(before)
			e.fanOut()
			e.shed(s, shed.ID, e.now, e.at(time.Minute))
			events := e.eventsOf(2, "acme", "order.created")
			e.enqueue(events...)

			result := e.fanOutWith(newMatcher(), plenty, plenty)

			e.equal(map[uuid.UUID]int{shed.ID: 2}, result.Shed, "shed")
			e.equal(4, result.Deliveries, "deliveries")
			e.equal([]uuid.UUID{other.ID}, result.Endpoints, "endpoints that got something to send")
			e.sameSet(endpointIDs(shed, other), e.reached(events[0].ID), "endpoints reached")
			deliveries := e.list(webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), EndpointID: shed.ID, State: webhook.StateShed})
			e.need(2, len(deliveries), "shed deliveries")
			for _, d := range deliveries {
				e.equal(webhook.Delivery{
					ID: d.ID, EventID: d.EventID, EndpointID: shed.ID, Tenant: "acme", EventType: "order.created",
					State: webhook.StateShed, Reason: webhook.ReasonShed, CreatedAt: e.now, FinishedAt: e.now,
				}, d, "shed delivery")
			}
			e.truth(!e.getEvent(events[0].ID).Unmatched, "an event whose delivery is shed says that it is unmatched")
			e.equal([]webhook.Backlog{{Total: 1}, {Total: 3}}, e.backlogs(
				webhook.BacklogRequest{EndpointID: shed.ID, Limit: plenty}, webhook.BacklogRequest{EndpointID: other.ID, Limit: plenty},
			), "backlogs: what waited before is kept")
		}),
		on("what is shed counts against the limit of a step", func(e *env[Tx], s webhook.ClusterStore) {
			endpoints := e.endpoints(4, "acme", "*")
			for _, endpoint := range endpoints {
				e.shed(s, endpoint.ID, e.now, e.at(time.Minute))
			}
			event := e.event("acme", "order.created")
			e.enqueue(event)
			m := newMatcher()
			e.equal(3, e.fanOutWith(m, plenty, 3).Deliveries, "deliveries of the first step")
			e.equal(1, e.fanOutWith(m, plenty, 3).Deliveries, "deliveries of the second step")
			e.sameSet(endpointIDs(endpoints...), e.reached(event.ID), "endpoints reached")
		}),
		on("shedding runs out by itself", func(e *env[Tx], s webhook.ClusterStore) {
			endpoint := e.endpoint("acme", "*")
			e.shed(s, endpoint.ID, e.now, e.at(time.Minute))
			for _, step := range []struct {
				at   time.Time
				shed bool
			}{{e.at(time.Minute - time.Microsecond), true}, {e.at(time.Minute), false}} {
				event := e.event("acme", "order.created")
				e.enqueue(event)
				e.fanOutAt(step.at)
				state := webhook.StatePending
				if step.shed {
					state = webhook.StateShed
				}
				e.equal(1, len(e.list(webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), EventID: event.ID, State: state})), "deliveries that are %s", state)
			}
		}),
		on("what was shed can be replayed, and is counted", func(e *env[Tx], s webhook.ClusterStore) {
			endpoint := e.endpoint("acme", "*")
			e.shed(s, endpoint.ID, e.now, e.at(time.Minute))
			event := e.event("acme", "order.created")
			e.enqueue(event)
			e.fanOut()
			id, started, err := e.store.StartRun(e.ctx, webhook.StartRunParams{Now: e.now, Scope: webhook.AllTenants(), EventID: event.ID, EndpointID: endpoint.ID})
			e.must(err, "start a run")
			e.truth(started, "a run after the shed one was not begun")
			e.equal(1, e.getDelivery(id).Run, "run")
			e.equal(1, len(e.claim(e.now, oldest(endpoint, webhook.LaneReplay, plenty))), "replays that are claimed")
			later := e.at(3 * day)
			e.maintain(webhook.MaintainParams{Now: later})
			counted := e.counters(webhook.ListCountersParams{Scope: webhook.AllTenants(), EndpointID: endpoint.ID, Limit: plenty})
			e.need(1, len(counted), "days counted")
			e.equal(int64(1), counted[0].Shed, "shed on the day")
		}),
	}
}

func (e *env[Tx]) backlogs(requests ...webhook.BacklogRequest) []webhook.Backlog {
	e.t.Helper()
	counted, err := e.store.CountBacklog(e.ctx, requests)
	e.must(err, "count %d backlogs", len(requests))
	return counted
}

// shed has an endpoint's new deliveries shed.
func (e *env[Tx]) shed(s webhook.ClusterStore, id uuid.UUID, at, until time.Time) {
	e.t.Helper()
	e.must(s.SaveHealth(e.ctx, []webhook.HealthRecord{{EndpointID: id, UpdatedAt: at, State: []byte(`{}`), ShedUntil: until}}), "save health")
}
