package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook/internal/scheduler"
	"github.com/outhook/webhook/internal/vitals"
)

// countedBacklog is up to where the backlog of an endpoint is counted when it is read.
const countedBacklog = 10_000

// Health tells how endpoints fare. It is safe for concurrent use. Get it from
// [Hooks.Health].
//
// Dispatchers gather the figures as they send and store them every few seconds; a
// read costs the same whatever is pending or in the log. Figures over time are exact
// to within the time buckets, and percentiles to within a tenth.
type Health struct {
	core *core
}

// HealthStatus is how an endpoint fares, in a word.
type HealthStatus string

// The statuses.
const (
	HealthUnknown  HealthStatus = "unknown"  // no attempt that says anything yet
	HealthHealthy  HealthStatus = "healthy"  // none of the latest 20 attempts failed
	HealthUnsteady HealthStatus = "unsteady" // some of them did, the latest did not
	HealthFailing  HealthStatus = "failing"  // the latest attempt failed
)

// CircuitState says whether deliveries to an endpoint flow.
type CircuitState string

// The states of a circuit.
const (
	CircuitClosed   CircuitState = "closed"    // they do
	CircuitOpen     CircuitState = "open"      // they wait
	CircuitHalfOpen CircuitState = "half_open" // one of them goes out as a probe, as soon as there is one
)

// EndpointHealth is how an endpoint fares (docs/design.md §6). Attempts that are not
// the endpoint's doing are in none of the figures; a 429, which asks for patience, and
// a 410, which disables, are in Attempts alone.
type EndpointHealth struct {
	EndpointID uuid.UUID
	Tenant     string
	// State is the endpoint's.
	State  EndpointState
	Status HealthStatus
	// UpdatedAt is when the latest attempt in the figures ended; zero when there is
	// none.
	UpdatedAt time.Time

	Circuit CircuitHealth

	// Score sums up the latest 50 attempts, 0 to 100, the newest with the most weight:
	// e^(-0.05·i). It is 100 when there is none.
	Score int

	// LastSuccessAt and LastFailureAt are zero when there was none.
	LastSuccessAt, LastFailureAt time.Time
	// LastStatus and LastClass are those of the latest failure.
	LastStatus int
	LastClass  ErrorClass
	// ConsecutiveFailures counts the attempts since the latest success, or since the
	// endpoint was resumed or enabled, and FailingSince is when the first of them
	// ended; zero when there are none.
	ConsecutiveFailures int64
	FailingSince        time.Time

	// Hour and Day are the counts of the last hour and of the last 24 hours.
	Hour, Day ActivityCounts
	// Series has the last hour in buckets of 5 minutes, and Hourly the last 24 hours
	// in buckets of one hour; without those in which nothing happened.
	Series, Hourly []ActivityBucket

	// LatencyP50, LatencyP95 and LatencyP99 are over the latest half hour to hour with
	// attempts, of which there were LatencySamples.
	LatencyP50, LatencyP95, LatencyP99 time.Duration
	LatencySamples                     int64

	// Lag is how long the oldest due delivery has been due; zero when none waits. An
	// open circuit does not stop it.
	Lag         time.Duration
	OldestDueAt time.Time
	// Backlog counts the unfinished deliveries, those in flight included. It is not
	// counted beyond 10,000: then BacklogCapped is true.
	Backlog       int
	BacklogCapped bool

	// DeadCount counts the deliveries that died in the last 30 days, whatever became
	// of them by replays, and OldestDeadAt is when the first of them did.
	DeadCount    int64
	OldestDeadAt time.Time

	// ConfigurationError is what is likely to be wrong with how the endpoint is set
	// up, or with its receiver; nil when nothing points to it. It is advice.
	ConfigurationError *ConfigurationError
	// SuspiciousSuccess is true when successes suddenly take a few milliseconds that
	// used to take ten times as long: something in front of the receiver may answer in
	// its place. It is advice.
	SuspiciousSuccess bool
	// DegradedSince is when success fell under 80 % over 4 hours; zero when it is not.
	DegradedSince time.Time
}

// CircuitHealth is where the circuit of an endpoint stands.
type CircuitHealth struct {
	State CircuitState
	// Since is when it opened or closed; zero for one that never opened.
	Since time.Time
	// NextProbeAt is when a delivery may go out as a probe; zero for a closed one.
	NextProbeAt time.Time
	// Flaps counts how often it opened again shortly after closing, and LastFlapAt is
	// when it last did.
	Flaps      int64
	LastFlapAt time.Time
}

// ConfigurationError says what is likely to be wrong: at least 95 % of the latest 20
// failures were the same status, from 400 to 499.
type ConfigurationError struct {
	Status int
	// RotatedAt is set when refusals (401, 403) began within the hour after the secret
	// was rotated: the receiver may not know the new one. Five in a row are enough.
	RotatedAt time.Time
}

// ActivityCounts are what happened in some time.
type ActivityCounts struct {
	// Attempts counts those that used one up, and Retries those of them that were not
	// the first of their run.
	Attempts, Retries int64
	// Succeeded and Failed count the attempts that say something about the endpoint.
	Succeeded, Failed int64
	// Of those that failed: Redirects (3xx), ClientErrors (4xx), ServerErrors (5xx),
	// and NoResponse, which had no usable one.
	Redirects, ClientErrors, ServerErrors, NoResponse int64
	// Throttled counts answers 429, and Gone 410; neither is a failure.
	Throttled, Gone int64
	// Delivered and Dead count the deliveries that ended so.
	Delivered, Dead int64
}

// SuccessRate is the part of the attempts that succeeded, from 0 to 1; false when
// there was none.
func (c ActivityCounts) SuccessRate() (rate float64, ok bool) {
	if c.Succeeded+c.Failed == 0 {
		return 0, false
	}
	return float64(c.Succeeded) / float64(c.Succeeded+c.Failed), true
}

// ActivityBucket is what happened in the time that begins at Start and lasts Length.
type ActivityBucket struct {
	Start  time.Time
	Length time.Duration
	ActivityCounts

	// LatencyP50, LatencyP95 and LatencyP99 are of the attempts that succeeded or
	// failed, of one endpoint. They are zero where there was none, and in a
	// [HealthOverview], which sums up several endpoints.
	LatencyP50, LatencyP95, LatencyP99 time.Duration
}

// Endpoint returns how an endpoint fares, or ErrNotFound.
func (s *Health) Endpoint(ctx context.Context, scope Scope, id uuid.UUID) (EndpointHealth, error) {
	rec, err := s.core.backend.GetEndpoint(ctx, scope, id)
	if err != nil {
		return EndpointHealth{}, fmt.Errorf("get endpoint %s: %w", id, err)
	}
	list, err := s.read(ctx, []EndpointRecord{rec})
	if err != nil {
		return EndpointHealth{}, err
	}
	return list[0], nil
}

// ListHealthParams filters and pages through [Health.List]. The zero Scope is the
// tenant with the empty name.
type ListHealthParams struct {
	Scope Scope
	After uuid.UUID // zero starts at the beginning
	// Unwell leaves out endpoints none of whose latest 20 attempts failed, and Failing
	// those whose latest attempt did not fail.
	Unwell, Failing bool
	// Limit is how many to list at most. Zero, less, or over 1,000 means 1,000.
	Limit int
}

// List tells how endpoints fare, in the order of their creation. For the next page
// set p.After to the last id of this one.
func (s *Health) List(ctx context.Context, p ListHealthParams) ([]EndpointHealth, error) {
	if p.Limit <= 0 || p.Limit > maxListLimit {
		p.Limit = maxListLimit
	}
	recs, err := s.list(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("list endpoints: %w", err)
	}
	return s.read(ctx, recs)
}

func (s *Health) list(ctx context.Context, p ListHealthParams) ([]EndpointRecord, error) {
	if !p.Unwell && !p.Failing {
		return s.core.backend.ListEndpoints(ctx, ListEndpointsParams{Scope: p.Scope, After: p.After, Limit: p.Limit})
	}
	level := LevelUnsteady
	if p.Failing {
		level = LevelFailing
	}
	ids, err := s.core.backend.ListUnwell(ctx, ListUnwellParams{Scope: p.Scope, After: p.After, Level: level, Limit: p.Limit})
	if err != nil {
		return nil, err
	}
	recs := make([]EndpointRecord, 0, len(ids))
	for _, id := range ids {
		rec, err := s.core.backend.GetEndpoint(ctx, p.Scope, id)
		if errors.Is(err, ErrNotFound) {
			continue // deleted since
		}
		if err != nil {
			return nil, err
		}
		recs = append(recs, rec)
	}
	return recs, nil
}

// read returns the health of endpoints, in their order.
func (s *Health) read(ctx context.Context, recs []EndpointRecord) ([]EndpointHealth, error) {
	list := make([]EndpointHealth, len(recs))
	if len(recs) == 0 {
		return list, nil
	}
	now, err := s.core.now(ctx)
	if err != nil {
		return nil, err
	}
	ids := make([]uuid.UUID, len(recs))
	at := make(map[uuid.UUID]int, len(recs))
	for i := range recs {
		ids[i] = recs[i].ID
		at[ids[i]] = i
	}
	rows, err := s.core.backend.ReadHealth(ctx, ReadHealthParams{Now: now, Endpoints: ids, CountUpTo: countedBacklog + 1})
	if err != nil {
		return nil, fmt.Errorf("read the health of %d endpoints: %w", len(ids), err)
	}
	for i := range rows {
		k := at[rows[i].EndpointID]
		list[k] = healthOf(now, &recs[k], &rows[i])
	}
	return list, nil
}

// healthOf puts together what is known of an endpoint. What cannot be read, as only a
// hand in the database can bring about, is not known.
func healthOf(now time.Time, rec *EndpointRecord, row *HealthRow) EndpointHealth {
	h := EndpointHealth{EndpointID: rec.ID, Tenant: rec.Tenant, State: rec.State, Status: HealthUnknown, Score: 100}
	h.Backlog = min(row.Pending, countedBacklog)
	h.BacklogCapped = row.Pending > countedBacklog
	if !row.OldestDueAt.IsZero() {
		h.OldestDueAt = row.OldestDueAt
		h.Lag = max(now.Sub(row.OldestDueAt), 0)
	}
	var snap scheduler.Snapshot
	if json.Unmarshal(row.Circuit, &snap) != nil {
		snap = scheduler.Snapshot{}
	}
	h.Circuit = circuitOf(now, &snap.Circuit)
	var v vitals.State
	if json.Unmarshal(row.Vitals, &v) != nil {
		return h
	}
	h.Circuit.Flaps, h.Circuit.LastFlapAt = v.Flaps, v.LastFlap
	h.Status = statusOf(&v)
	h.Score = v.Score()
	h.UpdatedAt = v.At
	h.LastSuccessAt, h.LastFailureAt = v.LastSuccess, v.LastFailure
	h.LastStatus, h.LastClass = v.LastStatus, ErrorClass(v.LastClass)
	if v.Epoch.Equal(rec.StateChangedAt) || rec.State != EndpointActive {
		h.ConsecutiveFailures, h.FailingSince = v.Run.Failures, v.Run.Since
	}
	h.Hour, h.Day = countsOf(v.Hour(now)), countsOf(v.Day(now))
	h.Series = seriesOf(v.Fine, &v.FineCourse, now.Add(-time.Hour), vitals.Fine)
	h.Hourly = seriesOf(v.Coarse, &v.CoarseCourse, now.Add(-day), vitals.Coarse)
	recent := v.RecentLatencies()
	h.LatencySamples = recent.Count()
	h.LatencyP50, h.LatencyP95, h.LatencyP99 = recent.Percentile(0.50), recent.Percentile(0.95), recent.Percentile(0.99)
	h.DeadCount, h.OldestDeadAt = v.DeadSince(now.Add(-DefaultRetentionDead))
	h.SuspiciousSuccess = v.SuspiciousSuccess
	h.DegradedSince = v.DegradedSince
	if v.Suspected.Status != 0 {
		h.ConfigurationError = &ConfigurationError{Status: v.Suspected.Status, RotatedAt: v.Suspected.Rotated}
	}
	return h
}

func statusOf(v *vitals.State) HealthStatus {
	switch {
	case v.Outcomes.Known == 0:
		return HealthUnknown
	case v.Outcomes.Bits&1 != 0:
		return HealthFailing
	case v.Healthy():
		return HealthHealthy
	default:
		return HealthUnsteady
	}
}

func circuitOf(now time.Time, c *scheduler.CircuitSnapshot) CircuitHealth {
	h := CircuitHealth{State: CircuitClosed, Since: c.ClosedAt}
	if c.State == scheduler.Closed {
		return h
	}
	h.State, h.Since, h.NextProbeAt = CircuitOpen, c.OpenedAt, c.OpenUntil
	if c.ProbeUntil.After(now) {
		h.NextProbeAt = c.ProbeUntil
	}
	if !c.OpenUntil.After(now) {
		h.State = CircuitHalfOpen
	}
	return h
}

func countsOf(c vitals.Counts) ActivityCounts {
	return ActivityCounts{
		Attempts: c.Attempts(), Retries: c[vitals.Retries],
		Succeeded: c[vitals.OK], Failed: c.Failed(),
		Redirects: c[vitals.Redirect], ClientErrors: c[vitals.Client], ServerErrors: c[vitals.Server], NoResponse: c[vitals.Broken],
		Throttled: c[vitals.Throttled], Gone: c[vitals.Gone],
		Delivered: c[vitals.Delivered], Dead: c[vitals.Dead],
	}
}

// seriesOf shows the buckets that end after a time.
func seriesOf(buckets vitals.Buckets, course *vitals.Course, from time.Time, length time.Duration) []ActivityBucket {
	var list []ActivityBucket
	for i := range buckets {
		b := &buckets[i]
		if !b.At.Add(length).After(from) {
			continue
		}
		shown := ActivityBucket{Start: b.At, Length: length, ActivityCounts: countsOf(b.Counts)}
		if p, ok := course.Find(b.At); ok {
			shown.LatencyP50, shown.LatencyP95, shown.LatencyP99 = p.Durations()
		}
		list = append(list, shown)
	}
	return list
}

// Notices returns notices, newest first. For the next page set p.Before to the last id
// of this one. A limit of zero, less, or over 1,000 means 1,000.
func (s *Health) Notices(ctx context.Context, p ListNoticesParams) ([]Notice, error) {
	if p.Limit <= 0 || p.Limit > maxListLimit {
		p.Limit = maxListLimit
	}
	recs, err := s.core.backend.ListNotices(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("list notices: %w", err)
	}
	list := make([]Notice, len(recs))
	for i := range recs {
		list[i] = noticeFromRecord(&recs[i])
	}
	return list, nil
}
