package crash_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

// A process that stands still between its claim and its request finds, when it
// goes on, that its lease was taken over: it sends nothing.
func TestAStoppedProcessSendsNothingUnderAnExpiredLease(t *testing.T) {
	t.Parallel()
	for _, at := range []point{afterClaim, beforeSend} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, onPostgres, 1)
			late := w.start(orders{Dispatch: true, Point: at, Nth: 1, Hold: true})
			order := w.takeOrder()
			event := late.awaitHit()[0]
			late.freeze()
			inTime := w.start(orders{Dispatch: true})
			require.Equal(t, map[uuid.UUID]bool{order: true}, w.drained())
			assert.Equal(t, 1, w.receivedFrom(inTime.number)[event])
			assert.Equal(t, 1, w.takeoversSoFar())

			late.tell("go")
			late.thaw()
			// It is alive again when it delivers something new by itself.
			inTime.stop()
			second := w.takeOrder()
			require.Equal(t, map[uuid.UUID]bool{order: true, second: true}, w.drained())
			late.stop()

			assert.Zero(t, w.receivedFrom(late.number)[event], "nothing was sent late")
			d, attempts := w.deliveries(t.Context(), event)
			require.Len(t, d, 1)
			assert.Equal(t, webhook.StateDelivered, d[0].State)
			assert.Len(t, attempts[0], 1)
		})
	}
}

// A result that comes after its lease was taken over changes nothing; the log
// keeps it, marked.
func TestALateResultChangesNothingAndIsLogged(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{onPostgres, onSQLite} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, kind, 1)
			late := w.start(orders{Dispatch: true, Point: beforeFlush, Nth: 1, Hold: true})
			w.answerWith(func(r request) int {
				if r.sender == late.number {
					return 503
				}
				return 200
			})
			w.takeOrder()
			event := late.awaitHit()[0]
			late.freeze()
			inTime := w.start(orders{Dispatch: true})
			w.drained()
			late.tell("go")
			late.thaw()

			w.eventually("the late attempt is logged", func() bool {
				_, attempts := w.deliveries(t.Context(), event)
				return len(attempts) == 1 && len(attempts[0]) == 2
			})
			late.stop()
			inTime.stop()

			d, attempts := w.deliveries(t.Context(), event)
			require.Len(t, d, 1)
			assert.Equal(t, webhook.StateDelivered, d[0].State, "the late failure changed nothing")
			assert.Equal(t, 1, d[0].Attempts)
			assert.Equal(t, 200, d[0].LastStatus)
			statuses := map[bool]int{}
			for _, a := range attempts[0] {
				statuses[a.Late] = a.Status
			}
			assert.Equal(t, map[bool]int{true: 503, false: 200}, statuses)
			assert.Len(t, w.received(), 2)
		})
	}
}

// Processes whose clocks are twenty minutes apart agree on what is due and on
// whose lease is over, because the database's time is what counts.
func TestWrongClocksStealNoLeasesAndDelayNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onPostgres, 4)
	failed := make(map[uuid.UUID]time.Time)
	w.answerWith(func(r request) int {
		if _, again := failed[r.event]; again || len(failed) == 5 {
			return 200
		}
		failed[r.event] = r.at
		return 500
	})
	fast := w.start(orders{Dispatch: true, Tenants: w.tenants, ClockOffset: 10 * time.Minute})
	slow := w.start(orders{Dispatch: true, Tenants: w.tenants, ClockOffset: -10 * time.Minute})
	w.eventually("both work for a while", func() bool {
		return len(w.receivedFrom(fast.number))+len(w.receivedFrom(slow.number)) > 60
	})
	fast.stop()
	slow.stop()
	last := w.start(orders{Dispatch: true})
	committed := w.drained()
	last.stop()

	requests := w.received()
	w.eachOnce(len(committed))
	assert.Zero(t, w.takeoversSoFar(), "nobody took a valid lease")
	for _, r := range requests {
		assert.WithinDuration(t, r.at, r.signed, 5*time.Second, "receivers refuse timestamps that are far off")
		first, retried := failed[r.event]
		if retried && r.at.After(first) {
			assert.GreaterOrEqual(t, r.at.Sub(first), 900*time.Millisecond, "a retry is not early")
		}
	}
}
