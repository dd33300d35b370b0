package crash_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

// steadyBeats is after how many heartbeats without a change of members the caps
// hold exactly.
const steadyBeats = 10

// crowd counts the requests that a receiver has at once, and who sends them.
type crowd struct {
	mu        sync.Mutex
	now, most int
	senders   map[int]int
}

func (c *crowd) enter(r *http.Request) {
	sender, _ := strconv.Atoi(r.Header.Get(senderHeader))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now++
	c.most = max(c.most, c.now)
	if c.senders == nil {
		c.senders = make(map[int]int)
	}
	c.senders[sender]++
}

func (c *crowd) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now--
}

// take returns the most requests at once since it was last asked, and how many began
// by sender.
func (c *crowd) take() (most int, senders map[int]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	most, senders = c.most, c.senders
	c.most, c.senders = c.now, nil
	return most, senders
}

// cappedEndpoint is a receiver that knows how many requests it has at once.
type cappedEndpoint struct {
	crowd

	tenant string
}

// cappedEndpoints adds tenants, each with an endpoint on a host of its own.
func (w *world) cappedEndpoints(n, limit int) []*cappedEndpoint {
	w.t.Helper()
	var all []*cappedEndpoint
	for i := range n {
		e := &cappedEndpoint{tenant: "capped" + strconv.Itoa(i)}
		receiver := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			e.enter(r)
			defer e.leave()
			w.receive(rw, r)
		}))
		w.t.Cleanup(receiver.Close)
		_, err := w.host.endpoints.Create(w.t.Context(), webhook.EndpointParams{
			Tenant: e.tenant, URL: receiver.URL, Types: []string{"*"}, MaxInFlight: limit,
		})
		require.NoError(w.t, err)
		w.tenants = append(w.tenants, e.tenant)
		all = append(all, e)
	}
	return all
}

// atRest lets the members settle, loads the endpoints, and has their receivers watched
// for a while in which every process was heard of in time: one that this machine starves
// is taken for dead, as it should be, and its endpoints change hands. What else must be so
// meanwhile may be given.
func (w *world) atRest(processes int, load func(), crowds []*crowd, also ...func() bool) {
	w.t.Helper()
	for give := time.Now().Add(2 * patience); ; {
		w.settle(processes, also...)
		stoodStill := standstill()
		load()
		for _, c := range crowds {
			c.take()
		}
		undisturbed := w.undisturbed(6*quick().HeartbeatInterval, processes, also...)
		if stoodStill() < 2*quick().HeartbeatInterval && undisturbed {
			return
		}
		require.True(w.t, time.Now().Before(give), "the processes never come to rest")
	}
}

// steady watches the endpoints, under load, when the members have settled.
func (w *world) steady(what string, endpoints []*cappedEndpoint, limit, processes int) {
	w.t.Helper()
	crowds := make([]*crowd, len(endpoints))
	for i, e := range endpoints {
		crowds[i] = &e.crowd
	}
	w.atRest(processes, func() { w.load(2 * limit * len(endpoints)) }, crowds)
	sending, full := map[int]bool{}, 0
	for _, e := range endpoints {
		most, senders := e.take()
		assert.LessOrEqual(w.t, most, limit, "%s: requests at once at %s", what, e.tenant)
		assert.LessOrEqual(w.t, len(senders), 1, "%s: processes that send to %s", what, e.tenant)
		if most == limit {
			full++
		}
		for sender := range senders {
			sending[sender] = true
		}
	}
	assert.Positive(w.t, full, "%s: some endpoint is at its cap", what)
	assert.LessOrEqual(w.t, len(sending), processes, what)
	assert.Greater(w.t, len(sending), 1, "%s: the endpoints are shared out", what)
}

// load takes orders for some of the tenants, more than can be sent to them at once.
func (w *world) load(orders int) {
	w.t.Helper()
	for i := range orders {
		w.takeOrderOf(w.tenants[i%4])
	}
}

// settle waits until the members have been the same for a while.
func (w *world) settle(processes int, also ...func() bool) {
	w.t.Helper()
	w.eventually("the members have settled", func() bool {
		return w.undisturbed(steadyBeats*quick().HeartbeatInterval, processes, also...)
	})
}

// standstill watches for moments in which the whole machine stands still, until the
// returned function, which returns the longest, is called. Nobody sees afterwards that
// the processes took one another for dead then.
func standstill() (stop func() time.Duration) {
	over, longest := make(chan struct{}), make(chan time.Duration)
	go func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		last, most := time.Now(), time.Duration(0)
		for ended := false; !ended; {
			select {
			case <-tick.C:
			case <-over:
				ended = true
			}
			most = max(most, time.Since(last))
			last = time.Now()
		}
		longest <- most
	}()
	return func() time.Duration { close(over); return <-longest }
}

// undisturbed watches the members for a while, and reports whether there were as many
// as there are processes, none of which was silent for long, and all else was so too.
func (w *world) undisturbed(d time.Duration, processes int, also ...func() bool) bool {
	const silent = 3 // heartbeats; others act on five, and the process itself on four
	for end := time.Now().Add(d); time.Now().Before(end); {
		began := time.Now()
		heard, err := w.host.heardOf(w.t.Context())
		require.NoError(w.t, err)
		if len(heard) != processes {
			return false
		}
		for _, at := range heard {
			if time.Since(at) > silent*quick().HeartbeatInterval {
				return false
			}
		}
		for _, so := range also {
			if !so() {
				return false
			}
		}
		pause(w.t.Context(), 20*time.Millisecond)
		if time.Since(began) > quick().HeartbeatInterval {
			return false // nobody watched
		}
	}
	return true
}

// Three processes share the endpoints. One is killed, one stands still for longer
// than its lease, and one joins, all under load. Nothing is lost, nothing is sent
// twice but what was in flight at those moments, and each endpoint has one sender
// and keeps its cap whenever the members have not changed for a while.
func TestThreeProcessesKeepTheCapsThroughAKillAStopAndAJoin(t *testing.T) {
	t.Parallel()
	const limit = 3
	w := newWorld(t, onPostgres, 0)
	w.answerWithin(300 * time.Millisecond)
	endpoints := w.cappedEndpoints(36, limit) // enough that chance leaves no process without one
	o := orders{Dispatch: true, Tenants: w.tenants}
	first, second, third := w.start(o), w.start(o), w.start(o)
	w.eventually("all send", func() bool {
		return len(w.receivedFrom(first.number)) > 5 && len(w.receivedFrom(second.number)) > 5 && len(w.receivedFrom(third.number)) > 5
	})
	w.steady("three processes", endpoints, limit, 3)

	killed := time.Now()
	require.NoError(t, first.cmd.Process.Kill())
	first.awaitDeath()
	w.steady("after a kill", endpoints, limit, 2)

	second.freeze()
	stopped := time.Now()
	fourth := w.start(o)
	pause(t.Context(), quick().Lease+time.Second)
	second.thaw()
	w.eventually("the one that stood still sends again", func() bool {
		for _, r := range w.received() {
			if r.sender == second.number && r.at.After(stopped.Add(quick().Lease)) {
				return true
			}
		}
		return false
	})
	w.steady("after a stop and a join", endpoints, limit, 3)
	assert.NotEmpty(t, w.receivedFrom(fourth.number))

	w.answerWithin(0)
	for _, p := range []*process{second, third, fourth} {
		p.stop()
	}
	last := w.start(orders{Dispatch: true})
	w.drained()
	last.stop()

	// What was in flight at the kill and at the stop was sent again, and no more.
	timeout := quick().RequestTimeout
	interrupted := func(r request) bool {
		within := func(end time.Time) bool { return r.at.After(end.Add(-timeout)) && r.at.Before(end.Add(time.Second)) }
		return r.sender == first.number && within(killed) || r.sender == second.number && within(stopped)
	}
	requests, reasons := map[uuid.UUID]int{}, map[uuid.UUID]int{}
	for _, r := range w.received() {
		requests[r.event]++
		if interrupted(r) {
			reasons[r.event]++
		}
	}
	duplicates := 0
	for event, n := range requests {
		if n < 2 {
			continue
		}
		failed := w.failures(t.Context(), event)
		if n > 1+failed {
			duplicates++
		}
		assert.LessOrEqual(t, n, 1+reasons[event]+failed, "requests for an event")
	}
	assert.LessOrEqual(t, duplicates, 2*limit*len(endpoints), "no more than could be in flight")
	t.Logf("%d events, %d of them sent twice: in flight at the kill and at the stop", len(requests), duplicates)
}

// The circuit of an endpoint outlives the process that opened it, however that
// ends.
func TestAnOpenCircuitOutlivesAKilledProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onPostgres, 0)
	endpoints := w.cappedEndpoints(2, 3)
	broken := endpoints[0]
	w.answerWith(func(request) int { return http.StatusOK })
	var requests atomic.Int64
	failing := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		rw.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(failing.Close)
	list, err := w.host.endpoints.List(t.Context(), webhook.ListEndpointsParams{Scope: webhook.TenantScope(broken.tenant), Limit: 1})
	require.NoError(t, err)
	_, err = w.host.endpoints.Update(t.Context(), webhook.AllTenants(), list[0].ID, webhook.EndpointUpdate{URL: &failing.URL})
	require.NoError(t, err)

	first := w.start(orders{Dispatch: true, Circuits: true})
	for range 10 {
		w.takeOrderOf(broken.tenant)
	}
	w.eventually("the circuit opens", func() bool {
		health, err := w.host.backend.(webhook.ClusterStore).LoadHealth(t.Context(), webhook.LoadHealthParams{
			Now: time.Now(), Endpoints: []uuid.UUID{list[0].ID},
		})
		return err == nil && len(health) == 1 && !health[0].UpdatedAt.IsZero()
	})
	require.NoError(t, first.cmd.Process.Kill())
	first.awaitDeath()
	sent := requests.Load()

	// Thirty seconds is the circuit's first open time, and the jitter a fifth of it.
	w.start(orders{Dispatch: true, Circuits: true})
	for i := range 6 {
		w.takeOrderOf(broken.tenant)
		w.arrives(w.takeOrderOf(endpoints[1].tenant))
		pause(t.Context(), time.Second)
		assert.Equal(t, sent, requests.Load(), "after %d s", i)
	}
}
