package scenario

import (
	"container/heap"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/breaker"
	"github.com/outhook/webhook/internal/scheduler"
)

// without is a world in which something is missing.
type without struct {
	name    string
	off     scheduler.Mechanisms
	breaker func(*webhook.BreakerConfig)
}

// incident tells a story as shipped, where none of its checks may break, and
// without each of the given mechanisms, where some must.
func incident(t *testing.T, story func(w *world), missing ...without) {
	t.Helper()
	t.Parallel()
	tell := func(m without) []string {
		w := &world{rng: rand.New(rand.NewPCG(1, 2))}
		w.cfg.Off = m.off
		if m.breaker != nil {
			m.breaker(&w.breaker)
		}
		story(w)
		return w.broken
	}
	t.Run("as shipped", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { assert.Empty(t, tell(without{})) })
	})
	for _, m := range missing {
		t.Run("without "+m.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				broken := tell(m)
				assert.NotEmpty(t, broken, "the incident must come back")
				t.Log(broken)
			})
		})
	}
}

// world is a process with one scheduler, its endpoints, and the clock of the
// synctest bubble that it lives in.
type world struct {
	cfg     scheduler.Config
	breaker webhook.BreakerConfig
	s       *scheduler.Scheduler
	rng     *rand.Rand

	endpoints map[scheduler.ID]*endpoint
	order     []*endpoint
	retrying  map[*endpoint]bool
	agenda    agenda
	seq       uint64
	broken    []string

	inFlight, maxInFlight int
	hosts                 map[string]*hostStats
}

type hostStats struct{ inFlight, maxInFlight int }

// answer is what a receiver does with one request.
type answer struct {
	latency time.Duration
	outcome scheduler.Outcome
	after   time.Duration // Retry-After
}

// endpoint is a receiver with the deliveries that wait for it.
type endpoint struct {
	w    *world
	spec scheduler.EndpointSpec
	// receive decides on a request at its start; n is how many the receiver is
	// working on, this one included.
	receive func(n int) answer

	live    backlog
	retries retryHeap
	replays int

	working  int
	maxWork  int
	busy     time.Duration // time in flight, summed up
	attempts []attempt
	quiet    bool // attempts are not recorded
	sent     int
	done     int
	shed     int
	shedding time.Time // since when its new deliveries are shed; zero: they are not
	opened   int
	flapped  int
}

type delivery struct {
	created  time.Time
	due      time.Time
	attempts int
	lane     scheduler.Lane
}

// attempt is one request as the scenario looks back on it.
type attempt struct {
	created, started, ended time.Time
	number                  int
	lane                    scheduler.Lane
	ok                      bool
}

// start builds the scheduler; settings are made before.
func (w *world) start() {
	cfg := w.breaker
	cfg.Rand = w.rng.Float64 // a story is told alike each time: which minute a probe meets matters
	w.cfg.NewCircuit = func(scheduler.EndpointSpec) scheduler.Circuit {
		b, err := breaker.New(breaker.Config(cfg))
		if err != nil {
			panic(err)
		}
		return b
	}
	w.cfg.Rand = w.rng.Float64
	w.s = scheduler.New(w.cfg)
	w.endpoints = map[scheduler.ID]*endpoint{}
	w.retrying = map[*endpoint]bool{}
	w.hosts = map[string]*hostStats{}
	w.every(5*time.Second, func() { w.reconcile() })
	w.every(w.s.BacklogInterval(), func() { w.countBacklogs() })
}

// checkf notes what went wrong.
func (w *world) checkf(ok bool, format string, args ...any) {
	if !ok {
		w.broken = append(w.broken, fmt.Sprintf(format, args...))
	}
}

// endpoint adds one on a host of its own; change may say otherwise.
func (w *world) endpoint(tenant string, receive func(n int) answer, change func(*scheduler.EndpointSpec)) *endpoint {
	if w.s == nil {
		w.start()
	}
	e := &endpoint{w: w, receive: receive}
	n := len(w.endpoints)
	binary.BigEndian.PutUint64(e.spec.ID[8:], uint64(n))
	e.spec.Tenant = tenant
	e.spec.Host = fmt.Sprintf("https://host-%d:443", n)
	e.spec.Timeout = 10 * time.Second
	if change != nil {
		change(&e.spec)
	}
	w.endpoints[e.spec.ID] = e
	w.order = append(w.order, e)
	if w.hosts[e.spec.Host] == nil {
		w.hosts[e.spec.Host] = new(hostStats)
	}
	w.s.SetEndpoint(time.Now(), e.spec)
	return e
}

// warm gives the endpoints a recent success.
func warm(es ...*endpoint) {
	for _, e := range es {
		now := time.Now()
		e.w.s.Restore(now, e.spec.ID, scheduler.Snapshot{At: now, LastSuccess: now, Latency: 100 * time.Millisecond, Tokens: 1e9})
	}
}

// answers is a receiver that always succeeds, after a latency that varies a
// little.
func (w *world) answers(latency time.Duration) func(int) answer {
	return func(int) answer {
		return answer{latency: time.Duration(float64(latency) * (0.8 + 0.4*w.rng.Float64())), outcome: scheduler.Success}
	}
}

// publish makes n new deliveries for the endpoint.
func (e *endpoint) publish(n int) {
	if !e.shedding.IsZero() {
		e.shed += n
		return
	}
	now := time.Now()
	e.live.add(now, n)
	e.w.s.Ready(now, e.spec.ID, now, scheduler.Live)
}

// traffic publishes at a rate, over the endpoints at random, for a time.
func (w *world) traffic(perSecond float64, during time.Duration, to ...*endpoint) {
	end := time.Now().Add(during)
	var next func()
	next = func() {
		if time.Now().After(end) {
			return
		}
		to[w.rng.IntN(len(to))].publish(1)
		w.after(time.Duration(w.rng.ExpFloat64()/perSecond*float64(time.Second)), next)
	}
	w.after(0, next)
}

// replay asks for n replays.
func (e *endpoint) replay(n int) {
	e.replays += n
	e.w.s.Ready(time.Now(), e.spec.ID, time.Now(), scheduler.Replay)
}

// run lets time pass.
func (w *world) run(d time.Duration) {
	end := time.Now().Add(d)
	w.dispatch()
	for {
		next := end
		if len(w.agenda) > 0 && w.agenda[0].at.Before(next) {
			next = w.agenda[0].at
		}
		if at, ok := w.s.NextWake(time.Now()); ok && at.Before(next) {
			next = at
		}
		time.Sleep(time.Until(next))
		for len(w.agenda) > 0 && !w.agenda[0].at.After(time.Now()) {
			heap.Pop(&w.agenda).(*entry).do()
		}
		w.dispatch()
		if !time.Now().Before(end) {
			return
		}
	}
}

// dispatch claims and starts until nothing more is granted.
func (w *world) dispatch() {
	now := time.Now()
	var grants [64]scheduler.Grant
	for {
		got := w.s.Plan(now, 1<<20, grants[:0])
		if len(got) == 0 {
			return
		}
		for _, g := range got {
			w.endpoints[g.Endpoint].claim(now, g)
		}
	}
}

// claim does what a store does with a grant.
func (e *endpoint) claim(now time.Time, g scheduler.Grant) {
	var taken []delivery
	retries := 0
	for ; retries < g.Retries && len(e.retries) > 0 && !e.retries[0].due.After(now); retries++ {
		taken = append(taken, heap.Pop(&e.retries).(delivery))
	}
	newest := 0
	for ; newest < g.Newest; newest++ {
		d, ok := e.live.newest(g.FreshSince)
		if !ok {
			break
		}
		taken = append(taken, d)
	}
	oldest := min(e.live.n, g.Oldest-g.Retries+g.Newest-newest)
	for range oldest {
		taken = append(taken, e.live.oldest())
	}
	replays := min(g.Replay, e.replays)
	e.replays -= replays
	for range replays {
		taken = append(taken, delivery{created: now, due: now, lane: scheduler.Replay})
	}
	e.w.s.Settle(now, g, scheduler.Claimed{
		Newest: newest, Oldest: oldest + retries, Retries: retries, Replay: replays,
	})
	for _, d := range taken {
		e.send(now, d, g.Probe)
	}
}

func (e *endpoint) send(now time.Time, d delivery, probe bool) {
	w := e.w
	lane := d.lane
	if lane == scheduler.Live && d.attempts > 0 {
		lane = scheduler.Retry
	}
	f, why := w.s.Start(now, e.spec.ID, scheduler.Attempt{Due: d.due, Lane: lane, Number: d.attempts + 1, Probe: probe})
	if f == nil {
		w.checkf(why == scheduler.WaitCircuitOpen || why == scheduler.WaitRateLimited, "a claimed delivery was refused: %v", why)
		e.putBack(d)
		return
	}
	h := w.hosts[e.spec.Host]
	e.working++
	h.inFlight++
	w.inFlight++
	e.maxWork = max(e.maxWork, e.working)
	h.maxInFlight = max(h.maxInFlight, h.inFlight)
	w.maxInFlight = max(w.maxInFlight, w.inFlight)
	a := e.receive(e.working)
	if a.latency >= e.spec.Timeout {
		a = answer{latency: e.spec.Timeout, outcome: scheduler.Failure}
	}
	e.sent++
	w.after(a.latency, func() {
		e.working--
		h.inFlight--
		w.inFlight--
		e.finish(f, d, a)
	})
}

func (e *endpoint) finish(f *scheduler.Flight, d delivery, a answer) {
	now := time.Now()
	e.busy += a.latency
	d.attempts++
	if !e.quiet {
		e.attempts = append(e.attempts, attempt{
			created: d.created, started: now.Add(-a.latency), ended: now,
			number: d.attempts, lane: d.lane, ok: a.outcome == scheduler.Success,
		})
	}
	r := scheduler.Result{Flight: f, Latency: a.latency, Outcome: a.outcome, RetryAfter: a.after}
	if a.outcome == scheduler.Success || d.lane == scheduler.Replay {
		e.done++
	} else if at, again := e.w.retryAt(now, d, a.after); again {
		d.due = at
		heap.Push(&e.retries, d)
		e.w.retrying[e] = true
		r.RetryAt = at
	}
	c := e.w.s.Done(now, e.spec.ID, r)
	e.opened += count(c.Opened)
	e.flapped += count(c.Flapped)
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// schedule is the default retry schedule of docs/design.md §4.
var schedule = []time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour,
	4 * time.Hour, 6 * time.Hour, 8 * time.Hour, 10 * time.Hour, 10 * time.Hour, 10 * time.Hour, 10 * time.Hour, 10 * time.Hour,
}

func (w *world) retryAt(now time.Time, d delivery, after time.Duration) (time.Time, bool) {
	if d.attempts > len(schedule) || now.Sub(d.created) > 72*time.Hour {
		return time.Time{}, false
	}
	wait := time.Duration(float64(schedule[d.attempts-1]) * (0.8 + 0.4*w.rng.Float64()))
	return now.Add(max(wait, after)), true
}

// countBacklogs counts what it is asked for, as a store does.
func (w *world) countBacklogs() {
	now := time.Now()
	for _, q := range w.s.Backlogs(now, nil) {
		e := w.endpoints[q.Endpoint]
		c := scheduler.BacklogCount{Total: min(q.Limit, int64(e.live.n))}
		for _, b := range e.live.batches {
			if !q.Since.IsZero() && b.created.After(q.Since) {
				c.Since = min(q.SinceLimit, c.Since+int64(b.n))
			}
		}
		w.s.ShouldShed(now, q.Endpoint, c)
	}
	for _, e := range w.order {
		switch {
		case !w.s.Shedding(e.spec.ID):
			e.shedding = time.Time{}
		case e.shedding.IsZero():
			e.shedding = now
		}
	}
}

// reconcile tells what is due, as the dispatcher does every few seconds.
func (w *world) reconcile() {
	now := time.Now()
	for _, e := range w.order {
		if !w.retrying[e] {
			continue
		}
		if len(e.retries) == 0 {
			delete(w.retrying, e)
			continue
		}
		w.s.Ready(now, e.spec.ID, e.retries[0].due, scheduler.Retry)
	}
}

// firstAttempts returns how long the endpoints' deliveries created in [from, to)
// took from creation to the end of their first attempt; those not attempted by
// now count with their age.
func firstAttempts(from, to time.Time, es ...*endpoint) (took []time.Duration) {
	within := func(t time.Time) bool { return !t.Before(from) && t.Before(to) }
	for _, e := range es {
		for _, a := range e.attempts {
			if a.number == 1 && a.lane == scheduler.Live && within(a.created) {
				took = append(took, a.ended.Sub(a.created))
			}
		}
		for _, b := range e.live.batches {
			if within(b.created) {
				took = append(took, slices.Repeat([]time.Duration{time.Since(b.created)}, b.n)...)
			}
		}
	}
	slices.Sort(took)
	return took
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(math.Ceil(q*float64(len(sorted))))-1]
}

// checkUnharmed compares the p99 of first attempts before and since an instant.
func (w *world) checkUnharmed(since time.Time, factor float64, es ...*endpoint) {
	before := firstAttempts(time.Time{}, since, es...)
	after := firstAttempts(since, time.Now().Add(time.Hour), es...)
	b, a := quantile(before, 0.99), quantile(after, 0.99)
	w.checkf(len(before) >= 1000 && len(after) >= 1000, "too few deliveries to judge: %d before, %d after", len(before), len(after))
	w.checkf(float64(a) <= factor*float64(b), "p99 of others' first attempts went from %v to %v", b, a)
}
