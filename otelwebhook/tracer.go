package otelwebhook

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/outhook/webhook"
)

// Tracer makes spans. That of an enqueuing is below the host's own, in the host's trace.
// Each attempt is a trace of its own, which links to the enqueuing: attempts go on for
// days, and a trace that never ends helps nobody. The receiver gets the context of the
// attempt. Make it with [NewTracer].
type Tracer struct {
	tracer trace.Tracer
}

var _ webhook.Tracer = (*Tracer)(nil)

// NewTracer makes a tracer. It panics if the provider is nil.
func NewTracer(provider trace.TracerProvider) *Tracer {
	return &Tracer{tracer: provider.Tracer(scope)}
}

// parentKey is the key of a carrier for the trace parent.
const parentKey = "traceparent"

func parentOf(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[parentKey]
}

// EnqueueStarted implements [webhook.Tracer].
func (t *Tracer) EnqueueStarted(ctx context.Context, n int) (traceParent string, end func(error)) {
	ctx, span := t.tracer.Start(ctx, "webhook enqueue", trace.WithSpanKind(trace.SpanKindProducer), //nolint:spancheck // end ends it
		trace.WithAttributes(attribute.Int("messaging.batch.message_count", n), attribute.String("messaging.operation.type", "create")))
	return parentOf(ctx), func(err error) { //nolint:spancheck // end ends it
		if err != nil {
			span.RecordError(err)
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

// AttemptStarted implements [webhook.Tracer].
func (t *Tracer) AttemptStarted(ctx context.Context, a webhook.AttemptStart) (in context.Context, traceParent string, end func(*webhook.AttemptReport)) {
	options := []trace.SpanStartOption{
		trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(
			attribute.String("messaging.operation.type", "send"),
			attribute.String("messaging.message.id", a.EventID.String()),
			attribute.String("webhook.delivery.id", a.DeliveryID.String()),
			attribute.String("webhook.endpoint.id", a.EndpointID.String()),
			attribute.String("webhook.tenant", a.Tenant),
			attribute.String("webhook.event.type", a.EventType),
			attribute.Int("webhook.attempt", a.Number),
			attribute.Int("webhook.run", a.Run),
		),
	}
	enqueued := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{parentKey: a.TraceParent}))
	if enqueued.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: enqueued}))
	}
	ctx, span := t.tracer.Start(ctx, "webhook attempt", options...)                   //nolint:spancheck // end ends it
	return ctx, parentOf(ctx), func(r *webhook.AttemptReport) { endAttempt(span, r) } //nolint:spancheck // end ends it
}

func endAttempt(span trace.Span, r *webhook.AttemptReport) {
	defer span.End()
	span.SetAttributes(attribute.Bool("webhook.sent", r != nil))
	if r == nil {
		return
	}
	span.SetAttributes(attribute.String("webhook.delivery.state", string(r.State)), attribute.String("webhook.circuit.state", string(r.Circuit)))
	if r.Status != 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", r.Status))
	}
	if r.Class != webhook.ClassNone {
		span.SetAttributes(attribute.String("error.type", string(r.Class)))
		span.SetStatus(codes.Error, string(r.Class))
	}
}
