package webhook_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
)

// missed has n events cancelled for a disabled endpoint, which is enabled again
// afterwards, and the dispatcher that did it stopped.
func (h *host) missed(endpoint webhook.Endpoint, n int) []uuid.UUID {
	h.t.Helper()
	ctx := h.t.Context()
	_, err := h.hooks.Endpoints().Disable(ctx, acme, endpoint.ID, "moving")
	require.NoError(h.t, err)
	events := make([]webhook.Event, n)
	for i := range events {
		events[i] = paid(`{"n" : 1}`)
	}
	tx := h.store.Begin()
	results, err := h.hooks.EnqueueMany(ctx, tx, events)
	require.NoError(h.t, err)
	require.NoError(h.t, tx.Commit())
	stop := h.dispatch(webhook.DispatcherConfig{PollInterval: 20 * time.Millisecond})
	h.eventually("all are cancelled", func() bool { return len(h.listed(endpoint.ID, webhook.StateCancelled)) == n })
	stop()
	_, err = h.hooks.Endpoints().Enable(ctx, acme, endpoint.ID)
	require.NoError(h.t, err)
	ids := make([]uuid.UUID, n)
	for i := range ids {
		ids[i] = results[i].EventID
	}
	return ids
}

// eventually waits, and moves the host's clock if it has one that can be moved.
func (h *host) eventually(what string, condition func() bool) {
	h.t.Helper()
	require.Eventually(h.t, func() bool {
		if h.clock != nil {
			h.clock.Advance(50 * time.Millisecond)
		}
		return condition()
	}, 30*time.Second, 2*time.Millisecond, what)
}

func (h *host) job(id uuid.UUID) webhook.ReplayJob {
	h.t.Helper()
	job, err := h.hooks.Replays().Get(h.t.Context(), acme, id)
	require.NoError(h.t, err)
	return job
}

func (h *host) createJob(r webhook.ReplayJobRequest) webhook.ReplayJob {
	h.t.Helper()
	job, err := h.hooks.Replays().Create(h.t.Context(), acme, r)
	require.NoError(h.t, err)
	return job
}

// jobEnds waits for the end of a job.
func (h *host) jobEnds(id uuid.UUID) webhook.ReplayJob {
	h.t.Helper()
	h.eventually("the job ends", func() bool { return h.job(id).State != webhook.ReplayRunning })
	return h.job(id)
}

// replayedOnce asserts that each event has been replayed to the endpoint exactly once.
func (h *host) replayedOnce(receiver *webhooktest.Receiver, events []uuid.UUID) {
	h.t.Helper()
	h.eventually("everything has been sent", func() bool { return len(receiver.Requests()) >= len(events) })
	for _, event := range events {
		runs := h.runsOf(event, 2)
		assert.Equal(h.t, webhook.StateDelivered, runs[1].State)
	}
	requests := map[string]int{}
	for _, r := range receiver.Requests() {
		requests[r.ID()]++
		assert.NoError(h.t, r.VerifyErr)
		assert.Equal(h.t, "true", r.Header.Get("webhook-replay"))
		assert.Equal(h.t, `{"n" : 1}`, string(r.Body))
	}
	for _, event := range events {
		assert.Equal(h.t, 1, requests[event.String()], "requests of an event")
	}
}

func TestB16AReplayJobDeliversWhatADisabledEndpointMissed(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	receiver, endpoint := h.receives(webhooktest.Status(204))
	events := h.missed(endpoint, 30)
	request := webhook.ReplayJobRequest{EndpointID: endpoint.ID, States: []webhook.DeliveryState{webhook.StateCancelled}}

	estimate, err := h.hooks.Replays().DryRun(t.Context(), acme, request)
	require.NoError(t, err)
	assert.Equal(t, webhook.ReplayEstimate{Matched: 30}, estimate)
	assert.Empty(t, h.listed(endpoint.ID, webhook.StatePending), "a dry run changes nothing")

	job := h.createJob(request)
	assert.Equal(t, [3]any{webhook.ReplayRunning, 30, 0}, [3]any{job.State, job.Matched, job.Created})
	h.dispatch(webhook.DispatcherConfig{})

	job = h.jobEnds(job.ID)
	assert.Equal(t, [4]any{webhook.ReplayDone, 30, 30, 30}, [4]any{job.State, job.Matched, job.Handled, job.Created})
	assert.False(t, job.FinishedAt.IsZero())
	h.replayedOnce(receiver, events)

	// What has arrived is not covered any more, so the same request again is nothing.
	again := h.jobEnds(h.createJob(request).ID)
	assert.Equal(t, [3]any{webhook.ReplayDone, 0, 0}, [3]any{again.State, again.Matched, again.Created})
	list, err := h.hooks.Replays().List(t.Context(), webhook.ListReplayJobsParams{Scope: acme, EndpointID: endpoint.ID})
	require.NoError(t, err)
	assert.Equal(t, []webhook.ReplayJob{again, job}, list)
}

func TestAReplayJobKeepsItsRate(t *testing.T) {
	t.Parallel()
	clock := webhooktest.NewClock(time.Now())
	h := atClock(t, clock)
	receiver, endpoint := h.receives(webhooktest.Status(204))
	receiver.SetNow(clock.Now)
	events := h.missed(endpoint, 20)

	job := h.createJob(webhook.ReplayJobRequest{EndpointID: endpoint.ID, PerSecond: 4})
	h.dispatch(webhook.DispatcherConfig{PollInterval: 100 * time.Millisecond})
	job = h.jobEnds(job.ID)

	assert.Equal(t, 20, job.Created)
	h.replayedOnce(receiver, events)
	begun := map[time.Time]int{}
	var first, last time.Time
	for _, d := range h.listed(endpoint.ID, webhook.StateDelivered) {
		begun[d.CreatedAt]++
		if first.IsZero() || d.CreatedAt.Before(first) {
			first = d.CreatedAt
		}
		if d.CreatedAt.After(last) {
			last = d.CreatedAt
		}
	}
	for at, n := range begun {
		assert.LessOrEqual(t, n, 4, "begun at %s", at)
	}
	assert.GreaterOrEqual(t, last.Sub(first), 4*time.Second, "five batches, a second apart")
}

// crashing is a store on which the process dies in the middle of a replay job.
type crashing struct {
	*webhooktest.Store

	mu    sync.Mutex
	steps int
	crash func(step int, commit func()) bool // true: the process hears nothing
}

var errGone = errors.New("the process is gone")

func (s *crashing) AdvanceReplayJob(ctx context.Context, p webhook.AdvanceReplayJobParams) (created int, held bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	commit := func() { created, held, err = s.Store.AdvanceReplayJob(context.WithoutCancel(ctx), p) }
	if len(p.Events) == 0 && p.Handled == 0 && p.State == webhook.ReplayRunning {
		return 0, false, errGone // a process that is gone does not give back either
	}
	s.steps++
	if s.crash(s.steps, commit) {
		return 0, false, errGone
	}
	commit()
	return created, held, err
}

func TestAReplayJobGoesOnWhereItWasAfterACrash(t *testing.T) {
	t.Parallel()
	clock := webhooktest.NewClock(time.Now())
	box := webhook.InsecurePlaintext()
	h := newHost(t, func(cfg *webhook.Config) { cfg.Clock, cfg.Secrets = clock, box })
	h.store.SetNow(clock.Now)
	h.clock = clock
	receiver, endpoint := h.receives(webhooktest.Status(204))
	receiver.SetNow(clock.Now)
	events := h.missed(endpoint, 20)
	job := h.createJob(webhook.ReplayJobRequest{EndpointID: endpoint.ID, PerSecond: 4})

	var dead chan struct{}
	store := &crashing{Store: h.store, crash: func(step int, commit func()) bool {
		switch step {
		case 2: // before the step is written
		case 4: // after, and nobody hears of it
			commit()
		default:
			return false
		}
		close(dead)
		return true
	}}
	hooks, err := webhook.New(store, webhook.Config{Clock: clock, Secrets: box, Transport: loopback(t)})
	require.NoError(t, err)
	t.Cleanup(hooks.Close)
	for range 2 {
		dead = make(chan struct{})
		d, err := hooks.NewDispatcher(webhook.DispatcherConfig{PollInterval: 100 * time.Millisecond})
		require.NoError(t, err)
		stop := h.run(d)
		h.eventually("the process dies", func() bool {
			select {
			case <-dead:
				return true
			default:
				return false
			}
		})
		stop()
		assert.Equal(t, webhook.ReplayRunning, h.job(job.ID).State)
	}
	h.dispatch(webhook.DispatcherConfig{PollInterval: 100 * time.Millisecond})

	job = h.jobEnds(job.ID)
	assert.Equal(t, [4]any{webhook.ReplayDone, 20, 20, 20}, [4]any{job.State, job.Matched, job.Handled, job.Created})
	h.replayedOnce(receiver, events)
}

func TestACancelledReplayJobBeginsNoMore(t *testing.T) {
	t.Parallel()
	clock := webhooktest.NewClock(time.Now())
	h := atClock(t, clock)
	_, endpoint := h.receives(webhooktest.Status(204))
	h.missed(endpoint, 20)
	job := h.createJob(webhook.ReplayJobRequest{EndpointID: endpoint.ID, PerSecond: 4})
	h.dispatch(webhook.DispatcherConfig{PollInterval: 100 * time.Millisecond})
	h.eventually("the job has begun", func() bool { return h.job(job.ID).Created > 0 })

	_, err := h.hooks.Replays().Cancel(t.Context(), webhook.TenantScope("other"), job.ID)
	require.ErrorIs(t, err, webhook.ErrNotFound)
	for range 2 { // a double click is no error
		cancelled, err := h.hooks.Replays().Cancel(t.Context(), acme, job.ID)
		require.NoError(t, err)
		assert.Equal(t, webhook.ReplayCancelled, cancelled.State)
	}
	begun := h.job(job.ID).Created
	assert.Less(t, begun, 20)
	h.eventually("what has begun is delivered", func() bool { return len(h.listed(endpoint.ID, webhook.StateDelivered)) == begun })
	for range 100 {
		clock.Advance(100 * time.Millisecond)
	}

	done := h.jobEnds(h.createJob(webhook.ReplayJobRequest{EndpointID: endpoint.ID}).ID)
	assert.Equal(t, 20-begun, done.Created, "the rest is there for another job")
	_, err = h.hooks.Replays().Cancel(t.Context(), acme, done.ID)
	require.ErrorIs(t, err, webhook.ErrFinished)
}

func TestAReplayJobFailsWhenItsEndpointIsDisabledOrDeleted(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"endpoint disabled", "endpoint deleted"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			receiver, endpoint := h.receives(webhooktest.Status(204))
			h.missed(endpoint, 3)
			request := webhook.ReplayJobRequest{EndpointID: endpoint.ID}
			job := h.createJob(request)
			want := webhook.ErrEndpointDisabled
			if what == "endpoint deleted" {
				want = webhook.ErrNotFound
				require.NoError(t, h.hooks.Endpoints().Delete(t.Context(), acme, endpoint.ID))
			} else {
				_, err := h.hooks.Endpoints().Disable(t.Context(), acme, endpoint.ID, "")
				require.NoError(t, err)
			}

			_, err := h.hooks.Replays().Create(t.Context(), acme, request)
			require.ErrorIs(t, err, want)
			h.dispatch(webhook.DispatcherConfig{PollInterval: 20 * time.Millisecond})
			job = h.jobEnds(job.ID)

			assert.Equal(t, [3]any{webhook.ReplayFailed, what, 0}, [3]any{job.State, job.Reason, job.Created})
			assert.Empty(t, receiver.Requests())
		})
	}
}

func TestAReplayJobDoesNotHeapUpWhatAPausedEndpointCannotTake(t *testing.T) {
	t.Parallel()
	h := atClock(t, webhooktest.NewClock(time.Now()))
	receiver, endpoint := h.receives(webhooktest.Status(204))
	receiver.SetNow(h.clock.Now)
	events := h.missed(endpoint, 520)
	_, err := h.hooks.Endpoints().Pause(t.Context(), acme, endpoint.ID, "")
	require.NoError(t, err)
	job := h.createJob(webhook.ReplayJobRequest{EndpointID: endpoint.ID})
	h.dispatch(webhook.DispatcherConfig{PollInterval: 100 * time.Millisecond})

	var due time.Time
	for range 3 { // looks of a dispatcher at the job
		h.eventually("the job is put off", func() bool {
			rec, err := h.store.GetReplayJob(t.Context(), acme, job.ID)
			require.NoError(t, err)
			again := rec.Created > 0 && rec.DueAt.After(due)
			if again {
				due = rec.DueAt
			}
			return again
		})
	}
	assert.Equal(t, 500, h.job(job.ID).Created)
	assert.Empty(t, receiver.Requests())

	_, err = h.hooks.Endpoints().Resume(t.Context(), acme, endpoint.ID)
	require.NoError(t, err)
	job = h.jobEnds(job.ID)
	assert.Equal(t, len(events), job.Created)
	h.eventually("everything has been sent", func() bool { return len(receiver.Requests()) == len(events) })
}

func TestARematchReplaysWhatTheEndpointSubscribesToNow(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.dispatch(webhook.DispatcherConfig{PollInterval: 20 * time.Millisecond})
	from := time.Now().Add(-time.Minute)
	wanted := h.enqueue(webhook.Event{Tenant: "acme", Type: "invoice.paid", Payload: []byte(`{"n" : 1}`)})
	h.enqueue(webhook.Event{Tenant: "acme", Type: "invoice.paid", Payload: []byte(`{"n" : 2}`)})
	h.enqueue(webhook.Event{Tenant: "acme", Type: "order.paid", Payload: []byte(`{"n" : 1}`)})
	h.enqueue(webhook.Event{Tenant: "other", Type: "invoice.paid", Payload: []byte(`{"n" : 1}`)})
	last := h.enqueue(webhook.Event{Tenant: "acme", Type: "user.created", Payload: []byte(`{"n" : 3}`)})
	h.eventually("all events are fanned out", func() bool {
		e, err := h.store.GetEvent(t.Context(), acme, last)
		return err == nil && e.FannedOut
	})
	receiver := webhooktest.NewReceiver(t)
	endpoint := h.endpoint(receiver.URL, func(p *webhook.EndpointParams) {
		p.Types, p.Filter = []string{"invoice.*"}, []byte(`{"n": 1}`)
	})
	receiver.Verify(t, endpoint.Secret.Reveal())
	request := webhook.ReplayJobRequest{EndpointID: endpoint.ID, EventsFrom: from}

	estimate, err := h.hooks.Replays().DryRun(t.Context(), acme, request)
	require.NoError(t, err)
	assert.Zero(t, estimate, "there was no delivery")
	request.Rematch = true
	estimate, err = h.hooks.Replays().DryRun(t.Context(), acme, request)
	require.NoError(t, err)
	assert.Equal(t, webhook.ReplayEstimate{Matched: 1, Rematched: 1}, estimate)

	job := h.jobEnds(h.createJob(request).ID)
	assert.Equal(t, 1, job.Created)
	got := receiver.RequireRequests(t, 1, 10*time.Second)[0]
	assert.Equal(t, [2]string{wanted.String(), "true"}, [2]string{got.ID(), got.Header.Get("webhook-replay")})
	assert.NoError(t, got.VerifyErr)
}

func TestADryRunCountsExactlyWhatTheRequestCovers(t *testing.T) {
	t.Parallel()
	clock := webhooktest.NewClock(time.Now())
	h := atClock(t, clock)
	_, endpoint := h.receives(webhooktest.Status(204), webhooktest.Status(500))
	start := clock.Now()
	h.dispatch(webhook.DispatcherConfig{Retry: noRetry(), Breaker: noBreaker()})
	for i, eventType := range []string{"invoice.paid", "invoice.paid", "invoice.sent", "order.paid"} {
		h.enqueue(webhook.Event{Tenant: "acme", Type: eventType, Payload: []byte(`{}`)})
		h.eventually("it is finished", func() bool {
			return len(h.listed(endpoint.ID, webhook.StateDelivered))+len(h.listed(endpoint.ID, webhook.StateDead)) == i+1
		})
		clock.Advance(time.Hour)
	}
	for _, c := range []struct {
		want int
		webhook.ReplayJobRequest
	}{
		{3, webhook.ReplayJobRequest{}},
		{4, webhook.ReplayJobRequest{States: []webhook.DeliveryState{webhook.StateDelivered, webhook.StateDead}}},
		{1, webhook.ReplayJobRequest{States: []webhook.DeliveryState{webhook.StateDelivered}}},
		{2, webhook.ReplayJobRequest{Types: []string{"invoice.*"}}},
		{1, webhook.ReplayJobRequest{Types: []string{"invoice.sent"}}},
		{3, webhook.ReplayJobRequest{Types: []string{"*"}}},
		{2, webhook.ReplayJobRequest{EventsFrom: start.Add(90 * time.Minute)}},
		{1, webhook.ReplayJobRequest{EventsTo: start.Add(90 * time.Minute)}},
		{2, webhook.ReplayJobRequest{FinishedFrom: start.Add(30 * time.Minute), FinishedTo: start.Add(150 * time.Minute)}},
		{0, webhook.ReplayJobRequest{FinishedFrom: start.Add(4 * time.Hour)}},
		{3, webhook.ReplayJobRequest{Rematch: true, EventsFrom: start.Add(-time.Minute)}},
		{2, webhook.ReplayJobRequest{Rematch: true, EventsFrom: start.Add(90 * time.Minute)}},
	} {
		c.EndpointID = endpoint.ID
		estimate, err := h.hooks.Replays().DryRun(t.Context(), acme, c.ReplayJobRequest)
		require.NoError(t, err)
		assert.Equal(t, c.want, estimate.Matched, "matched by %+v", c.ReplayJobRequest)
	}
	_, err := h.hooks.Replays().DryRun(t.Context(), webhook.TenantScope("other"), webhook.ReplayJobRequest{EndpointID: endpoint.ID})
	require.ErrorIs(t, err, webhook.ErrNotFound)
}

func TestReplayJobRequestsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	_, endpoint := h.receives(webhooktest.Status(204))
	now := time.Now()
	for field, r := range map[string]webhook.ReplayJobRequest{
		"EventsTo":   {EventsFrom: now, EventsTo: now},
		"FinishedTo": {FinishedFrom: now, FinishedTo: now.Add(-time.Second)},
		"PerSecond":  {PerSecond: -1},
		"EventsFrom": {Rematch: true},
		"Rematch":    {Rematch: true, EventsFrom: now, FinishedFrom: now},
		"States[1]":  {States: []webhook.DeliveryState{webhook.StateDead, webhook.StatePending}},
		"Types[0]":   {Types: []string{"invoice."}},
	} {
		r.EndpointID = endpoint.ID
		_, err := h.hooks.Replays().Create(t.Context(), acme, r)
		var refused *webhook.InvalidError
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, "ReplayJobRequest."+field, refused.Field)
	}
	_, err := h.hooks.Replays().Create(t.Context(), acme, webhook.ReplayJobRequest{})
	require.ErrorIs(t, err, webhook.ErrInvalid)
}
