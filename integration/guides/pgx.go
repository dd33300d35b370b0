package guides

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/postgres"
)

// region: pgx-open

// Open makes the hooks of a service that has a pgx pool.
func Open(ctx context.Context, pool *pgxpool.Pool) (*webhook.Hooks[pgx.Tx], error) {
	store := postgres.New(pool)
	if err := store.Migrate(ctx); err != nil { // several processes may do so at once
		return nil, err
	}
	key, err := webhook.ParseKey(os.Getenv("WEBHOOK_KEY"))
	if err != nil {
		return nil, err
	}
	return webhook.New(store, webhook.Config{Secrets: webhook.NewKeyring(key)})
}

// end region

// region: pgx-pay

// Pay marks an invoice as paid and tells the customer, both or neither.
func Pay(ctx context.Context, pool *pgxpool.Pool, hooks *webhook.Hooks[pgx.Tx], invoice string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE invoices SET paid = true WHERE id = $1`, invoice); err != nil {
			return err
		}
		_, err := hooks.Enqueue(ctx, tx, webhook.Event{
			Tenant:         "acme",
			Type:           "invoice.paid",
			ResourceID:     invoice,
			IdempotencyKey: invoice + ":paid", // a retry of this function enqueues nothing twice
			Payload:        fmt.Appendf(nil, `{"invoice":%q}`, invoice),
		})
		return err
	})
}

// end region

// region: dispatch

// Dispatch delivers until ctx ends. Run it in as many processes as you like; they
// share the work.
func Dispatch[Tx any](ctx context.Context, hooks *webhook.Hooks[Tx]) error {
	d, err := hooks.NewDispatcher(webhook.DispatcherConfig{})
	if err != nil {
		return err
	}
	return d.Run(ctx) // what is in flight when ctx ends is finished, the rest handed back
}

// end region

// region: subscribe

// Subscribe makes an endpoint of a customer. The secret is shown once: give it to them.
func Subscribe[Tx any](ctx context.Context, hooks *webhook.Hooks[Tx], tenant, url string) (secret string, err error) {
	e, err := hooks.Endpoints().Create(ctx, webhook.EndpointParams{
		Tenant: tenant,
		URL:    url,
		Types:  []string{"invoice.*"},
	})
	if err != nil {
		return "", err // errors.Is(err, webhook.ErrInvalid): the customer's mistake, and it names the field
	}
	return e.Secret.Reveal(), nil
}

// end region
