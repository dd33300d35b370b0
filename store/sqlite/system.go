package sqlite

import (
	"context"
	"time"
)

// Now implements [webhook.SystemStore]. SQLite runs in the host's process, so
// the machine's clock is the database's.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	return now(), ctx.Err()
}
