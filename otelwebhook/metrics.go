package otelwebhook

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/outhook/webhook"
)

// scope names the instrumentation to OpenTelemetry.
const scope = "github.com/outhook/webhook/otelwebhook"

// Metrics records what a dispatcher does. Make one for each dispatcher of a process. It
// is safe for concurrent use. Make it with [NewMetrics].
type Metrics struct {
	firstAttempt   metric.Float64Histogram
	attempts       metric.Int64Counter
	duration       metric.Float64Histogram
	retries        metric.Int64Counter
	finished       metric.Int64Counter
	blocked        metric.Int64Counter
	takeovers      metric.Int64Counter
	claimDuration  metric.Float64Histogram
	claimLag       metric.Float64Histogram
	fanOutDuration metric.Float64Histogram
	fanOutLag      metric.Float64Histogram
	fannedOut      metric.Int64Counter
	deliveries     metric.Int64Counter
	circuitChanges metric.Int64Counter
	flaps          metric.Int64Counter
	replayRuns     metric.Int64Counter
	replayHandled  metric.Int64Counter
	replayJobs     metric.Int64Counter
	shed           metric.Int64Counter
	shedding       metric.Int64UpDownCounter

	oldestReady metric.Float64Gauge
	inFlight    metric.Int64Gauge
	maxInFlight metric.Int64Gauge
	slow        metric.Int64Gauge
	endpoints   metric.Int64Gauge
	circuits    metric.Int64Gauge
	unrecorded  metric.Int64Gauge
	members     metric.Int64Gauge
	listening   metric.Int64Gauge
}

var (
	_ webhook.Observer         = (*Metrics)(nil)
	_ webhook.DispatchObserver = (*Metrics)(nil)
	_ webhook.SheddingObserver = (*Metrics)(nil)
	_ webhook.EndingObserver   = (*Metrics)(nil)
)

// Buckets, in seconds. Those of what should take milliseconds end where something is
// wrong; those of an event's wait reach as far as an outage does.
var (
	quick   = []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10}
	request = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	waiting = []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 21600}
)

// NewMetrics makes the instruments.
func NewMetrics(provider metric.MeterProvider) (*Metrics, error) {
	if provider == nil {
		return nil, errors.New("otelwebhook: the meter provider is nil")
	}
	i := &instruments{meter: provider.Meter(scope)}
	m := &Metrics{
		firstAttempt: i.seconds("webhook.delivery.first_attempt.latency", "From the enqueuing of an event to the start of a delivery's first attempt.", waiting),
		attempts:     i.counter("webhook.attempts", "{attempt}", "Attempts that ended."),
		duration:     i.seconds("webhook.attempt.duration", "How long attempts took.", request),
		retries:      i.counter("webhook.retries", "{attempt}", "Attempts that were not the first of their run."),
		finished:     i.counter("webhook.deliveries.finished", "{delivery}", "Deliveries that ended with an attempt."),
		blocked:      i.counter("webhook.egress.blocked", "{attempt}", "Attempts that the egress guard refused."),
		takeovers:    i.counter("webhook.lease.takeovers", "{delivery}", "Deliveries whose earlier lease had run out without a result."),

		claimDuration:  i.seconds("webhook.claim.duration", "How long claims took.", quick),
		claimLag:       i.seconds("webhook.claim.lag", "For how long the delivery of a claim that waited longest had been due.", waiting),
		fanOutDuration: i.seconds("webhook.fan_out.duration", "How long transactions of the fan-out took.", quick),
		fanOutLag:      i.seconds("webhook.fan_out.lag", "The age of the oldest event of a fan-out.", waiting),
		fannedOut:      i.counter("webhook.fan_out.events", "{event}", "Events that were fanned out."),
		deliveries:     i.counter("webhook.fan_out.deliveries", "{delivery}", "Deliveries that the fan-out made."),
		circuitChanges: i.counter("webhook.circuit.changes", "{change}", "Circuits that opened or closed."),
		flaps:          i.counter("webhook.circuit.flaps", "{change}", "Circuits that opened again shortly after they had closed."),
		replayRuns:     i.counter("webhook.replay.runs", "{delivery}", "Runs that replay jobs began."),
		replayHandled:  i.counter("webhook.replay.steps", "{step}", "Steps of replay jobs."),
		replayJobs:     i.counter("webhook.replay.jobs.finished", "{job}", "Replay jobs that ended."),
		shed:           i.counter("webhook.deliveries.shed", "{delivery}", "Deliveries that were recorded as shed."),
		shedding:       i.upDown("webhook.endpoints.shedding", "{endpoint}", "Endpoints whose new deliveries are shed."),

		oldestReady: i.age("webhook.scheduler.oldest_ready_age", "For how long the oldest due delivery to an active endpoint has been due."),
		inFlight:    i.gauge("webhook.dispatcher.in_flight", "{request}", "Requests in flight."),
		maxInFlight: i.gauge("webhook.dispatcher.max_in_flight", "{request}", "Requests that may be in flight."),
		slow:        i.gauge("webhook.dispatcher.slow_lane", "{request}", "Requests in flight in the slow lane."),
		endpoints:   i.gauge("webhook.scheduler.endpoints", "{endpoint}", "Endpoints of the dispatcher by what they wait for."),
		circuits:    i.gauge("webhook.circuits", "{endpoint}", "Endpoints whose circuit is not closed."),
		unrecorded:  i.gauge("webhook.dispatcher.unrecorded", "{result}", "Results that wait for the database."),
		members:     i.gauge("webhook.dispatcher.members", "{dispatcher}", "Dispatchers that share the database."),
		listening:   i.gauge("webhook.notify.listening", "{listener}", "1 while signals of other processes are heard, 0 while everything is found by polling."),
	}
	if err := errors.Join(i.errs...); err != nil {
		return nil, err
	}
	return m, nil
}

// instruments makes instruments and keeps what goes wrong.
type instruments struct {
	meter metric.Meter
	errs  []error
}

func kept[T any](i *instruments, made T, err error) T {
	if err != nil {
		i.errs = append(i.errs, err)
	}
	return made
}

func (i *instruments) seconds(name, what string, buckets []float64) metric.Float64Histogram {
	h, err := i.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what), metric.WithExplicitBucketBoundaries(buckets...))
	return kept(i, h, err)
}

func (i *instruments) counter(name, unit, what string) metric.Int64Counter {
	c, err := i.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
	return kept(i, c, err)
}

func (i *instruments) upDown(name, unit, what string) metric.Int64UpDownCounter {
	c, err := i.meter.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(what))
	return kept(i, c, err)
}

func (i *instruments) age(name, what string) metric.Float64Gauge {
	g, err := i.meter.Float64Gauge(name, metric.WithUnit("s"), metric.WithDescription(what))
	return kept(i, g, err)
}

func (i *instruments) gauge(name, unit, what string) metric.Int64Gauge {
	g, err := i.meter.Int64Gauge(name, metric.WithUnit(unit), metric.WithDescription(what))
	return kept(i, g, err)
}

// labels are the attributes of one series, made once.
type labels = metric.MeasurementOption

func labelled(pairs ...string) labels {
	attributes := make([]attribute.KeyValue, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		attributes = append(attributes, attribute.String(pairs[i], pairs[i+1]))
	}
	return metric.WithAttributeSet(attribute.NewSet(attributes...))
}

const healthKey = "webhook.endpoint.health"

var (
	healthy = labelled(healthKey, "healthy")
	others  = labelled(healthKey, "other")

	succeeded = labelled("webhook.outcome", "success")
	failed    = perClass("webhook.outcome", "failure")
	uncounted = perClass("webhook.outcome", "uncounted")

	stateDelivered = labelled("webhook.delivery.state", string(webhook.StateDelivered))
	stateDead      = labelled("webhook.delivery.state", string(webhook.StateDead))
	stateOther     = labelled("webhook.delivery.state", "other")

	done   = labelled("webhook.result", "ok")
	undone = labelled("webhook.result", "failed")

	matched   = labelled("webhook.matched", "true")
	unmatched = labelled("webhook.matched", "false")

	circuitOpen     = labelled("webhook.circuit.state", string(webhook.CircuitOpen))
	circuitClosed   = labelled("webhook.circuit.state", string(webhook.CircuitClosed))
	circuitHalfOpen = labelled("webhook.circuit.state", string(webhook.CircuitHalfOpen))

	ready   = labelled("webhook.endpoint.waits", "no")
	slots   = labelled("webhook.endpoint.waits", "slot")
	instant = labelled("webhook.endpoint.waits", "time")

	jobDone      = labelled("webhook.replay.state", string(webhook.ReplayDone))
	jobFailed    = labelled("webhook.replay.state", string(webhook.ReplayFailed))
	jobCancelled = labelled("webhook.replay.state", string(webhook.ReplayCancelled))
)

// classes are all error classes (docs/design.md §4).
var classes = []webhook.ErrorClass{
	webhook.ClassDNS, webhook.ClassConnect, webhook.ClassTLS, webhook.ClassTimeout, webhook.ClassReset, webhook.ClassBlocked,
	webhook.ClassProtocol, webhook.ClassBody, webhook.ClassHTTP4xx, webhook.ClassHTTP5xx, webhook.ClassRedirect,
	webhook.ClassCancelled, webhook.ClassProxy, webhook.ClassInternal,
}

// otherClass stands for one that a newer version of the library may have.
const otherClass = "_OTHER"

func perClass(pairs ...string) map[webhook.ErrorClass]labels {
	m := map[webhook.ErrorClass]labels{otherClass: labelled(append(pairs, "error.type", otherClass)...)}
	for _, c := range classes {
		m[c] = labelled(append(pairs, "error.type", string(c))...)
	}
	return m
}

func ofClass(m map[webhook.ErrorClass]labels, c webhook.ErrorClass) labels {
	if l, ok := m[c]; ok {
		return l
	}
	return m[otherClass]
}

// AttemptDone implements [webhook.Observer].
func (m *Metrics) AttemptDone(r webhook.AttemptReport) {
	ctx := context.Background()
	outcome := succeeded
	switch {
	case r.Uncounted:
		outcome = ofClass(uncounted, r.Class)
	case r.Class != webhook.ClassNone:
		outcome = ofClass(failed, r.Class)
	}
	m.attempts.Add(ctx, 1, outcome)
	m.duration.Record(ctx, r.Latency.Seconds(), outcome)
	if r.Class == webhook.ClassBlocked {
		m.blocked.Add(ctx, 1)
	}
	if r.Number > 1 && !r.Uncounted {
		m.retries.Add(ctx, 1)
	}
	if r.Number == 1 && r.Run == 0 && !r.Uncounted {
		m.firstAttempt.Record(ctx, max(r.StartedAt.Sub(r.EnqueuedAt), 0).Seconds(), healthOf(r.WasHealthy))
	}
	switch {
	case r.State == webhook.StateDelivered:
		m.finished.Add(ctx, 1, stateDelivered)
	case r.State == webhook.StateDead:
		m.finished.Add(ctx, 1, stateDead)
	case r.State.Final():
		m.finished.Add(ctx, 1, stateOther)
	}
}

func healthOf(isHealthy bool) labels {
	if isHealthy {
		return healthy
	}
	return others
}

func resultOf(isFailed bool) labels {
	if isFailed {
		return undone
	}
	return done
}

// FanOutDone implements [webhook.DispatchObserver].
func (m *Metrics) FanOutDone(r webhook.FanOutReport) {
	ctx := context.Background()
	m.fanOutDuration.Record(ctx, r.Took.Seconds(), resultOf(r.Failed))
	if r.Failed {
		return
	}
	m.fanOutLag.Record(ctx, r.Lag.Seconds())
	m.fannedOut.Add(ctx, int64(r.Events-r.Unmatched), matched)
	m.fannedOut.Add(ctx, int64(r.Unmatched), unmatched)
	m.deliveries.Add(ctx, int64(r.Deliveries))
}

// ClaimDone implements [webhook.DispatchObserver].
func (m *Metrics) ClaimDone(r webhook.ClaimReport) {
	ctx := context.Background()
	m.claimDuration.Record(ctx, r.Took.Seconds(), resultOf(r.Failed))
	if r.Claimed > 0 {
		m.claimLag.Record(ctx, r.Lag.Seconds())
	}
	m.takeovers.Add(ctx, int64(r.TakenOver))
}

// CircuitChanged implements [webhook.DispatchObserver].
func (m *Metrics) CircuitChanged(r webhook.CircuitReport) {
	ctx := context.Background()
	if r.State != webhook.CircuitOpen {
		m.circuitChanges.Add(ctx, 1, circuitClosed)
		return
	}
	m.circuitChanges.Add(ctx, 1, circuitOpen)
	if r.Flapped {
		m.flaps.Add(ctx, 1)
	}
}

// ReplayAdvanced implements [webhook.DispatchObserver].
func (m *Metrics) ReplayAdvanced(r webhook.ReplayReport) {
	ctx := context.Background()
	m.replayHandled.Add(ctx, 1)
	m.replayRuns.Add(ctx, int64(r.Begun))
	switch r.State {
	case webhook.ReplayDone:
		m.replayJobs.Add(ctx, 1, jobDone)
	case webhook.ReplayFailed:
		m.replayJobs.Add(ctx, 1, jobFailed)
	case webhook.ReplayCancelled:
		m.replayJobs.Add(ctx, 1, jobCancelled)
	case webhook.ReplayRunning:
	}
}

// StateSampled implements [webhook.DispatchObserver].
func (m *Metrics) StateSampled(s webhook.DispatcherSample) {
	ctx := context.Background()
	m.oldestReady.Record(ctx, s.OldestReadyHealthy.Seconds(), healthy)
	m.oldestReady.Record(ctx, s.OldestReadyOthers.Seconds(), others)
	m.inFlight.Record(ctx, int64(s.InFlight))
	m.maxInFlight.Record(ctx, int64(s.MaxInFlight))
	m.slow.Record(ctx, int64(s.Slow))
	m.endpoints.Record(ctx, int64(s.Ready), ready)
	m.endpoints.Record(ctx, int64(s.Waiting), slots)
	m.endpoints.Record(ctx, int64(s.Parked), instant)
	m.circuits.Record(ctx, int64(s.CircuitsOpen), circuitOpen)
	m.circuits.Record(ctx, int64(s.CircuitsHalfOpen), circuitHalfOpen)
	m.unrecorded.Record(ctx, int64(s.Unrecorded))
	m.members.Record(ctx, int64(s.Members))
	if s.Notifies {
		m.listening.Record(ctx, truth(s.Listening))
	}
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// DeliveriesDied implements [webhook.EndingObserver].
func (m *Metrics) DeliveriesDied(r webhook.DeathReport) {
	m.finished.Add(context.Background(), int64(r.Deliveries), stateDead)
}

// SheddingChanged implements [webhook.SheddingObserver].
func (m *Metrics) SheddingChanged(r webhook.SheddingReport) {
	m.shedding.Add(context.Background(), 2*truth(r.Shedding)-1)
}

// DeliveriesShed implements [webhook.SheddingObserver].
func (m *Metrics) DeliveriesShed(r webhook.ShedReport) {
	m.shed.Add(context.Background(), int64(r.Count))
}

// ObserveCanary registers the gap of a canary, as Gap of canary.Receiver tells it,
// and returns what ends that.
func ObserveCanary(provider metric.MeterProvider, gap func() time.Duration) (unregister func() error, err error) {
	meter := provider.Meter(scope)
	gauge, err := meter.Float64ObservableGauge("webhook.canary.receipt_gap", metric.WithUnit("s"),
		metric.WithDescription("How long ago the latest canary that arrived was enqueued."))
	if err != nil {
		return nil, err
	}
	registration, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		o.ObserveFloat64(gauge, gap().Seconds())
		return nil
	}, gauge)
	if err != nil {
		return nil, err
	}
	return registration.Unregister, nil
}
