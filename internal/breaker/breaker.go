// Package breaker is the circuit breaker of an endpoint: when its circuit opens, for
// how long, and how traffic returns.
//
// Counting attempts in the rolling window and deciding on the failure ratio is
// done by gobreaker while the circuit is closed. Everything from the opening on
// is done here, because gobreaker's open time is fixed, its half-open state has
// no end when a probe is lost, it knows no latency and no slow start, and it
// only ever asks whether to open when an attempt failed.
package breaker

import (
	"errors"
	"math"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/outhook/webhook/internal/scheduler"
)

// Breaker is the circuit breaker of one endpoint. It needs no lock, because the
// dispatcher's loop alone owns it.
type Breaker struct {
	cfg *Config

	// While closed. The windows are made with the first attempt of their kind.
	failed     *window // all attempts, failures as failures
	slow       *window // slow attempts alone
	lastRecord time.Time
	streak     int // failures in a row

	openedAt   time.Time
	openUntil  time.Time // zero: closed
	probeUntil time.Time
	closedAt   time.Time
	trips      int // openings in a row; sets the open time
	flaps      int

	step      int // of slow start, from 1; zero: none
	stepSince time.Time
	stepGood  int
	stepAll   int
}

// New returns a closed circuit. An error names a field of cfg that is out
// of range.
func New(cfg Config) (*Breaker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Breaker{cfg: cfg.withDefaults()}, nil
}

// Circuits returns what makes the circuits of a dispatcher's endpoints: they share one
// resolved config, which must be valid.
func (c Config) Circuits() func(scheduler.EndpointSpec) scheduler.Circuit {
	cfg := c.withDefaults()
	return func(scheduler.EndpointSpec) scheduler.Circuit { return &Breaker{cfg: cfg} }
}

var _ scheduler.Circuit = (*Breaker)(nil)

func (b *Breaker) state(now time.Time) scheduler.CircuitState {
	switch {
	case b.openUntil.IsZero():
		return scheduler.Closed
	case now.Before(b.openUntil):
		return scheduler.Open
	default:
		return scheduler.HalfOpen
	}
}

// View tells what the circuit allows now.
func (b *Breaker) View(now time.Time) scheduler.CircuitView {
	v := scheduler.CircuitView{State: b.state(now)}
	if v.State != scheduler.Closed {
		v.ProbeAt = b.openUntil
		if b.probeUntil.After(v.ProbeAt) {
			v.ProbeAt = b.probeUntil
		}
		return v
	}
	if b.step > 0 {
		v.MaxInFlight = b.stepSlots()
		v.RateFactor = b.stepRate()
	}
	v.Quiet = b.step == 0 && b.streak == 0 && !b.remembersTrips(now) && now.Sub(b.lastRecord) > b.cfg.Window
	return v
}

func (b *Breaker) stepSlots() int { return b.cfg.SlowStartSlots << min(b.step-1, 20) }

func (b *Breaker) stepRate() float64 {
	return math.Min(1, b.cfg.SlowStartRate*float64(int(1)<<min(b.step-1, 20)))
}

// remembersTrips reports whether an opening now would go on doubling.
func (b *Breaker) remembersTrips(now time.Time) bool {
	return b.trips > 0 && (b.step > 0 || now.Sub(b.closedAt) <= b.cfg.FlapWindow)
}

// LeaseProbe marks the probe as taken until then; the zero time gives it back.
func (b *Breaker) LeaseProbe(until time.Time) { b.probeUntil = until }

// Record takes the result of an attempt.
func (b *Breaker) Record(now time.Time, a scheduler.CircuitAttempt) scheduler.CircuitChange {
	if b.state(now) != scheduler.Closed {
		if !a.Probe {
			// Sent before the opening: it tells nothing new, and must not close.
			return scheduler.CircuitChange{}
		}
		return b.recordProbe(now, a.Outcome)
	}
	if a.Outcome != scheduler.Success && a.Outcome != scheduler.Failure {
		return scheduler.CircuitChange{}
	}
	return b.recordClosed(now, a)
}

func (b *Breaker) recordProbe(now time.Time, o scheduler.Outcome) scheduler.CircuitChange {
	b.probeUntil = time.Time{}
	switch o {
	case scheduler.Success:
		b.close(now)
		return scheduler.CircuitChange{Changed: true, Closed: true}
	case scheduler.Failure:
		b.streak++
		b.open(now)
		return scheduler.CircuitChange{Changed: true, Opened: true}
	case scheduler.Neutral, scheduler.Throttled, scheduler.Blocked:
	}
	// Nothing was learned. The next probe waits for the first open time, so that
	// a fault on our side does not send one after the other.
	b.openUntil = now.Add(b.jittered(b.cfg.OpenFor))
	return scheduler.CircuitChange{Changed: true}
}

func (b *Breaker) recordClosed(now time.Time, a scheduler.CircuitAttempt) scheduler.CircuitChange {
	if b.failed == nil {
		b.failed = newWindow(b.cfg, b.failureRatioReached)
	}
	b.lastRecord = now
	var result error
	if a.Outcome == scheduler.Failure {
		result = errCounted
		b.streak++
	} else {
		b.streak = 0
	}
	slow := b.isSlow(a)
	if slow {
		b.countSlow()
	}
	if b.failed.add(result) || b.latencyReached() || b.streakReached() {
		flapped := b.remembersTrips(now) && now.Sub(b.closedAt) <= b.cfg.FlapWindow
		if flapped {
			b.flaps++
		}
		if !b.remembersTrips(now) {
			b.trips = 0
		}
		b.open(now)
		return scheduler.CircuitChange{Changed: true, Opened: true, Flapped: flapped}
	}
	if b.step == 0 || now.Add(-a.Latency).Before(b.stepSince) {
		// One that began before the step tells nothing about it.
		return scheduler.CircuitChange{}
	}
	b.stepAll++
	if result == nil && !slow {
		b.stepGood++
	}
	return scheduler.CircuitChange{Changed: b.stepBack(now) || b.advance(now, a.Cap)}
}

// isSlow compares with the threshold of the endpoint's present timeout.
func (b *Breaker) isSlow(a scheduler.CircuitAttempt) bool {
	if b.cfg.MaxLatency < 0 {
		return false
	}
	threshold := b.cfg.MaxLatency
	if a.Timeout > 0 && b.cfg.LatencyShare > 0 {
		threshold = min(threshold, time.Duration(b.cfg.LatencyShare*float64(a.Timeout)))
	}
	return a.Latency > threshold
}

func (b *Breaker) failureRatioReached(c gobreaker.Counts) bool {
	n := attemptsIn(c)
	return b.cfg.FailureRatio > 0 && n >= b.cfg.MinAttempts &&
		float64(c.TotalFailures) >= b.cfg.FailureRatio*float64(n)
}

// latencyReached reports whether the p99 is over the threshold. Of n latencies in ascending order the p99 is the one at
// floor(0.99(n-1)), counted from 0: a single outlier among twenty is none. Only
// slow attempts are in the second window, so that endpoints without any need no
// second one.
func (b *Breaker) latencyReached() bool {
	if b.slow == nil {
		return false
	}
	count := b.slow.attempts()
	if count == 0 {
		b.slow = nil
	}
	n := b.failed.attempts()
	return n >= b.cfg.MinAttempts && count >= n-99*(n-1)/100
}

func (b *Breaker) countSlow() {
	if b.slow == nil {
		b.slow = newWindow(b.cfg, never)
	}
	b.slow.add(errCounted)
}

func never(gobreaker.Counts) bool { return false }

func (b *Breaker) streakReached() bool {
	if b.cfg.ConsecutiveFailures < 0 || b.streak < b.cfg.ConsecutiveFailures {
		return false
	}
	return b.failed.attempts() < b.cfg.MinAttempts
}

// strain is how many times as many attempts as may fail for the next step to begin
// must fail for a step to end at once, and strainOver how many attempts at least that
// is a part of.
const (
	strain     = 2
	strainOver = 20
)

// stepBack goes back to the step before when this one is too much for the receiver,
// without waiting for the step's time to pass or the circuit to open: it may take its
// time to warm up.
func (b *Breaker) stepBack(now time.Time) bool {
	bad := float64(b.stepAll - b.stepGood)
	if b.step == 1 || bad <= strain*(1-b.cfg.SlowStartSuccess)*float64(max(b.stepAll, strainOver)) {
		return false
	}
	b.step--
	b.stepSince, b.stepGood, b.stepAll = now, 0, 0
	return true
}

// advance goes on with slow start: a step ends when its time is over and enough
// of its attempts were good, and begins anew if they were not.
func (b *Breaker) advance(now time.Time, limit int) bool {
	if now.Sub(b.stepSince) < b.cfg.SlowStartEvery {
		return false
	}
	enough := float64(b.stepGood) > b.cfg.SlowStartSuccess*float64(b.stepAll)
	b.stepSince, b.stepGood, b.stepAll = now, 0, 0
	if !enough {
		return false
	}
	b.step++
	if b.stepSlots() >= limit && b.stepRate() >= 1 {
		b.step = 0
	}
	return true
}

// open is the one place where a circuit opens, or reopens after a probe.
func (b *Breaker) open(now time.Time) {
	if b.openUntil.IsZero() {
		b.openedAt = now
	}
	b.trips++
	d := b.cfg.OpenFor
	for i := 1; i < b.trips && d < b.cfg.MaxOpenFor; i++ {
		d *= 2
	}
	b.openUntil = now.Add(b.jittered(min(d, b.cfg.MaxOpenFor)))
	b.probeUntil = time.Time{}
	b.failed, b.slow = nil, nil
	b.step, b.stepGood, b.stepAll = 0, 0, 0
}

// close is the one place where a circuit closes.
func (b *Breaker) close(now time.Time) {
	b.openedAt, b.openUntil, b.probeUntil = time.Time{}, time.Time{}, time.Time{}
	b.closedAt = now
	b.streak = 0
	b.lastRecord = now
	if b.cfg.SlowStartSlots > 0 {
		b.step, b.stepSince, b.stepGood, b.stepAll = 1, now, 0, 0
	}
}

func (b *Breaker) jittered(d time.Duration) time.Duration {
	if b.cfg.OpenJitter <= 0 {
		return d
	}
	return time.Duration(float64(d) * (1 + b.cfg.OpenJitter*(2*b.cfg.Rand()-1)))
}

// Snapshot returns what must survive a restart and a hand-over.
func (b *Breaker) Snapshot(now time.Time) scheduler.CircuitSnapshot {
	return scheduler.CircuitSnapshot{
		ClosedAt: b.closedAt, Failures: b.streak, Flaps: b.flaps, OpenedAt: b.openedAt, OpenUntil: b.openUntil,
		ProbeUntil: b.probeUntil, State: b.state(now), Step: b.step, StepSince: b.stepSince, Trips: b.trips,
	}
}

// Restore takes over a stored state. What the window held is not stored: the
// counting begins anew. An open time beyond what the config allows, such as one
// stored under another config or another clock, is cut to it.
func (b *Breaker) Restore(now time.Time, s scheduler.CircuitSnapshot) {
	*b = Breaker{
		cfg: b.cfg, streak: max(0, s.Failures), openedAt: s.OpenedAt, openUntil: s.OpenUntil, probeUntil: s.ProbeUntil,
		closedAt: s.ClosedAt, trips: max(0, s.Trips), flaps: max(0, s.Flaps), step: max(0, s.Step),
		stepSince: s.StepSince, lastRecord: now,
	}
	longest := now.Add(time.Duration(float64(b.cfg.MaxOpenFor) * (1 + max(0, b.cfg.OpenJitter))))
	if b.openUntil.After(longest) {
		b.openUntil = longest
	}
	if !b.openUntil.IsZero() || b.cfg.SlowStartSlots < 0 {
		b.step = 0
	}
}

// buckets is how many buckets the rolling window has.
const buckets = 12

var errCounted = errors.New("counted as a failure")

// window counts attempts over the rolling window, on gobreaker's two-step
// breaker. An attempt is registered and reported at its end, both at once: it
// would not be counted if it took longer than the window, and attempts under
// way would count.
type window struct {
	kernel *gobreaker.TwoStepCircuitBreaker[struct{}]
	trips  func(gobreaker.Counts) bool
}

func newWindow(cfg *Config, trips func(gobreaker.Counts) bool) *window {
	return &window{
		trips: trips,
		kernel: gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
			BucketPeriod: cfg.Window / buckets,
			Interval:     cfg.Window,
			ReadyToTrip:  trips,
			// The kernel is thrown away once it has opened: it never half-opens.
			Timeout: math.MaxInt64,
		}),
	}
}

// add counts an attempt, a failure if result is not nil, and reports whether the circuit must open. The kernel
// asks that only when an attempt failed; a success can be the one that makes
// the volume large enough, so it is asked here as well.
func (w *window) add(result error) bool {
	done, err := w.kernel.Allow()
	if err != nil {
		return true
	}
	done(result)
	return w.kernel.State() != gobreaker.StateClosed || w.trips(w.kernel.Counts())
}

// attempts is how many the window holds.
func (w *window) attempts() int {
	w.kernel.State() // lets time pass for the counts, which Counts alone does not
	return attemptsIn(w.kernel.Counts())
}

// attemptsIn counts what has ended; Requests would count what is under way too.
func attemptsIn(c gobreaker.Counts) int { return int(c.TotalSuccesses) + int(c.TotalFailures) }
