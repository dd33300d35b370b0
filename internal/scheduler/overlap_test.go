package scheduler_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/outhook/webhook/internal/scheduler"
)

// Endpoints of one host that wait for their shares of its slots must not call one
// another in turn without end, whatever claims overlap.
func TestPlanEndsWhileClaimsOverlapOnAFullHost(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for seed := range uint64(20) {
			overlap(t, rand.New(rand.NewPCG(seed, 1)))
		}
	}()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("Plan does not end")
	}
}

// overlap keeps 50 busy endpoints on one host going, with up to three plans whose
// claims are not settled.
func overlap(t *testing.T, rnd *rand.Rand) {
	t.Helper()
	const endpoints, slots = 50, 200
	b := newBench(t, scheduler.Config{GlobalMax: slots, EndpointMax: slots, HostMax: slots})
	for n := range endpoints {
		e := b.endpoint(n, func(s *scheduler.EndpointSpec) { s.Host, s.Tenant = "https://one:443", strconv.Itoa(n) })
		b.warm(e)
		b.add(e, scheduler.Live, 1)
	}
	type flight struct {
		endpoint scheduler.ID
		*scheduler.Flight
	}
	var plans [][]scheduler.Grant
	var flights []flight
	for range 2000 {
		b.now = b.now.Add(time.Duration(rnd.IntN(3000)) * time.Microsecond)
		if len(plans) < 3 && rnd.IntN(2) == 0 {
			if grants := b.s.Plan(b.now, 500, nil); len(grants) > 0 {
				plans = append(plans, grants)
			}
		}
		if len(plans) > 0 && rnd.IntN(3) == 0 {
			at := rnd.IntN(len(plans))
			for _, g := range plans[at] {
				b.s.Settle(b.now, g, scheduler.Claimed{Oldest: g.Oldest, Newest: g.Newest})
				for range g.Total() {
					if f, _ := b.s.Start(b.now, g.Endpoint, scheduler.Attempt{Number: 1}); f != nil {
						flights = append(flights, flight{g.Endpoint, f})
					}
				}
			}
			plans = slices.Delete(plans, at, at+1)
		}
		for range rnd.IntN(30) {
			if len(flights) == 0 {
				break
			}
			at := rnd.IntN(len(flights))
			b.s.Done(b.now, flights[at].endpoint, scheduler.Result{
				Flight: flights[at].Flight, Outcome: scheduler.Success, Latency: 5 * time.Millisecond,
			})
			flights = slices.Delete(flights, at, at+1)
		}
		assert.LessOrEqual(t, len(flights), slots)
	}
}
