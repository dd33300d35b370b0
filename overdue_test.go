package webhook_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

func TestADeliveryIsDeadPastItsWindowEvenIfACircuitIsOpen(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.answer(hangs)
		e := w.endpoint(someURL, func(p *webhook.EndpointParams) {
			p.Retry = webhook.EndpointRetry{Delays: []time.Duration{time.Second, time.Minute, time.Minute}, Window: 2 * time.Hour}
		})
		cfg := seldom()
		cfg.Breaker = webhook.BreakerConfig{}
		w.dispatch(cfg)
		var events []uuid.UUID
		for range 200 {
			events = append(events, w.enqueue(paid(`{}`)))
		}
		time.Sleep(100 * time.Minute)
		late := w.enqueue(paid(`{}`))
		require.Contains(t, w.log.String(), "circuit open")

		time.Sleep(50 * time.Minute)

		unattempted := 0
		for _, id := range events {
			d := w.delivery(id)
			require.Equal(t, webhook.StateDead, d.State)
			if d.Attempts == 0 {
				unattempted++
				assert.Equal(t, "the retry window has passed", d.Reason)
			}
		}
		assert.Positive(t, unattempted, "the circuit kept most from being attempted at all")
		assert.Equal(t, webhook.StatePending, w.delivery(late).State, "its window has not passed")
		assert.Equal(t, webhook.EndpointActive, w.state(e.ID))
	})
}

func TestWhatWaitedForUsIsAttemptedAllTheSame(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.answer(status(http.StatusInternalServerError))
		w.endpoint(someURL)
		stop := w.dispatch(seldom())
		tried := w.enqueue(paid(`{}`))
		time.Sleep(time.Minute)
		stop()
		untried := w.enqueue(paid(`{}`))

		time.Sleep(5 * 24 * time.Hour) // nobody dispatches
		w.answer(status(http.StatusOK))
		w.dispatch(seldom())
		time.Sleep(time.Hour)

		assert.Equal(t, webhook.StateDelivered, w.delivery(untried).State, "it is not the endpoint's doing")
		d := w.delivery(tried)
		assert.Equal(t, webhook.StateDead, d.State, "the window is the contract")
		assert.Equal(t, "the retry window has passed", d.Reason)
	})
}

func TestTheWindowStandsStillForNoLongerThanEventsAreKept(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.answer(status(http.StatusInternalServerError))
		e := w.endpoint(someURL, func(p *webhook.EndpointParams) {
			p.Retry = webhook.EndpointRetry{Delays: []time.Duration{time.Hour}, Window: 4 * time.Hour}
		})
		cfg := seldom()
		cfg.Retention = webhook.RetentionPolicy{Dead: day, Deliveries: day, Events: day}
		seen := new(deaths)
		cfg.Observer = seen
		w.dispatch(cfg)
		id := w.enqueue(paid(`{}`))
		time.Sleep(time.Minute)
		_, err := w.hooks.Endpoints().Pause(t.Context(), webhook.AllTenants(), e.ID, "")
		require.NoError(t, err)

		time.Sleep(day + 3*time.Hour)
		require.Equal(t, webhook.StatePending, w.delivery(id).State)
		time.Sleep(2 * time.Hour)

		d := w.delivery(id)
		assert.Equal(t, webhook.StateDead, d.State)
		assert.Equal(t, "the retry window has passed", d.Reason)
		time.Sleep(time.Minute)
		assert.Equal(t, map[uuid.UUID]int{e.ID: 1}, seen.all())
		assert.Contains(t, w.notices(e.ID), webhook.NoticeDead)
		health, err := w.hooks.Health().Endpoint(t.Context(), webhook.AllTenants(), e.ID)
		require.NoError(t, err)
		assert.Equal(t, int64(1), health.DeadCount)
	})
}

// notices are the kinds of an endpoint's notices, the oldest first.
func (w *world) notices(endpoint uuid.UUID) (kinds []webhook.NoticeKind) {
	w.t.Helper()
	list, err := w.hooks.Health().Notices(w.t.Context(), webhook.ListNoticesParams{Scope: webhook.AllTenants(), EndpointID: endpoint})
	require.NoError(w.t, err)
	for _, n := range slices.Backward(list) {
		kinds = append(kinds, n.Kind)
	}
	return kinds
}

func (w *world) state(endpoint uuid.UUID) webhook.EndpointState {
	w.t.Helper()
	e, err := w.hooks.Endpoints().Get(w.t.Context(), webhook.AllTenants(), endpoint)
	require.NoError(w.t, err)
	return e.State
}
