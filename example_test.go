package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/verify"
	"github.com/outhook/webhook/webhooktest"
)

// The whole library in one function: a host enqueues an event in its own
// transaction, a dispatcher delivers it, and the receiver verifies it. The store
// is the one for tests; a service uses store/postgres or store/sqlite.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	// Loopback is refused by default; this opens it, for this example alone.
	transport, err := webhook.NewTransport(webhook.TransportConfig{
		Allow:     []webhook.AllowRule{{Prefix: netip.MustParsePrefix("127.0.0.1/32")}},
		AllowHTTP: true,
	})
	if err != nil {
		panic(err)
	}
	defer transport.CloseIdleConnections()

	store := webhooktest.NewStore()
	hooks, err := webhook.New(store, webhook.Config{
		Secrets:   webhook.NewKeyring(webhook.NewKey("example")), // a service keeps its key
		Transport: transport,
	})
	if err != nil {
		panic(err)
	}
	defer hooks.Close()

	secret := webhook.NewSecret()
	receiver := httptest.NewServer(verify.Middleware(secret.Reveal())(http.HandlerFunc(
		func(_ http.ResponseWriter, r *http.Request) {
			fmt.Println("received a verified", r.Method)
			stop()
		})))
	defer receiver.Close()
	if _, err := hooks.Endpoints().Create(ctx, webhook.EndpointParams{
		Tenant: "acme", URL: receiver.URL, Types: []string{"invoice.*"}, Secret: secret,
	}); err != nil {
		panic(err)
	}

	dispatcher, err := hooks.NewDispatcher(webhook.DispatcherConfig{})
	if err != nil {
		panic(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := dispatcher.Run(ctx); err != nil {
			panic(err)
		}
	})

	tx := store.Begin()
	if _, err := hooks.Enqueue(ctx, tx, webhook.Event{
		Tenant: "acme", Type: "invoice.paid", Payload: []byte(`{"id":"in_9"}`),
	}); err != nil {
		panic(err)
	}
	if err := tx.Commit(); err != nil {
		panic(err)
	}
	running.Wait()
	// Output: received a verified POST
}

// An idempotency key makes enqueuing idempotent: the second event is the first.
func ExampleHooks_Enqueue() {
	ctx := context.Background()
	store := webhooktest.NewStore()
	hooks, err := webhook.New(store, webhook.Config{Secrets: webhook.NewKeyring(webhook.NewKey("example"))})
	if err != nil {
		panic(err)
	}
	defer hooks.Close()

	tx := store.Begin()
	event := webhook.Event{
		Tenant:         "acme",
		Type:           "invoice.paid",
		ResourceID:     "in_9",
		IdempotencyKey: "in_9:paid",
		Payload:        []byte(`{"id":"in_9"}`),
	}
	first, err := hooks.Enqueue(ctx, tx, event)
	if err != nil {
		panic(err)
	}
	second, err := hooks.Enqueue(ctx, tx, event)
	if err != nil {
		panic(err)
	}
	fmt.Println(first.Duplicate, second.Duplicate, first.EventID == second.EventID)

	_, err = hooks.Enqueue(ctx, tx, webhook.Event{Tenant: "acme", Type: "invoice paid", Payload: []byte(`{}`)})
	var refused *webhook.InvalidError
	fmt.Println(errors.As(err, &refused), err)
	// Output:
	// false true true
	// true webhook: Event.Type may hold only letters, digits, underscores and full stops
}

// Rotating a secret leaves the old one signing beside the new one for a day.
func ExampleEndpoints_RotateSecret() {
	ctx := context.Background()
	hooks, err := webhook.New(webhooktest.NewStore(), webhook.Config{Secrets: webhook.NewKeyring(webhook.NewKey("example"))})
	if err != nil {
		panic(err)
	}
	defer hooks.Close()
	endpoint, err := hooks.Endpoints().Create(ctx, webhook.EndpointParams{
		Tenant: "acme", URL: "https://hooks.acme.example/in", Types: []string{"*"},
	})
	if err != nil {
		panic(err)
	}

	rotated, err := hooks.Endpoints().RotateSecret(ctx, webhook.TenantScope("acme"), endpoint.ID, webhook.RotateOptions{})
	if err != nil {
		panic(err)
	}
	fmt.Println(len(rotated.Secrets), "secrets sign;", rotated.Secrets[1].ExpiresAt.Sub(rotated.UpdatedAt), "left for the old one")
	// Output: 2 secrets sign; 24h0m0s left for the old one
}

// A new key is put in front, everything is sealed anew, and the old key can go.
func ExampleEndpoints_Reencrypt() {
	ctx := context.Background()
	store := webhooktest.NewStore()
	old, next := webhook.NewKey("2025"), webhook.NewKey("2026")
	with := func(box webhook.SecretBox) *webhook.Endpoints {
		hooks, err := webhook.New(store, webhook.Config{Secrets: box})
		if err != nil {
			panic(err)
		}
		defer hooks.Close()
		return hooks.Endpoints()
	}
	if _, err := with(webhook.NewKeyring(old)).Create(ctx, webhook.EndpointParams{
		Tenant: "acme", URL: "https://hooks.acme.example/in", Types: []string{"*"},
	}); err != nil {
		panic(err)
	}

	// 1. Every process gets the new key, as the first one.
	endpoints := with(webhook.NewKeyring(next, old))
	// 2. Once.
	changed, err := endpoints.Reencrypt(ctx)
	fmt.Println(changed, err)
	// 3. The old key is taken out.
	changed, err = with(webhook.NewKeyring(next)).Reencrypt(ctx)
	fmt.Println(changed, err)
	// Output:
	// 1 <nil>
	// 0 <nil>
}
