package admin

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

const (
	defaultStatsDays = 30
	maxStatsDays     = 90
	maxStatsRows     = 1000
)

func endpointRoutes() []route {
	one := "/api/endpoints/{endpoint_id}"
	return []route{
		{method: http.MethodGet, pattern: "/api/endpoints", serve: listEndpoints, op: &operation{
			id: "listEndpoints", tag: "endpoints", summary: "Endpoints in the order of their creation.",
			params: []param{tenantParam, cursorParam, limitParam}, status: 200, response: listShape[endpointShape]{},
		}},
		{method: http.MethodPost, pattern: "/api/endpoints", mutates: true, limited: true, serve: createEndpoint, op: &operation{
			id: "createEndpoint", tag: "endpoints", summary: "Make an endpoint. The answer shows its secret, once.",
			creates: true, request: endpointInput{}, status: 201, response: endpointShape{}, etag: true, problems: []int{409},
		}},
		{method: http.MethodGet, pattern: one, serve: getEndpoint, op: &operation{
			id: "getEndpoint", tag: "endpoints", summary: "An endpoint.", status: 200, response: endpointShape{}, etag: true,
		}},
		{method: http.MethodPatch, pattern: one, mutates: true, serve: updateEndpoint, op: &operation{
			id: "updateEndpoint", tag: "endpoints", summary: "Change an endpoint: what is left out stays.",
			request: endpointInput{}, precondition: true, status: 200, response: endpointShape{}, etag: true, problems: []int{409, 412, 422},
		}},
		{method: http.MethodDelete, pattern: one, mutates: true, serve: deleteEndpoint, op: &operation{
			id: "deleteEndpoint", tag: "endpoints", summary: "Delete an endpoint. Its unfinished deliveries become cancelled; its log stays.",
			status: 204,
		}},
		{method: http.MethodPost, pattern: one + "/pause", mutates: true, serve: pauseEndpoint, op: &operation{
			id: "pauseEndpoint", tag: "endpoints", summary: "Stop sending, and keep what is pending.",
			request: reasonInput{}, optionalBody: true, status: 200, response: endpointShape{}, etag: true, problems: []int{409, 422},
		}},
		{method: http.MethodPost, pattern: one + "/resume", mutates: true, serve: resumeEndpoint, op: &operation{
			id: "resumeEndpoint", tag: "endpoints", summary: "End a pause.", status: 200, response: endpointShape{}, etag: true, problems: []int{409},
		}},
		{method: http.MethodPost, pattern: one + "/disable", mutates: true, serve: disableEndpoint, op: &operation{
			id: "disableEndpoint", tag: "endpoints", summary: "Stop sending, and cancel what is pending. The tenant cannot enable it again.", operators: true,
			request: reasonInput{}, optionalBody: true, status: 200, response: endpointShape{}, etag: true, problems: []int{422},
		}},
		{method: http.MethodPost, pattern: one + "/enable", mutates: true, serve: enableEndpoint, op: &operation{
			id: "enableEndpoint", tag: "endpoints", summary: "Make a disabled endpoint active again, in the portal unless an operator disabled it. What was cancelled stays so.",
			status: 200, response: endpointShape{}, etag: true,
		}},
		{method: http.MethodPost, pattern: one + "/test", mutates: true, limited: true, serve: testEndpoint, op: &operation{
			id: "testEndpoint", tag: "endpoints", summary: "Send a test event now, whatever the endpoint's circuit and pause say. It changes nothing but the log.",
			request: testInput{}, status: 200, response: testShape{}, problems: []int{409},
		}},
		{method: http.MethodPost, pattern: one + "/rotate-secret", mutates: true, limited: true, serve: rotateSecret, op: &operation{
			id: "rotateSecret", tag: "endpoints", summary: "Give an endpoint a new signing secret. The answer shows it, once.",
			request: rotateInput{}, optionalBody: true, status: 200, response: endpointShape{}, etag: true, problems: []int{422},
		}},
		{method: http.MethodGet, pattern: one + "/stats", serve: getEndpointStats, op: &operation{
			id: "getEndpointStats", tag: "endpoints", summary: "What happened to an endpoint's deliveries, by day. A day is complete a few hours after it is over.",
			params: []param{{name: "days", kind: numberParam, doc: "How many days back: 1 to 90, as a rule 30."}}, status: 200, response: listShape[dayShape]{},
		}},
	}
}

func listEndpoints(v *visit) error {
	p, err := v.page()
	if err != nil {
		return err
	}
	list, err := v.within().Endpoints(v.ctx(), p.from, p.limit+1)
	if err != nil {
		return err
	}
	return writeList(v, p, list, func(e webhook.Endpoint) uuid.UUID { return e.ID }, v.endpoint)
}

func createEndpoint(v *visit) error {
	var in endpointInput
	if err := v.readJSON(&in); err != nil {
		return err
	}
	if !v.principal.operator && in.Tenant.Set && in.Tenant.Value != v.principal.tenant {
		return badField("tenant", "cannot be chosen here")
	}
	p, err := in.params()
	if err != nil {
		return err
	}
	p.IdempotencyKey = v.r.Header.Get("Idempotency-Key")
	e, err := v.createEndpoint(p)
	if err != nil {
		return err
	}
	return v.writeEndpoint(v.created("api/endpoints/", e.ID, e.Secret.IsZero()), v.endpointWithSecret(e))
}

func getEndpoint(v *visit) error {
	return v.withEndpoint(func(id uuid.UUID) (webhook.Endpoint, error) { return v.view.Endpoint(v.ctx(), id) })
}

func updateEndpoint(v *visit) error {
	id, err := v.id("endpoint_id")
	if err != nil {
		return err
	}
	var in endpointInput
	if err := v.readJSON(&in); err != nil {
		return err
	}
	u, err := in.update()
	if err != nil {
		return err
	}
	if u.IfRevision, err = v.demandedRevision(id); err != nil {
		return err
	}
	e, err := v.updateEndpoint(id, u)
	if u.IfRevision != 0 && isConflict(err) {
		return errPrecondition
	}
	if err != nil {
		return err
	}
	return v.writeEndpoint(http.StatusOK, v.endpoint(e))
}

func deleteEndpoint(v *visit) error {
	id, err := v.id("endpoint_id")
	if err != nil {
		return err
	}
	if err := v.deleteEndpoint(id); err != nil {
		return err
	}
	return v.writeNothing()
}

func pauseEndpoint(v *visit) error {
	var in reasonInput
	if err := v.readOptionalJSON(&in); err != nil {
		return err
	}
	return v.withEndpoint(func(id uuid.UUID) (webhook.Endpoint, error) { return v.pauseEndpoint(id, in.Reason) })
}

func resumeEndpoint(v *visit) error { return v.withEndpoint(v.resumeEndpoint) }

func disableEndpoint(v *visit) error {
	var in reasonInput
	if err := v.readOptionalJSON(&in); err != nil {
		return err
	}
	return v.withEndpoint(func(id uuid.UUID) (webhook.Endpoint, error) { return v.disableEndpoint(id, in.Reason) })
}

func enableEndpoint(v *visit) error { return v.withEndpoint(v.enableEndpoint) }

func rotateSecret(v *visit) error {
	id, err := v.id("endpoint_id")
	if err != nil {
		return err
	}
	var in rotateInput
	if err := v.readOptionalJSON(&in); err != nil {
		return err
	}
	o, err := in.options()
	if err != nil {
		return err
	}
	e, err := v.rotateSecret(id, o)
	if err != nil {
		return err
	}
	return v.writeEndpoint(http.StatusOK, v.endpointWithSecret(e))
}

// testInput says what a test looks like.
type testInput struct {
	Type string `json:"type" need:"yes" doc:"The event type of the test, such as invoice.paid."`
}

// testShape is what came of a test.
type testShape struct {
	DeliveryID uuid.UUID    `json:"delivery_id" doc:"The delivery that it is in the log as."`
	Attempt    attemptShape `json:"attempt"`
}

func testEndpoint(v *visit) error {
	id, err := v.id("endpoint_id")
	if err != nil {
		return err
	}
	var in testInput
	if err := v.readJSON(&in); err != nil {
		return err
	}
	a, err := v.testEndpoint(id, in.Type)
	if err != nil {
		return err
	}
	return v.writeJSON(http.StatusOK, testShape{DeliveryID: a.DeliveryID, Attempt: v.attempt(a)})
}

// dayShape is what happened to an endpoint's deliveries on a day.
type dayShape struct {
	Day       string `json:"day" doc:"In UTC, such as 2006-01-02."`
	Attempts  int64  `json:"attempts"`
	Retries   int64  `json:"retries"`
	Delivered int64  `json:"delivered"`
	Dead      int64  `json:"dead"`
	Cancelled int64  `json:"cancelled"`
	Shed      int64  `json:"shed"`
}

func getEndpointStats(v *visit) error {
	id, err := v.id("endpoint_id")
	if err != nil {
		return err
	}
	days, err := v.queryNumber("days", defaultStatsDays, maxStatsDays)
	if err != nil {
		return err
	}
	if _, err := v.view.Endpoint(v.ctx(), id); err != nil {
		return err
	}
	until := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, 1)
	counters, err := v.view.Counters(v.ctx(), webhook.ListCountersParams{
		EndpointID: id, From: until.AddDate(0, 0, -days), Until: until, Limit: maxStatsRows,
	})
	if err != nil {
		return err
	}
	list := listShape[dayShape]{Items: make([]dayShape, len(counters))}
	for i, c := range counters {
		list.Items[i] = dayShape{
			Day: c.Day.Format(time.DateOnly), Attempts: c.Attempts, Retries: c.Retries,
			Delivered: c.Delivered, Dead: c.Dead, Cancelled: c.Cancelled, Shed: c.Shed,
		}
	}
	return v.writeJSON(http.StatusOK, list)
}

// withEndpoint answers with the endpoint that act returns for the path's id.
func (v *visit) withEndpoint(act func(uuid.UUID) (webhook.Endpoint, error)) error {
	id, err := v.id("endpoint_id")
	if err != nil {
		return err
	}
	e, err := act(id)
	if err != nil {
		return err
	}
	return v.writeEndpoint(http.StatusOK, v.endpoint(e))
}

func (v *visit) writeEndpoint(status int, shape endpointShape) error {
	v.w.Header().Set("ETag", etag(shape.Revision))
	return v.writeJSON(status, shape)
}

func etag(revision int64) string { return `"` + strconv.FormatInt(revision, 10) + `"` }

// demandedRevision reads If-Match: the revision that the endpoint must have, or zero
// for any.
func (v *visit) demandedRevision(id uuid.UUID) (int64, error) {
	header := strings.Join(v.r.Header.Values("If-Match"), ",")
	if header == "" || strings.TrimSpace(header) == "*" {
		return 0, nil
	}
	e, err := v.view.Endpoint(v.ctx(), id)
	if err != nil {
		return 0, err
	}
	tags := strings.Split(header, ",")
	if !slices.ContainsFunc(tags, func(tag string) bool { return strings.TrimSpace(tag) == etag(e.Revision) }) {
		return 0, errPrecondition
	}
	return e.Revision, nil
}
