// Package phrase says times, spans and numbers as people do.
package phrase

import (
	"math"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// Span says how long something takes, to one or two units: "420 ms", "1.2 s", "3 min",
// "2 h 5 min", "4 d".
func Span(d time.Duration) string {
	if d < 0 {
		d = -d
	}
	switch {
	case d == 0:
		return "0 s"
	case d < 100*time.Microsecond:
		return "< 0.1 ms"
	case d < 10*time.Millisecond:
		return trim(d.Seconds()*1000) + " ms"
	case d < time.Second:
		return strconv.FormatInt(d.Round(time.Millisecond).Milliseconds(), 10) + " ms"
	case d < 10*time.Second:
		return trim(d.Seconds()) + " s"
	case d < time.Minute:
		return strconv.Itoa(int(d.Round(time.Second).Seconds())) + " s"
	case d < time.Hour:
		return two(d, time.Minute, "min", time.Second, "s", 5*time.Minute)
	case d < day:
		return two(d, time.Hour, "h", time.Minute, "min", 10*time.Hour)
	default:
		return two(d, day, "d", time.Hour, "h", 4*day)
	}
}

// two says d in units and, as long as it is under plain, the rest in parts.
func two(d, unit time.Duration, unitName string, part time.Duration, partName string, plain time.Duration) string {
	if d >= plain {
		return strconv.Itoa(int(d.Round(unit)/unit)) + " " + unitName
	}
	d = d.Round(part)
	s := strconv.Itoa(int(d/unit)) + " " + unitName
	if rest := int(d % unit / part); rest > 0 {
		s += " " + strconv.Itoa(rest) + " " + partName
	}
	return s
}

func trim(f float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0")
}

// Ago says how far a time is from now: "just now", "3 min ago", "in 2 h", and a date
// from a week on.
func Ago(t, now time.Time) string {
	if t.IsZero() {
		return "never"
	}
	d := now.Sub(t)
	switch {
	case d > 7*day || d < -7*day:
		return Date(t)
	case d < -time.Second:
		return "in " + coarse(-d)
	case d < 5*time.Second:
		return "just now"
	default:
		return coarse(d) + " ago"
	}
}

// coarse is a span in one unit.
func coarse(d time.Duration) string {
	switch {
	case d < time.Minute:
		return strconv.Itoa(int(math.Ceil(d.Seconds()))) + " s"
	case d < time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + " min"
	case d < day:
		return strconv.Itoa(int(d/time.Hour)) + " h"
	default:
		return strconv.Itoa(int(d/day)) + " d"
	}
}

// Date is a day in UTC, such as "2 Nov 2026".
func Date(t time.Time) string { return t.UTC().Format("2 Jan 2006") }

// Time is a time in UTC to the second, such as "2 Nov 2026, 14:02:09 UTC".
func Time(t time.Time) string { return t.UTC().Format("2 Jan 2006, 15:04:05 UTC") }

// Since says when something began: the time today, else with the day.
func Since(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	switch {
	case t.Year() == now.Year() && t.YearDay() == now.YearDay():
		return t.Format("15:04 UTC")
	case now.Sub(t) < 300*day:
		return t.Format("2 Jan, 15:04 UTC")
	default:
		return t.Format("2 Jan 2006")
	}
}

// Number groups a number's digits by three: "1,204".
func Number(n int64) string {
	s := strconv.FormatInt(n, 10)
	from := len(s) % 3
	if n < 0 {
		from = (len(s)-1)%3 + 1
	}
	var b strings.Builder
	for i, r := range s {
		if i > 0 && (i-from)%3 == 0 && i >= from && s[i-1] != '-' {
			b.WriteByte(',')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Percent says a part of one. What is not all is never said to be, and what is not
// nothing neither.
func Percent(part float64) string {
	p := part * 100
	switch {
	case p >= 100:
		return "100 %"
	case p > 99.9:
		return "> 99.9 %"
	case p >= 99 || p > 0 && p < 1 && p >= 0.1:
		return trim(math.Floor(p*10)/10) + " %"
	case p > 0 && p < 0.1:
		return "< 0.1 %"
	default:
		return strconv.Itoa(int(math.Floor(p))) + " %"
	}
}

// Bytes says a size.
func Bytes(n int) string {
	switch {
	case n < 1<<10:
		return strconv.Itoa(n) + " bytes"
	case n < 1<<20:
		return trim(float64(n)/(1<<10)) + " KiB"
	default:
		return trim(float64(n)/(1<<20)) + " MiB"
	}
}

// Plural is a number with its noun: "1 delivery", "1,204 deliveries".
func Plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Number(n) + " " + many
}
