package otelwebhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/otelwebhook"
	"github.com/outhook/webhook/webhooktest"
)

// encoder writes the values of labels in the order of their keys.
type encoder struct{}

func (encoder) Encode(it attribute.Iterator) string {
	text := ""
	for it.Next() {
		if text != "" {
			text += ","
		}
		text += it.Attribute().Value.String()
	}
	return text
}

func (encoder) ID() attribute.EncoderID { return attribute.EncoderID{} }

func TestAnEventsTraceLeadsToItsAttemptsAndTheReceiver(t *testing.T) {
	t.Parallel()
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	transport, err := webhook.NewTransport(webhook.TransportConfig{
		Allow:     []webhook.AllowRule{{Prefix: netip.MustParsePrefix("127.0.0.1/32"), Ports: []webhook.PortRange{{From: 1024, To: 65535}}}},
		AllowHTTP: true,
	})
	require.NoError(t, err)
	store := webhooktest.NewStore()
	hooks, err := webhook.New(store, webhook.Config{
		Secrets: webhook.InsecurePlaintext(), Transport: transport, Tracer: otelwebhook.NewTracer(provider),
	})
	require.NoError(t, err)
	defer hooks.Close()
	receiver := webhooktest.NewReceiver(t)
	receiver.Respond(webhooktest.Status(503), webhooktest.Status(200))
	_, err = hooks.Endpoints().Create(t.Context(), webhook.EndpointParams{Tenant: "acme", URL: receiver.URL, Types: []string{"*"}})
	require.NoError(t, err)

	ctx, business := provider.Tracer("shop").Start(t.Context(), "pay order")
	tx := store.Begin()
	_, err = hooks.Enqueue(ctx, tx, webhook.Event{Tenant: "acme", Type: "order.paid", Payload: json.RawMessage(`{}`)})
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	business.End()
	dispatcher, err := hooks.NewDispatcher(webhook.DispatcherConfig{Retry: webhook.RetrySchedule{Delays: []time.Duration{time.Millisecond}}})
	require.NoError(t, err)
	running, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- dispatcher.Run(running) }()
	got := receiver.RequireRequests(t, 2, 30*time.Second)
	stop()
	require.NoError(t, <-ended)

	spans := make(map[string][]sdktrace.ReadOnlySpan)
	for _, s := range recorder.Ended() {
		spans[s.Name()] = append(spans[s.Name()], s)
	}
	require.Len(t, spans["webhook enqueue"], 1)
	enqueue := spans["webhook enqueue"][0]
	assert.Equal(t, business.SpanContext().SpanID(), enqueue.Parent().SpanID())
	assert.Equal(t, business.SpanContext().TraceID(), enqueue.SpanContext().TraceID())
	assert.Equal(t, trace.SpanKindProducer, enqueue.SpanKind())
	attempts := spans["webhook attempt"]
	require.Len(t, attempts, 2)
	for i, span := range attempts {
		assert.False(t, span.Parent().IsValid(), "a trace of its own")
		require.Len(t, span.Links(), 1)
		assert.Equal(t, enqueue.SpanContext().SpanID(), span.Links()[0].SpanContext.SpanID())
		assert.Equal(t, enqueue.SpanContext().TraceID(), span.Links()[0].SpanContext.TraceID())
		id := span.SpanContext()
		assert.Equal(t, "00-"+id.TraceID().String()+"-"+id.SpanID().String()+"-01", got[i].Header.Get("traceparent"))
		assert.Contains(t, span.Attributes(), attribute.String("webhook.event.type", "order.paid"))
	}
	assert.Contains(t, attempts[0].Attributes(), attribute.Int("http.response.status_code", 503))
	assert.Equal(t, codes.Error, attempts[0].Status().Code)
	assert.Equal(t, codes.Unset, attempts[1].Status().Code)
}

func TestAFailedEnqueuingIsSeenInItsSpan(t *testing.T) {
	t.Parallel()
	recorder := tracetest.NewSpanRecorder()
	tracer := otelwebhook.NewTracer(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)))

	parent, end := tracer.EnqueueStarted(t.Context(), 3)
	end(errors.New("deadlock"))
	_, _, endAttempt := tracer.AttemptStarted(t.Context(), webhook.AttemptStart{TraceParent: "not one"})
	endAttempt(nil)

	assert.Len(t, parent, 55)
	spans := recorder.Ended()
	require.Len(t, spans, 2)
	assert.Equal(t, codes.Error, spans[0].Status().Code)
	assert.Contains(t, spans[0].Attributes(), attribute.Int("messaging.batch.message_count", 3))
	assert.Empty(t, spans[1].Links())
	assert.Contains(t, spans[1].Attributes(), attribute.Bool("webhook.sent", false))
}
