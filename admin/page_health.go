package admin

import (
	"fmt"
	"net/http"
	"time"

	"github.com/outhook/webhook"
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
		return statement{"still", "stop", disabledInWords(e) + " since " + since, because(e.StateReason) + ". What comes in the meantime is cancelled and can be replayed." + whoEnables(e)}
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

func disabledInWords(e webhook.Endpoint) string {
	if e.DisabledByOperator {
		return "Disabled by an operator"
	}
	return "Disabled"
}

// whoEnables says so where it is not whoever owns the endpoint.
func whoEnables(e webhook.Endpoint) string {
	if e.DisabledByOperator {
		return " Only an operator can enable it again."
	}
	return ""
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

// probeInWords says when an open circuit is probed.
func probeInWords(at, now time.Time) string {
	if wait := at.Sub(now); wait > time.Second {
		return "next probe in " + phrase.Span(wait.Round(time.Second))
	}
	return "next probe now"
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
