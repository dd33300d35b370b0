package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/postgres"
)

func TestListenEndsWithAnErrorWhenItsConnectionIsCut(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), pgx.QueryExecModeCacheStatement)
	store := postgres.New(pool)
	ready, heard, done := make(chan struct{}), make(chan webhook.Signal, 10), make(chan error, 1)
	go func() {
		done <- store.Listen(t.Context(), func() { close(ready) }, func(s webhook.Signal) { heard <- s })
	}()
	<-ready
	require.NoError(t, store.Notify(t.Context(), webhook.SignalEvents))
	assert.Equal(t, webhook.SignalEvents, <-heard)

	exec(t, pool, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`)

	require.ErrorContains(t, <-done, "listening")
}

func TestListenEndsWithItsContext(t *testing.T) {
	t.Parallel()
	url := migrated(t)
	pool := openPool(t, url, pgx.QueryExecModeCacheStatement)
	direct, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	onPool := postgres.New(pool)
	onConn, err := postgres.NewWithConfig(pool, postgres.Config{ListenConn: direct})
	require.NoError(t, err)

	for name, store := range map[string]webhook.Notifier{"a connection of the pool": onPool, "one of its own": onConn} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- store.Listen(ctx, cancel, func(webhook.Signal) {}) }() // ends as soon as it is ready
		require.NoError(t, <-done, name)
		cancel()
	}
	assert.Eventually(t, func() bool { return pool.Stat().AcquiredConns() == 0 }, 30*time.Second, 5*time.Millisecond)
}

func TestSQLStoreWithoutAConnectionToListenOnLeavesItToPolling(t *testing.T) {
	t.Parallel()
	store := postgres.NewSQL(openSQLDatabase(t, migrated(t)).db)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- store.Listen(ctx, func() { t.Error("it cannot hear") }, func(webhook.Signal) {})
	}()
	require.NoError(t, store.Notify(t.Context(), webhook.SignalEvents), "others may hear")
	cancel()
	require.NoError(t, <-done)
}
