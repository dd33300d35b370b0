package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/outhook/webhook/internal/breaker"
	"github.com/outhook/webhook/internal/scheduler"
)

// A large installation (docs/design.md §10).
const (
	manyEndpoints = 40_000
	manyTenants   = 10_000
)

// measureScheduler prints how many deliveries per second the scheduler decides on,
// on one core and with real circuits, when every endpoint always has something due,
// and what an endpoint costs that has nothing to do.
func measureScheduler(period time.Duration) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	before := heap()
	now := time.Now()
	s := scheduler.New(scheduler.Config{NewCircuit: newCircuit})
	for i := range manyEndpoints {
		s.SetEndpoint(now, scheduler.EndpointSpec{
			ID: endpointID(i), Tenant: fmt.Sprintf("tenant-%d", i%manyTenants),
			Host: fmt.Sprintf("https://customer-%d.example.com:443", i), Timeout: 10 * time.Second,
		})
	}
	fresh := heap()
	d := decider{s: s, rng: rand.New(rand.NewPCG(1, 2))}
	for i := range manyEndpoints {
		s.Ready(now, endpointID(i), now, scheduler.Live)
	}
	began := time.Now()
	for time.Since(began) < period {
		for range 100 {
			now = now.Add(time.Millisecond)
			d.step(now, 256)
		}
	}
	perSecond := float64(d.decisions) / time.Since(began).Seconds()
	d.drain(now)
	used := heap()
	runtime.KeepAlive(s)
	fmt.Printf("\nscheduler, %d endpoints of %d tenants, one core\n", manyEndpoints, manyTenants)
	fmt.Printf("scheduler decisions/s %.0f  (target 200000)\n", perSecond)
	fmt.Printf("scheduler bytes per idle endpoint %d, %d once it has been used  (target 2048)\n",
		(fresh-before)/manyEndpoints, (used-before)/manyEndpoints)
}

func newCircuit(scheduler.EndpointSpec) scheduler.Circuit {
	b, err := breaker.New(breaker.Config{})
	if err != nil {
		panic(err) // the defaults are good
	}
	return b
}

func endpointID(i int) (id scheduler.ID) {
	binary.BigEndian.PutUint64(id[8:], uint64(i))
	return id
}

// decider plays the dispatcher: what is granted is claimed in full and answered
// after a while.
type decider struct {
	s         *scheduler.Scheduler
	rng       *rand.Rand
	grants    []scheduler.Grant
	flying    []flying
	decisions int
}

type flying struct {
	endpoint scheduler.ID
	flight   *scheduler.Flight
}

// step plans, settles and starts once, and ends requests until no more than so many
// are in flight.
func (d *decider) step(now time.Time, inFlight int) {
	d.grants = d.s.Plan(now, 64, d.grants[:0])
	for _, g := range d.grants {
		d.s.Settle(now, g, scheduler.Claimed{Oldest: g.Oldest, Newest: g.Newest})
		for range g.Total() {
			f, _ := d.s.Start(now, g.Endpoint, scheduler.Attempt{Number: 1})
			d.flying = append(d.flying, flying{g.Endpoint, f})
			d.decisions++
		}
	}
	for len(d.flying) > inFlight {
		i := d.rng.IntN(len(d.flying))
		d.done(now, d.flying[i])
		d.flying[i] = d.flying[len(d.flying)-1]
		d.flying = d.flying[:len(d.flying)-1]
	}
}

func (d *decider) done(now time.Time, f flying) {
	d.s.Done(now, f.endpoint, scheduler.Result{Flight: f.flight, Outcome: scheduler.Success, Latency: 100 * time.Millisecond})
}

// drain ends all requests and finds nothing more to claim, so that every endpoint
// is idle.
func (d *decider) drain(now time.Time) {
	for _, f := range d.flying {
		d.done(now, f)
	}
	d.flying = nil
	for {
		d.grants = d.s.Plan(now, 1000, d.grants[:0])
		if len(d.grants) == 0 {
			d.grants = nil
			return
		}
		for _, g := range d.grants {
			d.s.Settle(now, g, scheduler.Claimed{})
		}
	}
}
