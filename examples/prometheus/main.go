// Command prometheus shows how the library's metrics get to Prometheus, through
// OpenTelemetry, and how a canary tells that events arrive. It keeps everything in memory
// and sends to itself; the metrics are at http://127.0.0.1:9464/metrics. dashboard.json is
// for Grafana, alerts.yml for Prometheus.
//
//	go run ./examples/prometheus
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	promexporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	_ "modernc.org/sqlite"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/canary"
	"github.com/outhook/webhook/otelwebhook"
	"github.com/outhook/webhook/store/sqlite"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:9464")
	if err == nil {
		fmt.Printf("metrics: http://%s/metrics\n", listener.Addr())
		err = run(ctx, listener)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "prometheus:", err)
		os.Exit(1)
	}
}

// newExporter makes the meter provider whose metrics the handler shows. Only what is
// asked for is in the registry: no target_info, no scope labels.
func newExporter() (*sdk.MeterProvider, http.Handler, error) {
	registry := prometheus.NewRegistry()
	exporter, err := promexporter.New(promexporter.WithRegisterer(registry), promexporter.WithoutScopeInfo(), promexporter.WithoutTargetInfo())
	if err != nil {
		return nil, nil, err
	}
	provider := sdk.NewMeterProvider(sdk.WithReader(exporter))
	return provider, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
}

func run(ctx context.Context, listener net.Listener) (err error) {
	provider, handler, err := newExporter()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "webhook-prometheus-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		return err
	}
	defer db.Close()
	store := sqlite.New(db)
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	transport, err := webhook.NewTransport(webhook.TransportConfig{ // loopback, for this example alone
		Allow:     []webhook.AllowRule{{Prefix: netip.MustParsePrefix("127.0.0.1/32"), Ports: []webhook.PortRange{{From: 1024, To: 65535}}}},
		AllowHTTP: true,
	})
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	hooks, err := webhook.New(store, webhook.Config{
		Logger: log, Secrets: webhook.NewKeyring(webhook.NewKey("example")), Transport: transport,
	})
	if err != nil {
		return err
	}
	defer hooks.Close()

	metrics, err := otelwebhook.NewMetrics(provider)
	if err != nil {
		return err
	}
	dispatcher, err := hooks.NewDispatcher(webhook.DispatcherConfig{Observer: metrics})
	if err != nil {
		return err
	}
	endpoint, err := hooks.Endpoints().Create(ctx, canary.Endpoint("operator", "http://"+listener.Addr().String()+"/canary"))
	if err != nil {
		return err
	}
	receiver, err := canary.NewReceiver(canary.ReceiverConfig{Secrets: []string{endpoint.Secret.Reveal()}})
	if err != nil {
		return err
	}
	unregister, err := otelwebhook.ObserveCanary(provider, receiver.Gap)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unregister()) }()
	sender, err := canary.NewSender(canary.SenderConfig{Tenant: "operator", Interval: time.Second, Logger: log, Enqueue: enqueuer(db, hooks)})
	if err != nil {
		return err
	}
	if _, err := hooks.Endpoints().Create(ctx, webhook.EndpointParams{
		Tenant: "acme", URL: "http://" + listener.Addr().String() + "/customer", Types: []string{"order.*"},
	}); err != nil {
		return err
	}

	mux := http.NewServeMux()
	mux.Handle("/metrics", handler)
	mux.Handle("/canary", receiver)
	mux.HandleFunc("POST /customer", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 2)
	go func() { ended <- server.Serve(listener) }()
	go sender.Run(ctx)
	go business(ctx, log, enqueuer(db, hooks))
	go func() { ended <- dispatcher.Run(ctx) }()
	<-ctx.Done()
	server.Close()
	for range 2 {
		if e := <-ended; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// enqueuer commits an event in a transaction of its own.
func enqueuer(db *sql.DB, hooks *webhook.Hooks[*sql.Tx]) func(context.Context, webhook.Event) error {
	return func(ctx context.Context, e webhook.Event) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := hooks.Enqueue(ctx, tx, e); err != nil {
			return err
		}
		return tx.Commit()
	}
}

// business enqueues an order twice a second, until ctx ends.
func business(ctx context.Context, log *slog.Logger, enqueue func(context.Context, webhook.Event) error) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		err := enqueue(ctx, webhook.Event{Tenant: "acme", Type: "order.paid", Payload: json.RawMessage(`{"order":"o_1"}`)})
		if err != nil && ctx.Err() == nil {
			log.Warn("order not enqueued", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}
