package scenario_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/scheduler"
)

// A process starts, knows nothing yet, and fifteen of its endpoints hang.
func coldStart(w *world) {
	tenants, others := w.crowd(10)
	for i := range 15 {
		r := w.receiver(answers(time.Minute))
		tenant := fmt.Sprintf("dead-%d", i)
		w.endpoint(tenant, r)
		w.publish(40, tenant)
	}
	w.dispatch(webhook.DispatcherConfig{MaxInFlight: 100, RequestTimeout: 20 * time.Second})
	w.eventually("some hang", func() bool { return w.most() >= 20 })
	began, sent := time.Now(), 0
	w.every(100*time.Millisecond, 1500*time.Millisecond, func() { w.publish(1, tenants...); sent++ })
	w.await(4*time.Second, func() bool { return arrived(began, sent, others...) })
	w.checkf(arrived(began, sent, others...), "the events of others have not arrived")
	w.checkf(w.most() < 100, "%d requests at once, so there was no slot left", w.most())
}

func TestColdStartWithManyDeadEndpoints(t *testing.T) {
	incident(t, coldStart, without{"the cold start", scheduler.ColdStart})
}

// Some endpoints answer well, and slowly, and have more to do than they will ever do.
func sluggishEndpoints(w *world) {
	tenants, others := w.crowd(5)
	var sluggish []*receiver
	for i := range 20 {
		r := w.receiver(answers(2 * time.Second))
		tenant := fmt.Sprintf("sluggish-%d", i)
		w.endpoint(tenant, r)
		w.publish(30, tenant)
		sluggish = append(sluggish, r)
	}
	w.dispatch(webhook.DispatcherConfig{
		Breaker:     webhook.BreakerConfig{MaxLatency: -1},
		Isolation:   webhook.IsolationConfig{SlowAfter: 500 * time.Millisecond},
		MaxInFlight: 80,
	})
	w.eventually("all have answered", func() bool {
		return !slices.ContainsFunc(sluggish, func(r *receiver) bool { return len(r.log(time.Time{})) < 3 })
	})
	began, sent := time.Now(), 0
	w.every(100*time.Millisecond, 2*time.Second, func() { w.publish(1, tenants...); sent++ })
	w.await(3*time.Second, func() bool { return arrived(began, sent, others...) })
	w.checkf(arrived(began, sent, others...), "the events of others have not arrived")
	now := 0
	for _, r := range sluggish {
		now += r.working()
	}
	w.checkf(now <= 40, "%d of 80 slots are taken by slow endpoints", now)
}

func TestSluggishEndpoints(t *testing.T) {
	incident(t, sluggishEndpoints, without{"the slow lane", scheduler.SlowLane})
}

// Somebody replays a few hundred deliveries of an endpoint that has live traffic.
func bigReplay(w *world) {
	var slow atomic.Bool
	r := w.receiver(func(int) (time.Duration, int) {
		if slow.Load() {
			return 200 * time.Millisecond, http.StatusOK
		}
		return 0, http.StatusOK
	})
	w.endpoint("acme", r, func(p *webhook.EndpointParams) { p.MaxInFlight = 10 })
	w.dispatch(webhook.DispatcherConfig{})
	w.publish(500, "acme")
	w.eventually("all is delivered", func() bool { return w.count("log") == 500 })
	slow.Store(true)
	_, err := w.hooks.Replays().Create(w.t.Context(), webhook.AllTenants(), webhook.ReplayJobRequest{
		EndpointID: r.endpoint, States: []webhook.DeliveryState{webhook.StateDelivered},
	})
	require.NoError(w.t, err)
	w.eventually("the replay is under way", func() bool { return len(r.log(time.Time{})) > 505 })
	began, sent := time.Now(), 0
	w.every(50*time.Millisecond, 2*time.Second, func() { w.publish(1, "acme"); sent++ })
	w.await(3*time.Second, func() bool { return live(r, began) == sent })
	w.checkf(live(r, began) == sent, "%d of %d new events have arrived", live(r, began), sent)
	w.checkf(len(r.log(began)) > sent, "the replay goes on beside them")
}

// live is how many of the events that were enqueued since an instant have arrived.
func live(r *receiver, since time.Time) (n int) {
	for _, a := range r.log(since) {
		if !a.enqueued.Before(since) {
			n++
		}
	}
	return n
}

func TestBigReplay(t *testing.T) {
	incident(t, bigReplay, without{"the replay lane", scheduler.ReplayLane})
}

// On a host of four slots one path answers in a second and has a backlog, another in
// 20 ms and has twenty events a second.
func sluggishNeighbour(w *world) {
	var slow atomic.Bool
	host := w.receiver(answers(0))
	sluggish, brisk := host.path("/a", func(int) (time.Duration, int) {
		if slow.Load() {
			return time.Second, http.StatusOK
		}
		return 0, http.StatusOK
	}), host.path("/b", answers(20*time.Millisecond))
	w.endpoint("acme", sluggish)
	w.endpoint("other", brisk)
	w.dispatch(webhook.DispatcherConfig{MaxInFlightPerHost: 4})
	w.warm([]*receiver{sluggish, brisk}, "acme", "other")
	slow.Store(true)
	w.publish(200, "acme")
	w.eventually("the backlog drains", func() bool { return len(sluggish.log(time.Time{})) > 5 })
	began, sent := time.Now(), 0
	w.every(50*time.Millisecond, 3*time.Second, func() { w.publish(1, "other"); sent++ })
	w.await(4*time.Second, func() bool { return live(brisk, began) == sent })
	w.checkf(live(brisk, began) == sent, "%d of %d events of the brisk endpoint have arrived", live(brisk, began), sent)
	w.checkf(len(sluggish.log(began)) >= 4, "the sluggish one has the rest")
}

func TestSluggishNeighbourOnAHost(t *testing.T) {
	incident(t, sluggishNeighbour, without{"even sharing", scheduler.HostSharing})
}
