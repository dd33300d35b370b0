package webhook_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/verify"
	"github.com/outhook/webhook/webhooktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a host on the in-memory store with a receiver on loopback.
type host struct {
	t     *testing.T
	store *webhooktest.Store
	hooks *webhook.Hooks[*webhooktest.Tx]
	clock *webhooktest.Clock // nil unless the test moves it
}

func loopback(t testing.TB) *webhook.Transport {
	t.Helper()
	transport, err := webhook.NewTransport(webhook.TransportConfig{
		Allow: []webhook.AllowRule{{
			Excerpts: true,
			Prefix:   netip.MustParsePrefix("127.0.0.1/32"),
			Ports:    []webhook.PortRange{{From: 1024, To: 65535}},
		}},
		AllowHTTP: true,
	})
	require.NoError(t, err)
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

func newHost(t *testing.T, alter ...func(*webhook.Config)) *host {
	t.Helper()
	cfg := webhook.Config{
		Secrets:   webhook.NewKeyring(webhook.NewKey("test")),
		Transport: loopback(t),
	}
	for _, f := range alter {
		f(&cfg)
	}
	store := webhooktest.NewStore()
	hooks, err := webhook.New(store, cfg)
	require.NoError(t, err)
	t.Cleanup(hooks.Close)
	return &host{t: t, store: store, hooks: hooks}
}

// endpoint creates an endpoint of tenant "acme" for all events.
func (h *host) endpoint(url string, alter ...func(*webhook.EndpointParams)) webhook.Endpoint {
	h.t.Helper()
	p := webhook.EndpointParams{Tenant: "acme", URL: url, Types: []string{"*"}}
	for _, f := range alter {
		f(&p)
	}
	e, err := h.hooks.Endpoints().Create(h.t.Context(), p)
	require.NoError(h.t, err)
	return e
}

// enqueue commits an event.
func (h *host) enqueue(e webhook.Event) uuid.UUID {
	h.t.Helper()
	tx := h.store.Begin()
	res, err := h.hooks.Enqueue(h.t.Context(), tx, e)
	require.NoError(h.t, err)
	require.NoError(h.t, tx.Commit())
	return res.EventID
}

func paid(payload string) webhook.Event {
	return webhook.Event{Tenant: "acme", Type: "invoice.paid", Payload: []byte(payload)}
}

// watcher collects what the dispatcher reports.
type watcher struct {
	reports chan webhook.AttemptReport
}

func newWatcher() *watcher { return &watcher{reports: make(chan webhook.AttemptReport, 10_000)} }

func (w *watcher) AttemptDone(r webhook.AttemptReport) { w.reports <- r }

func (w *watcher) next(t *testing.T) webhook.AttemptReport {
	t.Helper()
	select {
	case r := <-w.reports:
		return r
	case <-time.After(20 * time.Second):
		require.FailNow(t, "no attempt was reported in time")
		return webhook.AttemptReport{}
	}
}

// dispatch runs a dispatcher until the test, or the returned function, ends it.
func (h *host) dispatch(cfg webhook.DispatcherConfig) (stop func()) {
	h.t.Helper()
	d, err := h.hooks.NewDispatcher(cfg)
	require.NoError(h.t, err)
	return h.run(d)
}

func (h *host) run(d *webhook.Dispatcher) (stop func()) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			assert.NoError(h.t, err)
		case <-time.After(30 * time.Second):
			assert.Fail(h.t, "the dispatcher did not stop")
		}
	})
	h.t.Cleanup(stop)
	return stop
}

// settled waits until the event's deliveries are final and returns them.
func (h *host) settled(event uuid.UUID, n int) []webhook.Delivery {
	h.t.Helper()
	var list []webhook.Delivery
	require.EventuallyWithT(h.t, func(c *assert.CollectT) {
		listing, err := h.hooks.Backend().ListDeliveries(h.t.Context(), webhook.ListDeliveriesParams{
			Scope: webhook.AllTenants(), EventID: event, Limit: 100,
		})
		list = listing.Deliveries
		require.NoError(c, err)
		require.Len(c, list, n)
		for _, d := range list {
			require.True(c, d.State.Final(), "delivery is %s", d.State)
		}
	}, 20*time.Second, 2*time.Millisecond)
	return list
}

func TestAnEventArrivesSignedAndUnchanged(t *testing.T) {
	t.Parallel()
	// B18: nothing re-serialises the payload.
	const payload = "{\"b\" : 1,\n \"a\":\"é\\/\",\"n\":12345678901234567890}"
	h := newHost(t)
	got := make(chan *http.Request, 1)
	bodies := make(chan string, 1)
	var secret string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		verify.Middleware(secret)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			bodies <- string(body)
			got <- r
		})).ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	ep := h.endpoint(server.URL, func(p *webhook.EndpointParams) { p.Headers = map[string]string{"X-Team": "blue"} })
	secret = ep.Secret.Reveal()
	h.dispatch(webhook.DispatcherConfig{})

	id := h.enqueue(paid(payload))

	r := <-got
	assert.Equal(t, payload, <-bodies)
	assert.Equal(t, id.String(), r.Header.Get("webhook-id"))
	assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
	assert.Equal(t, "1", r.Header.Get("webhook-attempt"))
	assert.Empty(t, r.Header.Get("webhook-replay"))
	assert.Equal(t, "blue", r.Header.Get("X-Team"))
	assert.Len(t, r.Header.Get("Idempotency-Key"), 64)
	d := h.settled(id, 1)[0]
	assert.Equal(t, webhook.StateDelivered, d.State)
	assert.Equal(t, 1, d.Attempts)
	attempts, err := h.hooks.Backend().ListAttempts(t.Context(), webhook.AllTenants(), d.ID)
	require.NoError(t, err)
	require.Len(t, attempts, 1)
	assert.Equal(t, 200, attempts[0].Status)
}

func TestARolledBackEventIsNeverSent(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	w := newWatcher()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	h.endpoint(server.URL)
	h.dispatch(webhook.DispatcherConfig{Observer: w})

	tx := h.store.Begin()
	_, err := h.hooks.Enqueue(t.Context(), tx, paid(`{}`))
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	kept := h.enqueue(paid(`{}`))

	assert.Equal(t, kept, w.next(t).EventID)
	h.settled(kept, 1)
	assert.Empty(t, w.reports)
}

func TestAFailedAttemptIsRetriedWithAFreshSignature(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	w := newWatcher()
	var mu sync.Mutex
	var seen []http.Header
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.Header)
		if len(seen) < 3 {
			http.Error(rw, "not yet", http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	h.endpoint(server.URL)
	h.dispatch(webhook.DispatcherConfig{
		Observer: w,
		Retry:    webhook.RetrySchedule{Delays: []time.Duration{time.Millisecond, time.Millisecond, time.Hour}},
	})

	id := h.enqueue(paid(`{}`))

	d := h.settled(id, 1)[0]
	assert.Equal(t, webhook.StateDelivered, d.State)
	assert.Equal(t, 3, d.Attempts)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, seen, 3)
	for i, header := range seen {
		assert.Equal(t, id.String(), header.Get("webhook-id"), "the id is the same in every attempt")
		assert.Equal(t, seen[0].Get("Idempotency-Key"), header.Get("Idempotency-Key"))
		assert.Equal(t, string(rune('1'+i)), header.Get("webhook-attempt"))
	}
	attempts, err := h.hooks.Backend().ListAttempts(t.Context(), webhook.AllTenants(), d.ID)
	require.NoError(t, err)
	require.Len(t, attempts, 3)
	assert.Equal(t, webhook.ClassHTTP5xx, attempts[0].Class)
	assert.Equal(t, "not yet\n", string(attempts[0].Excerpt))
	assert.Equal(t, webhook.ClassNone, attempts[2].Class)
}

func TestB50APolicyOfNRetriesMakesNPlusOneAttempts(t *testing.T) {
	t.Parallel() // B50
	for _, delays := range [][]time.Duration{nil, {0}, {0, 0, 0}} {
		h := newHost(t)
		w := newWatcher()
		server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(http.StatusInternalServerError)
		}))
		t.Cleanup(server.Close)
		h.endpoint(server.URL)
		h.dispatch(webhook.DispatcherConfig{Observer: w, Retry: webhook.RetrySchedule{Delays: delays}})

		d := h.settled(h.enqueue(paid(`{}`)), 1)[0]

		assert.Equal(t, webhook.StateDead, d.State)
		assert.NotEmpty(t, d.Reason)
		assert.Equal(t, len(delays)+1, d.Attempts)
		assert.Len(t, w.reports, len(delays)+1)
	}
}

func TestB11ASlowEndpointDoesNotDelayAnother(t *testing.T) {
	t.Parallel() // B11
	h := newHost(t)
	release := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(slow.Close)
	t.Cleanup(func() { close(release) })
	var fast sync.WaitGroup
	fast.Add(100)
	quick := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { fast.Done() }))
	t.Cleanup(quick.Close)
	h.endpoint(slow.URL)
	h.endpoint(quick.URL)
	h.dispatch(webhook.DispatcherConfig{GracePeriod: -1})

	for range 100 {
		h.enqueue(paid(`{}`))
	}

	done := make(chan struct{})
	go func() { fast.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		require.FailNow(t, "the fast endpoint waits for the slow one")
	}
}

func TestB32TheEndpointCapHolds(t *testing.T) {
	t.Parallel() // B32
	h := newHost(t)
	var mu sync.Mutex
	now, peak := 0, 0
	full := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		now++
		peak = max(peak, now)
		if now == 10 {
			select {
			case <-full:
			default:
				close(full)
			}
		}
		mu.Unlock()
		<-full
		mu.Lock()
		now--
		mu.Unlock()
	}))
	t.Cleanup(server.Close)
	h.endpoint(server.URL, func(p *webhook.EndpointParams) { p.MaxInFlight = 10 })
	warm := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(warm.Close)
	h.dispatch(webhook.DispatcherConfig{})
	// An endpoint without a success has two slots: let the first two succeed by
	// themselves, then the cap is what counts.
	close(full)
	h.settled(h.enqueue(paid(`{}`)), 1)
	mu.Lock()
	full, peak = make(chan struct{}), 0
	mu.Unlock()

	var last []uuid.UUID
	for range 30 {
		last = append(last, h.enqueue(paid(`{}`)))
	}

	for _, id := range last {
		h.settled(id, 1)
	}
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, 10, peak)
}

func TestStoppingHandsBackWhatIsInFlight(t *testing.T) {
	t.Parallel() // B30
	h := newHost(t)
	arrived := make(chan struct{}, 100)
	var stuck sync.Map
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then does the server notice that the client left
		arrived <- struct{}{}
		if _, again := stuck.LoadOrStore(r.Header.Get("webhook-id"), true); !again {
			<-r.Context().Done()
		}
	}))
	t.Cleanup(server.Close)
	h.endpoint(server.URL)
	stop := h.dispatch(webhook.DispatcherConfig{GracePeriod: -1})
	id := h.enqueue(paid(`{}`))
	<-arrived

	stop()

	list, err := h.hooks.Backend().ListDeliveries(t.Context(), webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), EventID: id, Limit: 1})
	require.NoError(t, err)
	require.Len(t, list.Deliveries, 1)
	assert.Equal(t, webhook.StatePending, list.Deliveries[0].State, "the lease was given back")
	assert.Zero(t, list.Deliveries[0].Attempts, "our own stop uses up no attempt")
	h.dispatch(webhook.DispatcherConfig{})
	assert.Equal(t, webhook.StateDelivered, h.settled(id, 1)[0].State)
}

func TestAGoneEndpointIsDisabledAndItsDeliveriesEnd(t *testing.T) {
	t.Parallel() // R09
	h := newHost(t)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusGone) }))
	t.Cleanup(server.Close)
	ep := h.endpoint(server.URL)
	h.dispatch(webhook.DispatcherConfig{PollInterval: 10 * time.Millisecond})

	first := h.settled(h.enqueue(paid(`{}`)), 1)[0]

	assert.Equal(t, webhook.StateDead, first.State)
	assert.Equal(t, "410 Gone", first.Reason)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		now, err := h.hooks.Endpoints().Get(t.Context(), webhook.AllTenants(), ep.ID)
		require.NoError(c, err)
		require.Equal(c, webhook.EndpointDisabled, now.State)
		require.Equal(c, "410 Gone", now.StateReason)
	}, 10*time.Second, time.Millisecond)
	second := h.settled(h.enqueue(paid(`{}`)), 1)[0]
	assert.Equal(t, webhook.StateCancelled, second.State)
	assert.Equal(t, "endpoint disabled: 410 Gone", second.Reason)
}

func TestAPanicInWhatTheHostGaveHoldsTheDeliveryAndNothingElse(t *testing.T) {
	t.Parallel() // B29
	h := newHost(t, func(c *webhook.Config) { c.Signer = panickyOnce(c.Signer) })
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	h.endpoint(server.URL)
	stop := h.dispatch(webhook.DispatcherConfig{Observer: panickyObserver{}})

	first := h.enqueue(paid(`{"first":true}`))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		list, err := h.hooks.Backend().ListDeliveries(t.Context(), webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), EventID: first, Limit: 1})
		require.NoError(c, err)
		require.Len(c, list.Deliveries, 1)
		require.Equal(c, webhook.StatePending, list.Deliveries[0].State)
		require.Zero(c, list.Deliveries[0].Attempts)
		require.Greater(c, time.Until(list.Deliveries[0].NextAttemptAt), 30*time.Second, "held, not hammered")
	}, 10*time.Second, time.Millisecond)

	second := h.settled(h.enqueue(paid(`{}`)), 1)[0]
	assert.Equal(t, webhook.StateDelivered, second.State)
	stop()
}

type panickySigner struct {
	webhook.Signer
	once sync.Once
}

func panickyOnce(s webhook.Signer) webhook.Signer {
	if s == nil {
		s = webhook.StandardWebhooks()
	}
	return &panickySigner{Signer: s}
}

func (p *panickySigner) Sign(ctx context.Context, h http.Header, in webhook.SignInput) error {
	p.once.Do(func() { panic("signer") })
	return p.Signer.Sign(ctx, h, in)
}

type panickyObserver struct{}

func (panickyObserver) AttemptDone(webhook.AttemptReport) { panic("observer") }

func TestASecretThatCannotBeOpenedHoldsTheDelivery(t *testing.T) {
	t.Parallel() // S11
	box := &failingBox{SecretBox: webhook.NewKeyring(webhook.NewKey("test"))}
	h := newHost(t, func(c *webhook.Config) { c.Secrets = box })
	requests := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests <- struct{}{} }))
	t.Cleanup(server.Close)
	h.endpoint(server.URL)
	h.dispatch(webhook.DispatcherConfig{})

	id := h.enqueue(paid(`{}`))

	require.EventuallyWithT(t, func(c *assert.CollectT) {
		list, err := h.hooks.Backend().ListDeliveries(t.Context(), webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), EventID: id, Limit: 1})
		require.NoError(c, err)
		require.Len(c, list.Deliveries, 1)
		require.Equal(c, webhook.StatePending, list.Deliveries[0].State)
		require.Greater(c, time.Until(list.Deliveries[0].NextAttemptAt), 30*time.Second)
	}, 10*time.Second, time.Millisecond)
	assert.Empty(t, requests, "nothing goes out unsigned")
}

type failingBox struct{ webhook.SecretBox }

func (failingBox) Open(context.Context, []byte, []byte) ([]byte, error) {
	return nil, webhook.ErrSecretUnreadable
}

func TestEnqueueRefusesBeforeAnySQL(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	big := `"` + strings.Repeat("x", webhook.DefaultMaxPayload) + `"`
	for name, c := range map[string]struct {
		event webhook.Event
		want  string
	}{
		"payload too large": {paid(big), "webhook: Event.Payload is 262146 bytes, over the limit of 262144"},
		"payload not JSON":  {paid(`{"a":`), "webhook: Event.Payload is not valid JSON; set ContentType if it is not meant to be"},
		"payload empty":     {paid(``), "webhook: Event.Payload is empty, which is not valid JSON; set ContentType if that is meant"},
		"type empty":        {webhook.Event{Tenant: "a", Payload: []byte(`{}`)}, "webhook: Event.Type is empty"},
		"type with a gap":   {webhook.Event{Tenant: "a", Type: "a..b", Payload: []byte(`{}`)}, "webhook: Event.Type has an empty word: it must be words joined by full stops"},
		"type too long":     {webhook.Event{Tenant: "a", Type: strings.Repeat("a", 129), Payload: []byte(`{}`)}, "webhook: Event.Type is 129 bytes, over the limit of 128"},
		"type with a space": {webhook.Event{Tenant: "a", Type: "a b", Payload: []byte(`{}`)}, "webhook: Event.Type may hold only letters, digits, underscores and full stops"},
		"no tenant":         {webhook.Event{Type: "a", Payload: []byte(`{}`)}, "webhook: Event.Tenant is empty"},
		"control character": {webhook.Event{Tenant: "a", Type: "a", ResourceID: "x\n", Payload: []byte(`{}`)}, "webhook: Event.ResourceID holds a control character"},
		"not UTF-8":         {webhook.Event{Tenant: "a\xff", Type: "a", Payload: []byte(`{}`)}, "webhook: Event.Tenant is not valid UTF-8"},
		"negative version":  {webhook.Event{Tenant: "a", Type: "a", ResourceVersion: -1, Payload: []byte(`{}`)}, "webhook: Event.ResourceVersion is negative"},
		"long key":          {webhook.Event{Tenant: "a", Type: "a", IdempotencyKey: strings.Repeat("k", 256), Payload: []byte(`{}`)}, "webhook: Event.IdempotencyKey is 256 bytes, over the limit of 255"},
	} {
		t.Run(name, func(t *testing.T) {
			tx := h.store.Begin()
			_, err := h.hooks.Enqueue(t.Context(), tx, c.event)
			require.EqualError(t, err, c.want)
			assert.ErrorIs(t, err, webhook.ErrInvalid)
			assert.NotContains(t, err.Error(), "xxx")

			_, err = h.hooks.EnqueueMany(t.Context(), tx, []webhook.Event{paid(`{}`), c.event})
			require.EqualError(t, err, strings.Replace(c.want, "Event.", "events[1].", 1))

			_, err = h.hooks.Enqueue(t.Context(), tx, paid(`{}`))
			require.NoError(t, err, "the transaction stays usable")
			require.NoError(t, tx.Commit())
		})
	}
	_, err := h.hooks.Enqueue(t.Context(), h.store.Begin(), paid(big))
	assert.ErrorIs(t, err, webhook.ErrPayloadTooLarge)
}
