package guides

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jmoiron/sqlx"
	"github.com/uptrace/bun"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/postgres"
)

// region: sql-open

// OpenSQL makes the hooks of a service that has a *sql.DB on PostgreSQL, with any driver.
func OpenSQL(ctx context.Context, db *sql.DB, keys *webhook.Keyring) (*webhook.Hooks[*sql.Tx], error) {
	store := postgres.NewSQL(db)
	if err := store.Migrate(ctx); err != nil {
		return nil, err
	}
	return webhook.New(store, webhook.Config{Secrets: keys})
}

// end region

// paid is the event of a paid invoice.
func paid(invoice string) webhook.Event {
	return webhook.Event{Tenant: "acme", Type: "invoice.paid", ResourceID: invoice, Payload: fmt.Appendf(nil, `{"invoice":%q}`, invoice)}
}

// region: sql-pay

// PaySQL does so with database/sql.
func PaySQL(ctx context.Context, db *sql.DB, hooks *webhook.Hooks[*sql.Tx], invoice string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if _, err := tx.ExecContext(ctx, `UPDATE invoices SET paid = true WHERE id = $1`, invoice); err != nil {
		return err
	}
	if _, err := hooks.Enqueue(ctx, tx, paid(invoice)); err != nil {
		return err
	}
	return tx.Commit()
}

// end region

// region: sqlx-pay

// PaySQLX does so with sqlx, whose transaction holds a *sql.Tx.
func PaySQLX(ctx context.Context, db *sqlx.DB, hooks *webhook.Hooks[*sql.Tx], invoice string) error {
	tx, err := db.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if _, err := tx.NamedExecContext(ctx, `UPDATE invoices SET paid = true WHERE id = :id`, map[string]any{"id": invoice}); err != nil {
		return err
	}
	if _, err := hooks.Enqueue(ctx, tx.Tx, paid(invoice)); err != nil {
		return err
	}
	return tx.Commit()
}

// end region

// region: bun-pay

// PayBun does so with Bun, whose transaction holds a *sql.Tx as well.
func PayBun(ctx context.Context, db *bun.DB, hooks *webhook.Hooks[*sql.Tx], invoice string) error {
	return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewUpdate().Table("invoices").Set("paid = true").Where("id = ?", invoice).Exec(ctx); err != nil {
			return err
		}
		_, err := hooks.Enqueue(ctx, tx.Tx, paid(invoice))
		return err
	})
}

// end region
