package webhooktest_test

import (
	"context"
	"fmt"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
)

// payInvoice is the code under test: a host's business transaction.
func payInvoice(ctx context.Context, hooks *webhook.Hooks[*webhooktest.Tx], tx *webhooktest.Tx, id string) error {
	_, err := hooks.Enqueue(ctx, tx, webhook.Event{
		Tenant: "acme", Type: "invoice.paid", ResourceID: id, Payload: fmt.Appendf(nil, `{"id":%q}`, id),
	})
	return err
}

// A test of a host requires what its code enqueued, without a database.
func ExampleRequireEnqueued() {
	t := &printingT{} // a test has its *testing.T

	store := webhooktest.NewStore()
	hooks, err := webhook.New(store, webhook.Config{Secrets: webhook.InsecurePlaintext()})
	if err != nil {
		panic(err)
	}
	defer hooks.Close()

	tx := store.Begin()
	if err := payInvoice(context.Background(), hooks, tx, "in_9"); err != nil {
		panic(err)
	}
	webhooktest.RequireEnqueued(t, tx, webhook.Event{Type: "invoice.paid", ResourceID: "in_9"})
	webhooktest.RequireEnqueued(t, store) // not yet committed

	if err := tx.Rollback(); err != nil {
		panic(err)
	}
	webhooktest.RequireEnqueued(t, store) // and never will be
	fmt.Println("as required")
	// Output: as required
}

// printingT stands in for *testing.T, which an example does not have.
type printingT struct{}

func (*printingT) Helper()                           {}
func (*printingT) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (*printingT) FailNow()                          { panic("failed") }
func (*printingT) Cleanup(func())                    {}
