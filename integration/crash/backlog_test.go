package crash_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/pgtest"
	"github.com/outhook/webhook/store/postgres"
)

// circuits counts what becomes of circuits.
type circuits struct{ opened, closed, flapped atomic.Int64 }

func (c *circuits) AttemptDone(webhook.AttemptReport)     {}
func (c *circuits) FanOutDone(webhook.FanOutReport)       {}
func (c *circuits) ClaimDone(webhook.ClaimReport)         {}
func (c *circuits) ReplayAdvanced(webhook.ReplayReport)   {}
func (c *circuits) StateSampled(webhook.DispatcherSample) {}

func (c *circuits) CircuitChanged(r webhook.CircuitReport) {
	switch {
	case r.State == webhook.CircuitClosed:
		c.closed.Add(1)
	case r.Flapped:
		c.flapped.Add(1)
	default:
		c.opened.Add(1)
	}
}

// Field report B36: when a receiver came back, all that had piled up was loaded at once
// and took the database down. The long run has 12,000 payloads of 32 KiB.
//
// It runs alone, since it measures the memory of this process.
func TestB36ABacklogOfLargePayloadsIsNeverLoadedWhole(t *testing.T) { //nolint:paralleltest // see above
	events := 500
	if os.Getenv("WEBHOOK_LONG") != "" {
		events = 12_000
	}
	const size, inFlight = 32 << 10, 5
	pool := pgtest.Pool(t)
	store := postgres.New(pool)
	require.NoError(t, store.Migrate(t.Context()))
	hooks, err := webhook.New(store, options{}.config())
	require.NoError(t, err)
	defer hooks.Close()
	var up atomic.Bool
	var arrived, most atomic.Int64
	var now atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		if !up.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		arrived.Add(1)
	}))
	defer server.Close()
	_, err = hooks.Endpoints().Create(t.Context(), webhook.EndpointParams{Tenant: "acme", URL: server.URL, Types: []string{"*"}, MaxInFlight: inFlight})
	require.NoError(t, err)
	payload := fmt.Appendf(nil, `{"padding":%q}`, strings.Repeat("x", size))
	for left := events; left > 0; left -= 100 {
		many := make([]webhook.Event, min(left, 100))
		for i := range many {
			many[i] = webhook.Event{Tenant: "acme", Type: "order.placed", Payload: payload}
		}
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := hooks.EnqueueMany(t.Context(), tx, many)
			return err
		}))
	}
	told := new(circuits)
	d, err := hooks.NewDispatcher(webhook.DispatcherConfig{
		Breaker:  webhook.BreakerConfig{OpenFor: 500 * time.Millisecond, MaxOpenFor: 500 * time.Millisecond, SlowStartEvery: 200 * time.Millisecond},
		Observer: told, PollInterval: 200 * time.Millisecond,
		Retry: webhook.RetrySchedule{Delays: []time.Duration{time.Second, time.Second, time.Second, time.Second, time.Second, time.Second}},
	})
	require.NoError(t, err)
	before := heap()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	require.Eventually(t, func() bool { return told.opened.Load() > 0 }, 30*time.Second, time.Millisecond)
	up.Store(true)

	var grown uint64
	require.Eventually(t, func() bool {
		used := heap()
		grown = max(grown, used-min(before, used))
		return arrived.Load() >= int64(events)
	}, 5*time.Minute, 50*time.Millisecond)
	stop()
	require.NoError(t, <-ended)

	t.Logf("%d payloads of %d KiB; the heap grew by %d KiB", events, size>>10, grown>>10)
	assert.LessOrEqual(t, most.Load(), int64(inFlight))
	assert.Less(t, grown, uint64(events*size/2), "the backlog is not in memory")
	assert.Zero(t, told.flapped.Load(), "the circuit opened in the outage and not again")
}

// heap is how much is in use once what is not has been collected.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
