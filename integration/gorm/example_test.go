package gorm_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"

	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/pgtest"
	"github.com/outhook/webhook/store/postgres"
)

// Invoice is the service's own model.
type Invoice struct {
	ID   string `gorm:"primaryKey"`
	Paid bool
}

// region: gorm-pay

// sqlTx returns the transaction that a GORM session runs in: what Enqueue wants.
func sqlTx(tx *gorm.DB) (*sql.Tx, error) {
	pool := tx.Statement.ConnPool
	if prepared, ok := pool.(*gorm.PreparedStmtTX); ok { // with Config.PrepareStmt
		pool = prepared.Tx
	}
	if raw, ok := pool.(*sql.Tx); ok {
		return raw, nil
	}
	return nil, fmt.Errorf("not in a transaction: %T", pool)
}

// pay marks an invoice as paid and tells the customer, both or neither.
func pay(ctx context.Context, db *gorm.DB, hooks *webhook.Hooks[*sql.Tx], id string, check func() error) error {
	return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Save(&Invoice{ID: id, Paid: true}).Error; err != nil {
			return err
		}
		raw, err := sqlTx(tx)
		if err != nil {
			return err
		}
		if _, err := hooks.Enqueue(ctx, raw, webhook.Event{
			Tenant:     "acme",
			Type:       "invoice.paid",
			ResourceID: id,
			Payload:    fmt.Appendf(nil, `{"invoice":%q}`, id),
		}); err != nil {
			return err
		}
		return check()
	})
}

// end region

func Example() {
	ctx := context.Background()
	server, err := pgtest.StartServer(pgtest.Options{}) // your database
	must(err)
	defer func() { must(server.Stop()) }()

	db, err := gorm.Open(gormpostgres.Open(server.URL()), &gorm.Config{})
	must(err)
	must(db.AutoMigrate(&Invoice{}))
	pool, err := db.DB()
	must(err)
	defer pool.Close()

	store := postgres.NewSQL(pool)
	must(store.Migrate(ctx))
	hooks, err := webhook.New(store, webhook.Config{
		Secrets:   webhook.NewKeyring(webhook.NewKey("example")), // a real host keeps its key
		Transport: loopback(),
	})
	must(err)
	defer hooks.Close()

	arrived := make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		arrived <- string(body)
	}))
	defer receiver.Close()
	_, err = hooks.Endpoints().Create(ctx, webhook.EndpointParams{
		Tenant: "acme", URL: receiver.URL, Types: []string{"invoice.*"},
	})
	must(err)

	fine := func() error { return nil }
	refused := func() error { return errors.New("card refused") }
	fmt.Println("in_1:", pay(ctx, db, hooks, "in_1", refused))
	fmt.Println("in_2:", pay(ctx, db, hooks, "in_2", fine))

	dispatcher, err := hooks.NewDispatcher(webhook.DispatcherConfig{})
	must(err)
	running, stop := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- dispatcher.Run(running) }()
	fmt.Println("arrived:", <-arrived)
	stop()
	must(<-stopped)

	var paid []string
	must(db.Model(&Invoice{}).Pluck("id", &paid).Error)
	fmt.Println("paid:", paid, "further events:", len(arrived))

	// Output:
	// in_1: card refused
	// in_2: <nil>
	// arrived: {"invoice":"in_2"}
	// paid: [in_2] further events: 0
}

func loopback() *webhook.Transport {
	transport, err := webhook.NewTransport(webhook.TransportConfig{
		Allow: []webhook.AllowRule{{
			Prefix: netip.MustParsePrefix("127.0.0.1/32"),
			Ports:  []webhook.PortRange{{From: 1024, To: 65535}},
		}},
		AllowHTTP: true,
	})
	must(err)
	return transport
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
