package postgres_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/postgres"
)

// The benchmarks print rows per second and the CPU time that this side, without
// the server, spends on a row. Run each on a server with its usual settings:
//
//	WEBHOOK_TEST_POSTGRES=postgres://… go test ./store/postgres -run '^$' -bench . -benchtime 100000x

// everyEndpoint is a matcher that sends every event to the same endpoints.
type everyEndpoint struct{ ids []uuid.UUID }

func (m *everyEndpoint) Revision() int64                             { return int64(len(m.ids)) }
func (m *everyEndpoint) Apply([]webhook.EndpointRecord, int64) error { return nil }
func (m *everyEndpoint) WantsPayload() bool                          { return false }
func (m *everyEndpoint) Ordering(uuid.UUID) webhook.Ordering         { return webhook.OrderingNone }
func (m *everyEndpoint) Match(dst []uuid.UUID, _ *webhook.EventRecord, _ uuid.UUID, _ int) ([]uuid.UUID, bool) {
	return append(dst, m.ids...), false
}

// oneOf sends each event to one endpoint after the other.
type oneOf struct {
	everyEndpoint
	next int
}

func (m *oneOf) Match(dst []uuid.UUID, _ *webhook.EventRecord, _ uuid.UUID, _ int) ([]uuid.UUID, bool) {
	m.next++
	return append(dst, m.ids[m.next%len(m.ids)]), false
}

func newEvents(b testing.TB, n int) []webhook.EventRecord {
	b.Helper()
	payload := make([]byte, 1024)
	for i := range payload {
		payload[i] = 'a' + byte(i%26)
	}
	events := make([]webhook.EventRecord, n)
	for i := range events {
		events[i] = webhook.EventRecord{
			ID: uuid.Must(uuid.NewV7()), Tenant: "acme", Type: "invoice.paid", ResourceID: "in_9", ResourceVersion: 8,
			Payload: payload,
		}
	}
	return events
}

func insertEvents(b testing.TB, pool *pgxpool.Pool, store *postgres.Store, n int) {
	b.Helper()
	for n > 0 {
		batch := min(n, 10_000)
		require.NoError(b, pgx.BeginFunc(b.Context(), pool, func(tx pgx.Tx) error {
			_, err := store.InsertEvents(b.Context(), tx, newEvents(b, batch))
			return err
		}))
		n -= batch
	}
}

func newEndpoints(b testing.TB, store *postgres.Store, n int) []uuid.UUID {
	b.Helper()
	ids := make([]uuid.UUID, n)
	for i := range ids {
		e, err := store.CreateEndpoint(b.Context(), webhook.EndpointRecord{
			ID: uuid.Must(uuid.NewV7()), Tenant: "acme", URL: fmt.Sprintf("https://hooks.example/%d", i),
			Types: []string{"*"}, State: webhook.EndpointActive,
		})
		require.NoError(b, err)
		ids[i] = e.ID
	}
	return ids
}

func benchStore(b *testing.B) (*pgxpool.Pool, *postgres.Store) {
	b.Helper()
	pool := openPool(b, migrated(b), pgx.QueryExecModeCacheStatement)
	store := postgres.New(pool)
	now, err := store.Now(b.Context())
	require.NoError(b, err)
	require.NoError(b, store.Maintain(b.Context(), webhook.MaintainParams{Now: now}))
	return pool, store
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measure reports on rows that run handles.
func measure(b *testing.B, run func() (rows int)) {
	b.Helper()
	b.ResetTimer()
	start, before := time.Now(), cpu()
	rows := run()
	b.StopTimer()
	b.ReportMetric(float64(rows)/time.Since(start).Seconds(), "rows/s")
	b.ReportMetric(float64(cpu()-before)/float64(rows), "cpu-ns/row")
}

// Enqueue and commit, one event per transaction, on eight connections.
func BenchmarkEnqueue(b *testing.B) {
	for _, key := range []bool{false, true} {
		b.Run(fmt.Sprintf("key=%v", key), func(b *testing.B) {
			pool, store := benchStore(b)
			var left atomic.Int64
			left.Store(int64(b.N))
			measure(b, func() int {
				done := make(chan error, 8)
				for range 8 {
					go func() {
						done <- func() error {
							for left.Add(-1) >= 0 {
								events := newEvents(b, 1)
								if key {
									events[0].IdempotencyKey = events[0].ID.String()
								}
								err := pgx.BeginFunc(context.Background(), pool, func(tx pgx.Tx) error {
									_, err := store.InsertEvents(context.Background(), tx, events)
									return err
								})
								if err != nil {
									return err
								}
							}
							return nil
						}()
					}()
				}
				for range 8 {
					require.NoError(b, <-done)
				}
				return b.N
			})
		})
	}
}

func BenchmarkEnqueueMany(b *testing.B) {
	pool, store := benchStore(b)
	measure(b, func() int {
		insertEvents(b, pool, store, b.N)
		return b.N
	})
}

// Fan-out to 100 endpoints of one event, and to one of each.
func BenchmarkFanOut(b *testing.B) {
	for _, each := range []int{1, 100} {
		b.Run(fmt.Sprintf("endpoints=%d", each), func(b *testing.B) {
			pool, store := benchStore(b)
			var matcher webhook.Matcher = &everyEndpoint{newEndpoints(b, store, each)}
			if each == 1 {
				matcher = &oneOf{everyEndpoint: everyEndpoint{newEndpoints(b, store, 100)}}
			}
			insertEvents(b, pool, store, max(b.N/each, 1))
			measure(b, func() int { return fanOutAll(b, store, matcher) })
		})
	}
}

func fanOutAll(b testing.TB, store *postgres.Store, m webhook.Matcher) int {
	rows := 0
	for {
		now := time.Now()
		r, err := store.FanOut(b.Context(), webhook.FanOutParams{Now: now, MaxEvents: 1000, MaxDeliveries: 1000, Matcher: m})
		require.NoError(b, err)
		rows += r.Deliveries
		if r.Events == 0 {
			return rows
		}
	}
}

// Claim from 100 endpoints, 20 or fewer deliveries of each at once, and record.
func BenchmarkClaimAndRecord(b *testing.B) {
	for _, part := range []string{"claim", "record", "both"} {
		b.Run(part, func(b *testing.B) {
			pool, store := benchStore(b)
			endpoints := newEndpoints(b, store, 100)
			insertEvents(b, pool, store, b.N)
			fanOutAll(b, store, &oneOf{everyEndpoint: everyEndpoint{endpoints}})
			if part == "record" {
				var batches [][]webhook.Claimed
				var tokens []uuid.UUID
				for {
					c, token := claimSome(b, store, endpoints)
					if len(c) == 0 {
						break
					}
					batches, tokens = append(batches, c), append(tokens, token)
				}
				measure(b, func() int {
					for i, c := range batches {
						recordAll(b, store, c, tokens[i])
					}
					return b.N
				})
				return
			}
			measure(b, func() int {
				rows := 0
				for {
					c, token := claimSome(b, store, endpoints)
					if len(c) == 0 {
						return rows
					}
					rows += len(c)
					if part == "both" {
						recordAll(b, store, c, token)
					}
				}
			})
		})
	}
}

func claimSome(b testing.TB, store *postgres.Store, endpoints []uuid.UUID) ([]webhook.Claimed, uuid.UUID) {
	now := time.Now()
	p := webhook.ClaimParams{Now: now, LeaseUntil: now.Add(90 * time.Second), Token: uuid.Must(uuid.NewV7())}
	for _, id := range endpoints {
		p.Requests = append(p.Requests, webhook.ClaimRequest{EndpointID: id, Limit: 10})
	}
	c, err := store.Claim(b.Context(), p)
	require.NoError(b, err)
	return c, p.Token
}

func recordAll(b testing.TB, store *postgres.Store, claimed []webhook.Claimed, token uuid.UUID) {
	now := time.Now()
	p := webhook.RecordParams{Now: now}
	for i := range claimed {
		c := &claimed[i]
		p.Results = append(p.Results, webhook.Result{
			Lease: webhook.Lease{DeliveryID: c.DeliveryID, Token: token},
			State: webhook.StateDelivered,
			Attempt: &webhook.Attempt{
				DeliveryID: c.DeliveryID, EventID: c.Event.ID, EndpointID: c.EndpointID, Tenant: c.Event.Tenant,
				Number: 1, StartedAt: now, Latency: 12 * time.Millisecond, Status: 200,
				Excerpt: []byte("ok"), BodyHash: make([]byte, 32),
			},
		})
	}
	r, err := store.Record(b.Context(), p)
	require.NoError(b, err)
	require.Empty(b, r.Lost)
}
