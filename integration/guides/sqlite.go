package guides

import (
	"context"
	"database/sql"

	_ "modernc.org/sqlite" // or github.com/mattn/go-sqlite3

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/sqlite"
)

// region: sqlite-open

// OpenSQLite opens a database file and makes the hooks of a service that keeps
// everything in it.
func OpenSQLite(ctx context.Context, file string, keys *webhook.Keyring) (*sql.DB, *webhook.Hooks[*sql.Tx], error) {
	// Without these two, a writer fails with "database is locked" instead of waiting.
	// Migrate refuses a database that was opened otherwise.
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		return nil, nil, err
	}
	store := sqlite.New(db)
	if err := store.Migrate(ctx); err != nil {
		return nil, nil, err
	}
	hooks, err := webhook.New(store, webhook.Config{Secrets: keys})
	return db, hooks, err
}

// end region
