package admin

import (
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/admin/internal/phrase"
)

// overviewData is what the first page shows.
type overviewData struct {
	None        bool // no endpoint yet
	Partial     bool
	Statement   statement
	Counts      []countFigure
	Figures     []figure
	Chart       timeChart
	Ranges      []choice
	Trouble     []endpointRow
	MoreTrouble bool
	Failed      deliveryTable
	Recent      deliveryTable
	Notices     []noticeRow
	Dispatchers []dispatcherRow
}

// countFigure is a number of endpoints that leads to them.
type countFigure struct {
	Tag    tag
	Value  string
	Link   string
	Nobody bool
}

// dispatcherRow is a dispatcher at work.
type dispatcherRow struct {
	webhook.DispatcherStatus

	Short string
}

// shownTrouble is how many failing endpoints the overview lists.
const shownTrouble = 6

// overviewPage is the first page: how everything fares.
func overviewPage(v *visit) error {
	window, length := "hour", time.Hour
	if v.r.URL.Query().Get("range") == "day" {
		window, length = "day", 24*time.Hour
	}
	o, err := v.view.Overview(v.ctx(), webhook.OverviewParams{For: length})
	if err != nil {
		return err
	}
	data := overviewData{
		None: o.Endpoints == webhook.EndpointCounts{}, Partial: o.Partial, Counts: countFigures(o.Endpoints),
		Figures: overviewFigures(o, window), Chart: newActivityChart("activity", o.Buckets), Ranges: rangeChoices(window),
		Statement: overviewInWords(o),
	}
	if data.None {
		return v.render(http.StatusOK, "overview.html", "Overview", data)
	}
	for _, d := range o.Dispatchers {
		data.Dispatchers = append(data.Dispatchers, dispatcherRow{d, d.ID.String()[24:]})
	}
	if err := v.addTrouble(&data); err != nil {
		return err
	}
	failed, err := v.view.Deliveries(v.ctx(), webhook.DeliveryQuery{State: webhook.StateDead, Limit: 5})
	if err != nil {
		return err
	}
	if data.Failed, err = v.deliveryTable(failed.Deliveries, true); err != nil {
		return err
	}
	recent, err := v.view.Deliveries(v.ctx(), webhook.DeliveryQuery{Limit: 8})
	if err != nil {
		return err
	}
	if data.Recent, err = v.deliveryTable(recent.Deliveries, true); err != nil {
		return err
	}
	return v.render(http.StatusOK, "overview.html", "Overview", data)
}

// addTrouble adds the endpoints that fail, and what was noticed of late.
func (v *visit) addTrouble(data *overviewData) error {
	failing, err := v.view.Healths(v.ctx(), webhook.ListHealthParams{Failing: true, Limit: shownTrouble + 1})
	if err != nil {
		return err
	}
	if len(failing) > shownTrouble {
		failing, data.MoreTrouble = failing[:shownTrouble], true
	}
	endpoints, err := v.endpointsOf(failing, uuid.Nil, true)
	if err != nil {
		return err
	}
	now := time.Now()
	for _, h := range failing {
		if e, ok := endpoints[h.EndpointID]; ok {
			data.Trouble = append(data.Trouble, v.endpointRow(e, h, now))
		}
	}
	notices, err := v.view.Notices(v.ctx(), webhook.ListNoticesParams{Limit: 6})
	if err != nil {
		return err
	}
	names := v.endpointNames()
	for _, n := range notices {
		name, err := names(n.EndpointID)
		if err != nil {
			return err
		}
		data.Notices = append(data.Notices, noticeRow{At: n.CreatedAt, Word: noticeInWords(n), ID: n.EndpointID.String(), Name: name})
	}
	return nil
}

// overviewInWords says how everything fares, in a sentence.
func overviewInWords(o webhook.HealthOverview) statement {
	failing, all := int64(o.Endpoints.Failing), int64(o.Endpoints.Active)
	switch {
	case failing > 0:
		return statement{"bad", "cross", phrase.Plural(failing, "endpoint fails", "endpoints fail"), " of " + phrase.Number(all) + " that are active. The others are not delayed by it."}
	case o.OldestReadyAgeHealthy > time.Minute:
		return statement{"warn", "clock", "Deliveries to healthy endpoints wait", ", the oldest for " + phrase.Span(o.OldestReadyAgeHealthy) + "."}
	case o.Total.Attempts == 0:
		return statement{"still", "clock", "All quiet", ": nothing was sent in this time."}
	case o.Endpoints.Unsteady > 0:
		return statement{"warn", "wave", phrase.Plural(int64(o.Endpoints.Unsteady), "endpoint is unsteady", "endpoints are unsteady"), ": some of their latest attempts failed, but not the last one."}
	}
	return statement{"ok", "check", "All is well", ": every active endpoint accepts what it gets."}
}

func countFigures(c webhook.EndpointCounts) []countFigure {
	list := []countFigure{
		{Tag: tag{"ok", "check", "Healthy"}, Value: phrase.Number(int64(c.Active - c.Failing - c.Unsteady)), Link: "endpoints"},
		{Tag: tag{"warn", "wave", "Unsteady"}, Value: phrase.Number(int64(c.Unsteady)), Link: "endpoints?health=unwell", Nobody: c.Unsteady == 0},
		{Tag: tag{"bad", "cross", "Failing"}, Value: phrase.Number(int64(c.Failing)), Link: "endpoints?health=failing", Nobody: c.Failing == 0},
	}
	if n := c.Paused + c.Disabled; n > 0 {
		list = append(list, countFigure{Tag: tag{"still", "pause", "Paused or disabled"}, Value: phrase.Number(int64(n)), Link: "endpoints"})
	}
	return list
}

func overviewFigures(o webhook.HealthOverview, window string) []figure {
	span := "in the last hour"
	if window == "day" {
		span = "in the last 24 hours"
	}
	ready := figure{Label: "Oldest ready", Value: "–", Note: "nothing waits"}
	if o.OldestReadyAge > 0 {
		ready.Value, ready.Note = phrase.Span(o.OldestReadyAge.Round(time.Second)), phrase.Span(o.OldestReadyAgeHealthy.Round(time.Second))+" for healthy ones"
		if o.OldestReadyAgeHealthy > time.Minute {
			ready.Class = "warn"
		}
	}
	dead := figure{Label: "Failed for good", Value: phrase.Number(o.Total.Dead), Note: span}
	if o.Total.Dead > 0 {
		dead.Class = "bad"
	}
	return []figure{
		{Label: "Delivered", Value: phrase.Number(o.Total.Delivered), Note: span},
		{Label: "Success", Value: successInWords(o.Total), Note: phrase.Plural(o.Total.Attempts, "attempt", "attempts")},
		dead,
		ready,
	}
}
