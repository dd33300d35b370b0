package scenario

import (
	"fmt"
	"testing"
	"time"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/scheduler"
)

// crowd adds n endpoints of as many tenants, warm and answering in 120 ms.
func (w *world) crowd(n int) []*endpoint {
	var es []*endpoint
	for i := range n {
		es = append(es, w.endpoint(fmt.Sprintf("tenant-%d", i), w.answers(120*time.Millisecond), nil))
	}
	warm(es...)
	return es
}

// A big customer with six endpoints, each with room for 60 requests, has 12 %
// of the traffic. At one instant all of them go from 120 ms to 29 s, and still
// answer 200.
func slowGiant(timeout time.Duration) func(w *world) {
	return func(w *world) {
		w.cfg.GlobalMax = 256
		others := w.crowd(100)
		hangs := false
		var giant []*endpoint
		for range 6 {
			giant = append(giant, w.endpoint("giant", func(n int) answer {
				if hangs {
					return answer{latency: 29 * time.Second, outcome: scheduler.Success}
				}
				return w.answers(120 * time.Millisecond)(n)
			}, func(s *scheduler.EndpointSpec) {
				s.Timeout, s.MaxInFlight, s.HostMax = timeout, 60, 60
			}))
		}
		warm(giant...)
		w.traffic(220, 2*time.Minute, others...)
		w.traffic(30, 2*time.Minute, giant...)

		w.run(30 * time.Second)
		hangs = true
		struck := time.Now()
		w.run(90 * time.Second)

		w.checkUnharmed(struck, 1.1, others...)
		w.checkf(w.maxInFlight <= 256, "%d in flight", w.maxInFlight)
		opened := 0
		for _, e := range giant {
			opened += count(e.opened > 0)
		}
		w.checkf(opened == len(giant), "the circuits of %d of %d hanging endpoints opened", opened, len(giant))
	}
}

func TestSlowGiantThatTimesOut(t *testing.T) {
	incident(t, slowGiant(10*time.Second),
		without{name: "the slow lane and the cold start", off: scheduler.SlowLane | scheduler.ColdStart},
		without{name: "circuits", off: scheduler.CircuitBreaking},
	)
}

func TestSlowGiantThatAnswersInTheEnd(t *testing.T) {
	incident(t, slowGiant(30*time.Second),
		without{name: "the slow lane", off: scheduler.SlowLane},
		without{name: "the latency rule", breaker: func(c *webhook.BreakerConfig) { c.MaxLatency = -1 }},
	)
}

// At one instant 5 % of the endpoints hang until their timeout and another 5 %
// answer 500, in a process with 60 % of its capacity in use.
func suddenHang(w *world) {
	w.cfg.GlobalMax = 128
	healthy := w.crowd(360)
	struck := false
	var hanging []*endpoint
	for i := range 40 {
		e := w.endpoint(fmt.Sprintf("struck-%d", i), func(n int) answer {
			switch {
			case !struck:
				return w.answers(120 * time.Millisecond)(n)
			case i < 20:
				return answer{latency: time.Hour}
			default:
				return answer{latency: 20 * time.Millisecond, outcome: scheduler.Failure}
			}
		}, func(s *scheduler.EndpointSpec) { s.Timeout = 30 * time.Second })
		hanging = append(hanging, e)
	}
	warm(hanging...)
	w.traffic(640, time.Minute, append(hanging, healthy...)...)
	w.run(20 * time.Second)
	struck = true
	at := time.Now()
	w.run(40 * time.Second)
	w.checkUnharmed(at, 1.1, healthy...)
}

func TestSuddenHang(t *testing.T) {
	incident(t, suddenHang, without{name: "the cold start", off: scheduler.ColdStart})
}
