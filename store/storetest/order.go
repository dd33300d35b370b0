package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// orderedEndpoint creates an endpoint for all events, with an ordering.
func (e *env[Tx]) orderedEndpoint(tenant string, ordering webhook.Ordering) webhook.EndpointRecord {
	e.t.Helper()
	record := e.newEndpoint(tenant, "*")
	record.Ordering = ordering
	created, err := e.store.CreateEndpoint(e.ctx, record)
	e.must(err, "create an endpoint")
	return created
}

// about returns n events about a resource.
func (e *env[Tx]) about(n int, resource string) []webhook.EventRecord {
	events := e.eventsOf(n, "acme", "order.created")
	for i := range events {
		events[i].ResourceID = resource
	}
	return events
}

// inOrder is an endpoint with an ordering that n events about one resource are on
// their way to.
func (e *env[Tx]) inOrder(n int) (webhook.EndpointRecord, []webhook.EventRecord) {
	e.t.Helper()
	endpoint := e.orderedEndpoint("acme", webhook.OrderingPerResource)
	events := e.about(n, "r1")
	e.enqueue(events...)
	e.fanOut()
	return endpoint, events
}

// claimAny claims whatever is claimable of an endpoint, in all lanes.
func (e *env[Tx]) claimAny(at time.Time, endpoint webhook.EndpointRecord) []leased {
	e.t.Helper()
	return e.claim(at, oldest(endpoint, webhook.LaneFirst, plenty), oldest(endpoint, webhook.LaneRetry, plenty),
		oldest(endpoint, webhook.LaneReplay, plenty))
}

// turnOf claims the one delivery whose turn it is.
func (e *env[Tx]) turnOf(at time.Time, endpoint webhook.EndpointRecord, event webhook.EventRecord, when string) leased {
	e.t.Helper()
	claimed := e.claimAny(at, endpoint)
	if len(claimed) != 1 || claimed[0].Event.ID != event.ID {
		e.t.Fatalf("%s: claimed %d deliveries, want the one whose turn it is", when, len(claimed))
	}
	return claimed[0]
}

// ended is a result with the order that the claim told of.
func ended(l leased, r webhook.Result) webhook.Result {
	r.Order = l.Order
	return r
}

func (e *env[Tx]) releaseOrdered(p webhook.ReleaseOrderedParams) webhook.ReleaseOrderedResult {
	e.t.Helper()
	if p.Limit == 0 {
		p.Limit = plenty
	}
	result, err := e.store.ReleaseOrdered(e.ctx, p)
	e.must(err, "release ordered deliveries")
	return result
}

// deliveryOf returns the delivery of an event to an endpoint.
func (e *env[Tx]) deliveryOf(event webhook.EventRecord, endpoint webhook.EndpointRecord) webhook.Delivery {
	e.t.Helper()
	list := e.list(webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), EventID: event.ID, EndpointID: endpoint.ID})
	e.need(1, len(list), "deliveries of an event")
	return list[0]
}

// orderTests are about whose turn it is.
func orderTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "one delivery of a key at a time is claimable, in the order of enqueuing", run: func(e *env[Tx]) {
			endpoint, events := e.inOrder(4)
			for i, event := range events {
				l := e.turnOf(e.now, endpoint, event, fmt.Sprintf("turn %d", i))
				e.need(true, l.Order != nil, "the claim tells of an order")
				e.equal(webhook.OrderKey{EndpointID: endpoint.ID, Key: "r1"}, *l.Order, "order")
				e.equal(false, l.OrderingSkipped, "order skipped")
				e.equal(0, len(e.claimAny(e.now, endpoint)), "claimed besides")
				released := e.record(e.now, ended(l, delivered(l, e.now))).Released
				if i == len(events)-1 {
					e.equal(0, len(released), "released after the last")
					continue
				}
				e.need(1, len(released), "released")
				e.equal([2]any{endpoint.ID, webhook.LaneFirst}, [2]any{released[0].EndpointID, released[0].Lane}, "released")
			}
		}},
		{name: "a failed delivery keeps its turn", run: func(e *env[Tx]) {
			endpoint, events := e.inOrder(2)
			l := e.turnOf(e.now, endpoint, events[0], "at first")
			e.equal(0, len(e.record(e.now, ended(l, retry(l, e.now, e.at(time.Hour)))).Released), "released")
			e.equal(0, len(e.claimAny(e.at(time.Minute), endpoint)), "claimed meanwhile")
			l = e.turnOf(e.at(time.Hour), endpoint, events[0], "at the retry")
			e.record(e.at(time.Hour), ended(l, dead(l, e.now, "retries used up")))
			e.turnOf(e.at(time.Hour), endpoint, events[1], "after its end")
		}},
		{name: "keys do not wait for one another, and neither does what has none", run: func(e *env[Tx]) {
			endpoint := e.orderedEndpoint("acme", webhook.OrderingPerResource)
			plain := e.endpoint("acme", "*")
			all := slices.Concat(e.about(2, "r1"), e.about(2, "r2"), e.about(3, ""))
			e.enqueue(all...)
			e.fanOut()
			claimed := e.claimAny(e.now, endpoint)
			var got []uuid.UUID
			for _, l := range claimed {
				got = append(got, l.Event.ID)
				e.equal(l.Event.ResourceID != "", l.Order != nil, "has an order")
			}
			e.sameSet(eventIDs(all[0], all[2], all[4], all[5], all[6]), got, "claimed")
			e.equal(7, len(e.claimAny(e.now, plain)), "claimed for an endpoint without an ordering")
		}},
		{name: "an ordering per endpoint keeps all events in order", run: func(e *env[Tx]) {
			endpoint := e.orderedEndpoint("acme", webhook.OrderingPerEndpoint)
			events := slices.Concat(e.about(1, "r1"), e.about(1, ""), e.about(1, "r2"))
			e.enqueue(events...)
			e.fanOut()
			for i, event := range events {
				l := e.turnOf(e.now, endpoint, event, fmt.Sprintf("turn %d", i))
				e.equal(webhook.OrderKey{EndpointID: endpoint.ID}, *l.Order, "order")
				e.record(e.now, ended(l, delivered(l, e.now)))
			}
		}},
		{name: "one that waits for its turn says so", run: func(e *env[Tx]) {
			endpoint, events := e.inOrder(2)
			e.equal([2]bool{false, true}, [2]bool{e.deliveryOf(events[0], endpoint).AwaitsTurn, e.deliveryOf(events[1], endpoint).AwaitsTurn}, "awaits its turn")
			e.equal(webhook.StatePending, e.deliveryOf(events[1], endpoint).State, "state")
			ready := e.ready(e.now)
			e.equal([]webhook.Lane{webhook.LaneFirst}, lanesOf(ready, endpoint), "ready lanes")
		}},
		{name: "a turn that a result left free is found", run: func(e *env[Tx]) {
			endpoint, events := e.inOrder(2)
			l := e.turnOf(e.now, endpoint, events[0], "at first")
			e.record(e.now, delivered(l, e.now)) // by a caller that does not know of the order
			found := e.releaseOrdered(webhook.ReleaseOrderedParams{Now: e.now})
			e.need(1, len(found.Released), "released")
			e.equal(endpoint.ID, found.Released[0].EndpointID, "endpoint")
			e.equal(false, found.More, "more")
			e.turnOf(e.now, endpoint, events[1], "then")
			e.equal(0, len(e.releaseOrdered(webhook.ReleaseOrderedParams{Now: e.now}).Released), "released again")
		}},
		{name: "keys are looked at page by page", run: func(e *env[Tx]) {
			endpoint := e.orderedEndpoint("acme", webhook.OrderingPerResource)
			const keys = 5
			for i := range keys {
				e.enqueue(e.about(2, fmt.Sprintf("r%d", i))...)
			}
			e.fanOut()
			for _, l := range e.claimAny(e.now, endpoint) {
				e.record(e.now, delivered(l, e.now))
			}
			var after webhook.OrderKey
			pages, released := 0, 0
			for more := true; more && pages < 10; pages++ {
				page := e.releaseOrdered(webhook.ReleaseOrderedParams{Now: e.now, After: after, Limit: 2})
				e.truth(len(page.Released) <= 2, "a page is larger than its limit")
				released += len(page.Released)
				after, more = page.Next, page.More
			}
			e.equal(keys, released, "released")
			e.truth(pages >= 3, "there were %d pages", pages)
			e.equal(keys, len(e.claimAny(e.now, endpoint)), "claimed")
		}},
		{name: "an earlier event that only partly reached its endpoints holds up the others", run: func(e *env[Tx]) {
			first := e.orderedEndpoint("acme", webhook.OrderingPerEndpoint)
			last := e.orderedEndpoint("acme", webhook.OrderingPerEndpoint)
			if compareIDs(first.ID, last.ID) > 0 {
				first, last = last, first
			}
			giant, small := e.event("acme", "order.created"), e.event("acme", "order.paid")
			e.enqueue(giant)
			e.fanOutWith(newMatcher(), 1, 1) // reaches the first endpoint and moves behind
			e.enqueue(small)
			e.fanOutWith(newMatcher(), 1, 1)
			e.fanOutWith(newMatcher(), 1, 1)
			e.turnOf(e.now, first, giant, "the endpoint that it reached")
			e.fanOut()
			e.turnOf(e.now, last, giant, "the other endpoint")
		}},
	}
}

// besideTests are about fan-outs beside one another.
func besideTests[Tx any](h Harness[Tx]) []test[Tx] {
	if h.SingleWriter {
		return nil // there are none
	}
	return []test[Tx]{
		{name: "nothing goes before an earlier event that waits for fan-out", run: func(e *env[Tx]) {
			endpoint := e.orderedEndpoint("acme", webhook.OrderingPerResource)
			events := e.about(3, "r1")
			e.enqueue(events...)
			// The first is being fanned out by somebody slow when the others are.
			slow := newMatcher()
			slow.beforeMatch = func(*webhook.EventRecord) {
				slow.beforeMatch = nil
				e.fanOutBeside(e.now)
				e.equal(0, len(e.claimAny(e.now, endpoint)), "claimed before the first was fanned out")
				e.equal(0, len(e.releaseOrdered(webhook.ReleaseOrderedParams{Now: e.now}).Released), "released")
			}
			e.fanOutWith(slow, 1, plenty)
			e.fanOut()
			e.turnOf(e.now, endpoint, events[0], "after fan-out")
		}},
	}
}

// fanOutBeside fans everything out that is not held, from within a fan-out.
func (e *env[Tx]) fanOutBeside(now time.Time) {
	e.t.Helper()
	_, err := e.drain(e.db.Connect(e.t), now, plenty)
	e.must(err, "fan out beside")
}

func lanesOf(ready []webhook.ReadyLane, endpoint webhook.EndpointRecord) []webhook.Lane {
	var lanes []webhook.Lane
	for _, r := range ready {
		if r.EndpointID == endpoint.ID {
			lanes = append(lanes, r.Lane)
		}
	}
	return lanes
}

// holdTests are about deliveries that hold up others, and about people who get between.
func holdTests[Tx any]() []test[Tx] {
	hold := 4 * time.Hour
	return []test[Tx]{
		{name: "after the hold the next passes, marked, and the others after it", run: func(e *env[Tx]) {
			endpoint, events := e.inOrder(3)
			l := e.turnOf(e.now, endpoint, events[0], "at first")
			e.record(e.now, ended(l, retry(l, e.now, e.at(10*time.Hour))))
			early := e.at(hold - time.Second)
			e.equal(0, len(e.releaseOrdered(webhook.ReleaseOrderedParams{Now: early, HeldBefore: early.Add(-hold)}).Released), "released before the hold passed")
			e.equal(0, len(e.releaseOrdered(webhook.ReleaseOrderedParams{Now: e.at(20 * time.Hour)}).Released), "released without a hold")
			at := e.at(hold)
			e.equal(1, len(e.releaseOrdered(webhook.ReleaseOrderedParams{Now: at, HeldBefore: at.Add(-hold)}).Released), "released after the hold")
			for i := 1; i < 3; i++ {
				l := e.turnOf(at, endpoint, events[i], "after the hold")
				e.equal(true, l.OrderingSkipped, "marked in the claim")
				e.equal(true, e.getDelivery(l.DeliveryID).OrderingSkipped, "marked in the list")
				e.record(at, ended(l, delivered(l, at)))
				e.equal(true, e.getDelivery(l.DeliveryID).OrderingSkipped, "marked in the log")
			}
			last := e.turnOf(e.at(10*time.Hour), endpoint, events[0], "when the first is due")
			e.equal(false, last.OrderingSkipped, "the one that was passed is marked")
			e.record(at, ended(last, dead(last, at, "retries used up")))
			e.equal(false, e.getDelivery(last.DeliveryID).OrderingSkipped, "the one that was passed is marked in the log")
		}},
		{name: "one that was overtaken goes first when it is due, and lets others pass when it fails again", run: func(e *env[Tx]) {
			endpoint, events := e.inOrder(3)
			l := e.turnOf(e.now, endpoint, events[0], "at first")
			e.record(e.now, ended(l, retry(l, e.now, e.at(hold+time.Minute))))
			at := e.at(hold)
			e.releaseOrdered(webhook.ReleaseOrderedParams{Now: at, HeldBefore: at.Add(-hold)})
			second := e.turnOf(at, endpoint, events[1], "after the hold")
			at = e.at(hold + 2*time.Minute)
			e.record(at, ended(second, delivered(second, at)))
			again := e.turnOf(at, endpoint, events[0], "when it is due again")
			e.record(at, ended(again, retry(again, at, at.Add(time.Hour))))
			third := e.turnOf(at, endpoint, events[2], "when it has failed again")
			e.equal(true, third.OrderingSkipped, "marked")
		}},
		{name: "an endpoint that was paused begins its hold anew", run: func(e *env[Tx]) {
			endpoint, events := e.inOrder(2)
			l := e.turnOf(e.now, endpoint, events[0], "at first")
			e.record(e.now, ended(l, retry(l, e.now, e.at(10*time.Hour))))
			endpoint.State, endpoint.StateChangedAt = webhook.EndpointPaused, e.at(time.Hour)
			endpoint = e.update(endpoint)
			at := e.at(20 * time.Hour)
			e.equal(0, len(e.releaseOrdered(webhook.ReleaseOrderedParams{Now: at, HeldBefore: at.Add(-hold)}).Released), "released while paused")
			endpoint.State, endpoint.StateChangedAt = webhook.EndpointActive, at
			e.update(endpoint)
			e.equal(0, len(e.releaseOrdered(webhook.ReleaseOrderedParams{Now: at, HeldBefore: at.Add(-hold)}).Released), "released when resumed")
			at = at.Add(hold)
			e.equal(1, len(e.releaseOrdered(webhook.ReleaseOrderedParams{Now: at, HeldBefore: at.Add(-hold)}).Released), "released after the hold")
		}},
		{name: "one in flight is never overtaken", run: func(e *env[Tx]) {
			endpoint, events := e.inOrder(2)
			l := e.turnOf(e.now, endpoint, events[0], "at first")
			e.record(e.now, ended(l, retry(l, e.now, e.now)))
			e.turnOf(e.now, endpoint, events[0], "again")
			at := e.at(leaseTime - time.Second)
			e.equal(0, len(e.releaseOrdered(webhook.ReleaseOrderedParams{Now: at, HeldBefore: at}).Released), "released")
		}},
		{name: "a crash keeps the order: the expired lease is taken over, and nothing else", run: func(e *env[Tx]) {
			endpoint, events := e.inOrder(2)
			e.turnOf(e.now, endpoint, events[0], "at first")
			at := e.at(leaseTime)
			e.releaseOrdered(webhook.ReleaseOrderedParams{Now: at, HeldBefore: at.Add(-hold)})
			e.turnOf(at, endpoint, events[0], "after the crash")
		}},
		{name: "cancelling whose turn it is gives the turn to the next", run: func(e *env[Tx]) {
			endpoint, events := e.inOrder(2)
			e.truth(e.cancelOne(e.now, webhook.AllTenants(), e.deliveryOf(events[0], endpoint).ID), "not cancelled")
			e.turnOf(e.now, endpoint, events[1], "after the cancel")
		}},
		{name: "cancelling what is in flight keeps the next until it cannot be on its way", run: func(e *env[Tx]) {
			endpoint, events := e.inOrder(2)
			l := e.turnOf(e.now, endpoint, events[0], "at first")
			e.truth(e.cancelOne(e.at(time.Second), webhook.AllTenants(), l.DeliveryID), "not cancelled")
			at := e.at(leaseTime - time.Second)
			e.releaseOrdered(webhook.ReleaseOrderedParams{Now: at})
			e.equal(0, len(e.claimAny(at, endpoint)), "claimed under the old lease")
			at = e.at(leaseTime)
			e.releaseOrdered(webhook.ReleaseOrderedParams{Now: at})
			e.turnOf(at, endpoint, events[1], "after the lease")
		}},
		{name: "cancelling one that waits changes no turn", run: func(e *env[Tx]) {
			endpoint, events := e.inOrder(3)
			e.truth(e.cancelOne(e.now, webhook.AllTenants(), e.deliveryOf(events[1], endpoint).ID), "not cancelled")
			l := e.turnOf(e.now, endpoint, events[0], "at first")
			e.record(e.now, ended(l, delivered(l, e.now)))
			e.turnOf(e.now, endpoint, events[2], "then")
		}},
		{name: "hastening one that waits does not let it pass", run: func(e *env[Tx]) {
			endpoint, events := e.inOrder(2)
			e.hasten(e.at(-time.Hour), webhook.AllTenants(), e.deliveryOf(events[1], endpoint).ID)
			e.releaseOrdered(webhook.ReleaseOrderedParams{Now: e.now})
			e.turnOf(e.now, endpoint, events[0], "still")
		}},
		{name: "a replay takes its place by its event, and passes nothing in flight", run: func(e *env[Tx]) {
			endpoint, events := e.inOrder(3)
			first := e.turnOf(e.now, endpoint, events[0], "at first")
			e.record(e.now, ended(first, dead(first, e.now, "retries used up")))
			second := e.turnOf(e.now, endpoint, events[1], "then")
			e.startRun(e.now, events[0].ID, endpoint)
			e.equal(0, len(e.claimAny(e.now, endpoint)), "claimed beside what is in flight")
			e.record(e.now, ended(second, retry(second, e.now, e.at(time.Hour))))
			replay := e.turnOf(e.now, endpoint, events[0], "the replay, before the retry")
			e.equal([2]any{1, webhook.LaneReplay}, [2]any{replay.Run, replay.Lane}, "run and lane")
			e.record(e.now, ended(replay, delivered(replay, e.now)))
			e.turnOf(e.at(time.Hour), endpoint, events[1], "the retry")
		}},
		{name: "a replay to an ordered endpoint that nothing waits for goes at once", run: func(e *env[Tx]) {
			endpoint, events := e.inOrder(1)
			l := e.turnOf(e.now, endpoint, events[0], "at first")
			e.record(e.now, ended(l, delivered(l, e.now)))
			e.startRun(e.now, events[0].ID, endpoint)
			e.turnOf(e.now, endpoint, events[0], "the replay")
		}},
		{name: "an ordering that is changed holds for new deliveries, and the old ones drain in theirs", run: func(e *env[Tx]) {
			endpoint, events := e.inOrder(2)
			endpoint.Ordering = webhook.OrderingNone
			endpoint = e.update(endpoint)
			e.equal(webhook.OrderingNone, endpoint.Ordering, "ordering")
			loose := e.about(1, "r1")
			e.enqueue(loose...)
			e.fanOut()
			claimed := e.claimAny(e.now, endpoint)
			var got []uuid.UUID
			for _, l := range claimed {
				got = append(got, l.Event.ID)
			}
			e.sameSet(eventIDs(events[0], loose[0]), got, "claimed")
		}},
		{name: "several processes never have two of a key in flight, nor out of order", run: func(e *env[Tx]) {
			const processes, keys, each = 4, 3, 8
			endpoint := e.orderedEndpoint("acme", webhook.OrderingPerResource)
			want := map[string][]uuid.UUID{}
			for range each {
				for k := range keys {
					events := e.about(1, fmt.Sprintf("r%d", k))
					want[events[0].ResourceID] = append(want[events[0].ResourceID], events[0].ID)
					e.enqueue(events...)
				}
			}
			var mu sync.Mutex
			got := map[string][]uuid.UUID{}
			flying := map[string]bool{}
			done := func() bool {
				mu.Lock()
				defer mu.Unlock()
				n := 0
				for _, ids := range got {
					n += len(ids)
				}
				return n == keys*each
			}
			e.concurrently(processes, func(int) error {
				store := e.db.Connect(e.t)
				for !done() {
					if e.ctx.Err() != nil {
						return e.ctx.Err()
					}
					if _, err := e.drain(store, e.now, 2); err != nil {
						return err
					}
					if _, err := store.ReleaseOrdered(e.ctx, webhook.ReleaseOrderedParams{Now: e.now, Limit: plenty}); err != nil {
						return err
					}
					claimed, err := e.claimFrom(store, e.now, oldest(endpoint, webhook.LaneFirst, 2))
					if err != nil {
						return err
					}
					for _, l := range claimed {
						key := l.Event.ResourceID
						mu.Lock()
						if flying[key] {
							e.t.Errorf("two deliveries of %s are in flight", key)
						}
						flying[key] = true
						got[key] = append(got[key], l.Event.ID)
						mu.Unlock()
					}
					for _, l := range claimed {
						mu.Lock()
						flying[l.Event.ResourceID] = false
						mu.Unlock()
						_, err := store.Record(e.ctx, webhook.RecordParams{Now: e.now, Results: []webhook.Result{ended(l, delivered(l, e.now))}})
						if err != nil {
							return err
						}
					}
				}
				return nil
			})
			for key, ids := range want {
				e.equal(ids, got[key], "order of %s", key)
			}
		}},
	}
}
