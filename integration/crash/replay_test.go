package crash_test

import (
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

// A replay job of several batches, with dispatchers that are stopped in the midst
// of it, replays each event exactly once; so does a click on one of them, twice.
func TestAReplayJobSurvivesItsDispatchers(t *testing.T) {
	t.Parallel()
	for _, kind := range bothKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			const events = 30
			ctx := t.Context()
			w := newWorld(t, kind, 1)
			w.answerWith(func(request) int { return http.StatusInternalServerError })
			for range events {
				w.takeOrder()
			}
			cfg := quick()
			cfg.Retry = webhook.RetrySchedule{}
			stop := w.dispatch(w.openHost(options{}), cfg)
			w.drained()
			stop()
			sent := len(w.received())
			w.answerWith(func(request) int { return http.StatusOK })
			w.answerWithin(0)
			endpoints, err := w.host.endpoints.List(ctx, webhook.ListEndpointsParams{Scope: webhook.AllTenants()})
			require.NoError(t, err)
			scope := webhook.TenantScope(w.tenants[0])

			var clicked [2]webhook.Delivery
			page, err := w.host.deliveries.List(ctx, webhook.DeliveryQuery{Scope: scope, State: webhook.StateDead, Limit: 1000})
			require.NoError(t, err)
			dead := page.Deliveries
			require.Len(t, dead, events)
			for i := range clicked {
				clicked[i], err = w.host.deliveries.RetryNow(ctx, scope, dead[0].ID)
				require.NoError(t, err)
			}
			assert.Equal(t, clicked[0].ID, clicked[1].ID)
			job, err := w.host.replays.Create(ctx, scope, webhook.ReplayJobRequest{EndpointID: endpoints[0].ID, PerSecond: 10})
			require.NoError(t, err)
			assert.Equal(t, events-1, job.Matched, "all but the one that is being replayed")
			created := 0
			for created < events-1 {
				stop := w.dispatch(w.openHost(options{}), cfg)
				w.eventually("the job gets on", func() bool {
					job, err = w.host.replays.Get(ctx, scope, job.ID)
					require.NoError(t, err)
					return job.Created > created
				})
				created = job.Created
				stop()
			}
			w.dispatch(w.openHost(options{}), cfg)
			w.eventually("the job ends", func() bool {
				job, err = w.host.replays.Get(ctx, scope, job.ID)
				require.NoError(t, err)
				return job.State != webhook.ReplayRunning
			})
			w.drained()

			assert.Equal(t, [3]any{webhook.ReplayDone, events - 1, events - 1}, [3]any{job.State, job.Handled, job.Created})
			again := make(map[uuid.UUID]int)
			for _, r := range w.received()[sent:] {
				again[r.event]++
			}
			assert.Len(t, again, events)
			for _, d := range dead {
				assert.Equal(t, 1, again[d.EventID], "replays of an event")
				page, err := w.host.deliveries.List(ctx, webhook.DeliveryQuery{Scope: scope, EventID: d.EventID})
				require.NoError(t, err)
				runs := page.Deliveries
				require.Len(t, runs, 2)
				assert.Equal(t, d, runs[1], "the first run stays as it was")
				assert.Equal(t, [2]any{webhook.StateDelivered, 1}, [2]any{runs[0].State, runs[0].Run})
			}
		})
	}
}
