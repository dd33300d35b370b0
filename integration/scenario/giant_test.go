package scenario_test

import (
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/scheduler"
)

// A big customer with six endpoints, each with room for 60 requests, has an eighth of
// the traffic. At one instant all of them go from 20 ms to many seconds, and still answer
// 200. Where requests time out before that, the circuits open on timeouts; where they do
// not, on slow successes. All times are a fifth of the real story's, or a half.
//
// The p99 of everybody else's first attempts is within 1.1 times what it is in a twin of
// this world, at the same time on the same machine, in which nothing happens; and a
// second, a sixth of what those would wait who wait for a slot.
func slowGiant(timeout, latency time.Duration, breaker webhook.BreakerConfig) func(w *world) {
	return func(w *world) {
		var hangs atomic.Bool
		cfg := webhook.DispatcherConfig{
			Breaker:        breaker,
			Isolation:      webhook.IsolationConfig{SlowAfter: time.Second},
			MaxInFlight:    100,
			RequestTimeout: timeout,
		}
		settle := func(w *world) (tenants []string, others, giant []*receiver) {
			tenants, others = w.crowd(10)
			for range 6 {
				r := w.receiver(func(int) (time.Duration, int) {
					if hangs.Load() {
						return latency, http.StatusOK
					}
					return 20 * time.Millisecond, http.StatusOK
				})
				w.endpoint("giant", r, func(p *webhook.EndpointParams) { p.MaxInFlight = 60 })
				giant = append(giant, r)
			}
			cfg.MaxInFlightPerHost = 60
			w.dispatch(cfg)
			w.warm(slices.Concat(others, giant), append(slices.Clone(tenants), "giant")...)
			return tenants, others, giant
		}
		twin := w.twin()
		tenants, others, giant := settle(w)
		_, control, _ := settle(twin)

		// In the twin the giant sends nothing any more.
		hangs.Store(true)
		w.every(50*time.Millisecond, time.Second, func() { w.publish(1, "giant") })
		struck, sent := time.Now(), 0
		w.every(100*time.Millisecond, 4*time.Second, func() {
			w.publish(1, append(slices.Clone(tenants), "giant")...)
			twin.publish(1, tenants...)
			sent++
		})
		w.await(2*time.Second, func() bool { return arrived(struck, sent, others...) && arrived(struck, sent, control...) })
		here, there := p99(firsts(struck, sent, others...)), p99(firsts(struck, sent, control...))
		w.checkf(here <= there+there/10+time.Second, "p99 of others' first attempts is %v, without the giant %v", here, there)
		w.await(10*time.Second, func() bool { return w.openedOf(giant...) == len(giant) || w.broken != nil })
		n := w.openedOf(giant...)
		w.checkf(n == len(giant), "the circuits of %d of %d hanging endpoints opened", n, len(giant))
		twin.stop()
	}
}

func TestSlowGiantThatTimesOut(t *testing.T) {
	incident(t, slowGiant(8*time.Second, 25*time.Second, webhook.BreakerConfig{}),
		without{"the slow lane and the cold start", scheduler.SlowLane | scheduler.ColdStart},
		without{"circuits", scheduler.CircuitBreaking},
	)
}

func TestSlowGiantThatAnswersInTheEnd(t *testing.T) {
	latencyAlone := webhook.BreakerConfig{ConsecutiveFailures: -1, FailureRatio: -1, MaxLatency: 3 * time.Second, MinAttempts: 5}
	incident(t, slowGiant(20*time.Second, 7*time.Second, latencyAlone),
		without{"the slow lane and the cold start", scheduler.SlowLane | scheduler.ColdStart},
		without{"circuits", scheduler.CircuitBreaking},
	)
}

// arrived reports whether all that was sent to each of the receivers has arrived.
func arrived(since time.Time, sent int, receivers ...*receiver) bool {
	took := firsts(since, sent, receivers...)
	return took[len(took)-1] < time.Hour
}
