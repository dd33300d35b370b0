package admin_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

// What a member of acme gets for an id of globex's must be, byte by byte, what it
// gets for one that nobody has; on every route, in every place an id may stand.
func TestP07ForeignIDsAreLikeUnknownOnesOnEveryRoute(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withEvents)
	own, foreign := w.populate("acme"), w.populate("globex")
	before := w.everythingOf("globex")
	w.records()

	tried := 0
	same := func(op apiOperation, place string, ask func(ids) answer) {
		t.Helper()
		tried++
		got, want := ask(foreign), ask(unknownIDs())
		assert.Equal(t, want.Status, got.Status, "%s, %s", op.id, place)
		assert.Equal(t, want.Body, got.Body, "%s, %s", op.id, place)
		assert.Equal(t, want.Header, got.Header, "%s, %s", op.id, place)
		if place != "query" {
			assert.Equal(t, http.StatusNotFound, got.Status, "%s, %s: %s", op.id, place, got.Body)
		}
	}
	for _, op := range documentOf(w, w.portal).operations {
		if len(op.pathParams()) > 0 {
			same(op, "path", func(i ids) answer {
				return w.ask(w.portal, "acme", op.method, op.at(i), w.bodyFor(op, own))
			})
			// What is not even an id.
			got := w.ask(w.portal, "acme", op.method, op.at(unknownIDs())+"x", nil)
			assert.Equal(t, http.StatusNotFound, got.Status, op.id)
		}
		if body, ok := w.bodyFor(op, own).(map[string]any); ok && body["endpoint_id"] != nil {
			same(op, "body", func(i ids) answer {
				return w.ask(w.portal, "acme", op.method, op.at(own), w.bodyFor(op, i))
			})
		}
		for _, name := range op.queryParams() {
			if unknownIDs().of(name) == "" {
				continue
			}
			same(op, "query", func(i ids) answer {
				return w.ask(w.portal, "acme", op.method, op.at(own)+"?"+name+"="+i.of(name), nil)
			})
		}
	}
	assert.Greater(t, tried, 20)
	assert.Equal(t, before, w.everythingOf("globex"), "nothing of globex's was touched")
	assert.Empty(t, w.records())
}

func TestP07CursorsOfAnotherTenantAreLikeGarbage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withEvents)
	for range 3 {
		w.populate("acme")
		w.populate("globex")
	}
	tried := 0
	for _, op := range documentOf(w, w.portal).operations {
		if op.method != "GET" || !slices.Contains(op.queryParams(), "cursor") {
			continue
		}
		tried++
		cursor := func(who string) string {
			page := w.ask(w.portal, who, "GET", op.path+"?limit=1", nil)
			require.Equal(t, http.StatusOK, page.Status, page.Body)
			next, _ := page.object()["next_cursor"].(string)
			require.NotEmpty(t, next, op.id)
			return next
		}
		own, foreign := cursor("acme"), cursor("globex")
		page := w.ask(w.portal, "acme", "GET", op.path+"?limit=1&cursor="+own, nil)
		assert.Equal(t, http.StatusOK, page.Status)

		got := w.ask(w.portal, "acme", "GET", op.path+"?cursor="+foreign, nil)
		want := w.ask(w.portal, "acme", "GET", op.path+"?cursor=garbage", nil)
		assert.Equal(t, http.StatusBadRequest, got.Status, op.id)
		assert.Equal(t, want.Body, got.Body)

		// Nor does a cursor fit another filter, or an operator's the portal.
		if slices.Contains(op.queryParams(), "endpoint_id") {
			got = w.ask(w.portal, "acme", "GET", op.path+"?endpoint_id="+unknown()+"&cursor="+own, nil)
			assert.Equal(t, want.Body, got.Body)
		}
		page = w.ask(w.ops, "ops", "GET", op.path+"?limit=1", nil)
		got = w.ask(w.portal, "acme", "GET", op.path+"?cursor="+page.object()["next_cursor"].(string), nil)
		assert.Equal(t, want.Body, got.Body)
	}
	assert.Greater(t, tried, 2)
}

func TestP08TheTenantComesFromThePrincipalAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withEvents)
	own, foreign := w.populate("acme"), w.populate("globex")
	w.records()

	// In the query: no operation of the portal's has it.
	for _, op := range documentOf(w, w.portal).operations {
		if op.mutates() {
			continue
		}
		got := w.ask(w.portal, "acme", op.method, op.at(own)+"?tenant=globex", w.bodyFor(op, own))
		assert.Equal(t, http.StatusBadRequest, got.Status, op.id)
	}
	// In headers and in the path: nobody looks.
	for _, op := range documentOf(w, w.portal).operations {
		if op.method != "GET" || len(op.pathParams()) > 0 {
			continue
		}
		got := w.ask(w.portal, "acme", "GET", op.path, nil, "Tenant", "globex", "X-Tenant", "globex", "Webhook-Tenant", "globex")
		assert.Equal(t, http.StatusOK, got.Status)
		assert.NotContains(t, got.Body, "globex", op.id)
		assert.NotContains(t, got.Body, foreign.endpoint.String(), op.id)
	}
	assert.Equal(t, http.StatusNotFound, w.ask(w.portal, "acme", "GET", "/globex/api/endpoints", nil).Status)
	assert.Equal(t, http.StatusNotFound, w.ask(w.portal, "acme", "GET", "/api/tenants/globex/endpoints", nil).Status)

	// In the body: refused.
	for path, body := range map[string]map[string]any{
		"/api/endpoints": {"url": "https://a.example/", "types": []string{"*"}, "tenant": "globex"},
		"/api/events":    {"type": "a.b", "payload": 1, "tenant": "globex"},
	} {
		got := w.ask(w.portal, "acme", "POST", path, body)
		assert.Equal(t, http.StatusUnprocessableEntity, got.Status)
		body["tenant"] = "acme"
		got = w.ask(w.portal, "acme", "POST", path, body)
		assert.Less(t, got.Status, 300, got.Body)
		delete(body, "tenant")
		got = w.ask(w.portal, "acme", "POST", path, body)
		assert.Less(t, got.Status, 300, got.Body)
	}
	for _, r := range w.records() {
		assert.Equal(t, "acme", r.Tenant)
		assert.Equal(t, "user of acme", r.Actor)
		assert.False(t, r.Operator)
	}
}

func TestAMemberWithoutATenantGetsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, who := range []string{"nobody", "broken"} {
		got := w.ask(w.portal, who, "GET", "/api/endpoints", nil)
		assert.Equal(t, http.StatusForbidden, got.Status)
		assert.Equal(t, "forbidden", got.code())
	}
}

func TestAnOperatorSeesAllTenantsOrOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.endpoint("acme")
	w.endpoint("globex")
	all := w.ask(w.ops, "ops", "GET", "/api/endpoints", nil)
	assert.Len(t, all.object()["items"], 2)
	one := w.ask(w.ops, "ops", "GET", "/api/endpoints?tenant=acme", nil)
	require.Len(t, one.object()["items"], 1)
	assert.Equal(t, "acme", one.object()["items"].([]any)[0].(map[string]any)["tenant"])
	none := w.ask(w.ops, "ops", "GET", "/api/endpoints?tenant="+url.QueryEscape("no such"), nil)
	assert.Empty(t, none.object()["items"])
}

// everythingOf is all that the library knows of a tenant, as text.
func (w *world) everythingOf(tenant string) string {
	w.t.Helper()
	scope := webhook.TenantScope(tenant)
	endpoints, err := w.hooks.Endpoints().List(w.t.Context(), webhook.ListEndpointsParams{Scope: scope})
	require.NoError(w.t, err)
	deliveries, err := w.hooks.Deliveries().List(w.t.Context(), webhook.DeliveryQuery{Scope: scope, Limit: 1000})
	require.NoError(w.t, err)
	replays, err := w.hooks.Replays().List(w.t.Context(), webhook.ListReplayJobsParams{Scope: scope})
	require.NoError(w.t, err)
	doc, err := json.Marshal([]any{endpoints, deliveries, replays, len(w.store.Enqueued())})
	require.NoError(w.t, err)
	return string(doc)
}
