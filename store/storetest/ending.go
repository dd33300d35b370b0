package storetest

import (
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

func (e *env[Tx]) markSent(at time.Time, leases ...leased) []uuid.UUID {
	e.t.Helper()
	p := webhook.MarkSentParams{Now: at}
	for _, l := range leases {
		p.Leases = append(p.Leases, l.lease())
	}
	lost, err := e.store.MarkSent(e.ctx, p)
	e.must(err, "mark deliveries as sent")
	return lost
}

func (e *env[Tx]) endUnknown(at time.Time, limit int) (n int) {
	e.t.Helper()
	for _, ended := range e.endUnknownBefore(at, at, limit) {
		n += ended.Deliveries
	}
	return n
}

func (e *env[Tx]) endUnknownBefore(expired, at time.Time, limit int) []webhook.EndedDeliveries {
	e.t.Helper()
	ended, err := e.store.EndUnknown(e.ctx, webhook.EndUnknownParams{Now: at, ExpiredBefore: expired, Limit: limit})
	e.must(err, "end deliveries of unknown outcome")
	return ended
}

// onceTests are about deliveries that are sent at most once.
func onceTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "what is marked as sent is claimed by nobody after its lease, and ends as unknown", run: func(e *env[Tx]) {
			endpoint := e.deliveries(2, "acme")
			held := e.claim(e.now, oldest(endpoint, webhook.LaneFirst, 2))
			e.equal(0, len(e.markSent(e.at(time.Second), held[0])), "lost")
			at := e.at(leaseTime - time.Second)
			e.equal(0, e.endUnknown(at, plenty), "ended under a valid lease")
			at = e.at(leaseTime)
			again := e.claim(at, oldest(endpoint, webhook.LaneFirst, plenty))
			e.equal([]uuid.UUID{held[1].DeliveryID}, deliveryIDs(again...), "claimed after the lease")
			e.equal(1, e.endUnknown(at, plenty), "ended")
			d := e.getDelivery(held[0].DeliveryID)
			e.equal([4]any{webhook.StateDead, webhook.ReasonOutcomeUnknown, 1, webhook.ClassOutcomeUnknown}, [4]any{d.State, d.Reason, d.Attempts, d.LastClass}, "delivery")
			e.equal(at, d.FinishedAt, "finished at")
			attempts := e.attempts(held[0].DeliveryID)
			e.need(1, len(attempts), "attempts")
			e.equal([2]any{1, webhook.ClassOutcomeUnknown}, [2]any{attempts[0].Number, attempts[0].Class}, "attempt")
			e.equal(e.at(time.Second), attempts[0].StartedAt, "attempt begun")
			e.equal(0, e.endUnknown(at, plenty), "ended again")
		}},
		{name: "a result that comes after the end as unknown is late, and in the log", run: func(e *env[Tx]) {
			held := e.claimOne(e.now, e.delivery("acme"), webhook.LaneFirst)
			e.markSent(e.now, held)
			e.endUnknown(e.at(leaseTime), plenty)
			e.equal([]uuid.UUID{held.DeliveryID}, e.record(e.at(leaseTime+time.Second), delivered(held, e.at(time.Second))).Lost, "lost")
			e.equal(webhook.StateDead, e.getDelivery(held.DeliveryID).State, "state")
			e.equal([]bool{false, true}, lateness(e.attempts(held.DeliveryID)), "late attempts")
		}},
		{name: "a result takes the mark away", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			held := e.claimOne(e.now, endpoint, webhook.LaneFirst)
			e.markSent(e.now, held)
			e.record(e.now, retry(held, e.now, e.now))
			held = e.claimOne(e.now, endpoint, webhook.LaneRetry)
			e.markSent(e.now, held)
			e.record(e.now, handBack(held, e.now))
			e.claimOne(e.now, endpoint, webhook.LaneRetry)
			e.equal(0, e.endUnknown(e.at(leaseTime), plenty), "ended")
			e.claimOne(e.at(leaseTime), endpoint, webhook.LaneRetry)
		}},
		{name: "a lease that is lost marks nothing", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			old := e.claimOne(e.now, endpoint, webhook.LaneFirst)
			held := e.claimOne(e.at(leaseTime), endpoint, webhook.LaneFirst)
			e.equal([]uuid.UUID{old.DeliveryID}, e.markSent(e.at(leaseTime), old), "lost")
			e.equal(0, e.endUnknown(e.at(3*leaseTime), plenty), "ended")
			e.record(e.at(leaseTime), delivered(held, e.now))
			e.equal([]uuid.UUID{held.DeliveryID}, e.markSent(e.at(leaseTime), held), "lost after the end")
		}},
		{name: "what ends as unknown is counted by endpoint, and may be given time", run: func(e *env[Tx]) {
			want := make(map[webhook.EndedDeliveries]bool)
			for n, tenant := range []string{"acme", "other"} {
				endpoint := e.deliveries(n+1, tenant)
				e.markSent(e.now, e.claim(e.now, oldest(endpoint, webhook.LaneFirst, plenty))...)
				want[webhook.EndedDeliveries{EndpointID: endpoint.ID, Tenant: tenant, Deliveries: n + 1}] = true
			}
			at := e.at(3 * leaseTime)
			e.equal(0, len(e.endUnknownBefore(e.at(leaseTime-time.Microsecond), at, plenty)), "ended that expired later")
			got := make(map[webhook.EndedDeliveries]bool)
			for _, ended := range e.endUnknownBefore(e.at(leaseTime), at, plenty) {
				got[ended] = true
			}
			e.equal(want, got, "ended")
			for ended := range want {
				for _, d := range e.list(webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), EndpointID: ended.EndpointID}) {
					e.equal(at, d.FinishedAt, "finished at")
				}
			}
		}},
		{name: "no more end as unknown than the limit", run: func(e *env[Tx]) {
			held := e.claim(e.now, oldest(e.deliveries(5, "acme"), webhook.LaneFirst, 5))
			e.markSent(e.now, held...)
			at := e.at(leaseTime)
			e.equal([3]int{2, 2, 1}, [3]int{e.endUnknown(at, 2), e.endUnknown(at, 2), e.endUnknown(at, 2)}, "ended")
		}},
	}
}

func (e *env[Tx]) endOverdue(p webhook.EndOverdueParams) webhook.EndOverdueResult {
	e.t.Helper()
	p.Reason = "too late"
	if p.Limit == 0 {
		p.Limit = plenty
	}
	result, err := e.store.EndOverdue(e.ctx, p)
	e.must(err, "end overdue deliveries")
	return result
}

// windowTests are about deliveries whose window has passed.
func windowTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "what began before a time and has been attempted ends, and nothing else", run: func(e *env[Tx]) {
			endpoint := e.deliveries(3, "acme")
			held := e.claim(e.now, oldest(endpoint, webhook.LaneFirst, 2))
			e.record(e.now, retry(held[0], e.now, e.at(time.Minute)), retry(held[1], e.now, e.at(10*time.Hour)))
			at := e.at(time.Hour)
			e.fanOutAt(at)
			for _, lane := range []webhook.Lane{webhook.LaneFirst, webhook.LaneRetry} {
				e.equal(0, e.endOverdue(webhook.EndOverdueParams{Now: at, EndpointID: endpoint.ID, Lane: lane, BegunBefore: e.now}).Ended, "ended too early")
			}
			p := webhook.EndOverdueParams{Now: at, EndpointID: endpoint.ID, BegunBefore: e.at(time.Second)}
			e.equal(0, e.endOverdue(p).Ended, "ended without an attempt")
			p.Lane = webhook.LaneRetry
			e.equal(1, e.endOverdue(p).Ended, "ended of those that are due")
			d := e.getDelivery(held[0].DeliveryID)
			e.equal([3]any{webhook.StateDead, "too late", 1}, [3]any{d.State, d.Reason, d.Attempts}, "delivery")
			e.equal(at, d.FinishedAt, "finished at")
			e.equal(webhook.StatePending, e.getDelivery(held[1].DeliveryID).State, "one that is not due")
			p.Lane, p.Unattempted = webhook.LaneFirst, true
			e.equal(1, e.endOverdue(p).Ended, "ended of those never attempted")
		}},
		{name: "what is in flight does not end for its window", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			e.claimOne(e.now, endpoint, webhook.LaneFirst)
			p := webhook.EndOverdueParams{Now: e.at(time.Second), EndpointID: endpoint.ID, BegunBefore: e.at(time.Hour), Unattempted: true}
			e.equal(0, e.endOverdue(p).Ended, "ended under a lease")
			p.Now = e.at(leaseTime)
			e.equal(1, e.endOverdue(p).Ended, "ended after it")
		}},
		{name: "overdue deliveries are looked at page by page", run: func(e *env[Tx]) {
			endpoint := e.endpoint("acme", "*")
			const n = 7
			for i := range n {
				e.enqueue(e.event("acme", "order.created"))
				e.fanOutAt(e.at(time.Duration(i) * time.Second))
			}
			p := webhook.EndOverdueParams{Now: e.at(time.Hour), EndpointID: endpoint.ID, BegunBefore: e.at(time.Minute), Unattempted: true, Limit: 3}
			ended, pages := 0, 0
			for more := true; more && pages < 10; pages++ {
				result := e.endOverdue(p)
				e.truth(result.Ended <= 3, "a page is larger than its limit")
				ended += result.Ended
				p.DueFrom, more = result.DueFrom, result.More
			}
			e.equal(n, ended, "ended")
			e.truth(pages > 1, "there was one page")
		}},
	}
}
