package storetest

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

func recordTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "a delivered delivery is finished, with its attempt", run: func(e *env[Tx]) {
			held := e.claimOne(e.now, e.delivery("acme"), webhook.LaneFirst)
			finished := e.at(time.Second)
			e.equal(0, len(e.record(finished, delivered(held, e.now)).Lost), "leases lost")
			e.equal(webhook.Delivery{
				ID: held.DeliveryID, EventID: held.Event.ID, EndpointID: held.EndpointID, Tenant: "acme", EventType: "order.created",
				State: webhook.StateDelivered, Attempts: 1, CreatedAt: e.now, FinishedAt: finished, LastStatus: 200,
			}, e.getDelivery(held.DeliveryID), "delivery")
			e.equal(1, len(e.attempts(held.DeliveryID)), "attempts logged")
		}},
		{name: "every final state is kept with its reason", run: func(e *env[Tx]) {
			endpoint := e.deliveries(3, "acme")
			states := []webhook.DeliveryState{webhook.StateDead, webhook.StateCancelled, webhook.StateShed}
			for i, held := range e.claim(e.now, oldest(endpoint, webhook.LaneFirst, plenty)) {
				e.record(e.at(time.Second), webhook.Result{Lease: held.lease(), State: states[i], Reason: "because – ü"})
				d := e.getDelivery(held.DeliveryID)
				e.equal(states[i], d.State, "state")
				e.equal("because – ü", d.Reason, "reason")
				e.equal(0, d.Attempts, "attempts")
				e.equal(e.at(time.Second), d.FinishedAt, "finished at")
				e.truth(d.NextAttemptAt.IsZero(), "next attempt at %s of a final delivery", d.NextAttemptAt)
			}
		}},
		{name: "a retry is scheduled for its time in its lane", run: func(e *env[Tx]) {
			held := e.claimOne(e.now, e.delivery("acme"), webhook.LaneFirst)
			next := e.at(90 * time.Second)
			e.record(e.at(time.Second), retry(held, e.now, next))
			e.equal(webhook.Delivery{
				ID: held.DeliveryID, EventID: held.Event.ID, EndpointID: held.EndpointID, Tenant: "acme", EventType: "order.created",
				State: webhook.StatePending, Attempts: 1, NextAttemptAt: next, CreatedAt: e.now,
				LastStatus: 503, LastClass: webhook.ClassHTTP5xx,
			}, e.getDelivery(held.DeliveryID), "delivery")
		}},
		{name: "handing back counts no attempt and frees the delivery at once", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			held := e.claimOne(e.now, endpoint, webhook.LaneFirst)
			e.record(e.at(time.Second), handBack(held, e.now))

			d := e.getDelivery(held.DeliveryID)
			e.equal([2]any{webhook.StatePending, 0}, [2]any{d.State, d.Attempts}, "state and attempts")
			e.equal(0, len(e.attempts(held.DeliveryID)), "attempts logged")
			again := e.claimOne(e.at(time.Second), endpoint, webhook.LaneFirst)
			e.equal(held.DeliveryID, again.DeliveryID, "delivery")
			e.truth(!again.TakenOver, "a delivery that was handed back says that it was taken over")
			e.equal(0, again.Attempts, "attempts of the new claim")
		}},
		{name: "an attempt that does not count is logged and uses up nothing", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			held := e.claimOne(e.now, endpoint, webhook.LaneFirst)
			e.equal(0, len(e.record(e.at(time.Second), uncounted(held, e.now, e.at(time.Minute))).Lost), "leases lost")
			e.equal(webhook.Delivery{
				ID: held.DeliveryID, EventID: held.Event.ID, EndpointID: held.EndpointID, Tenant: "acme", EventType: "order.created",
				State: webhook.StatePending, NextAttemptAt: e.at(time.Minute), CreatedAt: e.now, LastClass: webhook.ClassInternal,
			}, e.getDelivery(held.DeliveryID), "delivery")

			again := e.claimOne(e.at(time.Minute), endpoint, webhook.LaneFirst)
			e.equal(0, again.Attempts, "attempts of the new claim")
			e.record(e.at(time.Minute), retry(again, e.at(time.Minute), e.at(time.Hour)))
			last := e.claimOne(e.at(time.Hour), endpoint, webhook.LaneRetry)
			e.equal(1, last.Attempts, "attempts of the last claim")
			given := uncounted(last, e.at(time.Hour), time.Time{})
			given.State, given.Reason = webhook.StateCancelled, "withdrawn"
			e.record(e.at(time.Hour), given)

			d := e.getDelivery(held.DeliveryID)
			e.equal([3]any{webhook.StateCancelled, 1, webhook.ClassInternal}, [3]any{d.State, d.Attempts, d.LastClass}, "state, attempts and last class")
			var numbers []int
			var classes []webhook.ErrorClass
			for _, a := range e.attempts(held.DeliveryID) {
				numbers, classes = append(numbers, a.Number), append(classes, a.Class)
			}
			e.equal([]int{1, 1, 2}, numbers, "numbers of the attempts logged")
			e.equal([]webhook.ErrorClass{webhook.ClassInternal, webhook.ClassHTTP5xx, webhook.ClassInternal}, classes, "their classes")
		}},
		{name: "a lease that was handed back is lost", run: func(e *env[Tx]) {
			held := e.claimOne(e.now, e.delivery("acme"), webhook.LaneFirst)
			e.record(e.now, handBack(held, e.now))
			e.equal([]uuid.UUID{held.DeliveryID}, e.renew(e.now, held), "leases lost on renewal")
			e.equal([]uuid.UUID{held.DeliveryID}, e.record(e.now, delivered(held, e.now)).Lost, "leases lost on recording")
			e.equal(webhook.StatePending, e.getDelivery(held.DeliveryID).State, "state")
		}},
		{name: "attempts of all leases stay in the log when the delivery is finished", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			held := e.claimOne(e.now, endpoint, webhook.LaneFirst)
			at := e.now
			for range 3 {
				next := at.Add(time.Minute)
				e.record(at, retry(held, at, next))
				at = next
				held = e.claimOne(at, endpoint, webhook.LaneRetry)
			}
			e.record(at, dead(held, at, "all attempts used"))

			e.equal(4, e.getDelivery(held.DeliveryID).Attempts, "attempts")
			for i, a := range e.attempts(held.DeliveryID) {
				e.equal(i+1, a.Number, "number of attempt %d", i)
				e.equal(e.at(time.Duration(i)*time.Minute), a.StartedAt, "start of attempt %d", i)
				e.truth(!a.Late, "attempt %d is late", i)
			}
			e.equal(4, len(e.attempts(held.DeliveryID)), "attempts logged")
		}},
		{name: "results of many deliveries are recorded by one call", run: func(e *env[Tx]) {
			const n = 600
			endpoint := e.deliveries(n, "acme")
			var results []webhook.Result
			want := map[uuid.UUID]webhook.DeliveryState{}
			for i, held := range e.claim(e.now, oldest(endpoint, webhook.LaneFirst, plenty)) {
				r := delivered(held, e.now)
				switch i % 4 {
				case 1:
					r = retry(held, e.now, e.at(time.Minute))
				case 2:
					r = dead(held, e.now, "gone")
				case 3:
					r = handBack(held, e.at(time.Minute))
				}
				results = append(results, r)
				want[held.DeliveryID] = r.State
			}
			e.need(n, len(results), "deliveries claimed")
			e.equal(0, len(e.record(e.at(time.Second), results...).Lost), "leases lost")

			got := map[uuid.UUID]webhook.DeliveryState{}
			for _, d := range e.list(webhook.ListDeliveriesParams{Scope: webhook.AllTenants()}) {
				got[d.ID] = d.State
			}
			e.equal(want, got, "states")
			e.equal(n/4, len(e.claim(e.at(time.Minute), oldest(endpoint, webhook.LaneFirst, plenty))), "claimable again")
			e.equal(n/4, len(e.claim(e.at(time.Minute), oldest(endpoint, webhook.LaneRetry, plenty))), "to be retried")
		}},
		{name: "recording nothing is harmless", run: func(e *env[Tx]) {
			e.equal(0, len(e.record(e.now).Lost), "leases lost")
		}},
		{name: "recording a finished result again changes nothing", run: func(e *env[Tx]) {
			held := e.claimOne(e.now, e.delivery("acme"), webhook.LaneFirst)
			result := delivered(held, e.now)
			e.record(e.at(time.Second), result)
			before := e.getDelivery(held.DeliveryID)
			e.record(e.at(2*time.Second), result)
			e.equal(before, e.getDelivery(held.DeliveryID), "delivery")
			e.equal([]bool{false}, lateness(e.attempts(held.DeliveryID)), "late flags of the attempts")
		}},
		{name: "recording a retry again changes nothing, also when it was claimed in the meantime", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			held := e.claimOne(e.now, endpoint, webhook.LaneFirst)
			next := e.at(time.Minute)
			result := retry(held, e.now, next)
			e.record(e.at(time.Second), result)
			before := e.getDelivery(held.DeliveryID)
			e.record(e.at(2*time.Second), result)
			e.equal(before, e.getDelivery(held.DeliveryID), "delivery")

			second := e.claimOne(next, endpoint, webhook.LaneRetry)
			e.record(next, result)
			e.equal(1, e.getDelivery(held.DeliveryID).Attempts, "attempts")
			e.equal([]bool{false}, lateness(e.attempts(held.DeliveryID)), "late flags of the attempts")
			e.equal(0, len(e.record(next, delivered(second, next)).Lost), "leases lost by the second holder")
		}},
		{name: "recording a late result again logs it once", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			slow := e.claimOne(e.now, endpoint, webhook.LaneFirst)
			at := e.at(leaseTime + time.Second)
			holder := e.claimOne(at, endpoint, webhook.LaneFirst)
			late := delivered(slow, e.now)
			e.record(at, late)
			e.record(at, late)
			e.record(at, delivered(holder, at))
			e.record(at, late)
			e.equal(2, len(e.attempts(slow.DeliveryID)), "attempts logged")
		}},
		{name: "a batch of which a part was recorded before records the rest", run: func(e *env[Tx]) {
			endpoint := e.deliveries(3, "acme")
			claimed := e.claim(e.now, oldest(endpoint, webhook.LaneFirst, plenty))
			e.need(3, len(claimed), "claimed")
			e.record(e.now, delivered(claimed[0], e.now), retry(claimed[1], e.now, e.at(time.Minute)))
			e.record(e.now, delivered(claimed[0], e.now), retry(claimed[1], e.now, e.at(time.Minute)), dead(claimed[2], e.now, "gone"))
			for i, want := range []webhook.DeliveryState{webhook.StateDelivered, webhook.StatePending, webhook.StateDead} {
				d := e.getDelivery(claimed[i].DeliveryID)
				e.equal([2]any{want, 1}, [2]any{d.State, d.Attempts}, "state and attempts of delivery %d", i)
				e.equal(1, len(e.attempts(d.ID)), "attempts logged of delivery %d", i)
			}
		}},
		{name: "a delivery is finished on a day that nothing was prepared for", run: func(e *env[Tx]) {
			for _, days := range []int{-400, 3, 400} {
				at := e.now.AddDate(0, 0, days)
				endpoint := e.endpoint("acme", "*")
				e.enqueue(e.event("acme", "order.created"))
				e.fanOutAt(at)
				held := e.claimOne(at, endpoint, webhook.LaneFirst)
				e.record(at, delivered(held, at))
				d := e.getDelivery(held.DeliveryID)
				e.equal(webhook.StateDelivered, d.State, "state, %d days from now", days)
				e.equal(at, d.FinishedAt, "finished at, %d days from now", days)
				e.equal(1, len(e.attempts(d.ID)), "attempts logged, %d days from now", days)
				e.deleteEndpoint(endpoint)
			}
		}},
		{name: "what a receiver sent cannot break recording", run: func(e *env[Tx]) {
			endpoint := e.deliveries(2, "acme")
			claimed := e.claim(e.now, oldest(endpoint, webhook.LaneFirst, plenty))
			e.need(2, len(claimed), "claimed")
			hostile := "it said \x00 and \xff\xc3 – " + strings.Repeat("x", 100_000)
			bad := dead(claimed[0], e.now, hostile)
			bad.Attempt.Error, bad.Attempt.Location = hostile, "https://example/"+hostile
			bad.Attempt.Excerpt = []byte(hostile[:1024])
			e.record(e.now, bad, delivered(claimed[1], e.now))

			d := e.getDelivery(claimed[0].DeliveryID)
			e.equal(webhook.StateDead, d.State, "state")
			e.truth(utf8.ValidString(d.Reason) && strings.HasPrefix(d.Reason, "it said "), "reason: got %.40q", d.Reason)
			logged := e.attempts(d.ID)
			e.need(1, len(logged), "attempts logged")
			e.truth(utf8.ValidString(logged[0].Error) && strings.HasPrefix(logged[0].Error, "it said "), "error: got %.40q", logged[0].Error)
			e.truth(utf8.ValidString(logged[0].Location) && strings.HasPrefix(logged[0].Location, "https://example/it said "),
				"location: got %.40q", logged[0].Location)
			e.sameBytes([]byte(hostile[:1024]), logged[0].Excerpt, "excerpt")
			e.equal(webhook.StateDelivered, e.getDelivery(claimed[1].DeliveryID).State, "state of the other")
		}},
	}
}

// cancelTests are about the deliveries of endpoints that are gone.
func cancelTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "cancelling finishes the deliveries of a disabled endpoint", run: func(e *env[Tx]) {
			endpoint := e.setState(e.deliveries(3, "acme"), webhook.EndpointDisabled)
			at := e.at(time.Minute)
			e.equal(3, e.cancel(at, endpoint, plenty), "cancelled")
			for _, d := range e.list(webhook.ListDeliveriesParams{Scope: webhook.AllTenants()}) {
				e.equal(webhook.StateCancelled, d.State, "state")
				e.equal("endpoint disabled", d.Reason, "reason")
				e.equal(at, d.FinishedAt, "finished at")
				e.truth(d.NextAttemptAt.IsZero(), "next attempt at %s of a final delivery", d.NextAttemptAt)
			}
			e.equal(0, e.cancel(at, endpoint, plenty), "cancelled again")
		}},
		{name: "cancelling finishes the deliveries of a deleted endpoint, of all lanes, attempts kept", run: func(e *env[Tx]) {
			endpoint := e.deliveries(2, "acme")
			held := e.claim(e.now, oldest(endpoint, webhook.LaneFirst, 1))
			e.record(e.now, retry(held[0], e.now, e.at(time.Hour)))
			endpoint = e.deleteEndpoint(endpoint)
			e.equal(2, e.cancel(e.at(time.Minute), endpoint, plenty), "cancelled")
			d := e.getDelivery(held[0].DeliveryID)
			e.equal([2]any{webhook.StateCancelled, 1}, [2]any{d.State, d.Attempts}, "state and attempts")
			e.equal(1, len(e.attempts(d.ID)), "attempts logged")
		}},
		{name: "cancelling leaves what is under a valid lease, and takes it once that has expired", run: func(e *env[Tx]) {
			endpoint := e.deliveries(3, "acme")
			held := e.claim(e.now, oldest(endpoint, webhook.LaneFirst, 2))
			endpoint = e.setState(endpoint, webhook.EndpointDisabled)
			e.equal(1, e.cancel(e.at(time.Second), endpoint, plenty), "cancelled under leases")
			e.equal(0, len(e.record(e.at(2*time.Second), delivered(held[0], e.now)).Lost), "leases lost")
			e.equal(webhook.StateDelivered, e.getDelivery(held[0].DeliveryID).State, "state of the delivery in flight")

			e.equal(1, e.cancel(e.at(leaseTime+time.Second), endpoint, plenty), "cancelled after the lease")
			lost := e.record(e.at(leaseTime+2*time.Second), delivered(held[1], e.now)).Lost
			e.equal([]uuid.UUID{held[1].DeliveryID}, lost, "leases lost to the cancellation")
			e.equal(webhook.StateCancelled, e.getDelivery(held[1].DeliveryID).State, "state of the cancelled one")
			e.equal([]bool{true}, lateness(e.attempts(held[1].DeliveryID)), "late attempts")
		}},
		{name: "cancelling stops at its limit", run: func(e *env[Tx]) {
			endpoint := e.setState(e.deliveries(5, "acme"), webhook.EndpointDisabled)
			for _, want := range []int{2, 2, 1, 0} {
				e.equal(want, e.cancel(e.now, endpoint, 2), "cancelled")
			}
		}},
		{name: "cancelling touches no endpoint that is active or paused", run: func(e *env[Tx]) {
			// It may have been enabled again since whoever cancels looked at it.
			active := e.delivery("active")
			paused := e.setState(e.delivery("paused"), webhook.EndpointPaused)
			e.equal(0, e.cancel(e.now, active, plenty), "cancelled of an active endpoint")
			e.equal(0, e.cancel(e.now, paused, plenty), "cancelled of a paused endpoint")
		}},
		{name: "cancelling touches no other endpoint", run: func(e *env[Tx]) {
			other := e.deliveries(2, "acme")
			endpoint := e.setState(e.deliveries(1, "beta"), webhook.EndpointDisabled)
			e.cancel(e.now, endpoint, plenty)
			e.equal(2, len(e.claim(e.now, oldest(other, webhook.LaneFirst, plenty))), "claimed of the other")
		}},
	}
}

func (e *env[Tx]) cancel(at time.Time, endpoint webhook.EndpointRecord, limit int) int {
	e.t.Helper()
	cancelled, err := e.store.CancelDeliveries(e.ctx, webhook.CancelDeliveriesParams{
		Now: at, EndpointID: endpoint.ID, Reason: "endpoint disabled", Limit: limit,
	})
	e.must(err, "cancel deliveries")
	return cancelled
}
