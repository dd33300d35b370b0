package webhook

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"

	"github.com/outhook/webhook/internal/scheduler"
)

// schedulerOf returns a scheduler with real circuits and that many endpoints of
// 10,000 tenants.
func schedulerOf(endpoints int, now time.Time) (*scheduler.Scheduler, []uuid.UUID) {
	s := scheduler.New(scheduler.Config{NewCircuit: BreakerConfig{}.circuits()})
	ids := make([]uuid.UUID, endpoints)
	for i := range ids {
		binary.BigEndian.PutUint64(ids[i][8:], uint64(i))
		s.SetEndpoint(now, scheduler.EndpointSpec{
			ID: scheduler.ID(ids[i]), Tenant: fmt.Sprintf("tenant-%d", i%10_000),
			Host: fmt.Sprintf("https://customer-%d.example.com:443", i), Timeout: 10 * time.Second,
		})
	}
	return s, ids
}

// BenchmarkDecisionsWithCircuits measures plan, settle, start and done of one delivery each,
// over 40,000 endpoints of 10,000 tenants that always have something due, with
// real circuits. The target is 200,000 per second on one core.
func BenchmarkDecisionsWithCircuits(b *testing.B) {
	now := time.Now()
	s, ids := schedulerOf(40_000, now)
	for _, id := range ids {
		s.Ready(now, scheduler.ID(id), now, scheduler.Live)
	}
	var grants []scheduler.Grant
	type flight struct {
		id scheduler.ID
		f  *scheduler.Flight
	}
	flying := make([]flight, 0, 1024)
	rng := rand.New(rand.NewPCG(1, 2))
	b.ReportAllocs()
	b.ResetTimer()
	decisions := 0
	for decisions < b.N {
		now = now.Add(time.Millisecond)
		grants = s.Plan(now, 64, grants[:0])
		for _, g := range grants {
			s.Settle(now, g, scheduler.Claimed{Oldest: g.Oldest, Newest: g.Newest})
			for range g.Total() {
				f, _ := s.Start(now, g.Endpoint, scheduler.Attempt{Number: 1})
				flying = append(flying, flight{g.Endpoint, f})
				decisions++
			}
		}
		for len(flying) > 256 {
			i := rng.IntN(len(flying))
			x := flying[i]
			flying[i] = flying[len(flying)-1]
			flying = flying[:len(flying)-1]
			s.Done(now, x.id, scheduler.Result{Flight: x.f, Outcome: scheduler.Success, Latency: 100 * time.Millisecond})
		}
	}
	b.ReportMetric(float64(decisions)/b.Elapsed().Seconds(), "decisions/s")
}

// An idle endpoint costs under 2 KiB, also when it has been busy before.
func TestAnIdleEndpointIsSmall(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const n = 20_000
	before := heap()
	now := time.Now()
	s, ids := schedulerOf(n, now)
	known := heap()
	for _, id := range ids {
		s.Ready(now, scheduler.ID(id), now, scheduler.Live)
		for _, g := range s.Plan(now, 1000, nil) {
			s.Settle(now, g, scheduler.Claimed{Oldest: 1})
			f, _ := s.Start(now, g.Endpoint, scheduler.Attempt{Number: 1})
			s.Done(now, g.Endpoint, scheduler.Result{Flight: f, Outcome: scheduler.Success, Latency: time.Second})
		}
	}
	busy := heap()
	runtime.KeepAlive(s)
	t.Logf("%d bytes when new, %d when used", (known-before)/n, (busy-before)/n)
	assert.Less(t, (known-before)/n, uint64(2048))
	assert.Less(t, (busy-before)/n, uint64(2048))
}
