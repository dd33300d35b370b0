package storetest

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

func endpointTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "an endpoint is kept as it was given, with a revision", run: func(e *env[Tx]) {
			endpoint := e.fullEndpoint("acme – ü")
			created, err := e.store.CreateEndpoint(e.ctx, endpoint)
			e.must(err, "create an endpoint")
			e.truth(created.Revision > 0, "revision: got %d, want a positive number", created.Revision)
			endpoint.Revision = created.Revision
			e.sameEndpoint(endpoint, created)
			e.sameEndpoint(endpoint, e.getEndpoint(created.ID))
		}},
		{name: "an endpoint's empty fields stay empty", run: func(e *env[Tx]) {
			endpoint := e.newEndpoint("")
			endpoint.StateChangedAt = time.Time{}
			created, err := e.store.CreateEndpoint(e.ctx, endpoint)
			e.must(err, "create an endpoint")
			endpoint.Revision = created.Revision
			e.sameEndpoint(endpoint, e.getEndpoint(created.ID))
			e.equal(0, len(e.getEndpoint(created.ID).Types), "types")
		}},
		{name: "creating an endpoint whose id exists is a conflict", run: func(e *env[Tx]) {
			first := e.endpoint("acme", "*")
			again := first
			again.URL = "https://elsewhere.example/"
			_, err := e.store.CreateEndpoint(e.ctx, again)
			e.wantError(webhook.ErrConflict, err, "create it again")
			again.Tenant = "other"
			_, err = e.store.CreateEndpoint(e.ctx, again)
			e.wantError(webhook.ErrConflict, err, "create it for another tenant")
			e.sameEndpoint(first, e.getEndpoint(first.ID))
		}},
		{name: "the id of a deleted endpoint is never used again", run: func(e *env[Tx]) {
			deleted := e.deleteEndpoint(e.endpoint("acme", "*"))
			_, err := e.store.CreateEndpoint(e.ctx, webhook.EndpointRecord{
				ID: deleted.ID, Tenant: "acme", URL: deleted.URL, State: webhook.EndpointActive,
				CreatedAt: e.now, UpdatedAt: e.now, Options: []byte(`{}`), Secrets: []byte(`[]`),
			})
			e.wantError(webhook.ErrConflict, err, "create it again")
		}},
		{name: "an update replaces the endpoint and gives it a new revision", run: func(e *env[Tx]) {
			before := e.endpoint("acme", "*")
			want := e.fullEndpoint("acme")
			want.ID, want.Revision, want.CreatedAt = before.ID, before.Revision, before.CreatedAt
			updated := e.update(want)
			e.truth(updated.Revision > before.Revision, "revision: got %d after %d", updated.Revision, before.Revision)
			want.Revision = updated.Revision
			e.sameEndpoint(want, updated)
			e.sameEndpoint(want, e.getEndpoint(before.ID))
		}},
		{name: "an update of another revision is a conflict and changes nothing", run: func(e *env[Tx]) {
			stale := e.endpoint("acme", "*")
			present := e.setState(stale, webhook.EndpointPaused)
			for _, revision := range []int64{stale.Revision, present.Revision + 1, 0} {
				change := stale
				change.Revision, change.URL = revision, "https://elsewhere.example/"
				_, err := e.store.UpdateEndpoint(e.ctx, change)
				e.wantError(webhook.ErrConflict, err, "update with another revision")
			}
			e.sameEndpoint(present, e.getEndpoint(stale.ID))
		}},
		{name: "an update of an unknown, foreign or deleted endpoint finds nothing", run: func(e *env[Tx]) {
			mine := e.endpoint("acme", "*")
			foreign := mine
			foreign.Tenant, foreign.URL = "other", "https://elsewhere.example/"
			deleted := e.deleteEndpoint(e.endpoint("acme", "*"))
			revived := deleted
			revived.DeletedAt = time.Time{}
			for what, change := range map[string]webhook.EndpointRecord{
				"update an unknown endpoint":                     e.newEndpoint("acme", "*"),
				"update a foreign endpoint":                      foreign,
				"update a deleted endpoint":                      deleted,
				"bring a deleted endpoint back":                  revived,
				"update a deleted endpoint with an old revision": {ID: deleted.ID, Tenant: "acme", Revision: 1},
			} {
				_, err := e.store.UpdateEndpoint(e.ctx, change)
				e.wantError(webhook.ErrNotFound, err, what)
			}
			e.sameEndpoint(mine, e.getEndpoint(mine.ID))
		}},
		{name: "of several updates of one revision exactly one wins", run: func(e *env[Tx]) {
			endpoint := e.endpoint("acme", "*")
			var won, lost atomic.Int32
			e.concurrently(6, func(int) error {
				_, err := e.store.UpdateEndpoint(e.ctx, endpoint)
				switch {
				case err == nil:
					won.Add(1)
				case isConflict(err):
					lost.Add(1)
				default:
					return err
				}
				return nil
			})
			e.equal([2]int32{1, 5}, [2]int32{won.Load(), lost.Load()}, "updates that won and lost")
		}},
		{name: "a deleted endpoint is not found and not listed", run: func(e *env[Tx]) {
			kept, gone := e.endpoint("acme", "*"), e.endpoint("acme", "*")
			deleted := e.deleteEndpoint(gone)
			e.truth(deleted.Revision > gone.Revision, "revision: got %d after %d", deleted.Revision, gone.Revision)
			_, err := e.store.GetEndpoint(e.ctx, webhook.AllTenants(), gone.ID)
			e.wantError(webhook.ErrNotFound, err, "get the deleted endpoint")
			e.equal(endpointIDs(kept), e.listEndpoints(webhook.AllTenants(), plenty), "endpoints listed")
		}},
		{name: "an endpoint is found within its scope only", run: func(e *env[Tx]) {
			endpoint := e.endpoint("acme", "*")
			for _, scope := range []webhook.Scope{webhook.AllTenants(), webhook.TenantScope("acme")} {
				got, err := e.store.GetEndpoint(e.ctx, scope, endpoint.ID)
				e.must(err, "get the endpoint")
				e.sameEndpoint(endpoint, got)
			}
			for _, scope := range []webhook.Scope{webhook.TenantScope("other"), webhook.TenantScope("ACME"), {}} {
				_, err := e.store.GetEndpoint(e.ctx, scope, endpoint.ID)
				e.wantError(webhook.ErrNotFound, err, "get a foreign endpoint")
			}
			_, err := e.store.GetEndpoint(e.ctx, webhook.AllTenants(), newID())
			e.wantError(webhook.ErrNotFound, err, "get an unknown endpoint")
		}},
		{name: "endpoints are listed within their scope, by ascending id, in pages", run: func(e *env[Tx]) {
			var acme, other []uuid.UUID
			for range 5 {
				acme = append(acme, e.endpoint("acme", "*").ID)
				other = append(other, e.endpoint("other", "*").ID)
			}
			all := slices.Concat(acme, other)
			for _, ids := range [][]uuid.UUID{acme, other, all} {
				slices.SortFunc(ids, compareIDs)
			}
			e.equal(acme, e.listEndpoints(webhook.TenantScope("acme"), 2), "acme's endpoints")
			e.equal(other, e.listEndpoints(webhook.TenantScope("other"), plenty), "other's endpoints")
			e.equal(all, e.listEndpoints(webhook.AllTenants(), 3), "all endpoints")
			e.equal(0, len(e.listEndpoints(webhook.TenantScope("nobody"), 3)), "nobody's endpoints")
			for _, limit := range []int{0, -1} {
				none, err := e.store.ListEndpoints(e.ctx, webhook.ListEndpointsParams{Scope: webhook.AllTenants(), Limit: limit})
				e.must(err, "list no endpoints")
				e.equal(0, len(none), "endpoints in a page of none")
			}
		}},
		{name: "the tenant with the empty name is a tenant like any other", run: func(e *env[Tx]) {
			nameless := e.endpoint("", "*")
			e.endpoint("acme", "*")
			event := e.event("", "order.created")
			e.enqueue(event)
			e.fanOut()
			e.equal(endpointIDs(nameless), e.listEndpoints(webhook.Scope{}, plenty), "endpoints of the zero scope")
			e.equal(endpointIDs(nameless), e.reached(event.ID), "endpoints reached")
			_, err := e.store.GetEvent(e.ctx, webhook.Scope{}, event.ID)
			e.must(err, "get the event in the zero scope")
		}},
	}
}

func changedEndpointsTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "a fresh database has a revision and no changes", run: func(e *env[Tx]) {
			changed, revision, err := e.store.ChangedEndpoints(e.ctx, -1, plenty)
			e.must(err, "read changed endpoints")
			e.equal(0, len(changed), "endpoints")
			e.truth(revision >= 0, "revision: got %d, want 0 or more", revision)
		}},
		{name: "changes are listed in the order in which they were made, deletions included", run: func(e *env[Tx]) {
			a, b, c := e.endpoint("acme", "*"), e.endpoint("other", "*"), e.endpoint("acme", "*")
			a = e.setState(a, webhook.EndpointPaused)
			b = e.deleteEndpoint(b)

			changed, revision, err := e.store.ChangedEndpoints(e.ctx, -1, plenty)

			e.must(err, "read changed endpoints")
			e.equal(endpointIDs(c, a, b), endpointIDs(changed...), "endpoints")
			e.equal(b.Revision, revision, "revision")
			for i, want := range []webhook.EndpointRecord{c, a, b} {
				e.sameEndpoint(want, changed[i])
			}
			e.truth(!changed[2].DeletedAt.IsZero(), "the deleted endpoint does not say so")
		}},
		{name: "only what changed since is listed", run: func(e *env[Tx]) {
			a, b := e.endpoint("acme", "*"), e.endpoint("acme", "*")
			changed, revision, err := e.store.ChangedEndpoints(e.ctx, a.Revision, plenty)
			e.must(err, "read changed endpoints")
			e.equal(endpointIDs(b), endpointIDs(changed...), "endpoints since the first")
			e.equal(b.Revision, revision, "revision")

			changed, revision, err = e.store.ChangedEndpoints(e.ctx, revision, plenty)
			e.must(err, "read changed endpoints again")
			e.equal(0, len(changed), "endpoints when nothing changed")
			e.equal(b.Revision, revision, "revision when nothing changed")
		}},
		{name: "changes can be read in pages, and the revision is the present one", run: func(e *env[Tx]) {
			endpoints := e.endpoints(5, "acme", "*")
			var paged []uuid.UUID
			since := int64(-1)
			for {
				changed, revision, err := e.store.ChangedEndpoints(e.ctx, since, 2)
				e.must(err, "read changed endpoints")
				e.equal(endpoints[4].Revision, revision, "revision")
				if len(changed) == 0 {
					break
				}
				e.truth(len(changed) <= 2, "a page of 2 holds %d", len(changed))
				paged = append(paged, endpointIDs(changed...)...)
				since = changed[len(changed)-1].Revision
			}
			e.equal(endpointIDs(endpoints...), paged, "endpoints over all pages")
		}},
		{name: "a failed change is none", run: func(e *env[Tx]) {
			endpoint := e.endpoint("acme", "*")
			stale := endpoint
			stale.Revision--
			_, err := e.store.UpdateEndpoint(e.ctx, stale)
			e.wantError(webhook.ErrConflict, err, "update with another revision")
			_, err = e.store.CreateEndpoint(e.ctx, endpoint)
			e.wantError(webhook.ErrConflict, err, "create it again")

			changed, _, err := e.store.ChangedEndpoints(e.ctx, endpoint.Revision, plenty)
			e.must(err, "read changed endpoints")
			e.equal(0, len(changed), "endpoints changed since")
		}},
		{name: "revisions follow the order of commits: who reads along misses no change", run: func(e *env[Tx]) {
			const writers, each = 4, 10
			var running atomic.Int32
			running.Store(writers)
			seen := map[uuid.UUID]int64{}
			final := make([][]webhook.EndpointRecord, writers)
			since := int64(-1)
			read := func() error {
				changed, revision, err := e.store.ChangedEndpoints(e.ctx, since, plenty)
				for _, c := range changed {
					seen[c.ID] = c.Revision
				}
				if err == nil {
					since = revision
				}
				return err
			}
			e.concurrently(writers+1, func(i int) error {
				if i == writers {
					for running.Load() > 0 {
						if err := read(); err != nil {
							return err
						}
					}
					return read()
				}
				defer running.Add(-1)
				store := e.db.Connect(e.t)
				for range each {
					created, err := store.CreateEndpoint(e.ctx, e.newEndpoint("acme", "*"))
					if err != nil {
						return err
					}
					updated, err := store.UpdateEndpoint(e.ctx, created)
					if err != nil {
						return err
					}
					final[i] = append(final[i], updated)
				}
				return nil
			})
			for _, endpoint := range slices.Concat(final...) {
				e.equal(endpoint.Revision, seen[endpoint.ID], "revision that the reader saw last")
			}
		}},
	}
}

func (e *env[Tx]) getEndpoint(id uuid.UUID) webhook.EndpointRecord {
	e.t.Helper()
	endpoint, err := e.store.GetEndpoint(e.ctx, webhook.AllTenants(), id)
	e.must(err, "get endpoint %s", id)
	return endpoint
}

// listEndpoints lists all endpoints of a scope in pages of the given size.
func (e *env[Tx]) listEndpoints(scope webhook.Scope, page int) []uuid.UUID {
	e.t.Helper()
	var ids []uuid.UUID
	p := webhook.ListEndpointsParams{Scope: scope, Limit: page}
	for {
		got, err := e.store.ListEndpoints(e.ctx, p)
		e.must(err, "list endpoints")
		e.truth(len(got) <= page, "a page of %d holds %d", page, len(got))
		ids = append(ids, endpointIDs(got...)...)
		if len(got) == 0 {
			return ids
		}
		p.After = got[len(got)-1].ID
	}
}
