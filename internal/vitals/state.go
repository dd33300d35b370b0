package vitals

import (
	"math"
	"time"
)

// State is what is stored of an endpoint.
type State struct {
	// Mark is a number that whoever stores the state makes up, to find out later
	// whether it was stored.
	Mark uint64 `json:"mark,omitzero"`

	// Epoch is when the endpoint came into the state active: streaks and runs that
	// are older say nothing any longer.
	Epoch time.Time `json:"epoch,omitzero"`

	At          time.Time `json:"at,omitzero"` // when the latest attempt ended
	LastSuccess time.Time `json:"last_success,omitzero"`
	LastFailure time.Time `json:"last_failure,omitzero"`
	LastStatus  int       `json:"last_status,omitzero"` // of that failure
	LastClass   string    `json:"last_class,omitzero"`

	Outcomes outcomes `json:"outcomes,omitzero"`
	Codes    []int16  `json:"codes,omitempty"` // statuses of the latest failures, the newest first

	Run    Run    `json:"run,omitzero"`
	Streak Streak `json:"streak,omitzero"`

	Fine   Buckets `json:"fine,omitempty"`   // of the last hour
	Coarse Buckets `json:"coarse,omitempty"` // of the last day
	// FineCourse and CoarseCourse are the latencies of the same buckets.
	FineCourse   Course `json:"fine_course,omitzero"`
	CoarseCourse Course `json:"coarse_course,omitzero"`

	// Latencies are of the present half hour or so, and of the one before it.
	Latencies, Before Window        `json:",omitzero"`
	UsualLatency      time.Duration `json:"usual_latency,omitzero"` // median of successes
	Dead              []Deaths      `json:"dead,omitempty"`
	LowSince          time.Time     `json:"low_since,omitzero"` // when the score fell under Rules.LowScore
	DegradedSince     time.Time     `json:"degraded_since,omitzero"`
	SuspectedSince    time.Time     `json:"suspected_since,omitzero"`
	Suspected         Suspicion     `json:"suspected,omitzero"`
	Flaps             int64         `json:"flaps,omitzero"` // ever
	LastFlap          time.Time     `json:"last_flap,omitzero"`
	SuspiciousSuccess bool          `json:"suspicious_success,omitzero"`
}

// Run is the failures since the latest success.
type Run struct {
	Failures int64     `json:"n,omitzero"`
	Since    time.Time `json:"since,omitzero"`
}

// Streak is a time of failures that is told as one. It begins with a failure and
// ends with a success; what follows within [quiet] of its beginning is not told.
type Streak struct {
	Since time.Time `json:"since,omitzero"`
	Open  bool      `json:"open,omitzero"`
	// Dead and Day tell that a dead delivery and the first 24 hours of the streak
	// were told.
	Dead bool `json:"dead,omitzero"`
	Day  bool `json:"day,omitzero"`
}

// quiet bounds how often streaks are told of an endpoint that fails now and then.
const quiet = 10 * time.Minute

// Window is the latencies of some time.
type Window struct {
	Since time.Time `json:"since,omitzero"`
	All   Latencies `json:"all"`
	Good  Latencies `json:"good"`
}

// Deaths is how many deliveries died on a day (UTC).
type Deaths struct {
	Day   time.Time `json:"day"`
	First time.Time `json:"first"`
	N     int64     `json:"n"`
}

// Suspicion is what is likely to be wrong with how an endpoint is set up.
type Suspicion struct {
	Status  int       `json:"status,omitzero"`
	Rotated time.Time `json:"rotated,omitzero"` // when the secret was, right before
}

// Score is how the latest 50 attempts went, from 0 to 100, the newest with the most
// weight: e^(-0.05·i). It is 100 when none is known.
func (s *State) Score() int {
	var got, all float64
	for i := range min(s.Outcomes.Known, scored) {
		w := math.Exp(-0.05 * float64(i))
		all += w
		if s.Outcomes.Bits>>i&1 == 0 {
			got += w
		}
	}
	if all == 0 {
		return 100
	}
	return int(math.Round(100 * got / all))
}

// Healthy reports whether none of the latest 20 attempts failed.
func (s *State) Healthy() bool {
	known := min(s.Outcomes.Known, healthyAfter)
	return s.Outcomes.Bits&(1<<known-1) == 0
}

// Failing reports whether the latest attempt failed.
func (s *State) Failing() bool { return s.Run.Failures > 0 }

// Hour and Day sum the last hour and the last 24 hours, to within a bucket.
func (s *State) Hour(now time.Time) Counts { return s.Fine.Since(now.Add(-time.Hour), Fine) }

// Day is like Hour.
func (s *State) Day(now time.Time) Counts { return s.Coarse.Since(now.Add(-24*time.Hour), Coarse) }

// RecentLatencies are those of the latest half hour to hour with attempts.
func (s *State) RecentLatencies() Latencies {
	sum := s.Latencies.All
	sum.merge(&s.Before.All)
	return sum
}

// DeadSince counts the deliveries that died at or after a time, to within a day,
// and tells when the first of them did.
func (s *State) DeadSince(t time.Time) (n int64, first time.Time) {
	for _, d := range s.Dead {
		if d.Day.Add(day).After(t) {
			if first.IsZero() {
				first = d.First
			}
			n += d.N
		}
	}
	return n, first
}

const day = 24 * time.Hour

// Turns reports whether an attempt begins or ends the streak, or a death in it is the
// first, so that somebody wants to know soon.
func (st *Streak) Turns(s *Sample) bool {
	switch {
	case s.Ended && s.Dead && !st.Dead:
		return true
	case s.Outcome == Succeeded:
		return st.Open
	case s.Outcome == Failed:
		return !st.Open && (st.Since.IsZero() || s.At.Sub(st.Since) >= quiet)
	}
	return false
}
