package admin

import (
	"net/http"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

func deliveryPages() []route {
	const one = "/deliveries/{delivery_id}"
	return []route{
		{method: http.MethodGet, pattern: "/deliveries", serve: deliveriesPage},
		{method: http.MethodGet, pattern: one, serve: deliveryPage},
		{method: http.MethodPost, pattern: one + "/retry", mutates: true, serve: retryDeliveryForm},
		{method: http.MethodPost, pattern: one + "/cancel", mutates: true, serve: cancelDeliveryForm},
		{method: http.MethodGet, pattern: "/events/{event_id}", serve: eventPage},
		{method: http.MethodPost, pattern: "/events/{event_id}/replay", mutates: true, serve: replayEventForm},
	}
}

// deliveriesPageQuery is what the log can be limited to.
var deliveriesPageQuery = &operation{id: "page of deliveries", params: []param{
	tenantParam,
	{name: "endpoint"},
	{name: "event"},
	{name: "state", oneOf: deliveryStates},
	cursorParam,
}}

// deliveriesData is what the delivery log shows.
type deliveriesData struct {
	Table         deliveryTable
	Filtered      bool
	States        []choice
	Tenant        string
	Endpoint      string
	EndpointError string
	Event         string
	EventError    string
	Next          string
}

// deliveriesPage is the delivery log.
func deliveriesPage(v *visit) error {
	if err := v.readPageQuery(deliveriesPageQuery); err != nil {
		return err
	}
	data := deliveriesData{
		States: choicesOf(v.query.Get("state"), append([]choice{}, stateChoices...)...),
		Tenant: v.query.Get("tenant"), Endpoint: v.query.Get("endpoint"), Event: v.query.Get("event"),
	}
	for name := range v.query {
		data.Filtered = data.Filtered || name != "cursor"
	}
	filter := webhook.DeliveryQuery{State: webhook.DeliveryState(v.query.Get("state")), Cursor: v.query.Get("cursor"), Limit: defaultPage}
	filter.EndpointID, data.EndpointError = idOfFilter(data.Endpoint)
	filter.EventID, data.EventError = idOfFilter(data.Event)
	var page webhook.DeliveryPage
	var err error
	if data.EndpointError == "" && data.EventError == "" {
		if page, err = v.deliveries(filter); err != nil {
			return err
		}
	}
	if page.Next != "" {
		data.Next = v.nextPage("deliveries", page.Next)
	}
	if data.Table, err = v.deliveryTable(page.Deliveries, true); err != nil {
		return err
	}
	return v.render(http.StatusOK, "deliveries.html", "Deliveries", data)
}

// idOfFilter reads an id that somebody may still be typing.
func idOfFilter(text string) (uuid.UUID, string) {
	if text == "" {
		return uuid.Nil, ""
	}
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return uuid.Nil, "This is no whole id yet."
	}
	return id, ""
}

func retryDeliveryForm(v *visit) error {
	id, err := v.id("delivery_id")
	if err != nil {
		return err
	}
	d, err := v.retryDelivery(id)
	if err != nil {
		return err
	}
	return v.redirect("deliveries/" + d.ID.String() + "?done=retried")
}

func cancelDeliveryForm(v *visit) error {
	id, err := v.id("delivery_id")
	if err != nil {
		return err
	}
	if _, err := v.cancelDelivery(id, "cancelled by "+v.byWhom()); err != nil {
		return err
	}
	return v.redirect("deliveries/" + id.String() + "?done=cancelled")
}

func replayEventForm(v *visit) error {
	id, err := v.id("event_id")
	if err != nil {
		return err
	}
	form, err := v.form()
	if err != nil {
		return err
	}
	endpoint, err := uuid.Parse(form.Get("endpoint"))
	if err != nil {
		return errNotFound
	}
	d, err := v.replayEvent(id, endpoint)
	if err != nil {
		return err
	}
	return v.redirect("deliveries/" + d.ID.String() + "?done=retried")
}
