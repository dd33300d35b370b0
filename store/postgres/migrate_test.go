package postgres_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/pgtest"
	"github.com/outhook/webhook/store/postgres"
)

// describe lists what a schema consists of, but for the partitions, whose names
// are days.
func describe(t *testing.T, pool *pgxpool.Pool, schema string) []string {
	t.Helper()
	found, err := pool.Query(t.Context(), `
		SELECT replace(what, quote_ident($1), 'S') FROM (
			SELECT format('%s %s %s %s', c.relkind, c.relname, c.reloptions, pg_get_partkeydef(c.oid)) AS what
			FROM pg_class c WHERE c.relnamespace = to_regnamespace(quote_ident($1)) AND c.relname !~ '_\d{8}'
			UNION ALL
			SELECT format('%s.%s %s %s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
			              a.attcollation::regcollation, pg_get_expr(d.adbin, d.adrelid))
			FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
			LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
			WHERE c.relnamespace = to_regnamespace(quote_ident($1)) AND a.attnum > 0 AND NOT a.attisdropped AND c.relname !~ '_\d{8}'
			UNION ALL
			SELECT pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
			WHERE c.relnamespace = to_regnamespace(quote_ident($1)) AND c.relname !~ '_\d{8}'
			UNION ALL
			SELECT format('%s %s', conname, pg_get_constraintdef(oid)) FROM pg_constraint
			WHERE connamespace = to_regnamespace(quote_ident($1)) AND conrelid::regclass::text !~ '_\d{8}'
		) x (what) ORDER BY 1`, schema)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(found, pgx.RowTo[string])
	require.NoError(t, err)
	return lines
}

func TestMigrateTwiceIsANoOp(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	store := postgres.New(pool)
	require.ErrorIs(t, store.CheckSchema(t.Context()), webhook.ErrSchemaOutdated)

	require.NoError(t, store.Migrate(t.Context()))
	first := describe(t, pool, "webhook")
	status, err := store.MigrationStatus(t.Context())
	require.NoError(t, err)
	require.NoError(t, store.Migrate(t.Context()))

	again, err := store.MigrationStatus(t.Context())
	require.NoError(t, err)
	assert.Equal(t, status, again)
	assert.Equal(t, store.LatestVersion(), again.Current)
	assert.Equal(t, again.Latest, again.Current)
	assert.Len(t, again.Migrations, again.Latest)
	assert.WithinDuration(t, time.Now(), again.Migrations[0].AppliedAt, time.Minute)
	assert.Equal(t, "init", again.Migrations[0].Name)
	assert.Equal(t, first, describe(t, pool, "webhook"))
	require.NoError(t, store.CheckSchema(t.Context()))
}

func TestMigrationsGoDownToNothingAndUpAgain(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	store := postgres.New(pool)
	require.NoError(t, store.Migrate(t.Context()))
	before := describe(t, pool, "webhook")

	require.NoError(t, store.MigrateTo(t.Context(), 0))
	assert.Empty(t, describe(t, pool, "webhook"))
	status, err := store.MigrationStatus(t.Context())
	require.NoError(t, err)
	assert.Zero(t, status.Current)
	require.NoError(t, store.MigrateTo(t.Context(), 0), "there is nothing to do")

	require.NoError(t, store.Migrate(t.Context()))
	assert.Equal(t, before, describe(t, pool, "webhook"))
	var partitions int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_inherits WHERE inhparent = 'webhook.attempt'::regclass`).Scan(&partitions))
	assert.Equal(t, 9, partitions, "today's, a week's and the default one")
}

func TestProcessesMigrateAtOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)

	var g errgroup.Group
	for range 8 {
		store := postgres.New(openPool(t, url, pgx.QueryExecModeExec))
		g.Go(func() error { return store.Migrate(t.Context()) })
	}

	require.NoError(t, g.Wait())
	pool := openPool(t, url, pgx.QueryExecModeExec)
	var versions int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM webhook.migration`).Scan(&versions))
	assert.Equal(t, postgres.New(pool).LatestVersion(), versions)
}

func TestADatabaseOfANewerVersionIsLeftAlone(t *testing.T) {
	t.Parallel()
	store := postgres.New(openPool(t, newer(t), pgx.QueryExecModeCacheStatement))

	for _, err := range []error{
		store.Migrate(t.Context()), store.MigrateTo(t.Context(), 0), store.CheckSchema(t.Context()),
	} {
		require.ErrorIs(t, err, webhook.ErrSchemaNewer)
	}
	status, err := store.MigrationStatus(t.Context())
	require.NoError(t, err)
	assert.Equal(t, status.Latest+1, status.Current)
}

func TestSchemasOfOneDatabaseDoNotSeeOneAnother(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, `CREATE SCHEMA "order"`) // a reserved word, and made by someone else
	first := postgres.New(pool)
	require.NoError(t, first.Migrate(t.Context()))
	second, err := postgres.NewWithConfig(pool, postgres.Config{Schema: "order"})
	require.NoError(t, err)

	require.ErrorIs(t, second.CheckSchema(t.Context()), webhook.ErrSchemaOutdated)
	require.NoError(t, second.Migrate(t.Context()))

	assert.Equal(t, describe(t, pool, "webhook"), describe(t, pool, "order"))
	ids := newEndpoints(t, second, 1)
	insertEvents(t, pool, second, 3)
	assert.Equal(t, 3, fanOutAll(t, second, &everyEndpoint{ids}))
	claimed, token := claimSome(t, second, ids)
	assert.Len(t, claimed, 3)
	recordAll(t, second, claimed, token)
	_, err = second.ListDeliveries(t.Context(), webhook.ListDeliveriesParams{Scope: webhook.TenantScope("acme"), Limit: 1})
	require.NoError(t, err)
	assert.Zero(t, fanOutAll(t, first, &everyEndpoint{}))
	all, err := first.ListEndpoints(t.Context(), webhook.ListEndpointsParams{Scope: webhook.AllTenants(), Limit: 1})
	require.NoError(t, err)
	assert.Empty(t, all)

	require.NoError(t, first.MigrateTo(t.Context(), 0))
	require.NoError(t, second.CheckSchema(t.Context()))
}

func TestSchemaNamesAreChecked(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Webhook", "we-bhook", `we"bhook`, "1webhook", "wëbhook", "a.b", strings.Repeat("a", 49)} {
		_, err := postgres.NewWithConfig(lazyPool(t), postgres.Config{Schema: name})
		require.ErrorContains(t, err, "Config.Schema", name)
		require.ErrorIs(t, err, webhook.ErrInvalid)
	}
	_, err := postgres.NewWithConfig(lazyPool(t), postgres.Config{Schema: "_" + strings.Repeat("a", 47)})
	require.NoError(t, err)
}

func TestWhoForgetsToMigrateIsToldSo(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	store := postgres.New(pool)
	told := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, webhook.ErrSchemaOutdated)
		require.ErrorContains(t, err, "run Migrate")
		var failure *pgconn.PgError
		require.ErrorAs(t, err, &failure)
	}

	_, err := store.CreateEndpoint(t.Context(), webhook.EndpointRecord{Tenant: "acme"})
	told(err)
	_, err = store.GetEndpoint(t.Context(), webhook.AllTenants(), uuid.UUID{1})
	told(err)
	_, err = store.ListEndpoints(t.Context(), webhook.ListEndpointsParams{Limit: 1})
	told(err)
	for n := range 2 {
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = store.InsertEvents(t.Context(), tx, newEvents(t, 1+n))
		told(err)
		require.NoError(t, tx.Rollback(t.Context()))
	}
}

func TestNilIsRefusedByName(t *testing.T) {
	t.Parallel()
	_, err := postgres.NewWithConfig(nil, postgres.Config{})
	require.EqualError(t, err, "webhook: pool is nil")
	_, err = postgres.NewSQLWithConfig(nil, postgres.Config{})
	require.EqualError(t, err, "webhook: db is nil")
	require.PanicsWithError(t, "webhook: pool is nil", func() { postgres.New(nil) })
	require.PanicsWithError(t, "webhook: db is nil", func() { postgres.NewSQL(nil) })

	_, err = postgres.New(lazyPool(t)).InsertEvents(t.Context(), nil, []webhook.EventRecord{{}})
	require.EqualError(t, err, "webhook: tx is nil")
	_, err = postgres.NewSQL(new(sql.DB)).InsertEvents(t.Context(), nil, []webhook.EventRecord{{}})
	require.EqualError(t, err, "webhook: tx is nil")
}

func TestExportedSQLGivesTheSameSchema(t *testing.T) {
	t.Parallel()
	migratedPool := pgtest.Pool(t)
	store := postgres.New(migratedPool)
	require.NoError(t, store.Migrate(t.Context()))
	var up, down strings.Builder
	require.NoError(t, store.MigrationSQL(&up, 0, store.LatestVersion()))
	require.NoError(t, store.MigrationSQL(&down, store.LatestVersion(), 0))
	other := pgtest.Pool(t)

	exec(t, other, up.String()) // all statements in one message, as psql -f would send them

	assert.Equal(t, describe(t, migratedPool, "webhook"), describe(t, other, "webhook"))
	otherStore := postgres.New(other)
	require.NoError(t, otherStore.CheckSchema(t.Context()))
	require.NoError(t, otherStore.Migrate(t.Context()))
	exec(t, other, down.String())
	assert.Empty(t, describe(t, other, "webhook"))
	require.ErrorContains(t, store.MigrationSQL(&up, 0, 99), "no version 99")
}

func TestMigrateNeedsNoRightOnTheDatabaseWhenTheSchemaExists(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	pool := openPool(t, url, pgx.QueryExecModeCacheStatement)
	role := "plain_" + strings.ToLower(strings.NewReplacer("/", "_").Replace(t.Name()))[:20]
	exec(t, pool, `DROP ROLE IF EXISTS `+role)
	exec(t, pool, `CREATE ROLE `+role)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, sql := range []string{`DROP OWNED BY ` + role + ` CASCADE`, `DROP ROLE ` + role} {
			_, err := pool.Exec(ctx, sql)
			assert.NoError(t, err)
		}
	})
	exec(t, pool, `CREATE SCHEMA webhook AUTHORIZATION `+role)
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	config.ConnConfig.RuntimeParams["role"] = role
	limited, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(limited.Close)

	require.NoError(t, postgres.New(limited).Migrate(t.Context()))
}
