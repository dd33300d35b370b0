package otelwebhook_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/otelwebhook"
	"github.com/outhook/webhook/webhooktest"
)

// discard takes spans as an exporter's queue would, and forgets them.
type discard struct{}

func (discard) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (discard) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (discard) Shutdown(context.Context) error                  { return nil }
func (discard) ForceFlush(context.Context) error                { return nil }

// BenchmarkAttempt measures whole attempts, from the outbox to the recorded result, with a
// store in memory and receivers that answer at once: the processor time of the library
// alone, in which telemetry is most. docs/telemetry.md has the ratios.
func BenchmarkAttempt(b *testing.B) {
	meter := sdk.NewMeterProvider(sdk.WithReader(sdk.NewManualReader()))
	metrics, err := otelwebhook.NewMetrics(meter)
	require.NoError(b, err)
	sampled := func(share float64) webhook.Tracer {
		return otelwebhook.NewTracer(sdktrace.NewTracerProvider(
			sdktrace.WithSpanProcessor(discard{}), sdktrace.WithSampler(sdktrace.TraceIDRatioBased(share)),
		))
	}
	b.Run("telemetry=none", func(b *testing.B) { attempts(b, nil, nil) })
	b.Run("telemetry=metrics", func(b *testing.B) { attempts(b, metrics, nil) })
	b.Run("telemetry=traces", func(b *testing.B) { attempts(b, nil, sampled(1)) })
	b.Run("telemetry=traces-1-percent", func(b *testing.B) { attempts(b, nil, sampled(0.01)) })
	b.Run("telemetry=all", func(b *testing.B) { attempts(b, metrics, sampled(1)) })
}

func attempts(b *testing.B, observer webhook.Observer, tracer webhook.Tracer) {
	b.Helper()
	const endpoints, batch = 32, 500
	var arrived atomic.Int64
	enough := make(chan struct{})
	transport, err := webhook.NewTransport(webhook.TransportConfig{})
	require.NoError(b, err)
	store := webhooktest.NewStore()
	hooks, err := webhook.New(store, webhook.Config{
		Secrets: webhook.NewKeyring(webhook.NewKey("bench")), Tracer: tracer,
		Transport: transport.Wrap(func(http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				if arrived.Add(1) == int64(b.N) {
					close(enough)
				}
				return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: r}, nil
			})
		}),
	})
	require.NoError(b, err)
	defer hooks.Close()
	for i := range endpoints {
		_, err := hooks.Endpoints().Create(b.Context(), webhook.EndpointParams{Tenant: "acme", URL: fmt.Sprintf("https://h%d.example/in", i), Types: []string{"*"}})
		require.NoError(b, err)
	}
	d, err := hooks.NewDispatcher(webhook.DispatcherConfig{Observer: observer, PollInterval: 10 * time.Millisecond})
	require.NoError(b, err)
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	events := make([]webhook.Event, batch)
	for i := range events {
		events[i] = webhook.Event{Tenant: "acme", Type: "order.paid", Payload: []byte(`{"order":"o_1"}`)}
	}

	before := processorTime(b)
	b.ResetTimer()
	for left := (b.N + endpoints - 1) / endpoints; left > 0; left -= batch {
		tx := store.Begin()
		_, err := hooks.EnqueueMany(b.Context(), tx, events[:min(left, batch)])
		require.NoError(b, err)
		require.NoError(b, tx.Commit())
	}
	<-enough
	b.StopTimer()
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
	stop()
	require.NoError(b, <-ended)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// processorTime is what this process has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
