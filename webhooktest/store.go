package webhooktest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/timeid"
)

// ErrTxDone is returned when a transaction is used after it has ended.
var ErrTxDone = errors.New("webhooktest: transaction has already been committed or rolled back")

// Store is a [webhook.Store] in memory. It keeps the whole contract of the
// interface, with real transactions for the host: what a [Tx] enqueues is
// invisible until Commit, gone after Rollback, and may commit in another order
// than it was enqueued in.
//
// It is made to be read and to be tested against, not to be fast: everything
// stands under one mutex and most reads scan. Make it with [NewStore]; its
// methods are safe for concurrent use.
type Store struct {
	mu  sync.Mutex // protects everything below
	now func() time.Time

	sequence int64 // the last position given to an outbox entry
	revision int64 // the last revision given to an endpoint

	keys       map[key]*keyHolder
	events     map[uuid.UUID]*event
	outbox     []*entry // committed entries, in ascending order of position
	endpoints  map[uuid.UUID]*webhook.EndpointRecord
	deliveries map[uuid.UUID]*delivery
	unfinished map[uuid.UUID]map[uuid.UUID]*delivery // endpoint id → delivery id →
	attempts   map[uuid.UUID][]loggedAttempt         // delivery id →
	replayJobs map[uuid.UUID]*replayJob
	listeners  map[*listener]struct{}
	cluster    cluster
	counters   map[counterKey]*webhook.DayCounters
	duties     map[string]duty
	fares      fares
	gone       map[uuid.UUID]string           // event id → tenant, of payloads nobody refers to
	orderHolds map[webhook.OrderKey]time.Time // keys whose turn goes to nobody until then
	ids        timeid.Generator               // of deliveries
}

var (
	_ webhook.Store[*Tx] = (*Store)(nil)
	_ webhook.Notifier   = (*Store)(nil)
)

// NewStore returns an empty store whose clock is the machine's.
func NewStore() *Store {
	return &Store{
		now:        time.Now,
		keys:       map[key]*keyHolder{},
		events:     map[uuid.UUID]*event{},
		endpoints:  map[uuid.UUID]*webhook.EndpointRecord{},
		deliveries: map[uuid.UUID]*delivery{},
		unfinished: map[uuid.UUID]map[uuid.UUID]*delivery{},
		attempts:   map[uuid.UUID][]loggedAttempt{},
		replayJobs: map[uuid.UUID]*replayJob{},
		listeners:  map[*listener]struct{}{},
		cluster:    newCluster(),
		counters:   map[counterKey]*webhook.DayCounters{},
		duties:     map[string]duty{},
		fares:      newFares(),
		gone:       map[uuid.UUID]string{},
		orderHolds: map[webhook.OrderKey]time.Time{},
	}
}

// SetNow sets the store's clock, for instance to the Now method of a [Clock].
func (s *Store) SetNow(now func() time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = now
}

// key is what idempotency is decided by.
type key struct{ tenant, name string }

// keyHolder is the event that a key stands for. While tx is not nil the event
// is not committed, and whoever wants the key waits for that transaction.
type keyHolder struct {
	eventID uuid.UUID
	tx      *Tx
}

type event struct {
	webhook.EventRecord
	key       string // the idempotency key, which reads do not return
	fannedOut bool
	unmatched bool
}

// entry is an event's place in the outbox.
type entry struct {
	event    *event
	position int64
	after    uuid.UUID // the last endpoint that got its delivery; zero at first
	held     bool      // by a fan-out that has not ended
}

// Tx is a host's transaction on a [Store]. It must not be used by several
// goroutines at once.
type Tx struct {
	store  *Store
	ended  chan struct{} // closed by Commit and Rollback
	done   bool
	events []*event
	keys   []key
}

// Begin starts a transaction. Any number may be open at the same time.
func (s *Store) Begin() *Tx {
	return &Tx{store: s, ended: make(chan struct{})}
}

// Commit makes what the transaction enqueued visible, all at once.
// It returns [ErrTxDone] if the transaction has already ended.
func (tx *Tx) Commit() error {
	s := tx.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if tx.done {
		return ErrTxDone
	}
	for _, k := range tx.keys {
		s.keys[k].tx = nil
	}
	for _, e := range tx.events {
		s.events[e.ID] = e
		s.insertEntry(&entry{event: e, position: e.Sequence})
	}
	tx.end()
	return nil
}

// Rollback forgets what the transaction enqueued; its idempotency keys are free
// again. It returns [ErrTxDone] if the transaction has already ended.
func (tx *Tx) Rollback() error {
	s := tx.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if tx.done {
		return ErrTxDone
	}
	for _, k := range tx.keys {
		delete(s.keys, k)
	}
	tx.events = nil
	tx.end()
	return nil
}

// end wakes those who wait for the transaction's keys. The store's lock is held.
func (tx *Tx) end() {
	tx.done = true
	close(tx.ended)
}

// insertEntry puts an entry at its position. The lock is held.
func (s *Store) insertEntry(e *entry) {
	at, _ := slices.BinarySearchFunc(s.outbox, e.position, func(have *entry, position int64) int {
		return cmp.Compare(have.position, position)
	})
	s.outbox = slices.Insert(s.outbox, at, e)
}

// stored is a time as a database keeps it: in UTC, to the microsecond.
func stored(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}

// text is a string as a database keeps it: UTF-8 without NUL. What receivers
// send ends up in such columns, and must not keep a result from being recorded.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// Now returns the time of the store's clock.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return stored(s.now()), ctx.Err()
}

// CheckSchema finds nothing to complain of: there is no schema.
func (s *Store) CheckSchema(ctx context.Context) error { return ctx.Err() }
