package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"
)

// writer makes the writes of one Store take turns, and leave the database to
// others in between.
//
// SQLite's lock is not fair: whoever waits for it looks again from time to time,
// so a loop that takes it again at once would keep everybody else out. After
// each write the writer therefore stays away for as long as it held the lock.
type writer struct {
	turn chan struct{} // holds one token; whoever has it may write
	next time.Time     // no lock is taken before; owned by the holder of turn
}

// maxGap bounds how long the writer stays away, so that one slow commit does not
// stop it for long: twice the longest pause between two looks of SQLite's busy
// handler would be 200 ms; a quarter of that is enough to be seen by many.
const maxGap = 50 * time.Millisecond

func newWriter() writer {
	w := writer{turn: make(chan struct{}, 1)}
	w.turn <- struct{}{}
	return w
}

// write runs fn in a transaction that holds the write lock from its beginning.
// prepare, if not nil, runs before that on the same connection, for what needs
// no lock. When the database is busy both are run again from the start, so
// neither may have effects that are not undone by running it again.
func (s *Store) write(ctx context.Context, doing string, prepare, fn func(ctx context.Context, c *sql.Conn) error) error {
	select {
	case <-s.writer.turn:
	case <-ctx.Done():
		return fmt.Errorf("sqlite: %s: %w", doing, context.Cause(ctx))
	}
	defer func() { s.writer.turn <- struct{}{} }()

	if err := sleep(ctx, time.Until(s.writer.next)); err != nil {
		return fmt.Errorf("sqlite: %s: %w", doing, err)
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("sqlite: %s: %w", doing, err)
	}
	defer func() { _ = conn.Close() }() // back to the pool; it has no error of its own

	err = s.retry(ctx, func() error {
		if prepare != nil {
			if err := prepare(ctx, conn); err != nil {
				return err
			}
		}
		return s.immediate(ctx, conn, fn)
	})
	if err != nil {
		return fmt.Errorf("sqlite: %s: %w", doing, s.orUnmigrated(err))
	}
	return nil
}

// immediate runs fn between BEGIN IMMEDIATE and COMMIT. Statements are sent as
// text, since *sql.Tx cannot say how a transaction begins.
func (s *Store) immediate(ctx context.Context, c *sql.Conn, fn func(ctx context.Context, c *sql.Conn) error) error {
	if _, err := c.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	locked := time.Now()
	defer func() {
		released := time.Now()
		s.writer.next = released.Add(min(released.Sub(locked), maxGap))
	}()

	// Cancelled or not, the transaction has to end: otherwise the connection
	// would go back to the pool with the lock.
	ending := context.WithoutCancel(ctx)
	done := false
	defer func() {
		if !done {
			rollback(ending, c) // fn failed or panicked
		}
	}()
	if err := fn(ctx, c); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err // not every driver has noticed
	}
	if _, err := c.ExecContext(ending, "COMMIT"); err != nil {
		return err
	}
	done = true
	return nil
}

// rollback ends a transaction that may have ended by itself. A connection that
// still has one afterwards is not given back to the pool.
func rollback(ctx context.Context, c *sql.Conn) {
	_, err := c.ExecContext(ctx, "ROLLBACK")
	if err == nil || strings.Contains(err.Error(), "no transaction is active") {
		return
	}
	_ = c.Raw(func(any) error { return driver.ErrBadConn }) // closes it; the error is the one given
}

// read runs fn, which only reads, and runs it again when the database is busy:
// rarely, since readers do not wait for the writer under write-ahead logging.
func (s *Store) read(ctx context.Context, doing string, fn func(ctx context.Context) error) error {
	if err := s.retry(ctx, func() error { return fn(ctx) }); err != nil {
		return fmt.Errorf("sqlite: %s: %w", doing, s.orUnmigrated(err))
	}
	return nil
}

// retry repeats fn until the database is not busy, at most for the lock timeout.
func (s *Store) retry(ctx context.Context, fn func() error) error {
	const shortest, longest = time.Millisecond, 50 * time.Millisecond
	started := time.Now()
	for pause := shortest; ; pause = min(2*pause, longest) {
		err := fn()
		if !isBusy(err) {
			return err
		}
		if s.lockTimeout > 0 && time.Since(started) > s.lockTimeout {
			return err
		}
		if sleep(ctx, pause) != nil {
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// isBusy reports whether err says that someone else has the lock. Drivers have
// no error in common: some tell SQLite's result code, all tell its text.
func isBusy(err error) bool {
	if err == nil {
		return false
	}
	const busy, locked = 5, 6 // SQLITE_BUSY, SQLITE_LOCKED; the higher bits tell more
	var coded interface{ Code() int }
	if errors.As(err, &coded) {
		code := coded.Code() & 0xff
		return code == busy || code == locked
	}
	text := err.Error()
	return strings.Contains(text, "database is locked") ||
		strings.Contains(text, "database table is locked") ||
		strings.Contains(text, "database schema is locked")
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
