package webhook

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// countingNotifier counts signals and records when they came.
type countingNotifier struct {
	began time.Time
	at    []time.Duration
	busy  atomic.Int32
}

func (n *countingNotifier) Notify(context.Context, Signal) error {
	if n.busy.Add(1) > 1 {
		panic("two signals at once")
	}
	defer n.busy.Add(-1)
	n.at = append(n.at, time.Since(n.began))
	return errors.New("a signal that fails loses nothing")
}

func (n *countingNotifier) Listen(context.Context, func(), func(Signal)) error { return nil }

func TestEnqueueWakesADispatcherOfThisProcessInThreeSteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &countingNotifier{began: time.Now()}
		w := newWaker(n)
		defer w.close()
		c := make(chan struct{}, 1)
		defer w.listen(c)()

		began := time.Now()
		w.arm()
		var at []time.Duration
		for range 3 {
			<-c
			at = append(at, time.Since(began))
		}

		assert.Equal(t, []time.Duration{5 * time.Millisecond, 55 * time.Millisecond, 305 * time.Millisecond}, at)
		time.Sleep(time.Second) // virtual
		assert.Empty(t, c, "then it is quiet")
		assert.Empty(t, n.at, "other processes are not bothered")
	})
}

func TestManyEventsGiveOneWakeUpPerStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaker(nil)
		defer w.close()
		c := make(chan struct{}, 1)
		defer w.listen(c)()

		wakeUps := 0
		for range 1000 { // one event per 0.1 ms
			w.arm()
			time.Sleep(100 * time.Microsecond) // virtual
			select {
			case <-c:
				wakeUps++
			default:
			}
		}

		assert.InDelta(t, 20, wakeUps, 1, "100 ms of events, a wake-up each 5 ms")
	})
}

func TestAnEventAmongOthersWaitsNoLongerThanTheFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaker(nil)
		defer w.close()
		c := make(chan struct{}, 1)
		defer w.listen(c)()

		for range 100 { // one per 15 ms, while the later steps of the one before are armed
			w.arm()
			began := time.Now()
			<-c
			assert.Equal(t, wakeSteps[0], time.Since(began))
			time.Sleep(10 * time.Millisecond) // virtual
		}
	})
}

func TestOtherProcessesAreSignalledSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &countingNotifier{began: time.Now()}
		w := newWaker(n)
		for range 10_000 {
			w.arm()
			time.Sleep(100 * time.Microsecond) // virtual
		}
		time.Sleep(time.Second) // virtual
		w.close()

		assert.InDelta(t, 21, len(n.at), 3, "one per 50 ms of the second in which events came")
		assert.Equal(t, 5*time.Millisecond, n.at[0], "the first comes soon")
		w.arm()
		time.Sleep(time.Second) // virtual
		assert.LessOrEqual(t, len(n.at), 24, "nothing after close")
	})
}
