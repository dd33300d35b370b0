package webhook_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/verify"
	"github.com/outhook/webhook/webhooktest"
)

func enveloped(p *webhook.EndpointParams) { p.Envelope = true }

func TestAnEnvelopeSaysWhatTheEventIsAndHoldsThePayloadAsItIs(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	receiver := webhooktest.NewReceiver(t)
	receiver.Respond(webhooktest.Status(500), webhooktest.Status(204))
	endpoint := h.endpoint(receiver.URL, enveloped)
	h.dispatch(webhook.DispatcherConfig{Retry: webhook.RetrySchedule{Delays: []time.Duration{0, time.Millisecond}}})
	const payload = "{ \"b\":1.0,\n \"a\":\"<&\u2028>\", \"a\":2 }" // nobody's encoder would write it like this
	event := h.enqueue(webhook.Event{
		Tenant: "acme", Type: "invoice.paid", ResourceID: `in_<"1">`, ResourceVersion: 7, Payload: []byte(payload),
	})
	d := h.runsOf(event, 1)[0]
	got := receiver.Requests()
	require.Len(t, got, 2)
	assert.Equal(t, got[0].Body, got[1].Body, "each attempt sends the same")

	body := string(got[0].Body)
	assert.True(t, strings.HasSuffix(body, `,"data":`+payload+`}`), body)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(got[0].Body, &fields))
	delete(fields, "data")
	status, err := h.hooks.Events().Get(t.Context(), acme, event)
	require.NoError(t, err)
	assert.Equal(t, map[string]any{
		"id": event.String(), "type": "invoice.paid", "timestamp": status.CreatedAt.UTC().Format(time.RFC3339Nano),
		"idempotency_key": got[0].Header.Get("Idempotency-Key"), "resource_id": `in_<"1">`, "resource_version": 7.0,
	}, fields)
	assert.Equal(t, "application/json", got[0].Header.Get("Content-Type"))
	_, err = verify.Payload(got[0].Header, got[0].Body, endpoint.Secret.Reveal())
	require.NoError(t, err, "what is sent is what is signed")

	attempts, err := h.hooks.Deliveries().Attempts(t.Context(), acme, d.ID)
	require.NoError(t, err)
	again, err := h.hooks.Deliveries().Request(t.Context(), acme, attempts[0])
	require.NoError(t, err)
	assert.Equal(t, body, string(again.Body))
	assert.Equal(t, got[0].Header["Webhook-Signature"], again.Header["Webhook-Signature"])
}

func TestAnEnvelopeOfWhatIsNotJSON(t *testing.T) {
	t.Parallel()
	for contentType, c := range map[string]struct {
		payload string
		isData  bool
	}{
		"":                              {`1`, true},
		"application/json":              {`{"a":1}`, true},
		"application/cloudevents+json":  {`{"a":1}`, true},
		"Application/JSON; charset=utf": {`[]`, true},
		"application/xml":               {"<a/>", false},
		"text/plain":                    {`{"a":1}`, false},
		"application/octet-stream":      {"\x00\xff", false},
		"application/problem+json":      {`{"a":`, false}, // nobody checked it
	} {
		t.Run(contentType, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			receiver := webhooktest.NewReceiver(t)
			endpoint := h.endpoint(receiver.URL, enveloped)
			h.dispatch(webhook.DispatcherConfig{})
			h.runsOf(h.enqueue(webhook.Event{Tenant: "acme", Type: "invoice.paid", ContentType: contentType, Payload: []byte(c.payload)}), 1)
			got := receiver.Requests()[0]
			_, err := verify.Payload(got.Header, got.Body, endpoint.Secret.Reveal())
			require.NoError(t, err)
			assert.Equal(t, "application/json", got.Header.Get("Content-Type"))
			var body struct {
				Data        json.RawMessage `json:"data"`
				Base64      string          `json:"data_base64"`
				ContentType string          `json:"content_type"`
			}
			require.NoError(t, json.Unmarshal(got.Body, &body))
			if c.isData {
				assert.Equal(t, c.payload, string(body.Data))
				assert.Empty(t, body.ContentType)
				return
			}
			assert.Empty(t, body.Data)
			assert.Equal(t, base64.StdEncoding.EncodeToString([]byte(c.payload)), body.Base64)
			assert.Equal(t, contentType, body.ContentType)
		})
	}
}

func TestAnEnvelopeIsSwitchedOnAndOff(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	e := h.endpoint("https://hooks.acme.example/in")
	for _, on := range []bool{true, false} {
		e, err := h.hooks.Endpoints().Update(t.Context(), acme, e.ID, webhook.EndpointUpdate{Envelope: &on})
		require.NoError(t, err)
		assert.Equal(t, on, e.Envelope)
	}
}

func TestAHostLimitsTheHeadersOfEndpoints(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(c *webhook.Config) { c.AllowHeaders = []string{"X-Acme-*"} })
	e := h.endpoint("https://hooks.acme.example/in", func(p *webhook.EndpointParams) { p.Headers = webhook.Headers{"X-Acme-Key": "k"} })
	headers := webhook.Headers{"Authorization": "Bearer hunter2"}
	_, err := h.hooks.Endpoints().Update(t.Context(), acme, e.ID, webhook.EndpointUpdate{Headers: &headers})
	require.ErrorIs(t, err, webhook.ErrInvalid)
	require.ErrorContains(t, err, `Headers["Authorization"] is a name that this service does not allow`)
	assert.NotContains(t, err.Error(), "hunter2")
}
