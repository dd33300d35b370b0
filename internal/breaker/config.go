package breaker

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"time"
)

// Config is webhook.BreakerConfig, which documents the fields: the two are converted
// into one another.
type Config struct {
	ConsecutiveFailures int
	FailureRatio        float64
	FlapWindow          time.Duration
	LatencyShare        float64
	MaxLatency          time.Duration
	MaxOpenFor          time.Duration
	MinAttempts         int
	OpenFor             time.Duration
	OpenJitter          float64
	Rand                func() float64
	SlowStartEvery      time.Duration
	SlowStartRate       float64
	SlowStartSlots      int
	SlowStartSuccess    float64
	Window              time.Duration
}

// Validate checks the fields and names the one that is wrong.
func (c Config) Validate() error {
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
	case c.Window < 0 || c.Window > 0 && c.Window < buckets*time.Millisecond:
		return fmt.Errorf("breaker: Window %v is shorter than %v", c.Window, buckets*time.Millisecond)
	}
	return nil
}

func (c Config) withDefaults() *Config {
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
