package scenario

import (
	"fmt"
	"testing"
	"time"

	"github.com/outhook/webhook/internal/scheduler"
)

// One tenant of 51 has 40 % of the events, all for one endpoint whose receiver
// has raised its caps, and then publishes 15,000 at once.
func noisyEndpoint(w *world) {
	w.cfg.GlobalMax = 100
	others := w.crowd(50)
	noisy := w.endpoint("noisy", w.answers(120*time.Millisecond), func(s *scheduler.EndpointSpec) {
		s.MaxInFlight, s.HostMax = 100, 100
	})
	warm(noisy)
	w.traffic(180, time.Minute, others...)
	w.traffic(120, time.Minute, noisy)

	w.run(30 * time.Second)
	struck := time.Now()
	noisy.publish(15_000)
	w.run(30 * time.Second)

	w.checkUnharmed(struck, 1.1, others...)
	w.checkf(noisy.done > 12_500, "the noisy one uses what is left over: %d done", noisy.done)
}

// One tenant has 500 endpoints, and each of them gets a backlog at once.
func manyEndpoints(w *world) {
	w.cfg.GlobalMax = 100
	others := w.crowd(50)
	var noisy []*endpoint
	for range 500 {
		noisy = append(noisy, w.endpoint("noisy", w.answers(120*time.Millisecond), nil))
	}
	warm(noisy...)
	w.traffic(180, time.Minute, others...)

	w.run(30 * time.Second)
	struck := time.Now()
	for _, e := range noisy {
		e.publish(30)
	}
	w.run(30 * time.Second)

	w.checkUnharmed(struck, 1.1, others...)
	done := 0
	for _, e := range noisy {
		done += e.done
	}
	w.checkf(done > 12_500, "the noisy one uses what is left over: %d done", done)
}

func TestNoisyTenantWithOneEndpoint(t *testing.T) {
	incident(t, noisyEndpoint, without{name: "the fair share", off: scheduler.FairShare})
}

func TestNoisyTenantWithManyEndpoints(t *testing.T) {
	incident(t, manyEndpoints, without{name: "the fair share", off: scheduler.FairShare})
}

// On the first of the month every tenant publishes ten times as much as ever,
// for 20 seconds: six times of what the process can send.
func firstOfTheMonth(w *world) {
	w.cfg.GlobalMax = 40
	crowd := w.crowd(80)
	paying := w.endpoint("paying", w.answers(120*time.Millisecond), func(s *scheduler.EndpointSpec) { s.Weight = 50 })
	warm(paying)
	w.traffic(190, 2*time.Minute, crowd...)
	w.traffic(10, 2*time.Minute, paying)
	w.run(30 * time.Second)
	struck := time.Now()
	w.traffic(1800, 20*time.Second, crowd...)
	w.run(20 * time.Second)

	w.checkf(w.maxInFlight <= 40, "%d requests in flight", w.maxInFlight)
	least, most := 1<<30, 0
	for _, e := range crowd {
		done := 0
		for _, a := range e.attempts {
			done += count(a.started.After(struck))
		}
		least, most = min(least, done), max(most, done)
	}
	w.checkf(float64(most) < 1.5*float64(least), "of tenants that publish alike one got %d, another %d", least, most)
	took := firstAttempts(struck, time.Now(), paying)
	w.checkf(quantile(took, 0.99) < time.Second, "who pays for weight waits %v", quantile(took, 0.99))

	w.run(5 * time.Minute)
	left := 0
	for _, e := range crowd {
		left += e.live.n
	}
	w.checkf(left == 0, "%d deliveries are still waiting", left)
}

func TestFirstOfTheMonth(t *testing.T) {
	incident(t, firstOfTheMonth,
		without{name: "the global limit", off: scheduler.GlobalLimit},
		without{name: "the fair share", off: scheduler.FairShare},
	)
}

// 40,000 endpoints of 10,000 tenants live on one automation host. All of them
// get an event at once, and one of them has a backlog of 50,000.
func oneHost(w *world) {
	const host = "https://hooks.automation.example:443"
	shared := func(s *scheduler.EndpointSpec) { s.Host = host }
	hoarder := w.endpoint("hoarder", w.answers(100*time.Millisecond), shared)
	var all []*endpoint
	for i := range 40_000 {
		all = append(all, w.endpoint(fmt.Sprintf("tenant-%d", i%10_000), w.answers(100*time.Millisecond), shared))
	}
	elsewhere := w.crowd(20)
	warm(append(all, hoarder)...)
	hoarder.publish(50_000)
	w.traffic(50, 4*time.Minute, elsewhere...)
	w.run(30 * time.Second)
	struck := time.Now()
	for _, e := range all {
		e.publish(1)
	}
	before := hoarder.done
	w.run(210 * time.Second)

	delivered := 0
	for _, e := range all {
		delivered += e.done
	}
	w.checkf(delivered == len(all), "%d of %d delivered", delivered, len(all))
	w.checkf(w.hosts[host].maxInFlight <= 20, "%d requests at once at the host", w.hosts[host].maxInFlight)
	w.checkf(hoarder.done-before < 2_500, "the hoarder had %d of the host's slots", hoarder.done-before)
	w.checkUnharmed(struck, 1.1, elsewhere...)
}

func TestFortyThousandEndpointsOnOneHost(t *testing.T) {
	incident(t, oneHost, without{name: "the host cap", off: scheduler.HostCap})
}

// On a host of 20 slots one path answers in 2.9 s and has a backlog, another in
// 100 ms and has 50 events a second.
func sluggishNeighbour(w *world) {
	shared := func(s *scheduler.EndpointSpec) { s.Host = "https://shared.example:443" }
	sluggish := w.endpoint("a", w.answers(2300*time.Millisecond), shared)
	brisk := w.endpoint("b", w.answers(100*time.Millisecond), shared)
	warm(sluggish, brisk)
	w.traffic(50, 4*time.Minute, brisk)
	w.run(time.Minute)
	struck := time.Now()
	sluggish.publish(100_000)
	w.run(3 * time.Minute)

	took := firstAttempts(struck, time.Now(), brisk)
	w.checkf(quantile(took, 0.99) < 3*time.Second, "the brisk endpoint's p99 is %v", quantile(took, 0.99))
	w.checkf(sluggish.done > 500, "the sluggish one has the rest: %d done", sluggish.done)
}

func TestSluggishNeighbourOnAHost(t *testing.T) {
	incident(t, sluggishNeighbour, without{name: "even sharing", off: scheduler.HostSharing})
}

// A receiver with 20 workers on a host that allows 200 requests at once falls
// over when more than its workers are busy.
func smallReceiver(w *world) {
	down := time.Time{}
	e := w.endpoint("small", func(n int) answer {
		if n > 20 {
			down = time.Now().Add(time.Minute)
		}
		if time.Now().Before(down) {
			return answer{latency: time.Second, outcome: scheduler.Failure}
		}
		return w.answers(500 * time.Millisecond)(n)
	}, func(s *scheduler.EndpointSpec) { s.HostMax = 200 })
	warm(e)
	e.publish(3_000)
	w.run(3 * time.Minute)
	w.checkf(e.maxWork <= 20, "%d requests at once", e.maxWork)
	w.checkf(e.done == 3_000, "%d delivered", e.done)
}

func TestSmallReceiver(t *testing.T) {
	incident(t, smallReceiver, without{name: "the endpoint cap", off: scheduler.EndpointCap})
}

// A process starts, knows nothing yet, and 150 of its 350 endpoints hang.
func coldStart(w *world) {
	var others, hanging []*endpoint
	for i := range 200 {
		others = append(others, w.endpoint(fmt.Sprintf("tenant-%d", i), w.answers(120*time.Millisecond), nil))
	}
	for i := range 150 {
		hanging = append(hanging, w.endpoint(fmt.Sprintf("dead-%d", i), func(int) answer { return answer{latency: time.Hour} }, nil))
	}
	for _, e := range hanging {
		e.publish(200)
	}
	w.traffic(300, 20*time.Second, others...)
	w.run(20 * time.Second)
	took := firstAttempts(time.Time{}, time.Now(), others...)
	w.checkf(quantile(took, 0.99) < 500*time.Millisecond, "the p99 of the others is %v", quantile(took, 0.99))
}

func TestColdStartWithManyDeadEndpoints(t *testing.T) {
	incident(t, coldStart, without{name: "the cold start", off: scheduler.ColdStart})
}
