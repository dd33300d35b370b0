package storetest

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// hookedMatcher is what a broken store puts between itself and the matcher.
type hookedMatcher struct {
	webhook.Matcher
	apply        func([]webhook.EndpointRecord, int64) error
	revision     func() int64
	wantsPayload func() bool
	match        func([]uuid.UUID, *webhook.EventRecord, uuid.UUID, int) ([]uuid.UUID, bool)
}

func (m *hookedMatcher) Apply(endpoints []webhook.EndpointRecord, revision int64) error {
	return m.apply(endpoints, revision)
}
func (m *hookedMatcher) Revision() int64    { return m.revision() }
func (m *hookedMatcher) WantsPayload() bool { return m.wantsPayload() }
func (m *hookedMatcher) Match(dst []uuid.UUID, e *webhook.EventRecord, after uuid.UUID, limit int) ([]uuid.UUID, bool) {
	return m.match(dst, e, after, limit)
}

type fanOutFunc = func(context.Context, webhook.FanOutParams) (webhook.FanOutResult, error)

// throughMatcher makes FanOut see the matcher as the hooks make it look.
func throughMatcher(s *store, hook func(*hookedMatcher)) fanOutFunc {
	return func(ctx context.Context, p webhook.FanOutParams) (webhook.FanOutResult, error) {
		m := &hookedMatcher{
			Matcher: p.Matcher, apply: p.Matcher.Apply, revision: p.Matcher.Revision,
			wantsPayload: p.Matcher.WantsPayload, match: p.Matcher.Match,
		}
		hook(m)
		p.Matcher = m
		return s.Store.FanOut(ctx, p)
	}
}

// hooked is throughMatcher as a way to break a store.
func hooked(hook func(*hookedMatcher)) func(*store) {
	return func(s *store) { s.fanOut = throughMatcher(s, hook) }
}

// applying makes FanOut change the endpoints that it tells the matcher of.
func applying(change func([]webhook.EndpointRecord) []webhook.EndpointRecord) func(*store) {
	return hooked(func(m *hookedMatcher) {
		m.apply = func(endpoints []webhook.EndpointRecord, revision int64) error {
			return m.Matcher.Apply(change(endpoints), revision)
		}
	})
}

// fanOutParams makes FanOut work with other parameters than those given.
func fanOutParams(change func(*webhook.FanOutParams)) func(*store) {
	return func(s *store) {
		s.fanOut = func(ctx context.Context, p webhook.FanOutParams) (webhook.FanOutResult, error) {
			change(&p)
			return s.Store.FanOut(ctx, p)
		}
	}
}

// fanOutResult makes FanOut return another result than its own.
func fanOutResult(change func(*webhook.FanOutResult)) func(*store) {
	return func(s *store) {
		s.fanOut = func(ctx context.Context, p webhook.FanOutParams) (webhook.FanOutResult, error) {
			result, err := s.Store.FanOut(ctx, p)
			change(&result)
			return result, err
		}
	}
}

func filterEndpoints(keep func(webhook.EndpointRecord) bool) func([]webhook.EndpointRecord) []webhook.EndpointRecord {
	return func(endpoints []webhook.EndpointRecord) (kept []webhook.EndpointRecord) {
		for _, e := range endpoints {
			if keep(e) {
				kept = append(kept, e)
			}
		}
		return kept
	}
}

func brokenFanOut() []broken {
	return []broken{
		{"loses the last endpoint of a match", hooked(func(m *hookedMatcher) {
			m.match = func(dst []uuid.UUID, e *webhook.EventRecord, after uuid.UUID, limit int) ([]uuid.UUID, bool) {
				ids, more := m.Matcher.Match(dst, e, after, limit)
				if !more && len(ids) > 1 {
					ids = ids[:len(ids)-1]
				}
				return ids, more
			}
		}), []string{
			"every matching endpoint gets one delivery, due now",
			"several processes fan every event out exactly once",
			"several processes share an event with many endpoints without doubles",
			"no more deliveries are written than asked for, and the rest follows",
		}},
		{"writes a delivery twice", hooked(func(m *hookedMatcher) {
			m.match = func(dst []uuid.UUID, e *webhook.EventRecord, after uuid.UUID, limit int) ([]uuid.UUID, bool) {
				ids, more := m.Matcher.Match(dst, e, after, limit)
				if len(ids) == 1 {
					ids = append(ids, ids[0])
				}
				return ids, more
			}
		}), []string{"an event is fanned out once it has left the outbox, and once only"}},
		{
			"makes deliveries due a second later", fanOutParams(func(p *webhook.FanOutParams) { p.Now = p.Now.Add(time.Second) }),
			[]string{"every matching endpoint gets one delivery, due now"},
		},
		{
			"takes more entries than asked for", fanOutParams(func(p *webhook.FanOutParams) { p.MaxEvents = plenty }),
			[]string{"no more entries are taken than asked for, the oldest first"},
		},
		{
			"writes more deliveries than asked for", fanOutParams(func(p *webhook.FanOutParams) { p.MaxDeliveries = plenty }),
			[]string{
				"no more deliveries are written than asked for, and the rest follows",
				"an event with many endpoints proceeds in steps and reaches each once",
				"an endpoint deleted half-way gets nothing from the later steps",
			},
		},
		{
			"counts nothing", fanOutResult(func(r *webhook.FanOutResult) { *r = webhook.FanOutResult{Events: r.Events, Finished: r.Finished} }),
			[]string{"the result tells what was done"},
		},
		{
			"says that there is more when there is nothing", fanOutResult(func(r *webhook.FanOutResult) { r.More = true }),
			[]string{"an empty outbox gives an empty result"},
		},
		{
			"never says that an event is in the outbox", readEvent(func(e *webhook.EventStatus) { e.FannedOut = true }),
			[]string{"an event is fanned out once it has left the outbox, and once only"},
		},
		{
			"forgets that an event was unmatched", readEvent(func(e *webhook.EventStatus) { e.Unmatched = false }),
			[]string{"an event without any endpoint is recorded as unmatched"},
		},
		{"compares tenants as people do", hooked(func(m *hookedMatcher) {
			m.match = func(dst []uuid.UUID, e *webhook.EventRecord, after uuid.UUID, limit int) ([]uuid.UUID, bool) {
				loose := *e
				loose.Tenant = strings.ToLower(strings.TrimSpace(e.Tenant))
				return m.Matcher.Match(dst, &loose, after, limit)
			}
		}), []string{"an event reaches endpoints of its own tenant only"}},
		{"takes the nameless tenant for all tenants", func(s *store) {
			s.getEvent = func(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.EventStatus, error) {
				if tenant, ok := scope.Tenant(); ok && tenant == "" {
					return webhook.EventStatus{}, webhook.ErrNotFound
				}
				return s.Store.GetEvent(ctx, scope, id)
			}
		}, []string{"the tenant with the empty name is a tenant like any other"}},
		{"keeps endpoints that are not active from the matcher", applying(filterEndpoints(func(e webhook.EndpointRecord) bool {
			return e.State == webhook.EndpointActive
		})), []string{"paused and disabled endpoints get deliveries, deleted ones none"}},
		{"keeps deletions from the matcher", applying(filterEndpoints(func(e webhook.EndpointRecord) bool {
			return e.DeletedAt.IsZero()
		})), []string{"a stale matcher hears of every kind of change", "an endpoint deleted half-way gets nothing from the later steps"}},
		{"tells the matcher of the first hundred changes only", applying(func(all []webhook.EndpointRecord) []webhook.EndpointRecord {
			return all[:min(len(all), 100)]
		}), []string{"a matcher that knows nothing is told of every endpoint there is"}},
		{"tells the matcher half of an endpoint", applying(func(all []webhook.EndpointRecord) []webhook.EndpointRecord {
			for i := range all {
				all[i].Options = nil
			}
			return all
		}), []string{"an endpoint comes to the matcher as it is stored"}},
		{"trusts a stale matcher", hooked(func(m *hookedMatcher) {
			m.apply = func(endpoints []webhook.EndpointRecord, revision int64) error {
				if m.Matcher.Revision() >= 0 {
					return nil
				}
				return m.Matcher.Apply(endpoints, revision)
			}
		}), []string{
			"an endpoint created before the event's commit is matched by a stale matcher",
			"a stale matcher hears of every kind of change",
			"an endpoint created while the event's transaction is open is matched",
		}},
		{"reads the endpoints before the entries", func(s *store) {
			s.fanOut = func(ctx context.Context, p webhook.FanOutParams) (webhook.FanOutResult, error) {
				endpoints, revision, err := s.Store.ChangedEndpoints(ctx, p.Matcher.Revision(), plenty)
				if err != nil {
					return webhook.FanOutResult{}, err
				}
				time.Sleep(time.Millisecond) // a round trip
				return throughMatcher(s, func(m *hookedMatcher) {
					m.apply = func([]webhook.EndpointRecord, int64) error { return m.Matcher.Apply(endpoints, revision) }
				})(ctx, p)
			}
		}, []string{"concurrent creation of endpoints and events never leaves an endpoint out"}},
		{"brings the matcher up to a revision that is not the present one", hooked(func(m *hookedMatcher) {
			m.apply = func(endpoints []webhook.EndpointRecord, revision int64) error {
				return m.Matcher.Apply(endpoints, revision-1)
			}
		}), []string{"the matcher is brought up to the present revision before it matches"}},
		{"tells the matcher everything every time", hooked(func(m *hookedMatcher) {
			m.revision = func() int64 { return -1 }
		}), []string{"a matcher that is up to date is told nothing"}},
		{"never loads payloads", hooked(func(m *hookedMatcher) {
			m.wantsPayload = func() bool { return false }
		}), []string{"an event comes to the matcher as it was enqueued"}},
		{"ignores an error of the matcher", hooked(func(m *hookedMatcher) {
			m.apply = func(endpoints []webhook.EndpointRecord, revision int64) error {
				_ = m.Matcher.Apply(endpoints, revision)
				return nil
			}
		}), []string{
			"an error of the matcher leaves everything as it was",
			"a cancelled fan-out leaves everything as it was",
		}},
		{"takes a panic of the matcher for no match", hooked(func(m *hookedMatcher) {
			m.match = func(dst []uuid.UUID, e *webhook.EventRecord, after uuid.UUID, limit int) (ids []uuid.UUID, more bool) {
				defer func() { _ = recover() }()
				return m.Matcher.Match(dst, e, after, limit)
			}
		}), []string{"a panic of the matcher leaves everything as it was"}},
		{"begins again with every step of a large event", hooked(func(m *hookedMatcher) {
			m.match = func(dst []uuid.UUID, e *webhook.EventRecord, _ uuid.UUID, limit int) ([]uuid.UUID, bool) {
				return m.Matcher.Match(dst, e, uuid.Nil, limit)
			}
		}), []string{"an event with many endpoints proceeds in steps and reaches each once", "another process goes on where one stopped"}},
		{"keeps in the process where a large event stopped", func(s *store) {
			s.fanOut = throughMatcher(s, func(m *hookedMatcher) {
				fresh := m.Matcher.Revision() < 0
				m.match = func(dst []uuid.UUID, e *webhook.EventRecord, after uuid.UUID, limit int) ([]uuid.UUID, bool) {
					if fresh {
						after = uuid.Nil
					}
					return m.Matcher.Match(dst, e, after, limit)
				}
			})
		}, []string{"another process goes on where one stopped"}},
		{"finishes a large event before others", func(s *store) {
			s.fanOut = func(ctx context.Context, p webhook.FanOutParams) (webhook.FanOutResult, error) {
				total, err := s.Store.FanOut(ctx, p)
				for err == nil && total.Events > total.Finished {
					var next webhook.FanOutResult
					next, err = s.Store.FanOut(ctx, p)
					total.Events += next.Events
					total.Finished += next.Finished
					total.Deliveries += next.Deliveries
				}
				return total, err
			}
		}, []string{"an event with many endpoints proceeds in steps and reaches each once"}},
		{"lets only small events through", func(s *store) {
			s.fanOut = throughMatcher(s, func(m *hookedMatcher) {
				m.match = func(dst []uuid.UUID, e *webhook.EventRecord, after uuid.UUID, limit int) ([]uuid.UUID, bool) {
					if ids, more := m.Matcher.Match(nil, e, uuid.Nil, plenty); len(ids) > 4 || more {
						return dst, true
					}
					return m.Matcher.Match(dst, e, after, limit)
				}
			})
		}, []string{"a steady stream of events does not starve an event with many endpoints", "others pass an event with many endpoints"}},
		{"takes entries that did not fit in any order", func(s *store) {
			s.fanOut = throughMatcher(s, func(m *hookedMatcher) {
				calls := 0
				m.match = func(dst []uuid.UUID, e *webhook.EventRecord, after uuid.UUID, limit int) ([]uuid.UUID, bool) {
					calls++
					if calls == 1 {
						return dst, true // moved behind, though nothing was written
					}
					return m.Matcher.Match(dst, e, after, limit)
				}
			})
		}, []string{"events that the step had no room for keep their order"}},
		{"waits for the fan-out of another process", func(s *store) {
			turn := make(chan struct{}, 1)
			s.fanOut = func(ctx context.Context, p webhook.FanOutParams) (webhook.FanOutResult, error) {
				select {
				case turn <- struct{}{}:
					defer func() { <-turn }()
					return s.Store.FanOut(ctx, p)
				case <-ctx.Done():
					return webhook.FanOutResult{}, ctx.Err()
				}
			}
		}, []string{"entries that another process holds are passed over, not waited for"}},
		{"waits for open transactions of hosts", func(s *store) {
			var mu sync.Mutex
			var open []memTx
			s.insertEvents = func(ctx context.Context, tx memTx, events []webhook.EventRecord) ([]webhook.EnqueueResult, error) {
				mu.Lock()
				open = append(open, tx)
				mu.Unlock()
				return s.Store.InsertEvents(ctx, tx, events)
			}
			s.fanOut = func(ctx context.Context, p webhook.FanOutParams) (webhook.FanOutResult, error) {
				mu.Lock()
				defer mu.Unlock()
				for _, tx := range open {
					for len(tx.Enqueued()) > 0 && !committed(s, tx.Enqueued()[0].ID) {
						select {
						case <-ctx.Done():
							return webhook.FanOutResult{}, ctx.Err()
						case <-time.After(time.Millisecond):
						}
					}
				}
				return s.Store.FanOut(ctx, p)
			}
		}, []string{"fan-out does not wait for a host's open transaction"}},
	}
}
