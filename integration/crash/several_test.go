package crash_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

var bothKinds = []string{onPostgres, onSQLite}

// B10: a start-up races with live dispatchers for the same rows.
func TestB10ThreeDispatchersSendEachDeliveryOnce(t *testing.T) {
	t.Parallel()
	for _, kind := range bothKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			const events = 300
			w := newWorld(t, kind, 3)
			w.answerWithin(20 * time.Millisecond)
			for i := range events {
				w.takeOrderOf(w.tenants[i%len(w.tenants)])
			}
			cfg := quick()
			cfg.RequestTimeout, cfg.Lease = 30*time.Second, 90*time.Second
			for range 3 {
				w.dispatch(w.openHost(options{}), cfg)
			}

			w.drained()

			requests, distinct := w.received(), make(map[uuid.UUID]bool)
			for _, r := range requests {
				distinct[r.event] = true
			}
			assert.Len(t, requests, events)
			assert.Len(t, distinct, events)
			assert.Equal(t, 1, w.most, "requests in flight for one delivery")
		})
	}
}

// B30: a claimed batch must not stay locked after a scale-down.
func TestB30AStoppedDispatcherHandsBackAtOnce(t *testing.T) {
	t.Parallel()
	for _, kind := range bothKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			const events = 100
			w := newWorld(t, kind, 1)
			w.answerWithin(500 * time.Millisecond)
			for range events {
				w.takeOrder()
			}
			// The lease is so long that waiting for it would fail the test.
			cfg := quick()
			cfg.RequestTimeout, cfg.Lease, cfg.GracePeriod = 30*time.Second, time.Hour, 20*time.Second
			stop := w.dispatch(w.openHost(options{}), cfg)
			w.eventually("some are in flight", func() bool { return len(w.received()) >= 4 })
			stop()
			sentByFirst := len(w.received())
			assert.Less(t, sentByFirst, events, "the second has something to do")
			left, err := w.host.unfinished(t.Context())
			require.NoError(t, err)
			for i := range left {
				assert.Equal(t, webhook.StatePending, left[i].State, "nothing stays leased")
			}
			assert.Len(t, left, events-sentByFirst, "what was in flight has finished")

			w.answerWithin(0)
			w.dispatch(w.openHost(options{}), cfg)
			w.drained()

			assert.Len(t, w.received(), events, "nothing was sent twice")
		})
	}
}

// B38: rows that nobody tells of are found by looking.
func TestB38NothingDependsOnBeingTold(t *testing.T) {
	t.Parallel()
	for _, kind := range bothKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, kind, 1)
			cfg := quick()
			cfg.PollInterval = 200 * time.Millisecond
			w.dispatch(w.openHost(options{}), cfg)
			w.arrives(w.takeOrder())

			// From a process that does not dispatch.
			committed := time.Now()
			assert.WithinDuration(t, committed, w.arrives(w.takeOrder()), aPoll)

			// Long after Enqueue was called, when its wake-ups are over.
			slow := uuid.New()
			require.NoError(t, w.host.order(t.Context(), placed(slow, w.tenants[0]), func() bool {
				pause(t.Context(), 1200*time.Millisecond)
				committed = time.Now()
				return true
			}))
			assert.WithinDuration(t, committed, w.arrives(slow), aPoll)

			// A retry, with no traffic to wake anybody.
			var failed time.Time
			w.answerWith(func(request) int {
				if failed.IsZero() {
					failed = time.Now()
					return 500
				}
				return 200
			})
			retried := w.takeOrder()
			w.eventually("the retry arrives", func() bool {
				n := 0
				for _, r := range w.received() {
					if r.order == retried {
						n++
					}
				}
				return n == 2
			})
			assert.WithinDuration(t, failed.Add(time.Second), time.Now(), aPoll)
			w.drained()
		})
	}
}

// B45: a lower id that commits later is skipped by whoever keeps a cursor.
func TestB45TransactionsThatCommitOutOfOrderLoseNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onPostgres, 2)
	for range 2 {
		w.dispatch(w.openHost(options{}), quick())
	}

	// The first stays open while all the others come and go.
	first, release := uuid.New(), make(chan struct{})
	var open sync.WaitGroup
	open.Go(func() {
		assert.NoError(t, w.host.order(t.Context(), placed(first, w.tenants[0]), func() bool { <-release; return true }))
	})
	var others sync.WaitGroup
	rolledBack := make(chan uuid.UUID, 50)
	for i := range 50 {
		others.Go(func() {
			id, keep := uuid.New(), rand.IntN(4) > 0
			assert.NoError(t, w.host.order(t.Context(), placed(id, w.tenants[i%2]), func() bool {
				pause(t.Context(), time.Duration(rand.IntN(400))*time.Millisecond)
				return keep
			}))
			if !keep {
				rolledBack <- id
			}
		})
	}
	others.Wait()
	close(rolledBack)
	w.drained()
	_, early := w.arrival(first)
	assert.False(t, early, "an open transaction's event was sent")
	close(release)
	open.Wait()

	committed := w.drained()
	require.True(t, committed[first])
	for id := range rolledBack {
		_, sent := w.arrival(id)
		assert.False(t, sent, "a rolled-back event was sent")
	}
	w.eachOnce(len(committed))
}
