package admin_test

import (
	"context"
	"encoding/base64"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/admin"
	"github.com/outhook/webhook/webhooktest"
)

// Names that begin with P and a number are rows of the security matrix.

func TestP09NoHandlerWithoutAnAuthorizer(t *testing.T) {
	t.Parallel()
	hooks, err := webhook.New(webhooktest.NewStore(), webhook.Config{Secrets: webhook.InsecurePlaintext()})
	require.NoError(t, err)
	defer hooks.Close()

	_, err = admin.New(hooks, admin.Config{})
	require.ErrorIs(t, err, webhook.ErrInvalid)
	assert.EqualError(t, err, "webhook: Config.Authorize is missing: without it the handler would be open to everybody")

	_, err = admin.NewPortal(hooks, admin.PortalConfig{})
	require.ErrorIs(t, err, webhook.ErrInvalid)
	assert.EqualError(t, err, "webhook: PortalConfig.Authorize is missing: without it the portal would be open to everybody")
}

func TestP10RequestsFromOtherSitesChangeNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, headers := range [][]string{
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"},
		{"Origin", "https://evil.example"},
		{"Origin", "null"},
	} {
		got := w.ask(w.portal, "acme", "POST", "/api/endpoints", map[string]any{"url": "https://a.example/", "types": []string{"*"}}, headers...)
		assert.Equal(t, http.StatusForbidden, got.Status)
		assert.Equal(t, "cross_origin", got.code())
	}
	assert.Empty(t, w.records())
}

func TestP13EveryAnswerCarriesTheSecurityHeaders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct {
		who, method, target string
		status              int
	}{
		{"ops", "GET", "/", 200},
		{"ops", "GET", "/static/admin.css", 200},
		{"ops", "GET", "/nothing", 404},
		{"ops", "GET", "/api/endpoints/" + unknown(), 404},
		{"ops", "POST", "/static/admin.css", 405},
		{"ops", "GET", "//", 404},
		{"acme", "GET", "/", 403},
		{"", "GET", "/", 401},
		{"", "GET", "/api/endpoints", 401},
	} {
		got := w.ask(w.ops, c.who, c.method, c.target, nil)
		assert.Equal(t, c.status, got.Status, "%s %s", c.method, c.target)
		requireSecurityHeaders(t, got)
	}
}

func requireSecurityHeaders(t *testing.T, got answer) {
	t.Helper()
	for name, value := range map[string]string{
		"Cache-Control":                "no-store",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Referrer-Policy":              "no-referrer",
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "DENY",
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
			"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
	} {
		require.Equal(t, value, got.Header.Get(name), name)
	}
}

func TestWhoMayFrameThePagesAndPostFromElsewhereIsTheHostsChoice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{portal: func(_ *world, c *admin.PortalConfig) {
		c.FrameAncestors = []string{"https://app.example", "https://other.example"}
		c.TrustedOrigins = []string{"https://app.example"}
	}})
	page := w.ask(w.portal, "acme", "GET", "/", nil)
	assert.Contains(t, page.Header.Get("Content-Security-Policy"), "frame-ancestors https://app.example https://other.example")
	assert.Empty(t, page.Header.Get("X-Frame-Options"))

	e := w.endpoint("acme")
	path := "/api/endpoints/" + e.ID.String() + "/resume"
	assert.Equal(t, http.StatusOK, w.ask(w.portal, "acme", "POST", path, nil, "Origin", "https://app.example").Status)
	assert.Equal(t, http.StatusForbidden, w.ask(w.portal, "acme", "POST", path, nil, "Origin", "https://other.example").Status)
}

func TestABrowserThatIsNotLoggedInIsSentToTheLogin(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{portal: func(_ *world, c *admin.PortalConfig) { c.LoginURL = "/login?next=webhooks" }})
	page := w.ask(w.portal, "", "GET", "/", nil)
	assert.Equal(t, http.StatusSeeOther, page.Status)
	assert.Equal(t, "/login?next=webhooks", page.Header.Get("Location"))
	assert.Equal(t, http.StatusUnauthorized, w.ask(w.portal, "", "GET", "/api/endpoints", nil).Status)
	assert.Equal(t, http.StatusForbidden, w.ask(w.portal, "broken", "GET", "/", nil).Status)
}

func TestAPanicOfTheHostsIsContained(t *testing.T) {
	t.Parallel()
	var logged strings.Builder
	w := newWorld(t, options{
		ops: func(_ *world, c *admin.Config) {
			c.Authorize = func(*http.Request) (admin.Operator, error) { panic("hunter2") }
			c.Logger = slog.New(slog.NewTextHandler(&logged, nil))
		},
		portal: func(_ *world, c *admin.PortalConfig) {
			c.Audit = func(context.Context, admin.AuditRecord) { panic("full") }
		},
	})
	for _, target := range []string{"/api/endpoints", "/"} {
		got := w.serve(w.ops, "ops", "GET", target, nil)
		assert.Equal(t, http.StatusInternalServerError, got.Status)
		requireSecurityHeaders(t, got)
		assert.NotContains(t, got.Body, "hunter2")
	}
	assert.Contains(t, logged.String(), "panicked")
	assert.NotContains(t, logged.String(), "hunter2")

	// What is done is done, whatever becomes of telling it.
	e := w.endpoint("acme")
	got := w.ask(w.portal, "acme", "POST", "/api/endpoints/"+e.ID.String()+"/pause", nil)
	assert.Equal(t, http.StatusOK, got.Status)
}

func TestConfigurationsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	hooks, err := webhook.New(webhooktest.NewStore(), webhook.Config{Secrets: webhook.InsecurePlaintext()})
	require.NoError(t, err)
	defer hooks.Close()
	for field, change := range map[string]func(*admin.Config){
		"Prefix":         func(c *admin.Config) { c.Prefix = "admin" },
		"LoginURL":       func(c *admin.Config) { c.LoginURL = "javascript:alert(1)" },
		"FrameAncestors": func(c *admin.Config) { c.FrameAncestors = []string{"https://a.example; script-src *"} },
		"TrustedOrigins": func(c *admin.Config) { c.TrustedOrigins = []string{"app.example/path"} },
		"EventTypes":     func(c *admin.Config) { c.EventTypes = []admin.EventType{{}} },
	} {
		cfg := admin.Config{Authorize: authorizeOperator}
		change(&cfg)
		_, err := admin.New(hooks, cfg)
		require.ErrorIs(t, err, webhook.ErrInvalid, field)
		assert.ErrorContains(t, err, "Config."+field)
	}
	_, err = admin.New(nil, admin.Config{Authorize: authorizeOperator})
	require.ErrorIs(t, err, webhook.ErrInvalid)
}

func TestInASingleTenantHostMembersHaveNoTenant(t *testing.T) {
	t.Parallel()
	hooks, err := webhook.New(webhooktest.NewStore(), webhook.Config{Secrets: webhook.InsecurePlaintext(), Transport: network{}, SingleTenant: true})
	require.NoError(t, err)
	defer hooks.Close()
	portal, err := admin.NewPortal(hooks, admin.PortalConfig{SingleTenant: true, Authorize: func(r *http.Request) (admin.Member, error) {
		return admin.Member{Name: "m", Tenant: r.Header.Get("Who")}, nil
	}})
	require.NoError(t, err)
	w := &world{t: t}
	got := w.ask(portal, "", "POST", "/api/endpoints", map[string]any{"url": "https://a.example/", "types": []string{"*"}})
	assert.Equal(t, http.StatusCreated, got.Status, got.Body)
	assert.Len(t, w.ask(portal, "", "GET", "/api/endpoints", nil).object()["items"], 1)
	assert.Equal(t, http.StatusForbidden, w.ask(portal, "acme", "GET", "/api/endpoints", nil).Status)
}

func TestA34TenantsDoNotLearnWhereTheGuardStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.hooks.Endpoints().Create(t.Context(), webhook.EndpointParams{
		Tenant: "acme", URL: "https://lost.acme.example/in", Types: []string{"*"}, Retry: webhook.EndpointRetry{Preset: webhook.RetryPresetNone},
	})
	require.NoError(t, err)
	res, err := w.enqueueInTx(t.Context(), webhook.Event{Tenant: "acme", Type: "a.b", Payload: []byte("1")})
	require.NoError(t, err)
	d := w.deliver("acme", res.EventID)
	for _, c := range []struct {
		h      http.Handler
		who    string
		detail bool
	}{{w.ops, "ops", true}, {w.portal, "acme", false}} {
		got := w.ask(c.h, c.who, "GET", "/api/deliveries/"+d.ID.String(), nil)
		attempts := got.object()["attempts"].([]any)
		require.Len(t, attempts, 1)
		attempt := attempts[0].(map[string]any)
		assert.NotEmpty(t, attempt["class"])
		assert.Equal(t, c.detail, strings.Contains(got.Body, "10.1.2.3"), "the detail is for operators: %s", got.Body)
	}
}

func TestR14HostileExcerptsAreValidJSONAndPayloadsAreExact(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own := w.populate("acme")
	got := w.ask(w.portal, "acme", "GET", "/api/deliveries/"+own.delivery.String(), nil)
	assert.NotContains(t, got.Body, "<script>")
	attempt := got.object()["attempts"].([]any)[0].(map[string]any)
	assert.Equal(t, "base64", attempt["excerpt_encoding"])
	excerpt, err := base64.StdEncoding.DecodeString(attempt["excerpt"].(string))
	require.NoError(t, err)
	assert.Equal(t, hostileExcerpt, string(excerpt))

	payload := w.ask(w.portal, "acme", "GET", "/api/events/"+own.event.String()+"/payload", nil)
	assert.Equal(t, secretPayload, payload.Body)
	assert.Equal(t, "application/octet-stream", payload.Header.Get("Content-Type"))
	assert.Equal(t, `attachment; filename="`+own.event.String()+`.json"`, payload.Header.Get("Content-Disposition"))
}

func TestOperatorsDoNotSeeCredentialsInURLs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.endpoint("acme")
	path := "/api/endpoints/" + e.ID.String()
	assert.Equal(t, "https://hooks.acme.example/in?token=…", w.ask(w.ops, "ops", "GET", path, nil).object()["url"])
	assert.Equal(t, "https://hooks.acme.example/in?token=t0ken", w.ask(w.portal, "acme", "GET", path, nil).object()["url"])
}
