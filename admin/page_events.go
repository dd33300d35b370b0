package admin

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/outhook/webhook"
)

// eventsPageQuery is what the list of events can be limited to.
var eventsPageQuery = &operation{id: "page of events", params: []param{
	tenantParam,
	{name: "type"},
	{name: "resource"},
	{name: "within", oneOf: []string{"15m", "1h", "24h", "7d"}},
	{name: "unmatched", oneOf: []string{"yes"}},
	cursorParam,
}}

// eventsData is what the list of events shows.
type eventsData struct {
	Rows           []eventRow
	Filtered       bool
	Withins        []choice
	Matches        []choice
	Types          []EventType
	Tenant         string
	Type, Resource string
	Problem        string
	Next           string
}

// eventRow is an event in a list.
type eventRow struct {
	eventShape

	Tag tag
}

// eventsPage lists events, those too that no endpoint wanted.
func eventsPage(v *visit) error {
	if err := v.readPageQuery(eventsPageQuery); err != nil {
		return err
	}
	get := v.query.Get
	data := eventsData{
		Withins: choicesOf(get("within"), slices.Clone(withinChoices)...),
		Matches: choicesOf(get("unmatched"), choice{Value: "yes", Word: "Only those that nobody wanted"}),
		Types:   v.handler.eventTypes, Tenant: get("tenant"), Type: get("type"), Resource: get("resource"),
	}
	for name := range v.query {
		data.Filtered = data.Filtered || name != "cursor"
	}
	query := webhook.EventQuery{
		Type: data.Type, ResourceID: data.Resource, Unmatched: v.query.Has("unmatched"), From: since(get("within"), time.Now()),
		Cursor: get("cursor"), Limit: defaultPage,
	}
	page, err := v.within().Events(v.ctx(), query)
	if errors.Is(err, webhook.ErrCursor) && query.Cursor != "" && !query.From.IsZero() {
		// The time has moved on under the cursor: begin again.
		query.Cursor = ""
		page, err = v.within().Events(v.ctx(), query)
	}
	var refused *webhook.InvalidError
	if errors.As(err, &refused) && !errors.Is(err, webhook.ErrCursor) {
		data.Problem = sentence(fieldName(refused.Field) + " " + refused.Problem)
		err = nil
	}
	if err != nil {
		return err
	}
	for _, e := range page.Events {
		data.Rows = append(data.Rows, eventRow{eventOf(e), eventTag(e)})
	}
	data.Next = v.nextPage("events", page.Next)
	return v.render(http.StatusOK, "events.html", "Events", data)
}

// eventTag says how far an event has come.
func eventTag(e webhook.EventStatus) tag {
	switch {
	case !e.FannedOut:
		return tag{"info", "clock", "waiting"}
	case e.Unmatched:
		return tag{"", "info", "nobody wanted it"}
	}
	return tag{"ok", "send", "handed on"}
}
