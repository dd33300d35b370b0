package scenario_test

import (
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/scheduler"
)

// A customer's receiver takes ten requests a second, and the customer has said so. It
// falls over when it gets three times as many, and must be restarted by hand.
func knownRate(w *world) {
	var crashed atomic.Bool
	within := perSecond{}
	r := w.receiver(func(int) (time.Duration, int) {
		if within.count() > 30 {
			crashed.Store(true)
		}
		return 5 * time.Millisecond, http.StatusOK
	})
	w.endpoint("acme", r, func(p *webhook.EndpointParams) { p.RateLimit, p.Burst = 10, 5 })
	w.dispatch(webhook.DispatcherConfig{})
	w.warm([]*receiver{r}, "acme")
	w.publish(60, "acme")
	w.eventually("all is delivered", func() bool { return len(r.log(time.Time{})) == 62 })
	w.checkf(!crashed.Load(), "the receiver crashed")
}

func TestReceiverWithAKnownRate(t *testing.T) {
	incident(t, knownRate, without{"the rate limit", scheduler.RateLimit})
}

// perSecond counts what came within the last second.
type perSecond struct {
	mu sync.Mutex
	at []time.Time
}

func (p *perSecond) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.at = slices.DeleteFunc(p.at, func(at time.Time) bool { return now.Sub(at) > time.Second })
	p.at = append(p.at, now)
	return len(p.at)
}

// A receiver with a rate of forty a second comes back after an outage, with cold caches:
// in its first two seconds it bears 25 requests, and more knock it over.
func coldCaches(w *world) {
	var up, got atomic.Int64 // since when, Unix nanoseconds; 0: down
	var knocked atomic.Bool
	r := w.receiver(func(int) (time.Duration, int) {
		since := up.Load()
		if since == 0 {
			return 5 * time.Millisecond, http.StatusBadGateway
		}
		if got.Add(1) > 25 && time.Since(time.Unix(0, since)) < 2*time.Second {
			knocked.Store(true)
		}
		return 5 * time.Millisecond, http.StatusOK
	})
	w.endpoint("acme", r, func(p *webhook.EndpointParams) { p.RateLimit, p.Burst = 40, 40 })
	w.dispatch(webhook.DispatcherConfig{
		Breaker:   webhook.BreakerConfig{OpenFor: 500 * time.Millisecond, MaxOpenFor: time.Second, SlowStartEvery: 2 * time.Second},
		Isolation: webhook.IsolationConfig{RetryShare: -1},
		Retry:     webhook.RetrySchedule{Delays: slices.Repeat([]time.Duration{100 * time.Millisecond}, 100)},
	})
	w.publish(200, "acme")
	w.eventually("the circuit opens", func() bool { return w.openedOf(r) == 1 })
	pause(w.t.Context(), 700*time.Millisecond)
	up.Store(time.Now().UnixNano())
	w.eventually("it is found to be back", func() bool { return got.Load() > 0 })
	got.Store(0)
	up.Store(time.Now().UnixNano())
	pause(w.t.Context(), 5*time.Second)
	w.checkf(!knocked.Load(), "it was knocked over by %d requests", got.Load())
	w.checkf(got.Load() >= 15, "the backlog drains: %d", got.Load())
}

func TestRecoveryWithColdCaches(t *testing.T) {
	incident(t, coldCaches, without{"the ramp of the rate", scheduler.RateRamp})
}

// Nobody has set a rate, and the receiver turns away what is over twenty a second. It
// bears to turn away some, and not to turn away hundreds.
func unknownRate(w *world) {
	var refused atomic.Int64
	within := perSecond{}
	r := w.receiver(func(int) (time.Duration, int) {
		if within.count() > 20 {
			refused.Add(1)
			return 5 * time.Millisecond, http.StatusServiceUnavailable
		}
		return 20 * time.Millisecond, http.StatusOK
	})
	w.endpoint("acme", r, func(p *webhook.EndpointParams) { p.AdaptiveRate = true })
	w.dispatch(webhook.DispatcherConfig{
		Breaker:   webhook.BreakerConfig{ConsecutiveFailures: -1, FailureRatio: -1},
		Isolation: webhook.IsolationConfig{RetryShare: -1},
		Retry:     webhook.RetrySchedule{Delays: slices.Repeat([]time.Duration{300 * time.Millisecond}, 100)},
	})
	w.every(100*time.Millisecond, 2*time.Second, func() { w.publish(1, "acme") })
	w.publish(200, "acme")
	w.eventually("it has turned some away", func() bool { return refused.Load() > 0 })
	pause(w.t.Context(), time.Second)
	before := refused.Load()
	pause(w.t.Context(), 3*time.Second)
	after := refused.Load() - before
	w.checkf(after <= 40, "%d requests were turned away in three seconds, one second after the first", after)
	w.checkf(len(r.log(time.Time{})) > 25, "it is still sent something")
}

func TestReceiverWithAnUnknownRate(t *testing.T) {
	incident(t, unknownRate, without{"the adaptive rate", scheduler.AdaptiveRate})
}

// A receiver allows twenty requests in two seconds, answers 429 with the seconds to wait
// to anything more, and bans whoever keeps at it.
func throttling(w *world) {
	var mu sync.Mutex
	var ends, banned time.Time
	in, ignored := 0, 0
	r := w.receiver(func(int) (time.Duration, int) {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		if !banned.IsZero() {
			return 0, http.StatusForbidden
		}
		if now.After(ends) {
			ends, in, ignored = now.Add(2*time.Second), 0, 0
		}
		if in++; in <= 20 {
			return 10 * time.Millisecond, http.StatusOK
		}
		if ignored++; ignored > 12 {
			banned = now
		}
		return 5 * time.Millisecond, http.StatusTooManyRequests
	})
	r.headers = http.Header{"Retry-After": {"2"}}
	isBanned := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return !banned.IsZero()
	}
	w.endpoint("acme", r, func(p *webhook.EndpointParams) { p.MaxInFlight = 4 })
	w.dispatch(webhook.DispatcherConfig{
		Isolation: webhook.IsolationConfig{RetryShare: -1},
		Retry:     webhook.RetrySchedule{Delays: slices.Repeat([]time.Duration{time.Second}, 100)},
	})
	w.publish(60, "acme")
	w.await(20*time.Second, func() bool { return isBanned() || w.count("log") == 60 })
	w.checkf(!isBanned(), "the receiver banned us")
	w.checkf(w.count("log") == 60, "%d of 60 delivered", w.count("log"))
	w.checkf(w.openedOf(r) == 0, "a 429 opened the circuit")
}

func TestReceiverThatThrottles(t *testing.T) {
	incident(t, throttling, without{"throttling", scheduler.Throttling})
}
