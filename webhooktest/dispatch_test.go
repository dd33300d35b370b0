package webhooktest_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
)

// The kit as a whole: the library on the store in memory, under a clock that the
// test moves, sends to a receiver that verifies and fails at first.
func TestADispatcherRunsOnTheKit(t *testing.T) {
	t.Parallel()
	transport, err := webhook.NewTransport(webhook.TransportConfig{
		Allow:     []webhook.AllowRule{{Prefix: netip.MustParsePrefix("127.0.0.1/32"), Ports: []webhook.PortRange{{From: 1, To: 65535}}}},
		AllowHTTP: true,
	})
	require.NoError(t, err)
	t.Cleanup(transport.CloseIdleConnections)
	clock := webhooktest.NewClock(time.Now())
	store := webhooktest.NewStore()
	store.SetNow(clock.Now)
	hooks, err := webhook.New(store, webhook.Config{Clock: clock, Secrets: webhook.InsecurePlaintext(), Transport: transport})
	require.NoError(t, err)
	t.Cleanup(hooks.Close)

	receiver := webhooktest.NewReceiver(t)
	receiver.SetNow(clock.Now)
	secret := webhook.NewSecret()
	receiver.Verify(t, secret.Reveal())
	receiver.Respond(webhooktest.Status(503), webhooktest.Status(204))
	_, err = hooks.Endpoints().Create(t.Context(), webhook.EndpointParams{
		Tenant: "acme", URL: receiver.URL, Types: []string{"*"}, Secret: secret,
	})
	require.NoError(t, err)
	tx := store.Begin()
	result, err := hooks.Enqueue(t.Context(), tx, webhook.Event{Tenant: "acme", Type: "invoice.paid", Payload: []byte(`{"n" : 1}`)})
	require.NoError(t, err)
	require.NoError(t, tx.Commit())

	dispatcher, err := hooks.NewDispatcher(webhook.DispatcherConfig{})
	require.NoError(t, err)
	dispatch(t, dispatcher)

	// Time passes until the second attempt, due 5 s after the first, has been made.
	require.Eventually(t, func() bool {
		clock.Advance(100 * time.Millisecond)
		return len(receiver.Requests()) == 2
	}, 20*time.Second, time.Millisecond)

	requests := receiver.Requests()
	for i, request := range requests {
		assert.NoError(t, request.VerifyErr, "request %d", i)
		assert.Equal(t, result.EventID.String(), request.ID(), "request %d", i)
		assert.Equal(t, `{"n" : 1}`, string(request.Body), "request %d", i)
	}
	assert.Equal(t, []string{"1", "2"}, []string{requests[0].Attempt(), requests[1].Attempt()})
	assert.GreaterOrEqual(t, requests[1].ReceivedAt.Sub(requests[0].ReceivedAt), 4*time.Second, "5 s less 20 %")
}

// dispatch runs a dispatcher until the end of the test.
func dispatch(t *testing.T, d *webhook.Dispatcher) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- d.Run(t.Context()) }()
	t.Cleanup(func() { assert.NoError(t, <-ended) })
}
