package guides_test

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	atlas "ariga.io/atlas/sql/migrate"
	"ariga.io/atlas/sql/sqltool"
	"github.com/golang-migrate/migrate/v4"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	_ "github.com/golang-migrate/migrate/v4/source/file"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/integration/guides"
	"github.com/outhook/webhook/internal/pgtest"
	"github.com/outhook/webhook/store/postgres"
	"github.com/outhook/webhook/store/sqlite"
	"github.com/outhook/webhook/webhooktest"
)

const createInvoices = `CREATE TABLE invoices (id text PRIMARY KEY, paid boolean NOT NULL DEFAULT false);
	INSERT INTO invoices (id) VALUES ('in_1')`

var keys = webhook.NewKeyring(webhook.NewKey("guides"))

func withInvoices(t *testing.T) (*pgxpool.Pool, *sql.DB) {
	t.Helper()
	pool := pgtest.Pool(t)
	_, err := pool.Exec(t.Context(), createInvoices)
	require.NoError(t, err)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	return pool, db
}

// toLoopback is hooks that reach a receiver on this machine.
func toLoopback[Tx any](t *testing.T, store webhook.Store[Tx]) *webhook.Hooks[Tx] {
	t.Helper()
	transport, err := webhook.NewTransport(webhook.TransportConfig{
		AllowHTTP: true,
		Allow:     []webhook.AllowRule{{Prefix: netip.MustParsePrefix("127.0.0.1/32")}},
	})
	require.NoError(t, err)
	hooks, err := webhook.New(store, webhook.Config{Secrets: keys, Transport: transport})
	require.NoError(t, err)
	t.Cleanup(hooks.Close)
	return hooks
}

// arrives subscribes a receiver, pays, and waits for the event.
func arrives[Tx any](t *testing.T, hooks *webhook.Hooks[Tx], pay func(context.Context) error) {
	t.Helper()
	r := webhooktest.NewReceiver(t)
	secret, err := guides.Subscribe(t.Context(), hooks, "acme", r.URL)
	require.NoError(t, err)
	require.NoError(t, pay(t.Context()))

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- guides.Dispatch(ctx, hooks) }()
	got := r.RequireRequests(t, 1, 30*time.Second)
	stop()
	require.NoError(t, <-ended)
	assert.JSONEq(t, `{"invoice":"in_1"}`, string(got[0].Body))
	r.Verify(t, secret)
}

func TestPgx(t *testing.T) {
	t.Setenv("WEBHOOK_KEY", "k1:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
	pool, _ := withInvoices(t)
	opened, err := guides.Open(t.Context(), pool)
	require.NoError(t, err)
	opened.Close()

	hooks := toLoopback(t, postgres.New(pool))
	arrives(t, hooks, func(ctx context.Context) error { return guides.Pay(ctx, pool, hooks, "in_1") })

	require.NoError(t, guides.Pay(t.Context(), pool, hooks, "in_1"), "once more, with the same key")
	n := 0
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM webhook.event`).Scan(&n))
	assert.Equal(t, 1, n)
}

func TestDatabaseSQLAndWhatIsBuiltOnIt(t *testing.T) {
	t.Parallel()
	for name, pay := range map[string]func(context.Context, *sql.DB, *webhook.Hooks[*sql.Tx]) error{
		"database/sql": func(ctx context.Context, db *sql.DB, hooks *webhook.Hooks[*sql.Tx]) error {
			return guides.PaySQL(ctx, db, hooks, "in_1")
		},
		"sqlx": func(ctx context.Context, db *sql.DB, hooks *webhook.Hooks[*sql.Tx]) error {
			return guides.PaySQLX(ctx, sqlx.NewDb(db, "pgx"), hooks, "in_1")
		},
		"bun": func(ctx context.Context, db *sql.DB, hooks *webhook.Hooks[*sql.Tx]) error {
			return guides.PayBun(ctx, bun.NewDB(db, pgdialect.New()), hooks, "in_1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, db := withInvoices(t)
			opened, err := guides.OpenSQL(t.Context(), db, keys)
			require.NoError(t, err)
			opened.Close()
			hooks := toLoopback(t, postgres.NewSQL(db))
			arrives(t, hooks, func(ctx context.Context) error { return pay(ctx, db, hooks) })
			paid := false
			require.NoError(t, db.QueryRow(`SELECT paid FROM invoices`).Scan(&paid))
			assert.True(t, paid)
		})
	}
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	db, opened, err := guides.OpenSQLite(t.Context(), filepath.Join(t.TempDir(), "app.db"), keys)
	require.NoError(t, err)
	opened.Close()
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	_, err = db.Exec(createInvoices)
	require.NoError(t, err)
	hooks := toLoopback(t, sqlite.New(db))
	arrives(t, hooks, func(ctx context.Context) error { return guides.PaySQL(ctx, db, hooks, "in_1") })
}

func TestGooseRunsOurMigrations(t *testing.T) {
	t.Parallel()
	_, db := withInvoices(t)
	store := postgres.NewSQL(db)
	latest := store.LatestVersion()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, nil,
		goose.WithGoMigrations(guides.WebhookMigration(1, db, 0, 1), guides.WebhookMigration(2, db, 1, latest)))
	require.NoError(t, err)

	_, err = provider.Up(t.Context())
	require.NoError(t, err)
	require.NoError(t, store.CheckSchema(t.Context()))
	require.NoError(t, store.Migrate(t.Context()), "there is nothing left to do")

	_, err = provider.DownTo(t.Context(), 1)
	require.NoError(t, err)
	status, err := store.MigrationStatus(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, status.Current)
}

// write exports migrations into the two files that golang-migrate and Atlas want.
func write(t *testing.T, db *sql.DB, dir string, step, from, to int) {
	t.Helper()
	for suffix, way := range map[string][2]int{"up": {from, to}, "down": {to, from}} {
		var out bytes.Buffer
		require.NoError(t, guides.ExportMigration(&out, db, way[0], way[1]))
		name := filepath.Join(dir, fmt.Sprintf("%06d_webhook.%s.sql", step, suffix))
		require.NoError(t, os.WriteFile(name, out.Bytes(), 0o600))
	}
}

// revisions is where Atlas keeps what it has run; its command has a table for that.
type revisions map[string]*atlas.Revision

func (r revisions) Ident() *atlas.TableIdent { return &atlas.TableIdent{Name: "revisions"} }

func (r revisions) ReadRevisions(context.Context) ([]*atlas.Revision, error) {
	list := slices.Collect(maps.Values(r))
	slices.SortFunc(list, func(a, b *atlas.Revision) int { return cmp.Compare(a.Version, b.Version) })
	return list, nil
}

func (r revisions) ReadRevision(_ context.Context, version string) (*atlas.Revision, error) {
	if found, ok := r[version]; ok {
		return found, nil
	}
	return nil, atlas.ErrRevisionNotExist
}

func (r revisions) WriteRevision(_ context.Context, revision *atlas.Revision) error {
	r[revision.Version] = revision
	return nil
}

func (r revisions) DeleteRevision(_ context.Context, version string) error {
	delete(r, version)
	return nil
}

func TestAtlasRunsExportedSQL(t *testing.T) {
	t.Parallel()
	_, db := withInvoices(t)
	store := postgres.NewSQL(db)
	dir, done := t.TempDir(), make(revisions)
	hash := func() { // as "atlas migrate hash" does
		files, err := sqltool.NewGolangMigrateDir(dir)
		require.NoError(t, err)
		sum, err := files.Checksum()
		require.NoError(t, err)
		require.NoError(t, atlas.WriteSumFile(files, sum))
	}
	write(t, db, dir, 1, 0, 1)
	hash()
	require.NoError(t, guides.ApplyWithAtlas(t.Context(), db, dir, done))
	require.ErrorIs(t, store.CheckSchema(t.Context()), webhook.ErrSchemaOutdated)
	write(t, db, dir, 2, 1, store.LatestVersion())
	hash()

	require.NoError(t, guides.ApplyWithAtlas(t.Context(), db, dir, done))

	require.NoError(t, store.CheckSchema(t.Context()))
	require.NoError(t, store.Migrate(t.Context()), "there is nothing left to do")
	require.NoError(t, guides.ApplyWithAtlas(t.Context(), db, dir, done), "nor for Atlas")
	assert.Len(t, done, 2)
}

func TestGolangMigrateRunsExportedSQL(t *testing.T) {
	t.Parallel()
	_, db := withInvoices(t)
	store := postgres.NewSQL(db)
	dir := t.TempDir()
	write(t, db, dir, 1, 0, 1)
	write(t, db, dir, 2, 1, store.LatestVersion())
	driver, err := migratepgx.WithInstance(db, &migratepgx.Config{})
	require.NoError(t, err)
	m, err := migrate.NewWithDatabaseInstance("file://"+dir, "pgx5", driver)
	require.NoError(t, err)
	defer m.Close() // it keeps a connection

	require.NoError(t, m.Up())
	require.NoError(t, store.CheckSchema(t.Context()))
	require.NoError(t, store.Migrate(t.Context()), "there is nothing left to do")

	require.NoError(t, m.Down())
	require.ErrorIs(t, store.CheckSchema(t.Context()), webhook.ErrSchemaOutdated)
}
