package webhook_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
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

// In virtual time, because dispatchers that a busy machine keeps from their heartbeats
// may take one another for dead, and exceed caps then.
func TestSeveralDispatchersKeepOneCap(t *testing.T) {
	t.Parallel() // B10
	inVirtualTime(t, func(t *testing.T, w *world) {
		const dispatchers, hosts, events, limit = 3, 12, 50, 5
		var mu sync.Mutex
		now, peak := map[string]int{}, map[string]int{}
		w.answer(func(r *http.Request) (*http.Response, error) {
			add := func(n int) {
				mu.Lock()
				defer mu.Unlock()
				now[r.URL.Host] += n
				peak[r.URL.Host] = max(peak[r.URL.Host], now[r.URL.Host])
			}
			add(1)
			defer add(-1)
			time.Sleep(20 * time.Millisecond)
			return status(http.StatusOK)(r)
		})
		for i := range hosts { // so many that each dispatcher surely owns some
			w.endpoint(fmt.Sprintf("https://%d.example/in", i), func(p *webhook.EndpointParams) { p.MaxInFlight = limit })
		}
		for range dispatchers {
			w.dispatch(webhook.DispatcherConfig{})
		}
		// What is sent before they have found one another may exceed the cap.
		time.Sleep(10 * time.Second)

		for range events {
			w.enqueue(paid(`{}`))
		}
		time.Sleep(time.Minute)

		requests := map[string]int{}
		for _, r := range w.requests() {
			requests[r.host+" "+r.header.Get("webhook-id")]++
		}
		assert.Len(t, requests, hosts*events)
		for which, n := range requests {
			assert.Equal(t, 1, n, "never two requests for one delivery: %s", which)
		}
		mu.Lock()
		defer mu.Unlock()
		assert.Len(t, peak, hosts)
		for host, most := range peak {
			assert.Equal(t, limit, most, host)
		}
	})
}

// alive returns the dispatchers that are alive.
func (h *host) alive() []uuid.UUID {
	probe := uuid.New()
	now := time.Now()
	alive, err := h.store.Heartbeat(h.t.Context(), webhook.HeartbeatParams{Now: now, DeadBefore: now.Add(-time.Second), Dispatcher: probe})
	require.NoError(h.t, err)
	require.NoError(h.t, h.store.Leave(h.t.Context(), probe))
	var others []uuid.UUID
	for _, m := range alive {
		if m.ID != probe {
			others = append(others, m.ID)
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
		require.Len(ct, list.Deliveries, 1)
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
		require.NotEmpty(c, list.Deliveries)
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

// foreign is a dispatcher that exists in the store only.
type foreign struct {
	h *host
	e webhook.Endpoint
}

// says stores a state of the endpoint's circuit and tells the others.
func (f foreign) says(state []byte) {
	f.h.t.Helper()
	ctx := f.h.t.Context()
	require.NoError(f.h.t, f.h.store.SaveHealth(ctx, []webhook.HealthRecord{
		{EndpointID: f.e.ID, UpdatedAt: time.Now(), State: state},
	}))
	raw := base64.RawURLEncoding.EncodeToString(f.e.ID[:])
	require.NoError(f.h.t, f.h.store.Notify(ctx, webhook.SignalOpened+" "+webhook.Signal(raw)))
}

// circuitState is a state as dispatchers store it; 0 is closed and 1 open.
func circuitState(state string) []byte {
	now := time.Now()
	return fmt.Appendf(nil, `{"at":%q,"circuit":{"state":%s,"opened_at":%[1]q,"open_until":%[3]q,"trips":1}}`,
		now.Format(time.RFC3339Nano), state, now.Add(time.Hour).Format(time.RFC3339Nano))
}

func TestAnOpeningIsToldAndAClosingIsNot(t *testing.T) {
	t.Parallel()
	told := &openings{of: make(map[uuid.UUID]int)}
	h := newHost(t, func(c *webhook.Config) { c.Logger = slog.New(told) })
	c, other := newTally(t, 0), newTally(t, 0)
	e, mark := h.endpoint(c.URL), h.endpoint(newTally(t, 0).URL)
	h.endpoint(other.URL)
	h.dispatch(webhook.DispatcherConfig{PollInterval: 10 * time.Millisecond})
	for _, d := range h.settled(h.enqueue(paid(`{}`)), 3) {
		require.Equal(t, webhook.StateDelivered, d.State)
	}

	// At first it may not be listening yet: it is told until it knows. From then on
	// the endpoint is left alone.
	h.eventually("it takes the opening in", func() bool {
		foreign{h, e}.says(circuitState("1"))
		return told.times(e.ID) > 0
	})
	held := h.enqueue(paid(`{}`))
	h.reaches(held, webhook.StateDelivered) // at another endpoint
	_, requests := c.total()
	require.Equal(t, 1, requests)

	// What it is told is taken in in order, so when it knows of the opening that was
	// told after the closing, it knows of the closing.
	h.eventually("it takes the closing in", func() bool {
		foreign{h, e}.says(circuitState("0"))
		foreign{h, mark}.says(circuitState("1"))
		return told.times(mark.ID) > 0
	})
	for range 5 {
		h.reaches(h.enqueue(paid(`{}`)), webhook.StateDelivered)
	}
	_, requests = c.total()
	assert.Equal(t, 1, requests, "a closing that is told changes nothing")
	pending := h.in(held, webhook.StatePending)
	assert.True(t, slices.ContainsFunc(pending, func(d webhook.Delivery) bool { return d.EndpointID == e.ID }))
}

// openings counts, from the log, the openings that a dispatcher was told of.
type openings struct {
	mu sync.Mutex
	of map[uuid.UUID]int
}

func (o *openings) Enabled(context.Context, slog.Level) bool { return true }
func (o *openings) WithAttrs([]slog.Attr) slog.Handler       { return o }
func (o *openings) WithGroup(string) slog.Handler            { return o }
func (o *openings) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "webhook: circuit open, as another dispatcher tells" {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	r.Attrs(func(a slog.Attr) bool {
		if id, ok := a.Value.Any().(uuid.UUID); ok {
			o.of[id]++
		}
		return true
	})
	return nil
}

func (o *openings) times(id uuid.UUID) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.of[id]
}

// in lists the event's deliveries in a state.
func (h *host) in(event uuid.UUID, state webhook.DeliveryState) []webhook.Delivery {
	h.t.Helper()
	list, err := h.hooks.Backend().ListDeliveries(h.t.Context(), webhook.ListDeliveriesParams{
		Scope: webhook.AllTenants(), EventID: event, State: state, Limit: 10,
	})
	require.NoError(h.t, err)
	return list.Deliveries
}

// faint is a store whose heartbeats may be kept from getting through.
type faint struct {
	*webhooktest.Store

	mute, muted atomic.Bool
	known       atomic.Int64 // members told last
}

func (s *faint) Heartbeat(ctx context.Context, p webhook.HeartbeatParams) ([]webhook.Member, error) {
	if s.mute.Load() {
		s.muted.Store(true)
		<-ctx.Done() // a database that hangs
		return nil, ctx.Err()
	}
	members, err := s.Store.Heartbeat(ctx, p)
	s.known.Store(int64(len(members)))
	return members, err
}

func TestADispatcherWithoutHeartbeatLeavesTheEndpointsToTheOthers(t *testing.T) {
	t.Parallel()
	const hosts = 16 // so many that each surely owns some
	keys := webhook.NewKeyring(webhook.NewKey("test"))
	h := newHost(t, func(c *webhook.Config) { c.Secrets = keys })
	store := &faint{Store: h.store}
	hooks, err := webhook.New(store, webhook.Config{Secrets: keys, Transport: loopback(t)})
	require.NoError(t, err)
	t.Cleanup(hooks.Close)
	w := newWatcher()
	mute, err := hooks.NewDispatcher(webhook.DispatcherConfig{HeartbeatInterval: 20 * time.Millisecond, PollInterval: 20 * time.Millisecond, Observer: w})
	require.NoError(t, err)
	for range hosts {
		h.endpoint(newTally(t, 0).URL)
	}
	h.run(mute)
	cfg := webhook.DispatcherConfig{HeartbeatInterval: 20 * time.Millisecond, PollInterval: 20 * time.Millisecond}
	h.dispatch(cfg)
	require.Eventually(t, func() bool { return store.known.Load() == 2 }, 10*time.Second, time.Millisecond)

	store.mute.Store(true)
	require.Eventually(t, store.muted.Load, 10*time.Second, time.Millisecond)
	alone := 0
	require.Eventually(t, func() bool {
		if alone++; len(h.alive()) != 1 { // on a busy machine it may be the other one, for a moment
			alone = 0
		}
		return alone == 20
	}, reasonable, 20*time.Millisecond)
	meanwhile := make(map[uuid.UUID]bool)
	for range 10 {
		id := h.enqueue(paid(`{}`))
		meanwhile[id] = true
		h.settled(id, hosts)
	}
	for len(w.reports) > 0 {
		r := <-w.reports
		assert.NotContains(t, meanwhile, r.EventID, "it sends nothing while the others have taken over")
	}

	store.mute.Store(false)
	for until := time.Now().Add(reasonable); len(w.reports) == 0; {
		require.Negative(t, time.Since(until), "it has its share again")
		h.settled(h.enqueue(paid(`{}`)), hosts)
	}
}
