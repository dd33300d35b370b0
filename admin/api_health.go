package admin

import (
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// The values of a health list's status.
const (
	unwellEndpoints  = "unwell"
	failingEndpoints = "failing"
)

func healthRoutes() []route {
	return []route{
		{method: http.MethodGet, pattern: "/api/overview", serve: getOverview, op: &operation{
			id: "getOverview", tag: "health", summary: "How everything fares: a tenant's, or all tenants'.",
			params: []param{tenantParam, {name: "hours", oneOf: []string{"1", "24"}, doc: "How far back the buckets go: 1, as a rule, or 24."}},
			status: 200, response: overviewShape{},
		}},
		{method: http.MethodGet, pattern: "/api/dispatchers", serve: listDispatchers, op: &operation{
			id: "listDispatchers", tag: "health", summary: "The dispatchers that were alive half a minute ago. None means that nothing is sent.",
			operators: true, status: 200, response: listShape[dispatcherShape]{},
		}},
		{method: http.MethodGet, pattern: "/api/endpoint-health", serve: listHealth, op: &operation{
			id: "listEndpointHealth", tag: "health", summary: "How endpoints fare, in the order of their creation.",
			params: []param{
				tenantParam,
				{name: "status", oneOf: []string{unwellEndpoints, failingEndpoints}, doc: "unwell: only those of whose latest 20 attempts some failed; failing: only those whose latest attempt failed."},
				cursorParam, limitParam,
			},
			status: 200, response: listShape[healthShape]{},
		}},
		{method: http.MethodGet, pattern: "/api/endpoints/{endpoint_id}/health", serve: getHealth, op: &operation{
			id: "getEndpointHealth", tag: "health", summary: "How an endpoint fares.", status: 200, response: healthShape{},
		}},
		{method: http.MethodGet, pattern: "/api/notices", serve: listNotices, op: &operation{
			id: "listNotices", tag: "health", summary: "What somebody should know about endpoints, newest first.",
			params: []param{tenantParam, {name: "endpoint_id", kind: idParam, doc: "Only about this endpoint."}, cursorParam, limitParam},
			status: 200, response: listShape[noticeShape]{},
		}},
	}
}

func getOverview(v *visit) error {
	var p webhook.OverviewParams
	if v.query.Get("hours") == "24" {
		p.For = 24 * time.Hour
	}
	o, err := v.within().Overview(v.ctx(), p)
	if err != nil {
		return err
	}
	return v.writeJSON(http.StatusOK, overviewOf(o))
}

func listDispatchers(v *visit) error {
	o, err := v.view.Overview(v.ctx(), webhook.OverviewParams{})
	if err != nil {
		return err
	}
	list := listShape[dispatcherShape]{Items: make([]dispatcherShape, len(o.Dispatchers))}
	for i, d := range o.Dispatchers {
		list.Items[i] = dispatcherOf(d)
	}
	return v.writeJSON(http.StatusOK, list)
}

func listHealth(v *visit) error {
	p, err := v.page()
	if err != nil {
		return err
	}
	status := v.query.Get("status")
	list, err := v.within().Healths(v.ctx(), webhook.ListHealthParams{
		After: p.from, Limit: p.limit + 1, Unwell: status == unwellEndpoints, Failing: status == failingEndpoints,
	})
	if err != nil {
		return err
	}
	return writeList(v, p, list, func(h webhook.EndpointHealth) uuid.UUID { return h.EndpointID }, healthOf)
}

func getHealth(v *visit) error {
	id, err := v.id("endpoint_id")
	if err != nil {
		return err
	}
	h, err := v.view.Health(v.ctx(), id)
	if err != nil {
		return err
	}
	return v.writeJSON(http.StatusOK, healthOf(h))
}

func listNotices(v *visit) error {
	p, err := v.page()
	if err != nil {
		return err
	}
	endpoint, err := v.queryID("endpoint_id")
	if err != nil {
		return err
	}
	list, err := v.within().Notices(v.ctx(), webhook.ListNoticesParams{EndpointID: endpoint, Before: p.from, Limit: p.limit + 1})
	if err != nil {
		return err
	}
	return writeList(v, p, list, func(n webhook.Notice) uuid.UUID { return n.ID }, noticeOf)
}
