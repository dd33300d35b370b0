package admin

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/admin/internal/chart"
	"github.com/outhook/webhook/admin/internal/phrase"
)

func (h *Handler) endpointPages() []route {
	const one = "/endpoints/{endpoint_id}"
	routes := []route{
		{method: http.MethodGet, pattern: "/endpoints", serve: endpointsPage},
		{method: http.MethodGet, pattern: one, serve: endpointPage},
		{method: http.MethodPost, pattern: one + "/test", mutates: true, serve: testForm},
		{method: http.MethodPost, pattern: one + "/pause", mutates: true, serve: pauseForm},
		{method: http.MethodPost, pattern: one + "/resume", mutates: true, serve: resumeForm},
		{method: http.MethodPost, pattern: one + "/enable", mutates: true, serve: enableForm},
		{method: http.MethodGet, pattern: one + "/delete", mutates: true, serve: deletePage},
		{method: http.MethodPost, pattern: one + "/delete", mutates: true, serve: deleteForm},
	}
	if h.operators {
		routes = append(
			routes,
			route{method: http.MethodGet, pattern: one + "/disable", mutates: true, serve: disablePage},
			route{method: http.MethodPost, pattern: one + "/disable", mutates: true, serve: disableForm},
		)
	}
	return routes
}

var endpointsPageQuery = &operation{id: "page of endpoints", params: []param{tenantParam, {name: "health", oneOf: []string{"failing", "unwell"}}, cursorParam}}

// endpointsData is what the list of endpoints shows.
type endpointsData struct {
	Rows     []endpointRow
	Filtered bool
	Choices  []choice
	Tenant   string
	Count    string
	Next     string
}

// endpointRow is an endpoint in a list.
type endpointRow struct {
	endpointShape

	Tag          tag
	Note         string
	TypesInWords string
	Spark        chart.Bars
	SparkLabel   string
	Success      string
	Waiting      string
	LastSuccess  time.Time
}

func (v *visit) endpointRow(e webhook.Endpoint, h webhook.EndpointHealth, now time.Time) endpointRow {
	row := endpointRow{
		endpointShape: v.endpoint(e), Tag: healthTag(h), TypesInWords: typesInWords(e.Types),
		Success: successInWords(h.Day), LastSuccess: h.LastSuccessAt, Waiting: "–",
	}
	row.Spark, row.SparkLabel = sparkline(h, now)
	if h.Backlog > 0 {
		row.Waiting = backlog(h)
	}
	switch {
	case e.State != webhook.EndpointActive:
		row.Note = "since " + phrase.Since(e.StateChangedAt, now)
	case h.Circuit.State == webhook.CircuitOpen:
		row.Note = probeInWords(h.Circuit.NextProbeAt, now)
	case h.Status == webhook.HealthFailing || h.Status == webhook.HealthUnsteady:
		row.Note = answerTag(h.LastStatus, h.LastClass).Word
	}
	return row
}

// endpointTag says whether an endpoint is sent to.
func endpointTag(state webhook.EndpointState) tag {
	switch state {
	case webhook.EndpointPaused:
		return tag{"", "pause", "paused"}
	case webhook.EndpointDisabled:
		return tag{"", "stop", "disabled"}
	case webhook.EndpointActive:
	}
	return tag{"ok", "check", "active"}
}

// healthChoices are what the list can be limited to.
var healthChoices = []choice{{Value: "failing", Word: "Failing"}, {Value: "unwell", Word: "Failing or unsteady"}}

func endpointsPage(v *visit) error {
	if err := v.readPageQuery(endpointsPageQuery); err != nil {
		return err
	}
	from, err := v.readCursor()
	if err != nil {
		return err
	}
	data := endpointsData{
		Tenant: v.query.Get("tenant"), Filtered: v.query.Has("tenant") || v.query.Has("health"),
		Choices: choicesOf(v.query.Get("health"), slices.Clone(healthChoices)...),
	}
	health, err := v.within().Healths(v.ctx(), webhook.ListHealthParams{
		After: from, Limit: defaultPage + 1, Failing: v.query.Get("health") == "failing", Unwell: v.query.Get("health") == "unwell",
	})
	if err != nil {
		return err
	}
	if len(health) > defaultPage {
		health = health[:defaultPage]
		data.Next = v.nextPage("endpoints", v.cursor(health[defaultPage-1].EndpointID))
	}
	endpoints, err := v.endpointsOf(health, from, data.Filtered)
	if err != nil {
		return err
	}
	now := time.Now()
	for _, h := range health {
		if e, ok := endpoints[h.EndpointID]; ok {
			data.Rows = append(data.Rows, v.endpointRow(e, h, now))
		}
	}
	data.Count = phrase.Plural(int64(len(data.Rows)), "endpoint", "endpoints")
	return v.render(http.StatusOK, "endpoints.html", "Endpoints", data)
}

// endpointsOf are the endpoints whose health was read; one may have been deleted since.
func (v *visit) endpointsOf(health []webhook.EndpointHealth, from uuid.UUID, scattered bool) (map[uuid.UUID]webhook.Endpoint, error) {
	endpoints := make(map[uuid.UUID]webhook.Endpoint, len(health))
	if !scattered {
		list, err := v.within().Endpoints(v.ctx(), from, len(health))
		for _, e := range list {
			endpoints[e.ID] = e
		}
		return endpoints, err
	}
	for _, h := range health {
		e, err := v.view.Endpoint(v.ctx(), h.EndpointID)
		if errors.Is(err, webhook.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		endpoints[e.ID] = e
	}
	return endpoints, nil
}

// endpointData is what the page of an endpoint shows.
type endpointData struct {
	endpointShape

	Tag          tag
	TypesInWords string
	Recent       deliveryTable
	Settings     []namedValue
	Health       statement
	Advice       []statement
	Figures      []figure
	Chart        timeChart
	Latencies    timeChart
	Ranges       []choice
	Answers      []meterRow
	Latency      []meterRow
	Notices      []noticeRow
	TestTypes    []choice
}

// figure is a number with its name.
type figure struct {
	Label, Value, Note, Class string
}

// recentDeliveries is how many deliveries the page of an endpoint lists.
const recentDeliveries = 10

func endpointPage(v *visit) error {
	e, err := v.endpointOfPath()
	if err != nil {
		return err
	}
	h, err := v.view.Health(v.ctx(), e.ID)
	if err != nil {
		return err
	}
	now := time.Now()
	data := endpointData{
		endpointShape: v.endpoint(e), Tag: healthTag(h), TypesInWords: typesInWords(e.Types), Settings: settingsInWords(e),
		Health: healthInWords(e, h, now), Advice: advice(h, now), Answers: answersMeter(h.Day),
		Latency: latencyMeter(h, endpointTimeout(e)), Figures: healthFigures(h, now), TestTypes: v.testTypes(e),
	}
	window, buckets := "hour", withoutGaps(h.Series, hourBucket, hourBuckets, now)
	if v.r.URL.Query().Get("range") == "day" {
		window, buckets = "day", withoutGaps(h.Hourly, dayBucket, dayBuckets, now)
	}
	data.Ranges = rangeChoices(window)
	data.Chart, data.Latencies = newActivityChart("activity", buckets), newLatencyChart("latencies", buckets)
	notices, err := v.view.Notices(v.ctx(), webhook.ListNoticesParams{EndpointID: e.ID, Limit: 6})
	if err != nil {
		return err
	}
	for _, n := range notices {
		data.Notices = append(data.Notices, noticeRow{At: n.CreatedAt, Word: noticeInWords(n)})
	}
	list, err := v.view.Deliveries(v.ctx(), webhook.DeliveryQuery{EndpointID: e.ID, Limit: recentDeliveries})
	if err != nil {
		return err
	}
	if data.Recent, err = v.deliveryTable(list.Deliveries, false); err != nil {
		return err
	}
	return v.render(http.StatusOK, "endpoint.html", v.url(e.URL), data)
}

// endpointTimeout is how long an attempt may take, as far as can be known here.
func endpointTimeout(e webhook.Endpoint) time.Duration {
	if e.Timeout > 0 {
		return e.Timeout
	}
	return webhook.DefaultRequestTimeout
}

func rangeChoices(chosen string) []choice {
	return choicesOf(chosen, choice{Value: "hour", Word: "Last hour"}, choice{Value: "day", Word: "24 hours"})
}

// healthFigures are the numbers at the head of an endpoint's page.
func healthFigures(h webhook.EndpointHealth, now time.Time) []figure {
	score := figure{Label: "Health score", Value: strconv.Itoa(h.Score), Note: "of 100"}
	if h.Status == webhook.HealthUnknown {
		score.Value, score.Note = "–", "nothing sent yet"
	}
	waiting := figure{Label: "Waiting", Value: "0", Note: "nothing is due"}
	if h.Backlog > 0 {
		waiting.Value, waiting.Note = backlog(h), "none of them is due yet"
		if h.Lag > 0 {
			waiting.Note = "the oldest for " + phrase.Span(h.Lag)
		}
	}
	dead := figure{Label: "Failed for good", Value: phrase.Number(h.DeadCount), Note: "in 30 days"}
	if h.DeadCount > 0 {
		dead.Class = "bad"
	}
	return []figure{
		score,
		{Label: "Success, 1 h", Value: successInWords(h.Hour), Note: phrase.Plural(h.Hour.Attempts, "attempt", "attempts")},
		{Label: "Success, 24 h", Value: successInWords(h.Day), Note: phrase.Plural(h.Day.Attempts, "attempt", "attempts")},
		waiting,
		dead,
		{Label: "Last success", Value: phrase.Ago(h.LastSuccessAt, now), Note: lastTime(h.LastSuccessAt, now)},
	}
}

func lastTime(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return "at " + phrase.Since(t, now)
}

// settingsInWords are the settings that are not the defaults.
func settingsInWords(e webhook.Endpoint) []namedValue {
	var lines []namedValue
	add := func(name, value string, ok bool) {
		if ok {
			lines = append(lines, namedValue{name, value})
		}
	}
	add("Timeout", phrase.Span(e.Timeout), e.Timeout > 0)
	add("Rate", phrase.Number(int64(e.RateLimit))+" a second", e.RateLimit >= 1)
	add("Rate", "one in "+phrase.Span(time.Duration(float64(time.Second)/max(e.RateLimit, 1e-6))), e.RateLimit > 0 && e.RateLimit < 1)
	add("Burst", phrase.Number(int64(e.Burst)), e.Burst > 0)
	add("At the same time", phrase.Number(int64(e.MaxInFlight)), e.MaxInFlight > 0)
	add("Sheds above", phrase.Number(int64(e.ShedBacklog))+" waiting", e.ShedBacklog > 0)
	add("Sheds", "nothing, as far as its plan allows", e.ShedBacklog < 0)
	add("Order", "newest first", e.NewestFirst)
	add("Adaptive rate", "on", e.AdaptiveRate)
	add("Certificates", "its own", !e.TLS.IsZero())
	return lines
}

// testForm sends a test event and leads to what came of it.
func testForm(v *visit) error {
	e, err := v.endpointOfPath()
	if err != nil {
		return err
	}
	form, err := v.form()
	if err != nil {
		return err
	}
	kind := form.Get("type")
	if kind == "" {
		kind = v.testTypes(e)[0].Value
	}
	a, err := v.testEndpoint(e.ID, kind)
	if err != nil {
		return err
	}
	return v.redirect("deliveries/" + a.DeliveryID.String() + "?done=tested")
}

// testTypes are the types that a test event of an endpoint can have: those that it
// wants, as far as they are known.
func (v *visit) testTypes(e webhook.Endpoint) []choice {
	var list []choice
	add := func(name string) {
		if !slices.ContainsFunc(list, func(c choice) bool { return c.Value == name }) {
			list = append(list, choice{Value: name, Word: name})
		}
	}
	for _, t := range v.handler.eventTypes {
		for _, pattern := range e.Types {
			prefix, whole := strings.CutSuffix(pattern, "*")
			if pattern == t.Name || whole && strings.HasPrefix(t.Name, prefix) {
				add(t.Name)
			}
		}
	}
	for _, pattern := range e.Types {
		if !strings.HasSuffix(pattern, "*") {
			add(pattern)
		}
	}
	if len(list) == 0 {
		add("test")
	}
	return list
}

func pauseForm(v *visit) error {
	return v.endpointAction("paused", func(id uuid.UUID) error {
		_, err := v.pauseEndpoint(id, "paused by "+v.byWhom())
		return err
	})
}

func resumeForm(v *visit) error {
	return v.endpointAction("resumed", func(id uuid.UUID) error { _, err := v.resumeEndpoint(id); return err })
}

func enableForm(v *visit) error {
	return v.endpointAction("enabled", func(id uuid.UUID) error { _, err := v.enableEndpoint(id); return err })
}

// byWhom says who does something, to the tenant too: who an operator is, is none of
// its business.
func (v *visit) byWhom() string {
	if v.principal.operator {
		return "an operator"
	}
	return v.principal.name
}

// endpointAction does something to the endpoint of the path and leads back to it.
func (v *visit) endpointAction(done string, act func(uuid.UUID) error) error {
	id, err := v.id("endpoint_id")
	if err != nil {
		return err
	}
	if err := act(id); err != nil {
		return err
	}
	return v.redirect("endpoints/" + id.String() + "?done=" + done)
}

// confirmData asks whether somebody means it.
type confirmData struct {
	endpointName

	Action, Question, Consequence, Submit, Class, Button string

	Reason *formField
}

func (v *visit) confirm(title string, data confirmData) error {
	e, err := v.endpointOfPath()
	if err != nil {
		return err
	}
	data.endpointName = v.endpointName(e)
	data.Action = "endpoints/" + e.ID.String() + "/" + data.Action
	return v.render(http.StatusOK, "confirm.html", title, data)
}

func deletePage(v *visit) error {
	return v.confirm("Delete the endpoint", confirmData{
		Action: "delete", Class: "bad", Button: "danger", Submit: "Delete it", Question: "Delete this endpoint for ever?",
		Consequence: "Nothing is sent to it any more, and what waits for it is cancelled. The log of its deliveries stays. To stop for a while, pause it instead.",
	})
}

func deleteForm(v *visit) error {
	id, err := v.id("endpoint_id")
	if err != nil {
		return err
	}
	if err := v.deleteEndpoint(id); err != nil {
		return err
	}
	return v.redirect("endpoints?done=deleted")
}

func disablePage(v *visit) error {
	return v.confirm("Disable the endpoint", confirmData{
		Action: "disable", Class: "warn", Button: "danger", Submit: "Disable it", Question: "Disable this endpoint?",
		Consequence: "What waits for it, and what comes in the meantime, is cancelled and can be replayed. Its tenant cannot enable it again.",
		Reason:      &formField{Name: "reason", Label: "Reason", Hint: "The tenant sees it."},
	})
}

func disableForm(v *visit) error {
	form, err := v.form()
	if err != nil {
		return err
	}
	return v.endpointAction("disabled", func(id uuid.UUID) error {
		_, err := v.disableEndpoint(id, form.Get("reason"))
		return err
	})
}
