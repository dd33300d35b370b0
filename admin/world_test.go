package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/admin"
	"github.com/outhook/webhook/webhooktest"
)

// world is a host with two tenants, acme and globex, its operators' handler and its
// portal. Who asks stands in the header "Who" of a request: "ops", or a tenant.
type world struct {
	t      *testing.T
	store  *webhooktest.Store
	hooks  *webhook.Hooks[*webhooktest.Tx]
	ops    *admin.Handler
	portal *admin.Handler

	mu        sync.Mutex
	audit     []admin.AuditRecord // what both handlers told
	documents map[*admin.Handler]*document
}

type options struct {
	ops    func(*world, *admin.Config)
	portal func(*world, *admin.PortalConfig)
}

func newWorld(t *testing.T, opts ...options) *world {
	t.Helper()
	w := &world{t: t, store: webhooktest.NewStore(), documents: map[*admin.Handler]*document{}}
	var err error
	w.hooks, err = webhook.New(w.store, webhook.Config{Secrets: webhook.InsecurePlaintext(), Transport: network{}})
	require.NoError(t, err)
	t.Cleanup(w.hooks.Close)

	cfg := admin.Config{Authorize: authorizeOperator, Audit: w.told}
	portalCfg := admin.PortalConfig{Authorize: authorizeMember, Audit: w.told}
	for _, o := range opts {
		if o.ops != nil {
			o.ops(w, &cfg)
		}
		if o.portal != nil {
			o.portal(w, &portalCfg)
		}
	}
	w.ops, err = admin.New(w.hooks, cfg)
	require.NoError(t, err)
	w.portal, err = admin.NewPortal(w.hooks, portalCfg)
	require.NoError(t, err)
	return w
}

func authorizeOperator(r *http.Request) (admin.Operator, error) {
	switch r.Header.Get("Who") {
	case "":
		return admin.Operator{}, admin.ErrUnauthenticated
	case "ops":
		return admin.Operator{Name: "olga"}, nil
	case "auditor":
		return admin.Operator{Name: "aude", ReadOnly: true}, nil
	}
	return admin.Operator{}, admin.ErrForbidden
}

func authorizeMember(r *http.Request) (admin.Member, error) {
	switch who := r.Header.Get("Who"); who {
	case "":
		return admin.Member{}, admin.ErrUnauthenticated
	case "broken":
		return admin.Member{}, errors.New("the session store is away")
	case "nobody":
		return admin.Member{Name: "nobody"}, nil
	case "reader":
		return admin.Member{Name: "rea", Tenant: "acme", ReadOnly: true}, nil
	default:
		return admin.Member{Name: "user of " + who, Tenant: who}, nil
	}
}

func (w *world) told(_ context.Context, r admin.AuditRecord) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.audit = append(w.audit, r)
}

// withEvents lets events be posted over HTTP.
var withEvents = options{
	ops:    func(w *world, c *admin.Config) { c.Enqueue = w.enqueueInTx },
	portal: func(w *world, c *admin.PortalConfig) { c.Enqueue = w.enqueueInTx },
}

// enqueueInTx is what a host gives as Enqueue.
func (w *world) enqueueInTx(ctx context.Context, e webhook.Event) (webhook.EnqueueResult, error) {
	tx := w.store.Begin()
	res, err := w.hooks.Enqueue(ctx, tx, e)
	if err != nil {
		return res, errors.Join(err, tx.Rollback())
	}
	return res, tx.Commit()
}

// records returns the audit records since the last call.
func (w *world) records() []admin.AuditRecord {
	w.mu.Lock()
	defer w.mu.Unlock()
	records := w.audit
	w.audit = nil
	return records
}

func (w *world) endpoint(tenant string) webhook.Endpoint {
	w.t.Helper()
	e, err := w.hooks.Endpoints().Create(w.t.Context(), webhook.EndpointParams{
		Tenant: tenant, URL: "https://hooks." + tenant + ".example/in?token=t0ken", Types: []string{"*"},
		Headers: webhook.Headers{"X-Api-Key": "hunter2"},
	})
	require.NoError(w.t, err)
	return e
}

// answer is a response whose body has been read.
type answer struct {
	t      *testing.T
	Status int
	Header http.Header
	Body   string
}

// ask sends a request to a handler. What one of the world's own answers below /api/ must
// be what its OpenAPI document tells of.
func (w *world) ask(h http.Handler, who, method, target string, body any, headers ...string) answer {
	w.t.Helper()
	got := w.serve(h, who, method, target, body, headers...)
	path, _, _ := strings.Cut(target, "?")
	if own, ok := h.(*admin.Handler); ok && w.documents != nil && strings.HasPrefix(path, "/api/") {
		documentOf(w, own).check(w.t, method, path, got)
	}
	return got
}

func (w *world) serve(h http.Handler, who, method, target string, body any, headers ...string) answer {
	w.t.Helper()
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	default:
		doc, err := json.Marshal(b)
		require.NoError(w.t, err)
		reader = strings.NewReader(string(doc))
	}
	r := httptest.NewRequestWithContext(w.t.Context(), method, target, reader)
	if who != "" {
		r.Header.Set("Who", who)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return answer{t: w.t, Status: rec.Code, Header: rec.Header(), Body: rec.Body.String()}
}

// object is the body as a JSON object.
func (a answer) object() map[string]any {
	a.t.Helper()
	var doc map[string]any
	require.NoError(a.t, json.Unmarshal([]byte(a.Body), &doc), "%s", a.Body)
	return doc
}

// code is the problem's code.
func (a answer) code() string {
	a.t.Helper()
	require.Equal(a.t, "application/problem+json", a.Header.Get("Content-Type"), "%s", a.Body)
	code, _ := a.object()["code"].(string)
	return code
}

func unknown() string { return uuid.Must(uuid.NewV7()).String() }
