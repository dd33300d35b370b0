package sqlite_test

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/sqlite"
)

const countTables = `SELECT count(*) FROM sqlite_master WHERE type IN ('table', 'index') AND name LIKE 'webhook%'`

func TestMigrateTwiceIsANoOp(t *testing.T) {
	t.Parallel()
	store, db := newStore(t)
	require.NoError(t, enqueue(t.Context(), store, db, newEvent("acme", "")))
	version := count(t, db, "PRAGMA schema_version")

	require.NoError(t, store.Migrate(t.Context()))

	require.NoError(t, store.CheckSchema(t.Context()))
	assert.Equal(t, version, count(t, db, "PRAGMA schema_version"), "the schema was not touched")
	assert.Equal(t, 1, count(t, db, "SELECT count(*) FROM webhook_event"))
}

func TestMigrateTurnsOnWriteAheadLogging(t *testing.T) {
	t.Parallel()
	_, db := newStore(t)

	var mode string
	require.NoError(t, db.QueryRowContext(t.Context(), "PRAGMA journal_mode").Scan(&mode))
	assert.Equal(t, "wal", mode)
}

func TestMigrationStatusTellsWhatWasAppliedAndWhen(t *testing.T) {
	t.Parallel()
	db := open(t, newFile(t)+options)
	store := sqlite.New(db)

	before, err := store.MigrationStatus(t.Context())
	require.NoError(t, err)
	require.NoError(t, store.MigrateTo(t.Context(), 2))
	after, err := store.MigrationStatus(t.Context())
	require.NoError(t, err)

	assert.Equal(t, 0, before.Current)
	assert.Equal(t, migrations, before.Latest)
	assert.Equal(t, migrations, store.LatestVersion())
	assert.Equal(t, 2, after.Current)
	require.Len(t, after.Migrations, migrations)
	assert.Equal(t, "initial", after.Migrations[0].Name)
	assert.WithinDuration(t, time.Now(), after.Migrations[1].AppliedAt, time.Minute)
	assert.Zero(t, after.Migrations[2].AppliedAt)
	_, err = db.ExecContext(t.Context(), "INSERT INTO webhook_migration VALUES (99, 'from_the_future', 0)")
	require.NoError(t, err)
	newer, err := store.MigrationStatus(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 99, newer.Current)
}

// migrations is how many the store has.
const migrations = 13

func TestConcurrentMigrateIsSafe(t *testing.T) {
	t.Parallel()
	file := newFile(t)
	const processes = 6
	errs := make([]error, processes)
	var wg sync.WaitGroup
	for i := range processes {
		db := open(t, file+options) // a pool of its own, as another process has
		wg.Go(func() { errs[i] = sqlite.New(db).Migrate(t.Context()) })
	}
	wg.Wait()

	require.NoError(t, errors.Join(errs...))
	db := open(t, file+options)
	assert.Equal(t, migrations, count(t, db, "SELECT count(*) FROM webhook_migration"))
}

func TestMigrateDownRemovesEverythingAndUpBringsItBack(t *testing.T) {
	t.Parallel()
	store, db := newStore(t)
	before := count(t, db, countTables)

	require.NoError(t, store.MigrateTo(t.Context(), 0))

	assert.Zero(t, count(t, db, countTables))
	require.ErrorIs(t, store.CheckSchema(t.Context()), webhook.ErrSchemaOutdated)
	require.NoError(t, store.Migrate(t.Context()))
	require.NoError(t, store.CheckSchema(t.Context()))
	assert.Equal(t, before, count(t, db, countTables))
}

func TestAnUnmigratedDatabaseIsOutdated(t *testing.T) {
	t.Parallel()
	err := sqlite.New(open(t, newFile(t)+options)).CheckSchema(t.Context())

	require.ErrorIs(t, err, webhook.ErrSchemaOutdated)
	assert.ErrorContains(t, err, fmt.Sprintf("it has version 0, the code needs %d", migrations))
}

func TestWhoForgetsToMigrateIsToldSo(t *testing.T) {
	t.Parallel()
	db := open(t, newFile(t)+options)
	store := sqlite.New(db)

	_, err := store.CreateEndpoint(t.Context(), webhook.EndpointRecord{ID: newID(), Tenant: "acme"})
	require.ErrorIs(t, err, webhook.ErrSchemaOutdated)
	require.ErrorContains(t, err, "run Migrate")
	_, err = store.ListEndpoints(t.Context(), webhook.ListEndpointsParams{Limit: 1})
	require.ErrorIs(t, err, webhook.ErrSchemaOutdated)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = store.InsertEvents(t.Context(), tx, newEvents(1, "acme"))
	require.ErrorIs(t, err, webhook.ErrSchemaOutdated)
}

func TestADatabaseOfNewerCodeIsRefused(t *testing.T) {
	t.Parallel()
	store, db := newStore(t)
	_, err := db.ExecContext(t.Context(), "INSERT INTO webhook_migration VALUES (99, 'from_the_future', 0)")
	require.NoError(t, err)

	require.ErrorIs(t, store.CheckSchema(t.Context()), webhook.ErrSchemaNewer)
	err = store.Migrate(t.Context())
	require.ErrorIs(t, err, webhook.ErrSchemaNewer)
	assert.ErrorContains(t, err, fmt.Sprintf("it has version 99, the code knows %d", migrations))
	require.ErrorIs(t, store.MigrateTo(t.Context(), 0), webhook.ErrSchemaNewer)
}

func TestExportedSQLMakesWhatMigrateMakesAndTakesItAway(t *testing.T) {
	t.Parallel()
	_, migratedDB := newStore(t)
	db := open(t, newFile(t)+options)
	store := sqlite.New(db)

	require.NoError(t, store.MigrateTo(t.Context(), 1))
	runExported(t, store, db, 1, migrations)

	require.NoError(t, store.CheckSchema(t.Context()))
	assert.Equal(t, count(t, migratedDB, countTables), count(t, db, countTables))
	require.NoError(t, store.Migrate(t.Context()))
	runExported(t, store, db, migrations, 0)
	assert.Zero(t, count(t, db, countTables))
	runExported(t, store, db, 0, migrations)
	require.NoError(t, store.CheckSchema(t.Context()))
	require.ErrorContains(t, store.MigrationSQL(io.Discard, 0, 99), "no version 99")
	require.ErrorIs(t, store.MigrationSQL(io.Discard, 99, 0), webhook.ErrSchemaNewer)
}

// runExported runs an exported script on one connection, since it begins and commits
// by itself.
func runExported(t *testing.T, store *sqlite.Store, db *sql.DB, from, to int) {
	t.Helper()
	var script strings.Builder
	require.NoError(t, store.MigrationSQL(&script, from, to))
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	for statement := range strings.SplitSeq(script.String(), ";\n\n") {
		_, err := conn.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	require.NoError(t, conn.Close())
}

func TestTwoPrefixesShareADatabase(t *testing.T) {
	t.Parallel()
	db := open(t, newFile(t)+options)
	one, two := configured(t, db, sqlite.Config{TablePrefix: "one_"}), configured(t, db, sqlite.Config{TablePrefix: "two_"})
	require.NoError(t, one.Migrate(t.Context()))
	require.NoError(t, two.Migrate(t.Context()))

	require.NoError(t, enqueue(t.Context(), one, db, newEvent("acme", "key")))

	assert.Equal(t, 1, count(t, db, "SELECT count(*) FROM one_event"))
	assert.Zero(t, count(t, db, "SELECT count(*) FROM two_event"))
}

func TestABadConfigIsRefused(t *testing.T) {
	t.Parallel()
	db := open(t, newFile(t)+options)
	for prefix, problem := range map[string]string{
		"1st_":                  "only letters, digits and underscores",
		"hooks; DROP TABLE x--": "only letters, digits and underscores",
		"SQLite_":               "names beginning with sqlite_ are SQLite's own",
		strings.Repeat("x", 41): "is 41 bytes, over the limit of 40",
	} {
		_, err := sqlite.NewWithConfig(db, sqlite.Config{TablePrefix: prefix})

		require.ErrorIs(t, err, webhook.ErrInvalid)
		require.ErrorContains(t, err, problem)
		require.ErrorContains(t, err, "Config.TablePrefix")
	}
	_, err := sqlite.NewWithConfig(nil, sqlite.Config{})
	require.EqualError(t, err, "webhook: db is nil")
	require.PanicsWithError(t, "webhook: db is nil", func() { sqlite.New(nil) })
	_, err = sqlite.New(db).InsertEvents(t.Context(), nil, newEvents(1, "acme"))
	require.EqualError(t, err, "webhook: tx is nil")
}
