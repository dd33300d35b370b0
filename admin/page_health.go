package admin

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/admin/internal/chart"
	"github.com/outhook/webhook/admin/internal/phrase"
)

// healthTag says how an endpoint fares: whether it is sent to at all comes first.
func healthTag(h webhook.EndpointHealth) tag {
	switch {
	case h.State != webhook.EndpointActive:
		return endpointTag(h.State)
	case h.Circuit.State == webhook.CircuitOpen:
		return tag{"bad", "cross", "circuit open"}
	case h.Circuit.State == webhook.CircuitHalfOpen:
		return tag{"warn", "retry", "probing"}
	}
	switch h.Status {
	case webhook.HealthFailing:
		return tag{"bad", "cross", "failing"}
	case webhook.HealthUnsteady:
		return tag{"warn", "wave", "unsteady"}
	case webhook.HealthHealthy:
		return tag{"ok", "check", "healthy"}
	case webhook.HealthUnknown:
	}
	return tag{"", "dot", "quiet"}
}

// statement is a sentence on how something fares: a bold beginning, and the rest.
type statement struct {
	Class, Icon, Bold, Rest string
}

// healthInWords says how an endpoint fares: "Circuit open since 14:02, next probe in 3
// min, 1,204 waiting."
func healthInWords(e webhook.Endpoint, h webhook.EndpointHealth, now time.Time) statement {
	waiting := waitingInWords(h)
	since := phrase.Since(e.StateChangedAt, now)
	switch {
	case e.State == webhook.EndpointDisabled:
		return statement{"still", "stop", "Disabled since " + since, because(e.StateReason) + ". What comes in the meantime is cancelled and can be replayed."}
	case e.State == webhook.EndpointPaused:
		return statement{"still", "pause", "Paused since " + since, because(e.StateReason) + ", " + waiting + "."}
	case h.Circuit.State == webhook.CircuitOpen:
		probe := probeInWords(h.Circuit.NextProbeAt, now)
		return statement{"bad", "cross", "Circuit open since " + phrase.Since(h.Circuit.Since, now), ", " + probe + ", " + waiting + ". It failed too often, so it is left alone for a while; waiting uses up no attempt."}
	case h.Circuit.State == webhook.CircuitHalfOpen:
		return statement{"warn", "retry", "Circuit half open since " + phrase.Since(h.Circuit.NextProbeAt, now), ", the next delivery is a probe, " + waiting + "."}
	}
	switch h.Status {
	case webhook.HealthFailing:
		return statement{"bad", "cross", "Failing since " + phrase.Since(firstTime(h.FailingSince, h.LastFailureAt), now), ": " + failuresInWords(h) + ", " + waiting + "."}
	case webhook.HealthUnsteady:
		return statement{"warn", "wave", "Unsteady", ": some of the latest 20 attempts failed, the last one " + phrase.Ago(h.LastFailureAt, now) + with(answerTag(h.LastStatus, h.LastClass).Word) + "; the latest succeeded, " + waiting + "."}
	case webhook.HealthHealthy:
		rest := ", last success " + phrase.Ago(h.LastSuccessAt, now)
		if h.LatencySamples > 0 {
			rest += ", answering in " + phrase.Span(h.LatencyP50)
		}
		return statement{"ok", "check", "Healthy", rest + ", " + waiting + "."}
	case webhook.HealthUnknown:
	}
	return statement{"still", "clock", "Quiet", ": nothing has been sent to it yet, " + waiting + "."}
}

func with(what string) string {
	if what == "" {
		return ""
	}
	return " (" + what + ")"
}

func firstTime(times ...time.Time) time.Time {
	for _, t := range times {
		if !t.IsZero() {
			return t
		}
	}
	return time.Time{}
}

func failuresInWords(h webhook.EndpointHealth) string {
	last := answerTag(h.LastStatus, h.LastClass).Word
	if h.ConsecutiveFailures > 1 {
		return "the latest " + phrase.Number(h.ConsecutiveFailures) + " attempts failed" + with(last)
	}
	return "the latest attempt failed" + with(last)
}

// waitingInWords says how many deliveries wait, and for how long the first of them does.
func waitingInWords(h webhook.EndpointHealth) string {
	if h.Backlog == 0 {
		return "nothing waiting"
	}
	words := backlog(h) + " waiting"
	if h.Lag >= time.Minute {
		words += " (the oldest for " + phrase.Span(h.Lag) + ")"
	}
	return words
}

func backlog(h webhook.EndpointHealth) string {
	if h.BacklogCapped {
		return "more than " + phrase.Number(int64(h.Backlog))
	}
	return phrase.Number(int64(h.Backlog))
}

// advice is what to do about an endpoint that fares badly in a way that one can know.
func advice(h webhook.EndpointHealth, now time.Time) []statement {
	var list []statement
	if c := h.ConfigurationError; c != nil {
		s := statement{"warn", "warn", "This looks like a setting.", fmt.Sprintf(" Nearly all failures are %d %s. %s", c.Status, http.StatusText(c.Status), adviceFor(c.Status, webhook.ClassHTTP4xx))}
		if !c.RotatedAt.IsZero() {
			s.Bold = "The receiver may not know the new secret."
			s.Rest = fmt.Sprintf(" It began to refuse with %d shortly after the signing secret was rotated, %s.", c.Status, phrase.Ago(c.RotatedAt, now))
		}
		list = append(list, s)
	}
	if h.SuspiciousSuccess {
		list = append(list, statement{"warn", "info", "Suspiciously fast.", " Successes take a few milliseconds that used to take ten times as long: something in front of the receiver may answer in its place."})
	}
	if !h.DegradedSince.IsZero() && h.Status != webhook.HealthFailing {
		list = append(list, statement{"warn", "wave", "Degraded since " + phrase.Since(h.DegradedSince, now) + ".", " Fewer than 80 % of the attempts of four hours succeeded."})
	}
	if !h.Circuit.LastFlapAt.IsZero() && now.Sub(h.Circuit.LastFlapAt) < time.Hour {
		list = append(list, statement{"warn", "wave", "Flapping.", " The circuit opened again shortly after it had closed, " + phrase.Ago(h.Circuit.LastFlapAt, now) + ": what comes back falls over again. A rate limit may help."})
	}
	return list
}

// activityChart is a chart of attempts over time, with its figures as a table.
type activityChart struct {
	ID        string
	Label     string
	Bars      chart.Bars
	Top, Half string
	Times     []string
	Legend    []tag
	Head      []string
	Rows      [][]string
	Empty     bool
}

// newActivityChart draws buckets, which are without gaps.
func newActivityChart(id string, buckets []webhook.ActivityBucket) activityChart {
	c := activityChart{ID: id, Empty: true, Head: []string{"Time, UTC", "Succeeded", "Failed", "Throttled", "Success"}}
	c.Legend = []tag{{Class: "ok", Word: "succeeded"}, {Class: "bad", Word: "failed"}, {Class: "warn", Word: "throttled (429)"}}
	bars := make([]chart.Bar, len(buckets))
	var ok, failed, throttled int64
	for i, b := range buckets {
		layout := "15:04"
		title := fmt.Sprintf("%s: %s succeeded, %s failed", b.Start.UTC().Format(layout), phrase.Number(b.Succeeded), phrase.Number(b.Failed))
		bars[i] = chart.Bar{Title: title, Segments: []chart.Segment{
			{Value: float64(b.Succeeded), Class: "fill-ok"}, {Value: float64(b.Failed), Class: "fill-bad"}, {Value: float64(b.Throttled), Class: "fill-warn"},
		}}
		ok, failed, throttled = ok+b.Succeeded, failed+b.Failed, throttled+b.Throttled
		success := "–"
		if rate, some := b.SuccessRate(); some {
			success = phrase.Percent(rate)
		}
		c.Rows = append(c.Rows, []string{b.Start.UTC().Format(layout), phrase.Number(b.Succeeded), phrase.Number(b.Failed), phrase.Number(b.Throttled), success})
	}
	c.Empty = ok+failed+throttled == 0
	c.Bars = chart.NewBars(bars)
	c.Top, c.Half = scale(c.Bars.Top), scale(c.Bars.Top/2)
	if n := len(buckets); n > 0 {
		for i := range 5 {
			c.Times = append(c.Times, buckets[min(i*n/4, n-1)].Start.UTC().Format("15:04"))
		}
	}
	c.Label = fmt.Sprintf("Attempts over time: %s succeeded, %s failed, %s throttled", phrase.Number(ok), phrase.Number(failed), phrase.Number(throttled))
	return c
}

func scale(v float64) string {
	if v == float64(int64(v)) {
		return phrase.Number(int64(v))
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

// probeInWords says when an open circuit is probed.
func probeInWords(at, now time.Time) string {
	if wait := at.Sub(now); wait > time.Second {
		return "next probe in " + phrase.Span(wait.Round(time.Second))
	}
	return "next probe now"
}

// withoutGaps fills in the buckets in which nothing happened.
func withoutGaps(buckets []webhook.ActivityBucket, length time.Duration, n int, now time.Time) []webhook.ActivityBucket {
	last := now.UTC().Truncate(length)
	full := make([]webhook.ActivityBucket, n)
	for i := range full {
		full[i] = webhook.ActivityBucket{Start: last.Add(-time.Duration(n-1-i) * length), Length: length}
	}
	for _, b := range buckets {
		if i := int(b.Start.Sub(full[0].Start) / length); i >= 0 && i < n && !b.Start.Before(full[0].Start) {
			full[i] = b
		}
	}
	return full
}

// The times that charts cover.
const (
	hourBucket, hourBuckets = 5 * time.Minute, 13
	dayBucket, dayBuckets   = time.Hour, 25
)

// sparkline is the last hour of an endpoint in a list.
func sparkline(h webhook.EndpointHealth, now time.Time) (bars chart.Bars, label string) {
	buckets := withoutGaps(h.Series, hourBucket, hourBuckets, now)
	list := make([]chart.Bar, len(buckets))
	for i, b := range buckets {
		list[i] = chart.Bar{Segments: []chart.Segment{
			{Value: float64(b.Succeeded), Class: "fill-ok"}, {Value: float64(b.Failed), Class: "fill-bad"}, {Value: float64(b.Throttled), Class: "fill-warn"},
		}}
	}
	return chart.NewBars(list), fmt.Sprintf("In the last hour %s attempts succeeded and %s failed", phrase.Number(h.Hour.Succeeded), phrase.Number(h.Hour.Failed))
}

// meterRow is one line of horizontal bars.
type meterRow struct {
	Word  tag
	Value string
	Width float64 // of 1000
	Fill  string
}

// answersMeter shows the answers of a day by kind.
func answersMeter(c webhook.ActivityCounts) []meterRow {
	total := max(c.Succeeded+c.Failed+c.Throttled+c.Gone, 1)
	var rows []meterRow
	for _, kind := range []struct {
		n    int64
		word tag
		fill string
	}{
		{c.Succeeded, tag{"ok", "check", "2xx, delivered"}, "fill-ok"},
		{c.Redirects, tag{"bad", "cross", "3xx, redirects"}, "fill-bad"},
		{c.ClientErrors, tag{"bad", "cross", "4xx, refused"}, "fill-bad"},
		{c.Throttled, tag{"warn", "clock", "429, throttled"}, "fill-warn"},
		{c.Gone, tag{"still", "stop", "410, gone"}, "fill-still"},
		{c.ServerErrors, tag{"bad", "cross", "5xx, server errors"}, "fill-bad"},
		{c.NoResponse, tag{"bad", "cross", "no usable answer"}, "fill-bad"},
	} {
		if kind.n > 0 {
			rows = append(rows, meterRow{kind.word, phrase.Number(kind.n), max(float64(kind.n)/float64(total)*1000, 4), kind.fill})
		}
	}
	return rows
}

// latencyMeter shows percentiles against the time that an attempt may take.
func latencyMeter(h webhook.EndpointHealth, timeout time.Duration) []meterRow {
	if h.LatencySamples == 0 {
		return nil
	}
	// The scale is the slowest of them, or a part of what is allowed: a bar that fills
	// the line must not look like trouble where there is none.
	top := max(h.LatencyP99, timeout/20)
	var rows []meterRow
	for _, p := range []struct {
		word string
		d    time.Duration
	}{{"median", h.LatencyP50}, {"95 of 100 in", h.LatencyP95}, {"99 of 100 in", h.LatencyP99}} {
		fill := "fill-accent"
		if p.d > timeout*6/10 {
			fill = "fill-warn"
		}
		rows = append(rows, meterRow{tag{"still", "", p.word}, phrase.Span(p.d), max(float64(p.d)/float64(top)*1000, 4), fill})
	}
	return rows
}

// successInWords is a success rate, or a dash where there was nothing.
func successInWords(c webhook.ActivityCounts) string {
	rate, ok := c.SuccessRate()
	if !ok {
		return "–"
	}
	return phrase.Percent(rate)
}

// noticeRow is a notice in words.
type noticeRow struct {
	At   time.Time
	Word statement
	ID   string // of the endpoint
	Name string
}

// noticeInWords says what a notice tells.
func noticeInWords(n webhook.Notice) statement {
	switch n.Kind {
	case webhook.NoticeFailing:
		return statement{"bad", "cross", "Began to fail", with(answerTag(n.Status, n.Class).Word)}
	case webhook.NoticeFailing24h:
		return statement{"bad", "cross", "Has failed for 24 hours", with(answerTag(n.Status, n.Class).Word)}
	case webhook.NoticeRecovered:
		return statement{"ok", "check", "Recovered", ""}
	case webhook.NoticeDisabled:
		return statement{"still", "stop", "Disabled", because(n.Reason)}
	case webhook.NoticeDegraded:
		return statement{"warn", "wave", "Degraded", ": under 80 % of attempts succeed"}
	case webhook.NoticeConfigurationSuspected:
		return statement{"warn", "warn", "Looks like a setting", with(answerTag(n.Status, n.Class).Word)}
	case webhook.NoticeFlapping:
		return statement{"warn", "wave", "Flapping", ": it failed again shortly after it had recovered"}
	case webhook.NoticeShedding:
		return statement{"warn", "down", "Cannot keep up", ": new deliveries are shed"}
	case webhook.NoticeDead:
		return statement{"bad", "cross", "Deliveries fail for good", with(answerTag(n.Status, n.Class).Word)}
	case webhook.NoticeSecretOld:
		return statement{"warn", "key", "The signing secret is old", ": rotate it"}
	}
	return statement{"still", "info", string(n.Kind), ""}
}
