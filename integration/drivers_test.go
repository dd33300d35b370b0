package integration_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	_ "modernc.org/sqlite"

	"github.com/outhook/webhook/internal/pgtest"
)

// The stores are written for these versions or newer: PostgreSQL 13 for its partial
// index and partition features, SQLite 3.35 for RETURNING.
func TestTheDatabasesAreNewEnough(t *testing.T) {
	t.Parallel()

	t.Run("SQLite through modernc.org/sqlite", func(t *testing.T) {
		t.Parallel()
		db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "test.db"))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, db.Close()) })

		var enough bool
		row := db.QueryRowContext(t.Context(), `
			WITH v (major, minor) AS (
				SELECT substr(sqlite_version(), 1, 1), substr(sqlite_version(), 3, 2)
			)
			SELECT major + 0 > 3 OR major + 0 = 3 AND minor + 0 >= 35 FROM v`)
		require.NoError(t, row.Scan(&enough))
		assert.True(t, enough)
	})
	t.Run("PostgreSQL through GORM", func(t *testing.T) {
		t.Parallel()
		db, err := gorm.Open(postgres.Open(pgtest.New(t)), &gorm.Config{})
		require.NoError(t, err)
		pool, err := db.DB()
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, pool.Close()) })

		var version int
		require.NoError(t, db.Raw(`SELECT current_setting('server_version_num')::int`).Scan(&version).Error)
		assert.GreaterOrEqual(t, version, 130000)
	})
}
