package admin

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/admin/internal/phrase"
)

func replayPages() []route {
	return []route{
		{method: http.MethodGet, pattern: "/replays", serve: replaysPage},
		{method: http.MethodGet, pattern: "/replays/{replay_id}", serve: replayPage},
		{method: http.MethodPost, pattern: "/replays/{replay_id}/cancel", mutates: true, serve: cancelReplayForm},
		{method: http.MethodGet, pattern: "/endpoints/{endpoint_id}/replay", mutates: true, serve: replayWizard},
		{method: http.MethodPost, pattern: "/endpoints/{endpoint_id}/replay", mutates: true, serve: createReplayForm},
	}
}

var replaysPageQuery = &operation{id: "page of replays", params: []param{tenantParam, cursorParam}}

// replaysData is what the list of replays shows.
type replaysData struct {
	Rows   []replayRow
	Tenant string
	Next   string
}

// replayRow is a replay job in words.
type replayRow struct {
	webhook.ReplayJob

	Tag      tag
	Endpoint string
	What     string
	Running  bool
	Begun    string // how many runs
	Skipped  string
}

func (v *visit) replayRow(job webhook.ReplayJob) (replayRow, error) {
	row := replayRow{ReplayJob: job, Tag: replayTag(job.State), What: replayInWords(job.ReplayJobRequest), Running: job.State == webhook.ReplayRunning}
	row.Begun = phrase.Plural(int64(job.Created), "delivery", "deliveries") + " made"
	if n := job.Handled - job.Created; n > 0 {
		row.Skipped = phrase.Number(int64(n)) + " passed by: being sent already, or no longer stored"
	}
	e, err := v.view.Endpoint(v.ctx(), job.EndpointID)
	if err != nil && v.problemOf(err).Status != http.StatusNotFound {
		return row, err
	}
	row.Endpoint = v.url(e.URL)
	return row, nil
}

func replayTag(state webhook.ReplayJobState) tag {
	switch state {
	case webhook.ReplayRunning:
		return tag{"info", "retry", "running"}
	case webhook.ReplayDone:
		return tag{"ok", "check", "done"}
	case webhook.ReplayFailed:
		return tag{"bad", "cross", "failed"}
	case webhook.ReplayCancelled:
	}
	return tag{"", "stop", "cancelled"}
}

// replayInWords says what a job replays.
func replayInWords(r webhook.ReplayJobRequest) string {
	what := "what did not arrive"
	if len(r.States) > 0 {
		states := make([]string, len(r.States))
		for i, s := range r.States {
			states[i] = deliveryTag(webhook.Delivery{State: s}).Word
		}
		what = strings.Join(states, ", ")
	}
	if r.Rematch {
		what += ", and events that it has not had"
	}
	if len(r.Types) > 0 {
		what += " of " + strings.Join(r.Types, ", ")
	}
	for _, limit := range []struct {
		word string
		at   time.Time
	}{{", enqueued from ", r.EventsFrom}, {", enqueued until ", r.EventsTo}, {", ended from ", r.FinishedFrom}, {", ended until ", r.FinishedTo}} {
		if !limit.at.IsZero() {
			what += limit.word + limit.at.UTC().Format("2 Jan 15:04")
		}
	}
	return what
}

func replaysPage(v *visit) error {
	if err := v.readPageQuery(replaysPageQuery); err != nil {
		return err
	}
	from, err := v.readCursor()
	if err != nil {
		return err
	}
	list, err := v.within().Replays(v.ctx(), webhook.ListReplayJobsParams{Before: from, Limit: defaultPage + 1})
	if err != nil {
		return err
	}
	data := replaysData{Tenant: v.query.Get("tenant")}
	if len(list) > defaultPage {
		list = list[:defaultPage]
		data.Next = v.nextPage("replays", v.cursor(list[defaultPage-1].ID))
	}
	for _, job := range list {
		row, err := v.replayRow(job)
		if err != nil {
			return err
		}
		data.Rows = append(data.Rows, row)
	}
	return v.render(http.StatusOK, "replays.html", "Replays", data)
}

func replayPage(v *visit) error {
	id, err := v.id("replay_id")
	if err != nil {
		return err
	}
	job, err := v.view.Replay(v.ctx(), id)
	if err != nil {
		return err
	}
	row, err := v.replayRow(job)
	if err != nil {
		return err
	}
	return v.render(http.StatusOK, "replay.html", "Replay", row)
}

func cancelReplayForm(v *visit) error {
	id, err := v.id("replay_id")
	if err != nil {
		return err
	}
	if _, err := v.cancelReplay(id); err != nil {
		return err
	}
	return v.redirect("replays/" + id.String() + "?done=cancelled")
}

// wizardData is what the replay wizard shows.
type wizardData struct {
	Endpoint endpointName
	Disabled bool
	Windows  []choice
	What     []choice
	From, To formField
	Types    formField
	Rate     formField
	Problem  string
	Counted  bool
	Count    string
	Rematch  string // how many are there only because the patterns match
	None     bool
	Hidden   []namedValue // the form's answers, to be posted
}

// replayWizard asks what to replay, counts it, and offers to begin.
func replayWizard(v *visit) error {
	e, err := v.endpointOfPath()
	if err != nil {
		return err
	}
	query := v.r.URL.Query()
	data := v.wizard(e, query, nil)
	if !query.Has("count") || data.Disabled {
		return v.render(http.StatusOK, "replay_wizard.html", "Replay deliveries", data)
	}
	r, err := wizardRequest(e.ID, query, time.Now())
	if err == nil {
		var estimate webhook.ReplayEstimate
		if estimate, err = v.view.EstimateReplay(v.ctx(), r); err == nil {
			data.Counted, data.None = true, estimate.Matched == 0
			data.Count = phrase.Plural(int64(estimate.Matched), "delivery", "deliveries")
			if estimate.Rematched > 0 {
				data.Rematch = phrase.Number(int64(estimate.Rematched)) + " of them are events that the log has no delivery of, which the endpoint wants now."
			}
			// What was counted is what is begun, however long somebody looks at it.
			for name, value := range frozen(query, r) {
				data.Hidden = append(data.Hidden, namedValue{name, value})
			}
		}
	}
	if err != nil {
		errors, ok := v.fieldErrors(err)
		if !ok {
			return err
		}
		return v.render(http.StatusUnprocessableEntity, "replay_wizard.html", "Replay deliveries", v.wizard(e, query, errors))
	}
	return v.render(http.StatusOK, "replay_wizard.html", "Replay deliveries", data)
}

// frozen are the wizard's answers with the window as fixed times.
func frozen(query url.Values, r webhook.ReplayJobRequest) map[string]string {
	answers := map[string]string{"window": "custom", "what": query.Get("what"), "types": query.Get("types"), "per_second": query.Get("per_second")}
	if !r.EventsFrom.IsZero() {
		answers["from"] = r.EventsFrom.UTC().Format(time.RFC3339)
	}
	if !r.EventsTo.IsZero() {
		answers["to"] = r.EventsTo.UTC().Format(time.RFC3339)
	}
	return answers
}

func (v *visit) wizard(e webhook.Endpoint, query url.Values, errors map[string]string) wizardData {
	window, what := query.Get("window"), query.Get("what")
	if window == "" {
		window = "24h"
	}
	if what == "" {
		what = "undelivered"
	}
	data := wizardData{
		Endpoint: v.endpointName(e), Disabled: e.State == webhook.EndpointDisabled,
		Windows: choicesOf(window,
			choice{Value: "1h", Word: "The last hour"},
			choice{Value: "24h", Word: "The last 24 hours"},
			choice{Value: "7d", Word: "The last 7 days"},
			choice{Value: "all", Word: "All that is still stored"},
			choice{Value: "custom", Word: "From and until", Hint: "the times below, in UTC"},
		),
		What: choicesOf(what,
			choice{Value: "undelivered", Word: "What did not arrive", Hint: "failed, cancelled and shed"},
			choice{Value: "all", Word: "Everything", Hint: "what was delivered too: the receiver gets it a second time"},
			choice{Value: "missing", Word: "What did not arrive, and what it has never had", Hint: "events from before it existed, if it wants them now"},
		),
		From:  formField{Name: "from", Label: "From, UTC", Type: "datetime-local", Value: localTime(query.Get("from")), Error: errors["events_from"]},
		To:    formField{Name: "to", Label: "Until, UTC", Type: "datetime-local", Value: localTime(query.Get("to")), Error: errors["events_to"]},
		Types: formField{Name: "types", Label: "Event types", Value: query.Get("types"), Hint: "Patterns, separated by spaces. Empty means all.", Error: errors["types"]},
		Rate:  formField{Name: "per_second", Label: "At most, a second", Value: query.Get("per_second"), Hint: "Empty leaves it to the endpoint’s limits. Replays never take more than a tenth of its slots.", Error: errors["per_second"]},
	}
	data.Problem = leftOver(errors, []formField{{Name: "events_from"}, {Name: "events_to"}, data.Types, data.Rate})
	return data
}

// localTime is a time as the field of a form has it.
func localTime(text string) string {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t.UTC().Format("2006-01-02T15:04")
	}
	return text
}

// wizardRequest makes a request of the wizard's answers.
func wizardRequest(endpoint uuid.UUID, query url.Values, now time.Time) (webhook.ReplayJobRequest, error) {
	r := webhook.ReplayJobRequest{EndpointID: endpoint, Types: strings.Fields(query.Get("types"))}
	spans := map[string]time.Duration{"1h": time.Hour, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour}
	switch window := query.Get("window"); window {
	case "1h", "24h", "7d":
		r.EventsFrom, r.EventsTo = now.Add(-spans[window]), now
	case "custom":
		var err error
		if r.EventsFrom, err = wizardTime("events_from", query.Get("from")); err != nil {
			return r, err
		}
		if r.EventsTo, err = wizardTime("events_to", query.Get("to")); err != nil {
			return r, err
		}
	default:
		r.EventsTo = now
	}
	switch query.Get("what") {
	case "all":
		r.States = []webhook.DeliveryState{webhook.StateDelivered, webhook.StateDead, webhook.StateCancelled, webhook.StateShed}
	case "missing":
		r.Rematch = true
		if r.EventsFrom.IsZero() {
			r.EventsFrom = now.AddDate(-1, 0, 0) // longer than events are kept as a rule
		}
	}
	if rate := strings.TrimSpace(query.Get("per_second")); rate != "" {
		n, err := strconv.Atoi(rate)
		if err != nil || n <= 0 {
			return r, badField("per_second", "is no whole number over 0")
		}
		r.PerSecond = n
	}
	return r, nil
}

func wizardTime(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if t, err := time.ParseInLocation(layout, text, time.UTC); err == nil {
			return t, nil
		}
	}
	return time.Time{}, badField(name, "is no date and time")
}

// createReplayForm begins what was counted.
func createReplayForm(v *visit) error {
	e, err := v.endpointOfPath()
	if err != nil {
		return err
	}
	form, err := v.form()
	if err != nil {
		return err
	}
	r, err := wizardRequest(e.ID, form, time.Now())
	if err != nil {
		return err
	}
	job, err := v.createReplay(r)
	if err != nil {
		return err
	}
	return v.redirect("replays/" + job.ID.String() + "?done=replaying")
}
