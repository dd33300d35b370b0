package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outhook/webhook"
)

const nowSQL = `SELECT clock_timestamp()`

const notifySQL = `SELECT pg_notify($1::text, $2::text)`

// Now implements [webhook.SystemStore].
func (s *core) Now(ctx context.Context) (time.Time, error) {
	var now time.Time
	err := collect(ctx, s.db, &s.sql.now, func(r rows) error { return r.Scan(&now) })
	if err != nil {
		return time.Time{}, fmt.Errorf("postgres: reading the time: %w", err)
	}
	return now.UTC(), nil
}

// channel carries the signals. Its name holds the schema, so that several
// installations in one database do not wake one another.
func (s *core) channel() string { return s.config.Schema + ".signal" }

// Notify implements [webhook.Notifier].
func (s *core) Notify(ctx context.Context, signal webhook.Signal) error {
	if _, err := s.db.exec(ctx, &s.sql.notify, s.channel(), string(signal)); err != nil {
		return fmt.Errorf("postgres: notifying: %w", err)
	}
	return nil
}

// Listen implements [webhook.Notifier] on a connection of its own: one to
// [Config.ListenConn], or one taken out of the pool, which may replace it.
//
// Signals can stop without an error: a network drops the connection silently, or
// a pooler in transaction mode gives it to somebody else. So Listen sends itself
// a signal through the pool, at first and then every 30 s, and ends with an error
// when it does not hear it within 5 s.
func (s *Store) Listen(ctx context.Context, ready func(), handle func(webhook.Signal)) error {
	connect := func(ctx context.Context) (*pgx.Conn, error) {
		if s.config.ListenConn != nil {
			return pgx.ConnectConfig(ctx, s.config.ListenConn)
		}
		c, err := s.pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		return c.Hijack(), nil
	}
	return s.listen(ctx, connect, ready, handle)
}

// Listen implements [webhook.Notifier] on a connection to [Config.ListenConn].
// Without one it only waits for ctx to end, and never calls ready: database/sql
// has no notifications, and polling finds everything as well.
// See [Store.Listen].
func (s *SQLStore) Listen(ctx context.Context, ready func(), handle func(webhook.Signal)) error {
	if s.config.ListenConn == nil {
		<-ctx.Done()
		return nil
	}
	connect := func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, s.config.ListenConn) }
	return s.listen(ctx, connect, ready, handle)
}

const (
	// signalProbe is what Listen sends itself; others ignore it.
	signalProbe = "probe"
	// probeInterval and probeTimeout bound how long a dead connection goes
	// unnoticed. Polling goes on all the while.
	probeInterval = 30 * time.Second
	probeTimeout  = 5 * time.Second
	// closeTimeout bounds saying goodbye on a connection that may be dead.
	closeTimeout = time.Second
)

var errDeaf = errors.New("no notification arrives; if connections go through a pooler in transaction mode, set Config.ListenConn to a direct one")

func (s *core) listen(ctx context.Context, connect func(context.Context) (*pgx.Conn, error), ready func(), handle func(webhook.Signal)) error {
	err := s.listenUntilDeaf(ctx, connect, ready, handle)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // to be told to stop is no failure
	}
	return fmt.Errorf("postgres: listening: %w", err)
}

func (s *core) listenUntilDeaf(ctx context.Context, connect func(context.Context) (*pgx.Conn, error), ready func(), handle func(webhook.Signal)) error {
	c, err := connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = c.Close(closing) // nothing is lost with it
	}()
	if _, err := c.Exec(ctx, "LISTEN "+quote(s.channel())); err != nil {
		return err
	}

	for {
		if err := s.probe(ctx, c, handle); err != nil {
			return err
		}
		ready()
		ready = func() {}
		if err := hear(ctx, c, probeInterval, func(signal webhook.Signal) (done bool) {
			if signal != signalProbe {
				handle(signal)
			}
			return false
		}); err != nil && !errors.Is(err, errSilence) {
			return err
		}
	}
}

// probe sends a signal through the pool and waits for it on c.
func (s *core) probe(ctx context.Context, c *pgx.Conn, handle func(webhook.Signal)) error {
	if err := s.Notify(ctx, signalProbe); err != nil {
		return err
	}
	err := hear(ctx, c, probeTimeout, func(signal webhook.Signal) (done bool) {
		if signal == signalProbe {
			return true
		}
		handle(signal)
		return false
	})
	if errors.Is(err, errSilence) {
		return errDeaf
	}
	return err
}

// errSilence says that the time given to hear is over.
var errSilence = errors.New("nothing more heard")

// hear passes signals to handle until it returns true, for as long as given.
func hear(ctx context.Context, c *pgx.Conn, atMost time.Duration, handle func(webhook.Signal) (done bool)) error {
	limited, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	for {
		n, err := c.WaitForNotification(limited)
		switch {
		case err == nil:
			if handle(webhook.Signal(n.Payload)) {
				return nil
			}
		case ctx.Err() != nil:
			return ctx.Err()
		case limited.Err() != nil && !c.IsClosed():
			return errSilence
		default:
			return err
		}
	}
}
