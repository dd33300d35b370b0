package webhook

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

// StandardWebhooksRetrySchedule makes the 10 attempts over 75 hours that the
// Standard Webhooks specification gives as its example: at once, then after 5 s,
// 5 m, 30 m, 2 h, 5 h, 10 h, 14 h, 20 h and 24 h, each ±20 %.
func StandardWebhooksRetrySchedule() RetrySchedule {
	return RetrySchedule{
		Delays: []time.Duration{
			5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
			10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
		},
		Jitter: 0.2,
		Window: 76 * time.Hour,
	}
}

// ShortRetrySchedule makes 8 attempts within 4 hours, for events that are of no
// use the day after: at once, then after 5 s, 30 s, 2 m, 10 m, 30 m, 1 h and 2 h,
// each ±20 %.
func ShortRetrySchedule() RetrySchedule {
	return RetrySchedule{
		Delays: []time.Duration{
			5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
			time.Hour, 2 * time.Hour,
		},
		Jitter: 0.2,
		Window: 4 * time.Hour,
	}
}

// ExponentialRetry is a [RetryPolicy] with full jitter: the delay after the nth
// attempt is anything from nothing to Base doubled n-1 times, Cap at most. The
// number of attempts is bounded by the window alone. The zero value works; no field
// may be negative.
type ExponentialRetry struct {
	// Base bounds the first delay. Zero means 1 s.
	Base time.Duration
	// Cap bounds all delays. Zero means 1 h.
	Cap time.Duration
	// Window is how long after the beginning of the run attempts may start. Zero
	// means 24 h.
	Window time.Duration
}

// Next implements [RetryPolicy]. A Retry-After is a lower bound.
func (e ExponentialRetry) Next(in RetryInput) (time.Time, bool) {
	orDuration(&e.Base, time.Second)
	orDuration(&e.Cap, time.Hour)
	orDuration(&e.Window, 24*time.Hour)
	bound := e.Cap
	// Shifted further, the bound would overflow; Cap is reached long before.
	if n := in.Attempts - 1; n < 32 && e.Base < e.Cap>>max(n, 0) {
		bound = e.Base << max(n, 0)
	}
	return withinWindow(in, rand.N(bound+1), e.Window)
}

// RetryWindow is Window, or what zero means.
func (e ExponentialRetry) RetryWindow() time.Duration {
	orDuration(&e.Window, 24*time.Hour)
	return e.Window
}

// Validate reports a field that makes no sense.
func (e ExponentialRetry) Validate() error {
	switch {
	case e.Base < 0:
		return fmt.Errorf("exponential retry: Base is %v, less than 0", e.Base)
	case e.Cap < 0:
		return fmt.Errorf("exponential retry: Cap is %v, less than 0", e.Cap)
	case e.Window < 0:
		return fmt.Errorf("exponential retry: Window is %v, less than 0", e.Window)
	}
	return nil
}

// StrictRetry wraps a policy so that an answer which says that the request itself
// is wrong ends the delivery: 400 to 499 except 408, 425 and 429. Without it such
// answers are retried like any other, since customers misconfigure endpoints and
// mend them. A nil policy means [DefaultRetrySchedule].
func StrictRetry(policy RetryPolicy) RetryPolicy {
	if policy == nil {
		policy = DefaultRetrySchedule()
	}
	return strictRetry{policy}
}

type strictRetry struct{ policy RetryPolicy }

// Validate asks the wrapped policy.
func (s strictRetry) Validate() error { return validateRetry(s.policy) }

// RetryWindow is that of the wrapped policy.
func (s strictRetry) RetryWindow() time.Duration { return retryWindow(s.policy) }

func (s strictRetry) Next(in RetryInput) (time.Time, bool) {
	if s.final(in.Status) {
		return time.Time{}, false
	}
	return s.policy.Next(in)
}

func (strictRetry) final(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return status >= 400 && status <= 499
}
