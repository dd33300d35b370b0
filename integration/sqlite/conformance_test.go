package sqlite_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/sqlite"
	"github.com/outhook/webhook/store/storetest"
)

// database is one database, and how another process would open it.
type database struct {
	db      *sql.DB
	connect func(testing.TB) *sql.DB
}

func (d *database) Connect(t testing.TB) webhook.Store[*sql.Tx] { return sqlite.New(d.connect(t)) }

func (d *database) Begin(ctx context.Context) (*sql.Tx, error) { return d.db.BeginTx(ctx, nil) }

func (d *database) Commit(_ context.Context, tx *sql.Tx) error { return tx.Commit() }

func (d *database) Rollback(_ context.Context, tx *sql.Tx) error { return tx.Rollback() }

// fileDatabase is a file, which every process opens with up to maxConns
// connections; 0 means any number.
func fileDatabase(t testing.TB, maxConns int) *database {
	t.Helper()
	file := newMigratedFile(t) + options
	connect := func(t testing.TB) *sql.DB {
		db := open(t, file)
		db.SetMaxOpenConns(maxConns)
		return db
	}
	return &database{db: connect(t), connect: connect}
}

// migratedTo changes the version of a migrated database, for a harness.
func migratedTo(t testing.TB, d *database, version int) storetest.Database[*sql.Tx] {
	t.Helper()
	store := sqlite.New(d.db)
	if version == 0 {
		require.NoError(t, store.MigrateTo(context.Background(), 0))
	}
	if version > 0 {
		_, err := d.db.Exec("INSERT INTO webhook_migration VALUES (?, 'from_the_future', 0)", version)
		require.NoError(t, err)
	}
	return d
}

func harness(open func(testing.TB) *database) storetest.Harness[*sql.Tx] {
	return storetest.Harness[*sql.Tx]{
		SingleWriter: true,
		Open:         func(t testing.TB) storetest.Database[*sql.Tx] { return open(t) },
		OpenOutdated: func(t testing.TB) storetest.Database[*sql.Tx] { return migratedTo(t, open(t), 0) },
		OpenNewer:    func(t testing.TB) storetest.Database[*sql.Tx] { return migratedTo(t, open(t), 99) },
	}
}

func TestConformanceOfAFile(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness(func(t testing.TB) *database { return fileDatabase(t, 0) }))
}

func TestConformanceOfAFileWithOneConnection(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness(func(t testing.TB) *database { return fileDatabase(t, 1) }))
}
