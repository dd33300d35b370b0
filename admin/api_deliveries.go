package admin

import (
	"encoding/base64"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

func deliveryRoutes() []route {
	one := "/api/deliveries/{delivery_id}"
	return []route{
		{method: http.MethodGet, pattern: "/api/deliveries", serve: listDeliveries, op: &operation{
			id: "listDeliveries", tag: "deliveries", summary: "Deliveries, newest first.",
			params: []param{
				tenantParam,
				{name: "endpoint_id", kind: idParam, doc: "Only to this endpoint."},
				{name: "event_id", kind: idParam, doc: "Only of this event."},
				{name: "state", oneOf: deliveryStates, doc: "Only in this state."},
				{name: "event_type", doc: "Only of events of this type; not a pattern."},
				{name: "resource_id", doc: "Only of events about this resource."},
				{name: "status", oneOf: statusClasses, doc: "Only those whose latest attempt got such a status; none: no response, or no attempt yet."},
				fromParam, untilParam, cursorParam, limitParam,
			},
			status: 200, response: listShape[deliveryShape]{},
		}},
		{method: http.MethodGet, pattern: one, serve: getDelivery, op: &operation{
			id: "getDelivery", tag: "deliveries", summary: "A delivery with its attempts.", status: 200, response: deliveryShape{},
		}},
		{method: http.MethodGet, pattern: one + "/request", serve: getRequest, op: &operation{
			id: "getDeliveryRequest", tag: "deliveries", summary: "The request of an attempt as it was sent, with its signature, put together again from the log.",
			params: []param{{name: "attempt", kind: numberParam, doc: "The attempt's number; as a rule the latest one."}},
			status: 200, response: sentRequestShape{}, problems: []int{409},
		}},
		{method: http.MethodPost, pattern: one + "/retry", mutates: true, limited: true, serve: retryDelivery, op: &operation{
			id: "retryDelivery", tag: "deliveries", summary: "Send a delivery again: a pending one now, a finished one in a new run. The answer is the delivery that will be sent.",
			status: 200, response: deliveryShape{}, problems: []int{409},
		}},
		{method: http.MethodPost, pattern: one + "/cancel", mutates: true, serve: cancelDelivery, op: &operation{
			id: "cancelDelivery", tag: "deliveries", summary: "Withdraw an unfinished delivery.",
			request: reasonInput{}, optionalBody: true, status: 200, response: deliveryShape{}, problems: []int{409, 422},
		}},
	}
}

// statusClasses are the values of the filter by status.
var statusClasses = []string{
	string(webhook.Status2xx), string(webhook.Status3xx), string(webhook.Status4xx), string(webhook.Status5xx), string(webhook.StatusNone),
}

func listDeliveries(v *visit) error {
	limit, err := v.queryNumber("limit", defaultPage, maxPage)
	if err != nil {
		return err
	}
	q, err := v.deliveryQuery(limit)
	if err != nil {
		return err
	}
	list, err := v.deliveries(q)
	if err != nil {
		return err
	}
	items, err := v.waiting(list.Deliveries)
	if err != nil {
		return err
	}
	return v.writeJSON(http.StatusOK, listShape[deliveryShape]{Items: items, NextCursor: list.Next})
}

// waiting are deliveries with why they wait.
func (v *visit) waiting(list []webhook.Delivery) ([]deliveryShape, error) {
	reasons, err := v.view.WaitReasons(v.ctx(), list)
	if err != nil {
		return nil, err
	}
	shapes := make([]deliveryShape, len(list))
	for i, d := range list {
		shapes[i] = deliveryOf(d)
		shapes[i].WaitReason = reasons[i]
	}
	return shapes, nil
}

// deliveryQuery is what the request's query asks for.
func (v *visit) deliveryQuery(limit int) (webhook.DeliveryQuery, error) {
	q := webhook.DeliveryQuery{
		Cursor: v.query.Get("cursor"), EventType: v.query.Get("event_type"), Limit: limit, ResourceID: v.query.Get("resource_id"),
		State: webhook.DeliveryState(v.query.Get("state")), Status: webhook.StatusClass(v.query.Get("status")),
	}
	var err error
	if q.EndpointID, err = v.queryID("endpoint_id"); err != nil {
		return q, err
	}
	if q.EventID, err = v.queryID("event_id"); err != nil {
		return q, err
	}
	q.From, q.Until, err = v.queryTimes()
	return q, err
}

// deliveries lists what the query asks for.
func (v *visit) deliveries(q webhook.DeliveryQuery) (webhook.DeliveryPage, error) {
	page, err := v.within().Deliveries(v.ctx(), q)
	return page, refusedQuery(err)
}

func getDelivery(v *visit) error {
	id, err := v.id("delivery_id")
	if err != nil {
		return err
	}
	shape, err := v.deliveryWithAttempts(id)
	if err != nil {
		return err
	}
	return v.writeJSON(http.StatusOK, shape)
}

func (v *visit) deliveryWithAttempts(id uuid.UUID) (deliveryShape, error) {
	d, err := v.view.Delivery(v.ctx(), id)
	if err != nil {
		return deliveryShape{}, err
	}
	attempts, err := v.view.Attempts(v.ctx(), id)
	if err != nil {
		return deliveryShape{}, err
	}
	shapes, err := v.waiting([]webhook.Delivery{d})
	if err != nil {
		return deliveryShape{}, err
	}
	shape := shapes[0]
	for _, a := range attempts {
		shape.Attempts = append(shape.Attempts, v.attempt(a))
	}
	return shape, nil
}

// sentRequestShape is a request as it was sent. (A name that ended in Request would be
// that of a body to be read.)
type sentRequestShape struct {
	Attempt      int           `json:"attempt" doc:"The attempt's number."`
	Method       string        `json:"method"`
	URL          string        `json:"url" doc:"The endpoint's present one. Operators see the names of its parameters alone."`
	Headers      []headerShape `json:"headers" doc:"In the order of their names. The values of the endpoint's own headers are …; what authorises us to the receiver is left out."`
	Signed       bool          `json:"signed" doc:"False when no secret that signed it is stored any more: then the signature is left out."`
	Body         string        `json:"body" doc:"What was sent, and signed, unless the host keeps some of it from being shown."`
	BodyEncoding string        `json:"body_encoding,omitempty" doc:"base64 for a body that is no text."`
}

// headerShape is a line of a request's header.
type headerShape struct {
	Name  string `json:"name" doc:"In small letters."`
	Value string `json:"value"`
}

func getRequest(v *visit) error {
	id, err := v.id("delivery_id")
	if err != nil {
		return err
	}
	number, err := v.queryNumber("attempt", 0, math.MaxInt32)
	if err != nil {
		return err
	}
	attempts, err := v.view.Attempts(v.ctx(), id)
	if err != nil {
		return err
	}
	if number > 0 {
		attempts = slices.DeleteFunc(attempts, func(a webhook.Attempt) bool { return a.Number != number })
	}
	if len(attempts) == 0 {
		return errNotFound
	}
	latest := attempts[len(attempts)-1]
	r, err := v.view.Request(v.ctx(), latest)
	if errors.Is(err, webhook.ErrSecretUnreadable) {
		return problem{Status: http.StatusConflict, Code: "secret_unreadable", Detail: "The endpoint's secret cannot be read, so that the signature cannot be shown."}
	}
	if err != nil {
		return err
	}
	shape := sentRequestShape{Attempt: latest.Number, Method: r.Method, URL: v.url(r.URL), Headers: headersOf(r.Header), Signed: r.Signed, Body: string(r.Body)}
	if !utf8.Valid(r.Body) {
		shape.Body, shape.BodyEncoding = base64.StdEncoding.EncodeToString(r.Body), "base64"
	}
	return v.writeJSON(http.StatusOK, shape)
}

// headersOf are the lines of a header in the order of their names.
func headersOf(header http.Header) []headerShape {
	list := []headerShape{}
	for name, values := range header {
		for _, value := range values {
			list = append(list, headerShape{Name: strings.ToLower(name), Value: value})
		}
	}
	slices.SortFunc(list, func(a, b headerShape) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func retryDelivery(v *visit) error { return v.withDelivery(v.retryDelivery) }

func cancelDelivery(v *visit) error {
	var in reasonInput
	if err := v.readOptionalJSON(&in); err != nil {
		return err
	}
	return v.withDelivery(func(id uuid.UUID) (webhook.Delivery, error) { return v.cancelDelivery(id, in.Reason) })
}

// withDelivery answers with the delivery that act returns for the path's id.
func (v *visit) withDelivery(act func(uuid.UUID) (webhook.Delivery, error)) error {
	id, err := v.id("delivery_id")
	if err != nil {
		return err
	}
	d, err := act(id)
	if err != nil {
		return err
	}
	return v.writeJSON(http.StatusOK, deliveryOf(d))
}
