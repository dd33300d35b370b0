package webhook_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
)

// sendTest sends one once the dispatcher runs.
func (h *host) sendTest(id uuid.UUID) (a webhook.Attempt) {
	h.t.Helper()
	require.EventuallyWithT(h.t, func(c *assert.CollectT) {
		var err error
		a, err = h.hooks.Endpoints().SendTest(h.t.Context(), acme, id, "invoice.paid")
		require.NoError(c, err)
	}, 20*time.Second, time.Millisecond)
	return a
}

func TestATestIsARealSignedRequestThatSaysSoAndIsInTheLog(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	receiver, endpoint := h.receives(webhooktest.Status(204), webhooktest.Status(503))
	h.dispatch(webhook.DispatcherConfig{})

	first, second := h.sendTest(endpoint.ID), h.sendTest(endpoint.ID)

	got := receiver.RequireRequests(t, 2, 10*time.Second)
	for i, r := range got {
		require.NoError(t, r.VerifyErr)
		assert.JSONEq(t, `{"test":true,"type":"invoice.paid"}`, string(r.Body))
		assert.Equal(t, "true", r.Header.Get("Webhook-Test"))
		assert.Empty(t, r.Header.Get("Webhook-Replay"))
		assert.Equal(t, []webhook.Attempt{first, second}[i].EventID.String(), r.ID())
	}
	assert.Equal(t, [2]any{204, webhook.ClassNone}, [2]any{first.Status, first.Class})
	assert.Equal(t, [2]any{503, webhook.ClassHTTP5xx}, [2]any{second.Status, second.Class})
	assert.Positive(t, first.Latency)
	for i, a := range []webhook.Attempt{first, second} {
		d, err := h.hooks.Deliveries().Get(t.Context(), acme, a.DeliveryID)
		require.NoError(t, err)
		assert.Equal(t, webhook.TestRun, d.Run)
		assert.Equal(t, []webhook.DeliveryState{webhook.StateDelivered, webhook.StateCancelled}[i], d.State)
		logged, err := h.hooks.Deliveries().Attempts(t.Context(), acme, a.DeliveryID)
		require.NoError(t, err)
		require.Len(t, logged, 1)
		assert.Equal(t, a.Status, logged[0].Status)
		r, err := h.hooks.Deliveries().Request(t.Context(), acme, logged[0])
		require.NoError(t, err)
		assert.Equal(t, string(got[i].Body), string(r.Body), "what was sent can be looked at")
		assert.Equal(t, got[i].Header.Get("Webhook-Signature"), r.Header.Get("Webhook-Signature"))
		assert.Equal(t, "true", r.Header.Get("Webhook-Test"))
		_, err = h.hooks.Deliveries().RetryNow(t.Context(), acme, d.ID)
		require.Error(t, err, "a test is not replayed")
	}
}

func TestATestPassesAnOpenCircuitAndOpensNone(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	receiver, endpoint := h.receives(webhooktest.Status(500))
	h.dispatch(webhook.DispatcherConfig{Breaker: webhook.BreakerConfig{ConsecutiveFailures: 2}})
	for range 5 {
		assert.Equal(t, 500, h.sendTest(endpoint.ID).Status)
	}
	// Had the failed tests opened the circuit, this would wait for half a minute.
	event := h.enqueue(paid(`{}`))
	receiver.RequireRequests(t, 6, 10*time.Second)
	h.enqueue(paid(`{}`)) // its failure is the second in a row, and opens it
	receiver.RequireRequests(t, 7, 10*time.Second)
	assert.Equal(t, 500, h.sendTest(endpoint.ID).Status, "although the circuit is open")
	assert.NotEqual(t, uuid.Nil, event)
}

func TestATestDisablesNothingAndReachesNoDisabledEndpoint(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	receiver, endpoint := h.receives(webhooktest.Status(http.StatusGone))
	h.dispatch(webhook.DispatcherConfig{})
	assert.Equal(t, http.StatusGone, h.sendTest(endpoint.ID).Status)
	e, err := h.hooks.Endpoints().Get(t.Context(), acme, endpoint.ID)
	require.NoError(t, err)
	assert.Equal(t, webhook.EndpointActive, e.State)

	_, err = h.hooks.Endpoints().Disable(t.Context(), acme, endpoint.ID, "by hand")
	require.NoError(t, err)
	_, err = h.hooks.Endpoints().SendTest(t.Context(), acme, endpoint.ID, "invoice.paid")
	require.ErrorIs(t, err, webhook.ErrEndpointDisabled)
	assert.Len(t, receiver.Requests(), 1)
}

func TestATestObeysTheCapsAndTheGuard(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	started := make(chan struct{}, 8)
	block := make(chan struct{})
	server := newServer(t, func(http.ResponseWriter, *http.Request) { started <- struct{}{}; <-block })
	endpoint := h.endpoint(server, func(p *webhook.EndpointParams) { p.MaxInFlight = 1 })
	h.dispatch(webhook.DispatcherConfig{})
	h.enqueue(paid(`{}`))
	<-started

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := h.hooks.Endpoints().SendTest(ctx, acme, endpoint.ID, "invoice.paid")
	require.Error(t, err, "the one slot is taken")
	assert.Empty(t, started)
	close(block)

	guarded := newHost(t, func(c *webhook.Config) { c.Transport = nil })
	_, err = guarded.hooks.Endpoints().Create(t.Context(), webhook.EndpointParams{Tenant: "acme", URL: "https://127.0.0.1/", Types: []string{"*"}})
	require.Error(t, err, "refused at write already")
}

func TestWithoutADispatcherATestIsRefused(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	endpoint := h.endpoint("https://127.0.0.1:4443/")
	_, err := h.hooks.Endpoints().SendTest(t.Context(), acme, endpoint.ID, "invoice.paid")
	require.ErrorIs(t, err, webhook.ErrNoDispatcher)
	_, err = h.hooks.Endpoints().SendTest(t.Context(), webhook.TenantScope("other"), endpoint.ID, "invoice.paid")
	require.ErrorIs(t, err, webhook.ErrNotFound)
	_, err = h.hooks.Endpoints().SendTest(t.Context(), acme, endpoint.ID, "no type")
	require.ErrorIs(t, err, webhook.ErrInvalid)
}

func TestATestMayBeSentWithoutADispatcherIfTheHostSaysSo(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(c *webhook.Config) { c.TestsWithoutDispatcher = true })
	receiver, endpoint := h.receives(webhooktest.Status(204), webhooktest.Status(410))

	first, err := h.hooks.Endpoints().SendTest(t.Context(), acme, endpoint.ID, "invoice.paid")
	require.NoError(t, err)
	second, err := h.hooks.Endpoints().SendTest(t.Context(), acme, endpoint.ID, "invoice.paid")
	require.NoError(t, err)

	for _, r := range receiver.RequireRequests(t, 2, 10*time.Second) {
		require.NoError(t, r.VerifyErr)
		assert.Equal(t, "true", r.Header.Get("Webhook-Test"))
	}
	assert.Equal(t, []int{204, 410}, []int{first.Status, second.Status})
	d, err := h.hooks.Deliveries().Get(t.Context(), acme, first.DeliveryID)
	require.NoError(t, err)
	assert.Equal(t, webhook.StateDelivered, d.State)
	after, err := h.hooks.Endpoints().Get(t.Context(), acme, endpoint.ID)
	require.NoError(t, err)
	assert.Equal(t, webhook.EndpointActive, after.State, "a 410 to a test disables nothing")
	_, err = h.hooks.Endpoints().Disable(t.Context(), acme, endpoint.ID, "")
	require.NoError(t, err)
	_, err = h.hooks.Endpoints().SendTest(t.Context(), acme, endpoint.ID, "invoice.paid")
	require.ErrorIs(t, err, webhook.ErrEndpointDisabled)
}

func newServer(t *testing.T, serve http.HandlerFunc) string {
	t.Helper()
	receiver := webhooktest.NewReceiver(t)
	receiver.Respond(webhooktest.Behavior(serve))
	return receiver.URL
}
