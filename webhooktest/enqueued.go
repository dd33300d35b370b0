package webhooktest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/outhook/webhook"
)

// Enqueued is where assertions look for events: a [Tx], a [Store], or what a
// [Recorder] saw of a transaction.
type Enqueued interface {
	// Enqueued returns the events in the order in which they were enqueued.
	// Duplicates, which are not written, are not among them.
	Enqueued() []webhook.EventRecord
}

// RequireEnqueued fails the test unless exactly the wanted events were enqueued,
// in their order, and returns them as they were stored. Zero fields of a wanted
// event are not compared; JSON payloads are compared by what they say, others
// byte by byte. Without any wanted event it requires that there is none.
func RequireEnqueued(t TestingT, in Enqueued, want ...webhook.Event) []webhook.EventRecord {
	t.Helper()
	got := in.Enqueued()
	if len(got) != len(want) {
		t.Errorf("webhooktest: %d events were enqueued, want %d:%s", len(got), len(want), describe(got))
		t.FailNow()
	}
	failed := false
	for i := range want {
		for _, difference := range differences(want[i], got[i]) {
			t.Errorf("webhooktest: event %d of %d: %s", i+1, len(want), difference)
			failed = true
		}
	}
	if failed {
		t.FailNow()
	}
	return got
}

// differences says how an event is not as wanted.
func differences(want webhook.Event, got webhook.EventRecord) []string {
	var found []string
	compare := func(field string, want, got any) {
		if !reflect.ValueOf(want).IsZero() && want != got {
			found = append(found, fmt.Sprintf("%s is %#v, want %#v", field, got, want))
		}
	}
	compare("ContentType", want.ContentType, got.ContentType)
	compare("IdempotencyKey", want.IdempotencyKey, got.IdempotencyKey)
	compare("ResourceID", want.ResourceID, got.ResourceID)
	compare("ResourceVersion", want.ResourceVersion, got.ResourceVersion)
	compare("Tenant", want.Tenant, got.Tenant)
	compare("Type", want.Type, got.Type)
	if want.Payload != nil && !samePayload(want.Payload, got.Payload) {
		found = append(found, fmt.Sprintf("Payload is %.500q, want %.500q", got.Payload, want.Payload))
	}
	return found
}

func samePayload(want, got []byte) bool {
	if bytes.Equal(want, got) {
		return true
	}
	w, wantErr := decode(want)
	g, gotErr := decode(got)
	return wantErr == nil && gotErr == nil && reflect.DeepEqual(w, g)
}

// decode keeps numbers as they are written: 19 digits do not fit a float.
func decode(payload []byte) (any, error) {
	if !json.Valid(payload) {
		return nil, fmt.Errorf("not JSON")
	}
	var v any
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber()
	err := decoder.Decode(&v)
	return v, err
}

func describe(events []webhook.EventRecord) string {
	if len(events) == 0 {
		return " none"
	}
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "\n\t%s of tenant %q, resource %q, key %q", e.Type, e.Tenant, e.ResourceID, e.IdempotencyKey)
	}
	return b.String()
}

// Enqueued returns what the transaction enqueued; nothing once it was rolled
// back.
func (tx *Tx) Enqueued() []webhook.EventRecord {
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	return withKeys(tx.events)
}

// Enqueued returns all events whose transactions have committed.
func (s *Store) Enqueued() []webhook.EventRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	committed := make([]*event, 0, len(s.events))
	for _, e := range s.events {
		committed = append(committed, e)
	}
	slices.SortFunc(committed, func(a, b *event) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return withKeys(committed)
}

func withKeys(events []*event) []webhook.EventRecord {
	records := make([]webhook.EventRecord, len(events))
	for i, e := range events {
		records[i] = e.EventRecord
		records[i].IdempotencyKey = e.key
		records[i].Payload = bytes.Clone(e.Payload)
	}
	return records
}

// Recorder is a store that remembers what each transaction of the host
// enqueued, for tests that use the host's real database. It passes everything on
// to the store that it was made of, but is not a [webhook.Notifier]: dispatchers
// on it poll. It is safe for concurrent use.
type Recorder[Tx any] struct {
	webhook.Store[Tx]

	mu   sync.Mutex // protects seen
	seen map[any][]webhook.EventRecord
}

// NewRecorder returns a recorder on a store. Values of Tx must be comparable,
// as pgx.Tx and *sql.Tx are.
func NewRecorder[Tx any](store webhook.Store[Tx]) *Recorder[Tx] {
	return &Recorder[Tx]{Store: store, seen: map[any][]webhook.EventRecord{}}
}

// InsertEvents implements [webhook.OutboxStore].
func (r *Recorder[Tx]) InsertEvents(ctx context.Context, tx Tx, events []webhook.EventRecord) ([]webhook.EnqueueResult, error) {
	results, err := r.Store.InsertEvents(ctx, tx, events)
	if err != nil {
		return results, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, result := range results {
		if !result.Duplicate {
			e := events[i]
			e.Payload = bytes.Clone(e.Payload)
			r.seen[tx] = append(r.seen[tx], e)
		}
	}
	return results, nil
}

// In returns what a transaction enqueued so far. Whether it was committed, the
// recorder cannot know.
func (r *Recorder[Tx]) In(tx Tx) Enqueued {
	r.mu.Lock()
	defer r.mu.Unlock()
	return recorded(slices.Clone(r.seen[tx]))
}

type recorded []webhook.EventRecord

// Enqueued implements [Enqueued].
func (r recorded) Enqueued() []webhook.EventRecord { return r }
