package webhook_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/outhook/webhook"
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
