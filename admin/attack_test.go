package admin_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/admin"
)

// changingPages are the pages' routes that change something, with the ids of somebody.
func changingPages(h *admin.Handler, i ids) [][2]string {
	var list [][2]string
	for _, route := range h.PageRoutes() {
		method, pattern, _ := strings.Cut(route, " ")
		if method != http.MethodPost {
			continue
		}
		for _, name := range []string{"endpoint_id", "event_id", "delivery_id", "replay_id"} {
			pattern = strings.ReplaceAll(pattern, "{"+name+"}", i.of(name))
		}
		list = append(list, [2]string{method, pattern})
	}
	return list
}

// P10 and P11 of the forms: another site cannot send them, a reader cannot, and no other
// method does what they do.
func TestP10FormsOfOtherSitesAndOddMethodsChangeNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withEvents)
	own := w.populate("acme")
	before := w.everythingOf("acme")
	w.records()
	form := []string{"Content-Type", "application/x-www-form-urlencoded"}
	pages := changingPages(w.portal, own)
	require.Greater(t, len(pages), 10)
	for _, page := range pages {
		for _, from := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"}} {
			got := w.ask(w.portal, "acme", page[0], page[1], "url=https%3A%2F%2Fevil.example", append(from, form...)...)
			assert.Equal(t, http.StatusForbidden, got.Status, "%s of %s", page[1], from)
			requireSecurityHeaders(t, got)
		}
		assert.Equal(t, http.StatusForbidden, w.ask(w.portal, "reader", page[0], page[1], "", form...).Status, "a reader's %s", page[1])
		assert.Equal(t, http.StatusForbidden, w.ask(w.ops, "auditor", page[0], page[1], "", form...).Status, "an auditor's %s", page[1])
		for _, method := range []string{"HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "post", "PROPFIND"} {
			got := w.ask(w.portal, "acme", method, page[1], "", append([]string{"X-HTTP-Method-Override", "POST", "X-Method-Override", "POST"}, form...)...)
			assert.NotContains(t, []int{http.StatusSeeOther, http.StatusInternalServerError}, got.Status, "%s %s", method, page[1])
			requireSecurityHeaders(t, got)
		}
	}
	assert.Equal(t, before, w.everythingOf("acme"))
	assert.Empty(t, w.records())
}

// No path is understood in two ways: what is not written as the handler writes it leads
// nowhere, and never out of it.
func TestPathsThatAreWrittenOddlyLeadNowhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own, foreign := w.populate("acme"), w.populate("globex")
	mux := http.NewServeMux()
	mux.Handle("/settings/webhooks/", w.portal)
	id := own.endpoint.String()
	for _, path := range []string{
		"//evil.example/", "/endpoints//" + id, "/endpoints/./" + id, "/endpoints/x/../" + id, "/api/./endpoints", "/api//endpoints",
		"/%2e%2e/%2e%2e/admin", "/endpoints/%2e%2e/" + id, "/%2F%2Fevil.example", "/static/../templates/layout.html", "/static/%2e%2e/handler.go",
		"/static/..%2ftemplates/layout.html", "/api/endpoints/{" + id + "}", "/api/endpoints/urn:uuid:" + id, "/api/endpoints/" + strings.ReplaceAll(id, "-", ""),
		"/api/endpoints/" + id + "%00", "/api/endpoints/" + id + "%20", "/api/endpoints/%EF%BC%91" + id[1:], "/api/endpoints/" + id + "/", "/api/endpoints/" + id + ";x=1",
		"/endpoints/" + id + "\\", "/api/endpoints/" + id + "%2Fhealth%2F..", "/API/endpoints", "/api/Endpoints",
	} {
		for name, h := range map[string]http.Handler{"alone": w.portal, "below a prefix": mux} {
			target := path
			if name != "alone" {
				target = "/settings/webhooks" + path
			}
			got := w.serve(h, "acme", "GET", target, nil)
			// The mux cleans paths by itself, to itself.
			if at := got.Header.Get("Location"); name != "alone" && got.Status >= 300 && got.Status < 400 {
				to, err := url.Parse(at)
				require.NoError(t, err)
				assert.Empty(t, to.Host, "%s %s leads to %s", name, path, at)
				assert.True(t, strings.HasPrefix(at, "/") && !strings.HasPrefix(at, "//"), "%s %s leads to %s", name, path, at)
				continue
			}
			assert.Equal(t, http.StatusNotFound, got.Status, "%s %s", name, path)
			assert.Empty(t, got.Header.Get("Location"), "%s %s", name, path)
		}
	}
	// A foreign id in an odd form is as unknown as one in the usual form.
	want := w.ask(w.portal, "acme", "GET", "/api/endpoints/"+unknown(), nil)
	for _, odd := range []string{strings.ToUpper(foreign.endpoint.String()), foreign.endpoint.String() + "%0d%0aX-Evil:%201"} {
		got := w.serve(w.portal, "acme", "GET", "/api/endpoints/"+odd, nil)
		assert.Equal(t, want.Body, got.Body, odd)
		assert.Equal(t, want.Header, got.Header, odd)
	}
}

// What follows a form, or a search, is the handler's own choice of address.
func TestNoAnswerLeadsToAnotherHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, q := range []string{"//evil.example", "https://evil.example", `\\evil.example`, "%0d%0aLocation:%20https://evil.example", "javascript:alert(1)", "../../x"} {
		for _, path := range []string{"/find?q=", "/?done=", "/endpoints?done=", "/verify?next="} {
			got := w.serve(w.portal, "acme", "GET", path+url.QueryEscape(q), nil)
			assert.NotContains(t, got.Header.Get("Location"), "evil", path)
			assert.NotContains(t, got.Body, `href="`+q, path)
			requireSecurityHeaders(t, got)
		}
	}
}

// JSON can be deep, long, double and full of characters that cannot be seen.
func TestP12NoBodyIsAFault(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withEvents)
	own := w.populate("acme")
	deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
	objects := strings.Repeat(`{"$not":`, 20_000) + "{}" + strings.Repeat("}", 20_000)
	many := `["` + strings.Repeat(`a","`, 20_000) + `b"]`
	for what, body := range map[string]string{
		"a deep filter":         `{"url":"https://a.example/","types":["*"],"filter":` + deep + `}`,
		"a deep condition":      `{"url":"https://a.example/","types":["*"],"filter":` + objects + `}`,
		"many types":            `{"url":"https://a.example/","types":` + many + `}`,
		"a deep value":          deep,
		"a number too large":    `{"url":"https://a.example/","types":["*"],"timeout_seconds":1e999}`,
		"a negative number":     `{"url":"https://a.example/","types":["*"],"timeout_seconds":-1e300}`,
		"headers that inject":   `{"url":"https://a.example/","types":["*"],"headers":{"X-A":"b\r\nX-B: c"}}`,
		"a header's odd name":   `{"url":"https://a.example/","types":["*"],"headers":{"X A\u0000":"b"}}`,
		"a URL that injects":    `{"url":"https://a.example/\r\nX: y","types":["*"]}`,
		"an odd type":           `{"url":"https://a.example/","types":["a\u202eb"]}`,
		"another tenant, twice": `{"tenant":"acme","Tenant":"globex","url":"https://a.example/","types":["*"]}`,
		"a lone surrogate":      `{"url":"https://a.example/\ud800","types":["*"],"description":"\ud800","tenant":"\u0000"}`,
		"a mark of order":       "\ufeff{}",
		"nothing":               "",
		"null":                  `{"url":null,"types":null,"filter":null,"headers":null,"tls":null,"retry":null}`,
	} {
		for _, target := range []string{"/api/endpoints", "/api/endpoints/" + own.endpoint.String()} {
			method := http.MethodPost
			if target != "/api/endpoints" {
				method = http.MethodPatch
			}
			got := w.ask(w.portal, "acme", method, target, body)
			if what == "null" && method == http.MethodPatch {
				continue // takes every setting back to its default, but for the two that have none
			}
			assert.GreaterOrEqual(t, got.Status, 400, "%s: %s", what, method)
			assert.Less(t, got.Status, 500, "%s: %s: %s", what, method, got.Body)
			assert.Less(t, len(got.Body), 2000, "%s: a refusal does not repeat what was sent", what)
		}
	}
	got := w.ask(w.portal, "acme", "POST", "/api/events", `{"type":"a.b","payload":`+deep+`}`)
	assert.Equal(t, http.StatusBadRequest, got.Status)
	for _, tag := range []string{`W/"1"`, `"`, strings.Repeat(`"1",`, 10_000), "\x7f", `"99999999999999999999"`, `"-1"`} {
		got := w.ask(w.portal, "acme", "PATCH", "/api/endpoints/"+own.endpoint.String(), map[string]any{"description": "x"}, "If-Match", tag)
		assert.Contains(t, []int{http.StatusOK, http.StatusPreconditionFailed}, got.Status, "If-Match: %.20q", tag)
	}
	for _, key := range []string{strings.Repeat("k", 5000), "\x00", "\xff"} {
		got := w.ask(w.portal, "acme", "POST", "/api/endpoints", map[string]any{"url": "https://a.example/", "types": []string{"*"}}, "Idempotency-Key", key)
		assert.Contains(t, []int{http.StatusBadRequest, http.StatusUnprocessableEntity}, got.Status, "Idempotency-Key: %.20q: %s", key, got.Body)
	}
}

// Forms take no more than bodies, and ids of others in their fields are unknown ones.
func TestP07FormsKnowNothingOfOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own, foreign := w.populate("acme"), w.populate("globex")
	before := w.everythingOf("globex")
	post := func(path string, form url.Values) answer {
		return w.ask(w.portal, "acme", "POST", path, form.Encode(), "Content-Type", "application/x-www-form-urlencoded")
	}
	for _, page := range changingPages(w.portal, own) {
		tooLarge := post(page[1], url.Values{"url": {strings.Repeat("x", 300<<10)}, "reason": {strings.Repeat("x", 300<<10)}})
		assert.Less(t, tooLarge.Status, 500, page[1])
		fields := func(id uuid.UUID) url.Values {
			return url.Values{"endpoint": {id.String()}, "endpoint_id": {id.String()}, "tenant": {"globex"}, "revision": {"1"}}
		}
		if strings.Contains(page[1], "/events/") {
			got, want := post(page[1], fields(foreign.endpoint)), post(page[1], fields(uuid.Must(uuid.NewV7())))
			assert.Equal(t, want.Status, got.Status, page[1])
			assert.Equal(t, want.Body, got.Body, page[1])
			assert.Equal(t, http.StatusNotFound, got.Status, page[1])
		}
	}
	assert.Equal(t, before, w.everythingOf("globex"))
	for _, r := range w.records() {
		assert.Equal(t, "acme", r.Tenant)
	}
}
