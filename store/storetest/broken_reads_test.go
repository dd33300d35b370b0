package storetest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// eachEndpoint makes CreateEndpoint change what it writes.
func eachEndpoint(change func(*webhook.EndpointRecord)) func(*store) {
	return func(s *store) {
		s.createEndpoint = func(ctx context.Context, e webhook.EndpointRecord) (webhook.EndpointRecord, error) {
			change(&e)
			return s.Store.CreateEndpoint(ctx, e)
		}
	}
}

// eachUpdate makes UpdateEndpoint change what it is given, knowing the present.
func eachUpdate(change func(e *webhook.EndpointRecord, present webhook.EndpointRecord)) func(*store) {
	return func(s *store) {
		var mu sync.Mutex // so that the present does not change in between
		s.updateEndpoint = func(ctx context.Context, e webhook.EndpointRecord) (webhook.EndpointRecord, error) {
			mu.Lock()
			defer mu.Unlock()
			if present, err := s.Store.GetEndpoint(ctx, webhook.AllTenants(), e.ID); err == nil {
				change(&e, present)
			}
			return s.Store.UpdateEndpoint(ctx, e)
		}
	}
}

// changed makes ChangedEndpoints return something else.
func changed(change func(endpoints []webhook.EndpointRecord, revision int64) ([]webhook.EndpointRecord, int64)) func(*store) {
	return func(s *store) {
		s.changedEndpoints = func(ctx context.Context, since int64, limit int) ([]webhook.EndpointRecord, int64, error) {
			endpoints, revision, err := s.Store.ChangedEndpoints(ctx, since, limit)
			endpoints, revision = change(endpoints, revision)
			return endpoints, revision, err
		}
	}
}

func brokenEndpoints() []broken {
	return []broken{
		{
			"drops the headers", eachEndpoint(func(e *webhook.EndpointRecord) { e.Headers = nil }),
			[]string{"an endpoint is kept as it was given, with a revision"},
		},
		{
			"rewrites the options", eachEndpoint(func(e *webhook.EndpointRecord) { e.Options = bytes.ReplaceAll(e.Options, []byte(" "), nil) }),
			[]string{"an endpoint is kept as it was given, with a revision"},
		},
		{"makes up a time that was not given", eachEndpoint(func(e *webhook.EndpointRecord) {
			if e.StateChangedAt.IsZero() {
				e.StateChangedAt = e.CreatedAt
			}
		}), []string{"an endpoint's empty fields stay empty"}},
		{"overwrites an endpoint that exists", func(s *store) {
			s.createEndpoint = func(ctx context.Context, e webhook.EndpointRecord) (webhook.EndpointRecord, error) {
				created, err := s.Store.CreateEndpoint(ctx, e)
				if !errors.Is(err, webhook.ErrConflict) {
					return created, err
				}
				present, err := s.Store.GetEndpoint(ctx, webhook.AllTenants(), e.ID)
				e.Revision, e.Tenant = present.Revision, present.Tenant
				if err != nil {
					return e, nil
				}
				return s.Store.UpdateEndpoint(ctx, e)
			}
		}, []string{
			"creating an endpoint whose id exists is a conflict",
			"the id of a deleted endpoint is never used again",
			"a failed change is none",
		}},
		{
			"forgets a field in an update", eachUpdate(func(e *webhook.EndpointRecord, present webhook.EndpointRecord) { e.URL = present.URL }),
			[]string{"an update replaces the endpoint and gives it a new revision"},
		},
		{
			"does not compare revisions", eachUpdate(func(e *webhook.EndpointRecord, present webhook.EndpointRecord) { e.Revision = present.Revision }),
			[]string{
				"an update of another revision is a conflict and changes nothing",
				"of several updates of one revision exactly one wins",
				"a failed change is none",
			},
		},
		{
			"updates for any tenant", eachUpdate(func(e *webhook.EndpointRecord, present webhook.EndpointRecord) { e.Tenant = present.Tenant }),
			[]string{"an update of an unknown, foreign or deleted endpoint finds nothing"},
		},
		{"takes a deleted endpoint for one that changed", func(s *store) {
			s.updateEndpoint = func(ctx context.Context, e webhook.EndpointRecord) (webhook.EndpointRecord, error) {
				updated, err := s.Store.UpdateEndpoint(ctx, e)
				if errors.Is(err, webhook.ErrNotFound) {
					err = webhook.ErrConflict
				}
				return updated, err
			}
		}, []string{"an update of an unknown, foreign or deleted endpoint finds nothing"}},
		{"deletes nothing", func(s *store) {
			s.updateEndpoint = func(ctx context.Context, e webhook.EndpointRecord) (webhook.EndpointRecord, error) {
				e.DeletedAt = time.Time{}
				return s.Store.UpdateEndpoint(ctx, e)
			}
		}, []string{
			"a deleted endpoint is not found and not listed",
			"paused and disabled endpoints get deliveries, deleted ones none",
			"an endpoint deleted half-way gets nothing from the later steps",
		}},
		{"shows an endpoint to every tenant", func(s *store) {
			s.getEndpoint = func(ctx context.Context, _ webhook.Scope, id uuid.UUID) (webhook.EndpointRecord, error) {
				return s.Store.GetEndpoint(ctx, webhook.AllTenants(), id)
			}
		}, []string{"an endpoint is found within its scope only"}},
		{"lists endpoints for every tenant", func(s *store) {
			s.listEndpoints = func(ctx context.Context, p webhook.ListEndpointsParams) ([]webhook.EndpointRecord, error) {
				p.Scope = webhook.AllTenants()
				return s.Store.ListEndpoints(ctx, p)
			}
		}, []string{
			"endpoints are listed within their scope, by ascending id, in pages",
			"the tenant with the empty name is a tenant like any other",
		}},
		{"skips an endpoint between pages", func(s *store) {
			s.listEndpoints = func(ctx context.Context, p webhook.ListEndpointsParams) ([]webhook.EndpointRecord, error) {
				page, err := s.Store.ListEndpoints(ctx, p)
				if p.After != uuid.Nil && len(page) > 1 {
					page = page[1:]
				}
				return page, err
			}
		}, []string{"endpoints are listed within their scope, by ascending id, in pages"}},
		{"keeps deletions from those who ask for changes", changed(func(all []webhook.EndpointRecord, revision int64) ([]webhook.EndpointRecord, int64) {
			return filterEndpoints(func(e webhook.EndpointRecord) bool { return e.DeletedAt.IsZero() })(all), revision
		}), []string{"changes are listed in the order in which they were made, deletions included"}},
		{"lists changes by id", changed(func(all []webhook.EndpointRecord, revision int64) ([]webhook.EndpointRecord, int64) {
			slices.SortFunc(all, func(a, b webhook.EndpointRecord) int { return compareIDs(a.ID, b.ID) })
			return all, revision
		}), []string{"changes are listed in the order in which they were made, deletions included"}},
		{"lists all changes always", func(s *store) {
			s.changedEndpoints = func(ctx context.Context, _ int64, limit int) ([]webhook.EndpointRecord, int64, error) {
				return s.Store.ChangedEndpoints(ctx, -1, limit)
			}
		}, []string{"only what changed since is listed", "a failed change is none"}},
		{"takes the page's revision for the present one", changed(func(all []webhook.EndpointRecord, revision int64) ([]webhook.EndpointRecord, int64) {
			if len(all) > 0 {
				revision = all[len(all)-1].Revision
			}
			return all, revision
		}), []string{"changes can be read in pages, and the revision is the present one"}},
		{"begins without a revision", changed(func(all []webhook.EndpointRecord, revision int64) ([]webhook.EndpointRecord, int64) {
			return all, revision - 1
		}), []string{"a fresh database has a revision and no changes"}},
		{"shows a revision before its change", changed(func(all []webhook.EndpointRecord, revision int64) ([]webhook.EndpointRecord, int64) {
			return all[:max(len(all)-1, 0)], revision
		}), []string{"revisions follow the order of commits: who reads along misses no change"}},
	}
}

func brokenLog() []broken {
	everyTenant := func(s *store) {
		s.getEvent = func(ctx context.Context, _ webhook.Scope, id uuid.UUID) (webhook.EventStatus, error) {
			return s.Store.GetEvent(ctx, webhook.AllTenants(), id)
		}
	}
	return []broken{
		{
			"shows an event to every tenant", everyTenant,
			[]string{"events, deliveries and attempts are found within their scope only"},
		},
		{"shows a delivery to every tenant", func(s *store) {
			s.getDelivery = func(ctx context.Context, _ webhook.Scope, id uuid.UUID) (webhook.Delivery, error) {
				return s.Store.GetDelivery(ctx, webhook.AllTenants(), id)
			}
		}, []string{"events, deliveries and attempts are found within their scope only"}},
		{"shows a finished delivery to every tenant", func(s *store) {
			s.getDelivery = func(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.Delivery, error) {
				d, err := s.Store.GetDelivery(ctx, webhook.AllTenants(), id)
				if err == nil && !d.State.Final() {
					return s.Store.GetDelivery(ctx, scope, id)
				}
				return d, err
			}
		}, []string{"events, deliveries and attempts are found within their scope only"}},
		{
			"lists deliveries for every tenant", listParams(func(p *webhook.ListDeliveriesParams) { p.Scope = webhook.AllTenants() }),
			[]string{"events, deliveries and attempts are found within their scope only", "deliveries are filtered by scope, event, endpoint and state"},
		},
		{"lists an endpoint's deliveries for every tenant", listParams(func(p *webhook.ListDeliveriesParams) {
			if p.EndpointID != uuid.Nil {
				p.Scope = webhook.AllTenants()
			}
		}), []string{"events, deliveries and attempts are found within their scope only"}},
		{"lists attempts for every tenant", func(s *store) {
			s.listAttempts = func(ctx context.Context, _ webhook.Scope, id uuid.UUID) ([]webhook.Attempt, error) {
				return s.Store.ListAttempts(ctx, webhook.AllTenants(), id)
			}
		}, []string{"events, deliveries and attempts are found within their scope only"}},
		{"knows no error for what it does not find", func(s *store) {
			s.getDelivery = func(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.Delivery, error) {
				d, err := s.Store.GetDelivery(ctx, scope, id)
				if err != nil {
					err = errors.New("no rows in result set")
				}
				return d, err
			}
		}, []string{"what nobody knows is not found"}},
		{"loses finished deliveries", func(s *store) {
			s.getDelivery = func(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.Delivery, error) {
				d, err := s.Store.GetDelivery(ctx, scope, id)
				if d.State.Final() {
					return webhook.Delivery{}, webhook.ErrNotFound
				}
				return d, err
			}
		}, []string{"a delivery can be read in every state"}},
		{"lists unfinished deliveries only", listed(func(all []webhook.Delivery) []webhook.Delivery {
			return slices.DeleteFunc(all, func(d webhook.Delivery) bool { return d.State.Final() })
		}), []string{"deliveries are listed newest first, finished or not"}},
		{"lists finished deliveries after the others", listed(func(all []webhook.Delivery) []webhook.Delivery {
			slices.SortStableFunc(all, func(a, b webhook.Delivery) int {
				switch {
				case a.State.Final() == b.State.Final():
					return 0
				case b.State.Final():
					return -1
				}
				return 1
			})
			return all
		}), []string{"deliveries are listed newest first, finished or not", "deliveries are listed in pages without gaps or doubles"}},
		{"lists the oldest delivery first", listed(func(all []webhook.Delivery) []webhook.Delivery {
			slices.Reverse(all)
			return all
		}), []string{"a delivery made later is listed earlier", "deliveries are listed newest first, finished or not"}},
		{"shows less of a delivery in a list", listed(func(all []webhook.Delivery) []webhook.Delivery {
			for i := range all {
				all[i].LastStatus = 0
			}
			return all
		}), []string{"deliveries are listed newest first, finished or not"}},
		{"skips a delivery between pages", func(s *store) {
			s.listDeliveries = func(ctx context.Context, p webhook.ListDeliveriesParams) (webhook.DeliveryListing, error) {
				page, err := s.Store.ListDeliveries(ctx, p)
				if p.Before != uuid.Nil && len(page.Deliveries) > 0 {
					page.Deliveries = page.Deliveries[1:]
				}
				return page, err
			}
		}, []string{"deliveries are listed in pages without gaps or doubles"}},
		{
			"does not filter by state", listParams(func(p *webhook.ListDeliveriesParams) { p.State = "" }),
			[]string{"deliveries are filtered by scope, event, endpoint and state"},
		},
		{"does not filter by endpoint when it filters by event", listParams(func(p *webhook.ListDeliveriesParams) {
			if p.EventID != uuid.Nil {
				p.EndpointID = uuid.Nil
			}
		}), []string{"deliveries are filtered by scope, event, endpoint and state"}},
		{
			"drops where a redirect pointed", loggedAttempts(func(a *webhook.Attempt) { a.Location = "" }),
			[]string{"an attempt is kept with all its fields"},
		},
		{
			"keeps latencies to the second", loggedAttempts(func(a *webhook.Attempt) { a.Latency = a.Latency.Truncate(time.Second) }),
			[]string{"an attempt is kept with all its fields"},
		},
		{"takes no status for a status", loggedAttempts(func(a *webhook.Attempt) {
			if a.Status == 0 {
				a.Status = -1
			}
		}), []string{"an attempt without a response has neither status nor excerpt"}},
		{
			"keeps excerpts as text", loggedAttempts(func(a *webhook.Attempt) { a.Excerpt = bytes.ToValidUTF8(a.Excerpt, []byte("?")) }),
			[]string{"an excerpt is kept byte for byte, also if it is not text"},
		},
		{
			"never says that an attempt was late", loggedAttempts(func(a *webhook.Attempt) { a.Late = false }),
			[]string{
				"the result of a lost lease changes nothing and is logged as late",
				"cancelling leaves what is under a valid lease, and takes it once that has expired",
			},
		},
		{"lists attempts in the order of their recording", func(s *store) {
			s.listAttempts = func(ctx context.Context, scope webhook.Scope, id uuid.UUID) ([]webhook.Attempt, error) {
				attempts, err := s.Store.ListAttempts(ctx, scope, id)
				slices.SortStableFunc(attempts, func(a, b webhook.Attempt) int {
					if a.Late == b.Late {
						return 0
					}
					if b.Late {
						return -1
					}
					return 1
				})
				return attempts, err
			}
		}, []string{"attempts are listed in the order of their numbers"}},
		{"makes an attempt of every claim", func(s *store) {
			s.listAttempts = func(ctx context.Context, scope webhook.Scope, id uuid.UUID) ([]webhook.Attempt, error) {
				attempts, err := s.Store.ListAttempts(ctx, scope, id)
				d, _ := s.Store.GetDelivery(ctx, scope, id)
				if d.State == webhook.StateInFlight {
					attempts = append(attempts, webhook.Attempt{DeliveryID: id})
				}
				return attempts, err
			}
		}, []string{"a delivery that was not attempted has no attempts"}},
	}
}

func brokenLists() []broken {
	const filters = "deliveries are filtered by type, status and resource"
	const times = "deliveries are filtered by the time at which they were made"
	const events = "events are listed within their scope, in both directions, in pages"
	const eventFilters = "events are filtered, and tell how far they have come"
	const settled = "events that are not settled are waited for"
	return []broken{
		{"does not filter by type", listParams(func(p *webhook.ListDeliveriesParams) { p.EventType = "" }), []string{filters}},
		{"does not filter by status", listParams(func(p *webhook.ListDeliveriesParams) { p.Status = "" }), []string{filters}},
		{"takes no answer for any", listParams(func(p *webhook.ListDeliveriesParams) {
			if p.Status == webhook.StatusNone {
				p.Status = ""
			}
		}), []string{filters}},
		{"does not filter an endpoint's by resource", listParams(func(p *webhook.ListDeliveriesParams) {
			if p.EndpointID != uuid.Nil {
				p.ResourceID = ""
			}
		}), []string{filters}},
		{"takes the end of a time for a part of it", listParams(func(p *webhook.ListDeliveriesParams) {
			if !p.Until.IsZero() {
				p.Until = p.Until.Add(time.Microsecond)
			}
		}), []string{times}},
		{"does not filter by when a time began", listParams(func(p *webhook.ListDeliveriesParams) { p.From = time.Time{} }), []string{times}},
		{"does not say that there are more", func(s *store) {
			s.listDeliveries = func(ctx context.Context, p webhook.ListDeliveriesParams) (webhook.DeliveryListing, error) {
				listing, err := s.Store.ListDeliveries(ctx, p)
				listing.Next = uuid.Nil
				return listing, err
			}
		}, []string{filters, "deliveries are listed in pages without gaps or doubles"}},
		{"lists events for every tenant", eventParams(func(p *webhook.ListEventsParams) { p.Scope = webhook.AllTenants() }), []string{events}},
		{"lists events newest first only", eventParams(func(p *webhook.ListEventsParams) { p.OldestFirst = false }), []string{events}},
		{"skips an event between pages", func(s *store) {
			s.listEvents = func(ctx context.Context, p webhook.ListEventsParams) (webhook.EventListing, error) {
				listing, err := s.Store.ListEvents(ctx, p)
				if p.After != (webhook.EventPosition{}) && len(listing.Events) > 0 {
					listing.Events = listing.Events[1:]
				}
				return listing, err
			}
		}, []string{events}},
		{"does not filter events by type", eventParams(func(p *webhook.ListEventsParams) { p.Type = "" }), []string{eventFilters}},
		{"does not filter events by resource", eventParams(func(p *webhook.ListEventsParams) { p.ResourceID = "" }), []string{eventFilters}},
		{"takes every event for unmatched", eventParams(func(p *webhook.ListEventsParams) { p.Unmatched = false }), []string{eventFilters}},
		{"lists events with their payloads", func(s *store) {
			s.listEvents = func(ctx context.Context, p webhook.ListEventsParams) (webhook.EventListing, error) {
				listing, err := s.Store.ListEvents(ctx, p)
				for i, e := range listing.Events {
					full, _ := s.Store.GetEvent(ctx, webhook.AllTenants(), e.ID)
					listing.Events[i] = full
				}
				return listing, err
			}
		}, []string{eventFilters}},
		{"lists events before they are settled", eventParams(func(p *webhook.ListEventsParams) { p.SettledAt = time.Time{} }), []string{settled}},
		{"passes by events that are not settled", eventParams(func(p *webhook.ListEventsParams) {
			if p.OldestFirst {
				p.Until, p.SettledAt = p.SettledAt, time.Time{}
			}
		}), []string{settled}},
	}
}

func eventParams(change func(*webhook.ListEventsParams)) func(*store) {
	return func(s *store) {
		s.listEvents = func(ctx context.Context, p webhook.ListEventsParams) (webhook.EventListing, error) {
			change(&p)
			return s.Store.ListEvents(ctx, p)
		}
	}
}

func listParams(change func(*webhook.ListDeliveriesParams)) func(*store) {
	return func(s *store) {
		s.listDeliveries = func(ctx context.Context, p webhook.ListDeliveriesParams) (webhook.DeliveryListing, error) {
			change(&p)
			return s.Store.ListDeliveries(ctx, p)
		}
	}
}

func listed(change func([]webhook.Delivery) []webhook.Delivery) func(*store) {
	return func(s *store) {
		s.listDeliveries = func(ctx context.Context, p webhook.ListDeliveriesParams) (webhook.DeliveryListing, error) {
			found, err := s.Store.ListDeliveries(ctx, p)
			found.Deliveries = change(found.Deliveries)
			return found, err
		}
	}
}

func loggedAttempts(change func(*webhook.Attempt)) func(*store) {
	return func(s *store) {
		s.listAttempts = func(ctx context.Context, scope webhook.Scope, id uuid.UUID) ([]webhook.Attempt, error) {
			attempts, err := s.Store.ListAttempts(ctx, scope, id)
			for i := range attempts {
				change(&attempts[i])
			}
			return attempts, err
		}
	}
}

func brokenSystem() []broken {
	return []broken{
		{"has a clock that runs backwards", func(s *store) {
			var calls atomic.Int64
			s.now = func(ctx context.Context) (time.Time, error) {
				now, err := s.Store.Now(ctx)
				return now.Add(-2 * time.Second * time.Duration(calls.Add(1))), err
			}
		}, []string{"the database's time goes forward and is in UTC"}},
		{"tells the time of the machine that asks", func(s *store) {
			var calls atomic.Int64
			s.now = func(ctx context.Context) (time.Time, error) {
				now, err := s.Store.Now(ctx)
				return now.Add(10 * time.Minute * time.Duration(calls.Add(1))), err
			}
		}, []string{"the time of two stores on one database is the same"}},
		{"takes the present schema for an old one", func(s *store) {
			s.checkSchema = func(context.Context) error { return webhook.ErrSchemaOutdated }
		}, []string{"the present schema is accepted", "a schema of a newer version is told as newer"}},
		{"takes any schema for its own", func(*store) {}, []string{
			"a schema that lacks migrations is told as outdated", "a schema of a newer version is told as newer",
		}},
		{"maintains once", func(s *store) {
			var calls atomic.Int32
			s.maintain = func(context.Context, webhook.MaintainParams) error {
				if calls.Add(1) > 1 {
					return errors.New("relation already exists")
				}
				return nil
			}
		}, []string{"maintenance is harmless, however often and by however many"}},
		{"sends no signals", func(s *store) {
			s.notify = func(context.Context, webhook.Signal) error { return nil }
		}, []string{"a signal reaches every process that listens"}},
		{"takes the end of listening for an error", func(s *store) {
			s.listen = func(ctx context.Context, ready func(), handle func(webhook.Signal)) error {
				return errors.Join(s.Store.Listen(ctx, ready, handle), ctx.Err())
			}
		}, []string{"listening ends without an error when it is told to"}},
		{"needs someone to listen", func(s *store) {
			var listeners atomic.Int32
			s.listen = func(ctx context.Context, ready func(), handle func(webhook.Signal)) error {
				listeners.Add(1)
				defer listeners.Add(-1)
				return s.Store.Listen(ctx, ready, handle)
			}
			s.notify = func(ctx context.Context, signal webhook.Signal) error {
				if listeners.Load() == 0 {
					return errors.New("nobody listens")
				}
				return s.Store.Notify(ctx, signal)
			}
		}, []string{"nobody needs to listen"}},
	}
}
