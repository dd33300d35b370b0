package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/admin"
)

// serve shows the pages until ctx ends, while orders go on coming in and one receiver
// fails, so that there is something to see.
func serve(ctx context.Context, db *sql.DB, hooks *webhook.Hooks[*sql.Tx], out io.Writer, listener net.Listener) error {
	pages, err := admin.New(hooks, admin.Config{
		// Whoever reaches this address is an operator. It is on loopback; a real host
		// looks at its session here.
		Authorize:  func(*http.Request) (admin.Operator, error) { return admin.Operator{Name: "you"}, nil },
		EventTypes: []admin.EventType{{Name: "order.paid", Description: "A customer has paid an order."}},
	})
	if err != nil {
		return err
	}
	// Nobody listens there, so what goes there fails.
	if _, err := hooks.Endpoints().Create(ctx, webhook.EndpointParams{
		Tenant: "acme", URL: "http://127.0.0.1:1024/unreachable", Types: []string{"order.*"}, Description: "Nobody listens here",
	}); err != nil {
		return err
	}
	dispatcher, err := hooks.NewDispatcher(webhook.DispatcherConfig{})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/webhooks/", pages)
	mux.Handle("/{$}", http.RedirectHandler("/webhooks/", http.StatusSeeOther))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}

	fmt.Fprintf(out, "\nThe pages are at http://%s/webhooks/ (stop with Ctrl-C)\n", listener.Addr())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return dispatcher.Run(ctx) })
	group.Go(func() error { return takeOrders(ctx, db, hooks) })
	group.Go(func() error {
		if err := server.Serve(listener); err != http.ErrServerClosed {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		return server.Shutdown(stopping)
	})
	return group.Wait()
}

// takeOrders takes one every other second.
func takeOrders(ctx context.Context, db *sql.DB, hooks *webhook.Hooks[*sql.Tx]) error {
	next := time.NewTicker(2 * time.Second)
	defer next.Stop()
	for n := 100; ; n++ {
		if _, err := takeOrder(ctx, db, hooks, fmt.Sprintf("order_%d", n), 10*n, true); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		}
	}
}
