package webhook_test

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
)

// exampleHost enqueues one event for one endpoint and runs no dispatcher, so that
// the examples show what they do and nothing else.
func exampleHost(ctx context.Context) (hooks *webhook.Hooks[*webhooktest.Tx], event uuid.UUID, endpoint webhook.Endpoint, err error) {
	store := webhooktest.NewStore()
	hooks, err = webhook.New(store, webhook.Config{Secrets: webhook.NewKeyring(webhook.NewKey("example"))})
	if err != nil {
		return nil, uuid.Nil, webhook.Endpoint{}, err
	}
	endpoint, err = hooks.Endpoints().Create(ctx, webhook.EndpointParams{
		Tenant: "acme", URL: "https://hooks.acme.example/in", Types: []string{"invoice.*"},
	})
	if err != nil {
		return nil, uuid.Nil, webhook.Endpoint{}, err
	}
	tx := store.Begin()
	res, err := hooks.Enqueue(ctx, tx, webhook.Event{Tenant: "acme", Type: "invoice.paid", Payload: []byte(`{"id":"in_9"}`)})
	if err != nil {
		return nil, uuid.Nil, webhook.Endpoint{}, err
	}
	return hooks, res.EventID, endpoint, tx.Commit()
}

// A customer asks for an event again: what arrives has the same id, a fresh
// signature, and says that it is a replay. A second click finds the first.
func ExampleDeliveries_Replay() {
	ctx := context.Background()
	hooks, event, endpoint, err := exampleHost(ctx)
	if err != nil {
		panic(err)
	}
	defer hooks.Close()

	scope := webhook.TenantScope("acme") // of whoever is logged in
	request := webhook.ReplayRequest{EventID: event, EndpointID: endpoint.ID}
	first, err := hooks.Deliveries().Replay(ctx, scope, request)
	if err != nil {
		panic(err)
	}
	second, err := hooks.Deliveries().Replay(ctx, scope, request)
	if err != nil {
		panic(err)
	}
	fmt.Println("run", first.Run, "is", first.State)
	fmt.Println("clicked twice, sent once:", first.ID == second.ID)
	// Output:
	// run 1 is pending
	// clicked twice, sent once: true
}

// After an outage of a customer's endpoint everything that did not arrive is sent
// again. A dry run says how much that is; dispatchers do the work.
func ExampleReplays_Create() {
	ctx := context.Background()
	hooks, _, endpoint, err := exampleHost(ctx)
	if err != nil {
		panic(err)
	}
	defer hooks.Close()

	scope := webhook.TenantScope("acme")
	request := webhook.ReplayJobRequest{
		EndpointID: endpoint.ID,
		EventsFrom: time.Now().Add(-24 * time.Hour),
		Types:      []string{"invoice.*"},
		PerSecond:  50,
	}
	estimate, err := hooks.Replays().DryRun(ctx, scope, request)
	if err != nil {
		panic(err)
	}
	job, err := hooks.Replays().Create(ctx, scope, request)
	if err != nil {
		panic(err)
	}
	fmt.Println("to replay:", estimate.Matched)
	fmt.Println("the job is", job.State)
	// Output:
	// to replay: 0
	// the job is running
}
