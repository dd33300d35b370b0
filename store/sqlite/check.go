package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// ConnectionError tells that the database was opened in a way that would let the
// host see "database is locked", or lose what was written.
type ConnectionError struct {
	// Problem says what is wrong, and what follows from it.
	Problem string
	// Modernc and Mattn are what to add to the data source name (after the ?)
	// for modernc.org/sqlite and for github.com/mattn/go-sqlite3.
	Modernc, Mattn string
}

func (e *ConnectionError) Error() string {
	return fmt.Sprintf("sqlite: %s; open it with ?%s (modernc.org/sqlite) or ?%s (mattn/go-sqlite3)",
		e.Problem, e.Modernc, e.Mattn)
}

var (
	errNoBusyTimeout = &ConnectionError{
		Problem: "connections have no busy timeout, so they fail instead of waiting for the lock",
		Modernc: "_pragma=busy_timeout(5000)&_txlock=immediate",
		Mattn:   "_busy_timeout=5000&_txlock=immediate",
	}
	errNotImmediate = &ConnectionError{
		Problem: "transactions do not begin immediate, so one that reads before it writes fails instead of waiting for the lock",
		Modernc: "_pragma=busy_timeout(5000)&_txlock=immediate",
		Mattn:   "_busy_timeout=5000&_txlock=immediate",
	}
	errNoWAL = &ConnectionError{
		Problem: "write-ahead logging cannot be turned on, so readers and writers fail because of one another (is the file on a network file system?)",
		Modernc: "_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)&_txlock=immediate",
		Mattn:   "_journal_mode=WAL&_busy_timeout=5000&_txlock=immediate",
	}
	errNotShared = &ConnectionError{
		Problem: "each connection has an in-memory database of its own; use a file, a shared cache, or SetMaxOpenConns(1)",
		Modernc: "mode=memory&cache=shared",
		Mattn:   "mode=memory&cache=shared",
	}
)

// secondConnection is how long Check waits for a second connection of a pool
// whose connections are all in use, before it makes do with one.
const secondConnection = time.Second

// Check tells whether the host may see "database is locked" because of how it
// opened the database, by a [ConnectionError]. It wants a busy timeout on every
// connection, write-ahead logging, and transactions that begin immediate; the
// last not from a pool limited to one connection, which nobody but another
// process can disturb. An in-memory database has nothing to check but that its
// connections share it. Config.AllowLockErrors makes Check want only what
// nothing works without.
//
// It begins a transaction as the host does, so it waits for whoever writes. It
// changes nothing, and writes nothing but what a checkpoint writes.
func (s *Store) Check(ctx context.Context) error {
	inMemory, err := s.inMemory(ctx)
	if err != nil {
		return err
	}
	if inMemory {
		return s.checkShared(ctx)
	}
	if s.allow {
		return nil
	}
	if err := s.checkWAL(ctx); err != nil {
		return err
	}
	if err := s.checkBusyTimeout(ctx); err != nil {
		return err
	}
	if s.db.Stats().MaxOpenConnections == 1 {
		return nil
	}
	return s.checkImmediate(ctx)
}

// inMemory reports whether the database has no file.
func (s *Store) inMemory(ctx context.Context) (bool, error) {
	var file sql.NullString
	err := s.read(ctx, "looking for the database's file", func(ctx context.Context) error {
		rows, err := s.db.QueryContext(ctx, "PRAGMA database_list")
		return scanAll(rows, err, func(rows *sql.Rows) error {
			var number int
			var name string
			var path sql.NullString
			if err := rows.Scan(&number, &name, &path); err != nil {
				return err
			}
			if name == "main" {
				file = path
			}
			return nil
		})
	})
	return file.String == "", err
}

// useWAL turns on write-ahead logging, which stays on in the file. Turning it on
// needs the database for itself for a moment, so it is tried until it works.
func (s *Store) useWAL(ctx context.Context) error {
	inMemory, err := s.inMemory(ctx)
	if err != nil || inMemory {
		return err
	}
	return s.read(ctx, "turning on write-ahead logging", func(ctx context.Context) error {
		var mode string
		if err := s.db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil || mode == "wal" {
			return err
		}
		return s.db.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode)
	})
}

func (s *Store) checkWAL(ctx context.Context) error {
	var mode string
	err := s.read(ctx, "reading the journal mode", func(ctx context.Context) error {
		return s.db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode)
	})
	if err == nil && mode != "wal" {
		return errNoWAL
	}
	return err
}

// checkBusyTimeout looks at two connections: a host that sets the timeout by a
// statement sets it on one.
func (s *Store) checkBusyTimeout(ctx context.Context) error {
	return s.onConnections(ctx, func(ctx context.Context, c *sql.Conn) error {
		var milliseconds int64
		if err := c.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&milliseconds); err != nil {
			return fmt.Errorf("sqlite: reading the busy timeout: %w", err)
		}
		if milliseconds <= 0 {
			return errNoBusyTimeout
		}
		return nil
	})
}

// onConnections runs fn on a connection, and, while that is held, on a second
// one if the pool has one to give.
func (s *Store) onConnections(ctx context.Context, fn func(context.Context, *sql.Conn) error) error {
	first, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("sqlite: taking a connection: %w", err)
	}
	defer func() { _ = first.Close() }() // back to the pool; it has no error of its own
	if err := fn(ctx, first); err != nil || s.db.Stats().MaxOpenConnections == 1 {
		return err
	}

	waiting, cancel := context.WithTimeout(ctx, secondConnection)
	defer cancel()
	second, err := s.db.Conn(waiting)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sqlite: taking a second connection: %w", err)
	}
	defer func() { _ = second.Close() }() // as above
	return fn(ctx, second)
}

// checkImmediate begins a transaction as the host does, and asks for a
// checkpoint in it: SQLite refuses that to a transaction that holds the lock.
// Nothing else tells, on one connection and whatever others do, how the driver
// begins.
func (s *Store) checkImmediate(ctx context.Context) error {
	immediate := false
	err := s.read(ctx, "beginning a transaction", func(ctx context.Context) error {
		tx, err := s.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // nothing was written
		rows, err := tx.QueryContext(ctx, "PRAGMA wal_checkpoint")
		err = scanAll(rows, err, func(*sql.Rows) error { return nil })
		if isBusy(err) {
			immediate = true
			return nil
		}
		return err
	})
	if err == nil && !immediate {
		return errNotImmediate
	}
	return err
}

// checkShared sees whether the connections of an in-memory database have one
// database between them, once it has tables to tell by.
func (s *Store) checkShared(ctx context.Context) error {
	inMemory, err := s.inMemory(ctx)
	if err != nil || !inMemory {
		return err
	}
	var versions []int
	err = s.onConnections(ctx, func(ctx context.Context, c *sql.Conn) error {
		version, err := s.version(ctx, c)
		versions = append(versions, version)
		return err
	})
	if err != nil {
		return err
	}
	if len(versions) == 2 && versions[0] != versions[1] {
		return errNotShared
	}
	return nil
}
