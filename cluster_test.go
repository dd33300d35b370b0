package webhook_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

// tally is a receiver that counts requests per event and the most at once.
type tally struct {
	*httptest.Server

	mu        sync.Mutex
	requests  map[string]int
	now, peak int
	status    int
}

func newTally(t *testing.T, takes time.Duration) *tally {
	t.Helper()
	c := &tally{requests: map[string]int{}, status: http.StatusOK}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		c.requests[r.Header.Get("webhook-id")]++
		c.now++
		c.peak = max(c.peak, c.now)
		status := c.status
		c.mu.Unlock()
		select { // the work of a receiver
		case <-time.After(takes):
		case <-r.Context().Done():
		}
		c.mu.Lock()
		c.now--
		c.mu.Unlock()
		w.WriteHeader(status)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *tally) answer(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = status
}

func (c *tally) total() (events, requests int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.requests {
		requests += n
	}
	return len(c.requests), requests
}

func TestSeveralDispatchersKeepOneCap(t *testing.T) {
	t.Parallel() // B10
	met := &meetings{}
	h := newHost(t, func(c *webhook.Config) { c.Logger = slog.New(met) })
	c := newTally(t, 20*time.Millisecond)
	h.endpoint(c.URL, func(p *webhook.EndpointParams) { p.MaxInFlight = 5 })
	for range 3 {
		h.dispatch(webhook.DispatcherConfig{HeartbeatInterval: 20 * time.Millisecond, PollInterval: 50 * time.Millisecond})
	}
	// What is sent before they have found one another may exceed the cap.
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		require.Equal(ct, int64(3), met.ofThree.Load())
	}, 10*time.Second, time.Millisecond)

	ids := make([]uuid.UUID, 300)
	for i := range ids {
		ids[i] = h.enqueue(paid(`{}`))
	}
	for _, id := range ids {
		h.settled(id, 1)
	}

	events, requests := c.total()
	assert.Equal(t, 300, events)
	assert.Equal(t, 300, requests, "never two requests for one delivery")
	assert.LessOrEqual(t, c.peak, 5)
}

// meetings counts the dispatchers that know of three.
type meetings struct {
	ofThree atomic.Int64
}

func (m *meetings) Enabled(context.Context, slog.Level) bool { return true }
func (m *meetings) WithAttrs([]slog.Attr) slog.Handler       { return m }
func (m *meetings) WithGroup(string) slog.Handler            { return m }
func (m *meetings) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "alive" && a.Value.Int64() == 3 {
			m.ofThree.Add(1)
		}
		return true
	})
	return nil
}

// alive returns the dispatchers that are alive.
func (h *host) alive() []uuid.UUID {
	probe := uuid.New()
	now := time.Now()
	alive, err := h.store.Heartbeat(h.t.Context(), webhook.HeartbeatParams{Now: now, DeadBefore: now.Add(-time.Second), Dispatcher: probe})
	require.NoError(h.t, err)
	require.NoError(h.t, h.store.Leave(h.t.Context(), probe))
	others := alive[:0]
	for _, id := range alive {
		if id != probe {
			others = append(others, id)
		}
	}
	return others
}

func TestAnOpenCircuitIsInherited(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	c := newTally(t, 0)
	c.answer(http.StatusInternalServerError)
	h.endpoint(c.URL)
	w := newWatcher()
	cfg := webhook.DispatcherConfig{
		Observer:     w,
		PollInterval: 10 * time.Millisecond,
		Retry:        webhook.RetrySchedule{Delays: []time.Duration{time.Hour}},
		Breaker:      webhook.BreakerConfig{ConsecutiveFailures: 3, OpenFor: time.Hour, MaxOpenFor: time.Hour},
	}
	stop := h.dispatch(cfg)
	for range 3 {
		h.enqueue(paid(`{}`))
	}
	for range 3 {
		w.next(t)
	}
	stop()
	c.answer(http.StatusOK)

	h.dispatch(cfg)
	id := h.enqueue(paid(`{}`))

	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		list, err := h.hooks.Backend().ListDeliveries(t.Context(), webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), EventID: id, Limit: 1})
		require.NoError(ct, err)
		require.Len(ct, list, 1)
	}, 10*time.Second, time.Millisecond)
	other := newTally(t, 0)
	h.endpoint(other.URL)
	h.reaches(h.enqueue(paid(`{}`)), webhook.StateDelivered)
	_, requests := c.total()
	assert.Equal(t, 3, requests, "the new owner leaves the endpoint alone as well")
}

// reaches waits until one of the event's deliveries is in the state.
func (h *host) reaches(event uuid.UUID, state webhook.DeliveryState) {
	h.t.Helper()
	require.EventuallyWithT(h.t, func(c *assert.CollectT) {
		list, err := h.hooks.Backend().ListDeliveries(h.t.Context(), webhook.ListDeliveriesParams{
			Scope: webhook.AllTenants(), EventID: event, State: state, Limit: 10,
		})
		require.NoError(c, err)
		require.NotEmpty(c, list)
	}, 20*time.Second, 2*time.Millisecond)
}

func TestADispatcherThatLeavesIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	// Many hosts, so that each dispatcher owns some.
	tallies := make([]*tally, 12)
	for i := range tallies {
		tallies[i] = newTally(t, 0)
		h.endpoint(tallies[i].URL)
	}
	cfg := webhook.DispatcherConfig{HeartbeatInterval: 20 * time.Millisecond, PollInterval: 20 * time.Millisecond}
	leaves := h.dispatch(cfg)
	h.dispatch(cfg)
	require.EventuallyWithT(t, func(ct *assert.CollectT) { require.Len(ct, h.alive(), 2) }, 10*time.Second, time.Millisecond)
	h.settled(h.enqueue(paid(`{}`)), len(tallies))

	leaves()
	id := h.enqueue(paid(`{}`))

	for _, d := range h.settled(id, len(tallies)) {
		assert.Equal(t, webhook.StateDelivered, d.State)
	}
}

func TestTheFirstEventOfANewEndpointDoesNotWaitForAPoll(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.dispatch(webhook.DispatcherConfig{PollInterval: time.Hour, HeartbeatInterval: time.Hour})
	for range 50 {
		c := newTally(t, 0)
		ep := h.endpoint(c.URL)
		d := h.settled(h.enqueue(paid(`{}`)), 1)[0]
		assert.Equal(t, webhook.StateDelivered, d.State)
		require.NoError(t, h.hooks.Endpoints().Delete(t.Context(), webhook.AllTenants(), ep.ID))
	}
}
