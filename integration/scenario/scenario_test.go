package scenario_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/scheduler"
)

// One tenant imports its whole history, to twenty endpoints of its own.
func noisyTenant(w *world) {
	tenants, others := w.crowd(10)
	var noisy []*receiver
	for range 20 {
		r := w.receiver(answers(100 * time.Millisecond))
		w.endpoint("noisy", r)
		noisy = append(noisy, r)
	}
	w.dispatch(webhook.DispatcherConfig{MaxInFlight: 16})
	w.warm(slices.Concat(others, noisy), append(slices.Clone(tenants), "noisy")...)
	w.publish(60*stretch, "noisy")
	w.eventually("the import is under way", func() bool { return len(noisy[0].log(time.Time{})) > 3 })
	began, sent := time.Now(), 0
	w.every(200*time.Millisecond, 2*time.Second, func() { w.publish(1, tenants...); sent++ })
	pause(w.t.Context(), time.Second)
	w.checkInTime(began, sent, others...)
	w.checkf(w.most() >= 16, "the rest is the noisy tenant's: %d in flight", w.most())
}

func TestNoisyTenant(t *testing.T) {
	incident(t, noisyTenant, without{"the fair share", scheduler.FairShare})
}

// Some endpoints are dead and stay so. They are left alone, but for a probe now
// and then.
func deadEndpoints(w *world) {
	tenants, others := w.crowd(10)
	var dead []*receiver
	for i := range 3 {
		r := w.receiver(func(int) (time.Duration, int) { return 20 * time.Millisecond, http.StatusServiceUnavailable })
		tenant := fmt.Sprintf("dead-%d", i)
		w.endpoint(tenant, r)
		tenants, dead = append(tenants, tenant), append(dead, r)
	}
	w.dispatch(webhook.DispatcherConfig{
		Breaker: webhook.BreakerConfig{OpenFor: time.Second, MaxOpenFor: 4 * time.Second},
		Retry:   webhook.RetrySchedule{Delays: slices.Repeat([]time.Duration{time.Minute}, 10)},
	})
	w.every(100*time.Millisecond, 2*time.Second, func() { w.publish(1, tenants...) })
	began, sent := time.Now(), 0
	w.every(100*time.Millisecond, 3*time.Second, func() { w.publish(1, tenants...); sent++ })
	pause(w.t.Context(), time.Second)
	w.checkInTime(began, sent, others...)
	for i, r := range dead {
		n := len(r.log(began))
		w.checkf(n <= sent/3, "a dead endpoint got %d of %d requests (%d)", n, sent, i)
	}
}

func TestDeadEndpoints(t *testing.T) {
	incident(t, deadEndpoints, without{"circuits", scheduler.CircuitBreaking})
}

// A receiver comes back after an outage with a backlog, and for its first second it
// bears three requests at once; more knock it over again.
func recoveryStampede(w *world) {
	var up atomic.Int64 // since when, Unix nanoseconds; 0: down
	var knocked atomic.Int64
	r := w.receiver(func(n int) (time.Duration, int) {
		since := up.Load()
		switch {
		case since == 0:
			return 5 * time.Millisecond, http.StatusBadGateway
		case n > 3 && time.Since(time.Unix(0, since)) < time.Second:
			knocked.Add(1)
			return 5 * time.Millisecond, http.StatusBadGateway
		}
		return 50 * time.Millisecond, http.StatusOK
	})
	w.endpoint("acme", r)
	w.dispatch(webhook.DispatcherConfig{
		Breaker:   webhook.BreakerConfig{OpenFor: 500 * time.Millisecond, MaxOpenFor: time.Second, SlowStartEvery: 2 * time.Second},
		Isolation: webhook.IsolationConfig{RetryShare: -1},
		Retry:     webhook.RetrySchedule{Delays: slices.Repeat([]time.Duration{100 * time.Millisecond}, 100)},
	})
	w.publish(150, "acme")
	w.eventually("the circuit opens", func() bool { return len(r.log(time.Time{})) >= 5 })
	pause(w.t.Context(), 700*time.Millisecond)
	up.Store(time.Now().UnixNano())
	w.eventually("it is found to be back", func() bool { return len(r.log(time.Unix(0, up.Load()))) > 0 })
	up.Store(time.Now().UnixNano())
	pause(w.t.Context(), 5*time.Second)
	w.checkf(knocked.Load() == 0, "it was knocked over by %d requests", knocked.Load())
	n := len(r.log(time.Unix(0, up.Load())))
	w.checkf(n >= 60, "the backlog drains: %d", n)
}

func TestRecoveryStampede(t *testing.T) {
	incident(t, recoveryStampede, without{"slow start and the cold start", scheduler.SlowStart | scheduler.ColdStart})
}

// An endpoint gets more than it can take. What is new goes out at once for the most
// part, and the backlog drains beside it.
func sustainedOverload(w *world) {
	r := w.receiver(answers(40 * time.Millisecond))
	w.endpoint("acme", r, func(p *webhook.EndpointParams) { p.MaxInFlight = 1 })
	w.dispatch(webhook.DispatcherConfig{})
	w.warm([]*receiver{r}, "acme")
	w.publish(1000, "acme")
	backlog := time.Now()
	w.ages("acme", time.Hour)
	pause(w.t.Context(), 500*time.Millisecond)
	began := time.Now()
	w.every(40*time.Millisecond, 4*time.Second, func() { w.publish(1, "acme") })
	log := r.log(began)
	old := 0
	for _, a := range log {
		if a.enqueued.Before(backlog) {
			old++
		}
	}
	w.checkf(old*100 >= 12*len(log), "%d of %d requests were for the backlog", old, len(log))
	w.checkf(old*100 <= 70*len(log), "%d of %d requests were for the backlog, so new ones wait", old, len(log))
}

func TestSustainedOverload(t *testing.T) {
	incident(t, sustainedOverload, without{"the backlog floor", scheduler.BacklogFloor})
}

// The overload goes on. What cannot be sent in time is recorded as shed, for all to
// see, instead of waiting behind more and more; and nothing else is.
func sheddingOverload(w *world) {
	const growth = time.Second
	r, other := w.receiver(answers(20*time.Millisecond)), w.receiver(answers(0))
	w.endpoint("acme", r, func(p *webhook.EndpointParams) { p.MaxInFlight, p.ShedBacklog = 1, 30 })
	w.endpoint("acme", other)
	w.dispatch(webhook.DispatcherConfig{Isolation: webhook.IsolationConfig{ShedGrowth: growth}})
	w.warm([]*receiver{r, other}, "acme")
	sent, began := 2, time.Now()
	// However slow the machine is, the backlog grows, and not without bounds.
	for w.shedOf(r) == 0 && time.Since(began) < 6*growth {
		waiting := sent - len(r.log(time.Time{}))
		if n := 35 + int(time.Since(began)/(20*time.Millisecond)) - waiting; n > 0 {
			w.publish(n, "acme")
			sent += n
		}
		pause(w.t.Context(), 20*time.Millisecond)
	}
	if w.shedOf(r) == 0 {
		w.checkf(false, "nothing was shed with %d of %d waiting", sent-len(r.log(time.Time{})), sent)
		return
	}
	w.checkf(time.Since(began) > growth, "shedding began after %v", time.Since(began))
	w.eventually("the endpoint's owner is told", func() bool {
		notices, err := w.hooks.Health().Notices(w.t.Context(), webhook.ListNoticesParams{Scope: webhook.TenantScope("acme"), EndpointID: r.endpoint})
		return err == nil && slices.ContainsFunc(notices, func(n webhook.Notice) bool { return n.Kind == webhook.NoticeShedding })
	})
	w.publish(50, "acme")
	sent += 50
	w.eventually("every delivery has come to an end", func() bool {
		return len(other.log(time.Time{})) == sent && len(r.log(time.Time{}))+w.count("dead") == sent
	})
	w.checkf(w.count("dead") == w.count("dead WHERE state = 'shed'") && w.shedOf(other) == 0, "something else was shed")
	w.checkf(w.shedOf(r) == w.count("dead"), "%d of %d shed deliveries were told", w.shedOf(r), w.count("dead"))
}

func TestSustainedOverloadSheds(t *testing.T) {
	incident(t, sheddingOverload, without{"shedding", scheduler.Shedding})
}

// Thirty tenants' endpoints are on one host, and one of them has a backlog.
func manyOnOneHost(w *world) {
	var working atomic.Int64
	shared := w.receiver(func(n int) (time.Duration, int) {
		working.Store(max(working.Load(), int64(n)))
		return 20 * time.Millisecond, http.StatusOK
	})
	var tenants []string
	for i := range 30 {
		tenants = append(tenants, fmt.Sprintf("tenant-%d", i))
		w.endpoint(tenants[i], shared)
	}
	w.endpoint("big", shared)
	w.dispatch(webhook.DispatcherConfig{MaxInFlightPerHost: 6})
	w.publish(300, "big")
	w.eventually("the backlog drains", func() bool { return len(shared.log(time.Time{})) > 20 })
	began, sent := time.Now(), 0
	w.every(500*time.Millisecond, 2*time.Second, func() { w.publish(1, tenants...); sent++ })
	pause(w.t.Context(), 2*time.Second)
	inTime := 0
	for _, a := range shared.log(began) {
		if !a.enqueued.Before(began) && a.at.Sub(a.enqueued) < 3*time.Second {
			inTime++
		}
	}
	w.checkf(inTime*100 >= 80*sent*len(tenants), "%d of %d arrived within three seconds", inTime, sent*len(tenants))
	w.checkf(working.Load() <= 6, "%d requests at once at the host", working.Load())
}

func TestManyEndpointsOnOneHost(t *testing.T) {
	incident(t, manyOnOneHost, without{"the host cap", scheduler.HostCap})
}

// An endpoint refuses almost everything, and no circuit opens. Its retries stay
// within their budget.
func retryStorm(w *world) {
	r := w.receiver(func(int) (time.Duration, int) { return 5 * time.Millisecond, http.StatusInternalServerError })
	w.endpoint("acme", r)
	w.dispatch(webhook.DispatcherConfig{
		Breaker: webhook.BreakerConfig{ConsecutiveFailures: -1, FailureRatio: -1},
		Retry:   webhook.RetrySchedule{Delays: slices.Repeat([]time.Duration{200 * time.Millisecond}, 20)},
	})
	sent := 0
	w.every(50*time.Millisecond, 3*time.Second, func() { w.publish(1, "acme"); sent++ })
	pause(w.t.Context(), time.Second)
	n := len(r.log(time.Time{}))
	w.checkf(n <= sent*5/4+8, "%d requests for %d events", n, sent)
	w.checkf(n >= sent, "%d requests for %d events", n, sent)
}

func TestRetryStorm(t *testing.T) {
	incident(t, retryStorm, without{"the retry budget", scheduler.RetryBudget})
}

// On the first of the month everybody gets ten times as much, at once.
func firstOfTheMonth(w *world) {
	tenants, receivers := w.crowd(10)
	w.dispatch(webhook.DispatcherConfig{MaxInFlight: 20, MaxInFlightPerEndpoint: 4})
	w.warm(receivers, tenants...)
	w.publish(20*stretch, tenants...)
	w.publish(100*stretch, tenants[0])
	w.eventually("all is delivered", func() bool {
		n := 0
		for _, r := range receivers {
			n += len(r.log(time.Time{}))
		}
		return n == (2+20*stretch)*len(tenants)+100*stretch
	})
	w.checkf(w.most() <= 20, "%d requests at once", w.most())
	for _, r := range receivers {
		w.checkf(r.most() <= 4, "%d requests at once at one endpoint", r.most())
	}
}

func TestFirstOfTheMonth(t *testing.T) {
	incident(t, firstOfTheMonth, without{"the global limit", scheduler.GlobalLimit}, without{"the cap", scheduler.EndpointCap})
}
