package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/outhook/webhook"
)

func isConflict(err error) bool { return errors.Is(err, webhook.ErrConflict) }

func systemTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "the database's time goes forward and is in UTC", run: func(e *env[Tx]) {
			var last time.Time
			for range 20 {
				now, err := e.store.Now(e.ctx)
				e.must(err, "read the database's time")
				e.equal(time.UTC, now.Location(), "location")
				// A clock may be set back a little; a second would be felt.
				e.truth(now.After(last.Add(-time.Second)), "time: got %s after %s", now, last)
				last = now
			}
		}},
		{name: "the time of two stores on one database is the same", run: func(e *env[Tx]) {
			one, err := e.store.Now(e.ctx)
			e.must(err, "read the time of one")
			two, err := e.db.Connect(e.t).Now(e.ctx)
			e.must(err, "read the time of the other")
			e.truth(two.Sub(one).Abs() < 5*time.Second, "times %s and %s", one, two)
		}},
		{name: "the present schema is accepted", run: func(e *env[Tx]) {
			e.must(e.store.CheckSchema(e.ctx), "check the schema")
		}},
		{name: "maintenance is harmless, however often and by however many", run: func(e *env[Tx]) {
			endpoint := e.deliveries(3, "acme")
			claimed := e.claim(e.now, oldest(endpoint, webhook.LaneFirst, 2))
			e.need(2, len(claimed), "deliveries claimed")
			e.record(e.now, delivered(claimed[0], e.now), retry(claimed[1], e.now, e.at(time.Minute)))
			waiting := e.event("acme", "order.created")
			e.enqueue(waiting)

			for range 2 {
				e.maintain(webhook.MaintainParams{Now: e.now})
			}
			e.concurrently(3, func(int) error {
				return e.db.Connect(e.t).Maintain(e.ctx, webhook.MaintainParams{Now: e.at(24 * time.Hour)})
			})

			e.equal(webhook.StateDelivered, e.getDelivery(claimed[0].DeliveryID).State, "state of the finished one")
			e.equal(1, len(e.attempts(claimed[0].DeliveryID)), "attempts of the finished one")
			e.equal(1, len(e.claim(e.at(time.Minute), oldest(endpoint, webhook.LaneRetry, plenty))), "retries claimed")
			e.fanOut()
			e.equal(endpointIDs(endpoint), e.reached(waiting.ID), "endpoints reached by the event that waited")
			e.equal(2, len(e.claim(e.at(time.Minute), oldest(endpoint, webhook.LaneFirst, plenty))), "others claimed")
		}},
		{name: "maintenance never removes what is unfinished, however old", run: func(e *env[Tx]) {
			endpoint := e.deliveries(1, "acme")
			waiting := e.event("acme", "order.created")
			waiting.CreatedAt = e.at(-1000 * 24 * time.Hour)
			e.enqueue(waiting)
			at := e.at(400 * 24 * time.Hour)

			e.maintain(webhook.MaintainParams{Now: at, DeliveriesBefore: at, DeadBefore: at, EventsBefore: at})

			e.fanOutAt(at)
			e.equal(endpointIDs(endpoint), e.reached(waiting.ID), "endpoints reached by the event that waited")
			claimed := e.claim(at, oldest(endpoint, webhook.LaneFirst, plenty))
			e.equal(2, len(claimed), "deliveries claimed")
			for _, c := range claimed {
				e.sameBytes([]byte(`{}`), c.Event.Payload, "payload")
			}
		}},
	}
}

// schemaTests are about databases that other versions of the store have left.
func schemaTests[Tx any](h Harness[Tx]) []test[Tx] {
	var tests []test[Tx]
	add := func(name string, open func(testing.TB) Database[Tx], want error) {
		if open == nil {
			return
		}
		tests = append(tests, test[Tx]{name: name, open: open, run: func(e *env[Tx]) {
			e.wantError(want, e.store.CheckSchema(e.ctx), "check the schema")
		}})
	}
	add("a schema that lacks migrations is told as outdated", h.OpenOutdated, webhook.ErrSchemaOutdated)
	add("a schema of a newer version is told as newer", h.OpenNewer, webhook.ErrSchemaNewer)
	return tests
}

// notifierTests are about stores that let processes wake one another.
func notifierTests[Tx any](h Harness[Tx]) []test[Tx] {
	if !h.Notifications {
		return nil
	}
	return []test[Tx]{
		{name: "a signal reaches every process that listens", run: func(e *env[Tx]) {
			one, two := e.listen(e.ctx), e.listen(e.ctx)
			for _, signal := range []webhook.Signal{webhook.SignalEvents, webhook.SignalEndpoints} {
				e.must(e.notifier().Notify(e.ctx, signal), "notify")
				e.expectSignal(one, signal)
				e.expectSignal(two, signal)
			}
		}},
		{name: "listening ends without an error when it is told to", run: func(e *env[Tx]) {
			ctx, cancel := context.WithCancel(e.ctx)
			l := e.listen(ctx)
			cancel()
			e.must(<-l.ended, "listen")
		}},
		{name: "nobody needs to listen", run: func(e *env[Tx]) {
			e.must(e.notifier().Notify(e.ctx, webhook.SignalEvents), "notify")
		}},
	}
}

func (e *env[Tx]) notifier() webhook.Notifier {
	e.t.Helper()
	n, ok := any(e.db.Connect(e.t)).(webhook.Notifier)
	if !ok {
		e.t.Fatal("the store does not implement webhook.Notifier, though Harness.Notifications is set")
	}
	return n
}

// listening is a Listen call of another process.
type listening struct {
	signals chan webhook.Signal
	ended   chan error
}

// listen starts to listen and returns when signals are heard.
func (e *env[Tx]) listen(ctx context.Context) *listening {
	e.t.Helper()
	n := e.notifier()
	ctx, cancel := context.WithCancel(ctx)
	l := &listening{signals: make(chan webhook.Signal, 16), ended: make(chan error, 1)}
	ready, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		l.ended <- n.Listen(ctx, func() { close(ready) }, func(s webhook.Signal) { l.signals <- s })
	}()
	e.t.Cleanup(func() {
		cancel()
		<-gone
	})
	select {
	case <-ready:
	case err := <-l.ended:
		e.t.Fatalf("listening ended before it began: %v", err)
	}
	return l
}

// expectSignal waits for a signal. Another may come first, since nothing is
// promised of how often a signal is heard.
func (e *env[Tx]) expectSignal(l *listening, want webhook.Signal) {
	e.t.Helper()
	for {
		select {
		case got := <-l.signals:
			if got == want {
				return
			}
		case err := <-l.ended:
			e.t.Fatalf("listening ended while waiting for %q: %v", want, err)
		case <-e.ctx.Done():
			e.t.Fatalf("signal %q was not heard", want)
		}
	}
}
