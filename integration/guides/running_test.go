package guides_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/integration/guides"
	"github.com/outhook/webhook/internal/pgtest"
	"github.com/outhook/webhook/store/postgres"
)

func TestADispatcherStopsWhenItIsTerminated(t *testing.T) { //nolint:paralleltest // the signal is for the process
	pool, _ := withInvoices(t)
	store := postgres.New(pool)
	require.NoError(t, store.Migrate(t.Context()))
	hooks := toLoopback(t, store)
	probes := http.NewServeMux()
	ended := make(chan error, 1)
	go func() { ended <- guides.RunUntilTerminated(t.Context(), hooks, probes) }()
	ready := func() int {
		w := httptest.NewRecorder()
		probes.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/ready", http.NoBody))
		return w.Code
	}
	require.Eventually(t, func() bool { return ready() == http.StatusOK }, 30*time.Second, 10*time.Millisecond)

	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGTERM))

	require.NoError(t, <-ended)
	assert.Equal(t, http.StatusServiceUnavailable, ready())
}

// kept collects what a receiver keeps.
type kept struct {
	mu       sync.Mutex
	versions []int64
}

func (k *kept) keep(_ string, version int64, _ string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.versions = append(k.versions, version)
}

func (k *kept) got() []int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]int64(nil), k.versions...)
}

func TestAReceiverKeepsTheNewestOfOrderedEvents(t *testing.T) {
	t.Parallel()
	direct := pgtest.New(t)
	pool, opened, err := guides.OpenBehindPooler(t.Context(), pgtest.StartPooler(t, direct).URL(t), direct, keys)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	opened.Close()
	store := postgres.New(pool)
	require.NoError(t, store.Migrate(t.Context()))
	hooks := toLoopback(t, store)
	k := new(kept)
	var handler http.Handler
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	defer server.Close()
	secret, err := guides.SubscribeOrdered(t.Context(), hooks, "acme", server.URL)
	require.NoError(t, err)
	handler = guides.NewReceiver(secret, k.keep)
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		for _, version := range []int64{1, 2, 2, 1, 3} { // a service that tells twice, and late
			if _, err := hooks.Enqueue(t.Context(), tx, guides.Changed("o_1", version, "open")); err != nil {
				return err
			}
		}
		return nil
	}))
	d, err := hooks.NewDispatcher(guides.ForPlans(func(string) string { return "free" }))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()

	require.Eventually(t, func() bool {
		page, err := hooks.Deliveries().List(t.Context(), webhook.DeliveryQuery{Scope: webhook.AllTenants(), State: webhook.StateDelivered})
		return err == nil && len(page.Deliveries) == 5
	}, 30*time.Second, 20*time.Millisecond)
	stop()
	require.NoError(t, <-ended)

	assert.Equal(t, []int64{1, 2, 3}, k.got())
}

func TestPlansAreWorthSomething(t *testing.T) {
	t.Parallel()
	cfg := guides.ForPlans(func(tenant string) string { return tenant })

	assert.Greater(t, cfg.TenantLimits("enterprise").Weight, cfg.TenantLimits("free").Weight)
	assert.Zero(t, cfg.TenantLimits("other"))
}
