package webhook_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
)

var acme = webhook.TenantScope("acme")

// receives starts a receiver that verifies what the new endpoint signs.
func (h *host) receives(first webhooktest.Behavior, then ...webhooktest.Behavior) (*webhooktest.Receiver, webhook.Endpoint) {
	h.t.Helper()
	receiver := webhooktest.NewReceiver(h.t)
	receiver.Respond(first, then...)
	endpoint := h.endpoint(receiver.URL)
	receiver.Verify(h.t, endpoint.Secret.Reveal())
	return receiver, endpoint
}

// runsOf waits until an event has n runs to an endpoint, all finished, and returns
// them by run.
func (h *host) runsOf(event uuid.UUID, n int) []webhook.Delivery {
	h.t.Helper()
	byRun := make([]webhook.Delivery, n)
	for _, d := range h.settled(event, n) {
		byRun[d.Run] = d
	}
	return byRun
}

func replayOf(event uuid.UUID, endpoint webhook.Endpoint) webhook.ReplayRequest {
	return webhook.ReplayRequest{EventID: event, EndpointID: endpoint.ID}
}

// B18 and B20 on replay, and B44: what is dead is sent again under the same id.
func TestB18B20B44AReplaySendsTheSameBytesUnderTheSameIDWithAFreshSignature(t *testing.T) {
	t.Parallel()
	const payload = "{\"b\" : 1,\n \"a\":\"é\\/\",\"n\":10002318,\"big\":7615917337495251231,\"f\":1.0,\"e\":1E3}"
	h := newHost(t)
	receiver, endpoint := h.receives(webhooktest.Status(500), webhooktest.Status(204))
	w := newWatcher()
	h.dispatch(webhook.DispatcherConfig{Observer: w, Retry: noRetry()})
	event := h.enqueue(paid(payload))
	first := h.runsOf(event, 1)[0]
	require.Equal(t, webhook.StateDead, first.State)

	replay, err := h.hooks.Deliveries().Replay(t.Context(), acme, replayOf(event, endpoint))
	require.NoError(t, err)

	runs := h.runsOf(event, 2)
	assert.Equal(t, first, runs[0], "history is kept")
	assert.Equal(t, replay.ID, runs[1].ID)
	assert.Equal(t, [2]any{webhook.StateDelivered, 1}, [2]any{runs[1].State, runs[1].Attempts})
	got := receiver.RequireRequests(t, 2, 10*time.Second)
	for i, r := range got {
		assert.NoError(t, r.VerifyErr, "request %d", i)
		assert.Equal(t, payload, string(r.Body))
		assert.Equal(t, event.String(), r.ID())
		assert.Equal(t, "1", r.Attempt(), "each run counts its own attempts")
		assert.Equal(t, got[0].Header.Get("Idempotency-Key"), r.Header.Get("Idempotency-Key"))
		assert.Equal(t, []string{"", "true"}[i], r.Header.Get("webhook-replay"))
	}
	assert.Equal(t, []int{0, 1}, []int{w.next(t).Run, w.next(t).Run})
	for _, d := range runs {
		attempts, err := h.hooks.Deliveries().Attempts(t.Context(), acme, d.ID)
		require.NoError(t, err)
		assert.Len(t, attempts, 1)
	}
}

func TestADoubleClickReplaysOnce(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	receiver, endpoint := h.receives(webhooktest.Status(204))
	stop := h.dispatch(webhook.DispatcherConfig{})
	event := h.enqueue(paid(`{}`))
	h.settled(event, 1)
	stop()

	var ids [3]uuid.UUID
	for i := range ids {
		d, err := h.hooks.Deliveries().Replay(t.Context(), acme, replayOf(event, endpoint))
		require.NoError(t, err)
		ids[i] = d.ID
	}
	h.dispatch(webhook.DispatcherConfig{})

	assert.Equal(t, [3]uuid.UUID{ids[0], ids[0], ids[0]}, ids)
	h.settled(event, 2)
	receiver.RequireRequests(t, 2, 10*time.Second)
}

// B16: what a disabled endpoint missed is visible, and is delivered when it is
// replayed after the endpoint has been enabled.
func TestB16WhatADisabledEndpointMissedCanBeReplayed(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	receiver, endpoint := h.receives(webhooktest.Status(204))
	h.dispatch(webhook.DispatcherConfig{PollInterval: 20 * time.Millisecond})
	_, err := h.hooks.Endpoints().Disable(t.Context(), acme, endpoint.ID, "moving")
	require.NoError(t, err)
	var missed []uuid.UUID
	for range 3 {
		missed = append(missed, h.enqueue(paid(`{}`)))
	}
	for _, event := range missed {
		d := h.runsOf(event, 1)[0]
		assert.Equal(t, [2]any{webhook.StateCancelled, "endpoint disabled: moving"}, [2]any{d.State, d.Reason})
		_, err := h.hooks.Deliveries().Replay(t.Context(), acme, replayOf(event, endpoint))
		require.ErrorIs(t, err, webhook.ErrEndpointDisabled)
	}
	assert.Empty(t, receiver.Requests())

	_, err = h.hooks.Endpoints().Enable(t.Context(), acme, endpoint.ID)
	require.NoError(t, err)
	for _, event := range missed {
		_, err := h.hooks.Deliveries().Replay(t.Context(), acme, replayOf(event, endpoint))
		require.NoError(t, err)
		assert.Equal(t, webhook.StateDelivered, h.runsOf(event, 2)[1].State)
	}
	receiver.RequireRequests(t, 3, 10*time.Second)
}

func TestAReplayHasItsOwnAttemptsAndWindowAndStaysInItsLane(t *testing.T) {
	t.Parallel()
	clock := webhooktest.NewClock(time.Now())
	h := atClock(t, clock)
	receiver := webhooktest.NewReceiver(t)
	receiver.Respond(webhooktest.Status(503))
	endpoint := h.endpoint(receiver.URL)
	retry := webhook.RetrySchedule{Delays: []time.Duration{time.Minute}, Window: time.Hour}
	h.dispatch(webhook.DispatcherConfig{Retry: retry, Breaker: noBreaker()})
	event := h.enqueue(paid(`{}`))
	passes := func(attempts int) {
		t.Helper()
		require.Eventually(t, func() bool {
			clock.Advance(time.Second)
			return len(receiver.Requests()) == attempts
		}, 20*time.Second, time.Millisecond)
	}
	passes(2)
	h.settled(event, 1)
	clock.Advance(24 * time.Hour) // the first run's window has long passed

	replay, err := h.hooks.Deliveries().Replay(t.Context(), acme, replayOf(event, endpoint))
	require.NoError(t, err)
	passes(3)
	require.Eventually(t, func() bool {
		d, err := h.hooks.Deliveries().Get(t.Context(), acme, replay.ID)
		require.NoError(t, err)
		return d.State == webhook.StatePending && d.Attempts == 1
	}, 10*time.Second, time.Millisecond)
	ready, err := h.store.Ready(t.Context(), webhook.ReadyParams{Now: clock.Now(), Limit: 10})
	require.NoError(t, err)
	require.Len(t, ready, 1)
	assert.Equal(t, webhook.LaneReplay, ready[0].Lane, "lane of a replay's retry")

	passes(4)
	runs := h.runsOf(event, 2)
	assert.Equal(t, [2]any{webhook.StateDead, 2}, [2]any{runs[1].State, runs[1].Attempts})
	assert.Equal(t, "2", receiver.Requests()[3].Attempt())
	assert.Equal(t, "true", receiver.Requests()[3].Header.Get("webhook-replay"))
}

func TestRetryNowSendsWhatWaitsAndRepeatsWhatIsFinished(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	receiver, endpoint := h.receives(webhooktest.Status(500), webhooktest.Status(204))
	h.dispatch(webhook.DispatcherConfig{Retry: webhook.RetrySchedule{Delays: []time.Duration{time.Hour}}})
	event := h.enqueue(paid(`{}`))
	var waiting webhook.Delivery
	require.Eventually(t, func() bool {
		list := h.listed(endpoint.ID, webhook.StatePending)
		if len(list) == 1 && list[0].Attempts == 1 {
			waiting = list[0]
		}
		return waiting.ID != uuid.Nil
	}, 10*time.Second, time.Millisecond)

	same, err := h.hooks.Deliveries().RetryNow(t.Context(), acme, waiting.ID)
	require.NoError(t, err)
	assert.Equal(t, waiting.ID, same.ID)
	first := h.runsOf(event, 1)[0]
	assert.Equal(t, [2]any{webhook.StateDelivered, 2}, [2]any{first.State, first.Attempts})
	got := receiver.RequireRequests(t, 2, 10*time.Second)
	assert.Empty(t, got[1].Header.Get("webhook-replay"), "a retry is no replay")

	next, err := h.hooks.Deliveries().RetryNow(t.Context(), acme, waiting.ID)
	require.NoError(t, err)
	assert.Equal(t, 1, next.Run)
	assert.Equal(t, webhook.StateDelivered, h.runsOf(event, 2)[1].State)
	receiver.RequireRequests(t, 3, 10*time.Second)
}

func TestACancelledDeliveryIsNotSent(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	receiver, endpoint := h.receives(webhooktest.Status(204))
	_, err := h.hooks.Endpoints().Pause(t.Context(), acme, endpoint.ID, "")
	require.NoError(t, err)
	h.dispatch(webhook.DispatcherConfig{PollInterval: 20 * time.Millisecond})
	unwanted, wanted := h.enqueue(paid(`{}`)), h.enqueue(paid(`{}`))
	var pending []webhook.Delivery
	require.Eventually(t, func() bool {
		pending = h.listed(endpoint.ID, webhook.StatePending)
		return len(pending) == 2
	}, 10*time.Second, time.Millisecond)

	for _, d := range pending {
		if d.EventID != unwanted {
			continue
		}
		for range 2 { // a double click is no error
			cancelled, err := h.hooks.Deliveries().Cancel(t.Context(), acme, d.ID, "sent by hand")
			require.NoError(t, err)
			assert.Equal(t, [2]any{webhook.StateCancelled, "sent by hand"}, [2]any{cancelled.State, cancelled.Reason})
		}
	}
	_, err = h.hooks.Endpoints().Resume(t.Context(), acme, endpoint.ID)
	require.NoError(t, err)

	d := h.settled(wanted, 1)[0]
	got := receiver.RequireRequests(t, 1, 10*time.Second)
	assert.Equal(t, wanted.String(), got[0].ID())
	_, err = h.hooks.Deliveries().Cancel(t.Context(), acme, d.ID, "")
	require.ErrorIs(t, err, webhook.ErrFinished)
}

func TestWhatIsCancelledInFlightStaysCancelledAndItsAttemptIsLoggedAsLate(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	release := make(chan struct{})
	receiver, endpoint := h.receives(webhooktest.Hold(release, webhooktest.Status(200)))
	h.dispatch(webhook.DispatcherConfig{})
	h.enqueue(paid(`{}`))
	receiver.RequireRequests(t, 1, 10*time.Second)
	flying := h.listed(endpoint.ID, webhook.StateInFlight)
	require.Len(t, flying, 1)

	_, err := h.hooks.Deliveries().Cancel(t.Context(), acme, flying[0].ID, "stop")
	require.NoError(t, err)
	close(release)

	require.Eventually(t, func() bool {
		attempts, err := h.hooks.Deliveries().Attempts(t.Context(), acme, flying[0].ID)
		require.NoError(t, err)
		return len(attempts) == 1 && attempts[0].Late && attempts[0].Status == http.StatusOK
	}, 10*time.Second, time.Millisecond)
	d, err := h.hooks.Deliveries().Get(t.Context(), acme, flying[0].ID)
	require.NoError(t, err)
	assert.Equal(t, webhook.StateCancelled, d.State)
}

func TestDeliveriesOfOthersAreNotFound(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	_, endpoint := h.receives(webhooktest.Status(204))
	h.dispatch(webhook.DispatcherConfig{})
	event := h.enqueue(paid(`{}`))
	d := h.settled(event, 1)[0]
	other, s := webhook.TenantScope("other"), h.hooks.Deliveries()

	_, err := s.Get(t.Context(), other, d.ID)
	require.ErrorIs(t, err, webhook.ErrNotFound)
	_, err = s.Attempts(t.Context(), other, d.ID)
	require.ErrorIs(t, err, webhook.ErrNotFound)
	_, err = s.Cancel(t.Context(), other, d.ID, "")
	require.ErrorIs(t, err, webhook.ErrNotFound)
	_, err = s.RetryNow(t.Context(), other, d.ID)
	require.ErrorIs(t, err, webhook.ErrNotFound)
	_, err = s.Replay(t.Context(), other, replayOf(event, endpoint))
	require.ErrorIs(t, err, webhook.ErrNotFound)
	none, err := s.List(t.Context(), webhook.DeliveryQuery{Scope: other})
	require.NoError(t, err)
	assert.Empty(t, none)
	own, err := s.List(t.Context(), webhook.DeliveryQuery{Scope: acme})
	require.NoError(t, err)
	assert.Equal(t, webhook.DeliveryPage{Deliveries: []webhook.Delivery{d}}, own)
}
