package webhook_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/verify"
	"github.com/outhook/webhook/webhooktest"
)

func TestAnEndpointsTimeoutMayBeTooLongForTheLease(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := webhooktest.NewReceiver(t)
	h.endpoint(r.URL, func(p *webhook.EndpointParams) { p.Timeout = 30 * time.Second })
	h.dispatch(webhook.DispatcherConfig{Lease: 12 * time.Second, RequestTimeout: time.Second})

	d := h.settled(h.enqueue(paid(`{}`)), 1)[0]

	assert.Equal(t, webhook.StateDelivered, d.State, "not handed back for ever")
}

// reasonable is how long a test waits for what must happen.
const reasonable = 20 * time.Second

// listed returns the deliveries of an endpoint in a state.
func (h *host) listed(endpoint uuid.UUID, state webhook.DeliveryState) []webhook.Delivery {
	h.t.Helper()
	list, err := h.hooks.Backend().ListDeliveries(h.t.Context(), webhook.ListDeliveriesParams{
		Scope: webhook.AllTenants(), EndpointID: endpoint, State: state, Limit: 1000,
	})
	require.NoError(h.t, err)
	return list.Deliveries
}

// attemptsOf returns the attempts of an event's only delivery.
func (h *host) attemptsOf(event uuid.UUID) []webhook.Attempt {
	h.t.Helper()
	list, err := h.hooks.Backend().ListDeliveries(h.t.Context(), webhook.ListDeliveriesParams{
		Scope: webhook.AllTenants(), EventID: event, Limit: 2,
	})
	require.NoError(h.t, err)
	require.Len(h.t, list.Deliveries, 1)
	attempts, err := h.hooks.Backend().ListAttempts(h.t.Context(), webhook.AllTenants(), list.Deliveries[0].ID)
	require.NoError(h.t, err)
	return attempts
}

// atClock puts a host on a clock that the test moves.
func atClock(t *testing.T, c *webhooktest.Clock) *host {
	t.Helper()
	h := newHost(t, func(cfg *webhook.Config) { cfg.Clock = c })
	h.store.SetNow(c.Now)
	h.clock = c
	return h
}

// noBreaker never opens a circuit.
func noBreaker() webhook.BreakerConfig {
	return webhook.BreakerConfig{ConsecutiveFailures: -1, FailureRatio: -1, MaxLatency: -1}
}

func noRetry() webhook.RetrySchedule { return webhook.RetrySchedule{} }

func TestB42AReceiverThatAlwaysRefusesDelaysNobody(t *testing.T) {
	t.Parallel()
	const events = 200
	h := newHost(t)
	x, y := webhooktest.NewReceiver(t), webhooktest.NewReceiver(t)
	x.Respond(webhooktest.Status(http.StatusBadRequest))
	refusing, fine := h.endpoint(x.URL), h.endpoint(y.URL)
	h.dispatch(webhook.DispatcherConfig{
		MaxInFlight: 4,
		Breaker:     noBreaker(),
		Retry:       webhook.RetrySchedule{Delays: []time.Duration{0}},
	})
	many := make([]webhook.Event, events)
	for i := range many {
		many[i] = paid(`{}`)
	}
	tx := h.store.Begin()
	_, err := h.hooks.EnqueueMany(t.Context(), tx, many)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())

	y.RequireRequests(t, events, reasonable)

	require.Eventually(t, func() bool { return len(h.listed(refusing.ID, webhook.StateDead)) > 0 }, reasonable, 5*time.Millisecond)
	require.Eventually(t, func() bool { return len(h.listed(fine.ID, webhook.StateDelivered)) == events }, reasonable, 5*time.Millisecond)
}

func TestB44WhatIsDeadIsToldOnceAndListed(t *testing.T) {
	t.Parallel()
	const events = 10
	h := newHost(t)
	r := webhooktest.NewReceiver(t)
	r.Respond(webhooktest.Status(http.StatusInternalServerError))
	w := newWatcher()
	for range 2 {
		h.dispatch(webhook.DispatcherConfig{
			Breaker:      noBreaker(),
			Observer:     w,
			PollInterval: 20 * time.Millisecond,
			Retry:        webhook.RetrySchedule{Delays: []time.Duration{0, 0}},
		})
	}
	// One endpoint each, as an endpoint's retries are under a budget.
	for i := range events {
		tenant := strconv.Itoa(i)
		h.endpoint(r.URL, func(p *webhook.EndpointParams) { p.Tenant = tenant })
		h.enqueue(webhook.Event{Tenant: tenant, Type: "a", Payload: []byte(`{}`)})
	}

	require.Eventually(t, func() bool { return len(h.listed(uuid.Nil, webhook.StateDead)) == events }, reasonable, 5*time.Millisecond)

	dead := make(map[uuid.UUID]int)
	for range 3 * events {
		if a := w.next(t); a.State == webhook.StateDead {
			dead[a.DeliveryID]++
			assert.Equal(t, 3, a.Number)
			assert.Equal(t, "retries used up", a.Reason)
		}
	}
	assert.Empty(t, w.reports)
	for _, d := range h.listed(uuid.Nil, webhook.StateDead) {
		assert.Equal(t, 1, dead[d.ID])
		assert.Equal(t, 3, d.Attempts)
		assert.Equal(t, "retries used up", d.Reason)
		assert.Equal(t, http.StatusInternalServerError, d.LastStatus)
	}
}

func TestB48PatternsThatOverlapMakeOneDelivery(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := webhooktest.NewReceiver(t)
	h.endpoint(r.URL, func(p *webhook.EndpointParams) {
		p.Types = []string{"*", "order.*", "order.created", "order.created"}
	})
	h.dispatch(webhook.DispatcherConfig{})

	h.settled(h.enqueue(webhook.Event{Tenant: "acme", Type: "order.created", Payload: []byte(`{}`)}), 1)

	assert.Len(t, r.Requests(), 1)
}

func TestB56ARetryIsNeverEarlyWhateverElseWakesTheDispatcher(t *testing.T) {
	t.Parallel()
	clock := webhooktest.NewClock(time.Now())
	h := atClock(t, clock)
	r := webhooktest.NewReceiver(t)
	r.Respond(webhooktest.Status(http.StatusServiceUnavailable), webhooktest.Status(http.StatusOK))
	ep := h.endpoint(r.URL)
	cfg := webhook.DispatcherConfig{Retry: webhook.RetrySchedule{Delays: []time.Duration{30 * time.Second}}}
	stop := h.dispatch(cfg)
	first := h.enqueue(paid(`{}`))
	require.Eventually(t, func() bool {
		list := h.listed(ep.ID, webhook.StatePending)
		return len(list) == 1 && list[0].Attempts == 1
	}, reasonable, time.Millisecond)
	failedAt := clock.Now()

	for i := range 100 {
		h.enqueue(paid(`{}`))
		if i == 50 {
			stop()
			h.dispatch(cfg)
		}
		clock.Advance(290 * time.Millisecond) // 29 s in all, in which polls and timers fire
	}
	r.RequireRequests(t, 101, reasonable)
	for _, got := range r.Requests()[1:] {
		require.NotEqual(t, first.String(), got.ID(), "the retry came before its time")
	}

	clock.Set(failedAt.Add(30*time.Second - time.Millisecond))
	h.settled(h.enqueue(paid(`{}`)), 1)
	assert.Len(t, r.Requests(), 102)
	clock.Advance(time.Millisecond)
	assert.Equal(t, 2, h.settled(first, 1)[0].Attempts)
}

func TestB21B22ARedirectIsAFailureThatShowsWhereItPoints(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 302, 303, 307, 308} {
		h := newHost(t)
		r, login := webhooktest.NewReceiver(t), webhooktest.NewReceiver(t)
		r.Respond(webhooktest.Redirect(status, login.URL+"/login"))
		h.endpoint(r.URL)
		h.dispatch(webhook.DispatcherConfig{Retry: noRetry()})

		id := h.enqueue(paid(`{}`))

		d := h.settled(id, 1)[0]
		assert.Equal(t, webhook.StateDead, d.State)
		assert.Equal(t, webhook.ClassRedirect, d.LastClass)
		attempts := h.attemptsOf(id)
		require.Len(t, attempts, 1)
		assert.Equal(t, status, attempts[0].Status)
		assert.Equal(t, login.URL+"/login", attempts[0].Location)
		assert.Empty(t, login.Requests(), "nothing reaches another host")
	}
}

func TestB23B24SuccessIs200To299AndNothingElse(t *testing.T) {
	t.Parallel()
	type want struct {
		state  webhook.DeliveryState
		status int
	}
	early := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusInternalServerError)
	}
	h := newHost(t)
	h.dispatch(webhook.DispatcherConfig{Retry: noRetry(), PollInterval: 20 * time.Millisecond})
	check := func(name string, answer webhooktest.Behavior, want want) {
		r := webhooktest.NewReceiver(t)
		r.Respond(answer)
		tenant := "tenant " + name
		h.endpoint(r.URL, func(p *webhook.EndpointParams) { p.Tenant = tenant })

		d := h.settled(h.enqueue(webhook.Event{Tenant: tenant, Type: "a", Payload: []byte(`{}`)}), 1)[0]

		assert.Equal(t, want.state, d.State, name)
		assert.Equal(t, want.status, d.LastStatus, name)
		assert.Len(t, r.Requests(), 1, name)
	}
	for _, status := range []int{200, 201, 202, 203, 204, 205, 206, 226, 299} {
		check(strconv.Itoa(status), webhooktest.Status(status), want{webhook.StateDelivered, status})
	}
	for _, status := range []int{300, 304, 400, 404, 410, 418, 599, 600} {
		check(strconv.Itoa(status), webhooktest.Status(status), want{webhook.StateDead, status})
	}
	check("103 then 500", early, want{webhook.StateDead, 500})
}

func TestR10R11ReceiversMayAskForTimeWithinReason(t *testing.T) {
	t.Parallel()
	const schedule, most = 5 * time.Second, time.Hour
	clock := webhooktest.NewClock(time.Now().Truncate(time.Second))
	h := atClock(t, clock)
	w := newWatcher()
	h.dispatch(webhook.DispatcherConfig{Observer: w, Retry: webhook.RetrySchedule{Delays: []time.Duration{schedule}}})
	for _, c := range []struct {
		status int
		header string
		wait   time.Duration
	}{
		{429, "120", 120 * time.Second},
		{503, clock.Now().UTC().Add(90 * time.Second).Format(http.TimeFormat), 90 * time.Second},
		{429, "864000", most},
		{429, "-5", schedule},
		{503, "soon", schedule},
		{503, "99999999999999999999", most},
		{429, time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).Format(http.TimeFormat), most},
		{503, clock.Now().UTC().Add(-time.Hour).Format(http.TimeFormat), schedule},
		{500, "120", schedule},
	} {
		r := webhooktest.NewReceiver(t)
		r.Respond(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Retry-After", c.header)
			rw.WriteHeader(c.status)
		})
		tenant := uuid.NewString()
		h.endpoint(r.URL, func(p *webhook.EndpointParams) { p.Tenant = tenant })
		h.enqueue(webhook.Event{Tenant: tenant, Type: "a", Payload: []byte(`{}`)})

		got := w.next(t)

		assert.Equal(t, webhook.StatePending, got.State)
		assert.Equal(t, c.wait, got.NextAttemptAt.Sub(clock.Now()), "%d with Retry-After: %s", c.status, c.header)
	}
}

func TestS04S05S07RotationAndRetriesSignAfresh(t *testing.T) {
	t.Parallel()
	clock := webhooktest.NewClock(time.Now().Truncate(time.Second))
	h := atClock(t, clock)
	r := webhooktest.NewReceiver(t)
	r.SetNow(clock.Now)
	r.Respond(webhooktest.Status(http.StatusServiceUnavailable))
	ep := h.endpoint(r.URL)
	old := ep.Secret.Reveal()
	h.dispatch(webhook.DispatcherConfig{Retry: webhook.RetrySchedule{Delays: []time.Duration{time.Minute, 2 * time.Hour}}})

	id := h.enqueue(paid(`{"n":1.0}`))
	attempt := func(n int) webhooktest.Request {
		t.Helper()
		got := r.RequireRequests(t, n, reasonable)
		require.Eventually(t, func() bool { return len(h.attemptsOf(id)) == n }, reasonable, time.Millisecond)
		return got[n-1]
	}
	first := attempt(1)
	rotated, err := h.hooks.Endpoints().RotateSecret(t.Context(), webhook.AllTenants(), ep.ID, webhook.RotateOptions{Overlap: time.Hour})
	require.NoError(t, err)
	clock.Advance(time.Minute)
	second := attempt(2)
	clock.Advance(2 * time.Hour)
	third := attempt(3)

	signed := func(got webhooktest.Request, secret string) error {
		at, err := strconv.ParseInt(got.Header.Get("webhook-timestamp"), 10, 64)
		require.NoError(t, err)
		v, err := verify.New(verify.Config{Secrets: []string{secret}, Now: func() time.Time { return time.Unix(at, 0) }})
		require.NoError(t, err)
		_, err = v.Payload(got.Header, got.Body)
		return err
	}
	young := rotated.Secret.Reveal()
	assert.NoError(t, signed(first, old))
	assert.Error(t, signed(first, young))
	assert.NoError(t, signed(second, old))
	assert.NoError(t, signed(second, young))
	assert.Len(t, strings.Split(second.Header.Get("webhook-signature"), " "), 2)
	assert.Error(t, signed(third, old), "the overlap is over")
	assert.NoError(t, signed(third, young))

	for i, got := range []webhooktest.Request{first, second, third} {
		assert.Equal(t, id.String(), got.ID())
		assert.Equal(t, `{"n":1.0}`, string(got.Body))
		assert.Equal(t, strconv.Itoa(i+1), got.Attempt())
	}
	assert.NotEqual(t, first.Header.Get("webhook-timestamp"), second.Header.Get("webhook-timestamp"))
	assert.NotEqual(t, first.Header.Get("webhook-signature"), second.Header.Get("webhook-signature"))
}

func TestB20DigitsStayAsTheyAre(t *testing.T) {
	t.Parallel()
	const payload = `{"n":10002318,"big":7615917337495251231,"f":1.0,"e":1E3}`
	h := newHost(t)
	r := webhooktest.NewReceiver(t)
	h.endpoint(r.URL)
	h.dispatch(webhook.DispatcherConfig{})

	id := h.enqueue(paid(payload))
	h.settled(id, 1)

	assert.Equal(t, payload, string(r.Requests()[0].Body))
	event, err := h.hooks.Backend().GetEvent(t.Context(), webhook.AllTenants(), id)
	require.NoError(t, err)
	assert.Equal(t, payload, string(event.Payload))
}

func TestB29RowsThatCannotBeSentDoNotStayClaimed(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := webhooktest.NewReceiver(t)
	spoil := func(tenant string, f func(*webhook.EndpointRecord)) {
		ep := h.endpoint(r.URL, func(p *webhook.EndpointParams) { p.Tenant = tenant })
		page, err := h.hooks.Backend().ListEndpoints(t.Context(), webhook.ListEndpointsParams{Scope: webhook.TenantScope(tenant), Limit: 1})
		require.NoError(t, err)
		require.Equal(t, ep.ID, page[0].ID)
		f(&page[0])
		_, err = h.hooks.Backend().UpdateEndpoint(t.Context(), page[0])
		require.NoError(t, err)
	}
	spoil("url", func(e *webhook.EndpointRecord) { e.URL = "http://%zz/" })
	spoil("secret", func(e *webhook.EndpointRecord) { e.Secrets = []byte("{not JSON") })
	spoil("headers", func(e *webhook.EndpointRecord) { e.Headers = []byte("not sealed") })
	spoil("options", func(e *webhook.EndpointRecord) { e.Options = []byte("{") })
	h.dispatch(webhook.DispatcherConfig{Retry: noRetry()})
	ids := map[string]uuid.UUID{}
	for _, tenant := range []string{"url", "secret", "headers", "options"} {
		ids[tenant] = h.enqueue(webhook.Event{Tenant: tenant, Type: "a", Payload: []byte(`{}`)})
	}

	assert.Equal(t, webhook.ClassBlocked, h.settled(ids["url"], 1)[0].LastClass)
	assert.Equal(t, webhook.StateDelivered, h.settled(ids["options"], 1)[0].State)
	for _, tenant := range []string{"secret", "headers"} {
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			list, err := h.hooks.Backend().ListDeliveries(t.Context(), webhook.ListDeliveriesParams{
				Scope: webhook.AllTenants(), EventID: ids[tenant], Limit: 1,
			})
			require.NoError(c, err)
			require.Len(c, list.Deliveries, 1)
			require.Equal(c, webhook.StatePending, list.Deliveries[0].State, tenant)
			require.Greater(c, time.Until(list.Deliveries[0].NextAttemptAt), 30*time.Second, "held, not hammered")
		}, reasonable, time.Millisecond)
	}
	assert.Len(t, r.Requests(), 1, "nothing goes out unsigned")
}

func TestAnOldBacklogDrainsWithoutBeingLookedFor(t *testing.T) {
	t.Parallel()
	const events = 300
	clock := webhooktest.NewClock(time.Now())
	h := atClock(t, clock)
	r := webhooktest.NewReceiver(t)
	ep := h.endpoint(r.URL)
	h.endpoint(r.URL, func(p *webhook.EndpointParams) { p.Tenant = "other" })
	// The first dispatcher fans out and sends nothing.
	_, err := h.hooks.Endpoints().Pause(t.Context(), webhook.AllTenants(), ep.ID, "maintenance")
	require.NoError(t, err)
	stop := h.dispatch(webhook.DispatcherConfig{})
	for range events {
		h.enqueue(paid(`{}`))
	}
	require.Eventually(t, func() bool { return len(h.listed(ep.ID, webhook.StatePending)) == events }, reasonable, 5*time.Millisecond)
	stop()
	clock.Advance(time.Hour)
	_, err = h.hooks.Endpoints().Resume(t.Context(), webhook.AllTenants(), ep.ID)
	require.NoError(t, err)

	// The clock stands still: this dispatcher looks once, when it starts.
	h.dispatch(webhook.DispatcherConfig{})

	r.RequireRequests(t, events, reasonable)
}
