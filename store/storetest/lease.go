package storetest

import (
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// leaseTests are about who holds a delivery, and about those who no longer do.
func leaseTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "a leased delivery is not claimed again while the lease is valid", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			e.claimOne(e.now, endpoint, webhook.LaneFirst)
			e.equal(0, len(e.claim(e.at(leaseTime-time.Second), oldest(endpoint, webhook.LaneFirst, plenty))), "claimed")
			e.equal(0, len(e.claim(e.at(leaseTime-time.Second), newest(endpoint, webhook.LaneFirst, plenty))), "claimed as newest")
		}},
		{name: "an expired lease is taken over by anyone", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			first := e.claimOne(e.now, endpoint, webhook.LaneFirst)
			other := e.db.Connect(e.t)

			taken, err := e.claimFrom(other, e.at(leaseTime+time.Second), oldest(endpoint, webhook.LaneFirst, plenty))

			e.must(err, "claim from another process")
			e.need(1, len(taken), "deliveries taken over")
			e.equal(first.DeliveryID, taken[0].DeliveryID, "delivery")
			e.truth(taken[0].TakenOver, "a delivery that was taken over does not say so")
			e.truth(!first.TakenOver, "a delivery that was not taken over says so")
			e.equal(0, taken[0].Attempts, "attempts")
			e.equal(first.CreatedAt.UTC(), taken[0].CreatedAt.UTC(), "beginning of the run")
		}},
		{name: "a lease that was taken over counts as such only once", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			e.claimOne(e.now, endpoint, webhook.LaneFirst)
			at := e.at(leaseTime + time.Second)
			taken := e.claimOne(at, endpoint, webhook.LaneFirst)
			e.record(at, retry(taken, at, at))
			e.truth(!e.claimOne(at, endpoint, webhook.LaneRetry).TakenOver, "a retry after a take-over says that it was taken over")
		}},
		{name: "renewing keeps a lease valid", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			held := e.claimOne(e.now, endpoint, webhook.LaneFirst)
			lost := e.renew(e.at(leaseTime/3), held)
			e.equal(0, len(lost), "leases lost")

			past := e.at(leaseTime + time.Second)
			e.equal(0, len(e.claim(past, oldest(endpoint, webhook.LaneFirst, plenty))), "claimed under the renewed lease")
			past = e.at(leaseTime/3 + leaseTime + time.Second)
			e.equal(1, len(e.claim(past, oldest(endpoint, webhook.LaneFirst, plenty))), "claimed after the renewed lease")
		}},
		{name: "renewing tells which leases are lost, and changes nothing of theirs", run: func(e *env[Tx]) {
			kept, taken, done := e.delivery("kept"), e.delivery("taken"), e.delivery("done")
			keptLease, takenLease := e.claimOne(e.now, kept, webhook.LaneFirst), e.claimOne(e.now, taken, webhook.LaneFirst)
			doneLease := e.claimOne(e.now, done, webhook.LaneFirst)
			e.record(e.now, delivered(doneLease, e.now))
			at := e.at(leaseTime + time.Second)
			e.renew(e.at(leaseTime/2), keptLease)
			e.claimOne(at, taken, webhook.LaneFirst)
			stranger := leased{Claimed: webhook.Claimed{DeliveryID: newID()}, token: newID()}

			lost := e.renew(at.Add(leaseTime/2), keptLease, takenLease, doneLease, stranger)

			e.sameSet([]uuid.UUID{takenLease.DeliveryID, doneLease.DeliveryID, stranger.DeliveryID}, lost, "leases lost")
			// The new holder's lease was not prolonged by the old one.
			past := at.Add(leaseTime + time.Second)
			e.equal(1, len(e.claim(past, oldest(taken, webhook.LaneFirst, plenty))), "claimed after the new holder's lease")
			e.equal(0, len(e.claim(past, oldest(kept, webhook.LaneFirst, plenty))), "claimed under the lease that was kept")
			e.equal(webhook.StateDelivered, e.getDelivery(doneLease.DeliveryID).State, "state of the finished one")
		}},
		{name: "the result of a lost lease changes nothing and is logged as late", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			slow := e.claimOne(e.now, endpoint, webhook.LaneFirst)
			at := e.at(leaseTime + time.Second)
			holder := e.claimOne(at, endpoint, webhook.LaneFirst)

			lost := e.record(at, delivered(slow, e.now)).Lost

			e.equal([]uuid.UUID{slow.DeliveryID}, lost, "lost")
			d := e.getDelivery(slow.DeliveryID)
			e.equal(webhook.StateInFlight, d.State, "state")
			e.equal(0, d.Attempts, "attempts")
			e.equal([2]any{0, webhook.ClassNone}, [2]any{d.LastStatus, d.LastClass}, "last status and class")
			e.equal([]bool{true}, lateness(e.attempts(slow.DeliveryID)), "late attempts")

			e.equal(0, len(e.record(at, retry(holder, at, at.Add(time.Minute))).Lost), "leases lost by the holder")
			d = e.getDelivery(slow.DeliveryID)
			e.equal(1, d.Attempts, "attempts after the holder's result")
			e.equal([2]any{503, webhook.ClassHTTP5xx}, [2]any{d.LastStatus, d.LastClass}, "last status and class after it")
			logged := e.attempts(slow.DeliveryID)
			e.need(2, len(logged), "attempts logged")
			for _, a := range logged {
				e.equal(a.StartedAt.Before(at), a.Late, "late flag of the attempt started at %s", a.StartedAt)
			}
		}},
		{name: "a late result after the delivery was finished changes nothing and is logged as late", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			slow := e.claimOne(e.now, endpoint, webhook.LaneFirst)
			at := e.at(leaseTime + time.Second)
			holder := e.claimOne(at, endpoint, webhook.LaneFirst)
			e.record(at, dead(holder, at, "gone"))
			before := e.getDelivery(slow.DeliveryID)

			lost := e.record(at.Add(time.Second), delivered(slow, e.now)).Lost

			e.equal([]uuid.UUID{slow.DeliveryID}, lost, "lost")
			e.equal(before, e.getDelivery(slow.DeliveryID), "delivery")
			e.equal(2, len(e.attempts(slow.DeliveryID)), "attempts logged")
			e.equal(0, len(e.claim(at.Add(time.Hour), oldest(endpoint, webhook.LaneRetry, plenty), oldest(endpoint, webhook.LaneFirst, plenty))), "claimed")
		}},
		{name: "a late hand-back takes the delivery from nobody", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			slow := e.claimOne(e.now, endpoint, webhook.LaneFirst)
			at := e.at(leaseTime + time.Second)
			e.claimOne(at, endpoint, webhook.LaneFirst)
			e.equal([]uuid.UUID{slow.DeliveryID}, e.record(at, handBack(slow, at)).Lost, "lost")
			e.equal(0, len(e.claim(at, oldest(endpoint, webhook.LaneFirst, plenty))), "claimed from the holder")
			e.equal(0, len(e.attempts(slow.DeliveryID)), "attempts logged")
		}},
		{name: "an expired lease that nobody took over still records its result", run: func(e *env[Tx]) {
			// The request was made and answered: to forget it would send it again.
			endpoint := e.delivery("acme")
			held := e.claimOne(e.now, endpoint, webhook.LaneFirst)
			e.equal(0, len(e.record(e.at(leaseTime+time.Hour), delivered(held, e.now)).Lost), "leases lost")
			e.equal(webhook.StateDelivered, e.getDelivery(held.DeliveryID).State, "state")
			e.equal([]bool{false}, lateness(e.attempts(held.DeliveryID)), "late attempts")
		}},
		{name: "a result for a delivery that nobody knows is lost and harms no other", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			held := e.claimOne(e.now, endpoint, webhook.LaneFirst)
			ghost := held
			ghost.DeliveryID = newID()
			lost := e.record(e.now, handBack(ghost, e.now), delivered(held, e.now)).Lost
			e.equal([]uuid.UUID{ghost.DeliveryID}, lost, "lost")
			e.equal(webhook.StateDelivered, e.getDelivery(held.DeliveryID).State, "state of the other")
		}},
		{name: "two leases of one delivery cannot both be used, whatever the order", run: func(e *env[Tx]) {
			for _, slowFirst := range []bool{true, false} {
				endpoint := e.delivery("acme")
				slow := e.claimOne(e.now, endpoint, webhook.LaneFirst)
				at := e.at(leaseTime + time.Second)
				holder := e.claimOne(at, endpoint, webhook.LaneFirst)
				results := []webhook.Result{delivered(holder, at), dead(slow, e.now, "late")}
				if slowFirst {
					slices.Reverse(results)
				}
				e.equal([]uuid.UUID{slow.DeliveryID}, e.record(at, results...).Lost, "lost")
				d := e.getDelivery(slow.DeliveryID)
				e.equal([2]any{webhook.StateDelivered, 1}, [2]any{d.State, d.Attempts}, "state and attempts")
				e.deleteEndpoint(endpoint)
			}
		}},
	}
}

func (e *env[Tx]) renew(at time.Time, held ...leased) (lost []uuid.UUID) {
	e.t.Helper()
	p := webhook.RenewParams{Now: at, LeaseUntil: at.Add(leaseTime)}
	for _, l := range held {
		p.Leases = append(p.Leases, l.lease())
	}
	lost, err := e.store.Renew(e.ctx, p)
	e.must(err, "renew")
	return lost
}

func lateness(attempts []webhook.Attempt) []bool {
	late := make([]bool, len(attempts))
	for i, a := range attempts {
		late[i] = a.Late
	}
	return late
}

// concurrentClaimTests are about several processes that claim at once.
func concurrentClaimTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "several processes never claim the same delivery", run: func(e *env[Tx]) {
			const processes, n = 6, 180
			endpoint := e.deliveries(n, "acme")
			e.claimAll(processes, n, e.now, endpoint)
		}},
		{name: "several processes take each expired lease over once", run: func(e *env[Tx]) {
			const processes, n = 6, 60
			endpoint := e.deliveries(n, "acme")
			stale := e.claim(e.now, oldest(endpoint, webhook.LaneFirst, plenty))
			e.need(n, len(stale), "claimed at first")
			at := e.at(leaseTime + time.Second)

			e.claimAll(processes, n, at, endpoint)

			var results []webhook.Result
			for _, l := range stale {
				results = append(results, delivered(l, e.now))
			}
			e.sameSet(deliveryIDs(stale...), e.record(at, results...).Lost, "results of the old leases that are lost")
		}},
		{name: "claims, results and pauses at once lose and double nothing", run: func(e *env[Tx]) {
			const processes, n = 4, 80
			endpoint := e.setState(e.deliveries(n, "acme"), webhook.EndpointPaused)
			var mu sync.Mutex // protects sent
			sent := map[uuid.UUID]int{}
			e.concurrently(processes+1, func(process int) error {
				if process == processes {
					return e.flicker(endpoint, 10)
				}
				store := e.db.Connect(e.t)
				for {
					mu.Lock()
					done := len(sent) == n
					mu.Unlock()
					if done {
						return nil
					}
					claimed, err := e.claimFrom(store, e.now, oldest(endpoint, webhook.LaneFirst, 3), newest(endpoint, webhook.LaneFirst, 3))
					if err != nil {
						return err
					}
					var results []webhook.Result
					for _, l := range claimed {
						results = append(results, delivered(l, e.now))
					}
					recorded, err := store.Record(e.ctx, webhook.RecordParams{Now: e.now, Results: results})
					if err != nil {
						return err
					}
					mu.Lock()
					for _, l := range claimed {
						if !slices.Contains(recorded.Lost, l.DeliveryID) {
							sent[l.DeliveryID]++
						}
					}
					mu.Unlock()
				}
			})
			for id, times := range sent {
				e.equal(1, times, "times that %s was sent", id)
			}
			e.equal(n, len(e.list(webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), State: webhook.StateDelivered})), "delivered")
		}},
	}
}

// flicker resumes and pauses a paused endpoint, and leaves it active.
func (e *env[Tx]) flicker(endpoint webhook.EndpointRecord, times int) error {
	for i := range 2*times - 1 {
		endpoint.State = webhook.EndpointActive
		if i%2 == 1 {
			endpoint.State = webhook.EndpointPaused
		}
		updated, err := e.store.UpdateEndpoint(e.ctx, endpoint)
		if err != nil {
			return err
		}
		endpoint = updated
	}
	return nil
}

// claimAll lets several processes claim all n deliveries of an endpoint, and
// checks that each was claimed once.
func (e *env[Tx]) claimAll(processes, n int, at time.Time, endpoint webhook.EndpointRecord) {
	e.t.Helper()
	var mu sync.Mutex // protects claimed
	var claimed []uuid.UUID
	e.concurrently(processes, func(process int) error {
		store := e.db.Connect(e.t)
		request := oldest(endpoint, webhook.LaneFirst, 7)
		request.Newest = process%2 == 1
		for {
			got, err := e.claimFrom(store, at, request)
			if err != nil {
				return err
			}
			mu.Lock()
			claimed = append(claimed, deliveryIDs(got...)...)
			done := len(claimed) >= n
			mu.Unlock()
			// Finding nothing may mean that others are just claiming it.
			if done {
				return nil
			}
		}
	})
	unique := slices.Clone(claimed)
	slices.SortFunc(unique, compareIDs)
	unique = slices.Compact(unique)
	e.equal(n, len(unique), "different deliveries claimed")
	e.equal(len(unique), len(claimed), "claims of them")
}
