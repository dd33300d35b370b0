package postgres_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/pgtest"
	"github.com/outhook/webhook/store/postgres"
	"github.com/outhook/webhook/store/storetest"
)

// pgxModes are ways in which a host's pool may run statements: with named
// prepared statements, or with none.
var pgxModes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement,
	pgx.QueryExecModeSimpleProtocol,
}

func TestConformance(t *testing.T) {
	t.Parallel()

	for _, mode := range pgxModes {
		t.Run("pgx "+mode.String(), func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, storetest.Harness[pgx.Tx]{
				Open: func(t testing.TB) storetest.Database[pgx.Tx] {
					return &pgxDatabase{pool: openPool(t, migrated(t), mode)}
				},
				OpenOutdated: func(t testing.TB) storetest.Database[pgx.Tx] {
					return &pgxDatabase{pool: openPool(t, pgtest.New(t), mode)}
				},
				OpenNewer: func(t testing.TB) storetest.Database[pgx.Tx] {
					return &pgxDatabase{pool: openPool(t, newer(t), mode)}
				},
				Notifications: true,
			})
		})
	}

	t.Run("pgx through a transaction pooler", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, storetest.Harness[pgx.Tx]{
			Open: func(t testing.TB) storetest.Database[pgx.Tx] {
				url := migrated(t)
				direct, err := pgx.ParseConfig(url)
				require.NoError(t, err)
				pool, err := pgxpool.NewWithConfig(t.Context(), pgtest.StartPooler(t, url).Config(t, pgx.QueryExecModeExec))
				require.NoError(t, err)
				t.Cleanup(pool.Close)
				return &pgxDatabase{pool, postgres.Config{ListenConn: direct}}
			},
			Notifications: true,
		})
	})

	t.Run("database sql", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, storetest.Harness[*sql.Tx]{
			Open: func(t testing.TB) storetest.Database[*sql.Tx] {
				return openSQLDatabase(t, migrated(t))
			},
			OpenOutdated: func(t testing.TB) storetest.Database[*sql.Tx] {
				return openSQLDatabase(t, pgtest.New(t))
			},
			OpenNewer: func(t testing.TB) storetest.Database[*sql.Tx] {
				return openSQLDatabase(t, newer(t))
			},
			Notifications: true,
		})
	})
}

// pgxDatabase is a database as hosts with pgx use it.
type pgxDatabase struct {
	pool   *pgxpool.Pool
	config postgres.Config
}

func (d *pgxDatabase) Connect(t testing.TB) webhook.Store[pgx.Tx] {
	store, err := postgres.NewWithConfig(d.pool, d.config)
	require.NoError(t, err)
	return store
}

func (d *pgxDatabase) Begin(ctx context.Context) (pgx.Tx, error)     { return d.pool.Begin(ctx) }
func (d *pgxDatabase) Commit(ctx context.Context, tx pgx.Tx) error   { return tx.Commit(ctx) }
func (d *pgxDatabase) Rollback(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) }

// sqlDatabase is a database as hosts with database/sql use it.
type sqlDatabase struct {
	db     *sql.DB
	config *pgx.ConnConfig
}

func openSQLDatabase(t testing.TB, url string) *sqlDatabase {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return &sqlDatabase{db: db, config: config}
}

func (d *sqlDatabase) Connect(t testing.TB) webhook.Store[*sql.Tx] {
	store, err := postgres.NewSQLWithConfig(d.db, postgres.Config{ListenConn: d.config})
	require.NoError(t, err)
	return store
}

func (d *sqlDatabase) Begin(ctx context.Context) (*sql.Tx, error)   { return d.db.BeginTx(ctx, nil) }
func (d *sqlDatabase) Commit(_ context.Context, tx *sql.Tx) error   { return tx.Commit() }
func (d *sqlDatabase) Rollback(_ context.Context, tx *sql.Tx) error { return tx.Rollback() }
