package webhook_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
)

func TestATenantIsErased(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	receiver := webhooktest.NewReceiver(t)
	h.endpoint(receiver.URL)
	h.dispatch(webhook.DispatcherConfig{})
	event := paid(`{"card":"4111"}`)
	event.IdempotencyKey = "key"
	d := h.settled(h.enqueue(event), 1)[0]

	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, h.hooks.EraseTenant(interrupted, "acme", webhook.EraseOptions{}))
	require.NoError(t, h.hooks.EraseTenant(t.Context(), "acme", webhook.EraseOptions{}))

	_, err := h.hooks.Deliveries().Get(t.Context(), acme, d.ID)
	require.ErrorIs(t, err, webhook.ErrNotFound)
	_, err = h.hooks.Events().Get(t.Context(), acme, d.EventID)
	require.ErrorIs(t, err, webhook.ErrNotFound)
	endpoints, err := h.hooks.Endpoints().List(t.Context(), webhook.ListEndpointsParams{Scope: acme})
	require.NoError(t, err)
	assert.Empty(t, endpoints)
	require.NoError(t, h.hooks.EraseTenant(t.Context(), "acme", webhook.EraseOptions{Counters: true}), "erasing twice")

	// The tenant may come back: its key is free and its endpoints are new.
	h.endpoint(receiver.URL)
	h.settled(h.enqueue(event), 1)
	receiver.RequireRequests(t, 2, 10*time.Second)
	require.ErrorIs(t, h.hooks.EraseTenant(t.Context(), "", webhook.EraseOptions{}), webhook.ErrInvalid)
}
