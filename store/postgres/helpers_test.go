package postgres_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/pgtest"
	"github.com/outhook/webhook/store/postgres"
)

// migrated returns the URL of a new database with the present schema.
func migrated(t testing.TB) string {
	t.Helper()
	var sql strings.Builder
	store := postgres.New(lazyPool(t))
	require.NoError(t, store.MigrationSQL(&sql, 0, store.LatestVersion()))
	sum := sha256.Sum256([]byte(sql.String()))
	return pgtest.NewFrom(t, pgtest.Template{
		Name: "store_" + hex.EncodeToString(sum[:8]),
		Prepare: func(ctx context.Context, databaseURL string) error {
			pool, err := pgxpool.New(ctx, databaseURL)
			if err != nil {
				return err
			}
			defer pool.Close()
			return postgres.New(pool).Migrate(ctx)
		},
	})
}

// newer returns the URL of a new database that a later version of the library
// has migrated.
func newer(t testing.TB) string {
	t.Helper()
	url := migrated(t)
	pool := openPool(t, url, pgx.QueryExecModeCacheStatement)
	_, err := pool.Exec(t.Context(), `INSERT INTO webhook.migration (version, name) SELECT max(version) + 1, 'later' FROM webhook.migration`)
	require.NoError(t, err)
	return url
}

func openPool(t testing.TB, url string, mode pgx.QueryExecMode) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	config.ConnConfig.DefaultQueryExecMode = mode
	config.MaxConns = 12
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// lazyPool is never connected: for what needs a store and no database.
func lazyPool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none")
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}
