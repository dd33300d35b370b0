package crash_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

// theEndpoint returns the endpoint of the first tenant.
func (w *world) theEndpoint() webhook.Endpoint {
	w.t.Helper()
	list, err := w.host.endpoints.List(w.t.Context(), webhook.ListEndpointsParams{Scope: webhook.TenantScope(w.tenants[0])})
	require.NoError(w.t, err)
	require.Len(w.t, list, 1)
	return list[0]
}

// settled waits until nothing is unfinished.
func (w *world) settled() {
	w.t.Helper()
	w.eventually("everything is settled", func() bool {
		committed, err := w.host.orders(w.t.Context())
		require.NoError(w.t, err)
		// In this order: those that are fanned out in between would be in neither else.
		all, err := w.host.deliveries.List(w.t.Context(), webhook.DeliveryQuery{Scope: webhook.AllTenants(), Limit: 1000})
		require.NoError(w.t, err)
		left, err := w.host.unfinished(w.t.Context())
		require.NoError(w.t, err)
		return len(left) == 0 && len(all.Deliveries) == len(committed)
	})
}

// Processes are killed in the middle of their work while others go on: what the
// receiver gets is one at a time, and nothing before what was enqueued before it.
func TestKillsKeepTheOrder(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{onPostgres, onSQLite} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, kind, 1)
			ordering := webhook.OrderingPerEndpoint
			_, err := w.host.endpoints.Update(t.Context(), webhook.AllTenants(), w.theEndpoint().ID, webhook.EndpointUpdate{Ordering: &ordering})
			require.NoError(t, err)
			failed := make(map[uuid.UUID]bool)
			w.answerWith(func(r request) int { // every sixth fails once
				_, again := failed[r.order]
				failed[r.order] = true
				if !again && len(failed)%6 == 0 {
					return 503
				}
				return 200
			})
			place := make(map[uuid.UUID]int)
			enqueue := func(n int) {
				for range n {
					place[w.takeOrder()] = len(place)
				}
			}

			enqueue(4)
			beside := w.start(orders{Dispatch: true})
			for _, at := range []point{midFanOut, afterClaim, beforeFlush} {
				p := w.start(orders{Dispatch: true, Point: at, Nth: 1})
				for range 8 {
					enqueue(1)
					pause(t.Context(), 20*time.Millisecond)
				}
				// It has come to its point, or the other one was faster, and owns the endpoint.
				p.kill()
				beside.kill()
				beside = w.start(orders{Dispatch: true})
			}
			w.settled()
			beside.stop()

			before := 0
			seen := make(map[uuid.UUID]bool)
			for _, r := range w.received() {
				require.GreaterOrEqual(t, place[r.order], before, "one arrived after what was enqueued after it")
				before = place[r.order]
				seen[r.order] = true
			}
			assert.Len(t, seen, len(place))
			w.mu.Lock()
			defer w.mu.Unlock()
			assert.Equal(t, 1, w.mostInAll, "requests at a time")
		})
	}
}

// A process is killed with requests of at-most-once deliveries in its hands: none goes
// out twice, and those of which nobody knows end as unknown.
func TestKillsSendNothingTwiceThatIsSentAtMostOnce(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{onPostgres, onSQLite} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, kind, 1)
			once := true
			_, err := w.host.endpoints.Update(t.Context(), webhook.AllTenants(), w.theEndpoint().ID, webhook.EndpointUpdate{AtMostOnce: &once})
			require.NoError(t, err)
			for range 40 {
				w.takeOrder()
			}
			k := &killer{world: w}
			var held []uuid.UUID
			for _, at := range []point{afterClaim, beforeSend, beforeFlush} {
				p := w.start(orders{Dispatch: true, Point: at, Nth: 2})
				ids := p.awaitHit()
				p.awaitDeath()
				if at == beforeSend {
					held = append(held, ids...)
				}
			}
			for range 40 {
				w.takeOrder()
			}
			held = append(held, k.killOnArrival(orders{Dispatch: true})...)
			last := w.start(orders{Dispatch: true})
			w.settled()
			last.stop()

			arrived := make(map[uuid.UUID]int)
			for _, r := range w.received() {
				arrived[r.event]++
				require.Equal(t, 1, arrived[r.event], "times that an event arrived")
			}
			unknown := make(map[uuid.UUID]bool)
			list, err := w.host.deliveries.List(t.Context(), webhook.DeliveryQuery{Scope: webhook.AllTenants(), Limit: 1000})
			require.NoError(t, err)
			for _, d := range list.Deliveries {
				switch d.State {
				case webhook.StateDelivered:
					assert.Equal(t, 1, arrived[d.EventID])
				case webhook.StateDead:
					assert.Equal(t, webhook.ReasonOutcomeUnknown, d.Reason)
					unknown[d.EventID] = true
				default:
					assert.Fail(t, "neither delivered nor dead", "%s", d.State)
				}
			}
			for _, event := range held {
				assert.True(t, unknown[event], "what was in the hands of a process when it was killed is unknown")
			}
		})
	}
}
