// Package webhooktest helps to test programs that use package webhook: an
// in-memory store with real transaction semantics, assertions on what a
// transaction enqueued, a receiver that records, verifies and misbehaves on
// demand, and a clock that moves only when told to.
//
// A host's test that needs no database looks like this:
//
//	store := webhooktest.NewStore()
//	hooks, err := webhook.New(store, webhook.Config{Secrets: webhook.InsecurePlaintext()})
//	…
//	tx := store.Begin()
//	payInvoice(ctx, hooks, tx) // the code under test, which calls hooks.Enqueue
//	webhooktest.RequireEnqueued(t, tx, webhook.Event{Tenant: "acme", Type: "invoice.paid"})
//	tx.Commit()
//
// A host that tests with its own database wraps its store in a [Recorder] and
// makes the same assertions on its own transactions.
package webhooktest
