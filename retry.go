package webhook

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// RetryPolicy decides whether and when a delivery whose attempt failed gets
// another one. Implementations must be safe for concurrent use; a panic counts
// as the default policy's answer.
//
// A policy that also has a method Validate() error, as those that ship have, is
// asked by [Hooks.NewDispatcher] whether its settings make sense. One that also has
// a method RetryWindow() time.Duration is asked for how long after the beginning of a
// run attempts may start, more than 0: past that the delivery is dead, even if none
// could be made, because a circuit was open for instance.
type RetryPolicy interface {
	// Next returns when the next attempt is due, or false when the delivery is
	// dead.
	Next(in RetryInput) (at time.Time, retry bool)
}

// RetryInput is what a [RetryPolicy] decides on.
type RetryInput struct {
	// Now is when the latest attempt ended.
	Now time.Time
	// CreatedAt is when the delivery's run began, later by as long as its endpoint was
	// paused since, up to [RetentionPolicy.Events]: so windows stand still meanwhile.
	CreatedAt time.Time
	// Attempts counts the attempts made, the latest included.
	Attempts int
	// RetryAfter is how long the receiver asked to wait, within the limits that
	// the library sets; zero when it did not. For an attempt that the egress guard
	// refused it is 10 min.
	RetryAfter time.Duration
	// Status is the HTTP status of the latest attempt, or 0 when no response came.
	Status int
	// Class is what went wrong with the latest attempt.
	Class ErrorClass
}

// RetrySchedule is a [RetryPolicy] of fixed delays inside a window. The zero
// value retries nothing.
type RetrySchedule struct {
	// Delays are the times between attempts: the first between the first attempt
	// and the second. A policy of n delays makes n+1 attempts, unless the window
	// ends first. Empty means one attempt and no retry; negative is refused.
	Delays []time.Duration

	// Jitter spreads each delay evenly over ±Jitter of it: 0.2 means ±20 %. Zero
	// means none; at most 1.
	Jitter float64

	// Window is how long after the beginning of the run attempts may start. It is
	// the contract: an attempt that jitter or a Retry-After would put past it
	// moves to its end, and past it the delivery is dead. Zero means no window;
	// negative is refused.
	Window time.Duration
}

// DefaultRetrySchedule makes 16 attempts over 72 hours: at once, then after 5 s,
// 30 s, 2 m, 10 m, 30 m, 1 h, 2 h, 4 h, 6 h, 8 h and five times 10 h, each ±20 %
// (docs/design.md §4).
func DefaultRetrySchedule() RetrySchedule {
	return RetrySchedule{
		Delays: []time.Duration{
			5 * time.Second, 30 * time.Second,
			2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
			time.Hour, 2 * time.Hour, 4 * time.Hour, 6 * time.Hour, 8 * time.Hour,
			10 * time.Hour, 10 * time.Hour, 10 * time.Hour, 10 * time.Hour, 10 * time.Hour,
		},
		Jitter: 0.2,
		Window: 72 * time.Hour,
	}
}

// Next implements [RetryPolicy]. A Retry-After is a lower bound.
func (s RetrySchedule) Next(in RetryInput) (time.Time, bool) {
	n := in.Attempts - 1
	if n < 0 || n >= len(s.Delays) {
		return time.Time{}, false
	}
	return withinWindow(in, spread(s.Delays[n], s.Jitter), s.Window)
}

// RetryWindow is Window.
func (s RetrySchedule) RetryWindow() time.Duration { return s.Window }

// Validate reports a field that makes no sense.
func (s RetrySchedule) Validate() error {
	for i, d := range s.Delays {
		if d < 0 {
			return fmt.Errorf("retry schedule: Delays[%d] is %v, less than 0", i, d)
		}
	}
	switch {
	case !(s.Jitter >= 0 && s.Jitter <= 1): // so that NaN is neither
		return fmt.Errorf("retry schedule: Jitter is %v, not from 0 to 1", s.Jitter)
	case s.Window < 0:
		return fmt.Errorf("retry schedule: Window is %v, less than 0", s.Window)
	}
	return nil
}

// validateRetry asks a policy about itself, where it can answer.
func validateRetry(policy RetryPolicy) error {
	if v, ok := policy.(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}

// withinWindow returns when an attempt is due that a policy wants after delay: not
// before the receiver asked for it, and not past the end of the window, which is
// the contract. A window of zero has no end.
func withinWindow(in RetryInput, delay, window time.Duration) (time.Time, bool) {
	at := in.Now.Add(max(delay, in.RetryAfter))
	if window <= 0 {
		return at, true
	}
	end := in.CreatedAt.Add(window)
	if !in.Now.Before(end) {
		return time.Time{}, false
	}
	if at.After(end) {
		at = end
	}
	return at, true
}

func spread(d time.Duration, jitter float64) time.Duration {
	if jitter <= 0 {
		return d
	}
	return d + time.Duration((2*rand.Float64()-1)*jitter*float64(d))
}
