package payloadfs_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/payloadfs"
	"github.com/outhook/webhook/webhooktest"
)

// Payloads that are larger than 64 KiB go to files; the database holds their hashes.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "payloads")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	payloads, err := payloadfs.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = payloads.Close() }()

	store := webhooktest.NewStore() // or postgres.New(pool), or sqlite.New(db)
	hooks, err := webhook.New(store, webhook.Config{
		PayloadStore:     payloads,
		PayloadThreshold: 64 << 10,
		Secrets:          webhook.InsecurePlaintext(),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer hooks.Close()

	tx := store.Begin()
	report := `{"rows":"` + strings.Repeat("x", 1<<20) + `"}`
	large, err := hooks.Enqueue(ctx, tx, webhook.Event{Tenant: "acme", Type: "report.ready", Payload: []byte(report)})
	if err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}

	for key := range payloads.List(ctx) {
		fmt.Println("kept in a file:", key.Folder(), key.EventID == large.EventID)
	}
	event, err := hooks.Events().Get(ctx, webhook.AllTenants(), large.EventID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("read back:", string(event.Payload) == report)
	// Output:
	// kept in a file: t-acme true
	// read back: true
}
