package webhook

import (
	"context"

	"github.com/google/uuid"
)

// Tracer connects what the library does with the host's traces. Module otelwebhook has
// one for OpenTelemetry. Methods are called from many goroutines and on the way of every
// event; a panic in one is logged and does no harm.
//
// A trace parent is what the header traceparent of W3C Trace Context holds: at most 55
// characters, empty for none.
type Tracer interface {
	// EnqueueStarted is called when n events are about to be written, with the context of
	// [Hooks.Enqueue]. The trace parent is kept with the events. end is called, unless it
	// is nil, when they are written, or with the error. The host's transaction may still
	// roll back.
	EnqueueStarted(ctx context.Context, n int) (traceParent string, end func(error))

	// AttemptStarted is called before an attempt. The request gets the context and, as
	// its header traceparent, the trace parent. end is called, unless it is nil, when the
	// attempt is over, with nil if there was none after all: the delivery was handed back
	// before anything was sent.
	AttemptStarted(ctx context.Context, a AttemptStart) (in context.Context, traceParent string, end func(*AttemptReport))
}

// AttemptStart is what is known of an attempt that is about to begin.
type AttemptStart struct {
	DeliveryID uuid.UUID
	EventID    uuid.UUID
	EndpointID uuid.UUID
	Tenant     string
	EventType  string
	Run        int
	Number     int
	// TraceParent is that of the enqueuing.
	TraceParent string
}

// maxTraceParent is the length of a traceparent of version 00.
const maxTraceParent = 55

// headerTraceParent is in canonical form.
const headerTraceParent = "Traceparent"

// enqueueSpan begins the span of an enqueuing. What it returns is never nil.
func (c *core) enqueueSpan(ctx context.Context, n int) (traceParent string, end func(error)) {
	end = func(error) {}
	if c.tracer == nil {
		return "", end
	}
	c.guard("tracer", func() {
		parent, ended := c.tracer.EnqueueStarted(ctx, n)
		traceParent = checkedParent(parent)
		if ended != nil {
			end = func(err error) { c.guard("tracer", func() { ended(err) }) }
		}
	})
	return traceParent, end
}

// checkedParent is a trace parent that a column and a header can hold.
func checkedParent(s string) string {
	if len(s) > maxTraceParent || checkText("", s, maxTraceParent) != nil {
		return ""
	}
	return s
}

// attemptSpan is the span of one attempt.
type attemptSpan struct {
	ctx    context.Context
	parent string // sent on
	end    func(*AttemptReport)
}

func (r *run) attemptSpan(c *Claimed) attemptSpan {
	s := attemptSpan{ctx: r.attemptCtx, end: func(*AttemptReport) {}}
	t := r.core.tracer
	if t == nil {
		return s
	}
	var in context.Context
	r.core.guard("tracer", func() {
		ctx, parent, end := t.AttemptStarted(r.attemptCtx, AttemptStart{
			DeliveryID: c.DeliveryID, EventID: c.Event.ID, EndpointID: c.EndpointID, Tenant: c.Event.Tenant,
			EventType: c.Event.Type, Run: c.Run, Number: c.Attempts + 1, TraceParent: c.Event.TraceParent,
		})
		in, s.parent = ctx, checkedParent(parent) //nolint:fatcontext // set once, for one request
		if end != nil {
			s.end = func(report *AttemptReport) { r.core.guard("tracer", func() { end(report) }) }
		}
	})
	if in != nil {
		s.ctx = in
	}
	return s
}
