package scheduler

import "time"

// ID identifies an endpoint. A uuid.UUID converts to it.
type ID = [16]byte

// Lane separates an endpoint's due deliveries by what they are. The values are
// those of the store's lanes.
type Lane uint8

// The lanes.
const (
	// Live holds first runs that were never attempted.
	Live Lane = iota
	// Retry holds first runs whose last attempt failed.
	Retry
	// Replay holds later runs, attempted or not.
	Replay
	lanes
)

// EndpointSpec is what the scheduler knows about an endpoint. Zero values mean
// the defaults of [Config].
type EndpointSpec struct {
	// Adaptive derives a rate limit from the observed successful throughput
	// once the endpoint shows overload. Rate, if set, is its ceiling.
	Adaptive bool
	// Burst is how many requests may go at once under Rate. Zero means one
	// second's worth, at least 1.
	Burst int
	// Host is scheme, host and port: the unit of the host cap.
	Host string
	// HostMax caps the requests in flight to Host. Of the endpoints on one host
	// the one that was set last decides. Negative: no cap.
	HostMax int
	// ID identifies the endpoint.
	ID ID
	// MaxInFlight caps the endpoint's requests in flight.
	MaxInFlight int
	// NewestFirst drains a backlog from its newest end. The backlog floor
	// still goes to the oldest.
	NewestFirst bool
	// Ordered endpoints are only ever granted their oldest deliveries, and are not
	// shed. Whoever records a result tells when that made the next delivery of a key
	// claimable.
	Ordered bool
	// Paused endpoints get nothing; what they have in flight ends by itself.
	Paused bool
	// Rate limits the requests per second. Zero: no limit.
	Rate float64
	// ShedBacklog replaces [Config.ShedBacklog] for this endpoint; negative:
	// it is never shed.
	ShedBacklog int64
	// Tenant is the unit of fairness.
	Tenant string
	// Timeout is the endpoint's total HTTP timeout. The circuit's latency
	// threshold depends on it.
	Timeout time.Duration
	// Weight is the tenant's weight in the fair share. Of the endpoints of one
	// tenant the one that was set last decides. Zero means 1.
	Weight float64
}

// TenantSpec limits a tenant as a whole.
type TenantSpec struct {
	// Burst is how many requests may go at once under Rate. Zero means one
	// second's worth, at least 1.
	Burst int
	// Rate limits the tenant's requests per second in this process. Zero: no
	// limit.
	Rate float64
	// Weight is the tenant's weight in the fair share. Zero leaves it as it is.
	Weight float64
}

// Grant tells the dispatcher what to claim for one endpoint. Its slots count as
// taken until [Scheduler.Settle]. There is at most one unsettled grant per
// endpoint. In terms of the store's lanes it asks for Retries of the retry
// lane, Oldest-Retries of the first lane from its oldest end, Newest of the
// first lane from its newest end, and Replay of the replay lane.
type Grant struct {
	// Endpoint is whose deliveries to claim.
	Endpoint ID
	// FreshSince bounds Newest where the store can: only deliveries that became
	// due at or after it are new. Zero: no bound.
	FreshSince time.Time
	// Newest live deliveries are taken from the newest end.
	Newest int
	// Oldest live deliveries, retries included, are taken oldest first.
	Oldest int
	// Probe marks the one request that an open circuit lets through. The grant
	// is then for exactly one delivery.
	Probe bool
	// Replay deliveries are claimed from replay runs, oldest first.
	Replay int
	// Retries is how many of Oldest are retries.
	Retries int
}

// Total is the number of slots of the grant.
func (g Grant) Total() int { return g.Oldest + g.Newest + g.Replay }

// firsts is how many of the grant are first attempts.
func (g Grant) firsts() int { return g.Oldest + g.Newest - g.Retries }

// Claimed is what a claim brought. A lane that was filled is taken to hold
// more; one that was not is taken to be empty until [Scheduler.Ready] or a
// result says otherwise.
type Claimed struct {
	// More tells that first attempts are still due although the grant was not
	// filled.
	More bool
	// Newest, Oldest and Replay count what was claimed on each side; Oldest
	// includes retries.
	Newest, Oldest, Replay int
	// NextDue is the earliest due time among the live deliveries left behind.
	// Zero: unknown.
	NextDue time.Time
	// ProbeHeld is set when another process holds the endpoint's probe: until
	// when. The claim of a probe then brought nothing.
	ProbeHeld time.Time
	// Retries is how many of Oldest came from the retry lane.
	Retries int
}

func (c Claimed) total() int  { return c.Oldest + c.Newest + c.Replay }
func (c Claimed) firsts() int { return c.Oldest + c.Newest - c.Retries }

// Attempt describes a claimed delivery that is about to be sent.
type Attempt struct {
	// Due is when the delivery became due. Zero: long ago.
	Due time.Time
	// Lane is the delivery's lane.
	Lane Lane
	// Number counts the delivery's attempts from 1. Above 1 it is a retry.
	Number int
	// Probe marks the delivery claimed by a grant with Probe.
	Probe bool
}

// Outcome sorts results by what they say about the endpoint (docs/design.md §4).
type Outcome uint8

// The outcomes.
const (
	// Neutral says nothing about the endpoint: cancelled by us, a fault of our
	// own, 410.
	Neutral Outcome = iota
	// Success is a 2xx, however slow.
	Success
	// Failure counts against the circuit.
	Failure
	// Throttled is a 429: it holds the endpoint back and opens nothing.
	Throttled
	// Blocked was refused by the egress guard: it opens nothing.
	Blocked
)

// Result is how a started request ended.
type Result struct {
	// Flight is what Start returned.
	Flight *Flight
	// Latency is the time from start to end of the request.
	Latency time.Duration
	// Outcome is what the result says about the endpoint.
	Outcome Outcome
	// RetryAfter is how long a 429 asked to wait. Zero: it did not say.
	RetryAfter time.Duration
	// RetryAt is when the delivery is due again. Zero: it is finished.
	RetryAt time.Time
}

// Change tells what a result changed about the endpoint, for the dispatcher to
// store, tell and report.
type Change struct {
	// Circuit is set when the circuit's stored state changed: opening, closing,
	// probe failed, slow-start step.
	Circuit bool
	// Closed is set when the circuit closed.
	Closed bool
	// Flapped is set when the circuit opened again shortly after closing.
	Flapped bool
	// Opened is set when the circuit opened, or stays open after a failed
	// probe.
	Opened bool
	// Throttled is set when a 429 holds the endpoint back.
	Throttled bool
}

// Wait is why an endpoint's pending deliveries wait, in the words of
// docs/design.md §1.
type Wait uint8

// The reasons.
const (
	// WaitNone: nothing waits, or it may be claimed now.
	WaitNone Wait = iota
	// WaitDue: not due yet.
	WaitDue
	// WaitRetryBudget: due retries are over the budget.
	WaitRetryBudget
	// WaitCircuitOpen: the circuit is open, or its probe is out.
	WaitCircuitOpen
	// WaitRateLimited: over the rate of endpoint or tenant, or after a 429.
	WaitRateLimited
	// WaitConcurrency: the slots of endpoint, host, replay lane or process are
	// taken.
	WaitConcurrency
	// WaitSlowLane: the endpoint is slow and the slow lane is full.
	WaitSlowLane
	// WaitPaused: paused.
	WaitPaused
	// WaitRemoved: the endpoint is gone.
	WaitRemoved
	waits
)

var waitWords = [waits]string{
	"none", "due", "retry_budget", "circuit_open", "rate_limited", "concurrency", "slow_lane", "paused", "removed",
}

// String returns the contract's word.
func (w Wait) String() string {
	if w >= waits {
		return "unknown"
	}
	return waitWords[w]
}
