package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook/internal/egress"
	"github.com/outhook/webhook/internal/scheduler"
)

// sent is what became of one claimed delivery: what to record, and what to tell
// the scheduler.
type sent struct {
	result     Result
	outcome    scheduler.Outcome
	retryAfter time.Duration
	disable    string // non-empty: disable the endpoint, for this reason
}

// attempt sends one claimed delivery and hands what came of it to the recorder
// and the loop. It runs in a goroutine of its own.
func (r *run) attempt(c *Claimed, token uuid.UUID, flight *scheduler.Flight, probe bool) {
	span := r.attemptSpan(c)
	s := r.send(c, Lease{DeliveryID: c.DeliveryID, Token: token}, span)
	r.recorder.add(s.result)
	if reason := r.health.observe(c.EndpointID, &s); s.disable == "" {
		s.disable = reason
	}
	if s.disable != "" {
		// While the slot is still taken, so that nothing more is sent in it.
		r.disable(c.EndpointID, s.disable)
	}
	res := attemptOver{
		endpoint: c.EndpointID,
		Result:   scheduler.Result{Flight: flight, Outcome: s.outcome, RetryAfter: s.retryAfter},
	}
	if s.result.Attempt != nil && !s.result.Uncounted {
		res.Latency = s.result.Attempt.Latency
	}
	if s.result.State == StatePending {
		res.RetryAt = s.result.NextAttemptAt
	}
	r.loop.done(res)
	var report *AttemptReport
	if s.result.Attempt != nil {
		report = r.reportOf(c, &s.result, probe)
		r.report(report)
	} else if s.result.State == StateDead {
		r.tellDied(EndedDeliveries{EndpointID: c.EndpointID, Tenant: c.Event.Tenant, Deliveries: 1}, s.result.Reason)
	}
	span.end(report)
}

// send makes one attempt. A panic in the signer, the transport or another part
// that the host gave holds the delivery back and nothing else.
func (r *run) send(c *Claimed, lease Lease, span attemptSpan) (s sent) {
	started := r.d.clock.now()
	once := false // marked as sent
	defer func() {
		if v := recover(); v != nil {
			// The value may hold anything, a payload too.
			r.core.log.Error("webhook: panic during an attempt", "delivery", c.DeliveryID,
				"endpoint", c.EndpointID, "panic", fmt.Sprintf("%T", v), "stack", string(debug.Stack()))
			s = r.holdBack(c, lease, started, fmt.Errorf("panic during the attempt: %T", v))
			if once {
				s.result.State, s.result.Reason = StateDead, ReasonOutcomeUnknown
			}
		}
	}()

	t, err := r.registry.at(r.attemptCtx, c.EndpointID, c.EndpointRevision)
	if err != nil || t == nil {
		// The database is away, or the endpoint's row is gone: not the endpoint's
		// fault, and nothing went out.
		r.logHeld(c, "read the endpoint", err)
		return sent{result: handedBack(c, lease, started.Add(backoffMax))}
	}
	if !t.sendable() {
		return sent{result: handedBack(c, lease, c.DueAt)}
	}
	if r.overdue(t, c, started) {
		// What used the window up was no attempt of its own: a circuit, a rate.
		return sent{result: Result{Lease: lease, State: StateDead, Reason: reasonWindow, Order: c.Order}}
	}
	timeout := r.timeout(t)
	if err := r.fetchPayload(span.ctx, c, timeout); err != nil {
		return r.withoutPayload(c, lease, started, err)
	}
	if filteredOut(t, c) {
		return sent{result: Result{Lease: lease, State: StateCancelled, Reason: ReasonFiltered, Order: c.Order}}
	}
	req, err := r.request(span.ctx, t, c, started, timeout)
	if err != nil {
		r.logHeld(c, "build the request", err)
		return r.holdBack(c, lease, started, err)
	}
	if err := r.mayStart(lease, timeout); err != nil {
		return sent{result: handedBack(c, lease, c.DueAt)}
	}
	// Asked again right before the request is written: connecting takes time, and
	// the process may have stood still.
	if t.options.AtMostOnce {
		if err := r.marker.mark(lease); err != nil {
			r.logHeld(c, "mark the delivery as sent", err)
			return sent{result: handedBack(c, lease, c.DueAt)}
		}
		once = true
	}
	deadline := time.Now().Add(timeout)
	refused := false
	req.BeforeWrite = func() error {
		err := r.mayStart(lease, time.Until(deadline))
		refused = err != nil
		return err
	}
	if span.parent != "" {
		req.Header[headerTraceParent] = []string{span.parent}
	}
	res := r.core.client.Do(span.ctx, req)
	res.Sent = res.Sent && !refused
	scrub(&res, req.Header)
	if !res.Sent && res.Latency > timeout+leaseSlack(r.cfg.Lease) {
		// This process stood still: not the endpoint's fault, and nothing went out.
		return sent{result: handedBack(c, lease, c.DueAt)}
	}
	if res.Status == http.StatusUnauthorized && r.core.auth != nil {
		invalidateAuth(r.core.auth, t.authInput())
	}
	s = r.judge(t, c, lease, started, res)
	if t.options.AtMostOnce && res.Sent {
		s = r.onlyOnce(t, c, s)
	}
	return s
}

// onlyOnce keeps what may have reached an at-most-once endpoint from being sent again.
func (r *run) onlyOnce(t *target, c *Claimed, s sent) sent {
	a := s.result.Attempt
	answered := a != nil && a.Status != 0 && a.Class != ClassCancelled
	switch {
	case answered && s.result.State != StatePending:
		return s
	case answered:
		if p, ok := r.retryPolicy(t).(statusRetry); ok && !p.final(a.Status) {
			return s // the receiver says that it did nothing
		}
		s.result.Reason = "sent once, and answered with status " + strconv.Itoa(a.Status)
	default:
		s.result.Reason = ReasonOutcomeUnknown
		r.core.log.Warn("webhook: sent once, and nobody knows whether it arrived", "delivery", c.DeliveryID,
			"endpoint", c.EndpointID, "tenant", c.Event.Tenant)
	}
	s.result.State = StateDead
	return s
}

// reasonWindow ends deliveries whose window has passed.
const reasonWindow = "the retry window has passed"

// windowLeeway is how late an attempt may start that is due at the end of its window.
const windowLeeway = time.Minute

// overdue reports whether the window of a delivery has passed. One that was never
// attempted may still be, once: that it had to wait until now is not its endpoint's
// doing, and a rate limit drops nothing.
func (r *run) overdue(t *target, c *Claimed, now time.Time) bool {
	if c.Attempts == 0 {
		return false
	}
	window := retryWindow(r.retryPolicy(t))
	return window > 0 && now.After(r.began(t, c, now).Add(window+windowLeeway))
}

// blockedDelay is the least time between attempts that the egress guard refuses: what
// an address belongs to changes seldom, and nobody is asked (docs/design.md §4).
const blockedDelay = 10 * time.Minute

// began is when the delivery's run began, as far as its window is concerned.
func (r *run) began(t *target, c *Claimed, now time.Time) time.Time {
	return c.CreatedAt.Add(t.paused(c.CreatedAt, now, r.cfg.Retention.Events))
}

// retryPolicy is what decides on retries to the endpoint.
func (r *run) retryPolicy(t *target) RetryPolicy { return t.options.Retry.policy(r.cfg.Retry) }

// request builds the request of an attempt. A key management service or an
// authorisation server that does not answer holds it up no longer than the
// receiver could.
func (r *run) request(ctx context.Context, t *target, c *Claimed, now time.Time, timeout time.Duration) (egress.Request, error) {
	ctx, cancel := withLazyTimeout(ctx, timeout)
	defer cancel()
	return r.core.buildRequest(ctx, t, c, now, timeout)
}

// timeout is the time limit of an attempt. One that left no room in the lease
// would have its deliveries handed back for ever.
func (r *run) timeout(t *target) time.Duration {
	return min(t.timeout(r.cfg.RequestTimeout), longestRequest(r.cfg.Lease))
}

var errLeaseRunsOut = errors.New("the lease ends before the request could")

// mayStart returns an error unless enough of the lease is left for a request
// that takes as long as given.
func (r *run) mayStart(lease Lease, timeout time.Duration) error {
	if !r.d.clock.settled() { // asked first, since a context with a timeout has its price
		ctx, cancel := context.WithTimeout(r.attemptCtx, timeout)
		defer cancel()
		if err := r.d.clock.measure(ctx); err != nil {
			return err
		}
	}
	until, held := r.leases.until(lease)
	if !held || until.Sub(r.d.clock.now()) < timeout+leaseSlack(r.cfg.Lease) {
		return errLeaseRunsOut
	}
	return nil
}

// judge decides what follows from a request (docs/design.md §4).
func (r *run) judge(t *target, c *Claimed, lease Lease, started time.Time, res egress.Result) sent {
	now := r.d.clock.now()
	a := r.core.attemptOf(c, started, &res)
	switch a.Class {
	case ClassCancelled:
		if !res.Sent {
			return sent{result: handedBack(c, lease, c.DueAt)}
		}
		return uncounted(c, lease, a, c.DueAt)
	case ClassProxy:
		r.logHeld(c, "reach the egress proxy", res.Err)
		return uncounted(c, lease, a, now.Add(holdTime(now.Sub(c.CreatedAt))))
	}

	s := sent{result: Result{Lease: lease, Attempt: a, Order: c.Order}, outcome: scheduler.Failure}
	switch {
	case a.Class == ClassNone:
		s.outcome = scheduler.Success
		s.result.State = StateDelivered
		return s
	case a.Status == http.StatusGone:
		s.outcome = scheduler.Neutral
		s.disable = "410 Gone"
		s.result.State, s.result.Reason = StateDead, "410 Gone"
		return s
	case a.Status == http.StatusTooManyRequests:
		s.outcome = scheduler.Throttled
	case a.Class == ClassBlocked:
		s.outcome = scheduler.Blocked
	}
	s.retryAfter = retryAfter(a.Status, res.RetryAfter, now)
	wait := s.retryAfter
	if a.Class == ClassBlocked {
		wait = blockedDelay
	}
	policy := r.retryPolicy(t)
	at, ok := r.nextAttempt(policy, RetryInput{
		Now:        now,
		CreatedAt:  r.began(t, c, now),
		Attempts:   a.Number,
		RetryAfter: wait,
		Status:     a.Status,
		Class:      a.Class,
	})
	if !ok {
		s.result.State, s.result.Reason = StateDead, deadReason(policy, a.Status)
		return s
	}
	s.result.State, s.result.NextAttemptAt, s.result.Lane = StatePending, at, LaneRetry
	if c.Run > 0 {
		s.result.Lane = LaneReplay
	}
	return s
}

// deadReason says why a delivery gets no further attempt after an answer, or none.
func deadReason(policy RetryPolicy, status int) string {
	if p, ok := policy.(interface{ final(status int) bool }); ok && p.final(status) {
		return "status " + strconv.Itoa(status) + " is final"
	}
	return "retries used up"
}

// nextAttempt asks the retry policy, and the default one if that panics.
func (r *run) nextAttempt(policy RetryPolicy, in RetryInput) (at time.Time, ok bool) {
	defer func() {
		if v := recover(); v != nil {
			r.core.log.Error("webhook: panic in the retry policy", "panic", fmt.Sprintf("%T", v))
			at, ok = DefaultRetrySchedule().Next(in)
		}
	}()
	return policy.Next(in)
}

// handedBack makes a delivery due again without counting an attempt.
func handedBack(c *Claimed, lease Lease, at time.Time) Result {
	return Result{Lease: lease, State: StatePending, NextAttemptAt: at, Lane: c.Lane, Order: c.Order}
}

// handBack returns a claimed delivery unsent.
func (r *run) handBack(c *Claimed, token uuid.UUID) {
	r.recorder.add(handedBack(c, Lease{DeliveryID: c.DeliveryID, Token: token}, c.DueAt))
}

// disable switches an endpoint off at its own request, or because it fails too often.
func (r *run) disable(id uuid.UUID, reason string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.attemptCtx), r.cfg.RequestTimeout)
	defer cancel()
	if err := r.core.endpoints.disableSince(ctx, id, time.Time{}, reason); err != nil {
		// Its next delivery gets the same answer, and tries again.
		r.core.log.Error("webhook: endpoint not disabled", "endpoint", id, "reason", reason, "error", err)
	}
}

func (r *run) logAttempt(level slog.Level, a *AttemptReport) {
	r.core.log.LogAttrs(r.attemptCtx, level, "webhook: attempt",
		slog.String("delivery", a.DeliveryID.String()),
		slog.String("event", a.EventID.String()),
		slog.String("type", a.EventType),
		slog.String("endpoint", a.EndpointID.String()),
		slog.String("tenant", a.Tenant),
		slog.Int("attempt", a.Number),
		slog.Duration("latency", a.Latency),
		slog.Int("status", a.Status),
		slog.String("class", string(a.Class)),
		slog.String("circuit", string(a.Circuit)),
		slog.String("state", string(a.State)),
		slog.Bool("counted", !a.Uncounted),
	)
}

// report logs an attempt and tells the observer.
func (r *run) report(report *AttemptReport) {
	level := slog.LevelInfo
	if report.Class != ClassNone {
		level = slog.LevelWarn
	}
	if r.core.log.Enabled(r.attemptCtx, level) {
		r.logAttempt(level, report)
	}
	if r.cfg.Observer != nil {
		r.observe(func() { r.cfg.Observer.AttemptDone(*report) })
	}
}

// reportOf puts together what is told of an attempt.
func (r *run) reportOf(c *Claimed, res *Result, probe bool) *AttemptReport {
	report := &AttemptReport{
		Attempt:       *res.Attempt,
		EventType:     c.Event.Type,
		Run:           c.Run,
		State:         res.State,
		Reason:        res.Reason,
		NextAttemptAt: res.NextAttemptAt,
		Uncounted:     res.Uncounted,
		Circuit:       CircuitClosed,
		EnqueuedAt:    c.Event.CreatedAt,
		DueAt:         c.DueAt,
		TakenOver:     c.TakenOver,
	}
	if probe {
		report.Circuit = CircuitHalfOpen
	}
	report.WasHealthy = r.telling.seen(c.EndpointID, report)
	return report
}
