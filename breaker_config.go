package webhook

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"time"
)

// BreakerConfig says when an endpoint's circuit opens, for how long, and how
// traffic returns. The zero value means the defaults (DESIGN.md §3).
type BreakerConfig struct {
	// ConsecutiveFailures in a row open the circuit where the volume is low: as
	// long as fewer than MinAttempts fall into the window. Zero means 5; a
	// negative value turns the rule off.
	ConsecutiveFailures int

	// FailureRatio of failures among the attempts of the window opens the
	// circuit, from MinAttempts on. Between 0 and 1. Zero means 0.5; a negative
	// value turns the rule off.
	FailureRatio float64

	// FlapWindow is how soon after closing an opening counts as flapping, and
	// goes on with the doubled open time instead of starting anew. Zero means
	// 10 minutes; a negative value means never.
	FlapWindow time.Duration

	// LatencyShare is the part of the endpoint's timeout that the p99 latency
	// may reach before the circuit opens, if that is less than MaxLatency. Zero
	// means 0.6; a negative value leaves MaxLatency alone to decide.
	LatencyShare float64

	// MaxLatency is the p99 latency over which the circuit opens, slow
	// successes included, from MinAttempts on. Zero means 10 s; a negative
	// value turns the latency rule off.
	MaxLatency time.Duration

	// MaxOpenFor is what the open time doubles up to. Zero means 30 minutes. A
	// value of OpenFor keeps the open time constant.
	MaxOpenFor time.Duration

	// MinAttempts is how many attempts the window must hold before a ratio or a
	// percentile means anything. Zero means 20.
	MinAttempts int

	// OpenFor is the first open time. Zero means 30 s.
	OpenFor time.Duration

	// OpenJitter spreads open times by that part of them both ways, so that
	// circuits that opened together are not probed together. Zero means 0.2; a
	// negative value means no jitter.
	OpenJitter float64

	// Rand returns a number in [0, 1), for the jitter. Nil means math/rand/v2.
	Rand func() float64

	// SlowStartEvery is the length of a step of slow start. Zero means 30 s.
	SlowStartEvery time.Duration

	// SlowStartRate is the part of its rate limit that an endpoint has in the
	// first step. It doubles with each step. Zero means 0.1.
	SlowStartRate float64

	// SlowStartSlots is how many requests may be in flight in the first step
	// after closing. It doubles with each step, up to the cap. Zero means 2; a
	// negative value turns slow start off, rate included.
	SlowStartSlots int

	// SlowStartSuccess is the part of a step's attempts that must succeed, and
	// not be slow, for the next step to begin: more than this. Zero means 0.95.
	SlowStartSuccess float64

	// Window is the rolling time over which attempts are counted. Zero means
	// 60 s.
	Window time.Duration
}

// validate checks the fields and names the one that is wrong.
func (c BreakerConfig) validate() error {
	switch {
	case c.FailureRatio > 1:
		return fmt.Errorf("breaker: FailureRatio %v is not between 0 and 1", c.FailureRatio)
	case c.LatencyShare > 1:
		return fmt.Errorf("breaker: LatencyShare %v is not between 0 and 1", c.LatencyShare)
	case c.MinAttempts < 0:
		return fmt.Errorf("breaker: MinAttempts %d is negative", c.MinAttempts)
	case c.OpenFor < 0:
		return fmt.Errorf("breaker: OpenFor %v is negative", c.OpenFor)
	case c.MaxOpenFor < 0, c.MaxOpenFor > 0 && c.MaxOpenFor < c.OpenFor:
		return fmt.Errorf("breaker: MaxOpenFor %v is less than OpenFor %v", c.MaxOpenFor, c.OpenFor)
	case c.OpenJitter >= 1:
		return fmt.Errorf("breaker: OpenJitter %v is not below 1", c.OpenJitter)
	case c.SlowStartEvery < 0:
		return fmt.Errorf("breaker: SlowStartEvery %v is negative", c.SlowStartEvery)
	case c.SlowStartRate < 0 || c.SlowStartRate > 1:
		return fmt.Errorf("breaker: SlowStartRate %v is not between 0 and 1", c.SlowStartRate)
	case c.SlowStartSuccess < 0 || c.SlowStartSuccess >= 1:
		return fmt.Errorf("breaker: SlowStartSuccess %v is not from 0 to below 1", c.SlowStartSuccess)
	case c.Window < 0 || c.Window > 0 && c.Window < breakerBuckets*time.Millisecond:
		return fmt.Errorf("breaker: Window %v is shorter than %v", c.Window, breakerBuckets*time.Millisecond)
	}
	return nil
}

func (c BreakerConfig) withDefaults() *BreakerConfig {
	c.ConsecutiveFailures = cmp.Or(c.ConsecutiveFailures, 5)
	c.FailureRatio = cmp.Or(c.FailureRatio, 0.5)
	c.FlapWindow = cmp.Or(c.FlapWindow, 10*time.Minute)
	c.LatencyShare = cmp.Or(c.LatencyShare, 0.6)
	c.MaxLatency = cmp.Or(c.MaxLatency, 10*time.Second)
	c.MinAttempts = cmp.Or(c.MinAttempts, 20)
	c.OpenFor = cmp.Or(c.OpenFor, 30*time.Second)
	c.MaxOpenFor = max(c.OpenFor, cmp.Or(c.MaxOpenFor, 30*time.Minute))
	c.OpenJitter = cmp.Or(c.OpenJitter, 0.2)
	c.SlowStartEvery = cmp.Or(c.SlowStartEvery, 30*time.Second)
	c.SlowStartRate = cmp.Or(c.SlowStartRate, 0.1)
	c.SlowStartSlots = cmp.Or(c.SlowStartSlots, 2)
	c.SlowStartSuccess = cmp.Or(c.SlowStartSuccess, 0.95)
	c.Window = cmp.Or(c.Window, 60*time.Second)
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	return &c
}
