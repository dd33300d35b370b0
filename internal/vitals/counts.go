package vitals

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Counter names one of the counts of a time bucket.
type Counter int

// The counters. Those up to Broken are of attempts that say something about the
// endpoint; they are stored by their numbers, so new ones go to the end.
const (
	OK        Counter = iota // 2xx
	Redirect                 // 3xx
	Client                   // 4xx, but for 410 and 429
	Server                   // 5xx
	Broken                   // no usable answer
	Throttled                // 429
	Gone                     // 410
	Retries                  // attempts that were not the first of their run
	Delivered                // deliveries that ended so
	Dead                     // deliveries that ended so
	counters
)

// Counts are the counts of a time bucket.
type Counts [counters]int64

// Add adds other counts.
func (c *Counts) Add(other *Counts) {
	for i := range c {
		c[i] += other[i]
	}
}

// Failed counts the attempts that were charged to the endpoint.
func (c *Counts) Failed() int64 { return c[Redirect] + c[Client] + c[Server] + c[Broken] }

// Judged counts the attempts that say something about the endpoint.
func (c *Counts) Judged() int64 { return c[OK] + c.Failed() }

// Attempts counts all attempts that used one up.
func (c *Counts) Attempts() int64 { return c.Judged() + c[Throttled] + c[Gone] }

// Bucket is what happened in the time that begins at At.
type Bucket struct {
	At time.Time
	Counts
}

// append writes the bucket as one list of numbers, without the zeros at its end.
func (b *Bucket) append(text []byte) []byte {
	n := len(b.Counts)
	for n > 0 && b.Counts[n-1] == 0 {
		n--
	}
	text = strconv.AppendInt(append(text, '['), b.At.Unix(), 10)
	for _, c := range b.Counts[:n] {
		text = strconv.AppendInt(append(text, ','), c, 10)
	}
	return append(text, ']')
}

// read reads what append wrote, in this version or another.
func (b *Bucket) read(list []int64) {
	*b = Bucket{}
	if len(list) > 0 {
		b.At = time.Unix(list[0], 0).UTC()
		copy(b.Counts[:], list[1:])
	}
}

// Buckets are in the order of their times.
type Buckets []Bucket

// MarshalJSON writes a list of lists of numbers.
func (b Buckets) MarshalJSON() ([]byte, error) {
	text := append(make([]byte, 0, 32*len(b)+2), '[')
	for i := range b {
		if i > 0 {
			text = append(text, ',')
		}
		text = b[i].append(text)
	}
	return append(text, ']'), nil
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (b *Buckets) UnmarshalJSON(text []byte) error {
	var lists [][]int64
	if err := json.Unmarshal(text, &lists); err != nil {
		return fmt.Errorf("read buckets: %w", err)
	}
	*b = make(Buckets, len(lists))
	for i, list := range lists {
		(*b)[i].read(list)
	}
	return nil
}

// add counts into the bucket that begins at a time, and drops what began before
// another.
func (b Buckets) add(at time.Time, n *Counts, before time.Time) Buckets {
	i, found := slices.BinarySearchFunc(b, at, func(have Bucket, at time.Time) int { return have.At.Compare(at) })
	if !found {
		b = slices.Insert(b, i, Bucket{At: at})
	}
	b[i].Add(n)
	return slices.DeleteFunc(b, func(have Bucket) bool { return have.At.Before(before) })
}

// Since sums the buckets that end after a time, each of them as long as given.
func (b Buckets) Since(t time.Time, length time.Duration) Counts {
	var sum Counts
	for i := range b {
		if b[i].At.Add(length).After(t) {
			sum.Add(&b[i].Counts)
		}
	}
	return sum
}
