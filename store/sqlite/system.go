package sqlite

import (
	"context"
	"database/sql"
	"time"
)

// Now implements [webhook.SystemStore]. SQLite runs in the host's process, so
// the machine's clock is the database's.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	return now(), ctx.Err()
}

// Maintain implements [webhook.SystemStore]. It copies what the write-ahead log
// holds into the database, as far as that waits for nobody, so that the host's
// own commits have less of it to do.
func (s *Store) Maintain(ctx context.Context, _ time.Time) error {
	return s.read(ctx, "writing back the log", func(ctx context.Context) error {
		rows, err := s.db.QueryContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)")
		return scanAll(rows, err, func(*sql.Rows) error { return nil })
	})
}
