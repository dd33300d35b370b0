package admin

import (
	"errors"
	"net/http"
	"slices"
	"time"

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
		{method: http.MethodGet, pattern: "/events", serve: eventsPage},
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
	{name: "type"},
	{name: "resource"},
	{name: "status", oneOf: []string{"2xx", "3xx", "4xx", "5xx", "none"}},
	{name: "within", oneOf: []string{"15m", "1h", "24h", "7d"}},
	cursorParam,
}}

// statusChoices are the kinds of last answers that the log can be limited to.
var statusChoices = []choice{
	{Value: "2xx", Word: "2xx, accepted"},
	{Value: "3xx", Word: "3xx, redirect"},
	{Value: "4xx", Word: "4xx, refused"},
	{Value: "5xx", Word: "5xx, server error"},
	{Value: "none", Word: "None"},
}

// withinChoices are the times that the log can be limited to.
var withinChoices = []choice{
	{Value: "15m", Word: "15 minutes"},
	{Value: "1h", Word: "Hour"},
	{Value: "24h", Word: "24 hours"},
	{Value: "7d", Word: "7 days"},
}

var withinSpans = map[string]time.Duration{"15m": 15 * time.Minute, "1h": time.Hour, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour}

// since is when the chosen time began, to the minute: a cursor holds for one filter, and
// must do so for longer than one request.
func since(within string, now time.Time) time.Time {
	span, ok := withinSpans[within]
	if !ok {
		return time.Time{}
	}
	return now.Add(-span).Truncate(time.Minute)
}

// deliveriesData is what the delivery log shows.
type deliveriesData struct {
	Table                     deliveryTable
	Filtered, More            bool // More: filters besides the common ones
	States, Statuses, Withins []choice
	Tenant                    string
	Endpoint, EndpointError   string
	Event, EventError         string
	Type, Resource            string
	Types                     []EventType
	Problem                   string
	Next                      string
}

// deliveriesPage is the delivery log.
func deliveriesPage(v *visit) error {
	if err := v.readPageQuery(deliveriesPageQuery); err != nil {
		return err
	}
	get := v.query.Get
	data := deliveriesData{
		States:   choicesOf(get("state"), slices.Clone(stateChoices)...),
		Statuses: choicesOf(get("status"), slices.Clone(statusChoices)...),
		Withins:  choicesOf(get("within"), slices.Clone(withinChoices)...),
		Tenant:   get("tenant"), Endpoint: get("endpoint"), Event: get("event"), Type: get("type"), Resource: get("resource"),
		Types: v.handler.eventTypes,
	}
	for name := range v.query {
		data.Filtered = data.Filtered || name != "cursor"
	}
	data.More = data.Endpoint+data.Resource+data.Tenant != ""
	filter := webhook.DeliveryQuery{
		State: webhook.DeliveryState(get("state")), Status: webhook.StatusClass(get("status")), EventType: data.Type,
		ResourceID: data.Resource, From: since(get("within"), time.Now()), Cursor: get("cursor"), Limit: defaultPage,
	}
	filter.EndpointID, data.EndpointError = idOfFilter(data.Endpoint)
	filter.EventID, data.EventError = idOfFilter(data.Event)
	page, err := v.filtered(filter, &data)
	if err != nil {
		return err
	}
	data.Next = v.nextPage("deliveries", page.Next)
	if data.Table, err = v.deliveryTable(page.Deliveries, true); err != nil {
		return err
	}
	return v.render(http.StatusOK, "deliveries.html", "Deliveries", data)
}

// filtered reads a page of the log; none while a filter is still being typed in.
func (v *visit) filtered(filter webhook.DeliveryQuery, data *deliveriesData) (webhook.DeliveryPage, error) {
	if data.EndpointError+data.EventError != "" {
		return webhook.DeliveryPage{}, nil
	}
	page, err := v.deliveries(filter)
	if errors.Is(err, webhook.ErrCursor) && filter.Cursor != "" && !filter.From.IsZero() {
		// The time has moved on under the cursor: begin again.
		filter.Cursor = ""
		page, err = v.deliveries(filter)
	}
	var refused *webhook.InvalidError
	if errors.As(err, &refused) && !errors.Is(err, webhook.ErrCursor) {
		data.Problem = sentence(fieldName(refused.Field) + " " + refused.Problem)
		return webhook.DeliveryPage{}, nil
	}
	return page, err
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
