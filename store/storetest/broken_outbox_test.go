package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// eachEvent makes InsertEvents change every event before it is written.
func eachEvent(change func(*webhook.EventRecord)) func(*store) {
	return func(s *store) {
		s.insertEvents = func(ctx context.Context, tx memTx, events []webhook.EventRecord) ([]webhook.EnqueueResult, error) {
			events = slices.Clone(events)
			for i := range events {
				change(&events[i])
			}
			return s.Store.InsertEvents(ctx, tx, events)
		}
	}
}

// readEvent makes GetEvent change what it returns.
func readEvent(change func(*webhook.EventStatus)) func(*store) {
	return func(s *store) {
		s.getEvent = func(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.EventStatus, error) {
			status, err := s.Store.GetEvent(ctx, scope, id)
			change(&status)
			return status, err
		}
	}
}

// keyTable decides duplicates outside of the transactions, as the callback says.
func keyTable(name func(webhook.EventRecord) string, taken func(*store, uuid.UUID) bool) func(*store) {
	return func(s *store) {
		var mu sync.Mutex
		first := map[string]uuid.UUID{}
		s.insertEvents = func(ctx context.Context, tx memTx, events []webhook.EventRecord) ([]webhook.EnqueueResult, error) {
			mu.Lock()
			defer mu.Unlock()
			var results []webhook.EnqueueResult
			for _, e := range events {
				key := name(e)
				if id, known := first[key]; known && e.IdempotencyKey != "" && taken(s, id) {
					results = append(results, webhook.EnqueueResult{EventID: id, Duplicate: true})
					continue
				}
				first[key] = e.ID
				e.IdempotencyKey = ""
				written, err := s.Store.InsertEvents(ctx, tx, []webhook.EventRecord{e})
				if err != nil {
					return nil, err
				}
				results = append(results, written...)
			}
			return results, nil
		}
	}
}

func tenantAndKey(e webhook.EventRecord) string { return e.Tenant + "/" + e.IdempotencyKey }
func keyAlone(e webhook.EventRecord) string     { return e.IdempotencyKey }
func always(*store, uuid.UUID) bool             { return true }
func committed(s *store, id uuid.UUID) bool {
	_, err := s.Store.GetEvent(context.Background(), webhook.AllTenants(), id)
	return err == nil
}

func brokenOutbox() []broken {
	return []broken{
		{"loses the trace of events", eachEvent(func(e *webhook.EventRecord) { e.TraceParent = "" }), []string{"a claim brings the trace that an event was enqueued in"}},
		{"writes in a transaction of its own", func(s *store) {
			s.insertEvents = func(ctx context.Context, _ memTx, events []webhook.EventRecord) ([]webhook.EnqueueResult, error) {
				tx := s.Store.Begin()
				results, err := s.Store.InsertEvents(ctx, tx, events)
				return results, errors.Join(err, tx.Commit())
			}
		}, []string{
			"an event appears when its transaction commits",
			"a rolled-back event never appears",
			"the transaction stays the host's",
			"a rolled-back key is free again",
			"a key's twin is waited for and forgotten once it rolls back",
			"fan-out beside transactions of all lengths misses nothing and invents nothing",
		}},
		{"ends the host's transaction", func(s *store) {
			s.insertEvents = func(ctx context.Context, tx memTx, events []webhook.EventRecord) ([]webhook.EnqueueResult, error) {
				results, err := s.Store.InsertEvents(ctx, tx, events)
				return results, errors.Join(err, tx.Commit())
			}
		}, []string{"the transaction stays the host's", "a call without events does nothing"}},
		{"breaks the host's transaction with a duplicate", func(s *store) {
			s.insertEvents = func(ctx context.Context, tx memTx, events []webhook.EventRecord) ([]webhook.EnqueueResult, error) {
				results, err := s.Store.InsertEvents(ctx, tx, events)
				if slices.ContainsFunc(results, func(r webhook.EnqueueResult) bool { return r.Duplicate }) {
					return results, errors.Join(err, tx.Rollback())
				}
				return results, err
			}
		}, []string{"the transaction stays the host's"}},
		{"takes no call without events", func(s *store) {
			s.insertEvents = func(ctx context.Context, tx memTx, events []webhook.EventRecord) ([]webhook.EnqueueResult, error) {
				if len(events) == 0 {
					return nil, errors.New("syntax error at end of input")
				}
				return s.Store.InsertEvents(ctx, tx, events)
			}
		}, []string{"a call without events does nothing"}},
		{"loses a row of a large batch", func(s *store) {
			s.insertEvents = func(ctx context.Context, tx memTx, events []webhook.EventRecord) ([]webhook.EnqueueResult, error) {
				if len(events) < 1_000 {
					return s.Store.InsertEvents(ctx, tx, events)
				}
				last := len(events) - 1
				results, err := s.Store.InsertEvents(ctx, tx, events[:last])
				return append(results, webhook.EnqueueResult{EventID: events[last].ID}), err
			}
		}, []string{"ten thousand events are written by one call", "thousands of events with keys are written by one call"}},
		{"writes the events of a call in the order of their ids", func(s *store) {
			s.insertEvents = func(ctx context.Context, tx memTx, events []webhook.EventRecord) ([]webhook.EnqueueResult, error) {
				sorted := slices.Clone(events)
				slices.SortFunc(sorted, func(a, b webhook.EventRecord) int { return compareIDs(a.ID, b.ID) })
				written, err := s.Store.InsertEvents(ctx, tx, sorted)
				results := make([]webhook.EnqueueResult, len(events))
				for i, e := range events {
					for j := range written {
						if sorted[j].ID == e.ID {
							results[i] = written[j]
						}
					}
				}
				return results, err
			}
		}, []string{
			"the events of one call are taken in the order given",
			"the events of successive calls and transactions are taken in that order",
		}},
		{"returns the duplicates last", func(s *store) {
			s.insertEvents = func(ctx context.Context, tx memTx, events []webhook.EventRecord) ([]webhook.EnqueueResult, error) {
				results, err := s.Store.InsertEvents(ctx, tx, events)
				slices.SortStableFunc(results, func(a, b webhook.EnqueueResult) int {
					if a.Duplicate == b.Duplicate {
						return 0
					}
					if b.Duplicate {
						return -1
					}
					return 1
				})
				return results, err
			}
		}, []string{"results stand in the order of the events, duplicates among them"}},
		{"rewrites payloads", eachEvent(func(e *webhook.EventRecord) {
			var compact bytes.Buffer
			if json.Compact(&compact, e.Payload) == nil {
				e.Payload = compact.Bytes()
			}
		}), []string{"a payload is kept byte for byte", "a due delivery is claimed with the event that it carries"}},
		{"keeps payloads as text", eachEvent(func(e *webhook.EventRecord) {
			e.Payload = bytes.ToValidUTF8(e.Payload, nil)
		}), []string{"a payload is kept byte for byte"}},
		{
			"forgets the resource's version", eachEvent(func(e *webhook.EventRecord) { e.ResourceVersion = 0 }),
			[]string{"all fields of an event are kept but its idempotency key", "an event comes to the matcher as it was enqueued"},
		},
		{
			"keeps times to the millisecond", eachEvent(func(e *webhook.EventRecord) { e.CreatedAt = e.CreatedAt.Truncate(time.Millisecond) }),
			[]string{"a time is kept to the microsecond and returned in UTC"},
		},
		{"returns times in the zone of the server", readEvent(func(e *webhook.EventStatus) {
			e.CreatedAt = e.CreatedAt.In(time.FixedZone("server", 3600))
		}), []string{"a time is kept to the microsecond and returned in UTC"}},
		{"stores the zero time", eachEvent(func(e *webhook.EventRecord) {
			if e.CreatedAt.IsZero() {
				e.CreatedAt = time.Unix(0, 0)
			}
		}), []string{"an event without a creation time gets the database's"}},
		{"ignores idempotency keys", eachEvent(func(e *webhook.EventRecord) { e.IdempotencyKey = "" }), []string{
			"a key that is taken in the database gives the first event's id",
			"a key that an earlier event of the call has gives that event's id",
			"a key that the transaction itself has taken gives the first event's id",
			"a key's twin is waited for and is the first event once it commits",
			"of many that race for a key exactly one writes, and all hear of it",
			"calls with the same keys in opposite order do not deadlock",
		}},
		{"takes every event of a tenant for one with a key", eachEvent(func(e *webhook.EventRecord) {
			if e.IdempotencyKey == "" {
				e.IdempotencyKey = "none"
			}
		}), []string{"events without a key are never duplicates"}},
		{"shares keys between tenants", keyTable(keyAlone, always), []string{"tenants do not share keys"}},
		{"takes the key of an uncommitted event for taken", keyTable(tenantAndKey, always), []string{
			"a rolled-back key is free again",
			"a key's twin is waited for and forgotten once it rolls back",
		}},
		{"takes the key of an uncommitted event for free", keyTable(tenantAndKey, committed), []string{
			"a key's twin is waited for and is the first event once it commits",
			"a key that the transaction itself has taken gives the first event's id",
		}},
		{"overwrites the first event with its duplicate", func(s *store) {
			var mu sync.Mutex
			twins := map[uuid.UUID][]byte{}
			s.insertEvents = func(ctx context.Context, tx memTx, events []webhook.EventRecord) ([]webhook.EnqueueResult, error) {
				results, err := s.Store.InsertEvents(ctx, tx, events)
				mu.Lock()
				defer mu.Unlock()
				for i, r := range results {
					if r.Duplicate {
						twins[r.EventID] = events[i].Payload
					}
				}
				return results, err
			}
			s.getEvent = func(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.EventStatus, error) {
				status, err := s.Store.GetEvent(ctx, scope, id)
				mu.Lock()
				defer mu.Unlock()
				if payload, overwritten := twins[id]; overwritten {
					status.Payload = payload
				}
				return status, err
			}
		}, []string{"a duplicate changes nothing of the first event"}},
		{"takes keys one after another in the order of the call", func(s *store) {
			s.insertEvents = func(ctx context.Context, tx memTx, events []webhook.EventRecord) ([]webhook.EnqueueResult, error) {
				var results []webhook.EnqueueResult
				for _, e := range events {
					written, err := s.Store.InsertEvents(ctx, tx, []webhook.EventRecord{e})
					if err != nil {
						return nil, err
					}
					results = append(results, written...)
					time.Sleep(50 * time.Microsecond) // a round trip, so that calls meet half-way
				}
				return results, nil
			}
		}, []string{"calls with the same keys in opposite order do not deadlock"}},
		{"lets one transaction at a time enqueue", func(s *store) {
			writer := make(chan struct{}, 1)
			var mu sync.Mutex
			var holder memTx
			s.insertEvents = func(ctx context.Context, tx memTx, events []webhook.EventRecord) ([]webhook.EnqueueResult, error) {
				mu.Lock()
				mine := holder == tx
				mu.Unlock()
				if !mine {
					select {
					case writer <- struct{}{}:
					case <-ctx.Done():
						return nil, ctx.Err()
					}
					mu.Lock()
					holder = tx
					mu.Unlock()
				}
				return s.Store.InsertEvents(ctx, tx, events)
			}
		}, []string{"open transactions with other keys do not wait for each other"}},
		{"reads the outbox by a cursor and misses late commits", func(s *store) {
			last := int64(0)
			s.fanOut = throughMatcher(s, func(m *hookedMatcher) {
				match := m.match
				m.match = func(dst []uuid.UUID, e *webhook.EventRecord, after uuid.UUID, limit int) ([]uuid.UUID, bool) {
					if e.Sequence < last {
						return dst, false
					}
					last = e.Sequence
					return match(dst, e, after, limit)
				}
			})
		}, []string{"an event that commits later than one enqueued after it is not missed"}},
	}
}
