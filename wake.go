package webhook

import (
	"context"
	"sync"
	"time"
)

// wakeSteps are the delays after Enqueue at which dispatchers are woken. The
// library cannot see the host's commit: most commits are over after the first,
// slow ones after the last, and polling covers the rest (docs/design.md §2).
var wakeSteps = [...]time.Duration{5 * time.Millisecond, 50 * time.Millisecond, 250 * time.Millisecond}

// notifyInterval is the shortest time between two signals to other processes.
// Each costs the database a commit.
const notifyInterval = 50 * time.Millisecond

// waker tells dispatchers that there may be new events: those of this process
// through channels, those of others through the store's Notifier.
//
// It owns at most one timer and one running Notify. Close ends both.
type waker struct {
	notifier Notifier // nil when the store has none

	mu         sync.Mutex
	listeners  map[chan struct{}]struct{} // fan-outs of the dispatchers in this process
	reconciles map[chan struct{}]struct{} // and their reconciliations
	timer      *time.Timer                // nil when nothing is armed
	step       int                        // index into wakeSteps of the armed timer
	again      bool                       // arm was called since the timer was armed
	lastNotify time.Time
	notifying  bool
	closed     bool
	running    sync.WaitGroup // Notify calls
	ctx        context.Context
	cancel     context.CancelFunc
}

func newWaker(notifier Notifier) *waker {
	w := &waker{
		notifier:   notifier,
		listeners:  make(map[chan struct{}]struct{}),
		reconciles: make(map[chan struct{}]struct{}),
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// listen registers a dispatcher's wake-up channel, which must have a buffer of
// one, until the returned function is called.
func (w *waker) listen(c chan struct{}) (stop func()) { return w.register(w.listeners, c) }

// listenDue registers, likewise, a channel to be woken when deliveries have
// become due by another way than fan-out.
func (w *waker) listenDue(c chan struct{}) (stop func()) { return w.register(w.reconciles, c) }

func (w *waker) register(set map[chan struct{}]struct{}, c chan struct{}) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	set[c] = struct{}{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(set, c)
	}
}

// arm schedules the wake-ups that follow an Enqueue. While events keep coming
// there is one wake-up per first step, not one per event.
func (w *waker) arm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
	case w.timer != nil && (w.step == 0 || !w.timer.Stop()): // it fires soon, or now
		w.again = true
	default:
		// A later step of events before waits no longer: what it would find, the first
		// one of this event finds.
		w.step = 0
		w.timer = time.AfterFunc(wakeSteps[0], w.fire)
	}
}

// wake wakes all dispatchers now.
func (w *waker) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.signalLocked()
}

// endpointsChanged tells all dispatchers to read endpoints again.
func (w *waker) endpointsChanged() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.listeners {
		poke(c)
	}
	w.notifyLocked(SignalEndpoints)
}

// deliveriesDue tells all dispatchers to look for deliveries that are due.
func (w *waker) deliveriesDue() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.reconciles {
		poke(c)
	}
	w.notifyLocked(SignalReady)
}

func (w *waker) fire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.signalLocked()
	w.timer = nil
	switch {
	case w.again:
		w.again = false
		w.step = 0
	case w.step+1 < len(wakeSteps):
		w.step++
	default:
		return
	}
	w.timer = time.AfterFunc(wakeSteps[w.step], w.fire)
}

func (w *waker) signalLocked() {
	for c := range w.listeners {
		poke(c)
	}
	// A dispatcher in this process finds the event; others need not look too.
	if len(w.listeners) > 0 {
		return
	}
	w.notifyLocked(SignalEvents)
}

// notifyLocked signals the other processes, unless that happened just now or
// is happening: the later steps of the wake-up, and polling, cover it.
func (w *waker) notifyLocked(s Signal) {
	if w.notifier == nil || w.closed || w.notifying || time.Since(w.lastNotify) < notifyInterval {
		return
	}
	w.notifying = true
	w.lastNotify = time.Now()
	w.running.Go(func() {
		ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
		defer cancel()
		// An error loses nothing: the other processes poll.
		_ = w.notifier.Notify(ctx, s)
		w.mu.Lock()
		w.notifying = false
		w.mu.Unlock()
	})
}

// close stops timers and waits for a running Notify to end.
func (w *waker) close() {
	w.mu.Lock()
	w.closed = true
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Unlock()
	w.cancel()
	w.running.Wait()
}
