package admin

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// maxEventBody is the largest body of an event: the payload, of which the library has
// its own limit, and what stands around it.
const maxEventBody = 20 << 20

func (h *Handler) eventRoutes() []route {
	one := "/api/events/{event_id}"
	routes := []route{
		{method: http.MethodGet, pattern: "/api/events", serve: listEvents, op: &operation{
			id: "listEvents", tag: "events", summary: "Events without their payloads, newest first or oldest first.",
			params: []param{
				tenantParam,
				{name: "type", doc: "Only of this type; not a pattern."},
				{name: "resource_id", doc: "Only about this resource."},
				{name: "unmatched", oneOf: []string{"true", "false"}, doc: "true: only those that no endpoint was subscribed to."},
				{name: "order", oneOf: []string{newestFirst, oldestFirst}, doc: "newest_first, as a rule; oldest_first lists events that are a minute old or older, and its last cursor can be gone on with later."},
				fromParam, untilParam, cursorParam, limitParam,
			},
			status: 200, response: eventListShape{},
		}},
		{method: http.MethodGet, pattern: one, serve: getEvent, op: &operation{
			id: "getEvent", tag: "events", summary: "An event, without its payload.", status: 200, response: eventShape{},
		}},
		{method: http.MethodGet, pattern: one + "/payload", serve: getEventPayload, op: &operation{
			id: "getEventPayload", tag: "events", summary: "An event's payload, byte for byte.", status: 200, media: "application/octet-stream", problems: []int{503},
		}},
		{method: http.MethodPost, pattern: one + "/replay", mutates: true, limited: true, serve: replayEvent, op: &operation{
			id: "replayEvent", tag: "events", summary: "Send an event to an endpoint again, or for the first time.",
			request: replayEventInput{}, status: 200, response: deliveryShape{}, problems: []int{409, 422},
		}},
	}
	if h.enqueue != nil {
		routes = append(routes, route{method: http.MethodPost, pattern: "/api/events", mutates: true, maxBody: maxEventBody, serve: enqueueEvent, op: &operation{
			id: "enqueueEvent", tag: "events", summary: "Enqueue an event.", creates: true,
			request: eventInput{}, status: 202, response: enqueuedShape{}, problems: []int{422},
		}})
	}
	return routes
}

// The orders of a list of events.
const (
	newestFirst = "newest_first"
	oldestFirst = "oldest_first"
)

// eventListShape is a page of a list of events.
type eventListShape struct {
	Items      []eventShape `json:"items"`
	NextCursor string       `json:"next_cursor,omitempty" doc:"Where the next page begins; left out on the last one, but for oldest_first, where events may follow."`
	More       bool         `json:"more" doc:"Whether there is a next page already."`
}

func listEvents(v *visit) error {
	limit, err := v.queryNumber("limit", defaultPage, maxPage)
	if err != nil {
		return err
	}
	q := webhook.EventQuery{
		Cursor: v.query.Get("cursor"), Limit: limit, OldestFirst: v.query.Get("order") == oldestFirst,
		ResourceID: v.query.Get("resource_id"), Type: v.query.Get("type"), Unmatched: v.query.Get("unmatched") == "true",
	}
	if q.From, q.Until, err = v.queryTimes(); err != nil {
		return err
	}
	list, err := v.within().Events(v.ctx(), q)
	if err != nil {
		return refusedQuery(err)
	}
	page := eventListShape{Items: make([]eventShape, len(list.Events)), NextCursor: list.Next, More: list.More}
	for i, e := range list.Events {
		page.Items[i] = eventOf(e)
	}
	return v.writeJSON(http.StatusOK, page)
}

func getEvent(v *visit) error {
	id, err := v.id("event_id")
	if err != nil {
		return err
	}
	e, err := v.view.Event(v.ctx(), id)
	if err != nil {
		return err
	}
	return v.writeJSON(http.StatusOK, eventOf(e))
}

// getEventPayload answers with the payload as a download: whatever it is, no browser
// runs it.
func getEventPayload(v *visit) error {
	id, err := v.id("event_id")
	if err != nil {
		return err
	}
	e, err := v.view.Event(v.ctx(), id)
	if err != nil {
		return err
	}
	switch e.PayloadFault {
	case webhook.PayloadMissing:
		return webhook.ErrPayloadMissing
	case webhook.PayloadDamaged:
		return webhook.ErrPayloadDamaged
	case webhook.PayloadUnreachable:
		return webhook.ErrPayloadUnreachable
	}
	extension := ".bin"
	if strings.HasPrefix(contentType(e.ContentType), "application/json") {
		extension = ".json"
	}
	v.w.Header().Set("Content-Type", "application/octet-stream")
	v.w.Header().Set("Content-Disposition", `attachment; filename="`+e.ID.String()+extension+`"`)
	_, _ = v.w.Write(e.Payload)
	return nil
}

// replayEventInput says whom an event is sent to again.
type replayEventInput struct {
	EndpointID uuid.UUID `json:"endpoint_id" need:"yes"`
}

func replayEvent(v *visit) error {
	id, err := v.id("event_id")
	if err != nil {
		return err
	}
	var in replayEventInput
	if err := v.readJSON(&in); err != nil {
		return err
	}
	d, err := v.replayEvent(id, in.EndpointID)
	if err != nil {
		return err
	}
	return v.writeJSON(http.StatusOK, deliveryOf(d))
}

// eventInput is an event to be enqueued.
type eventInput struct {
	Tenant          field[string]   `json:"tenant" doc:"Whose event it is. Required of operators, fixed in the portal."`
	Type            string          `json:"type" need:"yes" doc:"Such as invoice.paid."`
	ResourceID      string          `json:"resource_id" doc:"What the event is about. At most 255 bytes."`
	ResourceVersion int64           `json:"resource_version"`
	IdempotencyKey  string          `json:"idempotency_key" doc:"As the header Idempotency-Key, which wins. At most 255 bytes."`
	Payload         json.RawMessage `json:"payload" need:"yes" doc:"The bytes that are sent, exactly as they stand here."`
}

// enqueuedShape is the answer to an event.
type enqueuedShape struct {
	EventID   uuid.UUID `json:"event_id"`
	Duplicate bool      `json:"duplicate" doc:"True when there was an event with the same idempotency key: event_id is its."`
}

func enqueueEvent(v *visit) error {
	var in eventInput
	if err := v.readJSON(&in); err != nil {
		return err
	}
	if !v.principal.operator {
		if in.Tenant.Set && in.Tenant.Value != v.principal.tenant {
			return badField("tenant", "cannot be chosen here")
		}
		in.Tenant.Value = v.principal.tenant
	}
	if key := v.r.Header.Get("Idempotency-Key"); key != "" {
		in.IdempotencyKey = key
	}
	res, err := v.enqueueEvent(webhook.Event{
		Tenant: in.Tenant.Value, Type: in.Type, ResourceID: in.ResourceID, ResourceVersion: in.ResourceVersion,
		IdempotencyKey: in.IdempotencyKey, Payload: in.Payload,
	})
	if err != nil {
		return err
	}
	return v.writeJSON(http.StatusAccepted, enqueuedShape{EventID: res.EventID, Duplicate: res.Duplicate})
}
