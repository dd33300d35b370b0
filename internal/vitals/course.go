package vitals

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// openBuckets is of how many of the latest buckets all latencies are kept: whoever
// stores late, as another process does, still adds to the one before the present.
const openBuckets = 2

// Course is how latencies went over time. Of the latest buckets it keeps a histogram,
// of those before no more than three percentiles: a dozen bytes each.
type Course struct {
	// Past and Open are in the order of their times, and none of Open before one of
	// Past.
	Past []Percentiles
	Open []Timed
}

// Percentiles are three cells of the histogram of a bucket that begins at At.
type Percentiles struct {
	At            time.Time
	P50, P95, P99 uint8
}

// Timed are the latencies of a bucket that begins at At.
type Timed struct {
	At time.Time
	Latencies
}

// Durations are the latencies that stand for the cells.
func (p Percentiles) Durations() (p50, p95, p99 time.Duration) {
	return middle(int(p.P50)), middle(int(p.P95)), middle(int(p.P99))
}

func (t *Timed) percentiles() Percentiles {
	return Percentiles{At: t.At, P50: t.cell(0.50), P95: t.cell(0.95), P99: t.cell(0.99)}
}

// Find returns the percentiles of the bucket that begins at a time; false when there
// is none.
func (c *Course) Find(at time.Time) (p Percentiles, ok bool) {
	for i := range c.Open {
		if c.Open[i].At.Equal(at) {
			return c.Open[i].percentiles(), true
		}
	}
	if i, found := c.past(at); found {
		return c.Past[i], true
	}
	return Percentiles{}, false
}

func (c *Course) past(at time.Time) (i int, found bool) {
	return slices.BinarySearchFunc(c.Past, at, func(p Percentiles, at time.Time) int { return p.At.Compare(at) })
}

// add adds latencies to the bucket that begins at a time. What comes later than for
// one of the open buckets is lost, unless it is all that there is.
func (c *Course) add(at time.Time, l *Latencies) {
	if l.Count() == 0 {
		return
	}
	i, found := slices.BinarySearchFunc(c.Open, at, func(t Timed, at time.Time) int { return t.At.Compare(at) })
	switch {
	case found:
		c.Open[i].merge(l)
	case c.isPast(at), i == 0 && len(c.Open) == openBuckets:
		if k, known := c.past(at); !known {
			t := Timed{At: at, Latencies: *l}
			c.Past = slices.Insert(c.Past, k, t.percentiles())
		}
	default:
		c.Open = slices.Insert(c.Open, i, Timed{At: at, Latencies: *l})
		if len(c.Open) > openBuckets {
			c.Past = append(c.Past, c.Open[0].percentiles())
			c.Open = slices.Delete(c.Open, 0, 1)
		}
	}
}

// isPast reports whether a bucket that is over began at a time, or later.
func (c *Course) isPast(at time.Time) bool {
	n := len(c.Past)
	return n > 0 && !c.Past[n-1].At.Before(at)
}

// drop forgets the buckets that did not begin after a time.
func (c *Course) drop(t time.Time) {
	c.Past = slices.DeleteFunc(c.Past, func(p Percentiles) bool { return !p.At.After(t) })
	c.Open = slices.DeleteFunc(c.Open, func(o Timed) bool { return !o.At.After(t) })
}

// IsZero reports whether there is nothing, for omitzero.
func (c *Course) IsZero() bool { return len(c.Past)+len(c.Open) == 0 }

// courseJSON is a course as it is stored: times as seconds, in Past since the bucket
// before.
type courseJSON struct {
	Past []int64      `json:"past,omitempty"`
	Open []openBucket `json:"open,omitempty"`
}

type openBucket struct {
	At  int64     `json:"at"`
	All Latencies `json:"all"`
}

// MarshalJSON writes four numbers for each bucket that is over.
func (c Course) MarshalJSON() ([]byte, error) {
	text := []byte("{")
	if len(c.Past) > 0 {
		text = append(text, `"past":[`...)
		last := int64(0)
		for i, p := range c.Past {
			if i > 0 {
				text = append(text, ',')
			}
			text = strconv.AppendInt(text, p.At.Unix()-last, 10)
			for _, cell := range [...]uint8{p.P50, p.P95, p.P99} {
				text = strconv.AppendInt(append(text, ','), int64(cell), 10)
			}
			last = p.At.Unix()
		}
		text = append(text, ']')
	}
	for i := range c.Open {
		switch {
		case i > 0:
			text = append(text, ',')
		case len(text) > 1:
			text = append(text, `,"open":[`...)
		default:
			text = append(text, `"open":[`...)
		}
		text = strconv.AppendInt(append(text, `{"at":`...), c.Open[i].At.Unix(), 10)
		text = append(c.Open[i].append(append(text, `,"all":`...)), '}')
	}
	if len(c.Open) > 0 {
		text = append(text, ']')
	}
	return append(text, '}'), nil
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (c *Course) UnmarshalJSON(text []byte) error {
	var stored courseJSON
	if err := json.Unmarshal(text, &stored); err != nil {
		return fmt.Errorf("read latencies over time: %w", err)
	}
	*c = Course{}
	at := int64(0)
	for list := stored.Past; len(list) >= 4; list = list[4:] {
		at += list[0]
		c.Past = append(c.Past, Percentiles{At: time.Unix(at, 0).UTC(), P50: cellFrom(list[1]), P95: cellFrom(list[2]), P99: cellFrom(list[3])})
	}
	for _, b := range stored.Open {
		c.Open = append(c.Open, Timed{At: time.Unix(b.At, 0).UTC(), Latencies: b.All})
	}
	return nil
}

// cellFrom reads a cell that another version, or a hand, may have written.
func cellFrom(n int64) uint8 { return uint8(min(max(n, 0), cells-1)) }
