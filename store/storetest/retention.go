package storetest

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

const day = 24 * time.Hour

// retentionTests are about what Maintain removes and what it leaves. They do the same
// for the present day and for one long after, for which nothing was prepared.
func retentionTests[Tx any]() []test[Tx] {
	on := func(name string, run func(e *env[Tx], tenant string)) test[Tx] {
		return test[Tx]{name: name, run: func(e *env[Tx]) {
			run(e, "acme")
			e.now = e.at(60 * day)
			run(e, "later")
		}}
	}
	return []test[Tx]{
		on("delivered and dead deliveries are removed after their own time, with their attempts", func(e *env[Tx], tenant string) {
			endpoint := e.deliveries(4, tenant)
			claimed := e.claim(e.now, oldest(endpoint, webhook.LaneFirst, plenty))
			e.need(4, len(claimed), "deliveries claimed")
			shed := webhook.Result{Lease: claimed[2].lease(), State: webhook.StateShed, Reason: "backlog"}
			cancelled := webhook.Result{Lease: claimed[3].lease(), State: webhook.StateCancelled, Reason: "disabled"}
			e.record(e.now, delivered(claimed[0], e.now), dead(claimed[1], e.now, "window"), shed, cancelled)

			at := e.at(10 * day)
			e.maintain(webhook.MaintainParams{Now: at, DeliveriesBefore: at.Add(-7 * day)})
			e.gone(claimed[0].DeliveryID)
			for i, attempts := range []int{1, 0, 0} {
				id := claimed[1+i].DeliveryID
				e.truth(e.getDelivery(id).State.Final(), "state %s", e.getDelivery(id).State)
				e.equal(attempts, len(e.attempts(id)), "attempts of one that was not delivered")
			}

			e.maintain(webhook.MaintainParams{Now: at, DeadBefore: at.Add(-7 * day)})
			e.maintain(webhook.MaintainParams{Now: at.Add(30 * day), DeadBefore: at.Add(23 * day)})
			for _, c := range claimed {
				e.gone(c.DeliveryID)
			}
			e.sameBytes([]byte(`{}`), e.getEvent(claimed[0].Event.ID).Payload, "payload of the event")
		}),
		on("what is young is kept, and with a zero time everything is", func(e *env[Tx], tenant string) {
			endpoint := e.deliveries(2, tenant)
			claimed := e.claim(e.now, oldest(endpoint, webhook.LaneFirst, plenty))
			e.need(2, len(claimed), "deliveries claimed")
			e.record(e.at(2*day), delivered(claimed[0], e.at(2*day)), dead(claimed[1], e.at(2*day), "window"))

			at := e.at(9 * day)
			e.maintain(webhook.MaintainParams{Now: at, DeliveriesBefore: e.at(day), DeadBefore: e.at(day), EventsBefore: e.at(-day)})
			e.maintain(webhook.MaintainParams{Now: at.Add(1000 * day)})

			for _, c := range claimed {
				e.truth(e.getDelivery(c.DeliveryID).State.Final(), "state %s", e.getDelivery(c.DeliveryID).State)
				e.equal(1, len(e.attempts(c.DeliveryID)), "attempts")
				e.equal(c.Event.ID, e.getEvent(c.Event.ID).ID, "event")
			}
		}),
		on("attempts live as long as their delivery", func(e *env[Tx], tenant string) {
			endpoint := e.deliveries(3, tenant)
			for _, l := range e.claim(e.now, oldest(endpoint, webhook.LaneFirst, plenty)) {
				e.record(e.now, retry(l, e.now, e.at(time.Minute)))
			}
			claimed := e.claim(e.at(4*day), oldest(endpoint, webhook.LaneRetry, 2))
			e.need(2, len(claimed), "retries claimed")
			e.record(e.at(4*day), delivered(claimed[0], e.at(4*day)), dead(claimed[1], e.at(4*day), "window"))
			pending := e.list(webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), EndpointID: endpoint.ID, State: webhook.StatePending})
			e.need(1, len(pending), "deliveries that wait")
			waiting := pending[0]

			// The first attempts are old enough, the deliveries are not.
			for range 2 {
				at := e.at(9 * day)
				e.maintain(webhook.MaintainParams{Now: at, DeliveriesBefore: e.at(2 * day), DeadBefore: e.at(-20 * day)})
				for _, c := range claimed {
					e.equal(2, len(e.attempts(c.DeliveryID)), "attempts of the finished one")
				}
				e.equal(1, len(e.attempts(waiting.ID)), "attempts of the one that waits")
			}
			e.maintain(webhook.MaintainParams{Now: e.at(20 * day), DeliveriesBefore: e.at(13 * day), DeadBefore: e.at(-10 * day)})
			e.gone(claimed[0].DeliveryID)
			e.equal(2, len(e.attempts(claimed[1].DeliveryID)), "attempts of the dead one")
			e.equal(1, len(e.attempts(waiting.ID)), "attempts of the one that waits")
			for _, at := range []time.Time{e.at(50 * day), e.at(51 * day)} {
				e.maintain(webhook.MaintainParams{Now: at, DeliveriesBefore: at.Add(-7 * day), DeadBefore: at.Add(-30 * day)})
			}
			e.gone(claimed[1].DeliveryID)
			e.equal(1, len(e.attempts(waiting.ID)), "attempts of the one that waits")
		}),
		on("an event is removed with its key when nothing waits for it", func(e *env[Tx], tenant string) {
			endpoint := e.endpoint(tenant, "order.*")
			first := e.keyed(tenant, "order 1")
			first.CreatedAt = e.now
			unheard := e.event(tenant, "nobody.cares")
			e.enqueue(first, unheard)
			e.fanOut()
			claimed := e.claimOne(e.now, endpoint, webhook.LaneFirst)
			e.record(e.now, delivered(claimed, e.now))
			young := e.keyed(tenant, "order 2")
			young.ID, young.CreatedAt = idAt(e.at(6*day)), e.at(6*day)
			e.enqueue(young)
			e.fanOut()

			e.maintain(webhook.MaintainParams{Now: e.at(40 * day), EventsBefore: e.at(5 * day)})

			for _, id := range eventIDs(first, unheard) {
				_, err := e.store.GetEvent(e.ctx, webhook.AllTenants(), id)
				e.wantError(webhook.ErrNotFound, err, "get the old event")
			}
			e.equal(young.ID, e.getEvent(young.ID).ID, "the young event")
			again, twin := e.keyed(tenant, "order 1"), e.keyed(tenant, "order 2")
			results := e.enqueue(again, twin)
			e.equal(webhook.EnqueueResult{EventID: again.ID}, results[0], "result of the key that is free again")
			e.equal(webhook.EnqueueResult{EventID: young.ID, Duplicate: true}, results[1], "result of the key that is taken")
			e.equal(webhook.StateDelivered, e.getDelivery(claimed.DeliveryID).State, "state of the delivery, which is kept for longer")
		}),
		on("an event that something waits for is never removed", func(e *env[Tx], tenant string) {
			endpoints := e.endpoints(3, tenant, "*")
			all := e.eventsOf(3, tenant, "order.created")
			e.enqueue(all...)
			m := newMatcher()
			e.need(3+1, e.fanOutWith(m, 1, 3).Deliveries+e.fanOutWith(m, 1, 1).Deliveries, "deliveries") // one whole, one in part
			leased := e.claim(e.now, oldest(endpoints[0], webhook.LaneFirst, 1))
			e.need(1, len(leased), "deliveries claimed")

			at := e.at(50 * day)
			e.maintain(webhook.MaintainParams{Now: at, DeliveriesBefore: at, DeadBefore: at, EventsBefore: at})

			for _, event := range all {
				e.sameBytes(event.Payload, e.getEvent(event.ID).Payload, "payload")
			}
			e.fanOutAt(at)
			for _, event := range all {
				e.sameSet(endpointIDs(endpoints...), e.reached(event.ID), "endpoints reached")
			}
			for _, endpoint := range endpoints {
				for _, c := range e.claim(at, oldest(endpoint, webhook.LaneFirst, plenty)) {
					e.record(at, delivered(c, at))
				}
			}
			e.maintain(webhook.MaintainParams{Now: at, EventsBefore: at})
			for _, event := range all {
				_, err := e.store.GetEvent(e.ctx, webhook.AllTenants(), event.ID)
				e.wantError(webhook.ErrNotFound, err, "get an event that nothing waits for any more")
			}
		}),
		{name: "much is removed in one call, and what is cancelled goes on with the next", run: func(e *env[Tx]) {
			const many = 2500
			endpoint := e.deliveries(many, "acme")
			var done []leased
			for c := e.claim(e.now, oldest(endpoint, webhook.LaneFirst, plenty)); len(c) > 0; c = e.claim(e.now, oldest(endpoint, webhook.LaneFirst, plenty)) {
				results := make([]webhook.Result, len(c))
				for i := range c {
					results[i] = delivered(c[i], e.now)
				}
				e.record(e.now, results...)
				done = append(done, c...)
			}
			e.need(many, len(done), "deliveries")

			at := e.at(40 * day)
			ended, end := context.WithCancel(e.ctx)
			end()
			p := webhook.MaintainParams{Now: at, DeliveriesBefore: at, DeadBefore: at, EventsBefore: at}
			e.truth(e.store.Maintain(ended, p) != nil, "maintenance whose context has ended: no error")
			e.maintain(p)
			e.equal(0, len(e.list(webhook.ListDeliveriesParams{Scope: webhook.AllTenants()})), "deliveries left")
			for _, c := range done {
				if _, err := e.store.GetEvent(e.ctx, webhook.AllTenants(), c.Event.ID); err == nil {
					e.t.Fatalf("event %s is left", c.Event.ID)
				}
			}
		}},
	}
}

// counterTests are about what Maintain counts.
func counterTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "counters tell what happened, per endpoint and day, however often they are made", run: func(e *env[Tx]) {
			one, two := e.deliveries(4, "acme"), e.deliveries(1, "other")
			claimed := e.claim(e.now, oldest(one, webhook.LaneFirst, plenty))
			e.need(4, len(claimed), "deliveries claimed")
			shed := webhook.Result{Lease: claimed[2].lease(), State: webhook.StateShed, Reason: "backlog"}
			again := retry(claimed[3], e.now, e.at(time.Minute))
			e.record(e.now, delivered(claimed[0], e.now), dead(claimed[1], e.now, "window"), shed, again)
			e.record(e.now, delivered(claimed[0], e.now), again) // whose answer was lost
			foreign := e.claimOne(e.now, two, webhook.LaneFirst)
			loud := delivered(foreign, e.now)
			loud.Attempt.Excerpt, loud.Attempt.Location = []byte("12345"), "https://elsewhere.example/"
			e.record(e.now, loud)
			later := e.claimOne(e.at(day), one, webhook.LaneRetry)
			e.record(e.at(day), retry(later, e.at(day), e.at(day+time.Minute)))
			e.setState(one, webhook.EndpointDisabled)
			_, err := e.store.CancelDeliveries(e.ctx, webhook.CancelDeliveriesParams{Now: e.at(day + time.Hour), EndpointID: one.ID, Limit: plenty})
			e.must(err, "cancel the rest")

			errorBytes := int64(len(attempt(later, e.now, 503).Error))
			today, tomorrow := e.day(e.now), e.day(e.at(day))
			cancelledOn := e.day(e.at(day + time.Hour))
			want := map[counterKey]webhook.DayCounters{}
			add := func(c webhook.DayCounters) {
				k := counterKey{c.Day, c.EndpointID}
				sum := want[k]
				sum.Day, sum.EndpointID, sum.Tenant = c.Day, c.EndpointID, c.Tenant
				sum.Attempts += c.Attempts
				sum.Retries += c.Retries
				sum.Delivered += c.Delivered
				sum.Dead += c.Dead
				sum.Cancelled += c.Cancelled
				sum.Shed += c.Shed
				sum.LogBytes += c.LogBytes
				want[k] = sum
			}
			add(webhook.DayCounters{Day: today, EndpointID: one.ID, Tenant: "acme", Attempts: 3, Delivered: 1, Dead: 1, Shed: 1, LogBytes: 2 * errorBytes})
			add(webhook.DayCounters{Day: today, EndpointID: two.ID, Tenant: "other", Attempts: 1, Delivered: 1, LogBytes: 5 + 26})
			add(webhook.DayCounters{Day: tomorrow, EndpointID: one.ID, Tenant: "acme", Attempts: 1, Retries: 1, LogBytes: errorBytes})
			add(webhook.DayCounters{Day: cancelledOn, EndpointID: one.ID, Tenant: "acme", Cancelled: 1})

			all := webhook.ListCountersParams{Scope: webhook.AllTenants()}
			for _, p := range []webhook.MaintainParams{
				{Now: e.at(3 * day)},
				{Now: e.at(4 * day)},
				{Now: e.at(40 * day), DeliveriesBefore: e.at(33 * day), DeadBefore: e.at(10 * day), EventsBefore: e.at(10 * day)},
			} {
				e.maintain(p)
				got := e.counters(all)
				e.equal(len(want), len(got), "counters")
				for i, c := range got {
					e.equal(want[counterKey{c.Day, c.EndpointID}], c, "counters")
					e.truth(i == 0 || !c.Day.Before(got[i-1].Day), "counters are not in the order of days")
				}
			}
			e.gone(claimed[0].DeliveryID)
		}},
		{name: "what is removed was counted before", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			claimed := e.claimOne(e.now, endpoint, webhook.LaneFirst)
			e.record(e.now, delivered(claimed, e.now))

			e.maintain(webhook.MaintainParams{Now: e.at(400 * day), DeliveriesBefore: e.at(300 * day), EventsBefore: e.at(300 * day)})

			e.gone(claimed.DeliveryID)
			got := e.counters(webhook.ListCountersParams{Scope: webhook.AllTenants()})
			e.need(1, len(got), "counters")
			e.equal(int64(1), got[0].Delivered, "delivered")
			e.equal(int64(1), got[0].Attempts, "attempts")
		}},
		{name: "counters are listed by tenant, endpoint and day, in pages", run: func(e *env[Tx]) {
			endpoints := []webhook.EndpointRecord{e.endpoint("acme", "*"), e.endpoint("acme", "*"), e.endpoint("other", "*")}
			const days = 3
			for i := range days {
				at := e.at(time.Duration(i) * day)
				e.enqueue(e.event("acme", "order.created"), e.event("other", "order.created"))
				e.fanOutAt(at)
				for _, endpoint := range endpoints {
					l := e.claimOne(at, endpoint, webhook.LaneFirst)
					e.record(at, delivered(l, at))
				}
			}
			e.maintain(webhook.MaintainParams{Now: e.at(10 * day)})
			first, last := e.day(e.now), e.day(e.at((days-1)*day))
			none, err := e.store.ListCounters(e.ctx, webhook.ListCountersParams{Scope: webhook.AllTenants(), Limit: -1})
			e.must(err, "list with a limit below one")
			e.equal(0, len(none), "counters for a limit below one")

			e.equal(9, len(e.counters(webhook.ListCountersParams{Scope: webhook.AllTenants()})), "all counters")
			for _, c := range e.counters(webhook.ListCountersParams{Scope: webhook.TenantScope("acme")}) {
				e.equal("acme", c.Tenant, "tenant")
			}
			e.equal(6, len(e.counters(webhook.ListCountersParams{Scope: webhook.TenantScope("acme")})), "counters of a tenant")
			e.equal(3, len(e.counters(webhook.ListCountersParams{Scope: webhook.TenantScope("acme"), EndpointID: endpoints[0].ID})), "counters of an endpoint")
			e.equal(0, len(e.counters(webhook.ListCountersParams{Scope: webhook.TenantScope("acme"), EndpointID: endpoints[2].ID})), "counters of a foreign endpoint")
			e.equal(6, len(e.counters(webhook.ListCountersParams{Scope: webhook.AllTenants(), From: first.Add(day)})), "counters from the second day on")
			e.equal(6, len(e.counters(webhook.ListCountersParams{Scope: webhook.AllTenants(), Until: last})), "counters until the last day")
			e.equal(3, len(e.counters(webhook.ListCountersParams{Scope: webhook.AllTenants(), From: first.Add(day), Until: last})), "counters of one day")
		}},
	}
}

// dutyTests are about what one process does for all.
func dutyTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "one at a time has a duty", run: func(e *env[Tx]) {
			a, b := uuid.UUID{1}, uuid.UUID{2}
			other := e.db.Connect(e.t)
			e.equal(true, e.duty(e.store, "sweep", a, e.now, e.at(time.Minute)), "held by the first")
			e.equal(false, e.duty(other, "sweep", b, e.at(time.Second), e.at(time.Hour)), "held by the second meanwhile")
			e.equal(true, e.duty(other, "cook", b, e.now, e.at(time.Minute)), "another duty held by the second")
			e.equal(true, e.duty(e.store, "sweep", a, e.at(30*time.Second), e.at(2*time.Minute)), "prolonged by the first")
			e.equal(false, e.duty(other, "sweep", b, e.at(time.Minute), e.at(time.Hour)), "held by the second after the first time")
			e.equal(true, e.duty(other, "sweep", b, e.at(2*time.Minute), e.at(3*time.Minute)), "held by the second when the time is over")
			e.equal(false, e.duty(e.store, "sweep", a, e.at(2*time.Minute), e.at(4*time.Minute)), "held by the first, who lost it")
			e.equal(true, e.duty(other, "sweep", b, e.at(2*time.Minute), e.at(2*time.Minute)), "given back")
			e.equal(true, e.duty(e.store, "sweep", a, e.at(2*time.Minute), e.at(4*time.Minute)), "held by the first again")
		}},
		{name: "of many that want a duty at once one gets it", run: func(e *env[Tx]) {
			got := make(chan struct{}, 16)
			e.concurrently(8, func(i int) error {
				held, err := e.db.Connect(e.t).TakeDuty(e.ctx, webhook.DutyParams{
					Name: "sweep", Holder: uuid.UUID{byte(i + 1)}, Now: e.now, Until: e.at(time.Minute),
				})
				if held {
					got <- struct{}{}
				}
				return err
			})
			e.equal(1, len(got), "holders of the duty")
		}},
	}
}

// counterKey is what counters are told apart by.
type counterKey struct {
	day      time.Time
	endpoint uuid.UUID
}

func (e *env[Tx]) maintain(p webhook.MaintainParams) {
	e.t.Helper()
	e.must(e.store.Maintain(e.ctx, p), "maintain")
}

func (e *env[Tx]) duty(s webhook.Store[Tx], name string, holder uuid.UUID, now, until time.Time) bool {
	e.t.Helper()
	held, err := s.TakeDuty(e.ctx, webhook.DutyParams{Name: name, Holder: holder, Now: now, Until: until})
	e.must(err, "take a duty")
	return held
}

// gone checks that a delivery was removed, with its attempts.
func (e *env[Tx]) gone(id uuid.UUID) {
	e.t.Helper()
	_, err := e.store.GetDelivery(e.ctx, webhook.AllTenants(), id)
	e.wantError(webhook.ErrNotFound, err, "get a delivery that was kept for long enough")
	e.equal(0, len(e.attempts(id)), "attempts of a delivery that was removed")
}

// counters returns all counters that the filter lets through, two at a time.
func (e *env[Tx]) counters(p webhook.ListCountersParams) []webhook.DayCounters {
	e.t.Helper()
	p.Limit = 2
	var all []webhook.DayCounters
	for {
		page, err := e.store.ListCounters(e.ctx, p)
		e.must(err, "list counters")
		e.need(true, len(page) <= 2, "size of a page of two")
		all = append(all, page...)
		if len(page) < 2 {
			return all
		}
		last := page[len(page)-1]
		p.AfterDay, p.AfterEndpoint = last.Day, last.EndpointID
		e.need(true, len(all) <= plenty, "counters end")
	}
}

// day is the day of a time.
func (e *env[Tx]) day(at time.Time) time.Time { return at.UTC().Truncate(day) }

// idAt returns an id as one made at the time has.
func idAt(at time.Time) uuid.UUID {
	id := newID()
	for i, ms := 5, at.UnixMilli(); i >= 0; i-- {
		id[i] = byte(ms)
		ms >>= 8
	}
	return id
}
