package webhook_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
)

func TestTheRequestOfAnAttemptIsPutTogetherAgainAsItWasSent(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(c *webhook.Config) { c.Authenticator = webhook.BearerAuth("sesame") })
	receiver := webhooktest.NewReceiver(t)
	receiver.Respond(webhooktest.Status(500), webhooktest.Status(204))
	endpoint := h.endpoint(receiver.URL, func(p *webhook.EndpointParams) { p.Headers = webhook.Headers{"X-Api-Key": "hunter2"} })
	_, err := h.hooks.Endpoints().RotateSecret(t.Context(), acme, endpoint.ID, webhook.RotateOptions{})
	require.NoError(t, err)
	h.dispatch(webhook.DispatcherConfig{Retry: noRetry()})
	event := h.enqueue(paid(`{"a":1}`))
	first := h.runsOf(event, 1)[0]
	_, err = h.hooks.Deliveries().Replay(t.Context(), acme, replayOf(event, endpoint))
	require.NoError(t, err)
	runs := h.runsOf(event, 2)
	require.Equal(t, first.ID, runs[0].ID)

	// A secret that came later signed nothing then.
	_, err = h.hooks.Endpoints().RotateSecret(t.Context(), acme, endpoint.ID, webhook.RotateOptions{})
	require.NoError(t, err)
	got := receiver.Requests()
	require.Len(t, got, 2)
	for i, d := range runs {
		attempts, err := h.hooks.Deliveries().Attempts(t.Context(), acme, d.ID)
		require.NoError(t, err)
		require.Len(t, attempts, 1)
		r, err := h.hooks.Deliveries().Request(t.Context(), acme, attempts[0])
		require.NoError(t, err)
		assert.Equal(t, http.MethodPost, r.Method)
		assert.Equal(t, endpoint.URL, r.URL)
		assert.True(t, r.Signed)
		assert.Equal(t, string(got[i].Body), string(r.Body))
		sent := got[i].Header.Clone()
		assert.Len(t, strings.Fields(sent.Get("Webhook-Signature")), 2, "one for each secret")
		sent.Set("X-Api-Key", "…")
		for _, name := range []string{"Authorization", "Content-Length", "Accept-Encoding"} {
			sent.Del(name) // the authenticator's, and the protocol's
		}
		assert.Equal(t, sent, r.Header)

		_, err = h.hooks.Deliveries().Request(t.Context(), webhook.TenantScope("globex"), attempts[0])
		require.ErrorIs(t, err, webhook.ErrNotFound)
	}

	attempts, err := h.hooks.Deliveries().Attempts(t.Context(), acme, first.ID)
	require.NoError(t, err)
	for range 2 { // the first ends what is in use, the second drops what has ended
		_, err = h.hooks.Endpoints().RotateSecret(t.Context(), acme, endpoint.ID, webhook.RotateOptions{Overlap: -1})
		require.NoError(t, err)
	}
	r, err := h.hooks.Deliveries().Request(t.Context(), acme, attempts[0])
	require.NoError(t, err)
	assert.False(t, r.Signed)
	assert.Empty(t, r.Header.Get("Webhook-Signature"))

	require.NoError(t, h.hooks.Endpoints().Delete(t.Context(), acme, endpoint.ID))
	_, err = h.hooks.Deliveries().Request(t.Context(), acme, attempts[0])
	require.ErrorIs(t, err, webhook.ErrNotFound)
}

func TestTheRequestShowsNoMoreOfAPayloadThanTheEventDoes(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(c *webhook.Config) {
		c.Redaction.Payload = func(webhook.EventRecord) []byte { return []byte(`{"card":"…"}`) }
	})
	receiver := webhooktest.NewReceiver(t)
	h.endpoint(receiver.URL)
	h.dispatch(webhook.DispatcherConfig{Retry: noRetry()})
	run := h.runsOf(h.enqueue(paid(`{"card":"4111111111111111"}`)), 1)[0]
	attempts, err := h.hooks.Deliveries().Attempts(t.Context(), acme, run.ID)
	require.NoError(t, err)
	r, err := h.hooks.Deliveries().Request(t.Context(), acme, attempts[0])
	require.NoError(t, err)
	assert.JSONEq(t, `{"card":"…"}`, string(r.Body))
	assert.Equal(t, receiver.Requests()[0].Header.Get("Webhook-Signature"), r.Header.Get("Webhook-Signature"), "the signature is of what was sent")
}

// An envelope around a payload is as little of it as the payload alone.
func TestTheRequestShowsNoMoreOfAPayloadInAnEnvelope(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(c *webhook.Config) {
		c.Redaction.Payload = func(webhook.EventRecord) []byte { return []byte(`{"card":"…"}`) }
	})
	receiver := webhooktest.NewReceiver(t)
	h.endpoint(receiver.URL, func(p *webhook.EndpointParams) { p.Envelope = true })
	h.dispatch(webhook.DispatcherConfig{Retry: noRetry()})
	run := h.runsOf(h.enqueue(paid(`{"card":"4111111111111111"}`)), 1)[0]
	attempts, err := h.hooks.Deliveries().Attempts(t.Context(), acme, run.ID)
	require.NoError(t, err)
	r, err := h.hooks.Deliveries().Request(t.Context(), acme, attempts[0])
	require.NoError(t, err)
	sent := receiver.Requests()[0]
	assert.Contains(t, string(sent.Body), `"data":{"card":"4111111111111111"}`)
	assert.Equal(t, strings.Replace(string(sent.Body), "4111111111111111", "…", 1), string(r.Body))
	assert.Equal(t, sent.Header.Get("Webhook-Signature"), r.Header.Get("Webhook-Signature"))
}
