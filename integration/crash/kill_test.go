package crash_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

// anywhere is a kill from outside, at a moment that nobody chose.
const anywhere point = "anywhere"

var killPoints = []point{afterCommit, midFanOut, afterClaim, beforeSend, afterBytes, beforeFlush, anywhere}

func TestKilledProcessesLoseNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{onPostgres, onSQLite} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			killAndCount(t, kind, killPoints)
		})
	}
}

// killAndCount kills one process after the other, each in the middle of its work,
// and counts what arrives.
func killAndCount(t *testing.T, kind string, points []point) {
	t.Helper()
	w := newWorld(t, kind, 3)
	k := &killer{world: w, inFlight: make(map[int]map[uuid.UUID]bool)}
	for _, at := range points {
		k.killAt(at)
	}
	last := w.start(orders{Dispatch: true})
	committed := w.drained()
	last.stop()
	k.check(committed)
}

// killer remembers what was in flight at each kill.
type killer struct {
	*world

	inFlight map[int]map[uuid.UUID]bool // process → the events that it had sent and not recorded
}

func (k *killer) killAt(at point) {
	k.t.Helper()
	o := orders{Tenants: k.tenants, Dispatch: true}
	var held []uuid.UUID
	switch at {
	case anywhere:
		p := k.start(o)
		k.eventually("the process works", func() bool { return len(k.receivedFrom(k.started)) > 0 || p.over() })
		pause(k.t.Context(), time.Duration(rand.IntN(300))*time.Millisecond)
		require.False(k.t, p.over(), "%s", p.complaints())
		require.NoError(k.t, p.cmd.Process.Kill())
		p.awaitDeath()
	case afterBytes:
		held = k.killOnArrival(o)
	default:
		o.Point, o.Nth = at, 1+rand.IntN(10)
		p := k.start(o)
		held = p.awaitHit()
		p.awaitDeath()
	}
	k.examine(at, k.started, held)
}

// killOnArrival kills the process when one of its requests has arrived, and
// before it is answered.
func (k *killer) killOnArrival(o orders) []uuid.UUID {
	k.t.Helper()
	left := 1 + rand.IntN(10)
	arrived, dead := make(chan request, 1), make(chan struct{})
	k.mu.Lock()
	number := k.started + 1
	k.arrived = func(r request) {
		k.mu.Lock()
		if r.sender == number {
			left--
		}
		chosen := r.sender == number && left == 0
		k.mu.Unlock()
		if chosen {
			arrived <- r
			<-dead
		}
	}
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		k.arrived = nil
		k.mu.Unlock()
	}()
	p := k.start(o)
	select {
	case r := <-arrived:
		require.NoError(k.t, p.cmd.Process.Kill())
		p.awaitDeath()
		close(dead)
		return []uuid.UUID{r.event}
	case <-time.After(patience):
		close(dead)
		require.FailNow(k.t, "nothing arrives", "%s", p.complaints())
		return nil
	}
}

// examine looks at what a dead process left.
func (k *killer) examine(at point, number int, held []uuid.UUID) {
	k.t.Helper()
	ctx := k.t.Context()
	left, err := k.host.unfinished(ctx)
	require.NoError(k.t, err)
	unfinished := make(map[uuid.UUID]bool, len(left))
	for i := range left {
		unfinished[left[i].EventID] = true
	}
	k.inFlight[number] = unfinished

	switch at {
	case afterCommit:
		committed, err := k.host.orders(ctx)
		require.NoError(k.t, err)
		assert.True(k.t, committed[held[0]], "the order is committed")
	case midFanOut:
		event, err := k.host.backend.GetEvent(ctx, webhook.AllTenants(), held[0])
		require.NoError(k.t, err)
		assert.False(k.t, event.FannedOut, "the fan-out rolled back")
	case afterClaim, beforeSend:
		sent := k.receivedFrom(number)
		for _, event := range held {
			assert.True(k.t, unfinished[event], "the event waits")
			assert.Zero(k.t, sent[event], "the event was not sent")
		}
	case afterBytes:
		assert.True(k.t, unfinished[held[0]], "the answer was not recorded")
		assert.Equal(k.t, 1, k.receivedFrom(number)[held[0]], "the receiver has the event")
	case beforeFlush:
		sent := k.receivedFrom(number)
		for _, event := range held {
			assert.True(k.t, unfinished[event], "the answer was not recorded")
			assert.Equal(k.t, 1, sent[event], "the receiver has the event")
		}
	case anywhere:
	}
}

// check holds the receivers' ledger against the database's.
func (k *killer) check(committed map[uuid.UUID]bool) {
	k.t.Helper()
	type journey struct {
		order   uuid.UUID
		senders []int
	}
	events := make(map[uuid.UUID]*journey)
	for _, r := range k.received() {
		if events[r.event] == nil {
			events[r.event] = &journey{order: r.order}
		}
		events[r.event].senders = append(events[r.event].senders, r.sender)
	}

	duplicates, bound := 0, 0
	for event, j := range events {
		require.True(k.t, committed[j.order], "order %s was rolled back and sent", j.order)
		deliveries, attempts := k.deliveries(k.t.Context(), event)
		require.Len(k.t, deliveries, 1)
		require.Equal(k.t, webhook.StateDelivered, deliveries[0].State)
		// A request that timed out on a busy machine is repeated by contract.
		allowed := 1
		for _, a := range attempts[0] {
			if a.Class != webhook.ClassNone {
				allowed++
			}
		}
		for _, sender := range j.senders {
			if k.inFlight[sender][event] {
				allowed++
				bound++
			}
		}
		assert.LessOrEqual(k.t, len(j.senders), allowed, "event %s came from %v", event, j.senders)
		duplicates += len(j.senders) - 1
	}
	assert.Len(k.t, events, len(committed), "one event per order")
	assert.Positive(k.t, k.takeovers, "no lease was taken over: nothing was tested")
	k.t.Logf("%s: %d kills, %d orders, %d requests in flight at a kill, %d duplicates, %d takeovers",
		k.kind, len(k.inFlight), len(committed), bound, duplicates, k.takeovers)
}
