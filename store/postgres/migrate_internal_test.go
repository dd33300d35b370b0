package postgres

import (
	"context"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outhook/webhook/internal/migration"
	"github.com/outhook/webhook/internal/pgtest"
)

// withOnline returns migrations of which the second builds an index concurrently,
// which PostgreSQL refuses in a transaction, and which waits for all others.
func withOnline(t *testing.T, second string) migrations {
	t.Helper()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	all, err := migration.Load(fstest.MapFS{
		"0001_a.up.sql":   file("-- mode: transactional\nCREATE TABLE {{schema}}.a (id int);\n\nINSERT INTO {{schema}}.a SELECT generate_series(1, 1000);\n"),
		"0001_a.down.sql": file("-- mode: transactional\nDROP TABLE {{schema}}.a;\n"),
		"0002_b.up.sql":   file("-- mode: online\n" + second + ";\n"),
		"0002_b.down.sql": file("-- mode: online\nDROP INDEX CONCURRENTLY IF EXISTS {{schema}}.a_idx;\n"),
	}, map[string]string{"schema": `"webhook"`})
	require.NoError(t, err)
	return all
}

const buildIndex = "CREATE INDEX CONCURRENTLY IF NOT EXISTS a_idx ON {{schema}}.a (id)"

func TestOnlineMigrationsRunOutsideOfATransaction(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	store := New(pool)
	store.migrations = withOnline(t, buildIndex)

	require.NoError(t, store.migrateSteps(t.Context(), 2))

	status, err := store.MigrationStatus(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, status.Current)
	assert.True(t, status.Migrations[1].Online)
	require.NoError(t, store.MigrateTo(t.Context(), 0))
}

// Those that wait for the lock must not be waited for by the index build.
func TestProcessesWaitForAnOnlineMigrationWithoutBlockingIt(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	var g errgroup.Group
	for range 4 {
		store := New(pgtest.Open(t, url))
		store.migrations = withOnline(t, buildIndex)
		g.Go(func() error { return store.migrateSteps(ctx, 2) })
	}

	require.NoError(t, g.Wait())
}

func TestAFailedMigrationLeavesTheVersionBeforeIt(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	store := New(pool)
	store.migrations = withOnline(t, "CREATE INDEX CONCURRENTLY IF NOT EXISTS a_idx ON {{schema}}.a (wrong)")

	err := store.migrateSteps(t.Context(), 2)

	require.ErrorContains(t, err, "0002_b.up")
	status, err := store.MigrationStatus(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, status.Current)

	store.migrations = withOnline(t, buildIndex)
	require.NoError(t, store.migrateSteps(t.Context(), 2), "and can be repeated")
}
