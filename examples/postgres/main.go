// Command postgres is a small orders service on PostgreSQL that tells its
// customers of paid orders by webhook. It shows where each part of the library
// goes in a service: migrations at start, Enqueue in the business transaction,
// the dispatcher in the background, and a clean stop.
//
//	DATABASE_URL=postgres://localhost/orders WEBHOOK_KEY=id:base64 go run ./examples/postgres
//
//	curl -X POST localhost:8080/endpoints -d '{"tenant":"acme","url":"https://example.com/in"}'
//	curl -X POST localhost:8080/orders -d '{"tenant":"acme","id":"o_1","amount":4200}'
//	curl -X POST localhost:8080/orders/o_1/pay
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/postgres"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, getenv func(string) string) error {
	key, err := webhook.ParseKey(getenv("WEBHOOK_KEY"))
	if err != nil {
		return fmt.Errorf("WEBHOOK_KEY: %w", err)
	}
	pool, err := pgxpool.New(ctx, getenv("DATABASE_URL"))
	if err != nil {
		return fmt.Errorf("DATABASE_URL: %w", err)
	}
	defer pool.Close()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", orDefault(getenv("ADDR"), "127.0.0.1:8080"))
	if err != nil {
		return err
	}
	return serve(ctx, pool, listener, webhook.Config{
		Logger:  slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Secrets: webhook.NewKeyring(key),
	})
}

// serve runs the service until ctx ends.
func serve(ctx context.Context, pool *pgxpool.Pool, listener net.Listener, cfg webhook.Config) error {
	store := postgres.New(pool)
	if err := migrate(ctx, pool, store); err != nil {
		return err
	}
	hooks, err := webhook.New(store, cfg)
	if err != nil {
		return err
	}
	defer hooks.Close()
	dispatcher, err := hooks.NewDispatcher(webhook.DispatcherConfig{})
	if err != nil {
		return err
	}
	server := &http.Server{Handler: routes(pool, hooks), ReadHeaderTimeout: 5 * time.Second}

	// The dispatcher and the server stop together: whichever ends first, by
	// failure or because ctx ended, ends the other.
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return dispatcher.Run(ctx) })
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return server.Shutdown(grace)
	})
	return group.Wait()
}

func migrate(ctx context.Context, pool *pgxpool.Pool, store *postgres.Store) error {
	if _, err := pool.Exec(ctx, `
		CREATE TABLE IF NOT EXISTS orders (
			id     text PRIMARY KEY,
			tenant text NOT NULL,
			amount bigint NOT NULL,
			paid   boolean NOT NULL DEFAULT false
		)`); err != nil {
		return err
	}
	return store.Migrate(ctx)
}

// routes is where a host's own handlers are. The library's admin handler will be
// mounted beside them.
func routes(pool *pgxpool.Pool, hooks *webhook.Hooks[pgx.Tx]) http.Handler {
	s := &service{pool: pool, hooks: hooks}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /endpoints", s.createEndpoint)
	mux.HandleFunc("POST /orders", s.createOrder)
	mux.HandleFunc("POST /orders/{id}/pay", s.payOrder)
	return mux
}

func orDefault(s, byDefault string) string {
	if s == "" {
		return byDefault
	}
	return s
}
