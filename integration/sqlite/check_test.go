package sqlite_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/store/sqlite"
)

func TestMigrateRefusesADatabaseThatWouldLockTheHostOut(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		options string
		problem string
	}{
		"no busy timeout":        {"?" + busy(0) + "&_txlock=immediate", "no busy timeout"},
		"deferred transactions":  {"?" + busy(5000), "do not begin immediate"},
		"exclusive transactions": {"?" + busy(5000) + "&_txlock=exclusive", ""},
		"both":                   {options, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t, newFile(t)+tc.options)
			err := sqlite.New(db).Migrate(t.Context())

			if tc.problem == "" {
				require.NoError(t, err)
				return
			}
			var refused *sqlite.ConnectionError
			require.ErrorAs(t, err, &refused)
			require.ErrorContains(t, err, tc.problem)
			require.ErrorContains(t, err, "?_pragma=busy_timeout(5000)&_txlock=immediate (modernc.org/sqlite)")
			require.ErrorContains(t, err, "?_busy_timeout=5000&_txlock=immediate (mattn/go-sqlite3)")
			assert.Zero(t, count(t, db, countTables), "nothing was created")

			require.NoError(t, configured(t, db, sqlite.Config{AllowLockErrors: true}).Migrate(t.Context()))
		})
	}
}

func TestABusyTimeoutSetOnOneConnectionIsNotEnough(t *testing.T) {
	t.Parallel()
	db := open(t, newFile(t)+"?"+busy(0)+"&_txlock=immediate")
	_, err := db.ExecContext(t.Context(), "PRAGMA busy_timeout = 5000")
	require.NoError(t, err)

	err = sqlite.New(db).Migrate(t.Context())

	require.ErrorContains(t, err, "no busy timeout")
}

func TestOneConnectionNeedsNoImmediateTransactions(t *testing.T) {
	t.Parallel()
	db := open(t, newFile(t)+"?"+busy(5000))
	db.SetMaxOpenConns(1)

	require.NoError(t, sqlite.New(db).Migrate(t.Context()))
}

func TestCheckDoesNotWaitForAConnectionThatTheHostKeeps(t *testing.T) {
	t.Parallel()
	db := open(t, newFile(t)+options)
	store := migrated(t, db)
	db.SetMaxOpenConns(2)
	kept, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, kept.Close()) }()

	require.NoError(t, store.Check(t.Context()))
}

func TestCheckLeavesTransactionsOfTheHostAlone(t *testing.T) {
	t.Parallel()
	store, db := newStore(t)
	reader, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer reader.Close()
	_, err = reader.ExecContext(t.Context(), "BEGIN DEFERRED") // drivers differ in what a read-only transaction is
	require.NoError(t, err)
	require.NoError(t, reader.QueryRowContext(t.Context(), countTables).Scan(new(int)))

	require.NoError(t, store.Check(t.Context()))

	require.NoError(t, reader.QueryRowContext(t.Context(), countTables).Scan(new(int)))
	_, err = reader.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
}

func TestAnInMemoryDatabaseOfEachConnectionIsRefused(t *testing.T) {
	t.Parallel()
	db := open(t, ":memory:")

	err := sqlite.New(db).Migrate(t.Context())

	require.ErrorContains(t, err, "each connection has an in-memory database of its own")

	single := open(t, ":memory:")
	single.SetMaxOpenConns(1)
	require.NoError(t, sqlite.New(single).Migrate(t.Context()))

	shared := open(t, "file:"+t.Name()+"?mode=memory&cache=shared")
	require.NoError(t, sqlite.New(shared).Migrate(t.Context()))
}
