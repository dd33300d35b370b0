package otelwebhook_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/otelwebhook"
)

// collector is an SDK that gives what was recorded.
type collector struct {
	reader   *sdk.ManualReader
	provider *sdk.MeterProvider
	metrics  *otelwebhook.Metrics
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{reader: sdk.NewManualReader()}
	c.provider = sdk.NewMeterProvider(sdk.WithReader(c.reader))
	var err error
	c.metrics, err = otelwebhook.NewMetrics(c.provider)
	require.NoError(t, err)
	return c
}

func (c *collector) collect(t *testing.T) map[string]metricdata.Metrics {
	t.Helper()
	var rm metricdata.ResourceMetrics
	require.NoError(t, c.reader.Collect(t.Context(), &rm))
	all := make(map[string]metricdata.Metrics)
	for _, scope := range rm.ScopeMetrics {
		for _, m := range scope.Metrics {
			all[m.Name] = m
		}
	}
	return all
}

// points returns a metric's values by the values of their labels. That of a histogram is
// its sum.
func points(t *testing.T, m metricdata.Metrics) map[string]float64 {
	t.Helper()
	values := make(map[string]float64)
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			values[p.Attributes.Encoded(encoder{})] += float64(p.Value)
		}
	case metricdata.Gauge[int64]:
		for _, p := range data.DataPoints {
			values[p.Attributes.Encoded(encoder{})] = float64(p.Value)
		}
	case metricdata.Gauge[float64]:
		for _, p := range data.DataPoints {
			values[p.Attributes.Encoded(encoder{})] = p.Value
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			values[p.Attributes.Encoded(encoder{})] = p.Sum
		}
	default:
		require.Fail(t, "unknown data", "%T", data)
	}
	return values
}

// everything tells the metrics of all that can happen, to one endpoint.
func everything(m *otelwebhook.Metrics, tenant string, endpoint uuid.UUID, class webhook.ErrorClass) {
	now := time.Now()
	report := webhook.AttemptReport{
		Attempt: webhook.Attempt{
			DeliveryID: uuid.New(), EventID: uuid.New(), EndpointID: endpoint, Tenant: tenant, Number: 1,
			StartedAt: now, Latency: 50 * time.Millisecond, Class: class, Error: "detail of " + tenant,
		},
		EventType: "order.of_" + tenant, EnqueuedAt: now.Add(-time.Second), State: webhook.StateDelivered, WasHealthy: true,
	}
	if class != webhook.ClassNone {
		report.State, report.WasHealthy, report.Number = webhook.StateDead, false, 2
	}
	m.AttemptDone(report)
	report.Number, report.Uncounted, report.State = 1, class != webhook.ClassNone, webhook.StatePending
	m.AttemptDone(report)
	m.FanOutDone(webhook.FanOutReport{Took: time.Millisecond, Lag: time.Second, Events: 3, Unmatched: 1, Deliveries: 4})
	m.FanOutDone(webhook.FanOutReport{Failed: true})
	m.ClaimDone(webhook.ClaimReport{Took: time.Millisecond, Lag: time.Second, Claimed: 2, TakenOver: 1})
	m.ClaimDone(webhook.ClaimReport{Failed: true})
	m.CircuitChanged(webhook.CircuitReport{EndpointID: endpoint, Tenant: tenant, State: webhook.CircuitOpen, Flapped: true})
	m.CircuitChanged(webhook.CircuitReport{EndpointID: endpoint, Tenant: tenant, State: webhook.CircuitClosed})
	for _, state := range []webhook.ReplayJobState{webhook.ReplayRunning, webhook.ReplayDone, webhook.ReplayFailed, webhook.ReplayCancelled} {
		m.ReplayAdvanced(webhook.ReplayReport{JobID: uuid.New(), EndpointID: endpoint, Tenant: tenant, State: state, Begun: 5})
	}
	m.SheddingChanged(webhook.SheddingReport{EndpointID: endpoint, Tenant: tenant, Shedding: true})
	m.DeliveriesShed(webhook.ShedReport{EndpointID: endpoint, Tenant: tenant, Count: 7})
	m.StateSampled(webhook.DispatcherSample{
		DispatcherGauges: webhook.DispatcherGauges{InFlight: 9, MaxInFlight: 512, CircuitsOpen: 2},
		Notifies:         true, Listening: true, Members: 3, OldestReadyHealthy: time.Second, OldestReadyOthers: time.Minute,
	})
}

func TestSeriesDoNotGrowWithEndpoints(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	classes := []webhook.ErrorClass{"", webhook.ClassTimeout, webhook.ClassHTTP5xx, webhook.ClassBlocked, "of a newer version"}
	for i := range 40_000 {
		everything(c.metrics, fmt.Sprintf("tenant_%d", i%10_000), uuid.New(), classes[i%len(classes)])
	}

	all := c.collect(t)

	total := 0
	for name, m := range all {
		series := points(t, m)
		assert.LessOrEqual(t, len(series), 32, name)
		for labels := range series {
			assert.NotContains(t, labels, "tenant_", name)
		}
		total += len(series)
		assert.True(t, strings.HasPrefix(name, "webhook."), name)
		assert.NotEmpty(t, m.Unit, name)
		assert.NotEmpty(t, m.Description, name)
	}
	assert.Less(t, total, 120)
	assert.GreaterOrEqual(t, len(all), 29)
}

func TestEachFigureIsWhereTheContractSays(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	everything(c.metrics, "acme", uuid.New(), webhook.ClassNone)
	everything(c.metrics, "acme", uuid.New(), webhook.ClassBlocked)

	all := c.collect(t)

	for name, want := range map[string]map[string]float64{
		"webhook.delivery.first_attempt.latency": {"healthy": 2},
		"webhook.scheduler.oldest_ready_age":     {"healthy": 1, "other": 60},
		"webhook.attempts":                       {"success": 2, "blocked,failure": 1, "blocked,uncounted": 1},
		"webhook.retries":                        {"": 1},
		"webhook.deliveries.finished":            {"delivered": 1, "dead": 1},
		"webhook.egress.blocked":                 {"": 2},
		"webhook.lease.takeovers":                {"": 2},
		"webhook.claim.lag":                      {"": 2},
		"webhook.fan_out.lag":                    {"": 2},
		"webhook.fan_out.events":                 {"true": 4, "false": 2},
		"webhook.fan_out.deliveries":             {"": 8},
		"webhook.circuit.changes":                {"open": 2, "closed": 2},
		"webhook.circuit.flaps":                  {"": 2},
		"webhook.circuits":                       {"open": 2, "half_open": 0},
		"webhook.replay.runs":                    {"": 40},
		"webhook.replay.jobs.finished":           {"done": 2, "failed": 2, "cancelled": 2},
		"webhook.deliveries.shed":                {"": 14},
		"webhook.endpoints.shedding":             {"": 2},
		"webhook.dispatcher.in_flight":           {"": 9},
		"webhook.dispatcher.members":             {"": 3},
		"webhook.notify.listening":               {"": 1},
	} {
		require.Contains(t, all, name)
		assert.Equal(t, want, points(t, all[name]), name)
	}
	assert.Equal(t, "s", all["webhook.delivery.first_attempt.latency"].Unit)
}

func TestTheGapOfACanaryIsShownAsLongAsItIsRegistered(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	unregister, err := otelwebhook.ObserveCanary(c.provider, func() time.Duration { return 3 * time.Second })
	require.NoError(t, err)

	all := c.collect(t)

	assert.Equal(t, map[string]float64{"": 3}, points(t, all["webhook.canary.receipt_gap"]))
	require.NoError(t, unregister())
	assert.NotContains(t, c.collect(t), "webhook.canary.receipt_gap")
}

func TestNoProviderIsAnError(t *testing.T) {
	t.Parallel()
	_, err := otelwebhook.NewMetrics(nil)
	require.Error(t, err)
}

func BenchmarkAttemptDone(b *testing.B) {
	provider := sdk.NewMeterProvider(sdk.WithReader(sdk.NewManualReader()))
	m, err := otelwebhook.NewMetrics(provider)
	require.NoError(b, err)
	report := webhook.AttemptReport{State: webhook.StateDelivered, Attempt: webhook.Attempt{Number: 1, Latency: time.Millisecond}}
	b.ReportAllocs()
	for b.Loop() {
		m.AttemptDone(report)
	}
}
