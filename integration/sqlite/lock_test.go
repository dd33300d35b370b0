package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/sqlite"
)

// runDispatcher fans out, claims and records like a dispatcher, without the
// HTTP, until want deliveries are recorded or ctx ends.
func runDispatcher(ctx context.Context, store *sqlite.Store, want int, endpoints ...uuid.UUID) error {
	m := newEveryone()
	for done := 0; done < want; {
		_, err := store.FanOut(ctx, webhook.FanOutParams{Now: time.Now(), MaxEvents: 100, MaxDeliveries: 100, Matcher: m})
		if err != nil {
			return err
		}
		claimed, token, err := claimFrom(ctx, store, 20, endpoints...)
		if err != nil {
			return err
		}
		if err := record(ctx, store, claimed, token); err != nil {
			return err
		}
		done += len(claimed)
	}
	return nil
}

// hostTransactions runs transactions that read, write a row of the host's own
// and enqueue, in several goroutines, and returns the errors.
func hostTransactions(ctx context.Context, store *sqlite.Store, db *sql.DB, goroutines, each int) error {
	var wg sync.WaitGroup
	errs := make([]error, goroutines)
	for i := range goroutines {
		wg.Go(func() {
			for range each {
				if err := hostTransaction(ctx, store, db); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func hostTransaction(ctx context.Context, store *sqlite.Store, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var n int
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM invoice WHERE id < 10").Scan(&n); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO invoice (paid) VALUES (1)"); err != nil {
		return err
	}
	if _, err := store.InsertEvents(ctx, tx, []webhook.EventRecord{newEvent("acme", "")}); err != nil {
		return err
	}
	return tx.Commit()
}

func createInvoices(t testing.TB, db *sql.DB) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), "CREATE TABLE invoice (id INTEGER PRIMARY KEY, paid INTEGER)")
	require.NoError(t, err)
}

// Field report B60: the library's writes collided with the host's own.
func TestTheHostNeverHearsThatTheDatabaseIsLocked(t *testing.T) {
	t.Parallel()
	const goroutines, each = 8, 100
	store, db := newStore(t)
	createInvoices(t, db)
	endpoint := createEndpoint(t, store, "acme")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		assert.NoError(t, runDispatcher(ctx, store, goroutines*each, endpoint.ID))
	})
	wg.Go(func() {
		assert.NoError(t, holdReadTransaction(t.Context(), db, 2*time.Second))
	})
	if !assert.NoError(t, hostTransactions(ctx, store, db, goroutines, each)) {
		cancel() // the dispatcher would wait for ever for what was not enqueued
	}
	wg.Wait()

	assert.Equal(t, goroutines*each, count(t, db, "SELECT count(*) FROM webhook_delivery_log"))
	assert.Equal(t, goroutines*each, count(t, db, "SELECT count(*) FROM webhook_attempt"))
	assert.Zero(t, count(t, db, "SELECT count(*) FROM webhook_delivery"))
	assert.Zero(t, count(t, db, "SELECT count(*) FROM webhook_outbox"))
}

// A pool of one connection has none to spare while the library holds it, nor
// while the host does.
func TestOneConnectionServesTheHostAndTheLibrary(t *testing.T) {
	t.Parallel()
	const goroutines, each = 4, 50
	for name, dsn := range map[string]string{
		"file":   newFile(t) + "?" + busy(5000),
		"memory": ":memory:",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t, dsn)
			db.SetMaxOpenConns(1)
			store := migrated(t, db)
			createInvoices(t, db)
			endpoint := createEndpoint(t, store, "acme")

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var wg sync.WaitGroup
			wg.Go(func() {
				assert.NoError(t, runDispatcher(ctx, store, goroutines*each, endpoint.ID))
			})
			if !assert.NoError(t, hostTransactions(ctx, store, db, goroutines, each)) {
				cancel()
			}
			wg.Wait()

			assert.Equal(t, goroutines*each, count(t, db, "SELECT count(*) FROM webhook_delivery_log"))
		})
	}
}

// A write that is given up leaves neither a lock nor a transaction behind.
func TestACancelledWriteLeavesTheDatabaseFree(t *testing.T) {
	t.Parallel()
	store, db := newStore(t)
	createEndpoint(t, store, "acme")
	require.NoError(t, enqueue(t.Context(), store, db, newEvents(100, "acme")...))
	ctx, cancel := context.WithCancel(t.Context())
	m := &cancelling{everyone: newEveryone(), cancel: cancel}

	_, err := store.FanOut(ctx, webhook.FanOutParams{Now: time.Now(), MaxEvents: 100, MaxDeliveries: 100, Matcher: m})

	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, 100, count(t, db, "SELECT count(*) FROM webhook_outbox"), "nothing was taken")
	quick, cancelQuick := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancelQuick()
	require.NoError(t, enqueue(quick, store, db, newEvent("acme", "")))
	require.NoError(t, fanOutAll(t.Context(), store, newEveryone()))
	assert.Equal(t, 101, count(t, db, "SELECT count(*) FROM webhook_delivery"))
}

// cancelling cancels the context while the store holds the lock.
type cancelling struct {
	*everyone
	cancel func()
}

func (m *cancelling) Match(dst []uuid.UUID, event *webhook.EventRecord, after uuid.UUID, limit int) ([]uuid.UUID, bool) {
	m.cancel()
	return m.everyone.Match(dst, event, after, limit)
}

// A write waits for a host that keeps the lock, and longer than one busy timeout.
func TestAWriteWaitsForALongTransactionOfTheHost(t *testing.T) {
	t.Parallel()
	db := open(t, newFile(t)+"?"+busy(50)+"&_txlock=immediate")
	store := migrated(t, db)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)

	created := make(chan error, 1)
	go func() {
		_, err := store.CreateEndpoint(t.Context(), webhook.EndpointRecord{ID: newID(), Tenant: "acme", State: webhook.EndpointActive})
		created <- err
	}()
	select {
	case err := <-created:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	require.NoError(t, tx.Rollback())
	require.NoError(t, <-created)

	impatient := configured(t, db, sqlite.Config{LockTimeout: 100 * time.Millisecond})
	tx, err = db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = impatient.CreateEndpoint(t.Context(), webhook.EndpointRecord{ID: newID(), Tenant: "acme"})
	require.ErrorContains(t, err, "database is locked")
	require.NoError(t, tx.Rollback())
}

// holdReadTransaction keeps a snapshot of the database for a while, and reads
// from it again and again.
func holdReadTransaction(ctx context.Context, db *sql.DB, d time.Duration) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	first := -1
	for end := time.Now().Add(d); time.Now().Before(end); <-ticker.C {
		var n int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM webhook_event").Scan(&n); err != nil {
			return err
		}
		if first >= 0 && n != first {
			return errors.New("the snapshot changed")
		}
		first = n
	}
	return nil
}

// The write lock is not fair: a loop that takes it again at once keeps the host
// out until its busy timeout ends.
func TestTheHostGetsItsTurnBesideABusyLibrary(t *testing.T) {
	t.Parallel()
	db := open(t, newFile(t)+"?"+busy(10000)+"&_txlock=immediate")
	store := migrated(t, db)
	createInvoices(t, db)
	var endpoints []uuid.UUID
	for range 20 {
		endpoints = append(endpoints, createEndpoint(t, store, "acme").ID)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	// Enough to keep the library writing without a pause, whatever its speed.
	require.NoError(t, enqueue(ctx, store, db, newEvents(1000, "acme")...))
	var writes atomic.Int64
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			m := newEveryone()
			for ctx.Err() == nil {
				_, err := store.FanOut(ctx, webhook.FanOutParams{Now: time.Now(), MaxEvents: 50, MaxDeliveries: 500, Matcher: m})
				assert.True(t, err == nil || ctx.Err() != nil, err)
				writes.Add(1)
				claimed, token, err := claimFrom(ctx, store, 20, endpoints...)
				assert.True(t, err == nil || ctx.Err() != nil, err)
				err = record(ctx, store, claimed, token)
				assert.True(t, err == nil || ctx.Err() != nil, err)
				writes.Add(1)
			}
		})
	}
	assert.NoError(t, hostTransactions(ctx, store, db, 1, 100))
	cancel()
	wg.Wait()
	assert.Positive(t, writes.Load(), "writes of the library meanwhile")
}
