//go:build long

package sqlite_test

import (
	"database/sql"
	"testing"

	"github.com/outhook/webhook/store/storetest"
)

// Databases in memory are for tests of hosts; files are what counts, and they are
// tested at every run.

func TestConformanceInMemory(t *testing.T) {
	t.Parallel()
	h := harness(func(t testing.TB) *database {
		db := open(t, ":memory:")
		db.SetMaxOpenConns(1)
		migrated(t, db)
		return &database{db: db, connect: func(testing.TB) *sql.DB { return db }}
	})
	h.SingleConnection = true
	storetest.Run(t, h)
}

func TestConformanceInASharedCache(t *testing.T) {
	t.Parallel()
	h := harness(func(t testing.TB) *database {
		dsn := "file:" + newID().String() + "?mode=memory&cache=shared&_txlock=immediate"
		connect := func(t testing.TB) *sql.DB { return open(t, dsn) }
		db := connect(t)
		migrated(t, db)
		return &database{db: db, connect: connect}
	})
	// A reader in a shared cache waits for a writer's transaction to end.
	h.SingleConnection = true
	storetest.Run(t, h)
}
