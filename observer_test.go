package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
)

// witness is told everything.
type witness struct {
	mu       sync.Mutex
	attempts []webhook.AttemptReport
	fanOuts  []webhook.FanOutReport
	claims   []webhook.ClaimReport
	circuits []webhook.CircuitReport
	replays  []webhook.ReplayReport
	samples  []webhook.DispatcherSample
}

func add[T any](w *witness, list *[]T, item T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*list = append(*list, item)
}

func (w *witness) AttemptDone(r webhook.AttemptReport)     { add(w, &w.attempts, r) }
func (w *witness) FanOutDone(r webhook.FanOutReport)       { add(w, &w.fanOuts, r) }
func (w *witness) ClaimDone(r webhook.ClaimReport)         { add(w, &w.claims, r) }
func (w *witness) CircuitChanged(r webhook.CircuitReport)  { add(w, &w.circuits, r) }
func (w *witness) ReplayAdvanced(r webhook.ReplayReport)   { add(w, &w.replays, r) }
func (w *witness) StateSampled(s webhook.DispatcherSample) { add(w, &w.samples, s) }

// has waits until the condition, which is asked under the lock, holds.
func (w *witness) has(t *testing.T, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return condition()
	}, 30*time.Second, 10*time.Millisecond, what)
}

// mark is a tracer that writes down what it is asked.
type mark struct {
	mu    sync.Mutex
	done  []error
	ended []*webhook.AttemptReport
	seen  []webhook.AttemptStart
}

const (
	enqueuedIn = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	attemptIn  = "00-1af7651916cd43dd8448eb211c80319c-c7ad6b7169203332-01"
)

func (m *mark) EnqueueStarted(context.Context, int) (string, func(error)) {
	return enqueuedIn, func(err error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.done = append(m.done, err)
	}
}

func (m *mark) AttemptStarted(ctx context.Context, a webhook.AttemptStart) (context.Context, string, func(*webhook.AttemptReport)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = append(m.seen, a)
	return ctx, attemptIn, func(r *webhook.AttemptReport) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.ended = append(m.ended, r)
	}
}

// observed is a dispatcher on a store in memory that everything of is told.
type observed struct {
	hooks    *webhook.Hooks[*webhooktest.Tx]
	store    *webhooktest.Store
	receiver *webhooktest.Receiver
	endpoint webhook.Endpoint
	watcher  *witness
}

func observe(t *testing.T, cfg webhook.Config, types ...string) *observed {
	t.Helper()
	transport, err := webhook.NewTransport(webhook.TransportConfig{
		Allow:     []webhook.AllowRule{{Prefix: netip.MustParsePrefix("127.0.0.1/32"), Ports: []webhook.PortRange{{From: 1024, To: 65535}}}},
		AllowHTTP: true,
	})
	require.NoError(t, err)
	cfg.Secrets, cfg.Transport = webhook.InsecurePlaintext(), transport
	o := &observed{store: webhooktest.NewStore(), receiver: webhooktest.NewReceiver(t), watcher: &witness{}}
	o.hooks, err = webhook.New(o.store, cfg)
	require.NoError(t, err)
	t.Cleanup(o.hooks.Close)
	o.endpoint, err = o.hooks.Endpoints().Create(t.Context(), webhook.EndpointParams{Tenant: "acme", URL: o.receiver.URL, Types: types})
	require.NoError(t, err)
	return o
}

func (o *observed) run(t *testing.T, cfg webhook.DispatcherConfig) {
	t.Helper()
	cfg.Observer, cfg.PollInterval = o.watcher, 50*time.Millisecond
	d, err := o.hooks.NewDispatcher(cfg)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
	})
}

func (o *observed) enqueue(t *testing.T, types ...string) {
	t.Helper()
	tx := o.store.Begin()
	for _, typ := range types {
		_, err := o.hooks.Enqueue(t.Context(), tx, webhook.Event{Tenant: "acme", Type: typ, Payload: json.RawMessage(`{}`)})
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit())
}

func TestTheObserverIsToldOfTheWholeWay(t *testing.T) {
	t.Parallel()
	o := observe(t, webhook.Config{}, "order.*")
	w := o.watcher
	o.receiver.Respond(webhooktest.Status(500), webhooktest.Status(500), webhooktest.Status(200))
	o.run(t, webhook.DispatcherConfig{
		Retry:   webhook.RetrySchedule{Delays: []time.Duration{time.Millisecond, time.Millisecond}},
		Breaker: webhook.BreakerConfig{ConsecutiveFailures: 2, OpenFor: 200 * time.Millisecond, OpenJitter: -1},
	})

	o.enqueue(t, "order.paid", "nobody.cares")
	w.has(t, "an attempt that succeeds", func() bool {
		return len(w.attempts) > 0 && w.attempts[len(w.attempts)-1].State == webhook.StateDelivered
	})
	w.has(t, "a circuit that closes", func() bool {
		return len(w.circuits) > 0 && w.circuits[len(w.circuits)-1].State == webhook.CircuitClosed
	})
	w.has(t, "samples", func() bool { return len(w.samples) > 1 })

	w.mu.Lock()
	defer w.mu.Unlock()
	first, last := w.attempts[0], w.attempts[len(w.attempts)-1]
	assert.True(t, first.WasHealthy)
	assert.False(t, last.WasHealthy)
	assert.Equal(t, webhook.CircuitClosed, first.Circuit)
	assert.Equal(t, webhook.CircuitHalfOpen, last.Circuit, "a probe")
	assert.WithinDuration(t, time.Now(), first.EnqueuedAt, time.Minute)
	assert.False(t, first.StartedAt.Before(first.EnqueuedAt))
	assert.Equal(t, webhook.CircuitOpen, w.circuits[0].State)
	assert.Equal(t, "acme", w.circuits[0].Tenant)
	events, unmatched, claimed := 0, 0, 0
	for _, f := range w.fanOuts {
		events, unmatched = events+f.Events, unmatched+f.Unmatched
	}
	for _, c := range w.claims {
		claimed += c.Claimed
	}
	assert.Equal(t, 2, events)
	assert.Equal(t, 1, unmatched)
	assert.Equal(t, 3, claimed)
	assert.Equal(t, webhook.DefaultMaxInFlight, w.samples[0].MaxInFlight)
	assert.Equal(t, 1, w.samples[0].Members)
}

func TestTheObserverIsToldHowLongWorkHasWaited(t *testing.T) {
	t.Parallel()
	o := observe(t, webhook.Config{}, "order.*")
	w := o.watcher
	o.receiver.Respond(webhooktest.Status(500))
	o.run(t, webhook.DispatcherConfig{
		Retry:   webhook.RetrySchedule{Delays: []time.Duration{time.Millisecond}},
		Breaker: webhook.BreakerConfig{ConsecutiveFailures: 1, OpenFor: time.Hour},
	})

	o.enqueue(t, "order.paid")

	w.has(t, "the age of what waits for the circuit", func() bool {
		if len(w.samples) == 0 {
			return false
		}
		s := w.samples[len(w.samples)-1]
		return s.OldestReadyOthers > 0 && s.OldestReadyHealthy == 0 && s.CircuitsOpen == 1
	})
}

func TestTheObserverIsToldOfReplays(t *testing.T) {
	t.Parallel()
	o := observe(t, webhook.Config{}, "order.*")
	w := o.watcher
	o.receiver.Respond(webhooktest.Status(500), webhooktest.Status(200))
	o.run(t, webhook.DispatcherConfig{Retry: webhook.RetrySchedule{}})
	o.enqueue(t, "order.paid")
	w.has(t, "a dead delivery", func() bool { return len(w.attempts) == 1 })
	require.Eventually(t, func() bool {
		estimate, err := o.hooks.Replays().DryRun(t.Context(), webhook.AllTenants(), webhook.ReplayJobRequest{EndpointID: o.endpoint.ID})
		return err == nil && estimate.Matched == 1
	}, 30*time.Second, 10*time.Millisecond)

	job, err := o.hooks.Replays().Create(t.Context(), webhook.AllTenants(), webhook.ReplayJobRequest{EndpointID: o.endpoint.ID})
	require.NoError(t, err)

	w.has(t, "the end of the job", func() bool {
		return len(w.replays) > 0 && w.replays[len(w.replays)-1].State == webhook.ReplayDone
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.replays[len(w.replays)-1]
	assert.Equal(t, job.ID, last.JobID)
	assert.Equal(t, 1, last.Created)
}

func TestATraceGoesFromTheEnqueuingToTheReceiver(t *testing.T) {
	t.Parallel()
	tracer := &mark{}
	o := observe(t, webhook.Config{Tracer: tracer}, "order.*")
	o.run(t, webhook.DispatcherConfig{})

	o.enqueue(t, "order.paid")

	got := o.receiver.RequireRequests(t, 1, 30*time.Second)[0]
	assert.Equal(t, attemptIn, got.Header.Get("traceparent"))
	require.Eventually(t, func() bool {
		tracer.mu.Lock()
		defer tracer.mu.Unlock()
		return len(tracer.ended) == 1
	}, 30*time.Second, 10*time.Millisecond)
	tracer.mu.Lock()
	defer tracer.mu.Unlock()
	assert.Equal(t, []error{nil}, tracer.done)
	assert.Equal(t, enqueuedIn, tracer.seen[0].TraceParent)
	assert.Equal(t, "order.paid", tracer.seen[0].EventType)
	require.NotNil(t, tracer.ended[0])
	assert.Equal(t, 200, tracer.ended[0].Status)
}

// broken panics, or gives what no header can hold.
type broken struct{ parent string }

func (b broken) EnqueueStarted(context.Context, int) (string, func(error)) {
	if b.parent == "" {
		panic("enqueue")
	}
	return b.parent, nil
}

func (b broken) AttemptStarted(context.Context, webhook.AttemptStart) (context.Context, string, func(*webhook.AttemptReport)) {
	if b.parent == "" {
		panic("attempt")
	}
	return nil, b.parent, nil
}

func TestABrokenTracerDoesNoHarm(t *testing.T) {
	t.Parallel()
	for _, tracer := range []webhook.Tracer{broken{}, broken{"a\nb: c"}, broken{strings.Repeat("x", 56)}} {
		o := observe(t, webhook.Config{Tracer: tracer}, "order.*")
		o.run(t, webhook.DispatcherConfig{})
		o.enqueue(t, "order.paid")
		got := o.receiver.RequireRequests(t, 1, 30*time.Second)[0]
		assert.Empty(t, got.Header.Get("traceparent"))
		assert.Empty(t, got.Header.Get("b"))
	}
}

func TestTheRecordOfAnAttemptHasTheFieldsOfTheContract(t *testing.T) {
	t.Parallel()
	var out safeBuffer
	o := observe(t, webhook.Config{Logger: slog.New(slog.NewJSONHandler(&out, nil))}, "order.*")
	o.run(t, webhook.DispatcherConfig{})
	o.enqueue(t, "order.paid")
	o.receiver.RequireRequests(t, 1, 30*time.Second)
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "webhook: attempt") }, 30*time.Second, 10*time.Millisecond)

	var record map[string]any
	for line := range strings.SplitSeq(out.String(), "\n") {
		if strings.Contains(line, "webhook: attempt") {
			require.NoError(t, json.Unmarshal([]byte(line), &record))
		}
	}
	for _, field := range []string{"delivery", "event", "type", "endpoint", "tenant", "attempt", "latency", "status", "class", "circuit"} {
		assert.Contains(t, record, field)
	}
	assert.Equal(t, "closed", record["circuit"])
	assert.Equal(t, "INFO", record["level"])
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
