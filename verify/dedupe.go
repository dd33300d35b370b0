package verify

import (
	"container/list"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// Defaults of Dedupe. A sender's retries may be days apart (72 h by default), and its
// attempts end within 30 s.
const (
	defaultKeep        = 7 * 24 * time.Hour
	defaultLease       = time.Minute
	defaultMemoryStore = 100_000
)

// Dedupe configures what happens to a message that arrives again. A message counts as
// handled when the handler has answered 2xx: one whose handler fails, panics or dies
// with its process is let through again.
type Dedupe struct {
	// Keep is how long a handled message is remembered. 0 means 7 days.
	Keep time.Duration

	// Lease is how long a message may be handled before another request for it is let
	// through, as after a crash. It should be longer than the handler takes. 0 means
	// 1 minute.
	Lease time.Duration

	// MessageID finds the id of a message. Nil means the signed webhook-id, which only
	// StandardWebhooks has; the other schemes need one, and it should come from the
	// body, because nothing else is signed. An empty id is not deduplicated.
	MessageID func(header http.Header, body []byte) string

	// Replays lets a message that was handled through again if the sender marks the
	// request with webhook-replay: true, because a person asked for it to be sent
	// again. No signature covers the mark: whoever recorded a request may add it within
	// the tolerance.
	Replays bool

	// Store remembers. Nil turns deduplication off.
	Store DedupeStore
}

// DedupeStore remembers which messages were handled. A store that several processes share
// must claim atomically, such as by INSERT … ON CONFLICT or SET NX. Implementations must
// be safe for concurrent use.
type DedupeStore interface {
	// Claim takes id for lease unless it is taken or handled, and tells which.
	Claim(ctx context.Context, id string, lease time.Duration) (ClaimResult, error)
	// Complete marks id as handled, for keep, whoever holds it.
	Complete(ctx context.Context, id string, keep time.Duration) error
	// Release gives id up, so that the next request for it is handled.
	Release(ctx context.Context, id string) error
}

// ClaimResult is what a [DedupeStore] says of a message.
type ClaimResult int

// The results of a claim. The zero value is none of them.
const (
	// Claimed: the message is this request's to handle.
	Claimed ClaimResult = iota + 1
	// InProgress: another request is being handled.
	InProgress
	// Handled: it was dealt with before.
	Handled
)

func (d *Dedupe) prepare(scheme Scheme) error {
	if d.Store == nil {
		return nil
	}
	if d.Keep < 0 || d.Lease < 0 {
		return errors.New("verify: Dedupe.Keep and Dedupe.Lease must not be negative")
	}
	if d.Keep == 0 {
		d.Keep = defaultKeep
	}
	if d.Lease == 0 {
		d.Lease = defaultLease
	}
	if d.MessageID == nil && !scheme.signsID() {
		return errors.New("verify: Dedupe.MessageID is required, since the scheme signs no message id")
	}
	return nil
}

// MemoryStore is a [DedupeStore] for one process. It forgets on restart.
type MemoryStore struct {
	maximum int

	mu    sync.Mutex // protects what follows
	byID  map[string]*list.Element
	order *list.List // of *memoryEntry, the longest untouched first
}

type memoryEntry struct {
	id      string
	handled bool
	expires time.Time
}

// NewMemoryStore makes a store of at most maximum messages, the oldest of which are
// forgotten first. 0 or less means 100,000, which takes about 20 MB.
func NewMemoryStore(maximum int) *MemoryStore {
	if maximum <= 0 {
		maximum = defaultMemoryStore
	}
	return &MemoryStore{maximum: maximum, byID: make(map[string]*list.Element), order: list.New()}
}

// Claim implements [DedupeStore]. It never fails.
func (s *MemoryStore) Claim(_ context.Context, id string, lease time.Duration) (ClaimResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if element, ok := s.byID[id]; ok {
		entry := element.Value.(*memoryEntry)
		if now.Before(entry.expires) {
			if entry.handled {
				return Handled, nil
			}
			return InProgress, nil
		}
	}
	s.put(&memoryEntry{id: id, expires: now.Add(lease)})
	s.trim(now)
	return Claimed, nil
}

// Complete implements [DedupeStore]. It never fails.
func (s *MemoryStore) Complete(_ context.Context, id string, keep time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.put(&memoryEntry{id: id, handled: true, expires: now.Add(keep)})
	s.trim(now)
	return nil
}

// Release implements [DedupeStore]. It never fails. A message that was handled in the
// meantime stays so.
func (s *MemoryStore) Release(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if element, ok := s.byID[id]; ok && !element.Value.(*memoryEntry).handled {
		s.remove(element)
	}
	return nil
}

func (s *MemoryStore) put(entry *memoryEntry) {
	if element, ok := s.byID[entry.id]; ok {
		s.order.Remove(element)
	}
	s.byID[entry.id] = s.order.PushBack(entry)
}

// trim forgets what has expired at the old end, and what is over the maximum.
func (s *MemoryStore) trim(now time.Time) {
	for oldest := s.order.Front(); oldest != nil; oldest = s.order.Front() {
		if len(s.byID) <= s.maximum && now.Before(oldest.Value.(*memoryEntry).expires) {
			return
		}
		s.remove(oldest)
	}
}

func (s *MemoryStore) remove(element *list.Element) {
	delete(s.byID, element.Value.(*memoryEntry).id)
	s.order.Remove(element)
}
