package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	_ "modernc.org/sqlite"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/admin"
	"github.com/outhook/webhook/store/sqlite"
)

// host is the application.
type host struct {
	log      *slog.Logger
	db       *sql.DB
	dir      string
	hooks    *webhook.Hooks[*sql.Tx]
	sessions *sessions
	handler  http.Handler
}

func newHost(ctx context.Context, log *slog.Logger) (*host, error) {
	dir, err := os.MkdirTemp("", "webhook-portal-")
	if err != nil {
		return nil, err
	}
	h := &host{log: log, dir: dir, sessions: newSessions()}
	if err := h.open(ctx); err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

// open opens the database and builds what stands on it.
func (h *host) open(ctx context.Context) (err error) {
	h.db, err = sql.Open("sqlite", "file:"+filepath.Join(h.dir, "shop.db")+"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)")
	if err != nil {
		return err
	}
	store := sqlite.New(h.db)
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	// So that you can try it with a receiver on this machine. Leave this away, and only
	// public addresses over HTTPS are sent to.
	transport, err := webhook.NewTransport(webhook.TransportConfig{
		Allow:     []webhook.AllowRule{{Prefix: netip.MustParsePrefix("127.0.0.0/8"), Ports: []webhook.PortRange{{From: 1024, To: 65535}}, Excerpts: true}},
		AllowHTTP: true,
	})
	if err != nil {
		return err
	}
	h.hooks, err = webhook.New(store, webhook.Config{
		Secrets:   webhook.NewKeyring(webhook.NewKey("example")), // a real host keeps its key
		Transport: transport,
		Logger:    h.log,
	})
	if err != nil {
		return err
	}
	return h.mount()
}

// mount builds the handler: the login, the customers' portal and the staff's pages.
func (h *host) mount() error {
	types := []admin.EventType{
		{Name: "order.created", Description: "Somebody has ordered something."},
		{Name: "order.shipped", Description: "An order is on its way."},
	}
	portal, err := admin.NewPortal(h.hooks, admin.PortalConfig{
		Authorize:  h.member,
		Audit:      h.audit,
		EventTypes: types,
		LoginURL:   "/login",
		Logger:     h.log,
	})
	if err != nil {
		return err
	}
	operators, err := admin.New(h.hooks, admin.Config{
		Authorize:  h.operator,
		Audit:      h.audit,
		EventTypes: types,
		LoginURL:   "/login",
		Logger:     h.log,
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/settings/webhooks/", portal)
	mux.Handle("/admin/webhooks/", operators)
	mux.HandleFunc("GET /login", h.loginPage)
	mux.HandleFunc("POST /login", h.login)
	mux.HandleFunc("POST /logout", h.logout)
	mux.HandleFunc("POST /orders", h.order)
	mux.HandleFunc("GET /{$}", h.home)
	// The host protects its own forms as the pages protect theirs.
	h.handler = http.NewCrossOriginProtection().Handler(mux)
	return nil
}

// member says whose webhooks the portal shows: those of the tenant in the session, and
// nobody else's, whatever a request says.
func (h *host) member(r *http.Request) (admin.Member, error) {
	user, ok := h.sessions.user(r)
	switch {
	case !ok:
		return admin.Member{}, admin.ErrUnauthenticated
	case user.Tenant == "":
		return admin.Member{}, admin.ErrForbidden
	}
	return admin.Member{Name: user.Name, Tenant: user.Tenant}, nil
}

// operator lets the staff see everything.
func (h *host) operator(r *http.Request) (admin.Operator, error) {
	user, ok := h.sessions.user(r)
	switch {
	case !ok:
		return admin.Operator{}, admin.ErrUnauthenticated
	case !user.Staff:
		return admin.Operator{}, admin.ErrForbidden
	}
	return admin.Operator{Name: user.Name}, nil
}

func (h *host) audit(ctx context.Context, r admin.AuditRecord) {
	h.log.InfoContext(ctx, "audit", "action", string(r.Action), "by", r.Actor, "tenant", r.Tenant, "object", r.Object)
}

// order is the business: an order, and its event in the same transaction.
func (h *host) order(w http.ResponseWriter, r *http.Request) {
	user, ok := h.sessions.user(r)
	if !ok || user.Tenant == "" {
		http.Error(w, "log in as a customer", http.StatusForbidden)
		return
	}
	if err := h.takeOrder(r.Context(), user.Tenant); err != nil {
		h.log.ErrorContext(r.Context(), "order", "error", err)
		http.Error(w, "the order failed", http.StatusInternalServerError)
		return
	}
	http.Redirect(w, r, "/settings/webhooks/deliveries", http.StatusSeeOther)
}

func (h *host) takeOrder(ctx context.Context, tenant string) error {
	tx, err := h.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // harmless after Commit
	payload, err := json.Marshal(map[string]any{"order": fmt.Sprintf("order_%d", time.Now().Unix()), "amount": 4200, "currency": "EUR"})
	if err != nil {
		return err
	}
	if _, err := h.hooks.Enqueue(ctx, tx, webhook.Event{Tenant: tenant, Type: "order.created", Payload: payload}); err != nil {
		return err
	}
	return tx.Commit()
}

// serve answers requests and sends webhooks until ctx ends.
func (h *host) serve(ctx context.Context, listener net.Listener) error {
	dispatcher, err := h.hooks.NewDispatcher(webhook.DispatcherConfig{})
	if err != nil {
		return err
	}
	server := &http.Server{Handler: h.handler, ReadHeaderTimeout: 5 * time.Second}
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
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		return server.Shutdown(stopping)
	})
	return group.Wait()
}

func (h *host) close() {
	if h.hooks != nil {
		h.hooks.Close()
	}
	if h.db != nil {
		h.db.Close()
	}
	os.RemoveAll(h.dir)
}
