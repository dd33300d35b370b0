package webhooktest_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
)

// A customer's endpoint that is down at first: the receiver verifies what it gets and
// answers as it is told.
func ExampleReceiver() {
	t := &printingT{} // a test has its *testing.T
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	secret := webhook.NewSecret()
	receiver := webhooktest.NewReceiver(t)
	defer receiver.Close() // a *testing.T does this at the end of the test
	receiver.Verify(t, secret.Reveal())
	receiver.Respond(webhooktest.Status(503), webhooktest.Status(204))

	// Loopback is refused by default; this opens it for the test.
	transport, err := webhook.NewTransport(webhook.TransportConfig{
		Allow:     []webhook.AllowRule{{Prefix: netip.MustParsePrefix("127.0.0.1/32")}},
		AllowHTTP: true,
	})
	if err != nil {
		panic(err)
	}
	defer transport.CloseIdleConnections()
	store := webhooktest.NewStore()
	hooks, err := webhook.New(store, webhook.Config{Secrets: webhook.InsecurePlaintext(), Transport: transport})
	if err != nil {
		panic(err)
	}
	defer hooks.Close()
	dispatcher, err := hooks.NewDispatcher(webhook.DispatcherConfig{
		Retry: webhook.RetrySchedule{Delays: []time.Duration{time.Millisecond}}, // a test does not wait 5 s
	})
	if err != nil {
		panic(err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() {
		if err := dispatcher.Run(ctx); err != nil {
			panic(err)
		}
	})

	if _, err := hooks.Endpoints().Create(ctx, webhook.EndpointParams{
		Tenant: "acme", URL: receiver.URL + "/in", Types: []string{"invoice.*"}, Secret: secret,
	}); err != nil {
		panic(err)
	}
	tx := store.Begin()
	if err := payInvoice(ctx, hooks, tx, "in_9"); err != nil {
		panic(err)
	}
	if err := tx.Commit(); err != nil {
		panic(err)
	}

	for _, r := range receiver.RequireRequests(t, 2, 10*time.Second) {
		fmt.Println("attempt", r.Attempt(), r.Path, string(r.Body), "verified:", r.VerifyErr == nil)
	}
	// Output:
	// attempt 1 /in {"id":"in_9"} verified: true
	// attempt 2 /in {"id":"in_9"} verified: true
}
