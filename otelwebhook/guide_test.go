package otelwebhook_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/canary"
	"github.com/outhook/webhook/otelwebhook"
	"github.com/outhook/webhook/webhooktest"
)

// The code of docs/telemetry.md.

// region: observe

// Observed makes hooks and a dispatcher that OpenTelemetry sees.
func Observed[Tx any](store webhook.Store[Tx], cfg webhook.Config, meters metric.MeterProvider, tracers trace.TracerProvider) (*webhook.Hooks[Tx], *webhook.Dispatcher, error) {
	metrics, err := otelwebhook.NewMetrics(meters)
	if err != nil {
		return nil, nil, err
	}
	cfg.Tracer = otelwebhook.NewTracer(tracers)
	hooks, err := webhook.New(store, cfg)
	if err != nil {
		return nil, nil, err
	}
	dispatcher, err := hooks.NewDispatcher(webhook.DispatcherConfig{Observer: metrics})
	return hooks, dispatcher, err
}

// end region

// region: canary

// RunCanary sends canaries until ctx ends. The receiver's route is in mux, which listens at
// url: in this process, or better elsewhere.
func RunCanary[Tx any](ctx context.Context, hooks *webhook.Hooks[Tx], mux *http.ServeMux, url string,
	meters metric.MeterProvider, enqueue func(context.Context, webhook.Event) error, // in a transaction of its own
) error {
	endpoint, err := hooks.Endpoints().Create(ctx, canary.Endpoint("operator", url)) // once in its life
	if err != nil {
		return err
	}
	receiver, err := canary.NewReceiver(canary.ReceiverConfig{Secrets: []string{endpoint.Secret.Reveal()}})
	if err != nil {
		return err
	}
	mux.Handle("/in", receiver)
	unregister, err := otelwebhook.ObserveCanary(meters, receiver.Gap)
	if err != nil {
		return err
	}
	defer func() { _ = unregister() }()
	sender, err := canary.NewSender(canary.SenderConfig{Tenant: "operator", Enqueue: enqueue})
	if err != nil {
		return err
	}
	sender.Run(ctx)
	return nil
}

// end region

func TestWhatTheGuideShows(t *testing.T) {
	t.Parallel()
	store := webhooktest.NewStore()
	transport, err := webhook.NewTransport(webhook.TransportConfig{
		AllowHTTP: true,
		Allow:     []webhook.AllowRule{{Prefix: netip.MustParsePrefix("127.0.0.1/32")}},
	})
	require.NoError(t, err)
	reader := sdk.NewManualReader()
	c := &collector{reader: reader, provider: sdk.NewMeterProvider(sdk.WithReader(reader))}
	cfg := webhook.Config{Secrets: webhook.NewKeyring(webhook.NewKey("test")), Transport: transport}
	hooks, dispatcher, err := Observed(store, cfg, c.provider, sdktrace.NewTracerProvider())
	require.NoError(t, err)
	defer hooks.Close()
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	defer server.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- dispatcher.Run(ctx) }()
	go func() {
		ended <- RunCanary(ctx, hooks, mux, server.URL+"/in", c.provider, func(ctx context.Context, e webhook.Event) error {
			tx := store.Begin()
			if _, err := hooks.Enqueue(ctx, tx, e); err != nil {
				return err
			}
			return tx.Commit()
		})
	}()

	assert.Eventually(t, func() bool {
		all := c.collect(t)
		_, gap := all["webhook.canary.receipt_gap"]
		_, attempts := all["webhook.attempts"]
		return gap && attempts
	}, 30*time.Second, 10*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	require.NoError(t, <-ended)
}
