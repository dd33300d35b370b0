package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook/internal/vitals"
)

// Defaults of [AutoDisableConfig] (docs/design.md §6).
const (
	DefaultDisableAfter       = 72 * time.Hour
	DefaultDisableMinAttempts = 10
	defaultLowScore           = 10

	// lastAttempt is for how much longer an endpoint may fail, so that the attempt at
	// the end of a retry window that is as long is made, and counts.
	lastAttempt = 10 * time.Minute

	defaultLowScoreFor = 24 * time.Hour
)

// AutoDisableConfig says when an endpoint is disabled that does nothing but fail. A
// 410 disables at once, whatever is set here. An endpoint is never enabled again by
// itself: see [Endpoints.Enable], from which on everything here counts anew, as it does
// when a paused endpoint is resumed.
//
// Give the same to all dispatchers on one database: they take turns in looking.
type AutoDisableConfig struct {
	// NoSuccessFor is how long attempts may go on to fail, counted from the first
	// failure after the latest success, if there were at least MinAttempts. Ten minutes
	// are added, so that a retry window as long comes to its end. Default 72 hours;
	// negative: for ever.
	NoSuccessFor time.Duration
	// MinAttempts is for NoSuccessFor alone. Default 10.
	MinAttempts int

	// CircuitOpenFor is how long the circuit may be open, probes included. Zero and
	// negative: for ever; 48 hours are a good choice. This and what follows never
	// disable an endpoint before attempts have failed for as long as its retry window.
	CircuitOpenFor time.Duration

	// ScoreBelow is the health score that is too low if it stays so for ScoreBelowFor.
	// Zero: none is; 10 is a good choice; at most 100.
	ScoreBelow int
	// ScoreBelowFor is for ScoreBelow alone. Default 24 hours.
	ScoreBelowFor time.Duration

	// ConsecutiveFailures is how many attempts in a row may fail. The one that is too
	// many disables the endpoint before another request is sent in its slot. Zero: any
	// number.
	ConsecutiveFailures int
}

func (c AutoDisableConfig) withDefaults() (AutoDisableConfig, *InvalidError) {
	orDuration(&c.NoSuccessFor, DefaultDisableAfter)
	orInt(&c.MinAttempts, DefaultDisableMinAttempts)
	orDuration(&c.ScoreBelowFor, defaultLowScoreFor)
	switch {
	case c.MinAttempts < 0:
		return c, invalid("MinAttempts", "is negative")
	case c.ScoreBelow < 0 || c.ScoreBelow > 100:
		return c, invalid("ScoreBelow", fmt.Sprintf("is %d, not 0 to 100", c.ScoreBelow))
	case c.ScoreBelowFor < 0:
		return c, invalid("ScoreBelowFor", "is negative")
	case c.ConsecutiveFailures < 0:
		return c, invalid("ConsecutiveFailures", "is negative")
	}
	return c, nil
}

// lowScore is the score of which it is remembered since when it is lower.
func (c *AutoDisableConfig) lowScore() int {
	if c.ScoreBelow > 0 {
		return c.ScoreBelow
	}
	return defaultLowScore
}

// tooMany reports whether a number of failures in a row disables the endpoint, and why.
func (c *AutoDisableConfig) tooMany(run vitals.Run, now time.Time, window time.Duration) (reason string, ok bool) {
	if c.ConsecutiveFailures <= 0 || run.Failures < int64(c.ConsecutiveFailures) || now.Sub(run.Since) < window {
		return "", false
	}
	return fmt.Sprintf("%d failures in a row", run.Failures), true
}

// verdict reports whether an endpoint is to be disabled, and why. Its circuit has been
// open since a time, or is closed; window is its retry window.
func (c *AutoDisableConfig) verdict(v *vitals.State, circuitOpen, now time.Time, window time.Duration) (reason string, ok bool) {
	if v.Run.Failures == 0 {
		return "", false
	}
	failing := now.Sub(v.Run.Since)
	if c.NoSuccessFor > 0 && failing >= c.NoSuccessFor+lastAttempt && v.Run.Failures >= int64(c.MinAttempts) {
		return fmt.Sprintf("no success for %s in %d attempts", hours(failing), v.Run.Failures), true
	}
	if failing < window {
		return "", false
	}
	if reason, ok := c.tooMany(v.Run, now, window); ok {
		return reason, true
	}
	if c.CircuitOpenFor > 0 && !circuitOpen.IsZero() && now.Sub(circuitOpen) > c.CircuitOpenFor {
		return "circuit open for " + hours(now.Sub(circuitOpen)), true
	}
	if c.ScoreBelow > 0 && !v.LowSince.IsZero() && now.Sub(v.LowSince) >= c.ScoreBelowFor && v.Score() < c.ScoreBelow {
		return fmt.Sprintf("score under %d for %s", c.ScoreBelow, hours(now.Sub(v.LowSince))), true
	}
	return "", false
}

func hours(d time.Duration) string {
	if d < time.Hour {
		return d.Truncate(time.Second).String()
	}
	return fmt.Sprintf("%d h", int(d.Hours()))
}

// retrySpan is for how long a policy goes on to try: its window, or the sum of its
// delays. One that does not say is taken to be like the default.
func retrySpan(policy RetryPolicy) time.Duration {
	if w := retryWindow(policy); w > 0 {
		return w
	}
	s, ok := policy.(RetrySchedule)
	if !ok {
		return DefaultRetrySchedule().Window
	}
	var sum time.Duration
	for _, d := range s.Delays {
		sum += d
	}
	return sum
}

// errUnchanged leaves an endpoint as it is.
var errUnchanged = errors.New("nothing to change")

// disableSince disables an endpoint for a cause that has held since it came into its
// present state; one that has changed its state meanwhile is left alone.
func (s *Endpoints) disableSince(ctx context.Context, id uuid.UUID, since time.Time, reason string) error {
	_, err := s.change(ctx, AllTenants(), id, 0, func(_ context.Context, rec *EndpointRecord, _ *private) error {
		if rec.State == EndpointDisabled || !since.IsZero() && (rec.State != EndpointActive || !rec.StateChangedAt.Equal(since)) {
			return errUnchanged
		}
		return putState(rec, EndpointDisabled, reason)
	})
	if errors.Is(err, errUnchanged) || errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
