package health_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

func TestHealthShowsWhatHappenedAndSurvivesARestart(t *testing.T) {
	always(t, func(w *world) {
		e := w.endpoint("acme", "hooks.example")
		other := w.endpoint("umbrella", "other.example")
		assert.Equal(w.t, webhook.HealthUnknown, w.read(w.t, e.ID).Status, "before the first attempt")
		assert.Equal(w.t, 100, w.read(w.t, e.ID).Score)

		cfg := webhook.DispatcherConfig{Breaker: noBreaker(), Retry: webhook.RetrySchedule{}}
		_, stop := w.dispatch(cfg)
		w.enqueueMany(3, "acme")
		w.until(time.Second, func(c *assert.CollectT) { require.Len(c, w.inState(c, e.ID, webhook.StateDelivered), 3) })
		stop()
		h := w.read(w.t, e.ID)
		assert.Equal(w.t, webhook.HealthHealthy, h.Status)
		assert.Equal(w.t, int64(3), h.Hour.Succeeded)
		assert.Equal(w.t, int64(3), h.Day.Delivered)
		assert.False(w.t, h.LastSuccessAt.IsZero())

		w.answer("hooks.example", http.StatusBadGateway)
		_, stop = w.dispatch(cfg)
		w.enqueueMany(2, "acme")
		w.until(time.Second, func(c *assert.CollectT) { require.Len(c, w.inState(c, e.ID, webhook.StateDead), 2) })
		stop()
		h = w.read(w.t, e.ID)
		assert.Equal(w.t, webhook.HealthFailing, h.Status)
		assert.Equal(w.t, webhook.ActivityCounts{Attempts: 5, Succeeded: 3, Failed: 2, ServerErrors: 2, Delivered: 3, Dead: 2}, h.Hour)
		rate, ok := h.Hour.SuccessRate()
		assert.True(w.t, ok)
		assert.InDelta(w.t, 0.6, rate, 0.001)
		assert.Equal(w.t, int64(2), h.ConsecutiveFailures)
		assert.Equal(w.t, int64(2), h.DeadCount)
		assert.False(w.t, h.OldestDeadAt.IsZero())
		assert.Equal(w.t, http.StatusBadGateway, h.LastStatus)
		assert.Equal(w.t, webhook.ClassHTTP5xx, h.LastClass)
		assert.Equal(w.t, int64(5), h.LatencySamples)
		for name, buckets := range map[string][]webhook.ActivityBucket{"series": h.Series, "hourly": h.Hourly} {
			require.NotEmpty(w.t, buckets, name)
			for _, b := range buckets {
				assert.Positive(w.t, b.Succeeded+b.Failed, name)
				assert.Positive(w.t, b.LatencyP50, name)
				assert.GreaterOrEqual(w.t, b.LatencyP99, b.LatencyP50, name)
			}
		}
		assert.Less(w.t, h.Score, 60)
		assert.Zero(w.t, h.Backlog)

		w.enqueueMany(4, "acme")
		_, err := w.endpoints.Pause(w.t.Context(), webhook.AllTenants(), e.ID, "")
		require.NoError(w.t, err)
		d, _ := w.dispatch(cfg)
		w.until(time.Second, func(c *assert.CollectT) {
			h := w.read(c, e.ID)
			require.Equal(c, 4, h.Backlog)
			require.Greater(c, h.Lag, 5*time.Second)
		})

		failing, err := w.health.List(w.t.Context(), webhook.ListHealthParams{Scope: webhook.AllTenants(), Failing: true})
		require.NoError(w.t, err)
		require.Len(w.t, failing, 1)
		assert.Equal(w.t, e.ID, failing[0].EndpointID)
		all, err := w.health.List(w.t.Context(), webhook.ListHealthParams{Scope: webhook.TenantScope("umbrella")})
		require.NoError(w.t, err)
		require.Len(w.t, all, 1)
		assert.Equal(w.t, other.ID, all[0].EndpointID)
		_, err = w.health.Endpoint(w.t.Context(), webhook.TenantScope("umbrella"), e.ID)
		require.ErrorIs(w.t, err, webhook.ErrNotFound, "another tenant's endpoint")

		w.until(time.Second, func(c *assert.CollectT) {
			o, err := w.health.Overview(w.t.Context(), webhook.OverviewParams{Scope: webhook.AllTenants()})
			require.NoError(c, err)
			assert.Equal(c, webhook.EndpointCounts{Active: 1, Paused: 1}, o.Endpoints)
			assert.Equal(c, int64(5), o.Total.Attempts, "of all dispatchers")
			require.Len(c, o.Dispatchers, 1)
			assert.Equal(c, d.Health().ID, o.Dispatchers[0].ID)
			require.Len(c, o.Buckets, 13)
		})
		o, err := w.health.Overview(w.t.Context(), webhook.OverviewParams{Scope: webhook.TenantScope("acme"), For: 24 * time.Hour})
		require.NoError(w.t, err)
		assert.Equal(w.t, int64(2), o.Total.ServerErrors)
		assert.Empty(w.t, o.Dispatchers, "a tenant sees no dispatcher")
		o, err = w.health.Overview(w.t.Context(), webhook.OverviewParams{Scope: webhook.TenantScope("umbrella")})
		require.NoError(w.t, err)
		assert.Zero(w.t, o.Total)
	})
}

func TestAnOpenCircuitAndTheAgeOfWhatWaitsAreShown(t *testing.T) {
	everywhere(t, func(w *world) {
		e := w.endpoint("acme", "hooks.example")
		w.answer("hooks.example", http.StatusInternalServerError)
		d, _ := w.dispatch(webhook.DispatcherConfig{
			Breaker: webhook.BreakerConfig{ConsecutiveFailures: 3, OpenFor: time.Hour, MaxOpenFor: time.Hour},
			Retry:   webhook.RetrySchedule{Delays: []time.Duration{10 * time.Second, 10 * time.Second, 10 * time.Second, 10 * time.Second}},
		})
		w.enqueueMany(3, "acme")
		w.until(time.Second, func(c *assert.CollectT) {
			h := w.read(c, e.ID)
			require.Equal(c, webhook.CircuitOpen, h.Circuit.State)
			require.False(c, h.Circuit.Since.IsZero())
			require.True(c, h.Circuit.NextProbeAt.After(w.clock.Now()))
			require.Greater(c, h.Lag, 10*time.Second, "an open circuit does not stop the lag")
			require.Equal(c, 3, h.Backlog)
			o, err := w.health.Overview(w.t.Context(), webhook.OverviewParams{Scope: webhook.AllTenants()})
			require.NoError(c, err)
			require.Equal(c, 1, o.Endpoints.Failing)
			require.Greater(c, o.OldestReadyAgeOthers, 10*time.Second)
			require.Zero(c, o.OldestReadyAgeHealthy)
			require.Len(c, o.Dispatchers, 1)
			require.Equal(c, 1, o.Dispatchers[0].CircuitsOpen)
			o, err = w.health.Overview(w.t.Context(), webhook.OverviewParams{Scope: webhook.TenantScope("acme")})
			require.NoError(c, err)
			require.Greater(c, o.OldestReadyAge, 10*time.Second)
		})
		require.NoError(w.t, d.Health().Err())
		assert.Equal(w.t, 1, d.Health().CircuitsOpen)
		assert.Equal(w.t, 1, d.Health().Members)
	})
}

func TestADispatcherThatIsNotRunningIsNotReady(t *testing.T) {
	everywhere(t, func(w *world) {
		d, err := w.dispatcher(webhook.DispatcherConfig{})
		require.NoError(w.t, err)
		require.Error(w.t, d.Health().Err())
		assert.False(w.t, d.Health().Running)
	})
}

// What two dispatchers see of one endpoint is added up.
func TestWhatSeveralDispatchersSeeIsAddedUp(t *testing.T) {
	always(t, func(w *world) {
		var ids []webhook.Endpoint
		for _, name := range []string{"a.example", "b.example", "c.example", "d.example"} {
			ids = append(ids, w.endpoint("acme", name))
		}
		cfg := webhook.DispatcherConfig{Breaker: noBreaker()}
		_, stopA := w.dispatch(cfg)
		w.enqueueMany(10, "acme")
		_, stopB := w.dispatch(cfg)
		w.enqueueMany(10, "acme")
		w.until(100*time.Millisecond, func(c *assert.CollectT) {
			for _, e := range ids {
				require.GreaterOrEqual(c, len(w.inState(c, e.ID, webhook.StateDelivered)), 15)
			}
		})
		stopA()
		w.enqueueMany(10, "acme")
		w.until(100*time.Millisecond, func(c *assert.CollectT) {
			for _, e := range ids {
				require.Len(c, w.inState(c, e.ID, webhook.StateDelivered), 30)
			}
		})
		stopB()
		for _, e := range ids {
			assert.Equal(w.t, int64(30), w.read(w.t, e.ID).Hour.Delivered)
		}
		o, err := w.health.Overview(w.t.Context(), webhook.OverviewParams{Scope: webhook.AllTenants()})
		require.NoError(w.t, err)
		assert.Equal(w.t, int64(120), o.Total.Delivered)
		assert.Empty(w.t, o.Dispatchers, "they have left")
	})
}
