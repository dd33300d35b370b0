package admin_test

import (
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/admin"
)

// post posts a form.
func (w *world) post(h http.Handler, who, target string, form url.Values) answer {
	w.t.Helper()
	return w.ask(h, who, "POST", target, form.Encode(), "Content-Type", "application/x-www-form-urlencoded")
}

// told enqueues an event and fans it out.
func (w *world) event(tenant, payload string) string {
	w.t.Helper()
	tx := w.store.Begin()
	res, err := w.hooks.Enqueue(w.t.Context(), tx, webhook.Event{Tenant: tenant, Type: "order.created", Payload: []byte(payload)})
	require.NoError(w.t, err)
	require.NoError(w.t, tx.Commit())
	return res.EventID.String()
}

func TestACreatedEndpointShowsItsSecretOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := w.post(w.portal, "acme", "/endpoints/new", url.Values{
		"url": {"https://hooks.acme.example/in"}, "type": {"order.created"}, "types": {"invoice.*, user.created"},
		"headers": {"X-Api-Key: hunter2"}, "timeout_seconds": {"5"}, "newest_first": {"yes"},
	})
	require.Equal(t, http.StatusCreated, got.Status, "%s", got.Body)
	secret := regexp.MustCompile(`whsec_[A-Za-z0-9+/=&#;]{20,}`).FindString(got.Body)
	require.NotEmpty(t, secret)
	list, err := w.hooks.Endpoints().List(t.Context(), webhook.ListEndpointsParams{Scope: webhook.TenantScope("acme")})
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.ElementsMatch(t, []string{"order.created", "invoice.*", "user.created"}, list[0].Types)
	assert.True(t, list[0].NewestFirst)
	for _, page := range []string{"/", "/endpoints", "/endpoints/" + list[0].ID.String(), "/endpoints/" + list[0].ID.String() + "/secret", "/endpoints/" + list[0].ID.String() + "/edit"} {
		got := w.ask(w.portal, "acme", "GET", page, nil)
		require.Equal(t, http.StatusOK, got.Status, "%s: %s", page, got.Body)
		assert.NotContains(t, got.Body, secret, "%s", page)
		assert.NotContains(t, got.Body, "hunter2", "%s", page)
	}
	records := w.records()
	require.Len(t, records, 1)
	assert.Equal(t, admin.ActionEndpointCreate, records[0].Action)
}

func TestAFormSaysWhatIsWrongBesideTheField(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct {
		name, field string
		form        url.Values
	}{
		{"a URL that is refused", "url", url.Values{"url": {"http://127.0.0.1/"}, "types": {"*"}}},
		{"no URL", "url", url.Values{"types": {"*"}}},
		{"no types", "types", url.Values{"url": {"https://a.example/"}}},
		{"a bad type", "types", url.Values{"url": {"https://a.example/"}, "types": {"* a..b"}}},
		{"a number that is none", "rate_limit", url.Values{"url": {"https://a.example/"}, "types": {"*"}, "rate_limit": {"many"}}},
		{"a timeout that is too long", "timeout_seconds", url.Values{"url": {"https://a.example/"}, "types": {"*"}, "timeout_seconds": {"31"}}},
		{"a timeout that makes no sense", "timeout_seconds", url.Values{"url": {"https://a.example/"}, "types": {"*"}, "timeout_seconds": {"NaN"}}},
		{"a filter that is no JSON", "filter", url.Values{"url": {"https://a.example/"}, "types": {"*"}, "filter": {"{"}}},
		{"a filter that is none", "filter", url.Values{"url": {"https://a.example/"}, "types": {"*"}, "filter": {`{"a":{"$what":1}}`}}},
		{"headers that are none", "headers", url.Values{"url": {"https://a.example/"}, "types": {"*"}, "headers": {"hunter2"}}},
		{"a header that is ours", "headers", url.Values{"url": {"https://a.example/"}, "types": {"*"}, "headers": {"Webhook-Id: 1"}}},
		{"a secret that is none", "secret", url.Values{"url": {"https://a.example/"}, "types": {"*"}, "secret": {"hunter2"}}},
	} {
		got := w.post(w.portal, "acme", "/endpoints/new", c.form)
		assert.Equal(t, http.StatusUnprocessableEntity, got.Status, c.name)
		assert.Contains(t, got.Body, `id="`+c.field+`-error"`, "%s: %s", c.name, got.Body)
		assert.Contains(t, got.Body, `aria-invalid="true"`, c.name)
		if c.field == "secret" {
			assert.NotContains(t, got.Body, "hunter2", "a secret is not sent back")
		}
	}
	assert.Empty(t, w.records())
}

func TestAnOperatorsFormKeepsTheQueryThatItDoesNotShow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.endpoint("acme")
	page := w.ask(w.ops, "ops", "GET", "/endpoints/"+e.ID.String()+"/edit", nil)
	require.Equal(t, http.StatusOK, page.Status)
	assert.NotContains(t, page.Body, "t0ken")
	revision := regexp.MustCompile(`name="revision" value="(\d+)"`).FindStringSubmatch(page.Body)
	require.Len(t, revision, 2)
	got := w.post(w.ops, "ops", "/endpoints/"+e.ID.String()+"/edit", url.Values{"url": {""}, "types": {"order.*"}, "revision": {revision[1]}})
	require.Equal(t, http.StatusSeeOther, got.Status, "%s", got.Body)
	after, err := w.hooks.Endpoints().Get(t.Context(), webhook.AllTenants(), e.ID)
	require.NoError(t, err)
	assert.Equal(t, e.URL, after.URL)
	assert.Equal(t, []string{"order.*"}, after.Types)
	assert.Len(t, after.Headers, 1, "the headers stay")

	// The revision of the form is old now.
	got = w.post(w.ops, "ops", "/endpoints/"+e.ID.String()+"/edit", url.Values{"types": {"*"}, "revision": {revision[1]}})
	assert.Equal(t, http.StatusConflict, got.Status)
	assert.Contains(t, got.Body, "Somebody else has changed this endpoint in the meantime.")
}

// Success and latency over time are charts, and tables for those who see no charts.
func TestAnEndpointsPageChartsSuccessAndLatency(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.populate("acme")
	for _, window := range []string{"hour", "day"} {
		page := w.ask(w.portal, "acme", "GET", "/endpoints/"+acme.endpoint.String()+"?range="+window, nil)
		require.Equal(t, http.StatusOK, page.Status)
		assert.Contains(t, page.Body, `aria-label="Attempts over time: 0 succeeded, 1 failed, 0 throttled"`)
		assert.Contains(t, page.Body, `aria-label="Latency over time: slowest at `)
		assert.Contains(t, page.Body, `class="fill-accent"`)
		for _, head := range []string{"Median", "95 of 100 in", "99 of 100 in"} {
			assert.Contains(t, page.Body, `<th scope="col">`+head+`</th>`)
		}
	}
	quiet, err := w.hooks.Endpoints().Create(t.Context(), webhook.EndpointParams{Tenant: "acme", URL: "https://quiet.example/", Types: []string{"*"}})
	require.NoError(t, err)
	page := w.ask(w.portal, "acme", "GET", "/endpoints/"+quiet.ID.String(), nil)
	assert.Equal(t, http.StatusOK, page.Status)
	assert.NotContains(t, page.Body, "Latency over time")
}

func TestReadersSeeNoFormsAndCannotPostThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.endpoint("acme")
	one := "/endpoints/" + e.ID.String()
	for _, page := range []string{"/", "/endpoints", one, one + "/secret", "/deliveries", "/replays", "/verify"} {
		got := w.ask(w.portal, "reader", "GET", page, nil)
		require.Equal(t, http.StatusOK, got.Status, page)
		assert.NotContains(t, got.Body, `method="post"`, page)
	}
	for _, page := range []string{"/endpoints/new", one + "/edit", one + "/delete", one + "/replay"} {
		assert.Equal(t, http.StatusForbidden, w.ask(w.portal, "reader", "GET", page, nil).Status, page)
	}
	for _, target := range []string{"/endpoints/new", one + "/edit", one + "/delete", one + "/pause", one + "/secret", one + "/replay"} {
		assert.Equal(t, http.StatusForbidden, w.post(w.portal, "reader", target, nil).Status, target)
	}
	assert.Empty(t, w.records())
}

func TestPagesOfOthersAreThoseOfWhatDoesNotExist(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.endpoint("globex")
	event := w.event("globex", `{}`)
	foreign := map[string]string{"endpoint_id": e.ID.String(), "event_id": event, "delivery_id": unknown(), "replay_id": unknown()}
	for _, route := range w.portal.PageRoutes() {
		method, pattern, _ := strings.Cut(route, " ")
		if !strings.Contains(pattern, "_id}") {
			continue
		}
		theirs, nobodys := pattern, pattern
		for name, id := range foreign {
			theirs = strings.ReplaceAll(theirs, "{"+name+"}", id)
			nobodys = strings.ReplaceAll(nobodys, "{"+name+"}", unknown())
		}
		form := url.Values{"url": {"https://a.example/"}, "types": {"*"}, "revision": {"1"}, "endpoint": {e.ID.String()}, "overlap": {"0"}, "type": {"order.created"}}.Encode()
		kind := []string{"Content-Type", "application/x-www-form-urlencoded"}
		a := w.ask(w.portal, "acme", method, theirs, form, kind...)
		b := w.ask(w.portal, "acme", method, nobodys, form, kind...)
		assert.Equal(t, http.StatusNotFound, a.Status, route)
		assert.Equal(t, b.Status, a.Status, route)
		assert.Equal(t, b.Body, a.Body, route)
	}
	found := w.ask(w.portal, "acme", "GET", "/find?q="+e.ID.String(), nil)
	assert.Equal(t, http.StatusNotFound, found.Status)
	assert.Empty(t, w.records())
	after, err := w.hooks.Endpoints().Get(t.Context(), webhook.AllTenants(), e.ID)
	require.NoError(t, err)
	assert.Equal(t, e.Revision, after.Revision)
}

func TestFindLeadsToWhatHasTheId(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.endpoint("acme")
	event := w.event("acme", `{}`)
	for id, want := range map[string]string{e.ID.String(): "./endpoints/" + e.ID.String(), event: "./events/" + event, " " + event + " ": "./events/" + event} {
		got := w.ask(w.portal, "acme", "GET", "/find?q="+url.QueryEscape(id), nil)
		assert.Equal(t, http.StatusSeeOther, got.Status)
		assert.Equal(t, want, got.Header.Get("Location"))
	}
	for _, q := range []string{"", "nonsense", "%3Cscript%3E", "%ff"} {
		got := w.ask(w.portal, "acme", "GET", "/find?q="+q, nil)
		assert.Equal(t, http.StatusOK, got.Status)
		assert.NotContains(t, got.Body, "<script>")
	}
}

func TestFiltersOfPagesAreRefusedOrEmptyAndNeverIgnored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.endpoint("acme")
	for target, status := range map[string]int{
		"/deliveries?state=&event=":     200,
		"/deliveries?state=dead":        200,
		"/deliveries?state=nonsense":    400,
		"/deliveries?cursor=nonsense":   400,
		"/deliveries?event=half":        200,
		"/deliveries?tenant=globex":     400,
		"/deliveries?what=ever":         400,
		"/events?unmatched=yes&type=":   200,
		"/events?unmatched=nonsense":    400,
		"/events?type=no+type":          200,
		"/events?tenant=globex":         400,
		"/events?cursor=nonsense":       422,
		"/endpoints?health=failing":     200,
		"/endpoints?health=nonsense":    400,
		"/replays?cursor=nonsense":      400,
		"/deliveries?state=a&state=b":   400,
		"/deliveries?done=%3Cscript%3E": 200,
	} {
		got := w.ask(w.portal, "acme", "GET", target, nil)
		assert.Equal(t, status, got.Status, "%s: %s", target, got.Body)
		assert.NotContains(t, got.Body, "<script>")
	}
	assert.Contains(t, w.ask(w.portal, "acme", "GET", "/deliveries?event=half", nil).Body, "Not an id yet")
	assert.Equal(t, http.StatusOK, w.ask(w.ops, "ops", "GET", "/deliveries?tenant=globex", nil).Status)
}

func TestAnEventThatNobodyWantedCanBeFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	event := w.event("acme", `{}`)
	got := w.ask(w.portal, "acme", "GET", "/events?type=order.created&within=1h", nil)
	require.Equal(t, http.StatusOK, got.Status)
	assert.Contains(t, got.Body, event)
	assert.NotContains(t, w.ask(w.portal, "globex", "GET", "/events", nil).Body, event)
	assert.Contains(t, w.ask(w.ops, "ops", "GET", "/events?tenant=acme", nil).Body, event)
	assert.NotContains(t, w.ask(w.ops, "ops", "GET", "/events?tenant=globex", nil).Body, event)
}

func TestPagesHoldNoInlineScriptsOrStyles(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir("templates")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		source, err := os.ReadFile("templates/" + file.Name())
		require.NoError(t, err)
		assert.NotRegexp(t, `(?i)\sstyle=|\son[a-z]+=|<style|javascript:`, string(source), file.Name())
		for _, script := range regexp.MustCompile(`<script[^>]*>[^<]*</script>`).FindAllString(string(source), -1) {
			assert.Equal(t, `<script src="{{.Base}}static/admin.js" defer></script>`, script, file.Name())
		}
	}
}

func TestSnippetsAreThoseOfTheReceiversGuide(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../docs/receivers.md")
	require.NoError(t, err)
	files, err := os.ReadDir("snippets")
	require.NoError(t, err)
	require.Len(t, files, 6)
	for _, file := range files {
		code, err := os.ReadFile("snippets/" + file.Name())
		require.NoError(t, err)
		name := strings.TrimSuffix(file.Name(), ".txt")
		assert.Regexp(t, `<!-- snippet: `+name+` -->\n`+"```"+`\w+\n`+regexp.QuoteMeta(string(code))+"```", string(guide), "%s", name)
	}
}
