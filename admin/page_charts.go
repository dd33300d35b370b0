package admin

import (
	"fmt"
	"math"
	"time"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/admin/internal/chart"
	"github.com/outhook/webhook/admin/internal/phrase"
)

// timeChart is a chart of bars over time, with its figures as a table.
type timeChart struct {
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

// clock is when a bucket begins, as charts say it.
func clock(b webhook.ActivityBucket) string { return b.Start.UTC().Format("15:04") }

// times are five times below a chart, the first and the last bucket's among them.
func times(buckets []webhook.ActivityBucket) []string {
	var list []string
	if n := len(buckets); n > 0 {
		for i := range 5 {
			list = append(list, clock(buckets[min(i*n/4, n-1)]))
		}
	}
	return list
}

// newActivityChart draws the attempts of buckets, which are without gaps.
func newActivityChart(id string, buckets []webhook.ActivityBucket) timeChart {
	c := timeChart{ID: id, Times: times(buckets), Head: []string{"Time, UTC", "Succeeded", "Failed", "Throttled", "Success"}}
	c.Legend = []tag{{Class: "ok", Word: "succeeded"}, {Class: "bad", Word: "failed"}, {Class: "warn", Word: "throttled (429)"}}
	bars := make([]chart.Bar, len(buckets))
	var ok, failed, throttled int64
	for i, b := range buckets {
		title := fmt.Sprintf("%s: %s succeeded, %s failed", clock(b), phrase.Number(b.Succeeded), phrase.Number(b.Failed))
		bars[i] = chart.Bar{Title: title, Segments: attemptSegments(b)}
		ok, failed, throttled = ok+b.Succeeded, failed+b.Failed, throttled+b.Throttled
		c.Rows = append(c.Rows, []string{clock(b), phrase.Number(b.Succeeded), phrase.Number(b.Failed), phrase.Number(b.Throttled), successInWords(b.ActivityCounts)})
	}
	c.Empty = ok+failed+throttled == 0
	c.Bars = chart.NewBars(bars)
	c.Top, c.Half = scale(c.Bars.Top), scale(c.Bars.Top/2)
	c.Label = fmt.Sprintf("Attempts over time: %s succeeded, %s failed, %s throttled", phrase.Number(ok), phrase.Number(failed), phrase.Number(throttled))
	return c
}

func attemptSegments(b webhook.ActivityBucket) []chart.Segment {
	return []chart.Segment{
		{Value: float64(b.Succeeded), Class: "fill-ok"}, {Value: float64(b.Failed), Class: "fill-bad"}, {Value: float64(b.Throttled), Class: "fill-warn"},
	}
}

// newLatencyChart draws how long the attempts of buckets took, which are without gaps:
// each percentile stands on the one below it.
func newLatencyChart(id string, buckets []webhook.ActivityBucket) timeChart {
	c := timeChart{ID: id, Empty: true, Times: times(buckets), Head: []string{"Time, UTC", "Attempts", "Median", "95 of 100 in", "99 of 100 in"}}
	c.Legend = []tag{{Class: "accent", Word: "median"}, {Class: "p95", Word: "95 of 100 in"}, {Class: "p99", Word: "99 of 100 in"}}
	bars := make([]chart.Bar, len(buckets))
	var slowest webhook.ActivityBucket
	for i, b := range buckets {
		if b.LatencyP50 == 0 {
			bars[i].Title = clock(b) + ": no attempt"
			c.Rows = append(c.Rows, []string{clock(b), "0", "–", "–", "–"})
			continue
		}
		c.Empty = false
		if b.LatencyP95 > slowest.LatencyP95 {
			slowest = b
		}
		p50, p95, p99 := b.LatencyP50, b.LatencyP95, b.LatencyP99
		bars[i] = chart.Bar{
			Title: fmt.Sprintf("%s: median %s, 95 of 100 in %s, 99 in %s", clock(b), phrase.Span(p50), phrase.Span(p95), phrase.Span(p99)),
			Segments: []chart.Segment{
				{Value: inMilliseconds(p50), Class: "fill-accent"}, {Value: inMilliseconds(p95 - p50), Class: "fill-p95"}, {Value: inMilliseconds(p99 - p95), Class: "fill-p99"},
			},
		}
		c.Rows = append(c.Rows, []string{clock(b), phrase.Number(b.Succeeded + b.Failed), phrase.Span(p50), phrase.Span(p95), phrase.Span(p99)})
	}
	c.Bars = chart.NewBars(bars)
	c.Top, c.Half = spanScale(c.Bars.Top), spanScale(c.Bars.Top/2)
	c.Label = "Latency over time: no attempt"
	if !c.Empty {
		c.Label = fmt.Sprintf("Latency over time: slowest at %s, when 95 of 100 attempts took no longer than %s", clock(slowest), phrase.Span(slowest.LatencyP95))
	}
	return c
}

func inMilliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// spanScale is a value of a scale of milliseconds.
func spanScale(v float64) string { return phrase.Span(time.Duration(v * float64(time.Millisecond))) }

// scale is a value of a scale of attempts; half an attempt is none.
func scale(v float64) string {
	if v != math.Trunc(v) {
		return ""
	}
	return phrase.Number(int64(v))
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
		list[i] = chart.Bar{Segments: attemptSegments(b)}
	}
	return chart.NewBars(list), fmt.Sprintf("In the last hour %s attempts succeeded and %s failed", phrase.Number(h.Hour.Succeeded), phrase.Number(h.Hour.Failed))
}
