package storetest

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// raceHeadStart is how long a test lets a second transaction run into the first
// before it ends the first. It decides nothing: a store is right or wrong
// whether or not the second got that far.
const raceHeadStart = 30 * time.Millisecond

// concurrentOutboxTests are about host transactions that overlap.
func concurrentOutboxTests[Tx any](h Harness[Tx]) []test[Tx] {
	tests := []test[Tx]{
		{name: "a key's twin is waited for and is the first event once it commits", run: func(e *env[Tx]) {
			first, second := e.keyed("acme", "k"), e.keyed("acme", "k")
			tx := e.begin()
			tx.insert(first)
			raced := e.race(second)
			tx.commit()

			result := raced()

			e.equal(webhook.EnqueueResult{EventID: first.ID, Duplicate: true}, result, "result of the second")
			e.onlyThese(first)
		}},
		{name: "a key's twin is waited for and forgotten once it rolls back", run: func(e *env[Tx]) {
			first, second := e.keyed("acme", "k"), e.keyed("acme", "k")
			tx := e.begin()
			tx.insert(first)
			raced := e.race(second)
			tx.rollback()

			result := raced()

			e.equal(webhook.EnqueueResult{EventID: second.ID}, result, "result of the second")
			e.onlyThese(second)
		}},
		{name: "of many that race for a key exactly one writes, and all hear of it", run: func(e *env[Tx]) {
			const racers = 8
			events := make([]webhook.EventRecord, racers)
			results := make([]webhook.EnqueueResult, racers)
			for i := range events {
				events[i] = e.keyed("acme", "k")
			}
			e.concurrently(racers, func(i int) error {
				// Half of them roll back: whatever they saw must not have been
				// made of an event that never came to be.
				got, err := e.enqueueIn(e.store, i%2 == 0, events[i])
				if err == nil {
					results[i] = got[0]
				}
				return err
			})

			var written []webhook.EventRecord
			for i := 0; i < racers; i += 2 {
				if !results[i].Duplicate {
					written = append(written, events[i])
				}
			}
			e.need(1, len(written), "events written by those who committed")
			for i := 0; i < racers; i += 2 {
				e.equal(written[0].ID, results[i].EventID, "event that racer %d heard of", i)
			}
			e.onlyThese(written...)
		}},
		{name: "calls with the same keys in opposite order do not deadlock", run: func(e *env[Tx]) {
			for round := range 10 {
				e.concurrently(4, func(i int) error {
					var events []webhook.EventRecord
					for k := range 20 {
						events = append(events, e.keyed("acme", fmt.Sprintf("%d-%d", round, k)))
					}
					if i%2 == 1 {
						slices.Reverse(events)
					}
					_, err := e.enqueueIn(e.store, true, events...)
					return err
				})
			}
			finished, err := e.drain(e.store, e.now, plenty)
			e.must(err, "fan out")
			e.equal(10*20, finished, "events written")
		}},
	}
	if h.SingleWriter {
		return tests
	}
	return append(tests, []test[Tx]{
		{name: "open transactions with other keys do not wait for each other", run: func(e *env[Tx]) {
			var events []webhook.EventRecord
			var open []*hostTx[Tx]
			for i := range 4 {
				keyed, plain := e.keyed("acme", fmt.Sprint(i)), e.event("acme", "order.created")
				tx := e.begin()
				tx.insert(keyed, plain)
				open = append(open, tx)
				events = append(events, keyed, plain)
			}
			slices.Reverse(open)
			for _, tx := range open {
				tx.commit()
			}
			e.onlyThese(events...)
		}},
		{name: "an event that commits later than one enqueued after it is not missed", run: func(e *env[Tx]) {
			early, late := e.event("acme", "order.created"), e.event("acme", "order.created")
			endpoint := e.endpoint("acme", "*")
			m := newMatcher()
			slow, quick := e.begin(), e.begin()
			slow.insert(early)
			quick.insert(late)
			quick.commit()
			e.equal(1, e.fanOutWith(m, plenty, plenty).Finished, "events finished before the slow commit")

			slow.commit()
			e.equal(1, e.fanOutWith(m, plenty, plenty).Finished, "events finished after the slow commit")

			e.equal([]uuid.UUID{endpoint.ID}, e.reached(early.ID), "endpoints of the early event")
			e.equal([]uuid.UUID{endpoint.ID}, e.reached(late.ID), "endpoints of the late event")
		}},
		{name: "fan-out beside transactions of all lengths misses nothing and invents nothing", run: func(e *env[Tx]) {
			e.endpoint("acme", "*")
			const hosts, each = 4, 15
			committed := make([][]uuid.UUID, hosts)
			var running atomic.Int32
			running.Store(hosts)
			e.concurrently(hosts+1, func(host int) error {
				if host == hosts {
					for running.Load() > 0 {
						if _, err := e.drain(e.store, e.now, 3); err != nil {
							return err
						}
					}
					return nil
				}
				defer running.Add(-1)
				for i := range each {
					event := e.event("acme", "order.created")
					commit := (host+i)%3 != 0
					if _, err := e.enqueueIn(e.store, commit, event); err != nil {
						return err
					}
					if commit {
						committed[host] = append(committed[host], event.ID)
					}
				}
				return nil
			})
			e.fanOut()
			e.sameSet(slices.Concat(committed...), e.deliveredEvents(), "events with a delivery")
		}},
	}...)
}

// race enqueues an event in a transaction of another goroutine that runs into
// whatever is open now, and returns a function that waits for its result.
func (e *env[Tx]) race(event webhook.EventRecord) (wait func() webhook.EnqueueResult) {
	type outcome struct {
		results []webhook.EnqueueResult
		err     error
	}
	ended := make(chan outcome, 1)
	go func() {
		results, err := e.enqueueIn(e.store, true, event)
		ended <- outcome{results, err}
	}()
	headStart := time.After(raceHeadStart)
	var early *outcome
	select {
	case o := <-ended:
		early = &o
	case <-headStart:
	}
	return func() webhook.EnqueueResult {
		e.t.Helper()
		if early == nil {
			o := <-ended
			early = &o
		}
		e.must(early.err, "enqueue in the second transaction")
		return early.results[0]
	}
}

// deliveredEvents returns the event of every delivery.
func (e *env[Tx]) deliveredEvents() []uuid.UUID {
	e.t.Helper()
	var ids []uuid.UUID
	for _, d := range e.list(webhook.ListDeliveriesParams{Scope: webhook.AllTenants()}) {
		ids = append(ids, d.EventID)
	}
	return ids
}
