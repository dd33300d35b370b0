package admin

import (
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// healthShape is how an endpoint fares.
type healthShape struct {
	EndpointID uuid.UUID             `json:"endpoint_id"`
	Tenant     string                `json:"tenant"`
	State      webhook.EndpointState `json:"state"`
	Status     webhook.HealthStatus  `json:"status" doc:"healthy: none of the latest 20 attempts failed; failing: the latest one did; unsteady: others did."`
	UpdatedAt  time.Time             `json:"updated_at,omitzero" doc:"When the latest attempt in the figures ended."`
	Circuit    circuitShape          `json:"circuit"`
	Score      int                   `json:"score" doc:"0 to 100, of the latest 50 attempts, the newest with the most weight."`

	LastSuccessAt       time.Time          `json:"last_success_at,omitzero"`
	LastFailureAt       time.Time          `json:"last_failure_at,omitzero"`
	LastStatus          int                `json:"last_status,omitempty" doc:"The HTTP status of the latest failure."`
	LastClass           webhook.ErrorClass `json:"last_class,omitempty" doc:"What the latest failure was."`
	ConsecutiveFailures int64              `json:"consecutive_failures"`
	FailingSince        time.Time          `json:"failing_since,omitzero"`

	Hour   countsShape        `json:"hour" doc:"The last hour."`
	Day    countsShape        `json:"day" doc:"The last 24 hours."`
	Series []timedBucketShape `json:"series" doc:"The last hour in buckets of 5 minutes, without empty ones."`
	Hourly []timedBucketShape `json:"hourly" doc:"The last 24 hours in buckets of one hour, without empty ones."`

	LatencyP50MS   float64 `json:"latency_p50_ms" doc:"Over the latest half hour to hour with attempts."`
	LatencyP95MS   float64 `json:"latency_p95_ms"`
	LatencyP99MS   float64 `json:"latency_p99_ms"`
	LatencySamples int64   `json:"latency_samples"`

	LagSeconds    float64   `json:"lag_seconds" doc:"How long the oldest due delivery has been due."`
	OldestDueAt   time.Time `json:"oldest_due_at,omitzero"`
	Backlog       int       `json:"backlog" doc:"The unfinished deliveries."`
	BacklogCapped bool      `json:"backlog_capped" doc:"True when there are more than were counted."`
	DeadCount     int64     `json:"dead_count" doc:"The deliveries that died in the last 30 days."`
	OldestDeadAt  time.Time `json:"oldest_dead_at,omitzero"`

	ConfigurationError *configurationErrorShape `json:"configuration_error,omitempty" doc:"What is likely to be wrong with how the endpoint is set up. Advice."`
	SuspiciousSuccess  bool                     `json:"suspicious_success" doc:"True when something else may answer in the receiver's place. Advice."`
	DegradedSince      time.Time                `json:"degraded_since,omitzero" doc:"When success fell under 80 % over 4 hours."`
}

// circuitShape is where an endpoint's circuit stands.
type circuitShape struct {
	State       webhook.CircuitState `json:"state"`
	Since       time.Time            `json:"since,omitzero"`
	NextProbeAt time.Time            `json:"next_probe_at,omitzero"`
	Flaps       int64                `json:"flaps" doc:"How often it opened again shortly after closing."`
	LastFlapAt  time.Time            `json:"last_flap_at,omitzero"`
}

// configurationErrorShape says what is likely to be wrong.
type configurationErrorShape struct {
	Status    int       `json:"status" doc:"Nearly all failures have this HTTP status."`
	RotatedAt time.Time `json:"rotated_at,omitzero" doc:"Set when they began after this rotation of the secret."`
}

// countsShape is what happened in some time.
type countsShape struct {
	Attempts     int64 `json:"attempts"`
	Retries      int64 `json:"retries"`
	Succeeded    int64 `json:"succeeded"`
	Failed       int64 `json:"failed"`
	Redirects    int64 `json:"redirects"`
	ClientErrors int64 `json:"client_errors"`
	ServerErrors int64 `json:"server_errors"`
	NoResponse   int64 `json:"no_response"`
	Throttled    int64 `json:"throttled" doc:"Answers 429, which are no failures."`
	Gone         int64 `json:"gone" doc:"Answers 410, which are no failures."`
	Delivered    int64 `json:"delivered"`
	Dead         int64 `json:"dead"`
}

// bucketShape is what happened in the time that begins at start.
type bucketShape struct {
	Start   time.Time `json:"start"`
	Seconds float64   `json:"seconds" doc:"How long the bucket is."`
	countsShape
}

// timedBucketShape is a bucket of one endpoint, with its latencies.
type timedBucketShape struct {
	bucketShape

	LatencyP50MS float64 `json:"latency_p50_ms" doc:"Half of the attempts that succeeded or failed took no longer; 0 when there was none."`
	LatencyP95MS float64 `json:"latency_p95_ms"`
	LatencyP99MS float64 `json:"latency_p99_ms"`
}

// overviewShape is how all that somebody sees fares.
type overviewShape struct {
	At        time.Time           `json:"at"`
	Endpoints endpointCountsShape `json:"endpoints"`

	OldestReadyAgeSeconds        float64 `json:"oldest_ready_age_seconds" doc:"How long the delivery has been due that has waited longest, of active endpoints."`
	OldestReadyAgeHealthySeconds float64 `json:"oldest_ready_age_healthy_seconds" doc:"The same of healthy endpoints."`
	OldestReadyAgeOthersSeconds  float64 `json:"oldest_ready_age_others_seconds" doc:"The same of the others."`

	Total   countsShape   `json:"total" doc:"The sum of the buckets."`
	Buckets []bucketShape `json:"buckets" doc:"In the order of their times, without gaps."`
	Partial bool          `json:"partial" doc:"True when there are more endpoints than were looked at."`
}

// endpointCountsShape are numbers of endpoints.
type endpointCountsShape struct {
	Active   int `json:"active"`
	Paused   int `json:"paused"`
	Disabled int `json:"disabled"`
	Failing  int `json:"failing" doc:"Active ones whose latest attempt failed."`
	Unsteady int `json:"unsteady" doc:"Other active ones of whose latest 20 attempts some failed."`
}

// dispatcherShape is what a dispatcher last said of itself.
type dispatcherShape struct {
	ID               uuid.UUID `json:"id"`
	SeenAt           time.Time `json:"seen_at"`
	Endpoints        int       `json:"endpoints" doc:"Those that it sends to."`
	Tenants          int       `json:"tenants"`
	InFlight         int       `json:"in_flight"`
	MaxInFlight      int       `json:"max_in_flight"`
	Slow             int       `json:"slow" doc:"Requests in the slow lane."`
	Ready            int       `json:"ready" doc:"Endpoints that may be sent to now."`
	Waiting          int       `json:"waiting" doc:"Endpoints that wait for a slot or a rate."`
	Parked           int       `json:"parked" doc:"Endpoints that wait for a time."`
	CircuitsOpen     int       `json:"circuits_open"`
	CircuitsHalfOpen int       `json:"circuits_half_open"`
	Unrecorded       int       `json:"unrecorded" doc:"Results that wait for the database."`
}

// noticeShape is something about an endpoint that somebody should know.
type noticeShape struct {
	ID                  uuid.UUID          `json:"id"`
	Kind                string             `json:"kind" doc:"Such as endpoint.failing."`
	EndpointID          uuid.UUID          `json:"endpoint_id"`
	Tenant              string             `json:"tenant"`
	StreakAt            time.Time          `json:"streak_at,omitzero" doc:"When that began which the notice is about."`
	CreatedAt           time.Time          `json:"created_at"`
	Reason              string             `json:"reason,omitempty"`
	Status              int                `json:"status,omitempty"`
	Class               webhook.ErrorClass `json:"class,omitempty"`
	ConsecutiveFailures int64              `json:"consecutive_failures,omitempty"`
	Dead                int64              `json:"dead,omitempty"`
	Score               int                `json:"score,omitempty"`
}

func healthOf(h webhook.EndpointHealth) healthShape {
	shape := healthShape{
		EndpointID: h.EndpointID, Tenant: h.Tenant, State: h.State, Status: h.Status, UpdatedAt: h.UpdatedAt,
		Circuit: circuitShape{
			State: h.Circuit.State, Since: h.Circuit.Since, NextProbeAt: h.Circuit.NextProbeAt,
			Flaps: h.Circuit.Flaps, LastFlapAt: h.Circuit.LastFlapAt,
		},
		Score: h.Score, LastSuccessAt: h.LastSuccessAt, LastFailureAt: h.LastFailureAt, LastStatus: h.LastStatus, LastClass: h.LastClass,
		ConsecutiveFailures: h.ConsecutiveFailures, FailingSince: h.FailingSince,
		Hour: countsOf(h.Hour), Day: countsOf(h.Day), Series: timedBucketsOf(h.Series), Hourly: timedBucketsOf(h.Hourly),
		LatencyP50MS: milliseconds(h.LatencyP50), LatencyP95MS: milliseconds(h.LatencyP95), LatencyP99MS: milliseconds(h.LatencyP99),
		LatencySamples: h.LatencySamples, LagSeconds: h.Lag.Seconds(), OldestDueAt: h.OldestDueAt,
		Backlog: h.Backlog, BacklogCapped: h.BacklogCapped, DeadCount: h.DeadCount, OldestDeadAt: h.OldestDeadAt,
		SuspiciousSuccess: h.SuspiciousSuccess, DegradedSince: h.DegradedSince,
	}
	if e := h.ConfigurationError; e != nil {
		shape.ConfigurationError = &configurationErrorShape{Status: e.Status, RotatedAt: e.RotatedAt}
	}
	return shape
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func countsOf(c webhook.ActivityCounts) countsShape {
	return countsShape{
		Attempts: c.Attempts, Retries: c.Retries, Succeeded: c.Succeeded, Failed: c.Failed, Redirects: c.Redirects,
		ClientErrors: c.ClientErrors, ServerErrors: c.ServerErrors, NoResponse: c.NoResponse,
		Throttled: c.Throttled, Gone: c.Gone, Delivered: c.Delivered, Dead: c.Dead,
	}
}

func bucketsOf(buckets []webhook.ActivityBucket) []bucketShape {
	shapes := make([]bucketShape, len(buckets))
	for i, b := range buckets {
		shapes[i] = bucketOf(b)
	}
	return shapes
}

func bucketOf(b webhook.ActivityBucket) bucketShape {
	return bucketShape{Start: b.Start, Seconds: b.Length.Seconds(), countsShape: countsOf(b.ActivityCounts)}
}

func timedBucketsOf(buckets []webhook.ActivityBucket) []timedBucketShape {
	shapes := make([]timedBucketShape, len(buckets))
	for i, b := range buckets {
		shapes[i] = timedBucketShape{
			bucketShape:  bucketOf(b),
			LatencyP50MS: milliseconds(b.LatencyP50), LatencyP95MS: milliseconds(b.LatencyP95), LatencyP99MS: milliseconds(b.LatencyP99),
		}
	}
	return shapes
}

func overviewOf(o webhook.HealthOverview) overviewShape {
	return overviewShape{
		At: o.At,
		Endpoints: endpointCountsShape{
			Active: o.Endpoints.Active, Paused: o.Endpoints.Paused, Disabled: o.Endpoints.Disabled,
			Failing: o.Endpoints.Failing, Unsteady: o.Endpoints.Unsteady,
		},
		OldestReadyAgeSeconds:        o.OldestReadyAge.Seconds(),
		OldestReadyAgeHealthySeconds: o.OldestReadyAgeHealthy.Seconds(),
		OldestReadyAgeOthersSeconds:  o.OldestReadyAgeOthers.Seconds(),
		Total:                        countsOf(o.Total), Buckets: bucketsOf(o.Buckets), Partial: o.Partial,
	}
}

func dispatcherOf(d webhook.DispatcherStatus) dispatcherShape {
	return dispatcherShape{
		ID: d.ID, SeenAt: d.SeenAt, Endpoints: d.Endpoints, Tenants: d.Tenants, InFlight: d.InFlight, MaxInFlight: d.MaxInFlight,
		Slow: d.Slow, Ready: d.Ready, Waiting: d.Waiting, Parked: d.Parked,
		CircuitsOpen: d.CircuitsOpen, CircuitsHalfOpen: d.CircuitsHalfOpen, Unrecorded: d.Unrecorded,
	}
}

func noticeOf(n webhook.Notice) noticeShape {
	return noticeShape{
		ID: n.ID, Kind: string(n.Kind), EndpointID: n.EndpointID, Tenant: n.Tenant, StreakAt: n.Streak, CreatedAt: n.CreatedAt,
		Reason: n.Reason, Status: n.Status, Class: n.Class, ConsecutiveFailures: n.ConsecutiveFailures, Dead: n.Dead, Score: n.Score,
	}
}
