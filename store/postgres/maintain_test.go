package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/postgres"
)

func partitions(t *testing.T, pool *pgxpool.Pool, table string) []string {
	t.Helper()
	found, err := pool.Query(t.Context(), `
		SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = ('webhook.' || $1::text)::regclass ORDER BY 1`, table)
	require.NoError(t, err)
	names, err := pgx.CollectRows(found, pgx.RowTo[string])
	require.NoError(t, err)
	return names
}

func TestMaintainMakesAWeekOfPartitionsAhead(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), pgx.QueryExecModeCacheStatement)
	// Half an hour before midnight in UTC, and the next day elsewhere.
	later := time.Date(2099, 12, 29, 23, 30, 0, 0, time.UTC).In(time.FixedZone("", 3*60*60))

	var g errgroup.Group
	for range 4 {
		store := postgres.New(pool)
		g.Go(func() error { return store.Maintain(t.Context(), webhook.MaintainParams{Now: later}) })
	}
	require.NoError(t, g.Wait())

	for _, table := range []string{"attempt", "delivery_log", "delivery_dead"} {
		names := partitions(t, pool, table)
		assert.Subset(t, names, []string{table + "_20991229", table + "_20991231", table + "_21000105", table + "_default"})
		assert.NotContains(t, names, table+"_21000106")
	}
}

func TestAMissingPartitionBlocksNoInsert(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), pgx.QueryExecModeCacheStatement)
	store := postgres.New(pool)
	ids := newEndpoints(t, store, 1)
	insertEvents(t, pool, store, 1)
	fanOutAll(t, store, &everyEndpoint{ids})
	claimed, token := claimSome(t, store, ids)
	require.Len(t, claimed, 1)
	day := time.Date(2099, 1, 1, 12, 0, 0, 0, time.UTC)

	_, err := store.Record(t.Context(), webhook.RecordParams{Now: day, Results: []webhook.Result{{
		Lease: webhook.Lease{DeliveryID: claimed[0].DeliveryID, Token: token}, State: webhook.StateDelivered,
		Attempt: &webhook.Attempt{StartedAt: day, Number: 1},
	}}})
	require.NoError(t, err)

	// The day has begun in the default partition, so it stays there; others
	// get theirs, and nothing is lost.
	for range 2 {
		require.NoError(t, store.Maintain(t.Context(), webhook.MaintainParams{Now: day}))
		require.NoError(t, postgres.New(pool).Maintain(t.Context(), webhook.MaintainParams{Now: day}))
	}
	assert.NotContains(t, partitions(t, pool, "attempt"), "attempt_20990101")
	assert.Contains(t, partitions(t, pool, "attempt"), "attempt_20990102")
	attempts, err := store.ListAttempts(t.Context(), webhook.AllTenants(), claimed[0].DeliveryID)
	require.NoError(t, err)
	assert.Len(t, attempts, 1)
}

func TestMaintainGivesWayToReadersOfTheLog(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), pgx.QueryExecModeCacheStatement)
	store := postgres.New(pool)
	reader, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = reader.Exec(t.Context(), `SELECT FROM webhook.attempt LIMIT 1`)
	require.NoError(t, err)

	err = store.Maintain(t.Context(), webhook.MaintainParams{Now: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)})
	require.ErrorContains(t, err, "lock timeout", "it does not wait for ever")

	require.NoError(t, reader.Rollback(t.Context()))
	require.NoError(t, store.Maintain(t.Context(), webhook.MaintainParams{Now: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)}))
}
