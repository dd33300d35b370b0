package admin

import (
	"errors"
	"net/http"

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
				cursorParam, limitParam,
			},
			status: 200, response: listShape[deliveryShape]{},
		}},
		{method: http.MethodGet, pattern: one, serve: getDelivery, op: &operation{
			id: "getDelivery", tag: "deliveries", summary: "A delivery with its attempts.", status: 200, response: deliveryShape{},
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

func listDeliveries(v *visit) error {
	limit, err := v.queryNumber("limit", defaultPage, 1, maxPage)
	if err != nil {
		return err
	}
	filter := webhook.DeliveryQuery{State: webhook.DeliveryState(v.query.Get("state")), Cursor: v.query.Get("cursor"), Limit: limit}
	if filter.EndpointID, err = v.queryID("endpoint_id"); err != nil {
		return err
	}
	if filter.EventID, err = v.queryID("event_id"); err != nil {
		return err
	}
	list, err := v.deliveries(filter)
	if err != nil {
		return err
	}
	page := listShape[deliveryShape]{Items: make([]deliveryShape, len(list.Deliveries)), NextCursor: list.Next}
	for i, d := range list.Deliveries {
		page.Items[i] = deliveryOf(d)
	}
	return v.writeJSON(http.StatusOK, page)
}

// deliveries lists what the query asks for.
func (v *visit) deliveries(q webhook.DeliveryQuery) (webhook.DeliveryPage, error) {
	page, err := v.within().Deliveries(v.ctx(), q)
	if errors.Is(err, webhook.ErrCursor) {
		return webhook.DeliveryPage{}, badParameter("cursor", "is none of this list")
	}
	return page, err
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
	shape := deliveryOf(d)
	for _, a := range attempts {
		shape.Attempts = append(shape.Attempts, v.attempt(a))
	}
	return shape, nil
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
