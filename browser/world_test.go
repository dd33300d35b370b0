package browser_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/admin"
	"github.com/outhook/webhook/webhooktest"
)

// world is a host with its own login, the portal under /settings/webhooks/ and the
// operators' pages under /admin/webhooks/, and a network of receivers that answer from
// memory: URLs keep the rules that they have in earnest, and nothing is dialled.
type world struct {
	t       *testing.T
	store   *webhooktest.Store
	hooks   *webhook.Hooks[*webhooktest.Tx]
	network *network
	server  *httptest.Server
}

// Deliveries are given up soon, after the given waits: whoever looks on would not wait
// for three days.
func newWorld(t *testing.T, waits ...time.Duration) *world {
	t.Helper()
	if len(waits) == 0 {
		waits = []time.Duration{0, 50 * time.Millisecond, 100 * time.Millisecond}
	}
	return newWorldAt(t, nil, webhook.DispatcherConfig{
		PollInterval: 100 * time.Millisecond,
		Breaker:      webhook.BreakerConfig{OpenFor: 200 * time.Millisecond, MaxOpenFor: 400 * time.Millisecond},
		Isolation:    webhook.IsolationConfig{RetryShare: -1, ReplayShare: -1},
		Retry:        webhook.RetrySchedule{Delays: waits, Window: time.Hour},
	})
}

// newWorldAt makes a world whose time is a clock's; nil is the machine's.
func newWorldAt(t *testing.T, clock *webhooktest.Clock, cfg webhook.DispatcherConfig) *world {
	t.Helper()
	w := &world{t: t, store: webhooktest.NewStore(), network: &network{answers: map[string]answer{}}}
	guard, err := webhook.NewTransport(webhook.TransportConfig{})
	require.NoError(t, err)
	hooks := webhook.Config{
		Secrets:   webhook.InsecurePlaintext(),
		Transport: guard.Wrap(func(http.RoundTripper) http.RoundTripper { return w.network }),
	}
	if clock != nil {
		hooks.Clock = clock
		w.store.SetNow(clock.Now)
	}
	w.hooks, err = webhook.New(w.store, hooks)
	require.NoError(t, err)
	t.Cleanup(w.hooks.Close)
	w.dispatch(cfg)
	w.serve()
	return w
}

func (w *world) dispatch(cfg webhook.DispatcherConfig) {
	d, err := w.hooks.NewDispatcher(cfg)
	require.NoError(w.t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	w.t.Cleanup(func() {
		stop()
		require.NoError(w.t, <-done)
	})
}

// eventTypes are what the host tells of.
var eventTypes = []admin.EventType{
	{Name: "invoice.paid", Description: "A customer has paid an invoice."},
	{Name: "invoice.overdue", Description: "An invoice was not paid in time."},
	{Name: "order.created", Description: "Somebody has ordered something."},
	{Name: "order.shipped", Description: "An order is on its way."},
}

func (w *world) serve() {
	who := func(r *http.Request) string {
		cookie, err := r.Cookie("session")
		if err != nil {
			return ""
		}
		return cookie.Value
	}
	portal, err := admin.NewPortal(w.hooks, admin.PortalConfig{
		EventTypes: eventTypes,
		LoginURL:   "/login",
		Authorize: func(r *http.Request) (admin.Member, error) {
			name, tenant, ok := strings.Cut(who(r), "@")
			if !ok {
				return admin.Member{}, admin.ErrUnauthenticated
			}
			return admin.Member{Name: name + "@" + tenant + ".example", Tenant: tenant}, nil
		},
	})
	require.NoError(w.t, err)
	operators, err := admin.New(w.hooks, admin.Config{
		EventTypes: eventTypes,
		Authorize: func(r *http.Request) (admin.Operator, error) {
			if who(r) != "operator" {
				return admin.Operator{}, admin.ErrForbidden
			}
			return admin.Operator{Name: "olga@host.example"}, nil
		},
	})
	require.NoError(w.t, err)
	mux := http.NewServeMux()
	mux.Handle("/settings/webhooks/", portal)
	mux.Handle("/admin/webhooks/", operators)
	mux.Handle("/deep/down/", http.StripPrefix("/deep/down/hooks", portal))
	mux.HandleFunc("/login", func(rw http.ResponseWriter, r *http.Request) {
		if as := r.URL.Query().Get("as"); as != "" {
			http.SetCookie(rw, &http.Cookie{Name: "session", Value: as, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode})
		}
		_, _ = io.WriteString(rw, "<!DOCTYPE html><title>Login</title><h1>Log in</h1>")
	})
	w.server = httptest.NewServer(mux)
	w.t.Cleanup(w.server.Close)
}

// enqueue tells of an event, and returns its id.
func (w *world) enqueue(e webhook.Event) string {
	w.t.Helper()
	var res webhook.EnqueueResult
	tx := w.store.Begin()
	res, err := w.hooks.Enqueue(w.t.Context(), tx, e)
	require.NoError(w.t, err)
	require.NoError(w.t, tx.Commit())
	w.hooks.Wake()
	return res.EventID.String()
}

// order enqueues an order of a tenant.
func (w *world) order(tenant string, n int) string {
	w.t.Helper()
	return w.enqueue(webhook.Event{
		Tenant: tenant, Type: "order.created", ResourceID: fmt.Sprintf("order_%d", n),
		Payload: fmt.Appendf(nil, `{"order":"order_%d","customer":"Zoë & Söhne","amount":%d,"currency":"EUR"}`, n, 100*n),
	})
}

func (w *world) endpoint(tenant, url string, types ...string) webhook.Endpoint {
	w.t.Helper()
	e, err := w.hooks.Endpoints().Create(w.t.Context(), webhook.EndpointParams{Tenant: tenant, URL: url, Types: types})
	require.NoError(w.t, err)
	return e
}

// eventually waits until ok, which looks at the host.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	require.Eventually(w.t, ok, 30*time.Second, 20*time.Millisecond, "%s", what)
}

// network answers requests by URL. What it does not know it answers with 404.
type network struct {
	mu       sync.Mutex
	answers  map[string]answer
	requests []*http.Request
}

// answer is what a receiver says.
type answer struct {
	status int
	body   string
	after  time.Duration
	header http.Header
}

// answer makes a receiver answer so from now on.
func (n *network) answer(url string, a answer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answers[url] = a
}

// count counts the requests to a URL.
func (n *network) count(url string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := 0
	for _, r := range n.requests {
		if r.URL.String() == url {
			count++
		}
	}
	return count
}

// RoundTrip implements http.RoundTripper.
func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
	}
	n.mu.Lock()
	a, known := n.answers[r.URL.String()]
	n.requests = append(n.requests, r)
	n.mu.Unlock()
	if !known {
		a = answer{status: http.StatusNotFound, body: "<h1>Not found</h1>"}
	}
	if a.after > 0 {
		select {
		case <-time.After(a.after):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	header := a.header.Clone()
	if header == nil {
		header = http.Header{}
	}
	return &http.Response{
		StatusCode: a.status, ProtoMajor: 1, ProtoMinor: 1, Header: header, Request: r,
		Body: io.NopCloser(bytes.NewReader([]byte(a.body))), ContentLength: int64(len(a.body)),
	}, nil
}
