package storetest

import (
	"time"

	"github.com/outhook/webhook"
)

func eraseTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "an erased tenant leaves nothing, and others are left alone", run: func(e *env[Tx]) {
			kept := e.inAllStates("other")
			e.must(e.store.CreateReplayJob(e.ctx, webhook.ReplayJobRecord{
				ID: newID(), EndpointID: newID(), Tenant: "acme", State: webhook.ReplayDone, CreatedAt: e.now, DueAt: e.now,
			}), "create a replay job")
			byState := e.inAllStates("acme")
			mine := e.list(webhook.ListDeliveriesParams{Scope: webhook.TenantScope("acme")})
			endpoint := e.getEndpoint(mine[0].EndpointID)
			e.enqueue(e.keyed("acme", "key"), e.event("acme", "order.created")) // these wait for fan-out
			foreign := len(e.events(webhook.ListEventsParams{Scope: webhook.TenantScope("other"), Limit: plenty}))
			e.deleteEndpoint(endpoint)

			removed, done := e.erase("acme", e.now)
			e.equal(false, done, "done while a delivery is under a lease")
			e.equal(webhook.StateInFlight, e.getDelivery(byState[webhook.StateInFlight]).State, "the one under a lease")
			more, done := e.erase("acme", e.at(leaseTime+time.Second))
			e.equal(true, done, "done")
			e.equal(len(mine)+8+1, removed+more, "deliveries, events and endpoints erased")

			e.equal(0, len(e.list(webhook.ListDeliveriesParams{Scope: webhook.TenantScope("acme")})), "deliveries")
			e.equal(0, len(e.events(webhook.ListEventsParams{Scope: webhook.TenantScope("acme"), Limit: plenty})), "events")
			for _, d := range mine {
				e.equal(0, len(e.attempts(d.ID)), "attempts")
				_, err := e.store.GetEvent(e.ctx, webhook.AllTenants(), d.EventID)
				e.wantError(webhook.ErrNotFound, err, "get an erased event")
			}
			jobs, err := e.store.ListReplayJobs(e.ctx, webhook.ListReplayJobsParams{Scope: webhook.TenantScope("acme"), Limit: plenty})
			e.must(err, "list replay jobs")
			e.equal(0, len(jobs), "replay jobs")
			again := e.enqueue(e.keyed("acme", "key"))
			e.equal(false, again[0].Duplicate, "the key is free")
			changed, _, err := e.store.ChangedEndpoints(e.ctx, -1, plenty)
			e.must(err, "list endpoints")
			for _, c := range changed {
				if c.ID == endpoint.ID {
					e.equal([]any{"", 0, 0, false}, []any{c.URL, len(c.Types), len(c.Options) + len(c.Secrets) + len(c.Headers), c.DeletedAt.IsZero()}, "what is left of the endpoint")
				}
			}

			e.equal(len(kept), len(e.list(webhook.ListDeliveriesParams{Scope: webhook.TenantScope("other")})), "deliveries of another tenant")
			e.equal(foreign, len(e.events(webhook.ListEventsParams{Scope: webhook.TenantScope("other"), Limit: plenty})), "events of another tenant")
			for _, id := range kept {
				d := e.getDelivery(id)
				e.truth(d.State == webhook.StateInFlight || len(e.attempts(id)) > 0, "an attempt of another tenant is gone")
			}
		}},
		{name: "endpoints that are not deleted are not erased", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			_, done := e.erase("acme", e.now)
			e.equal(false, done, "done")
			e.equal(endpoint.URL, e.getEndpoint(endpoint.ID).URL, "URL")
			e.equal(1, len(e.list(webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), EndpointID: endpoint.ID})), "deliveries")
		}},
		{name: "counters are erased when that is asked for", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			held := e.claimOne(e.now, endpoint, webhook.LaneFirst)
			e.record(e.now, delivered(held, e.now))
			later := e.now.AddDate(0, 0, 3)
			e.must(e.store.Maintain(e.ctx, webhook.MaintainParams{Now: later}), "maintain")
			counters := func() int {
				c, err := e.store.ListCounters(e.ctx, webhook.ListCountersParams{Scope: webhook.TenantScope("acme"), Limit: plenty})
				e.must(err, "list counters")
				return len(c)
			}
			e.deleteEndpoint(endpoint)
			before := counters()
			e.truth(before > 0, "nothing was counted")
			e.erase("acme", later)
			e.equal(before, counters(), "counters")
			_, err := e.store.EraseTenant(e.ctx, webhook.EraseTenantParams{Now: later, Tenant: "acme", Limit: plenty, Counters: true})
			e.must(err, "erase the counters")
			e.equal(0, counters(), "counters when they are erased")
		}},
	}
}

// erase erases until it is done or nothing happens.
func (e *env[Tx]) erase(tenant string, now time.Time) (removed int, done bool) {
	e.t.Helper()
	for {
		progress, err := e.store.EraseTenant(e.ctx, webhook.EraseTenantParams{Now: now, Tenant: tenant, Limit: 2})
		e.must(err, "erase")
		removed += progress.Removed
		if progress.Done || progress.Removed == 0 {
			return removed, progress.Done
		}
		e.truth(progress.Removed <= 3, "%d erased at once", progress.Removed)
	}
}
