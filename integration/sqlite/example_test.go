package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/google/uuid"
	_ "modernc.org/sqlite"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/sqlite"
)

func ExampleNew() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "app")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	// The busy timeout and immediate transactions make the host and the library
	// wait for one another; Migrate refuses a database opened without them.
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "app.db")+"?_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()

	store := sqlite.New(db)
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}

	// webhook.Hooks does this for its users, once it has checked the event.
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	event := webhook.EventRecord{
		ID: uuid.Must(uuid.NewV7()), Tenant: "acme", Type: "invoice.paid", Payload: []byte(`{"id":"in_9"}`),
	}
	if _, err := store.InsertEvents(ctx, tx, []webhook.EventRecord{event}); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}

	stored, err := store.GetEvent(ctx, webhook.TenantScope("acme"), event.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(stored.Type, string(stored.Payload))
	// Output: invoice.paid {"id":"in_9"}
}
