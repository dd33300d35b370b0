package crash_test

import (
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/pgtest"
	"github.com/outhook/webhook/store/postgres"
)

// B36: a backlog that is loaded whole on recovery takes the process down.
func TestABacklogIsTakenAsItCanBeSent(t *testing.T) {
	t.Parallel()
	const events, inFlight = 400, 5
	w := newWorld(t, onPostgres, 1)
	backlog(t, w, events, strings.Repeat("x", 32<<10))
	page, err := w.host.endpoints.List(t.Context(), webhook.ListEndpointsParams{Scope: webhook.AllTenants(), Limit: 1})
	require.NoError(t, err)
	limit := inFlight
	_, err = w.host.endpoints.Update(t.Context(), webhook.AllTenants(), page[0].ID, webhook.EndpointUpdate{MaxInFlight: &limit})
	require.NoError(t, err)

	var largest atomic.Int64
	cfg := quick()
	cfg.RequestTimeout, cfg.Lease = 30*time.Second, 90*time.Second
	w.dispatch(w.openHost(options{watch: watch{
		at: func(p point, events string) {
			if p == afterClaim {
				largest.Store(max(largest.Load(), int64(1+strings.Count(events, ","))))
			}
		},
		takeovers: func(int) {},
	}}), cfg)

	w.eventually("the backlog drains", func() bool { return len(w.received()) >= events })
	w.eventually("nothing is left", func() bool {
		left, err := w.host.unfinished(t.Context())
		return err == nil && len(left) == 0
	})
	assert.Len(t, w.received(), events, "each once")
	assert.LessOrEqual(t, largest.Load(), int64(inFlight), "no more payloads are loaded than may be sent")
	assert.LessOrEqual(t, w.mostInAll, inFlight)
}

// backlog commits events with padded payloads.
func backlog(t *testing.T, w *world, n int, padding string) {
	t.Helper()
	pool := pgtest.Open(t, w.url)
	hooks, err := webhook.New(postgres.New(pool), options{}.config())
	require.NoError(t, err)
	t.Cleanup(hooks.Close)
	many := make([]webhook.Event, n)
	for i := range many {
		many[i] = webhook.Event{
			Tenant: w.tenants[0], Type: "order.placed",
			Payload: fmt.Appendf(nil, `{"order":%q,"padding":%q}`, uuid.New(), padding),
		}
	}
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := hooks.EnqueueMany(t.Context(), tx, many)
		return err
	}))
}

// B60: the queue's writes collide with the service's own.
func TestTheHostNeverFindsItsSQLiteLocked(t *testing.T) {
	t.Parallel()
	const writers, transactions = 8, 25
	w := newWorld(t, onSQLite, 1)
	w.answerWithin(50 * time.Millisecond)
	cfg := quick()
	cfg.RequestTimeout, cfg.Lease = 30*time.Second, 90*time.Second
	cfg.MaxInFlightPerEndpoint = 8
	w.dispatch(w.openHost(options{}), cfg)

	db, err := sql.Open("sqlite", "file:"+w.url+sqliteOptions)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	var work sync.WaitGroup
	work.Go(func() { // a reader that takes its time
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
		if !assert.NoError(t, err) {
			return
		}
		var n int
		assert.NoError(t, tx.QueryRowContext(t.Context(), `SELECT count(*) FROM orders`).Scan(&n))
		<-time.After(2 * time.Second)
		_ = tx.Rollback()
	})
	for range writers {
		work.Go(func() {
			for range transactions {
				err := w.host.order(t.Context(), placed(uuid.New(), w.tenants[0]), func() bool { return true })
				if !assert.NoError(t, err, "an error of the database reaches the host") {
					return
				}
			}
		})
	}
	work.Wait()

	assert.Len(t, w.drained(), writers*transactions)
	assert.Len(t, w.received(), writers*transactions)
}
