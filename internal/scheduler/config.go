package scheduler

import (
	"cmp"
	"math"
	"math/rand/v2"
	"time"
)

// Config holds the numbers of docs/design.md §3. The zero value means the defaults;
// where a field says so, a negative value turns the rule off.
type Config struct {
	// AdaptiveFloor is the lowest rate, in requests per second, that the
	// adaptive limit falls to. Zero means 1.
	AdaptiveFloor float64

	// BacklogFloor is the part of an endpoint's slots that goes to its oldest
	// deliveries while it has a backlog. Zero means 0.20; negative: no floor.
	BacklogFloor float64

	// ClaimStart is the size of an endpoint's first claim. A claim that comes
	// back full doubles the next one, so that a short queue does not hold slots
	// that it cannot fill. Zero means 4.
	ClaimStart int

	// ColdAfter is how long after its last success an endpoint counts as cold.
	// Zero means 5 minutes; negative: never cold.
	ColdAfter time.Duration

	// ColdSlots is what a cold endpoint may have in flight. Zero means 2.
	ColdSlots int

	// EndpointMax is the cap on an endpoint's requests in flight where its spec
	// names none. Zero means 20.
	EndpointMax int

	// FreshFor is for how long a delivery that became due counts as new, and
	// not as backlog, for endpoints that drain oldest first. Zero means one
	// minute.
	FreshFor time.Duration

	// GlobalMax limits the requests in flight of this process. Zero means 512;
	// negative: no limit.
	GlobalMax int

	// HostMax is the cap on a host's requests in flight where the endpoint's
	// spec names none. Zero means 20; negative: no cap.
	HostMax int

	// NewCircuit makes the circuit of an endpoint, on its first attempt. Nil:
	// endpoints have no circuit.
	NewCircuit func(EndpointSpec) Circuit

	// Off switches single mechanisms off, so that tests can show that the
	// incident which a mechanism prevents comes back without it.
	Off Mechanisms

	// ProbeLease is for how long a probe keeps others from being sent, in case
	// its result never comes. Zero means 90 s, the lease of a claim.
	ProbeLease time.Duration

	// Quantum is how many slots a tenant of weight 1 gets per turn of the
	// deficit round robin. Zero means 1: turns are short, and what an endpoint
	// gets in several turns of one plan is one claim all the same.
	Quantum int

	// Rand returns a number in [0, 1), for jitter. Nil means math/rand/v2.
	Rand func() float64

	// ReplayShare is the part of the slots, of an endpoint and of the process,
	// that replays may have. Zero means 0.10; negative: replays are ordinary.
	ReplayShare float64

	// RetryFloor is the time in which one retry is always allowed, whatever the
	// share says. Zero means 10 s; negative: no floor.
	RetryFloor time.Duration

	// RetryShare is the part of an endpoint's attempts over 60 s that may be
	// retries. Zero means 0.20; negative: no retry budget.
	RetryShare float64

	// ShedBacklog is the backlog over which an endpoint that answers but does
	// not keep up has new deliveries shed. Zero means 100,000; negative: never,
	// unless its spec says otherwise.
	ShedBacklog int64

	// ShedGrowth is the time over which the backlog must have grown before
	// anything is shed. Zero means 10 minutes.
	ShedGrowth time.Duration

	// SilentAfter is how long an endpoint with requests in flight may go without
	// a success before it gets nothing more: many endpoints that begin to hang at
	// the same instant would else fill the process before SlowAfter has passed.
	// Where its usual latency is known, it is five times that, at least half of
	// SilentAfter and at most SlowAfter. Zero means 500 ms; negative: never.
	SilentAfter time.Duration

	// SlowAfter is the moving average latency over which an endpoint, and the
	// age over which a request in flight, counts as slow. Zero means 3 s;
	// negative: nothing is slow.
	SlowAfter time.Duration

	// SlowShare is the part of the global limit, and of each host's slots, that
	// slow endpoints share. Zero means 0.25.
	SlowShare float64

	// ThrottleFor is how long a 429 without Retry-After holds an endpoint back.
	// It doubles with each further one, up to ThrottleMax. Zero means 5 s.
	ThrottleFor time.Duration

	// ThrottleMax is the longest time for which one 429 holds an endpoint back,
	// Retry-After included. Zero means one hour (docs/design.md §4).
	ThrottleMax time.Duration
}

// Mechanisms is a set of the mechanisms of docs/design.md §3.
type Mechanisms uint32

// The mechanisms that [Config.Off] can switch off.
const (
	EndpointCap Mechanisms = 1 << iota
	HostCap
	HostSharing
	FairShare
	GlobalLimit
	SlowLane
	ColdStart
	BacklogFloor
	ReplayLane
	RetryBudget
	RateLimit
	RateRamp
	AdaptiveRate
	SlowStart
	CircuitBreaking
	Throttling
	Shedding
)

func (m Mechanisms) has(one Mechanisms) bool { return m&one != 0 }

const unlimited = math.MaxInt32

// withDefaults resolves zero and negative values, so that the rest of the
// package reads plain numbers.
func (c Config) withDefaults() Config {
	c.AdaptiveFloor = cmp.Or(c.AdaptiveFloor, 1)
	c.BacklogFloor = cmp.Or(c.BacklogFloor, 0.20)
	c.ClaimStart = cmp.Or(c.ClaimStart, 4)
	c.ColdAfter = cmp.Or(c.ColdAfter, 5*time.Minute)
	c.ColdSlots = cmp.Or(c.ColdSlots, 2)
	c.EndpointMax = cmp.Or(c.EndpointMax, 20)
	c.FreshFor = cmp.Or(c.FreshFor, time.Minute)
	c.GlobalMax = cmp.Or(c.GlobalMax, 512)
	c.HostMax = cmp.Or(c.HostMax, 20)
	c.ProbeLease = cmp.Or(c.ProbeLease, 90*time.Second)
	c.Quantum = cmp.Or(c.Quantum, 1)
	c.ReplayShare = cmp.Or(c.ReplayShare, 0.10)
	c.RetryFloor = cmp.Or(c.RetryFloor, 10*time.Second)
	c.RetryShare = cmp.Or(c.RetryShare, 0.20)
	c.ShedBacklog = cmp.Or(c.ShedBacklog, 100_000)
	c.ShedGrowth = cmp.Or(c.ShedGrowth, 10*time.Minute)
	c.SilentAfter = cmp.Or(c.SilentAfter, 500*time.Millisecond)
	c.SlowAfter = cmp.Or(c.SlowAfter, 3*time.Second)
	c.SlowShare = cmp.Or(c.SlowShare, 0.25)
	c.ThrottleFor = cmp.Or(c.ThrottleFor, 5*time.Second)
	c.ThrottleMax = cmp.Or(c.ThrottleMax, time.Hour)
	if c.Rand == nil {
		c.Rand = rand.Float64
	}

	offIf := func(off bool, m Mechanisms) {
		if off {
			c.Off |= m
		}
	}
	offIf(c.BacklogFloor < 0, BacklogFloor)
	offIf(c.ColdAfter < 0, ColdStart)
	offIf(c.GlobalMax < 0, GlobalLimit)
	offIf(c.HostMax < 0, HostCap)
	offIf(c.NewCircuit == nil, CircuitBreaking)
	offIf(c.ReplayShare < 0, ReplayLane)
	offIf(c.RetryShare < 0, RetryBudget)
	offIf(c.SlowAfter < 0, SlowLane)
	if c.Off.has(GlobalLimit) {
		c.GlobalMax = unlimited
	}
	return c
}
