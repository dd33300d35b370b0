package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// The store's logic is written once, against the few things below, and runs on
// pgx and on database/sql alike.

// statement is SQL with its names put in.
type statement struct {
	text string
	// replan asks the server to plan each execution anew. A queue table is
	// empty at one moment and holds a million rows at the next: a plan that was
	// cached at the first is a sequential scan at the second.
	replan bool
}

// conn runs statements: a pool, or a transaction.
type conn interface {
	exec(ctx context.Context, s *statement, args ...any) (rowsAffected int64, err error)
	query(ctx context.Context, s *statement, args ...any) (rows, error)
}

// rows is what pgx.Rows and sql.Rows have in common.
type rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
	Close()
}

// database is a pool of connections. Its own statements commit one by one.
type database interface {
	conn
	encoder
	// atomically runs fn in a transaction at READ COMMITTED and commits it
	// when fn returns nil.
	atomically(ctx context.Context, fn func(conn) error) error
}

// rollbackTimeout bounds the end of a transaction whose context has ended already.
const rollbackTimeout = 2 * time.Second

// encoder turns values into parameters that the driver can send. A single id,
// unlike an array, suits a transaction in any mode.
type encoder interface {
	id(uuid.UUID) any
	uuids([]uuid.UUID) any
	texts([]string) any
	bytes([][]byte) any
	int64s([]int64) any
	int16s([]int16) any
	bools([]bool) any
	times([]time.Time) any
}

// timestamp returns a parameter for t, cut to what the database keeps; NULL for
// the zero time.
func timestamp(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return micros(t)
}

func micros(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// blob returns a parameter for b, which is never sent as NULL.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// collect runs a query and calls scan for each row.
func collect(ctx context.Context, c conn, s *statement, scan func(rows) error, args ...any) error {
	r, err := c.query(ctx, s, args...)
	if err != nil {
		return err
	}
	defer r.Close()
	for r.Next() {
		if err := scan(r); err != nil {
			return err
		}
	}
	return r.Err()
}
