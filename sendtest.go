package webhook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook/internal/scheduler"
)

// testPatience is how long a test waits for a slot.
const testPatience = 5 * time.Second

// reasonTest is why the delivery of a test that failed is cancelled: nothing is sent
// again, and nothing is lost.
const reasonTest = "test"

// SendTest sends a test event of the given type to an endpoint at once and returns the
// attempt: its status, class, latency and the excerpt of the answer. It is a request
// like any other, from the same guarded client, signed, with the endpoint's own
// headers; webhook-test: true and the payload {"test":true,"type":…} tell it from one.
//
// It goes past an open circuit and a pause, waits up to 5 s for a slot under the caps
// ([ErrBusy]), and changes nothing: no circuit, no health, no disabling on 410. It is
// in the log as a delivery of its own, whose Run is TestRun, delivered or, when it
// failed, cancelled; it cannot be replayed.
//
// A dispatcher of this process sends it; where none runs that is [ErrNoDispatcher],
// unless [Config.TestsWithoutDispatcher] is set. To a disabled endpoint nothing is sent: [ErrEndpointDisabled].
func (s *Endpoints) SendTest(ctx context.Context, scope Scope, id uuid.UUID, eventType string) (Attempt, error) {
	if err := checkType("eventType", eventType); err != nil {
		return Attempt{}, err
	}
	rec, err := s.core.backend.GetEndpoint(ctx, scope, id)
	if err != nil {
		return Attempt{}, fmt.Errorf("send a test to endpoint %s: %w", id, err)
	}
	if rec.State == EndpointDisabled {
		return Attempt{}, fmt.Errorf("send a test to endpoint %s: %w", id, ErrEndpointDisabled)
	}
	r, slot, err := s.core.running.slot(ctx, id)
	var a Attempt
	switch {
	case errors.Is(err, ErrNoDispatcher) && s.core.testsAlone:
		a, err = s.core.sendTestAlone(ctx, &rec, eventType)
	case err == nil:
		a, err = r.sendTest(ctx, &rec, eventType, slot)
	}
	if err != nil {
		return a, fmt.Errorf("send a test to endpoint %s: %w", id, err)
	}
	return a, nil
}

// running are the dispatchers of this process, in the order in which they began.
type running struct {
	mu   sync.Mutex // protects runs
	runs []*run
}

func (d *running) add(r *run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.runs = append(d.runs, r)
}

func (d *running) remove(r *run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.runs = slices.DeleteFunc(d.runs, func(other *run) bool { return other == r })
}

func (d *running) all() []*run {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.runs)
}

// testSlot is a slot under the caps, to be given back by done. Whoever has one keeps
// the dispatcher from ending.
type testSlot struct {
	endpoint scheduler.ID
	flight   *scheduler.Flight // nil for an endpoint of another process
}

type testAsk struct {
	endpoint scheduler.ID
	// foreign asks for no more than leave to send on behalf of another process.
	foreign bool
	reply   chan testAnswer // cap 1
}

type testAnswer struct {
	slot *testSlot
	why  scheduler.Wait
}

// slot takes a slot for a test, from the dispatcher that owns the endpoint if it is one
// of this process. Otherwise another one sends the test: its owner cannot be asked, and
// its caps are exceeded by the one request.
func (d *running) slot(ctx context.Context, id uuid.UUID) (*run, *testSlot, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, testPatience, ErrBusy)
	defer cancel()
	for {
		runs := d.all()
		if len(runs) == 0 {
			return nil, nil, ErrNoDispatcher
		}
		owned := false
		for _, r := range runs {
			answer, ok := r.loop.askTest(ctx, testAsk{endpoint: id, reply: make(chan testAnswer, 1)})
			if ok && answer.slot != nil {
				return r, answer.slot, nil
			}
			owned = owned || ok && answer.why != scheduler.WaitRemoved
		}
		if !owned {
			if answer, ok := runs[0].loop.askTest(ctx, testAsk{endpoint: id, foreign: true, reply: make(chan testAnswer, 1)}); ok {
				return runs[0], answer.slot, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// askTest asks for a slot. It reports false when there was no answer.
func (l *loop) askTest(ctx context.Context, ask testAsk) (testAnswer, bool) {
	select {
	case l.testC <- ask:
		return <-ask.reply, true
	case <-l.over:
	case <-ctx.Done():
	}
	return testAnswer{}, false
}

// takeTest answers who wants to send a test.
func (l *loop) takeTest(ask testAsk) {
	slot := &testSlot{endpoint: ask.endpoint}
	if !ask.foreign {
		var why scheduler.Wait
		if slot.flight, why = l.sched.StartTest(l.now(), ask.endpoint); slot.flight == nil {
			ask.reply <- testAnswer{why: why}
			return
		}
	}
	l.r.attempts.Add(1)
	ask.reply <- testAnswer{slot: slot}
}

// sendTest sends and logs one test in a slot that was taken for it.
func (r *run) sendTest(ctx context.Context, rec *EndpointRecord, eventType string, slot *testSlot) (Attempt, error) {
	defer r.attempts.Done()
	defer func() {
		if slot.flight != nil {
			r.loop.done(attemptOver{endpoint: slot.endpoint, Result: scheduler.Result{Flight: slot.flight, Outcome: scheduler.Neutral}})
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.attemptCtx, cancel)()
	t := newTarget(*rec)
	return tester{core: r.core, now: r.d.clock.now, timeout: r.timeout(t)}.send(ctx, t, eventType)
}

// sendTestAlone sends and logs one test where no dispatcher runs, whose caps it could
// obey.
func (c *core) sendTestAlone(ctx context.Context, rec *EndpointRecord, eventType string) (Attempt, error) {
	clock := newDatabaseClock(c)
	if err := clock.measure(ctx); err != nil {
		return Attempt{}, err
	}
	t := newTarget(*rec)
	return tester{core: c, now: clock.now, timeout: t.timeout(DefaultRequestTimeout)}.send(ctx, t, eventType)
}

// tester sends a test.
type tester struct {
	core    *core
	now     func() time.Time
	timeout time.Duration
}

func (s tester) send(ctx context.Context, t *target, eventType string) (Attempt, error) {
	c, err := s.claimed(&t.record, eventType)
	if err != nil {
		return Attempt{}, err
	}
	a := s.attempt(ctx, t, c)
	d := Delivery{
		ID: c.DeliveryID, EventID: c.Event.ID, EndpointID: c.EndpointID, Run: TestRun, Tenant: c.Event.Tenant,
		EventType: eventType, State: StateDelivered, Attempts: 1, CreatedAt: c.CreatedAt, FinishedAt: s.now(),
		LastStatus: a.Status, LastClass: a.Class,
	}
	if a.Class != ClassNone {
		d.State, d.Reason = StateCancelled, reasonTest
	}
	if err := s.core.backend.LogTest(context.WithoutCancel(ctx), LogTestParams{Delivery: d, Attempt: a}); err != nil {
		return a, fmt.Errorf("log the test: %w", err)
	}
	return a, nil
}

// claimed makes the delivery of a test.
func (s tester) claimed(rec *EndpointRecord, eventType string) (*Claimed, error) {
	now := s.now()
	ids, err := s.core.tests.New(now, 2)
	if err != nil {
		return nil, fmt.Errorf("make ids: %w", err)
	}
	return &Claimed{
		DeliveryID: ids[1], EndpointID: rec.ID, Run: TestRun, CreatedAt: now, DueAt: now,
		Event: testEvent(ids[0], rec.Tenant, eventType, now),
	}, nil
}

// testEvent is the event of a test, which is stored nowhere.
func testEvent(id uuid.UUID, tenant, eventType string, at time.Time) EventRecord {
	payload := fmt.Appendf(nil, `{"test":true,"type":%q}`, eventType) // letters, digits, _ and . need no escapes
	// A store keeps no more of a time, and it stands in the envelope.
	return EventRecord{ID: id, Tenant: tenant, Type: eventType, Payload: payload, CreatedAt: at.Truncate(time.Microsecond)}
}

// attempt makes the request. What keeps it from being made is the attempt's error.
func (s tester) attempt(ctx context.Context, t *target, c *Claimed) (a Attempt) {
	started := s.now()
	failed := func(problem string) Attempt {
		return Attempt{
			DeliveryID: c.DeliveryID, EventID: c.Event.ID, EndpointID: c.EndpointID, Tenant: c.Event.Tenant,
			Number: 1, StartedAt: started, Class: ClassInternal, Error: problem,
		}
	}
	defer func() {
		if v := recover(); v != nil {
			a = failed(fmt.Sprintf("panic during the attempt: %T", v))
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, 2*s.timeout)
	defer cancel()
	req, err := s.core.buildRequest(ctx, t, c, started, s.timeout)
	if err != nil {
		return failed(err.Error())
	}
	res := s.core.client.Do(ctx, req)
	scrub(&res, req.Header)
	return *s.core.attemptOf(c, started, &res)
}
