package admin_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/admin"
)

func TestAHandlerMountsUnderAnyPrefix(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.endpoint("acme")

	mux := func(pattern string, h http.Handler) http.Handler {
		m := http.NewServeMux()
		m.Handle(pattern, h)
		return m
	}
	withPrefix := newWorld(t, options{ops: func(_ *world, c *admin.Config) { c.Prefix = "/admin/webhooks/" }})
	other := withPrefix.endpoint("acme")
	// A router that knows nothing of the prefix and leaves it on.
	plain := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { withPrefix.ops.ServeHTTP(rw, r) })

	for _, c := range []struct {
		name    string
		handler http.Handler
		prefix  string
		id      string
	}{
		{"root", w.ops, "", e.ID.String()},
		{"root of a mux", mux("/", w.ops), "", e.ID.String()},
		{"subtree of a mux", mux("/admin/webhooks/", w.ops), "/admin/webhooks", e.ID.String()},
		{"subtree with a method and host", mux("GET example.com/hooks/", w.ops), "/hooks", e.ID.String()},
		{"subtree below a wildcard", mux("/t/{team}/hooks/", w.ops), "/t/blue/hooks", e.ID.String()},
		{"rest wildcard", mux("/hooks/{rest...}", w.ops), "/hooks", e.ID.String()},
		{"StripPrefix", mux("/admin/webhooks/", http.StripPrefix("/admin/webhooks", w.ops)), "/admin/webhooks", e.ID.String()},
		{"StripPrefix at a name of ours", mux("/api/", http.StripPrefix("/api", w.ops)), "/api", e.ID.String()},
		{"a name of ours", mux("/api/", w.ops), "/api", e.ID.String()},
		{"nested muxes", mux("/admin/", http.StripPrefix("/admin", mux("/hooks/", w.ops))), "/admin/hooks", e.ID.String()},
		{"configured prefix", plain, "/admin/webhooks", other.ID.String()},
		{"configured prefix, stripped", http.StripPrefix("/admin/webhooks", plain), "/admin/webhooks", other.ID.String()},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := &world{t: t}
			got := w.ask(c.handler, "ops", "GET", c.prefix+"/api/endpoints/"+c.id, nil)
			assert.Equal(t, http.StatusOK, got.Status, "%s", got.Body)

			page := w.ask(c.handler, "ops", "GET", c.prefix+"/", nil)
			assert.Equal(t, http.StatusOK, page.Status, "%s", page.Body)
			assert.Contains(t, page.Body, `href="./static/admin.css"`)

			asset := w.ask(c.handler, "ops", "GET", c.prefix+"/static/admin.css", nil)
			assert.Equal(t, http.StatusOK, asset.Status)
			assert.Equal(t, "text/css; charset=utf-8", asset.Header.Get("Content-Type"))

			nothing := w.ask(c.handler, "ops", "GET", c.prefix+"/no/such/page", nil)
			assert.Equal(t, http.StatusNotFound, nothing.Status)
			assert.Contains(t, nothing.Body, `href="../../static/admin.css"`)
		})
	}
}

func TestTheMountPointItselfLeadsToTheOverview(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := w.ask(http.StripPrefix("/admin/web hooks", w.ops), "ops", "GET", "/admin/web%20hooks?a=b", nil)
	assert.Equal(t, http.StatusPermanentRedirect, got.Status)
	assert.Equal(t, "./web%20hooks/?a=b", got.Header.Get("Location"))
}

func TestAPageLeadsOnAfterAForm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.endpoint("acme")
	_, err := w.hooks.Endpoints().Pause(t.Context(), webhook.AllTenants(), e.ID, "")
	require.NoError(t, err)

	page := w.ask(w.portal, "acme", "GET", "/endpoints/"+e.ID.String(), nil)
	assert.Contains(t, page.Body, `action="../endpoints/`+e.ID.String()+`/resume"`)
	got := w.ask(w.portal, "acme", "POST", "/endpoints/"+e.ID.String()+"/resume", nil)
	assert.Equal(t, http.StatusSeeOther, got.Status)
	assert.Equal(t, "../../endpoints/"+e.ID.String()+"?done=resumed", got.Header.Get("Location"))
	e, err = w.hooks.Endpoints().Get(t.Context(), webhook.AllTenants(), e.ID)
	require.NoError(t, err)
	assert.Equal(t, webhook.EndpointActive, e.State)
	require.Len(t, w.records(), 1)
}
