package vitals

import (
	"time"
)

const (
	// Fine is the length of a time bucket of the last hour.
	Fine = 5 * time.Minute
	// Coarse is the length of one of the last day.
	Coarse = time.Hour

	// scored is how many attempts the score looks at, healthyAfter how many in a row
	// must have succeeded for the endpoint to be healthy (docs/design.md §1 and §6).
	scored       = 50
	healthyAfter = 20

	// codes is how many of the latest failures are known by their status.
	codes = 20
)

// Outcome is what an attempt says about the endpoint.
type Outcome uint8

// The outcomes.
const (
	// Ignored says nothing about it, though it used up an attempt: 410 and 429.
	Ignored Outcome = iota
	// Succeeded is a 2xx.
	Succeeded
	// Failed is charged to it.
	Failed
)

// Sample is one attempt that used up one.
type Sample struct {
	At      time.Time // when it ended
	Latency time.Duration
	Status  int // 0: no response
	Class   string
	Outcome Outcome
	Retry   bool // not the first of its run
	// Ended and Dead tell that the delivery ended with it, and how.
	Ended, Dead bool
}

func (s *Sample) counter() Counter {
	switch {
	case s.Outcome == Succeeded:
		return OK
	case s.Status == 410:
		return Gone
	case s.Status == 429:
		return Throttled
	case s.Status >= 300 && s.Status < 400:
		return Redirect
	case s.Status >= 400 && s.Status < 500:
		return Client
	case s.Status >= 500:
		return Server
	default:
		return Broken
	}
}

// Count adds a sample to counts.
func (c *Counts) Count(s *Sample) {
	c[s.counter()]++
	if s.Retry {
		c[Retries]++
	}
	switch {
	case s.Ended && s.Dead:
		c[Dead]++
	case s.Ended:
		c[Delivered]++
	}
}

// Delta is what was seen of an endpoint since its state was last stored. The zero
// value is nothing. It is of one size however much it has seen.
type Delta struct {
	// buckets are the latest two of the fine time buckets; what is older still is
	// in the first.
	buckets [2]Bucket
	// latencies are those of the buckets, good those of all successes.
	latencies [2]Latencies
	good      Latencies

	outcomes outcomes
	codes    failures

	firstGood, lastGood time.Time
	firstBad, lastBad   time.Time
	badFirst            bool // the first failure came before the first success

	// tail counts the failures after the last success, since tailSince.
	tail      int64
	tailSince time.Time

	lastStatus int // of the latest failure
	lastClass  string

	dead      int64
	firstDead time.Time
	flaps     int64
	lastFlap  time.Time
}

// Empty reports whether nothing was seen.
func (d *Delta) Empty() bool {
	return d.buckets[1].At.IsZero() && d.dead == 0 && d.flaps == 0
}

// Add takes in one attempt. Attempts are expected in the order of their ends.
func (d *Delta) Add(s *Sample) {
	counts, latencies := d.bucket(s.At.Truncate(Fine))
	counts.Count(s)
	if s.Ended && s.Dead {
		d.AddDead(1, s.At)
	}
	if s.Outcome == Ignored {
		return
	}
	latencies.Add(s.Latency)
	if s.Outcome == Succeeded {
		d.good.Add(s.Latency)
		d.outcomes.push(false)
		if d.firstGood.IsZero() {
			d.firstGood = s.At
		}
		d.lastGood = s.At
		d.tail, d.tailSince = 0, time.Time{}
		return
	}
	d.outcomes.push(true)
	d.codes.push(int16(s.Status))
	if d.firstBad.IsZero() {
		d.firstBad = s.At
		d.badFirst = d.firstGood.IsZero()
	}
	d.lastBad = s.At
	if d.tail == 0 {
		d.tailSince = s.At
	}
	d.tail++
	d.lastStatus, d.lastClass = s.Status, s.Class
}

// AddDead takes in deliveries that died in another way than by an attempt.
func (d *Delta) AddDead(n int64, at time.Time) {
	if d.dead == 0 {
		d.firstDead = at
	}
	d.dead += n
}

// AddFlap takes in that the circuit opened again shortly after it had closed.
func (d *Delta) AddFlap(at time.Time) {
	d.flaps++
	d.lastFlap = at
}

// bucket returns the counts and the latencies of a fine bucket.
func (d *Delta) bucket(at time.Time) (*Counts, *Latencies) {
	last := &d.buckets[1]
	switch {
	case last.At.IsZero():
		last.At = at
	case at.After(last.At):
		old := d.buckets[0]
		d.buckets[0] = *last
		d.buckets[0].Add(&old.Counts)
		d.latencies[0].merge(&d.latencies[1])
		*last, d.latencies[1] = Bucket{At: at}, Latencies{}
	}
	return &last.Counts, &d.latencies[1]
}

// Append takes in what was seen after what this one has.
func (d *Delta) Append(next *Delta) {
	for i := range next.buckets {
		if b := &next.buckets[i]; !b.At.IsZero() {
			counts, latencies := d.bucket(b.At)
			counts.Add(&b.Counts)
			latencies.merge(&next.latencies[i])
		}
	}
	d.good.merge(&next.good)
	d.outcomes.append(next.outcomes)
	d.codes.append(&next.codes)
	if d.firstBad.IsZero() {
		d.firstBad = next.firstBad
		d.badFirst = !next.firstBad.IsZero() && d.firstGood.IsZero() && next.badFirst
	}
	if d.firstGood.IsZero() {
		d.firstGood = next.firstGood
	}
	if next.lastGood.IsZero() {
		if d.tail == 0 {
			d.tailSince = next.tailSince
		}
		d.tail += next.tail
	} else {
		d.lastGood, d.tail, d.tailSince = next.lastGood, next.tail, next.tailSince
	}
	if !next.lastBad.IsZero() {
		d.lastBad, d.lastStatus, d.lastClass = next.lastBad, next.lastStatus, next.lastClass
	}
	if next.dead > 0 {
		d.AddDead(next.dead, next.firstDead)
	}
	if next.flaps > 0 {
		d.flaps += next.flaps
		d.lastFlap = next.lastFlap
	}
}

// outcomes are those of the latest attempts: a bit each, set for a failure, the
// newest lowest.
type outcomes struct {
	Bits  uint64 `json:"b,omitzero"`
	Known int    `json:"n,omitzero"`
}

func (o *outcomes) push(failed bool) {
	o.Bits <<= 1
	if failed {
		o.Bits |= 1
	}
	o.Known = min(o.Known+1, 64)
}

func (o *outcomes) append(next outcomes) {
	if next.Known >= 64 {
		*o = next
		return
	}
	o.Bits = o.Bits<<next.Known | next.Bits
	o.Known = min(o.Known+next.Known, 64)
}

// failures are the statuses of the latest failures, the newest first.
type failures struct {
	list [codes]int16
	n    int
}

func (f *failures) push(status int16) {
	copy(f.list[1:], f.list[:codes-1])
	f.list[0] = status
	f.n = min(f.n+1, codes)
}

func (f *failures) append(next *failures) {
	for i := next.n - 1; i >= 0; i-- {
		f.push(next.list[i])
	}
}

// After is the run of failures that a run has become.
func (d *Delta) After(run Run) Run {
	if !d.lastGood.IsZero() {
		run = Run{}
	}
	if d.tail > 0 {
		if run.Failures == 0 {
			run.Since = d.tailSince
		}
		run.Failures += d.tail
	}
	return run
}
