package scenario

import (
	"testing"
	"time"

	"github.com/outhook/webhook/internal/scheduler"
)

// An endpoint answers well but is sent 25 events a second and can take 10, for
// 45 minutes. Its plan allows a backlog of 10,000.
func sustainedOverload(w *world) {
	const threshold = 10_000
	e := w.endpoint("slow", w.answers(2*time.Second), func(s *scheduler.EndpointSpec) { s.ShedBacklog = threshold })
	warm(e)
	sheddingBegan := time.Duration(0)
	begin := time.Now()
	most := 0
	w.every(40*time.Millisecond, func() {
		if sheddingBegan == 0 && !e.shedding.IsZero() {
			sheddingBegan = time.Since(begin)
		}
		e.publish(1)
		most = max(most, e.live.n)
	})
	w.run(45 * time.Minute)
	w.checkf(e.shed > 0, "nothing was shed")
	w.checkf(sheddingBegan >= 10*time.Minute, "shedding began after %v", sheddingBegan)
	w.checkf(most < 2*threshold, "the backlog grew to %d", most)
	w.checkf(e.opened == 0, "an endpoint that answers had its circuit opened")

	var old, fresh, all int
	for _, a := range e.attempts {
		since := a.started.Sub(begin)
		if since < 5*time.Minute || since > 15*time.Minute {
			continue // no backlog yet, or already shedding
		}
		all++
		old += count(a.started.Sub(a.created) > time.Minute)
		fresh += count(a.started.Sub(a.created) < time.Second)
	}
	w.checkf(5*old >= all-5, "%d of %d slots went to the backlog", old, all)
	w.checkf(2*fresh > all, "%d of %d slots went to new deliveries", fresh, all)
}

func TestSustainedOverloadOfOneEndpoint(t *testing.T) {
	incident(t, sustainedOverload,
		without{name: "the backlog floor", off: scheduler.BacklogFloor},
		without{name: "shedding", off: scheduler.Shedding},
	)
}

// An endpoint fails 95 % of what it gets, and its circuit is kept from opening,
// so that nothing but the budget is in the way of its retries.
func retryStorm(w *world) {
	w.breaker.FailureRatio, w.breaker.ConsecutiveFailures = -1, -1
	e := w.endpoint("failing", func(int) answer {
		if w.rng.Float64() < 0.95 {
			return answer{latency: 200 * time.Millisecond, outcome: scheduler.Failure}
		}
		return answer{latency: 200 * time.Millisecond, outcome: scheduler.Success}
	}, nil)
	warm(e)
	w.traffic(2, 2*time.Hour, e)
	w.run(2 * time.Hour)

	for i, a := range e.attempts {
		var all, retries int
		if a.number == 1 {
			continue // only a retry can be one too many
		}
		for j := i; j >= 0 && a.started.Sub(e.attempts[j].started) < time.Minute; j-- {
			all++
			retries += count(e.attempts[j].number > 1)
		}
		if float64(retries) > 0.2*float64(all)+6 {
			w.checkf(false, "%d of %d attempts within a minute were retries", retries, all)
			break
		}
	}
	first := firstAttempts(time.Time{}, time.Now(), e)
	w.checkf(quantile(first, 0.99) < time.Second, "first attempts wait %v for retries", quantile(first, 0.99))
	w.checkf(e.sent > 2*3600, "%d attempts", e.sent)
}

func TestRetryStorm(t *testing.T) {
	incident(t, retryStorm, without{name: "the retry budget", off: scheduler.RetryBudget})
}

// With its circuit, the same endpoint is hardly bothered at all.
func retryStormWithCircuit(w *world) {
	e := w.endpoint("failing", func(int) answer {
		if w.rng.Float64() < 0.95 {
			return answer{latency: 200 * time.Millisecond, outcome: scheduler.Failure}
		}
		return answer{latency: 200 * time.Millisecond, outcome: scheduler.Success}
	}, nil)
	warm(e)
	w.traffic(2, 2*time.Hour, e)
	w.run(2 * time.Hour)
	w.checkf(e.sent < 200, "%d attempts in two hours", e.sent)
}

func TestRetryStormWithCircuit(t *testing.T) {
	incident(t, retryStormWithCircuit, without{name: "the circuit", off: scheduler.CircuitBreaking})
}

// Somebody replays 20,000 deliveries to an endpoint that has live traffic.
func bigReplay(w *world) {
	e := w.endpoint("replaying", w.answers(200*time.Millisecond), nil)
	warm(e)
	w.traffic(60, 4*time.Minute, e)
	w.run(time.Minute)
	struck := time.Now()
	e.replay(20_000)
	w.run(3 * time.Minute)

	w.checkUnharmed(struck, 1.1, e)
	replayed := 0
	for _, a := range e.attempts {
		replayed += count(a.lane == scheduler.Replay)
	}
	w.checkf(replayed > 1_500, "%d replayed in three minutes", replayed)
}

func TestBigReplay(t *testing.T) {
	incident(t, bigReplay, without{name: "the replay lane", off: scheduler.ReplayLane})
}

// A receiver allows 120 requests a minute, answers 429 with the seconds to wait
// to anything more, and bans whoever keeps at it for an hour.
func throttlingReceiver(w *world) {
	var windowEnds, banned time.Time
	in, ignored := 0, 0
	e := w.endpoint("throttling", func(n int) answer {
		now := time.Now()
		if now.Before(banned) {
			return answer{latency: 10 * time.Millisecond, outcome: scheduler.Failure}
		}
		if now.After(windowEnds) {
			windowEnds, in, ignored = now.Add(time.Minute), 0, 0
		}
		in++
		if in <= 120 {
			return w.answers(100 * time.Millisecond)(n)
		}
		ignored++
		if ignored > 30 {
			banned = now.Add(time.Hour)
		}
		return answer{latency: 10 * time.Millisecond, outcome: scheduler.Throttled, after: windowEnds.Sub(now)}
	}, nil)
	warm(e)
	e.publish(2_000)
	w.run(20 * time.Minute)
	w.checkf(banned.IsZero(), "the receiver banned us")
	w.checkf(e.done > 1_900, "%d delivered", e.done)
	w.checkf(e.opened == 0, "a 429 opened the circuit")
}

func TestReceiverThatThrottles(t *testing.T) {
	incident(t, throttlingReceiver, without{name: "throttling", off: scheduler.Throttling})
}

// An outage looks like an overload, with a backlog that grows for hours; but
// nothing is shed in it.
func outageKeepsEverything(w *world) {
	e := w.endpoint("down", func(int) answer { return answer{latency: time.Second, outcome: scheduler.Failure} },
		func(s *scheduler.EndpointSpec) { s.ShedBacklog = 1_000 })
	warm(e)
	w.every(10*time.Second, func() { e.publish(20) })
	w.run(2 * time.Hour)
	w.checkf(e.live.n+len(e.retries) > 14_000, "%d are kept", e.live.n+len(e.retries))
	w.checkf(e.shed == 0, "%d deliveries were shed in an outage", e.shed)
}

func TestOutageShedsNothing(t *testing.T) {
	incident(t, outageKeepsEverything)
}
