package health_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

func TestB15TwentyFailuresInARowDisableTheEndpointOverRestartsAndProcesses(t *testing.T) {
	everywhere(t, func(w *world) {
		e := w.endpoint("acme", "down.example")
		w.answer("down.example", http.StatusInternalServerError)
		l := new(listener)
		cfg := webhook.DispatcherConfig{
			AutoDisable:            webhook.AutoDisableConfig{ConsecutiveFailures: 20},
			Breaker:                noBreaker(),
			MaxInFlightPerEndpoint: 1,
			Notifications:          webhook.NotificationConfig{Notify: l.Notify},
			Retry:                  webhook.RetrySchedule{},
		}
		// One after the other: two that start at once may both send until they know of
		// each other.
		_, stop := w.dispatch(cfg)
		w.enqueueMany(10, "acme")
		w.until(100*time.Millisecond, func(c *assert.CollectT) { require.Len(c, w.inState(c, e.ID, webhook.StateDead), 10) })
		stop()
		w.enqueueMany(15, "acme")
		w.dispatch(cfg)

		w.until(100*time.Millisecond, func(c *assert.CollectT) {
			require.Equal(c, webhook.EndpointDisabled, w.get(c, e.ID).State)
			require.Len(c, w.inState(c, e.ID, webhook.StateCancelled), 5)
		})
		assert.Equal(w.t, "20 failures in a row", w.get(w.t, e.ID).StateReason)
		w.until(time.Second, func(c *assert.CollectT) {
			require.Contains(c, kindsOf(l.all()), webhook.NoticeDisabled)
		})
		w.enqueueMany(5, "acme")
		w.until(time.Second, func(c *assert.CollectT) { require.Len(c, w.inState(c, e.ID, webhook.StateCancelled), 10) })
		assert.Len(w.t, w.requests("down.example"), 20, "none after the 20th failure")
		assert.Equal(w.t, []webhook.NoticeKind{webhook.NoticeFailing, webhook.NoticeDead, webhook.NoticeDisabled}, sorted(w.notices(w.t, e.ID)))
		assert.Equal(w.t, 1, count(l.all(), webhook.NoticeDisabled), "told once")
		assert.Equal(w.t, 1, count(l.all(), webhook.NoticeFailing), "told once")
	})
}

func TestNoSuccessFor72HoursDisablesTheEndpoint(t *testing.T) {
	everywhere(t, func(w *world) {
		e := w.endpoint("acme", "down.example")
		fine := w.endpoint("umbrella", "fine.example")
		w.answer("down.example", http.StatusServiceUnavailable)
		w.dispatch(webhook.DispatcherConfig{})
		began := w.clock.Now()
		w.enqueueMany(3, "acme")
		w.enqueueMany(3, "umbrella")
		w.until(0, func(c *assert.CollectT) { require.Len(c, w.inState(c, fine.ID, webhook.StateDelivered), 3) })

		// The clock leaps only when what belongs to the present is written.
		told := func(kind webhook.NoticeKind) {
			w.until(time.Second, func(c *assert.CollectT) { require.Contains(c, w.notices(c, e.ID), kind) })
		}
		told(webhook.NoticeFailing)
		w.until(10*time.Minute, func(c *assert.CollectT) { require.Greater(c, w.clock.Now().Sub(began), 25*time.Hour) })
		w.enqueueMany(1, "acme")
		told(webhook.NoticeFailing24h)

		var disabledAt time.Time
		n := 0
		w.until(10*time.Minute, func(c *assert.CollectT) {
			if n++; n%10 == 0 {
				w.enqueueMany(1, "acme") // so that there is something to try with, whatever the pace
			}
			got := w.get(c, e.ID)
			require.Equal(c, webhook.EndpointDisabled, got.State)
			disabledAt = got.StateChangedAt
		})
		assert.GreaterOrEqual(w.t, disabledAt.Sub(began), 72*time.Hour-time.Minute)
		assert.Contains(w.t, w.get(w.t, e.ID).StateReason, "no success for ")
		w.until(time.Minute, func(c *assert.CollectT) {
			require.Subset(c, w.notices(c, e.ID), []webhook.NoticeKind{webhook.NoticeFailing, webhook.NoticeFailing24h, webhook.NoticeDisabled})
			require.Empty(c, w.inState(c, e.ID, webhook.StatePending))
		})
		assert.Equal(w.t, webhook.EndpointActive, w.get(w.t, fine.ID).State)
		assert.Empty(w.t, w.notices(w.t, fine.ID))

		// Enabling is explicit, and counts anew.
		_, err := w.endpoints.Enable(w.t.Context(), webhook.AllTenants(), e.ID)
		require.NoError(w.t, err)
		w.enqueueMany(1, "acme")
		began = w.clock.Now()
		w.until(10*time.Minute, func(c *assert.CollectT) { require.Greater(c, w.clock.Now().Sub(began), 12*time.Hour) })
		assert.Equal(w.t, webhook.EndpointActive, w.get(w.t, e.ID).State)
	})
}

func TestB39AnOutageOfTenMinutesDisablesNobodyAndLosesNothing(t *testing.T) {
	everywhere(t, func(w *world) {
		e := w.endpoint("acme", "down.example")
		w.answer("down.example", http.StatusServiceUnavailable)
		w.dispatch(webhook.DispatcherConfig{})
		began := w.clock.Now()
		for range 5 {
			w.enqueueMany(1, "acme")
			until := w.clock.Now().Add(2 * time.Minute)
			w.until(2*time.Second, func(c *assert.CollectT) { require.True(c, w.clock.Now().After(until)) })
		}
		require.Greater(w.t, w.clock.Now().Sub(began), 10*time.Minute)
		w.answer("down.example", http.StatusOK)
		w.until(5*time.Second, func(c *assert.CollectT) { require.Len(c, w.inState(c, e.ID, webhook.StateDelivered), 5) })
		assert.Equal(w.t, webhook.EndpointActive, w.get(w.t, e.ID).State)
		w.until(time.Second, func(c *assert.CollectT) {
			require.Equal(c, []webhook.NoticeKind{webhook.NoticeFailing, webhook.NoticeRecovered}, w.notices(c, e.ID))
		})
	})
}

func TestB16WhatWaitsWhenAnEndpointIsDisabledIsCancelledVisiblyAndReplayable(t *testing.T) {
	always(t, func(w *world) {
		e := w.endpoint("acme", "hooks.example")
		w.answer("hooks.example", http.StatusInternalServerError)
		w.dispatch(webhook.DispatcherConfig{Breaker: noBreaker(), Retry: webhook.RetrySchedule{Delays: []time.Duration{time.Hour}}})
		retried := w.enqueueMany(1, "acme")[0]
		w.until(0, func(c *assert.CollectT) { require.Len(c, w.requests("hooks.example"), 1) })
		_, err := w.endpoints.Disable(w.t.Context(), webhook.AllTenants(), e.ID, "the customer left")
		require.NoError(w.t, err)
		missed := w.enqueueMany(3, "acme")

		var cancelled []webhook.Delivery
		w.until(time.Second, func(c *assert.CollectT) {
			cancelled = w.inState(c, e.ID, webhook.StateCancelled)
			require.Len(c, cancelled, 4)
		})
		for _, d := range cancelled {
			assert.Equal(w.t, "endpoint disabled: the customer left", d.Reason)
		}
		assert.Len(w.t, w.requests("hooks.example"), 1, "nothing is sent while it is disabled")
		w.until(time.Second, func(c *assert.CollectT) { require.Contains(c, w.notices(c, e.ID), webhook.NoticeDisabled) })
		list, err := w.health.Notices(w.t.Context(), webhook.ListNoticesParams{Scope: webhook.TenantScope("acme"), EndpointID: e.ID})
		require.NoError(w.t, err)
		i := slices.IndexFunc(list, func(n webhook.Notice) bool { return n.Kind == webhook.NoticeDisabled })
		require.GreaterOrEqual(w.t, i, 0)
		assert.Equal(w.t, "the customer left", list[i].Reason)

		w.answer("hooks.example", http.StatusOK)
		_, err = w.endpoints.Enable(w.t.Context(), webhook.AllTenants(), e.ID)
		require.NoError(w.t, err)
		for _, id := range append(missed, retried) {
			_, err := w.deliveries.Replay(w.t.Context(), webhook.AllTenants(), webhook.ReplayRequest{EventID: id, EndpointID: e.ID})
			require.NoError(w.t, err)
		}
		w.until(time.Second, func(c *assert.CollectT) { require.Len(c, w.inState(c, e.ID, webhook.StateDelivered), 4) })
	})
}

func TestA410DisablesTheEndpointAndCancelsWhatWaits(t *testing.T) {
	always(t, func(w *world) {
		e := w.endpoint("acme", "gone.example")
		w.answer("gone.example", http.StatusGone)
		w.dispatch(webhook.DispatcherConfig{MaxInFlightPerEndpoint: 1})
		w.enqueueMany(5, "acme")
		w.until(time.Second, func(c *assert.CollectT) {
			require.Equal(c, webhook.EndpointDisabled, w.get(c, e.ID).State)
			require.Len(c, w.inState(c, e.ID, webhook.StateCancelled), 4)
			require.Len(c, w.inState(c, e.ID, webhook.StateDead), 1)
		})
		assert.Len(w.t, w.requests("gone.example"), 1)
		w.until(time.Second, func(c *assert.CollectT) { require.Contains(c, w.notices(c, e.ID), webhook.NoticeDisabled) })
		assert.Zero(w.t, w.read(w.t, e.ID).Hour.Failed, "a 410 is no failure in health")
	})
}

func TestWhatWaitsForAPausedEndpointStaysPendingAndIsSentWhenItIsResumed(t *testing.T) {
	everywhere(t, func(w *world) {
		e := w.endpoint("acme", "hooks.example")
		_, err := w.endpoints.Pause(w.t.Context(), webhook.AllTenants(), e.ID, "maintenance")
		require.NoError(w.t, err)
		w.dispatch(webhook.DispatcherConfig{})
		w.enqueueMany(3, "acme")
		began := w.clock.Now()
		w.until(10*time.Minute, func(c *assert.CollectT) {
			require.Greater(c, w.clock.Now().Sub(began), 100*time.Hour)
			require.Len(c, w.inState(c, e.ID, webhook.StatePending), 3)
		})
		assert.Empty(w.t, w.requests("hooks.example"))
		_, err = w.endpoints.Resume(w.t.Context(), webhook.AllTenants(), e.ID)
		require.NoError(w.t, err)
		w.until(time.Second, func(c *assert.CollectT) { require.Len(c, w.inState(c, e.ID, webhook.StateDelivered), 3) })
	})
}

func TestWhatWaitsForADeletedEndpointIsCancelled(t *testing.T) {
	everywhere(t, func(w *world) {
		e := w.endpoint("acme", "hooks.example")
		_, err := w.endpoints.Pause(w.t.Context(), webhook.AllTenants(), e.ID, "")
		require.NoError(w.t, err)
		w.dispatch(webhook.DispatcherConfig{})
		w.enqueueMany(3, "acme")
		w.until(time.Second, func(c *assert.CollectT) { require.Len(c, w.inState(c, e.ID, webhook.StatePending), 3) })
		require.NoError(w.t, w.endpoints.Delete(w.t.Context(), webhook.AllTenants(), e.ID))
		w.until(time.Second, func(c *assert.CollectT) { require.Len(c, w.inState(c, e.ID, webhook.StateCancelled), 3) })
		assert.Equal(w.t, "endpoint deleted", w.inState(w.t, e.ID, webhook.StateCancelled)[0].Reason)
		assert.Empty(w.t, w.requests("hooks.example"))
	})
}
