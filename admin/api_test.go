package admin_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/admin"
	"github.com/outhook/webhook/store/payloadfs"
)

// successOf brings an operation about: it answers with the status of success, for a
// tenant that has just been given one of each thing.
func (w *world) successOf(h *admin.Handler, who, tenant string, op apiOperation) answer {
	w.t.Helper()
	own := w.populate(tenant)
	scope := webhook.TenantScope(tenant)
	switch op.id {
	case "enableEndpoint":
		_, err := w.hooks.Endpoints().Disable(w.t.Context(), scope, own.endpoint, "abuse")
		require.NoError(w.t, err)
	case "resumeEndpoint":
		_, err := w.hooks.Endpoints().Pause(w.t.Context(), scope, own.endpoint, "lunch")
		require.NoError(w.t, err)
	case "testEndpoint":
		stop := w.dispatch()
		defer stop()
		require.Eventually(w.t, func() bool {
			_, err := w.hooks.Endpoints().SendTest(w.t.Context(), scope, own.endpoint, "a.b")
			return !errors.Is(err, webhook.ErrNoDispatcher)
		}, 20*time.Second, 5*time.Millisecond)
	case "cancelDelivery":
		d, err := w.hooks.Deliveries().RetryNow(w.t.Context(), scope, own.delivery)
		require.NoError(w.t, err)
		own.delivery = d.ID
	}
	body := w.bodyFor(op, own)
	if b, ok := body.(map[string]any); ok && (op.id == "createEndpoint" || op.id == "enqueueEvent") {
		b["tenant"] = tenant
	}
	got := w.ask(h, who, op.method, op.at(own), body)
	require.Equal(w.t, op.success(), got.Status, "%s: %s", op.id, got.Body)
	return got
}

// outcome is what became of an operation that all was well with.
type outcome struct {
	op       apiOperation
	operator bool
	answer   answer
	told     []admin.AuditRecord
	again    answer // a later read of an endpoint whose secret was shown
}

var everyOperation struct {
	once     sync.Once
	outcomes []outcome
}

// outcomes brings every operation of both handlers about, once for all tests: each takes
// a dispatcher's run.
func outcomes(t *testing.T) []outcome {
	t.Helper()
	everyOperation.once.Do(func() {
		w := newWorld(t, withEvents)
		for _, c := range []struct {
			h   *admin.Handler
			who string
		}{{w.ops, "ops"}, {w.portal, "acme"}} {
			for _, op := range documentOf(w, c.h).operations {
				w.records()
				o := outcome{op: op, operator: c.who == "ops", answer: w.successOf(c.h, c.who, "acme", op)}
				o.told = w.records()
				if op.id == "createEndpoint" || op.id == "rotateSecret" {
					o.again = w.ask(c.h, c.who, "GET", "/api/endpoints/"+o.answer.object()["id"].(string), nil)
				}
				everyOperation.outcomes = append(everyOperation.outcomes, o)
			}
		}
	})
	require.NotEmpty(t, everyOperation.outcomes)
	return everyOperation.outcomes
}

// That an answer is one that the document tells of, world.ask sees to.
func TestEveryOperationAnswersAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	for _, o := range outcomes(t) {
		assert.Equal(t, o.op.success(), o.answer.Status, o.op.id)
	}
}

func TestP11NothingThatChangesDataIsAGet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withEvents)
	own := w.populate("acme")
	before := w.everythingOf("acme")
	methods := map[string][]string{}
	for _, op := range documentOf(w, w.ops).operations {
		methods[op.at(own)] = append(methods[op.at(own)], op.method)
	}
	for path, have := range methods {
		for _, method := range []string{"GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS", "TRACE"} {
			if slices.Contains(have, method) || method == "HEAD" && slices.Contains(have, "GET") {
				continue
			}
			got := w.ask(w.ops, "ops", method, path, nil)
			if path == "/api/replays/dry-run" && got.Status == http.StatusNotFound {
				continue // as the id of a replay it is an unknown one
			}
			assert.Equal(t, http.StatusMethodNotAllowed, got.Status, "%s %s", method, path)
			for _, allowed := range have {
				assert.Contains(t, got.Header.Get("Allow"), allowed)
			}
		}
	}
	assert.Equal(t, before, w.everythingOf("acme"))
	assert.Empty(t, w.records())
}

func TestP12LimitsAreRefusalsAndNeverFaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withEvents)
	for target, status := range map[string]int{
		"?limit=1000000":                       400,
		"?limit=101":                           400,
		"?limit=0":                             400,
		"?limit=-1":                            400,
		"?limit=ten":                           400,
		"?limit=99999999999999999999":          400,
		"?limit=100":                           200,
		"?limit=1&limit=2":                     400,
		"?cursor=garbage":                      400,
		"?cursor=" + strings.Repeat("A", 64):   400,
		"?cursor=" + strings.Repeat("A", 99):   400,
		"?cursor=%00":                          400,
		"?unknown=1":                           400,
		"?%zz":                                 400,
		"?endpoint_id=1":                       400,
		"?endpoint_id=%FF":                     400,
		"?state=sent":                          400,
		"?state=" + strings.Repeat("d", 5000):  400,
		"?" + strings.Repeat("n", 5000) + "=1": 400,
	} {
		got := w.ask(w.portal, "acme", "GET", "/api/deliveries"+target, nil)
		assert.Equal(t, status, got.Status, "%.80s: %s", target, got.Body)
		assert.Less(t, len(got.Body), 1000)
	}

	own := w.populate("acme")
	for _, op := range documentOf(w, w.portal).operations {
		if op.doc["requestBody"] == nil {
			continue
		}
		large := 300 << 10
		if op.id == "enqueueEvent" {
			large = 21 << 20
		}
		for what, c := range map[string]struct {
			body   any
			status int
		}{
			"too large":  {`{"description":"` + strings.Repeat("x", large) + `"}`, 413},
			"no JSON":    {`{"`, 400},
			"two values": {`{} {}`, 400},
			"an array":   {`[]`, 400},
			"unknown":    {`{"no_such_field":1}`, 422},
		} {
			got := w.ask(w.portal, "acme", op.method, op.at(own), c.body)
			assert.Equal(t, c.status, got.Status, "%s, %s: %s", op.id, what, got.Body)
		}
		got := w.ask(w.portal, "acme", op.method, op.at(own), `{}`, "Content-Type", "text/plain")
		assert.Equal(t, http.StatusUnsupportedMediaType, got.Status, op.id)
	}
}

func TestP13EveryOperationCarriesTheSecurityHeaders(t *testing.T) {
	t.Parallel()
	for _, o := range outcomes(t) {
		requireSecurityHeaders(t, o.answer)
	}
	w := newWorld(t, withEvents)
	for _, op := range documentOf(w, w.ops).operations {
		for _, who := range []string{"", "acme", "ops"} {
			requireSecurityHeaders(t, w.ask(w.ops, who, op.method, op.at(unknownIDs()), nil))
		}
	}
}

func TestP14SecretsAreShownOnceAndHeaderValuesNever(t *testing.T) {
	t.Parallel()
	for _, o := range outcomes(t) {
		assert.NotContains(t, o.answer.Body, "hunter2", o.op.id)
		switch o.op.id {
		case "createEndpoint", "rotateSecret":
			secret, _ := o.answer.object()["secret"].(string)
			_, err := webhook.ParseSecret(secret)
			require.NoError(t, err, o.op.id)
			assert.NotContains(t, o.again.Body, secret)
			assert.NotContains(t, o.again.object(), "secret")
		default:
			assert.NotRegexp(t, `wh[sp][a-z]+_[A-Za-z0-9+/=]{8}`, o.answer.Body, o.op.id)
		}
	}
}

func TestP15EveryMutationIsTold(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	changes := 0
	for _, o := range outcomes(t) {
		if !o.op.mutates() {
			assert.Empty(t, o.told, o.op.id)
			continue
		}
		changes++
		require.Len(t, o.told, 1, o.op.id)
		r := o.told[0]
		seen[fmt.Sprint(r.Operator, r.Action)] = true
		actor := "user of acme"
		if o.operator {
			actor = "olga"
		}
		assert.Equal(t, actor, r.Actor, o.op.id)
		assert.Equal(t, o.operator, r.Operator, o.op.id)
		assert.Equal(t, "acme", r.Tenant, o.op.id)
		assert.NotZero(t, r.Object, o.op.id)
		assert.NotZero(t, r.At, o.op.id)
		assert.Equal(t, "192.0.2.1", r.RemoteAddr, o.op.id)
		doc := fmt.Sprintf("%+v %s %s", r, r.Before, r.After)
		for _, secret := range []string{"hunter2", "t0ken", "/in", "whsec_A", "12345678901234567890"} {
			assert.NotContains(t, doc, secret, o.op.id)
		}
		assert.NotRegexp(t, `wh[sp][a-z]+_[A-Za-z0-9+/=]{8}`, doc, o.op.id)
	}
	assert.Len(t, seen, changes, "no action is done by two operations, nor one told as another's")
}

func TestWhoMayOnlyReadChangesNothing(t *testing.T) {
	t.Parallel()
	everybody := newWorld(t, withEvents, options{
		ops:    func(_ *world, c *admin.Config) { c.ReadOnly = true },
		portal: func(_ *world, c *admin.PortalConfig) { c.ReadOnly = true },
	})
	some := newWorld(t, withEvents)
	for _, c := range []struct {
		w   *world
		h   *admin.Handler
		who string
	}{{everybody, everybody.ops, "ops"}, {everybody, everybody.portal, "acme"}, {some, some.ops, "auditor"}, {some, some.portal, "reader"}} {
		own := c.w.populate("acme")
		before := c.w.everythingOf("acme")
		for _, op := range documentOf(c.w, c.h).operations {
			got := c.w.ask(c.h, c.who, op.method, op.at(own), c.w.bodyFor(op, own))
			if op.mutates() {
				assert.Equal(t, http.StatusForbidden, got.Status, op.id)
				assert.Equal(t, "read_only", got.code(), op.id)
			} else {
				assert.Equal(t, http.StatusOK, got.Status, op.id)
			}
		}
		assert.Equal(t, before, c.w.everythingOf("acme"))
		assert.Empty(t, c.w.records())
	}
}

func TestCreationIsIdempotent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withEvents)
	own := w.populate("acme")
	w.records()
	for path, body := range map[string]map[string]any{
		"/api/endpoints": {"url": "https://a.example/in", "types": []string{"*"}},
		"/api/replays":   {"endpoint_id": own.endpoint},
	} {
		first := w.ask(w.portal, "acme", "POST", path, body, "Idempotency-Key", "k1")
		require.Equal(t, http.StatusCreated, first.Status, first.Body)
		again := w.ask(w.portal, "acme", "POST", path, body, "Idempotency-Key", "k1")
		require.Equal(t, http.StatusOK, again.Status, again.Body)
		assert.Equal(t, "true", again.Header.Get("Idempotent-Replayed"))
		assert.Equal(t, first.object()["id"], again.object()["id"])
		assert.Equal(t, first.Header.Get("Location"), again.Header.Get("Location"))
		assert.NotContains(t, again.object(), "secret")
		assert.Len(t, w.records(), 1)

		other := w.ask(w.portal, "acme", "POST", path, body, "Idempotency-Key", "k2")
		assert.NotEqual(t, first.object()["id"], other.object()["id"])
		w.records()
		tooLong := w.ask(w.portal, "acme", "POST", path, body, "Idempotency-Key", strings.Repeat("k", 256))
		assert.Equal(t, http.StatusUnprocessableEntity, tooLong.Status)
	}
	event := map[string]any{"type": "a.b", "payload": 1}
	first := w.ask(w.portal, "acme", "POST", "/api/events", event, "Idempotency-Key", "e1")
	require.Equal(t, http.StatusAccepted, first.Status, first.Body)
	again := w.ask(w.portal, "acme", "POST", "/api/events", event, "Idempotency-Key", "e1")
	assert.Equal(t, first.object()["event_id"], again.object()["event_id"])
	assert.Equal(t, true, again.object()["duplicate"])
	assert.Len(t, w.records(), 1)
}

func TestAnUpdateDoesNotOverwriteSomebodyElses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.endpoint("acme")
	path := "/api/endpoints/" + e.ID.String()
	read := w.ask(w.portal, "acme", "GET", path, nil)
	tag := read.Header.Get("ETag")
	require.NotEmpty(t, tag)

	for _, form := range []string{"%s", "*", `"999", %s`} {
		match := strings.ReplaceAll(form, "%s", tag)
		got := w.ask(w.portal, "acme", "PATCH", path, map[string]any{"description": "x" + match}, "If-Match", match)
		require.Equal(t, http.StatusOK, got.Status, got.Body)
		require.NotEqual(t, tag, got.Header.Get("ETag"))
		tag = got.Header.Get("ETag")
	}
	for _, match := range []string{`"999"`, read.Header.Get("ETag"), "W/" + tag, "garbage"} {
		got := w.ask(w.portal, "acme", "PATCH", path, map[string]any{"description": "lost"}, "If-Match", match)
		assert.Equal(t, http.StatusPreconditionFailed, got.Status, match)
	}
	e, err := w.hooks.Endpoints().Get(t.Context(), webhook.AllTenants(), e.ID)
	require.NoError(t, err)
	assert.NotEqual(t, "lost", e.Description)
}

func TestAnUpdateChangesWhatItSaysAndNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	created := w.ask(w.portal, "acme", "POST", "/api/endpoints", map[string]any{
		"url": "https://a.example/in", "types": []string{"order.*"}, "description": "d", "filter": map[string]any{"a": map[string]any{"$gte": 1}},
		"headers": map[string]string{"X-Api-Key": "hunter2"}, "rate_limit": 2.5, "burst": 3, "shed_backlog": 500, "max_in_flight": 4, "timeout_seconds": 1.5,
		"newest_first": true, "adaptive_rate": true, "at_most_once": true, "envelope": true, "ordering": "per_resource",
		"retry": map[string]any{"delays_seconds": []float64{1.5, 60}, "jitter": 0.5, "window_seconds": 3600, "statuses": []string{"5xx"}},
	})
	require.Equal(t, http.StatusCreated, created.Status, created.Body)
	path := "/api/endpoints/" + created.object()["id"].(string)
	have := w.ask(w.portal, "acme", "GET", path, nil).object()
	assert.InDelta(t, 1.5, have["timeout_seconds"], 0)
	assert.Equal(t, []any{"X-Api-Key"}, have["header_names"])
	assert.Equal(t, map[string]any{"delays_seconds": []any{1.5, 60.0}, "jitter": 0.5, "window_seconds": 3600.0, "statuses": []any{"5xx"}}, have["retry"])

	got := w.ask(w.portal, "acme", "PATCH", path, map[string]any{"rate_limit": 5}).object()
	for name, value := range have {
		switch name {
		case "rate_limit":
			assert.InDelta(t, 5, got[name], 0)
		case "revision", "updated_at":
		default:
			assert.Equal(t, value, got[name], name)
		}
	}
	got = w.ask(w.portal, "acme", "PATCH", path, map[string]any{
		"description": nil, "filter": nil, "headers": nil, "rate_limit": nil, "burst": nil, "shed_backlog": nil, "max_in_flight": nil, "timeout_seconds": nil, "newest_first": nil, "adaptive_rate": nil, "retry": nil, "at_most_once": nil, "envelope": nil, "ordering": nil,
	}, "Content-Type", "application/merge-patch+json").object()
	assert.Empty(t, got["description"])
	assert.NotContains(t, got, "filter")
	assert.NotContains(t, got, "retry")
	assert.NotContains(t, got, "ordering")
	assert.Equal(t, false, got["at_most_once"])
	assert.Equal(t, false, got["envelope"])
	assert.Empty(t, got["header_names"])
	assert.InDelta(t, 0, got["rate_limit"], 0)
	assert.Equal(t, false, got["newest_first"])

	for field, value := range map[string]any{
		"url": "http://127.0.0.1/", "types": []string{}, "filter": map[string]any{"$bad": 1}, "headers": map[string]string{"Host": "x"},
		"rate_limit": -1, "burst": -1, "max_in_flight": 1e9, "timeout_seconds": 31, "ordering": "by_size", "tenant": "globex", "secret": "whsec_x",
	} {
		got := w.ask(w.portal, "acme", "PATCH", path, map[string]any{field: value})
		require.Equal(t, http.StatusUnprocessableEntity, got.Status, "%s: %s", field, got.Body)
		assert.Contains(t, got.object()["errors"].([]any)[0].(map[string]any)["field"], field)
	}
	for field, retry := range map[string]map[string]any{
		"retry.preset":            {"preset": "eager"},
		"retry.window_seconds":    {"delays_seconds": []int{1}, "window_seconds": 1e8},
		"retry.delays_seconds[1]": {"delays_seconds": []int{1, 1e8}},
		"retry.delays_seconds[0]": {"delays_seconds": []int{-1}},
		"retry.statuses[0]":       {"statuses": []string{"200"}},
		"never":                   {"never": 1},
	} {
		got := w.ask(w.portal, "acme", "PATCH", path, map[string]any{"retry": retry})
		require.Equal(t, http.StatusUnprocessableEntity, got.Status, "%s: %s", field, got.Body)
		assert.Equal(t, field, got.object()["errors"].([]any)[0].(map[string]any)["field"])
	}
	got2 := w.ask(w.portal, "acme", "PATCH", path, map[string]any{"burst": "many"})
	assert.Equal(t, http.StatusUnprocessableEntity, got2.Status)
	assert.Contains(t, got2.Body, `"burst"`)
}

func TestOperatorsSeeTheDispatchersAndTenantsDoNot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now().UTC()
	require.NoError(t, w.store.SaveActivity(t.Context(), []webhook.ActivityRecord{{
		Dispatcher: uuid.Must(uuid.NewV7()), At: now.Truncate(5 * time.Minute),
		Data: fmt.Appendf(nil, `{"seen_at":%q,"counts":[],"gauges":{"endpoints":7,"in_flight":3,"max_in_flight":512}}`, now.Format(time.RFC3339Nano)),
	}}))
	got := w.ask(w.ops, "ops", "GET", "/api/dispatchers", nil)
	require.Len(t, got.object()["items"], 1, got.Body)
	assert.InDelta(t, 7, got.object()["items"].([]any)[0].(map[string]any)["endpoints"], 0)
	assert.Equal(t, http.StatusNotFound, w.ask(w.portal, "acme", "GET", "/api/dispatchers", nil).Status)
}

func TestWhatCausesRequestsIsBoundedPerTenant(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{portal: func(_ *world, c *admin.PortalConfig) { c.ActionsPerMinute = 3 }})
	own, foreign := w.populate("acme"), w.populate("globex")
	estimate := func(who string, i ids) answer {
		return w.ask(w.portal, who, "POST", "/api/replays/dry-run", map[string]any{"endpoint_id": i.endpoint})
	}
	for range 3 {
		require.Equal(t, http.StatusOK, estimate("acme", own).Status)
	}
	got := estimate("acme", own)
	assert.Equal(t, http.StatusTooManyRequests, got.Status)
	assert.Equal(t, "too_many_requests", got.code())
	assert.NotEmpty(t, got.Header.Get("Retry-After"))
	assert.Equal(t, http.StatusOK, estimate("globex", foreign).Status, "others are not affected")
	assert.Equal(t, http.StatusOK, w.ask(w.portal, "acme", "GET", "/api/endpoints", nil).Status, "reads are not bounded")

	unbounded := newWorld(t, options{portal: func(_ *world, c *admin.PortalConfig) { c.ActionsPerMinute = -1 }})
	own = unbounded.populate("acme")
	for range 100 {
		got := unbounded.ask(unbounded.portal, "acme", "POST", "/api/replays/dry-run", map[string]any{"endpoint_id": own.endpoint})
		require.Equal(t, http.StatusOK, got.Status)
	}
}

func TestATestTellsWhatTheEndpointAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own := w.populate("acme")
	path := "/api/endpoints/" + own.endpoint.String() + "/test"
	got := w.ask(w.portal, "acme", "POST", path, map[string]any{"type": "invoice.paid"})
	assert.Equal(t, http.StatusServiceUnavailable, got.Status)
	assert.Equal(t, "no_dispatcher", got.code())
	got = w.ask(w.portal, "acme", "POST", path, map[string]any{"type": "not a type"})
	assert.Equal(t, http.StatusUnprocessableEntity, got.Status)
	assert.Contains(t, got.Body, `"field":"type"`)

	op, ok := documentOf(w, w.portal).find("POST", path)
	require.True(t, ok)
	got = w.successOf(w.portal, "acme", "acme", op)
	attempt := got.object()["attempt"].(map[string]any)
	assert.InDelta(t, 500, attempt["status"], 0)
	delivery := w.ask(w.portal, "acme", "GET", "/api/deliveries/"+got.object()["delivery_id"].(string), nil)
	assert.InDelta(t, -1, delivery.object()["run"], 0)
}

func TestListsTakeEveryFilter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own := w.populate("acme")
	for target, n := range map[string]int{
		"deliveries?event_type=invoice.paid":                                 1,
		"deliveries?event_type=a.b":                                          0,
		"deliveries?resource_id=in_9&state=dead&status=5xx":                  1,
		"deliveries?status=2xx":                                              0,
		"deliveries?from=2020-01-01T00:00:00Z":                               1,
		"deliveries?until=2020-01-01T00:00:00Z":                              0,
		"deliveries?endpoint_id=" + own.endpoint.String():                    1,
		"events?type=invoice.paid&resource_id=in_9":                          1,
		"events?unmatched=true":                                              0,
		"events?order=oldest_first":                                          0, // it is not a minute old
		"events?from=2020-01-01T00:00:00Z&until=2200-01-01T00:00:00%2B01:00": 1,
	} {
		got := w.ask(w.portal, "acme", "GET", "/api/"+target, nil)
		require.Equal(t, http.StatusOK, got.Status, "%s: %s", target, got.Body)
		assert.Len(t, got.object()["items"], n, target)
	}
	for _, target := range []string{"deliveries?from=yesterday", "deliveries?status=6xx", "events?order=random", "events?unmatched=yes"} {
		assert.Equal(t, http.StatusBadRequest, w.ask(w.portal, "acme", "GET", "/api/"+target, nil).Status, target)
	}
	d, err := w.hooks.Deliveries().RetryNow(t.Context(), webhook.AllTenants(), own.delivery)
	require.NoError(t, err)
	got := w.ask(w.portal, "acme", "GET", "/api/deliveries/"+d.ID.String(), nil)
	assert.Equal(t, "due", got.object()["wait_reason"])
}

// An operator's disabling holds against the tenant, who is told why.
func TestATenantDoesNotEnableWhatAnOperatorDisabled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.endpoint("acme")
	one := "/api/endpoints/" + e.ID.String()
	require.Equal(t, http.StatusOK, w.ask(w.ops, "ops", "POST", one+"/disable", map[string]any{"reason": "abuse"}).Status)
	w.records()

	seen := w.ask(w.portal, "acme", "GET", one, nil).object()
	assert.Equal(t, true, seen["disabled_by_operator"])
	assert.Equal(t, "abuse", seen["state_reason"])
	refused := w.ask(w.portal, "acme", "POST", one+"/enable", nil)
	assert.Equal(t, http.StatusForbidden, refused.Status)
	assert.Equal(t, "disabled_by_operator", refused.code())
	page := w.ask(w.portal, "acme", "GET", "/endpoints/"+e.ID.String(), nil)
	assert.Contains(t, page.Body, "Disabled by an operator since")
	assert.Contains(t, page.Body, ": abuse.")
	assert.NotContains(t, page.Body, "/enable")
	posted := w.ask(w.portal, "acme", "POST", "/endpoints/"+e.ID.String()+"/enable", nil)
	assert.Equal(t, http.StatusForbidden, posted.Status)
	assert.Contains(t, posted.Body, "only an operator can enable it again")
	assert.Empty(t, w.records(), "nothing was changed")
	foreign, unknown := w.ask(w.portal, "globex", "POST", one+"/enable", nil), w.ask(w.portal, "globex", "POST", "/api/endpoints/"+unknown()+"/enable", nil)
	assert.Equal(t, http.StatusNotFound, foreign.Status, "others do not learn of it")
	assert.Equal(t, unknown.Body, foreign.Body)

	assert.Contains(t, w.ask(w.ops, "ops", "GET", "/endpoints/"+e.ID.String(), nil).Body, "/enable")
	require.Equal(t, http.StatusOK, w.ask(w.ops, "ops", "POST", one+"/enable", nil).Status)
	assert.Equal(t, false, w.ask(w.portal, "acme", "GET", one, nil).object()["disabled_by_operator"])
}

func TestAPayloadThatCannotBeReadIsToldAndNeverACrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	payloads, err := payloadfs.Open(dir)
	require.NoError(t, err)
	w := newWorld(t)
	hooks, err := webhook.New(w.store, webhook.Config{
		Secrets: webhook.InsecurePlaintext(), Transport: network{}, PayloadStore: payloads, PayloadThreshold: 1,
	})
	require.NoError(t, err)
	t.Cleanup(hooks.Close)
	ops, err := admin.New(hooks, admin.Config{Authorize: authorizeOperator})
	require.NoError(t, err)
	w.ops = ops
	tx := w.store.Begin()
	event, err := hooks.Enqueue(t.Context(), tx, webhook.Event{Tenant: "acme", Type: "order.paid", Payload: []byte(`{"a":  1}`)})
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	id := event.EventID.String()
	key := webhook.PayloadKey{Tenant: "acme", EventID: event.EventID}

	got := w.ask(ops, "ops", http.MethodGet, "/api/events/"+id+"/payload", nil)
	assert.Equal(t, http.StatusOK, got.Status)
	assert.Equal(t, `{"a":  1}`, got.Body)
	for _, c := range []struct {
		harm   func() error
		status int
		code   string
		fault  string
		page   string
	}{
		{func() error { return payloads.Put(t.Context(), key, []byte(`{}`)) }, http.StatusInternalServerError, "payload_damaged", "damaged", "not the payload that was enqueued"},
		{func() error { return payloads.Delete(t.Context(), key) }, http.StatusNotFound, "payload_missing", "missing", "The payload is missing"},
		{payloads.Close, http.StatusServiceUnavailable, "payload_unreachable", "unreachable", "does not answer"},
	} {
		require.NoError(t, c.harm())
		got := w.ask(ops, "ops", http.MethodGet, "/api/events/"+id+"/payload", nil)
		assert.Equal(t, c.status, got.Status)
		assert.Equal(t, c.code, got.code())
		event := w.ask(ops, "ops", http.MethodGet, "/api/events/"+id, nil)
		assert.Equal(t, c.fault, event.object()["payload_fault"])
		assert.InDelta(t, 9, event.object()["payload_bytes"], 0)
		page := w.serve(ops, "ops", http.MethodGet, "/events/"+id, nil)
		assert.Equal(t, http.StatusOK, page.Status)
		assert.Contains(t, page.Body, c.page)
	}
}

// What the receiver got can be checked by hand: the headers, the signature, the bytes.
func TestARequestCanBeLookedAtAsItWasSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.populate("acme")
	target := "/api/deliveries/" + acme.delivery.String() + "/request"
	got := w.ask(w.portal, "acme", "GET", target, nil)
	require.Equal(t, http.StatusOK, got.Status, got.Body)
	r := got.object()
	header := http.Header{}
	for _, h := range r["headers"].([]any) {
		line := h.(map[string]any)
		header.Add(line["name"].(string), line["value"].(string))
	}
	assert.Equal(t, acme.event.String(), header.Get("webhook-id"))
	assert.NotEmpty(t, header.Get("webhook-signature"))
	assert.Equal(t, "…", header.Get("x-api-key"))
	assert.Equal(t, secretPayload, r["body"])
	assert.InDelta(t, 1, r["attempt"], 0)
	assert.Equal(t, true, r["signed"])
	assert.NotContains(t, got.Body, "hunter2")
	assert.NotContains(t, got.Body, "whsec_")
	assert.NotContains(t, w.ask(w.ops, "ops", "GET", target, nil).Body, "t0ken", "operators see no credentials in URLs")
	assert.Equal(t, got.Body, w.ask(w.portal, "acme", "GET", target+"?attempt=1", nil).Body)

	assert.Equal(t, http.StatusNotFound, w.ask(w.portal, "acme", "GET", target+"?attempt=2", nil).Status)
	assert.Equal(t, http.StatusBadRequest, w.ask(w.portal, "acme", "GET", target+"?attempt=0", nil).Status)
	foreign := w.ask(w.portal, "globex", "GET", target, nil)
	assert.Equal(t, http.StatusNotFound, foreign.Status)
	assert.Equal(t, w.ask(w.portal, "globex", "GET", "/api/deliveries/"+unknown()+"/request", nil).Body, foreign.Body)
	require.NoError(t, w.hooks.Endpoints().Delete(t.Context(), webhook.AllTenants(), acme.endpoint))
	assert.Equal(t, http.StatusNotFound, w.ask(w.portal, "acme", "GET", target, nil).Status, "of an endpoint that is deleted")
}

// A test has no event, and can be looked at all the same.
func TestTheRequestOfATestCanBeLookedAt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.endpoint("acme")
	stop := w.dispatch()
	var a webhook.Attempt
	require.Eventually(t, func() bool {
		var err error
		a, err = w.hooks.Endpoints().SendTest(t.Context(), webhook.TenantScope("acme"), e.ID, "invoice.paid")
		return !errors.Is(err, webhook.ErrNoDispatcher)
	}, 20*time.Second, 5*time.Millisecond)
	stop()
	got := w.ask(w.portal, "acme", "GET", "/api/deliveries/"+a.DeliveryID.String()+"/request", nil)
	require.Equal(t, http.StatusOK, got.Status, got.Body)
	assert.JSONEq(t, `{"test":true,"type":"invoice.paid"}`, got.object()["body"].(string))
	page := w.ask(w.portal, "acme", "GET", "/deliveries/"+a.DeliveryID.String(), nil)
	require.Equal(t, http.StatusOK, page.Status)
	assert.Contains(t, page.Body, "webhook-signature")
	assert.Contains(t, page.Body, "&#34;test&#34;: true")
	assert.NotContains(t, page.Body, "/events/"+a.EventID.String(), "there is no such event")
}

// What a delivery waits for is known to the dispatcher alone, and is asked of it.
func TestADeliverySaysThatItWaitsForASlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		_, err := w.hooks.Endpoints().Create(t.Context(), webhook.EndpointParams{
			Tenant: "acme", URL: "https://hangs.acme.example/", Types: []string{"*"}, MaxInFlight: 1,
		})
		require.NoError(t, err)
		w.event("acme", `{"n":1}`)
		w.event("acme", `{"n":2}`)
		stop := w.dispatch()
		defer stop()
		time.Sleep(2 * time.Second)

		for who, h := range map[string]*admin.Handler{"ops": w.ops, "acme": w.portal} {
			got := w.ask(h, who, http.MethodGet, "/api/deliveries?state=pending", nil)
			require.Equal(t, http.StatusOK, got.Status, got.Body)
			items := got.object()["items"].([]any)
			require.Len(t, items, 1)
			waiting := items[0].(map[string]any)
			assert.Equal(t, "concurrency", waiting["wait_reason"])

			id := waiting["id"].(string)
			assert.Equal(t, "concurrency", w.ask(h, who, http.MethodGet, "/api/deliveries/"+id, nil).object()["wait_reason"])
			assert.Contains(t, w.ask(h, who, http.MethodGet, "/deliveries", nil).Body, "no free slot")
			assert.Contains(t, w.ask(h, who, http.MethodGet, "/deliveries/"+id, nil).Body, "As many requests are in flight as may be.")
		}
	})
}
