package webhook_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

func TestAnEndpointThatNeverAnswersGets16AttemptsIn72HoursAndNoMore(t *testing.T) {
	t.Parallel() // R01, B50
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.answer(status(http.StatusInternalServerError))
		w.endpoint(someURL)
		w.dispatch(seldom())
		began := time.Now()
		id := w.enqueue(paid(`{}`))

		time.Sleep(80 * time.Hour)

		d := w.delivery(id)
		assert.Equal(t, webhook.StateDead, d.State)
		assert.Equal(t, 16, d.Attempts)
		times := w.times(began)
		require.Len(t, times, 16)
		assert.LessOrEqual(t, times[15], 72*time.Hour+time.Second, "an attempt that jitter puts past the window moves to its end")
		assert.WithinDuration(t, began.Add(times[15]), d.FinishedAt, time.Second, "dead with the last attempt: nothing is waited for after it")
		for i, a := range w.attempts(d.ID) {
			assert.Equal(t, i+1, a.Number)
		}
	})
}

func TestEachEndpointHasItsOwnRetryPolicy(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.answer(status(http.StatusInternalServerError))
		policies := map[string]struct {
			retry    webhook.EndpointRetry
			attempts int
		}{
			"dispatchers.example": {webhook.EndpointRetry{}, 2},
			"default.example":     {webhook.EndpointRetry{Preset: webhook.RetryPresetDefault}, 16},
			"standard.example":    {webhook.EndpointRetry{Preset: webhook.RetryPresetStandardWebhooks}, 10},
			"short.example":       {webhook.EndpointRetry{Preset: webhook.RetryPresetShort}, 8},
			"none.example":        {webhook.EndpointRetry{Preset: webhook.RetryPresetNone}, 1},
			"own.example":         {webhook.EndpointRetry{Delays: []time.Duration{time.Second, time.Minute}, Jitter: 0.5, Window: time.Hour}, 3},
			"final.example":       {webhook.EndpointRetry{Statuses: []string{"503", "4xx"}}, 1},
		}
		for host, p := range policies {
			w.endpoint("https://"+host+"/", func(e *webhook.EndpointParams) { e.Retry = p.retry })
		}
		cfg := seldom()
		cfg.Retry = webhook.RetrySchedule{Delays: []time.Duration{time.Second}}
		w.dispatch(cfg)

		w.enqueue(paid(`{}`))
		time.Sleep(80 * time.Hour)

		made := map[string]int{}
		for _, r := range w.requests() {
			made[r.host]++
		}
		for host, p := range policies {
			assert.Equal(t, p.attempts, made[host], host)
		}
	})
}

func TestRetryableStatusesAreTheEndpointsChoice(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.endpoint(someURL, func(p *webhook.EndpointParams) {
			p.Retry = webhook.EndpointRetry{Delays: []time.Duration{time.Second}, Statuses: []string{"429", "5xx"}}
		})
		w.dispatch(seldom())
		for code, attempts := range map[int]int{400: 1, 404: 1, 302: 1, 429: 2, 500: 2, 599: 2} {
			w.answer(status(code))
			id := w.enqueue(paid(`{}`))
			time.Sleep(time.Hour)
			d := w.delivery(id)
			assert.Equal(t, webhook.StateDead, d.State, code)
			assert.Equal(t, attempts, d.Attempts, code)
			if attempts == 1 {
				assert.Contains(t, d.Reason, "is final")
			}
		}
		w.answer(hangs)
		id := w.enqueue(paid(`{}`))
		time.Sleep(time.Hour)
		assert.Equal(t, 2, w.delivery(id).Attempts, "no answer is not a status")
	})
}

func TestTheRetryPolicyIsReadAnewAtEachAttempt(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.answer(status(http.StatusInternalServerError))
		e := w.endpoint(someURL, func(p *webhook.EndpointParams) {
			p.Retry = webhook.EndpointRetry{Delays: []time.Duration{time.Hour, time.Hour}}
		})
		w.dispatch(seldom())
		long, short := w.enqueue(paid(`{}`)), w.enqueue(paid(`{}`))
		time.Sleep(time.Minute)
		require.Equal(t, webhook.StatePending, w.delivery(short).State)

		retry := webhook.EndpointRetry{Delays: []time.Duration{time.Hour}}
		_, err := w.hooks.Endpoints().Update(t.Context(), webhook.AllTenants(), e.ID, webhook.EndpointUpdate{Retry: &retry})
		require.NoError(t, err)
		time.Sleep(4 * time.Hour)

		for _, d := range []webhook.Delivery{w.delivery(long), w.delivery(short)} {
			assert.Equal(t, webhook.StateDead, d.State)
			assert.Equal(t, 2, d.Attempts)
		}
		got, err := w.hooks.Endpoints().Get(t.Context(), webhook.AllTenants(), e.ID)
		require.NoError(t, err)
		assert.Equal(t, retry, got.Retry)
	})
}

func TestTheWindowStandsStillWhileAnEndpointIsPaused(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.answer(status(http.StatusInternalServerError))
		e := w.endpoint(someURL, func(p *webhook.EndpointParams) {
			p.Retry = webhook.EndpointRetry{Delays: []time.Duration{time.Hour, time.Hour, 2 * time.Hour, time.Hour}, Window: 4 * time.Hour}
		})
		w.dispatch(seldom())
		began := time.Now()
		id := w.enqueue(paid(`{}`))
		time.Sleep(90 * time.Minute) // two attempts

		_, err := w.hooks.Endpoints().Pause(t.Context(), webhook.AllTenants(), e.ID, "")
		require.NoError(t, err)
		time.Sleep(day)
		require.Len(t, w.requests(), 2)
		require.Equal(t, webhook.StatePending, w.delivery(id).State)
		_, err = w.hooks.Endpoints().Resume(t.Context(), webhook.AllTenants(), e.ID)
		require.NoError(t, err)
		time.Sleep(10 * time.Hour)

		d := w.delivery(id)
		assert.Equal(t, webhook.StateDead, d.State)
		times := w.times(began)
		require.Len(t, times, 5)
		assert.WithinDuration(t, began.Add(day+4*time.Hour), began.Add(times[4]), time.Second, "the last one moved to the end of the window")
	})
}

func TestAnAttemptIsNeverEarlyBecauseOthersWakeTheDispatcher(t *testing.T) {
	t.Parallel() // B56
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.answer(status(http.StatusInternalServerError))
		cfg := seldom()
		cfg.Retry = webhook.RetrySchedule{Delays: []time.Duration{30 * time.Second}}
		w.endpoint(someURL)
		stop := w.dispatch(cfg)
		began := time.Now()
		first := w.enqueue(paid(`{}`))
		synctest.Wait()
		time.Sleep(time.Second)
		require.Len(t, w.requests(), 1)

		w.answer(status(http.StatusOK))
		for i := range 100 {
			w.enqueue(paid(`{}`))
			time.Sleep(100 * time.Millisecond)
			if i == 50 { // and a restart
				stop()
				stop = w.dispatch(cfg)
			}
		}
		time.Sleep(time.Hour)

		attempts := w.attempts(w.delivery(first).ID)
		require.Len(t, attempts, 2)
		assert.GreaterOrEqual(t, attempts[1].StartedAt.Sub(began), 30*time.Second)
	})
}

func TestAnEndpointsRetryThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for field, retry := range map[string]webhook.EndpointRetry{
		"Retry.Preset":      {Preset: "sometimes"},
		"Retry.Preset ":     {Preset: webhook.RetryPresetShort, Window: time.Hour},
		"Retry.Delays":      {Window: time.Hour},
		"Retry.Delays ":     {Delays: make([]time.Duration, 101)},
		"Retry.Delays[1]":   {Delays: []time.Duration{0, -1}},
		"Retry.Window":      {Delays: []time.Duration{0}, Window: -1},
		"Retry.Window ":     {Delays: []time.Duration{0}, Window: 31 * day},
		"Retry.Jitter":      {Delays: []time.Duration{0}, Jitter: 1.1},
		"Retry.Statuses[0]": {Statuses: []string{"200"}},
		"Retry.Statuses[1]": {Statuses: []string{"5xx", "6xx"}},
		"Retry.Statuses":    {Statuses: make([]string, 101)},
	} {
		_, err := h.hooks.Endpoints().Create(t.Context(), webhook.EndpointParams{
			Tenant: "acme", URL: someURL, Types: []string{"*"}, Retry: retry,
		})
		require.ErrorIs(t, err, webhook.ErrInvalid, field)
		require.ErrorContains(t, err, "EndpointParams."+strings.TrimSpace(field))
	}
}
