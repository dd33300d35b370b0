package storetest

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

func claimTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "a due delivery is claimed with the event that it carries", run: func(e *env[Tx]) {
			endpoint := e.endpoint("acme", "*")
			event := e.keyed("acme", "k")
			event.ResourceID, event.ResourceVersion, event.Payload = "in_9", 8, []byte(`{"n" : 1}`)
			e.enqueue(event)
			e.fanOut()

			claimed := e.claimOne(e.at(time.Second), endpoint, webhook.LaneFirst)

			e.sameEvent(event, claimed.Event)
			e.equal(e.getEvent(event.ID).Sequence, claimed.Event.Sequence, "sequence")
			claimed.Event = webhook.EventRecord{}
			e.equal(webhook.Claimed{
				DeliveryID: claimed.DeliveryID, EndpointID: endpoint.ID, Lane: webhook.LaneFirst,
				CreatedAt: e.now, DueAt: e.now, EndpointRevision: endpoint.Revision,
			}, claimed.inUTC(), "claimed delivery")
			e.equal(webhook.StateInFlight, e.getDelivery(claimed.DeliveryID).State, "state")
		}},
		{name: "a delivery is not claimed before it is due", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			e.equal(0, len(e.claim(e.at(-time.Microsecond), oldest(endpoint, webhook.LaneFirst, plenty))), "claimed before it is due")
			e.equal(1, len(e.claim(e.now, oldest(endpoint, webhook.LaneFirst, plenty))), "claimed when it is due")
		}},
		{name: "a retry is not claimed before its time", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			first := e.claimOne(e.now, endpoint, webhook.LaneFirst)
			due := e.at(30 * time.Second)
			e.record(e.at(time.Second), retry(first, e.now, due))

			e.equal(0, len(e.claim(due.Add(-time.Microsecond), oldest(endpoint, webhook.LaneRetry, plenty))), "claimed before its time")
			second := e.claimOne(due, endpoint, webhook.LaneRetry)

			e.equal(due, second.DueAt, "due at")
			e.equal(1, second.Attempts, "attempts")
			e.equal(e.now, second.CreatedAt, "beginning of the run")
			e.truth(!second.TakenOver, "a retry says that it was taken over")
		}},
		{name: "no more deliveries are claimed than asked for, those due longest first", run: func(e *env[Tx]) {
			endpoint, due := e.staggered(5)
			var got []uuid.UUID
			for _, want := range []int{2, 2, 1, 0} {
				claimed := e.claim(e.at(time.Hour), oldest(endpoint, webhook.LaneFirst, 2))
				e.need(want, len(claimed), "deliveries of one claim")
				got = append(got, sortedByDue(claimed)...)
			}
			e.equal(due, got, "order")
		}},
		{name: "the newest are claimed first if asked for", run: func(e *env[Tx]) {
			endpoint, due := e.staggered(5)
			slices.Reverse(due)
			first := e.claim(e.at(time.Hour), newest(endpoint, webhook.LaneFirst, 2))
			e.sameSet(due[:2], eventsClaimed(first), "newest two")
			for _, c := range first {
				e.truth(c.Newest, "a delivery claimed as one of the newest does not say so")
			}
			e.sameSet(due[2:4], eventsClaimed(e.claim(e.at(time.Hour), newest(endpoint, webhook.LaneFirst, 2))), "next two")
		}},
		{name: "the newest that are due are claimed, not those of the future", run: func(e *env[Tx]) {
			endpoint, due := e.staggered(5) // one minute apart
			claimed := e.claim(e.at(2*time.Minute+time.Second), newest(endpoint, webhook.LaneFirst, 1))
			e.sameSet(due[2:3], eventsClaimed(claimed), "newest due")
		}},
		{name: "oldest and newest of a lane in one claim do not overlap", run: func(e *env[Tx]) {
			endpoint, due := e.staggered(5)
			claimed := e.claim(e.at(time.Hour), oldest(endpoint, webhook.LaneFirst, 2), newest(endpoint, webhook.LaneFirst, 2))
			e.sameSet([]uuid.UUID{due[0], due[1], due[3], due[4]}, eventsClaimed(claimed), "claimed")
			for _, c := range claimed {
				e.equal(c.Event.ID == due[3] || c.Event.ID == due[4], c.Newest, "direction that brought a delivery")
			}
			rest := e.claim(e.at(time.Hour), oldest(endpoint, webhook.LaneFirst, 2), newest(endpoint, webhook.LaneFirst, 2))
			e.sameSet(due[2:3], eventsClaimed(rest), "claimed afterwards")
		}},
		{name: "the newest are claimed back to a time if asked for", run: func(e *env[Tx]) {
			endpoint, due := e.staggered(5) // one minute apart
			request := newest(endpoint, webhook.LaneFirst, plenty)
			request.Since = e.at(3 * time.Minute)
			e.sameSet(due[3:], eventsClaimed(e.claim(e.at(time.Hour), request)), "claimed")
			e.equal(0, len(e.claim(e.at(time.Hour), request)), "claimed afterwards")
		}},
		{name: "the oldest are claimed from a time on if asked for", run: func(e *env[Tx]) {
			endpoint, due := e.staggered(6) // one minute apart
			request := oldest(endpoint, webhook.LaneFirst, 2)
			request.Since = e.at(3 * time.Minute)
			e.sameSet(due[3:5], eventsClaimed(e.claim(e.at(time.Hour), request)), "claimed")
			both := newest(endpoint, webhook.LaneFirst, plenty)
			both.Since = e.at(time.Minute)
			request.Limit = plenty
			e.sameSet([]uuid.UUID{due[1], due[2], due[5]}, eventsClaimed(e.claim(e.at(time.Hour), request, both)), "claimed at both ends")
			e.sameSet(due[:1], eventsClaimed(e.claim(e.at(time.Hour), oldest(endpoint, webhook.LaneFirst, plenty))), "claimed in the end")
		}},
		{name: "each lane is claimed by itself", run: func(e *env[Tx]) {
			endpoint := e.deliveries(3, "acme")
			claimed := e.claim(e.now, oldest(endpoint, webhook.LaneFirst, 2))
			e.need(2, len(claimed), "claimed")
			again := retry(claimed[1], e.now, e.now)
			again.Lane = webhook.LaneReplay
			e.record(e.now, retry(claimed[0], e.now, e.now), again)

			for lane, want := range map[webhook.Lane][]uuid.UUID{
				webhook.LaneRetry:  {claimed[0].DeliveryID},
				webhook.LaneReplay: {claimed[1].DeliveryID},
			} {
				got := e.claim(e.now, oldest(endpoint, lane, plenty))
				e.sameSet(want, deliveryIDs(got...), "claimed from a lane")
				for _, c := range got {
					e.equal(lane, c.Lane, "lane")
				}
			}
			first := e.claim(e.now, oldest(endpoint, webhook.LaneFirst, plenty))
			e.equal(1, len(first), "claimed from the first lane")
		}},
		{name: "one claim serves several endpoints and lanes, each up to its limit", run: func(e *env[Tx]) {
			one, two, three := e.deliveries(3, "one"), e.deliveries(3, "two"), e.deliveries(3, "three")
			for _, c := range e.claim(e.now, oldest(one, webhook.LaneFirst, 1)) {
				e.record(e.now, retry(c, e.now, e.now))
			}
			claimed := e.claim(e.now,
				oldest(one, webhook.LaneFirst, 1), oldest(one, webhook.LaneRetry, 5), oldest(two, webhook.LaneFirst, 2))
			counts := map[uuid.UUID]int{}
			for _, c := range claimed {
				counts[c.EndpointID]++
			}
			e.equal(map[uuid.UUID]int{one.ID: 2, two.ID: 2}, counts, "deliveries by endpoint; nothing was asked for %s", three.ID)
			e.sameSet(deliveryIDs(claimed...), uniqueIDs(claimed), "claimed deliveries")
		}},
		{name: "an endpoint that nobody knows yields nothing", run: func(e *env[Tx]) {
			e.delivery("acme")
			e.equal(0, len(e.claim(e.now, oldest(e.newEndpoint("acme", "*"), webhook.LaneFirst, plenty))), "claimed")
			e.equal(0, len(e.claim(e.now)), "claimed without a request")
		}},
		{name: "a paused, disabled or deleted endpoint yields nothing from that moment", run: func(e *env[Tx]) {
			endpoint := e.deliveries(3, "acme")
			request := oldest(endpoint, webhook.LaneFirst, 1)
			e.need(1, len(e.claim(e.now, request)), "claimed while active")

			endpoint = e.setState(endpoint, webhook.EndpointPaused)
			e.equal(0, len(e.claim(e.now, request)), "claimed while paused")
			endpoint = e.setState(endpoint, webhook.EndpointDisabled)
			e.equal(0, len(e.claim(e.now, request)), "claimed while disabled")
			endpoint = e.setState(endpoint, webhook.EndpointActive)
			e.equal(1, len(e.claim(e.now, request)), "claimed when active again")
			e.deleteEndpoint(endpoint)
			e.equal(0, len(e.claim(e.now, request)), "claimed when deleted")
		}},
		{name: "a claim tells the endpoint's revision of that moment", run: func(e *env[Tx]) {
			endpoint := e.deliveries(2, "acme")
			before := e.claim(e.now, oldest(endpoint, webhook.LaneFirst, 1))
			endpoint.URL = "https://elsewhere.example/in"
			updated := e.update(endpoint)
			after := e.claim(e.now, oldest(endpoint, webhook.LaneFirst, 1))
			e.need([2]int{1, 1}, [2]int{len(before), len(after)}, "claimed")
			e.equal(endpoint.Revision, before[0].EndpointRevision, "revision before the update")
			e.equal(updated.Revision, after[0].EndpointRevision, "revision after the update")
		}},
		{name: "a finished delivery is never claimed again", run: func(e *env[Tx]) {
			endpoint := e.deliveries(4, "acme")
			for i, c := range e.claim(e.now, oldest(endpoint, webhook.LaneFirst, plenty)) {
				state := []webhook.DeliveryState{webhook.StateDelivered, webhook.StateDead, webhook.StateCancelled, webhook.StateShed}[i]
				e.record(e.now, webhook.Result{Lease: c.lease(), State: state, Reason: "over"})
			}
			for _, lane := range []webhook.Lane{webhook.LaneFirst, webhook.LaneRetry, webhook.LaneReplay} {
				e.equal(0, len(e.claim(e.at(24*time.Hour), oldest(endpoint, lane, plenty))), "claimed from lane %d", lane)
			}
		}},
	}
}

// staggered makes n deliveries of one endpoint that become due a minute apart,
// and returns their events in the order in which they become due.
func (e *env[Tx]) staggered(n int) (webhook.EndpointRecord, []uuid.UUID) {
	e.t.Helper()
	endpoint := e.endpoint("acme", "*")
	due := make([]uuid.UUID, n)
	// Not in the order of creation, so that ids cannot stand in for due times.
	for _, i := range scrambled(n) {
		event := e.event("acme", "order.created")
		e.enqueue(event)
		e.fanOutAt(e.at(time.Duration(i) * time.Minute))
		due[i] = event.ID
	}
	return endpoint, due
}

func scrambled(n int) []int {
	order := make([]int, 0, n)
	for i := 1; i < n; i += 2 {
		order = append(order, i)
	}
	for i := 0; i < n; i += 2 {
		order = append(order, i)
	}
	return order
}

// sortedByDue returns the events of one claim by due time: in which order a
// claim returns what it claimed is not promised.
func sortedByDue(claimed []leased) []uuid.UUID {
	slices.SortFunc(claimed, func(a, b leased) int { return a.DueAt.Compare(b.DueAt) })
	return eventsClaimed(claimed)
}

func eventsClaimed(claimed []leased) []uuid.UUID {
	ids := make([]uuid.UUID, len(claimed))
	for i, c := range claimed {
		ids[i] = c.Event.ID
	}
	return ids
}

func uniqueIDs(claimed []leased) []uuid.UUID {
	ids := deliveryIDs(claimed...)
	slices.SortFunc(ids, compareIDs)
	return slices.Compact(ids)
}

// inUTC is the claimed delivery with its times made comparable.
func (l leased) inUTC() webhook.Claimed {
	c := l.Claimed
	c.CreatedAt, c.DueAt = c.CreatedAt.UTC(), c.DueAt.UTC()
	return c
}

func readyTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "ready lists lanes with their earliest due time", run: func(e *env[Tx]) {
			endpoint := e.deliveries(3, "acme")
			claimed := e.claim(e.now, oldest(endpoint, webhook.LaneFirst, 2))
			e.need(2, len(claimed), "claimed")
			soon, later := e.at(time.Minute), e.at(time.Hour)
			e.record(e.now, retry(claimed[0], e.now, later), retry(claimed[1], e.now, soon))

			e.equal([]webhook.ReadyLane{
				{EndpointID: endpoint.ID, Lane: webhook.LaneFirst, DueAt: e.now},
				{EndpointID: endpoint.ID, Lane: webhook.LaneRetry, DueAt: soon},
			}, e.ready(e.now), "ready lanes")
		}},
		{name: "ready leaves out what is under a valid lease and what is finished", run: func(e *env[Tx]) {
			leasedOut, done, free := e.delivery("leased"), e.delivery("done"), e.delivery("free")
			e.claimOne(e.now, leasedOut, webhook.LaneFirst)
			e.record(e.now, delivered(e.claimOne(e.now, done, webhook.LaneFirst), e.now))
			e.equal([]uuid.UUID{free.ID}, readyEndpoints(e.ready(e.at(time.Second))), "ready endpoints")
		}},
		{name: "ready lists a delivery whose lease has expired as due", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			e.claimOne(e.now, endpoint, webhook.LaneFirst)
			expired := e.at(leaseTime + time.Second)
			lanes := e.ready(expired)
			e.need(1, len(lanes), "ready lanes")
			e.equal(endpoint.ID, lanes[0].EndpointID, "endpoint")
			e.equal(webhook.LaneFirst, lanes[0].Lane, "lane")
			e.truth(!lanes[0].DueAt.After(expired), "due at %s, after %s", lanes[0].DueAt, expired)
		}},
		{name: "ready lists endpoints that are not active as well", run: func(e *env[Tx]) {
			// Their deliveries are unfinished: who settles them must find them.
			paused := e.setState(e.delivery("paused"), webhook.EndpointPaused)
			disabled := e.setState(e.delivery("disabled"), webhook.EndpointDisabled)
			deleted := e.deleteEndpoint(e.delivery("deleted"))
			e.sameSet(endpointIDs(paused, disabled, deleted), readyEndpoints(e.ready(e.now)), "ready endpoints")
		}},
		{name: "ready pages by endpoint in ascending order", run: func(e *env[Tx]) {
			var all []uuid.UUID
			for range 5 {
				all = append(all, e.delivery(newID().String()).ID)
			}
			// Several lanes of an endpoint count as one and stay together.
			endpoint := e.deliveries(2, "two lanes")
			all = append(all, endpoint.ID)
			claimed := e.claim(e.now, oldest(endpoint, webhook.LaneFirst, 1))
			e.record(e.now, retry(claimed[0], e.now, e.now))
			slices.SortFunc(all, compareIDs)

			var paged []uuid.UUID
			var after uuid.UUID
			for {
				lanes, err := e.store.Ready(e.ctx, webhook.ReadyParams{Now: e.now, After: after, Limit: 2})
				e.must(err, "list ready lanes")
				if len(lanes) == 0 {
					break
				}
				page := slices.Compact(readyEndpoints(lanes))
				e.truth(len(page) <= 2, "a page of 2 holds %d endpoints", len(page))
				paged = append(paged, page...)
				after = page[len(page)-1]
			}
			e.equal(all, paged, "endpoints over all pages")
		}},
	}
}

// ready lists all ready lanes, in UTC and by lane within an endpoint.
func (e *env[Tx]) ready(now time.Time) []webhook.ReadyLane {
	e.t.Helper()
	lanes, err := e.store.Ready(e.ctx, webhook.ReadyParams{Now: now, Limit: plenty})
	e.must(err, "list ready lanes")
	for i := range lanes {
		lanes[i].DueAt = lanes[i].DueAt.UTC()
	}
	slices.SortStableFunc(lanes, func(a, b webhook.ReadyLane) int {
		if a.EndpointID != b.EndpointID {
			return 0
		}
		return int(a.Lane) - int(b.Lane)
	})
	return lanes
}

func readyEndpoints(lanes []webhook.ReadyLane) []uuid.UUID {
	ids := make([]uuid.UUID, len(lanes))
	for i, l := range lanes {
		ids[i] = l.EndpointID
	}
	return ids
}
