package sqlite_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

// Field report B60: what the queue held open while it sent was in the way of the host's
// own writes. Receivers here answer when the host has written, and not before.
func TestB60NoTransactionIsOpenWhileRequestsAre(t *testing.T) {
	t.Parallel()
	const inFlight = 8
	store, db := newStore(t)
	transport, err := webhook.NewTransport(webhook.TransportConfig{
		Allow: []webhook.AllowRule{{
			Prefix: netip.MustParsePrefix("127.0.0.1/32"), Ports: []webhook.PortRange{{From: 1024, To: 65535}},
		}},
		AllowHTTP: true,
	})
	require.NoError(t, err)
	hooks, err := webhook.New(store, webhook.Config{Secrets: webhook.NewKeyring(webhook.NewKey("test")), Transport: transport})
	require.NoError(t, err)
	defer hooks.Close()
	var hanging atomic.Int64
	written := make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		hanging.Add(1)
		defer hanging.Add(-1)
		select {
		case <-written:
		case <-r.Context().Done():
		}
	}))
	defer receiver.Close()
	defer transport.CloseIdleConnections()
	_, err = hooks.Endpoints().Create(t.Context(), webhook.EndpointParams{
		Tenant: "acme", URL: receiver.URL, Types: []string{"*"}, MaxInFlight: inFlight, Timeout: 30 * time.Second,
	})
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "CREATE TABLE orders (id INTEGER PRIMARY KEY)")
	require.NoError(t, err)
	order := func() error {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(t.Context(), "INSERT INTO orders DEFAULT VALUES"); err != nil {
			return err
		}
		if _, err := hooks.Enqueue(t.Context(), tx, webhook.Event{Tenant: "acme", Type: "order.paid", Payload: []byte(`{}`)}); err != nil {
			return err
		}
		return tx.Commit()
	}
	for range inFlight {
		require.NoError(t, order())
	}
	d, err := hooks.NewDispatcher(webhook.DispatcherConfig{Breaker: webhook.BreakerConfig{MaxLatency: -1}, Isolation: webhook.IsolationConfig{SlowAfter: -1}})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	// An endpoint without a success yet begins with two.
	require.Eventually(t, func() bool { return hanging.Load() >= 2 }, 20*time.Second, time.Millisecond)

	require.NoError(t, order(), "the host writes while requests hang")
	assert.Eventually(t, func() bool { // a reader that stayed would be in its way
		var busy, pages, moved int
		err := db.QueryRowContext(t.Context(), "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &pages, &moved)
		return err == nil && busy == 0
	}, 20*time.Second, 5*time.Millisecond)
	assert.GreaterOrEqual(t, hanging.Load(), int64(2), "they hung all the while")
	close(written)

	require.EventuallyWithT(t, func(c *assert.CollectT) {
		page, err := hooks.Deliveries().List(t.Context(), webhook.DeliveryQuery{Scope: webhook.AllTenants(), State: webhook.StateDelivered})
		require.NoError(c, err)
		require.Len(c, page.Deliveries, inFlight+1)
	}, 30*time.Second, 10*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
}
