// Package storetest is the conformance suite of [webhook.Store]: a store is one
// if it passes. Each test is named by the sentence of the contract that it
// checks.
//
// A store's own test calls [Run] with a [Harness] that knows how to make an
// empty database and how to run a host's transaction on it:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, storetest.Harness[*sql.Tx]{
//			Open: func(t testing.TB) storetest.Database[*sql.Tx] { return openDatabase(t) },
//		})
//	}
//
// The suite never waits for time to pass: every time that matters is a
// parameter of the store's methods.
package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/outhook/webhook"
)

// defaultTimeout is how long a test may take before its context ends. It is
// there to turn a store that hangs into one that fails.
const defaultTimeout = 2 * time.Minute

// Harness tells [Run] how to get at the store under test.
type Harness[Tx any] struct {
	// Open makes an empty database with the store's present schema, for one
	// test alone, and removes it in t.Cleanup. Tests run in parallel. Required.
	Open func(t testing.TB) Database[Tx]

	// OpenOutdated makes a database that lacks migrations. Nil leaves the test
	// of it out: for a store without a schema.
	OpenOutdated func(t testing.TB) Database[Tx]

	// OpenNewer makes a database that was migrated by a version of the store
	// newer than this one. Nil leaves the test of it out.
	OpenNewer func(t testing.TB) Database[Tx]

	// SingleWriter is set for a database on which a second writing transaction
	// waits for the first to end, such as SQLite. It leaves out the tests of
	// what cannot happen there, such as commits in another order than inserts.
	SingleWriter bool

	// SingleConnection is set for a store that has one connection, so that its
	// reads wait for the host's open transaction, such as an SQLite database in
	// memory. It leaves out the test that reads beside one.
	SingleConnection bool

	// Notifications is set for a store that implements [webhook.Notifier].
	Notifications bool

	// Timeout limits each test; 0 means 2 minutes.
	Timeout time.Duration
}

// Database is one database, as several processes of a host use it.
type Database[Tx any] interface {
	// Connect returns another store on the database, as another process would
	// have. A store without shared state outside of the database may return
	// the same value each time.
	Connect(t testing.TB) webhook.Store[Tx]

	// Begin starts a transaction of the host.
	Begin(ctx context.Context) (Tx, error)
	// Commit commits a transaction of the host.
	Commit(ctx context.Context, tx Tx) error
	// Rollback rolls a transaction of the host back.
	Rollback(ctx context.Context, tx Tx) error
}

// Run runs the conformance suite. It may be called once per test function.
func Run[Tx any](t *testing.T, h Harness[Tx]) {
	if h.Open == nil {
		t.Fatal("storetest: Harness.Open is required")
	}
	for _, group := range groups(h) {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			for _, test := range group.tests {
				t.Run(test.name, func(t *testing.T) {
					t.Parallel()
					runTest(t, h, test)
				})
			}
		})
	}
}

// group is the tests of one role of the store.
type group[Tx any] struct {
	name  string
	tests []test[Tx]
}

// test checks one sentence of the contract.
type test[Tx any] struct {
	name string
	run  func(*env[Tx])
	// open makes the test's database; nil means Harness.Open.
	open func(testing.TB) Database[Tx]
}

// groups returns the tests that apply to the harness.
func groups[Tx any](h Harness[Tx]) []group[Tx] {
	return []group[Tx]{
		{"outbox", join(outboxTests(h), duplicateTests[Tx](), concurrentOutboxTests(h))},
		{"fan-out", join(fanOutTests[Tx](), giantTests[Tx](), matcherTests[Tx](), concurrentFanOutTests(h))},
		{"deliveries", join(readyTests[Tx](), claimTests[Tx](), leaseTests[Tx](), recordTests[Tx](), cancelTests[Tx](), concurrentClaimTests[Tx]())},
		{"order", join(orderTests[Tx](), besideTests(h), holdTests[Tx]())},
		{"endings", join(onceTests[Tx](), windowTests[Tx]())},
		{"actions", join(actionTests[Tx](), testLogTests[Tx](), runTests[Tx]())},
		{"replays", join(replayJobTests[Tx](), replayScanTests[Tx](), replayWorkTests[Tx]())},
		{"endpoints", join(endpointTests[Tx](), changedEndpointsTests[Tx]())},
		{"log", join(logTests[Tx](), listTests[Tx](), attemptLogTests[Tx]())},
		{"cluster", join(clusterTests[Tx](), splitTests[Tx](), shedTests[Tx]())},
		{"health", join(vitalsTests[Tx](), healthTests[Tx](), noticeTests[Tx]())},
		{"retention", join(retentionTests[Tx](), counterTests[Tx](), dutyTests[Tx]())},
		{"erasure", eraseTests[Tx]()},
		{"payloads", payloadTests[Tx]()},
		{"system", join(systemTests[Tx](), schemaTests(h), notifierTests(h))},
	}
}

func join[Tx any](lists ...[]test[Tx]) []test[Tx] {
	var all []test[Tx]
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}

// runTest runs one test against a database of its own.
func runTest[Tx any](t testing.TB, h Harness[Tx], tt test[Tx]) {
	timeout := h.Timeout
	if timeout == 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	t.Cleanup(cancel)
	open := h.Open
	if tt.open != nil {
		open = tt.open
	}
	db := open(t)
	e := &env[Tx]{t: t, ctx: ctx, db: db, store: db.Connect(t)}
	now, err := e.store.Now(ctx)
	e.must(err, "read the database's time")
	e.now = now.UTC().Truncate(time.Microsecond)
	tt.run(e)
}
