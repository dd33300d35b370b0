package postgres_test

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/pgtest"
	"github.com/outhook/webhook/store/postgres"
	"github.com/outhook/webhook/webhooktest"
)

func TestThePoolerOfTheseTestsKeepsNoSession(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPooler(t, pgtest.New(t))

	config := p.Config(t, pgx.QueryExecModeCacheStatement)
	c, err := pgx.ConnectConfig(t.Context(), config.ConnConfig)
	require.NoError(t, err)
	defer c.Close(t.Context())
	var failed error
	for range 4 {
		if _, err := c.Exec(t.Context(), "SELECT $1::int", 1); err != nil {
			failed = err
		}
	}
	require.ErrorContains(t, failed, "prepared statement", "a named statement is not found again")

	config.ConnConfig.RuntimeParams["application_name"] = "x"
	_, err = pgx.ConnectConfig(t.Context(), config.ConnConfig)
	require.ErrorContains(t, err, "unsupported startup parameter")
	require.NotErrorIs(t, err, io.EOF)
}

func TestMigratingThroughATransactionPooler(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.NewWithConfig(t.Context(), pgtest.StartPooler(t, pgtest.New(t)).Config(t, pgx.QueryExecModeExec))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	store := postgres.New(pool)

	require.NoError(t, store.Migrate(t.Context()))
	require.NoError(t, store.CheckSchema(t.Context()))
	require.NoError(t, store.MigrateTo(t.Context(), 0))
}

func TestListeningThroughATransactionPoolerFailsInsteadOfHearingNothing(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.NewWithConfig(t.Context(), pgtest.StartPooler(t, pgtest.New(t)).Config(t, pgx.QueryExecModeExec))
	require.NoError(t, err)
	t.Cleanup(pool.Close)

	err = postgres.New(pool).Listen(t.Context(), func() { t.Error("it is not ready") }, func(webhook.Signal) {})

	require.ErrorContains(t, err, "Config.ListenConn")
}

// Field report B08: everything from migrating to delivering, with nothing but a pooler
// between.
func TestB08ADispatcherRunsThroughATransactionPooler(t *testing.T) {
	t.Parallel()
	const events = 60
	pool, err := pgxpool.NewWithConfig(t.Context(), pgtest.StartPooler(t, pgtest.New(t)).Config(t, pgx.QueryExecModeExec))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	store := postgres.New(pool)
	require.NoError(t, store.Migrate(t.Context()))
	transport, err := webhook.NewTransport(webhook.TransportConfig{
		Allow: []webhook.AllowRule{{
			Prefix: netip.MustParsePrefix("127.0.0.1/32"), Ports: []webhook.PortRange{{From: 1024, To: 65535}},
		}},
		AllowHTTP: true,
	})
	require.NoError(t, err)
	t.Cleanup(transport.CloseIdleConnections)
	hooks, err := webhook.New(store, webhook.Config{Secrets: webhook.NewKeyring(webhook.NewKey("test")), Transport: transport})
	require.NoError(t, err)
	t.Cleanup(hooks.Close)
	receiver := webhooktest.NewReceiver(t)
	receiver.Respond(webhooktest.Status(500), webhooktest.Status(204))
	_, err = hooks.Endpoints().Create(t.Context(), webhook.EndpointParams{
		Tenant: "acme", URL: receiver.URL, Types: []string{"*"}, Ordering: webhook.OrderingPerResource,
	})
	require.NoError(t, err)
	d, err := hooks.NewDispatcher(webhook.DispatcherConfig{Retry: webhook.RetrySchedule{Delays: []time.Duration{time.Millisecond, time.Millisecond}}})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})

	for i := range events {
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := hooks.Enqueue(t.Context(), tx, webhook.Event{
				Tenant: "acme", Type: "order.paid", ResourceID: fmt.Sprint("o_", i%3), IdempotencyKey: fmt.Sprint(i), Payload: []byte(`{}`),
			})
			return err
		}))
	}

	require.EventuallyWithT(t, func(c *assert.CollectT) {
		page, err := hooks.Deliveries().List(t.Context(), webhook.DeliveryQuery{Scope: webhook.AllTenants(), State: webhook.StateDelivered, Limit: events})
		require.NoError(c, err)
		require.Len(c, page.Deliveries, events)
	}, time.Minute, 50*time.Millisecond)
	health := d.Health()
	require.NoError(t, health.Err())
	assert.False(t, health.Listening, "notifications do not come through it: everything was found by polling")
	assert.Len(t, receiver.Requests(), events+1, "one failed and was sent again")
}
