package admin

import (
	"net/http"

	"github.com/outhook/webhook"
)

// maxKeyBytes is the longest Idempotency-Key.
const maxKeyBytes = 255

// operation describes a route of the API: what of the request is read, and what
// becomes the OpenAPI document.
type operation struct {
	id      string // operationId
	tag     string
	summary string
	// operators is true of what the portal does not have.
	operators bool
	params    []param
	// creates is true where a request may carry an Idempotency-Key.
	creates bool
	// precondition is true where a request may carry If-Match.
	precondition bool
	// request is a shape; nil where there is no body. optionalBody may be left out.
	request      any
	optionalBody bool
	// status and response are those of success; response is a shape, or nil.
	status   int
	response any
	// media is the media type of a response that is no JSON.
	media string
	// etag is true where the answer carries one.
	etag bool
	// problems are statuses of refusals, besides those that every operation has.
	problems []int
}

// apiRoutes are the routes below api/.
func (h *Handler) apiRoutes() []route {
	routes := []route{
		{method: http.MethodGet, pattern: "/api/openapi.json", serve: getOpenAPI, op: &operation{
			id: "getOpenAPI", tag: "about", summary: "This document.", status: 200, response: anyObject{},
		}},
		{method: http.MethodGet, pattern: "/api/event-types", serve: listEventTypes, op: &operation{
			id: "listEventTypes", tag: "event types", summary: "The event types that the host tells of.", status: 200, response: listShape[EventType]{},
		}},
	}
	routes = append(routes, endpointRoutes()...)
	routes = append(routes, deliveryRoutes()...)
	routes = append(routes, replayRoutes()...)
	routes = append(routes, healthRoutes()...)
	routes = append(routes, h.eventRoutes()...)
	kept := routes[:0]
	for _, rt := range routes {
		if !rt.op.operators || h.operators {
			kept = append(kept, rt)
		}
	}
	return kept
}

func listEventTypes(v *visit) error {
	types := v.handler.eventTypes
	if types == nil {
		types = []EventType{}
	}
	return v.writeJSON(http.StatusOK, listShape[EventType]{Items: types})
}

// The states that filters take.
var deliveryStates = []string{
	string(webhook.StatePending), string(webhook.StateInFlight), string(webhook.StateDelivered),
	string(webhook.StateDead), string(webhook.StateCancelled), string(webhook.StateShed),
}
