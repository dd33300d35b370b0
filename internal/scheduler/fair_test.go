package scheduler_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outhook/webhook/internal/scheduler"
)

// Whatever the weights, the number of endpoints and the size of the process:
// tenants that all have work get slots in proportion to their weights, and
// within a tenant no endpoint is left out.
func TestFairShareProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t, scheduler.Config{GlobalMax: rapid.IntRange(4, 60).Draw(rt, "global")})
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		type tenant struct {
			weight    float64
			endpoints []scheduler.ID
		}
		var tenants []tenant
		n, weights := 0, 0.0
		for i := range rapid.IntRange(2, 5).Draw(rt, "tenants") {
			tn := tenant{weight: rapid.SampledFrom([]float64{0.5, 1, 2, 5}).Draw(rt, "weight")}
			for range rapid.SampledFrom([]int{1, 2, 10}).Draw(rt, "endpoints") {
				n++
				e := b.endpoint(n, func(s *scheduler.EndpointSpec) {
					s.Tenant, s.Weight, s.MaxInFlight, s.HostMax = fmt.Sprint(i), tn.weight, 1000, 1000
				})
				b.warm(e)
				b.add(e, scheduler.Live, 1_000_000)
				tn.endpoints = append(tn.endpoints, e)
			}
			weights += tn.weight
			tenants = append(tenants, tn)
		}
		total := 0
		for round := range 170 {
			if round == 20 { // claims have grown to their size
				total = 0
				clear(b.started)
			}
			total += b.drain()
			for _, tn := range tenants {
				for _, e := range tn.endpoints {
					for range len(b.flights[e]) {
						if rng.IntN(2) == 0 {
							b.finish(e, ok200)
						}
					}
				}
			}
			b.now = b.now.Add(10 * time.Millisecond)
		}
		for i, tn := range tenants {
			started, least, most := 0, 1<<30, 0
			for _, e := range tn.endpoints {
				started += b.started[e]
				least, most = min(least, b.started[e]), max(most, b.started[e])
			}
			require.InEpsilon(rt, tn.weight/weights, float64(started)/float64(total), 0.15, "tenant %d got %d of %d", i, started, total)
			require.LessOrEqual(rt, float64(most), 1.2*float64(least)+20, "endpoints of tenant %d", i)
		}
	})
}

// Endpoints that share a host all get their turn, whoever their tenant is and
// however much the others have.
func TestNobodyStarvesOnAHost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t, scheduler.Config{})
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		endpoints := rapid.IntRange(2, 100).Draw(rt, "endpoints")
		tenants := rapid.IntRange(1, 10).Draw(rt, "tenants")
		var ids []scheduler.ID
		for i := range endpoints {
			e := b.endpoint(i, func(s *scheduler.EndpointSpec) {
				s.Host, s.Tenant = "https://shared:443", fmt.Sprint(i%tenants)
			})
			b.warm(e)
			b.add(e, scheduler.Live, rapid.SampledFrom([]int{1, 1000}).Draw(rt, "backlog"))
			ids = append(ids, e)
		}
		for range 5 * endpoints {
			b.drain()
			inFlight := 0
			for _, e := range ids {
				inFlight += len(b.flights[e])
			}
			require.LessOrEqual(rt, inFlight, 20)
			for _, e := range ids {
				if len(b.flights[e]) > 0 && rng.IntN(3) == 0 {
					b.finish(e, ok200)
				}
			}
			b.now = b.now.Add(10 * time.Millisecond)
		}
		for i, e := range ids {
			require.Positive(rt, b.started[e], "endpoint %d", i)
		}
	})
}
