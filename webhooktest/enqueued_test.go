package webhooktest_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
)

// probe is a test that may fail without failing this one.
type probe struct {
	mu       sync.Mutex
	messages []string
	cleanups []func()
}

func (p *probe) Helper()          {}
func (p *probe) FailNow()         { runtime.Goexit() }
func (p *probe) Cleanup(f func()) { p.cleanups = append(p.cleanups, f) }
func (p *probe) Errorf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.messages = append(p.messages, fmt.Sprintf(format, args...))
}

// probing runs fn as a test and returns what it complained of.
func probing(fn func(t webhooktest.TestingT)) []string {
	p := &probe{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn(p)
	}()
	<-done
	for _, f := range p.cleanups {
		f()
	}
	return p.messages
}

func record(tenant, eventType, payload string) webhook.EventRecord {
	return webhook.EventRecord{ID: uuid.Must(uuid.NewV7()), Tenant: tenant, Type: eventType, Payload: []byte(payload)}
}

func TestWhatATransactionEnqueuedCanBeRequired(t *testing.T) {
	t.Parallel()
	store := webhooktest.NewStore()
	tx := store.Begin()
	webhooktest.RequireEnqueued(t, tx)

	paid := record("acme", "invoice.paid", `{"id": 7615917337495251231, "ok": true}`)
	paid.IdempotencyKey, paid.ResourceID, paid.ResourceVersion = "k", "in_9", 8
	_, err := store.InsertEvents(t.Context(), tx, []webhook.EventRecord{paid, record("acme", "mail.sent", `{}`)})
	require.NoError(t, err)
	duplicate := record("acme", "invoice.paid", `{}`)
	duplicate.IdempotencyKey = "k"
	_, err = store.InsertEvents(t.Context(), tx, []webhook.EventRecord{duplicate})
	require.NoError(t, err)

	got := webhooktest.RequireEnqueued(t, tx,
		webhook.Event{
			Tenant: "acme", Type: "invoice.paid", ResourceID: "in_9", ResourceVersion: 8, IdempotencyKey: "k",
			Payload: []byte(`{"ok":true,"id":7615917337495251231}`),
		},
		webhook.Event{Type: "mail.sent"},
	)
	assert.Equal(t, paid.ID, got[0].ID)
	webhooktest.RequireEnqueued(t, store)

	require.NoError(t, tx.Commit())
	webhooktest.RequireEnqueued(t, store, webhook.Event{Type: "invoice.paid", IdempotencyKey: "k"}, webhook.Event{Type: "mail.sent"})
}

func TestWhatIsNotAsRequiredFailsTheTest(t *testing.T) {
	t.Parallel()
	store := webhooktest.NewStore()
	tx := store.Begin()
	_, err := store.InsertEvents(t.Context(), tx, []webhook.EventRecord{record("acme", "invoice.paid", `{"n":7615917337495251231}`)})
	require.NoError(t, err)

	for _, c := range []struct {
		want     []webhook.Event
		complain string
	}{
		{nil, "1 events were enqueued, want 0:\n\tinvoice.paid of tenant \"acme\""},
		{[]webhook.Event{{}, {}}, "1 events were enqueued, want 2"},
		{[]webhook.Event{{Tenant: "other"}}, `event 1 of 1: Tenant is "acme", want "other"`},
		{[]webhook.Event{{Type: "invoice.sent"}}, `Type is "invoice.paid", want "invoice.sent"`},
		{[]webhook.Event{{ResourceVersion: 8}}, "ResourceVersion is 0, want 8"},
		{[]webhook.Event{{Payload: []byte(`{"n":7615917337495251232}`)}}, "Payload is"},
		{[]webhook.Event{{Payload: []byte(`not JSON`)}}, "Payload is"},
	} {
		messages := probing(func(p webhooktest.TestingT) {
			webhooktest.RequireEnqueued(p, tx, c.want...)
			p.Errorf("went on")
		})
		require.Len(t, messages, 1)
		assert.Contains(t, messages[0], c.complain)
	}
}

func TestATransactionEndsOnce(t *testing.T) {
	t.Parallel()
	store := webhooktest.NewStore()
	tx := store.Begin()
	_, err := store.InsertEvents(t.Context(), tx, []webhook.EventRecord{record("acme", "invoice.paid", `{}`)})
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	assert.ErrorIs(t, tx.Commit(), webhooktest.ErrTxDone)
	assert.ErrorIs(t, tx.Rollback(), webhooktest.ErrTxDone)
	_, err = store.InsertEvents(t.Context(), tx, []webhook.EventRecord{record("acme", "invoice.paid", `{}`)})
	assert.ErrorIs(t, err, webhooktest.ErrTxDone)
	webhooktest.RequireEnqueued(t, tx)
	webhooktest.RequireEnqueued(t, store)
}

func TestARecorderSeesEachTransactionOfARealStore(t *testing.T) {
	t.Parallel()
	store := webhooktest.NewStore()
	recorder := webhooktest.NewRecorder(store)
	one, two := store.Begin(), store.Begin()
	for tx, eventType := range map[*webhooktest.Tx]string{one: "invoice.paid", two: "mail.sent"} {
		_, err := recorder.InsertEvents(t.Context(), tx, []webhook.EventRecord{record("acme", eventType, `{}`)})
		require.NoError(t, err)
	}
	duplicates := []webhook.EventRecord{record("acme", "order.created", `{}`), record("acme", "order.created", `{}`)}
	duplicates[0].IdempotencyKey, duplicates[1].IdempotencyKey = "k", "k"
	_, err := recorder.InsertEvents(t.Context(), two, duplicates)
	require.NoError(t, err)

	webhooktest.RequireEnqueued(t, recorder.In(one), webhook.Event{Type: "invoice.paid"})
	webhooktest.RequireEnqueued(t, recorder.In(two), webhook.Event{Type: "mail.sent"}, webhook.Event{Type: "order.created"})
	webhooktest.RequireEnqueued(t, recorder.In(store.Begin()))
}

func TestANilTransactionIsRefusedByName(t *testing.T) {
	t.Parallel()
	_, err := webhooktest.NewStore().InsertEvents(t.Context(), nil, []webhook.EventRecord{{}})
	require.EqualError(t, err, "webhook: tx is nil")
}
