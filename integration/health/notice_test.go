package health_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

func kindsOf(notices []webhook.Notice) []webhook.NoticeKind {
	kinds := []webhook.NoticeKind{}
	for _, n := range notices {
		kinds = append(kinds, n.Kind)
	}
	return kinds
}

func count(notices []webhook.Notice, kind webhook.NoticeKind) (n int) {
	for i := range notices {
		if notices[i].Kind == kind {
			n++
		}
	}
	return n
}

// sorted puts kinds in the order in which an outage makes them; within one look they
// have none.
func sorted(kinds []webhook.NoticeKind) []webhook.NoticeKind {
	order := []webhook.NoticeKind{webhook.NoticeFailing, webhook.NoticeDead, webhook.NoticeDisabled}
	slices.SortStableFunc(kinds, func(a, b webhook.NoticeKind) int { return slices.Index(order, a) - slices.Index(order, b) })
	return kinds
}

func TestANoticeIsToldUntilTheCallbackTakesItAndNotAgain(t *testing.T) {
	everywhere(t, func(w *world) {
		e := w.endpoint("acme", "hooks.example")
		w.answer("hooks.example", http.StatusInternalServerError)
		l := new(listener)
		l.fails.Store(6)
		cfg := webhook.DispatcherConfig{
			Breaker: noBreaker(), Retry: webhook.ExponentialRetry{Base: time.Minute, Cap: time.Minute, Window: 1000 * time.Hour},
			Notifications: webhook.NotificationConfig{Notify: l.Notify},
		}
		w.dispatch(cfg)
		_, stop := w.dispatch(cfg)
		w.enqueueMany(1, "acme")
		w.until(time.Second, func(c *assert.CollectT) { require.NotEmpty(c, l.all()) })
		w.answer("hooks.example", http.StatusOK)
		w.until(time.Second, func(c *assert.CollectT) { require.GreaterOrEqual(c, count(l.all(), webhook.NoticeRecovered), 1) })
		stop()
		w.dispatch(cfg)
		w.until(time.Second, func(c *assert.CollectT) {
			due, err := w.backend.DueNotices(w.t.Context(), w.clock.Now().Add(1000*time.Hour), 10)
			require.NoError(c, err)
			require.Empty(c, due)
		})
		heard := l.all()
		began := w.clock.Now()
		w.until(time.Minute, func(c *assert.CollectT) { require.Greater(c, w.clock.Now().Sub(began), 2*time.Hour) })

		assert.Len(w.t, l.all(), len(heard), "nothing is told again")
		assert.GreaterOrEqual(w.t, len(heard), 8, "two notices, and six calls that failed")
		ids := map[string]int{}
		for _, n := range heard {
			ids[n.ID.String()]++
			assert.Equal(w.t, e.ID, n.EndpointID)
			assert.Equal(w.t, "acme", n.Tenant)
		}
		assert.Len(w.t, ids, 2, "each with its own id, however often it is told")
		assert.Equal(w.t, []webhook.NoticeKind{webhook.NoticeFailing, webhook.NoticeRecovered}, w.notices(w.t, e.ID))
	})
}

func TestOperationalEventsReachTheOperatorsEndpointsAndMakeNoneOfTheirOwn(t *testing.T) {
	everywhere(t, func(w *world) {
		failing := w.endpoint("acme", "hooks.example")
		own := w.endpoint("operators", "pager.example")
		w.answer("hooks.example", http.StatusInternalServerError)
		w.answer("pager.example", http.StatusInternalServerError)
		cfg := webhook.DispatcherConfig{
			Breaker: noBreaker(), Retry: webhook.RetrySchedule{Delays: []time.Duration{time.Minute}},
			Notifications: webhook.NotificationConfig{EventTenant: "operators"},
		}
		w.dispatch(cfg)
		w.dispatch(cfg)
		w.enqueueMany(2, "acme")
		w.until(time.Second, func(c *assert.CollectT) { require.NotEmpty(c, w.requests("pager.example")) })
		w.answer("pager.example", http.StatusOK)
		w.until(time.Second, func(c *assert.CollectT) {
			require.Len(c, w.inState(c, own.ID, webhook.StateDelivered), 2, "failing, and a dead delivery")
		})
		w.until(time.Minute, func(c *assert.CollectT) { require.NotEmpty(c, w.notices(c, own.ID), "its own failures are notices") })

		var got webhook.NoticeEvent
		for _, d := range w.inState(w.t, own.ID, webhook.StateDelivered) {
			event, err := w.backend.GetEvent(w.t.Context(), webhook.TenantScope("operators"), d.EventID)
			require.NoError(w.t, err)
			require.NoError(w.t, json.Unmarshal(event.Payload, &got))
			assert.Equal(w.t, failing.ID, got.EndpointID, "and no events")
			assert.Equal(w.t, "acme", got.Tenant)
			assert.Equal(w.t, string(got.Kind), event.Type)
			assert.Equal(w.t, event.ID, got.ID)
			assert.Equal(w.t, http.StatusInternalServerError, got.Status)
		}
		page, err := w.deliveries.List(w.t.Context(), webhook.DeliveryQuery{Scope: webhook.TenantScope("operators")})
		require.NoError(w.t, err)
		assert.Len(w.t, page.Deliveries, 2)
	})
}

func TestAStormOfDeadDeliveriesIsToldOnce(t *testing.T) {
	always(t, func(w *world) {
		e := w.endpoint("acme", "hooks.example")
		w.answer("hooks.example", http.StatusBadRequest)
		l := new(listener)
		w.dispatch(webhook.DispatcherConfig{
			Breaker: noBreaker(), Retry: webhook.RetrySchedule{}, Notifications: webhook.NotificationConfig{Notify: l.Notify},
		})
		w.enqueueMany(60, "acme")
		w.until(time.Second, func(c *assert.CollectT) {
			require.Equal(c, int64(60), w.read(c, e.ID).DeadCount)
			require.Equal(c, 1, count(l.all(), webhook.NoticeConfigurationSuspected))
		})
		assert.Equal(w.t, 1, count(l.all(), webhook.NoticeDead))
		assert.Equal(w.t, 1, count(l.all(), webhook.NoticeFailing))
		require.NotNil(w.t, w.read(w.t, e.ID).ConfigurationError)
		assert.Equal(w.t, http.StatusBadRequest, w.read(w.t, e.ID).ConfigurationError.Status)
	})
}

func TestARotationThatTheReceiverDoesNotKnowOfIsSuspected(t *testing.T) {
	everywhere(t, func(w *world) {
		e := w.endpoint("acme", "hooks.example")
		w.dispatch(webhook.DispatcherConfig{Breaker: noBreaker(), Retry: webhook.RetrySchedule{}})
		w.enqueueMany(3, "acme")
		w.until(time.Second, func(c *assert.CollectT) { require.Len(c, w.inState(c, e.ID, webhook.StateDelivered), 3) })
		_, err := w.endpoints.RotateSecret(w.t.Context(), webhook.AllTenants(), e.ID, webhook.RotateOptions{Overlap: -1})
		require.NoError(w.t, err)
		w.answer("hooks.example", http.StatusUnauthorized)
		rotated := w.clock.Now()
		w.until(time.Second, func(c *assert.CollectT) { require.Greater(c, w.clock.Now().Sub(rotated), 10*time.Second) })
		w.enqueueMany(5, "acme")
		w.until(time.Second, func(c *assert.CollectT) {
			h := w.read(c, e.ID)
			require.NotNil(c, h.ConfigurationError)
			require.Equal(c, http.StatusUnauthorized, h.ConfigurationError.Status)
			require.WithinDuration(c, rotated, h.ConfigurationError.RotatedAt, time.Second)
			require.Contains(c, w.notices(c, e.ID), webhook.NoticeConfigurationSuspected)
		})
	})
}

func TestASecretOfNinetyDaysIsToldOfOnce(t *testing.T) {
	everywhere(t, func(w *world) {
		e := w.endpoint("acme", "hooks.example")
		_, stop := w.dispatch(webhook.DispatcherConfig{})
		w.until(12*time.Hour, func(c *assert.CollectT) { require.NotEmpty(c, w.notices(c, e.ID)) })
		assert.GreaterOrEqual(w.t, w.clock.Now().Sub(e.CreatedAt), 90*24*time.Hour)
		stop()
		w.dispatch(webhook.DispatcherConfig{})
		began := w.clock.Now()
		w.until(time.Hour, func(c *assert.CollectT) { require.Greater(c, w.clock.Now().Sub(began), 48*time.Hour) })
		assert.Equal(w.t, []webhook.NoticeKind{webhook.NoticeSecretOld}, w.notices(w.t, e.ID))
	})
}
