package postgres_test

import (
	"context"
	"database/sql"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx" of ExampleNewSQL

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/postgres"
)

func ExampleNew() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	store := postgres.New(pool)
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	hooks, err := webhook.New(store, webhook.Config{Secrets: webhook.NewKeyring(webhook.NewKey("example"))}) // a service keeps its key
	if err != nil {
		log.Fatal(err)
	}
	defer hooks.Close()

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE invoices SET paid = true WHERE id = $1`, "in_9"); err != nil {
			return err
		}
		_, err := hooks.Enqueue(ctx, tx, webhook.Event{
			Tenant: "acme", Type: "invoice.paid", Payload: []byte(`{"id":"in_9"}`),
		})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

// With database/sql the transaction is a *sql.Tx. Where the ORM has a type of its own,
// it gives the *sql.Tx underneath: in GORM tx.Statement.ConnPool.(*sql.Tx), in sqlx tx.Tx.
func ExampleNewSQL() {
	ctx := context.Background()
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()

	store := postgres.NewSQL(db)
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
	event := webhook.Event{Tenant: "acme", Type: "invoice.paid", Payload: []byte(`{"id":"in_9"}`)}
	if _, err := hooks.Enqueue(ctx, tx, event); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
}

// A store behind a pooler in transaction mode, in a schema with another name. Waking
// dispatchers takes a connection of its own, which the pooler cannot give.
func ExampleNewWithConfig() {
	ctx := context.Background()
	pooled, err := pgxpool.ParseConfig(os.Getenv("POOLER_URL"))
	if err != nil {
		log.Fatal(err)
	}
	pooled.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // for poolers without prepared statements
	pool, err := pgxpool.NewWithConfig(ctx, pooled)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	direct, err := pgx.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	store, err := postgres.NewWithConfig(pool, postgres.Config{ListenConn: direct, Schema: "outbox"})
	if err != nil {
		log.Fatal(err)
	}
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
}
