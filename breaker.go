package webhook

import (
	"time"

	"github.com/outhook/webhook/internal/breaker"
	"github.com/outhook/webhook/internal/scheduler"
)

// BreakerConfig says when an endpoint's circuit opens, for how long, and how
// traffic returns. The zero value means the defaults (docs/design.md §3). Every endpoint
// has a circuit of its own.
//
// A closed circuit lets deliveries flow. An open one holds them until the open time
// has passed: they use up no attempts meanwhile, but their age counts. Then one
// delivery is sent as a probe, whose result closes the circuit or reopens it for
// longer. Once closed, traffic returns in steps.
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
	// Where twice as many fail as may, the step before begins again at once.
	SlowStartSuccess float64

	// Window is the rolling time over which attempts are counted. Zero means
	// 60 s.
	Window time.Duration
}

func (c BreakerConfig) validate() error { return breaker.Config(c).Validate() }

// circuits returns what makes the circuits of a dispatcher's endpoints: they share one
// resolved config.
func (c BreakerConfig) circuits() func(scheduler.EndpointSpec) scheduler.Circuit {
	return breaker.Config(c).Circuits()
}
