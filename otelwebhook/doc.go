// Package otelwebhook tells OpenTelemetry what the library does: metrics through
// [Metrics], which is a [webhook.Observer], and traces through [Tracer], which is a
// [webhook.Tracer].
//
//	metrics, err := otelwebhook.NewMetrics(meterProvider)
//	hooks, err := webhook.New(store, webhook.Config{Tracer: otelwebhook.NewTracer(tracerProvider), …})
//	dispatcher, err := hooks.NewDispatcher(webhook.DispatcherConfig{Observer: metrics})
//
// The labels of all metrics come from fixed lists: how many series there are does not
// depend on how many endpoints, tenants or event types there are. docs/telemetry.md lists
// the metrics and says which to be woken for.
package otelwebhook
