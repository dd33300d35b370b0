package webhook_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

// TestA32A34B25ARowForcedIntoTheDatabaseIsRefusedAtTheAttempt: no Create let these URLs
// in, and what a tenant reads of them is the same for all.
func TestA32A34B25ARowForcedIntoTheDatabaseIsRefusedAtTheAttempt(t *testing.T) {
	t.Parallel()
	var reached atomic.Int32
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(inside.Close)
	port := inside.URL[strings.LastIndex(inside.URL, ":"):]
	strict, err := webhook.NewTransport(webhook.TransportConfig{AllowHTTP: true})
	require.NoError(t, err)
	t.Cleanup(strict.CloseIdleConnections)
	h := newHost(t, func(c *webhook.Config) { c.Transport = strict })
	urls := map[uuid.UUID]string{}
	for _, url := range []string{
		"http://127.0.0.1" + port, "http://10.0.0.1/", "http://169.254.169.254/latest", "http://[::ffff:127.0.0.1]" + port,
		"http://[::1]" + port, "http://localhost" + port, "http://2130706433" + port, "http://user:sesame@127.0.0.1" + port,
		"http://[fe80::1%25lo]" + port, "http://0.0.0.0" + port, "http://" + port, "file:///etc/passwd", "", "http://127.0.0.1:0x50/", "http://hooks.example:22/",
	} {
		e := h.endpoint(inbox)
		rec := h.record(e.ID)
		rec.URL = url
		_, err := h.store.UpdateEndpoint(t.Context(), rec)
		require.NoError(t, err)
		urls[e.ID] = url
	}
	h.dispatch(webhook.DispatcherConfig{Retry: webhook.RetrySchedule{}})

	shown := map[string]bool{}
	event := h.enqueue(paid(`{}`))
	for _, d := range h.settled(event, len(urls)) {
		assert.Equal(t, [2]any{webhook.StateDead, webhook.ClassBlocked}, [2]any{d.State, d.LastClass}, "%q", urls[d.EndpointID])
		log, err := h.hooks.Backend().ListAttempts(t.Context(), webhook.AllTenants(), d.ID)
		require.NoError(t, err)
		require.Len(t, log, 1)
		assert.Empty(t, log[0].Excerpt)
		assert.Empty(t, log[0].Location)
		assert.NotContains(t, log[0].Error, "sesame")
		d.ID, d.EndpointID = uuid.Nil, uuid.Nil
		d.CreatedAt, d.FinishedAt = time.Time{}, time.Time{}
		text, err := json.Marshal(any(d))
		require.NoError(t, err)
		shown[fmt.Sprint(string(text), log[0].Class, log[0].Status)] = true
	}
	assert.Len(t, shown, 1, "a tenant cannot tell one refusal from another")

	// A33: a replay leaves through the same client.
	for id := range urls {
		d, err := h.hooks.Deliveries().Replay(t.Context(), webhook.AllTenants(), webhook.ReplayRequest{EventID: event, EndpointID: id})
		require.NoError(t, err)
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			again, err := h.hooks.Backend().GetDelivery(t.Context(), webhook.AllTenants(), d.ID)
			require.NoError(c, err)
			require.Equal(c, [2]any{webhook.StateDead, webhook.ClassBlocked}, [2]any{again.State, again.LastClass})
		}, 10*time.Second, time.Millisecond)
		break
	}
	assert.Zero(t, reached.Load())
}

func TestA34RefusedAtRegistrationTheSameForEveryAddress(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(c *webhook.Config) { c.Transport = nil })
	texts := map[string]bool{}
	for _, address := range []string{"127.0.0.1", "10.0.0.1", "169.254.169.254", "[::1]", "[fd00:ec2::254]", "[64:ff9b::7f00:1]"} {
		_, err := h.hooks.Endpoints().Create(t.Context(), webhook.EndpointParams{
			Tenant: "acme", URL: "https://" + address + "/", Types: []string{"*"},
		})
		require.ErrorIs(t, err, webhook.ErrInvalid)
		texts[err.Error()] = true
	}
	assert.Len(t, texts, 1)
}
