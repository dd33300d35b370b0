package admin_test

import (
	"net/http"
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
