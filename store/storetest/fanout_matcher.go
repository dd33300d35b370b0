package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// matcherTests are about what a store asks of the matcher, and about the rule
// that keeps it from being stale.
func matcherTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "an endpoint created before the event's commit is matched by a stale matcher", run: func(e *env[Tx]) {
			known := e.endpoint("acme", "*")
			m := newMatcher()
			e.enqueue(e.event("acme", "order.created"))
			e.fanOutWith(m, plenty, plenty)

			created, err := e.db.Connect(e.t).CreateEndpoint(e.ctx, e.newEndpoint("acme", "*"))
			e.must(err, "create an endpoint in another process")
			event := e.event("acme", "order.created")
			e.enqueue(event)
			e.fanOutWith(m, plenty, plenty)

			e.sameSet(endpointIDs(known, created), e.reached(event.ID), "endpoints reached")
		}},
		{name: "a stale matcher hears of every kind of change", run: func(e *env[Tx]) {
			stays, moves, goes := e.endpoint("acme", "*"), e.endpoint("acme", "order.*"), e.endpoint("acme", "*")
			m := newMatcher()
			e.enqueue(e.event("acme", "order.created"))
			e.fanOutWith(m, plenty, plenty)

			moves.Types = []string{"invoice.*"}
			e.update(moves)
			e.deleteEndpoint(goes)
			order, invoice := e.event("acme", "order.created"), e.event("acme", "invoice.paid")
			e.enqueue(order, invoice)
			e.fanOutWith(m, plenty, plenty)

			e.sameSet(endpointIDs(stays), e.reached(order.ID), "endpoints of the order")
			e.sameSet(endpointIDs(stays, moves), e.reached(invoice.ID), "endpoints of the invoice")
		}},
		{name: "the matcher is brought up to the present revision before it matches", run: func(e *env[Tx]) {
			e.endpoints(3, "acme", "*")
			e.enqueue(e.event("acme", "order.created"))
			_, revision, err := e.store.ChangedEndpoints(e.ctx, -1, plenty)
			e.must(err, "read the revision")
			m := newMatcher()
			m.beforeMatch = func(*webhook.EventRecord) {
				e.equal(revision, m.Revision(), "revision while matching")
			}
			e.fanOutWith(m, plenty, plenty)
			e.equal(1, len(m.seen), "events matched")
		}},
		{name: "a matcher that is up to date is told nothing", run: func(e *env[Tx]) {
			e.endpoint("acme", "*")
			m := newMatcher()
			e.enqueue(e.event("acme", "order.created"))
			e.fanOutWith(m, plenty, plenty)
			m.beforeApply = func() error {
				e.t.Error("Apply was called though nothing had changed")
				return nil
			}
			e.enqueue(e.event("acme", "order.created"))
			e.fanOutWith(m, plenty, plenty)
		}},
		{name: "a matcher that knows nothing is told of every endpoint there is", run: func(e *env[Tx]) {
			endpoints := e.endpoints(120, "acme", "*")
			e.deleteEndpoint(endpoints[0])
			event := e.event("acme", "order.created")
			e.enqueue(event)
			e.fanOut()
			e.sameSet(endpointIDs(endpoints[1:]...), e.reached(event.ID), "endpoints reached")
		}},
		{name: "an endpoint comes to the matcher as it is stored", run: func(e *env[Tx]) {
			endpoint := e.fullEndpoint("acme")
			created, err := e.store.CreateEndpoint(e.ctx, endpoint)
			e.must(err, "create an endpoint")
			e.enqueue(e.event("acme", "order.created"))
			m := newMatcher()
			e.fanOutWith(m, plenty, plenty)
			e.sameEndpoint(created, m.endpoints[created.ID])
		}},
		{name: "an event comes to the matcher as it was enqueued", run: func(e *env[Tx]) {
			event := e.keyed("acme", "k")
			event.ResourceID, event.ResourceVersion = "in_9", 8
			event.Payload = []byte(`{"b" : 1, "a":"é"}`)
			e.enqueue(event)
			m := newMatcher()
			m.wantsPayload = true
			e.fanOutWith(m, plenty, plenty)
			e.need(1, len(m.seen), "events matched")
			e.sameEvent(event, m.seen[0])
		}},
		{name: "concurrent creation of endpoints and events never leaves an endpoint out", run: func(e *env[Tx]) {
			const pairs = 40
			events := make([]uuid.UUID, pairs)
			endpoints := make([]uuid.UUID, pairs)
			var running atomic.Bool
			running.Store(true)
			stepped := make(chan struct{}, 1)
			e.concurrently(3, func(worker int) error {
				if worker > 0 {
					store := e.db.Connect(e.t)
					m := newMatcher()
					for running.Load() {
						if _, err := store.FanOut(e.ctx, webhook.FanOutParams{
							Now: e.now, MaxEvents: 2, MaxDeliveries: plenty, Matcher: m,
						}); err != nil {
							return err
						}
						select {
						case stepped <- struct{}{}:
						default:
						}
					}
					return nil
				}
				defer running.Store(false)
				for i := range pairs {
					// In step with fan-out, so that each pair falls into one.
					select {
					case <-stepped:
					case <-e.ctx.Done():
						return e.ctx.Err()
					}
					eventType := fmt.Sprintf("race.n%d", i)
					endpoint, err := e.store.CreateEndpoint(e.ctx, e.newEndpoint("acme", eventType))
					if err != nil {
						return err
					}
					event := e.event("acme", eventType)
					if _, err := e.enqueueIn(e.store, true, event); err != nil {
						return err
					}
					events[i], endpoints[i] = event.ID, endpoint.ID
				}
				return nil
			})
			e.fanOut()
			for i := range pairs {
				e.equal([]uuid.UUID{endpoints[i]}, e.reached(events[i]), "endpoints of event %d", i)
			}
		}},
	}
}

// concurrentFanOutTests are about several processes that fan out at once.
func concurrentFanOutTests[Tx any](h Harness[Tx]) []test[Tx] {
	tests := []test[Tx]{
		{name: "several processes fan every event out exactly once", run: func(e *env[Tx]) {
			endpoints := e.endpoints(3, "acme", "*")
			events := e.eventsOf(120, "acme", "order.created")
			e.enqueue(events...)
			const processes = 4
			finished := make([]int, processes)
			stores := make([]webhook.Store[Tx], processes)
			for i := range stores {
				stores[i] = e.db.Connect(e.t)
			}
			e.concurrently(processes, func(i int) (err error) {
				finished[i], err = e.drain(stores[i], e.now, 7)
				return err
			})
			// A process that finds all that is left held by others stops early.
			rest, err := e.drain(e.store, e.now, plenty)
			e.must(err, "fan out what is left")

			e.equal(len(events), finished[0]+finished[1]+finished[2]+finished[3]+rest, "events finished in all")
			for _, event := range events {
				e.sameSet(endpointIDs(endpoints...), e.reached(event.ID), "endpoints reached")
			}
		}},
		{name: "several processes share an event with many endpoints without doubles", run: func(e *env[Tx]) {
			endpoints := e.endpoints(40, "acme", "*")
			giants := e.eventsOf(3, "acme", "order.created")
			e.enqueue(giants...)
			stores := []webhook.Store[Tx]{e.db.Connect(e.t), e.db.Connect(e.t), e.db.Connect(e.t)}
			e.concurrently(len(stores), func(i int) error {
				m := newMatcher()
				for range 30 {
					if _, err := stores[i].FanOut(e.ctx, webhook.FanOutParams{
						Now: e.now, MaxEvents: 2, MaxDeliveries: 7, Matcher: m,
					}); err != nil {
						return err
					}
				}
				return nil
			})
			e.fanOut()
			for _, giant := range giants {
				e.sameSet(endpointIDs(endpoints...), e.reached(giant.ID), "endpoints reached")
			}
		}},
	}
	if h.SingleWriter {
		return tests
	}
	return append(tests, []test[Tx]{
		{name: "entries that another process holds are passed over, not waited for", run: func(e *env[Tx]) {
			endpoint := e.endpoint("acme", "*")
			events := e.eventsOf(4, "acme", "order.created")
			e.enqueue(events...)
			holds, release := make(chan struct{}), make(chan struct{})
			letGo := sync.OnceFunc(func() { close(release) })
			e.t.Cleanup(letGo)
			holder := newMatcher()
			holder.beforeMatch = func(*webhook.EventRecord) {
				if len(holder.seen) == 1 {
					close(holds)
					<-release
				}
			}
			held := make(chan error, 1)
			go func() {
				_, err := e.db.Connect(e.t).FanOut(e.ctx, webhook.FanOutParams{
					Now: e.now, MaxEvents: 2, MaxDeliveries: plenty, Matcher: holder,
				})
				held <- err
			}()
			select {
			case <-holds:
			case err := <-held:
				e.t.Fatalf("the first fan-out ended early: %v", err)
			}

			m := newMatcher()
			e.fanOutWith(m, plenty, plenty)
			letGo()
			e.must(<-held, "fan out while another waits")

			e.equal(eventIDs(events[2:]...), eventIDs(m.seen...), "events of the second process")
			for i, event := range events {
				e.equal([]uuid.UUID{endpoint.ID}, e.reached(event.ID), "endpoints of event %d", i)
			}
		}},
		{name: "an endpoint created while the event's transaction is open is matched", run: func(e *env[Tx]) {
			m := newMatcher()
			e.enqueue(e.event("acme", "order.created"))
			e.fanOutWith(m, plenty, plenty)
			event := e.event("acme", "order.created")
			tx := e.begin()
			tx.insert(event)
			endpoint := e.endpoint("acme", "*")
			tx.commit()
			e.fanOutWith(m, plenty, plenty)
			e.equal([]uuid.UUID{endpoint.ID}, e.reached(event.ID), "endpoints reached")
		}},
		{name: "fan-out does not wait for a host's open transaction", run: func(e *env[Tx]) {
			e.endpoint("acme", "*")
			open, done := e.keyed("acme", "k"), e.event("acme", "order.created")
			tx := e.begin()
			tx.insert(open)
			e.enqueue(done)
			e.equal(1, e.fanOutWith(newMatcher(), plenty, plenty).Finished, "events finished")
			tx.rollback()
		}},
	}...)
}

// fullEndpoint is an endpoint with every field set, to bytes that storage tends
// to change.
func (e *env[Tx]) fullEndpoint(tenant string) webhook.EndpointRecord {
	endpoint := e.newEndpoint(tenant, "order.*", "invoice.paid", "*")
	endpoint.URL = "https://hooks.example:8443/in?a=1&b=%20x#ü"
	endpoint.State = webhook.EndpointPaused
	endpoint.StateReason = "the customer asked for it – é"
	endpoint.StateChangedAt = e.at(-time.Hour)
	endpoint.CreatedAt = e.at(-3 * time.Hour)
	endpoint.UpdatedAt = e.at(-2 * time.Hour)
	endpoint.Options = []byte("{\"b\" : 1.0,\n \"a\":[ ] , \"b\":7615917337495251231}")
	endpoint.Secrets = []byte(`[ {"sealed":"AAH/+w=="} ]`)
	endpoint.Headers = []byte("\x00\x01sealed\xff\xfe")
	return endpoint
}

func (e *env[Tx]) sameEndpoint(want, got webhook.EndpointRecord) {
	e.t.Helper()
	e.sameBytes(want.Options, got.Options, "options")
	e.sameBytes(want.Secrets, got.Secrets, "secrets")
	e.sameBytes(want.Headers, got.Headers, "headers")
	want.Options, want.Secrets, want.Headers = nil, nil, nil
	got.Options, got.Secrets, got.Headers = nil, nil, nil
	for _, r := range []*webhook.EndpointRecord{&want, &got} {
		if len(r.Types) == 0 {
			r.Types = nil
		}
		r.StateChangedAt, r.CreatedAt, r.UpdatedAt = r.StateChangedAt.UTC(), r.CreatedAt.UTC(), r.UpdatedAt.UTC()
		r.DeletedAt = r.DeletedAt.UTC()
	}
	e.equal(want, got, "endpoint")
}
