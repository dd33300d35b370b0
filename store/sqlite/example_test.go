package sqlite_test

import (
	"context"
	"database/sql"
	"log"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/sqlite"
)

// The busy timeout and immediate transactions make the host and the library wait for
// one another; Migrate refuses a database opened without them. The package imports no
// driver: this takes `import _ "modernc.org/sqlite"`.
func ExampleNew() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", "file:app.db?_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()

	store := sqlite.New(db)
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	hooks, err := webhook.New(store, webhook.Config{Secrets: webhook.NewKeyring(webhook.NewKey("example"))}) // a service keeps its key
	if err != nil {
		log.Fatal(err)
	}
	defer hooks.Close()

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, `UPDATE invoices SET paid = true WHERE id = ?`, "in_9"); err != nil {
		log.Fatal(err)
	}
	event := webhook.Event{Tenant: "acme", Type: "invoice.paid", Payload: []byte(`{"id":"in_9"}`)}
	if _, err := hooks.Enqueue(ctx, tx, event); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
}
