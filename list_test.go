package webhook_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
)

// minutely enqueues n events a minute apart, of which no dispatcher hears, and returns the
// clock, which has gone on by another minute.
func (h *host) minutely(t *testing.T, n int) (*webhooktest.Clock, []uuid.UUID) {
	t.Helper()
	clock := webhooktest.NewClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	h.store.SetNow(clock.Now)
	ids := make([]uuid.UUID, n)
	for i := range ids {
		event := paid(fmt.Sprintf(`{"n":%d}`, i))
		event.ResourceID = fmt.Sprintf("in_%d", i%2)
		ids[i] = h.enqueue(event)
		clock.Advance(time.Minute)
	}
	return clock, ids
}

func TestDeliveriesArePagedByCursorsWithoutGapsOrDoubles(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	receiver := webhooktest.NewReceiver(t)
	h.endpoint(receiver.URL)
	h.endpoint(receiver.URL)
	h.dispatch(webhook.DispatcherConfig{})
	for i := range 7 {
		h.settled(h.enqueue(paid(fmt.Sprint(i))), 2)
	}
	s := h.hooks.Deliveries()
	whole, err := s.List(t.Context(), webhook.DeliveryQuery{Scope: acme})
	require.NoError(t, err)
	require.Len(t, whole.Deliveries, 14)
	assert.Empty(t, whole.Next)
	newest := slices.IsSortedFunc(whole.Deliveries, func(a, b webhook.Delivery) int { return b.CreatedAt.Compare(a.CreatedAt) })
	assert.True(t, newest, "newest first")

	for _, limit := range []int{1, 3, 14} {
		q := webhook.DeliveryQuery{Scope: acme, Limit: limit}
		var paged []webhook.Delivery
		for {
			page, err := s.List(t.Context(), q)
			require.NoError(t, err)
			require.LessOrEqual(t, len(page.Deliveries), limit)
			paged = append(paged, page.Deliveries...)
			if q.Cursor = page.Next; q.Cursor == "" {
				break
			}
		}
		assert.Equal(t, whole.Deliveries, paged, "in pages of %d", limit)
	}
}

// B55: a bad cursor is told from a good one, and so is one of another list.
func TestB55ACursorHoldsForItsTenantAndFilterOnly(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	receiver := webhooktest.NewReceiver(t)
	endpoint := h.endpoint(receiver.URL)
	h.dispatch(webhook.DispatcherConfig{})
	for range 3 {
		h.settled(h.enqueue(paid(`{}`)), 1)
	}
	own := webhook.DeliveryQuery{Scope: acme, EndpointID: endpoint.ID, Limit: 1}
	page, err := h.hooks.Deliveries().List(t.Context(), own)
	require.NoError(t, err)
	require.NotEmpty(t, page.Next)
	own.Cursor = page.Next

	for name, change := range map[string]func(q *webhook.DeliveryQuery){
		"another tenant":    func(q *webhook.DeliveryQuery) { q.Scope = webhook.TenantScope("other") },
		"all tenants":       func(q *webhook.DeliveryQuery) { q.Scope = webhook.AllTenants() },
		"no endpoint":       func(q *webhook.DeliveryQuery) { q.EndpointID = uuid.Nil },
		"a state":           func(q *webhook.DeliveryQuery) { q.State = webhook.StateDelivered },
		"a status":          func(q *webhook.DeliveryQuery) { q.Status = webhook.Status2xx },
		"a type":            func(q *webhook.DeliveryQuery) { q.EventType = "invoice.paid" },
		"a resource":        func(q *webhook.DeliveryQuery) { q.ResourceID = "in_1" },
		"an event":          func(q *webhook.DeliveryQuery) { q.EventID = uuid.New() },
		"a time":            func(q *webhook.DeliveryQuery) { q.From = time.Now() },
		"not base64":        func(q *webhook.DeliveryQuery) { q.Cursor = "%%%" },
		"text":              func(q *webhook.DeliveryQuery) { q.Cursor = "bm9uZQ" },
		"cut off":           func(q *webhook.DeliveryQuery) { q.Cursor = q.Cursor[:len(q.Cursor)-2] },
		"too long":          func(q *webhook.DeliveryQuery) { q.Cursor += "AA" },
		"an offset":         func(q *webhook.DeliveryQuery) { q.Cursor = "100" },
		"another version's": func(q *webhook.DeliveryQuery) { q.Cursor = "AA" + q.Cursor[2:] },
	} {
		q := own
		change(&q)
		_, err := h.hooks.Deliveries().List(t.Context(), q)
		require.ErrorIs(t, err, webhook.ErrCursor, name)
		require.ErrorIs(t, err, webhook.ErrInvalid, name)
	}
	_, err = h.hooks.Events().List(t.Context(), webhook.EventQuery{Scope: acme, Cursor: own.Cursor})
	require.ErrorIs(t, err, webhook.ErrCursor, "of another kind of list")

	own.Limit = 1000
	rest, err := h.hooks.Deliveries().List(t.Context(), own)
	require.NoError(t, err, "the size of a page may change")
	assert.Len(t, rest.Deliveries, 2)
}

func TestB55AnAbsurdPageIsCutAndABadFilterRefused(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	_, err := h.hooks.Deliveries().List(t.Context(), webhook.DeliveryQuery{Scope: acme, Limit: 1e9})
	require.NoError(t, err)
	for field, q := range map[string]webhook.DeliveryQuery{
		"DeliveryQuery.Limit":      {Limit: -1},
		"DeliveryQuery.State":      {State: "gone"},
		"DeliveryQuery.Status":     {Status: "6xx"},
		"DeliveryQuery.EventType":  {EventType: "a\x00b"},
		"DeliveryQuery.ResourceID": {ResourceID: "\xff"},
	} {
		_, err := h.hooks.Deliveries().List(t.Context(), q)
		var refused *webhook.InvalidError
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, field, refused.Field)
	}
	for field, q := range map[string]webhook.EventQuery{
		"EventQuery.Limit":      {Limit: -1},
		"EventQuery.Type":       {Type: "a\x00b"},
		"EventQuery.ResourceID": {ResourceID: "\xff"},
	} {
		_, err := h.hooks.Events().List(t.Context(), q)
		var refused *webhook.InvalidError
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, field, refused.Field)
	}
}

func TestB05AnEventIsReadWithThePayloadThatWasEnqueued(t *testing.T) {
	t.Parallel()
	// B05, B18 and B20: the same bytes, whatever a JSON library would make of them.
	const payload = "{\"b\" : 1,\n \"a\":\"é\\/\\u0000\",\"n\":10002318,\"big\":7615917337495251231,\"f\":1.0,\"e\":1E3}"
	h := newHost(t)
	id := h.enqueue(paid(payload))

	e, err := h.hooks.Events().Get(t.Context(), acme, id)
	require.NoError(t, err)
	assert.Equal(t, payload, string(e.Payload))
	assert.True(t, json.Valid(e.Payload))
	assert.False(t, e.FannedOut)
	_, err = h.hooks.Events().Get(t.Context(), webhook.TenantScope("other"), id)
	require.ErrorIs(t, err, webhook.ErrNotFound)
}

func TestUnmatchedEventsAreVisible(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.dispatch(webhook.DispatcherConfig{})
	id := h.enqueue(paid(`{}`))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		page, err := h.hooks.Events().List(t.Context(), webhook.EventQuery{Scope: acme, Unmatched: true})
		require.NoError(c, err)
		require.Len(c, page.Events, 1)
		assert.Equal(c, id, page.Events[0].ID)
		assert.True(c, page.Events[0].FannedOut)
	}, 10*time.Second, time.Millisecond)
}

func TestACustomerReconcilesFromACursorThatNeverEnds(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	clock, ids := h.minutely(t, 5)
	q := webhook.EventQuery{Scope: acme, OldestFirst: true, Limit: 2}
	next := func() []uuid.UUID {
		t.Helper()
		var all []uuid.UUID
		for {
			page, err := h.hooks.Events().List(t.Context(), q)
			require.NoError(t, err)
			for i := range page.Events {
				assert.Empty(t, page.Events[i].Payload)
				all = append(all, page.Events[i].ID)
			}
			require.NotEmpty(t, page.Next)
			q.Cursor = page.Next
			if !page.More {
				return all
			}
		}
	}

	assert.Equal(t, ids[:4], next(), "the last is not a minute old")
	assert.Empty(t, next())
	clock.Advance(time.Minute)
	assert.Equal(t, ids[4:], next())
	// B45: what commits late, of a transaction that enqueued before, is not passed by.
	tx := h.store.Begin()
	late, err := h.hooks.Enqueue(t.Context(), tx, paid(`{}`))
	require.NoError(t, err)
	soon := h.enqueue(paid(`{}`))
	assert.Empty(t, next())
	require.NoError(t, tx.Commit())
	clock.Advance(2 * time.Minute)
	assert.Equal(t, []uuid.UUID{late.EventID, soon}, next())
}

func TestEventsAreFilteredByResourceAndTime(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	_, ids := h.minutely(t, 6)
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	page, err := h.hooks.Events().List(t.Context(), webhook.EventQuery{
		Scope: acme, ResourceID: "in_1", From: start.Add(2 * time.Minute), Until: start.Add(6 * time.Minute),
	})
	require.NoError(t, err)
	require.Len(t, page.Events, 2)
	assert.Equal(t, []uuid.UUID{ids[5], ids[3]}, []uuid.UUID{page.Events[0].ID, page.Events[1].ID})
	assert.Empty(t, page.Next)
}
