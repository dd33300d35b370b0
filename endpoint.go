package webhook

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
)

// EndpointState says whether an endpoint is being sent to.
type EndpointState string

// The states of an endpoint.
const (
	// EndpointActive is sent to.
	EndpointActive EndpointState = "active"
	// EndpointPaused keeps its deliveries pending and is sent nothing.
	EndpointPaused EndpointState = "paused"
	// EndpointDisabled is sent nothing, and its deliveries are cancelled.
	EndpointDisabled EndpointState = "disabled"
)

// Limits of an endpoint's fields.
const (
	maxPatterns         = 100
	maxDescriptionBytes = 1024
	maxFilterBytes      = 16 << 10
	maxEndpointTimeout  = 30 * time.Second // docs/design.md §2
	maxEndpointInFlight = 10_000
	maxEndpointRate     = 1e6
)

// Endpoint is a tenant's URL with the events it subscribes to.
type Endpoint struct {
	ID uuid.UUID

	// EndpointParams are the endpoint's settings. Secret is zero except in what
	// Create and RotateSecret return.
	EndpointParams

	State EndpointState
	// StateReason says why the state is what it is; empty for a new endpoint.
	StateReason    string
	StateChangedAt time.Time
	// DisabledByOperator is true of a disabled endpoint that its tenant cannot enable;
	// see [Endpoints.Disable].
	DisabledByOperator bool
	// Secrets tells of the signing secrets that are in use, the current one
	// first, without showing them.
	Secrets []SecretInfo
	// Revision grows with every change. Give it to [EndpointUpdate.IfRevision]
	// to refuse an update that would overwrite someone else's.
	Revision  int64
	CreatedAt time.Time
	UpdatedAt time.Time
}

// EndpointParams describe an endpoint to [Endpoints.Create].
type EndpointParams struct {
	// Tenant owns the endpoint and alone sends events to it. Required, unless
	// [Config.SingleTenant] is set.
	Tenant string

	// URL is where deliveries are posted to. It must keep the rules of
	// [Config.Transport]; by default that is a public https URL. It is stored as it
	// will be sent: host in lower-case ASCII, no default port, no fragment.
	URL string

	// Types are the patterns of the event types subscribed to: "*" for all,
	// "order.*" for whatever begins with "order.", or an exact type. At least
	// one, at most 100. An event that several of them match is delivered once.
	Types []string

	// Description is for people. At most 1,024 bytes.
	Description string

	// Filter narrows the subscription to payloads that meet a condition, such as
	// {"data.amount": {"$gte": 1000}}, in the language of docs/filters.md: dotted
	// paths with $eq, $ne, $gt, $gte, $lt, $lte, $in, $nin, $exists and $prefix,
	// joined by $and, $or and $not. Empty means all. At most 16 KiB.
	Filter json.RawMessage

	// Headers are sent with every request. Names that the protocol or the
	// signature need are refused, and those that [Config.AllowHeaders] leaves out; at most 20 headers and 4 KiB in all. They are
	// sealed at rest like secrets.
	Headers Headers

	// AtMostOnce sends each delivery at most once instead of at least once: what may
	// have reached the receiver is never sent again, unless it answered with a status
	// that Retry.Statuses lists. So a delivery may be dropped: when no answer comes, or
	// the process that sent it dies, it ends as dead with [ReasonOutcomeUnknown], and
	// may be replayed by hand. A connection that could not be made is tried again.
	// Each attempt opens a connection of its own and costs the database a write more.
	AtMostOnce bool

	// AdaptiveRate finds a rate limit by itself once the endpoint shows that it is
	// overloaded, from the throughput that it answered with success. RateLimit,
	// where it is set, stays the upper bound.
	AdaptiveRate bool

	// Burst is how many requests may go at once under RateLimit. Zero means one
	// second's worth, at least 1; at most 10,000.
	Burst int

	// Envelope puts the payload into a JSON object that says what the event is:
	//
	//	{"id":…,"type":…,"timestamp":…,"idempotency_key":…,"resource_id":…,"resource_version":…,"data":…}
	//
	// data is the payload, byte for byte; resource_id and resource_version are left out
	// where the event has none. A payload that is not JSON is data_base64, beside its
	// content_type. The body is then application/json, and what is signed.
	Envelope bool

	// IdempotencyKey makes Create idempotent for 24 hours or a little more: a second call
	// of the same tenant with the same key makes nothing and returns the endpoint that the
	// first made, as it is now and without its secret. It gives ErrConflict when that one
	// is deleted, or was made with another URL or other types. At most 255 bytes; not
	// returned by reads. Empty means that every call makes an endpoint.
	IdempotencyKey string

	// MaxInFlight caps the requests in flight to this endpoint. Zero means the
	// dispatcher's [DispatcherConfig.MaxInFlightPerEndpoint].
	MaxInFlight int

	// NewestFirst drains a backlog from its newest end; the dispatcher's
	// [IsolationConfig.BacklogFloor] still goes to the oldest. By default the oldest
	// go first, beside what is new.
	NewestFirst bool

	// Ordering says in which order deliveries go. A change holds for deliveries that
	// are made after it.
	Ordering Ordering

	// RateLimit is how many requests per second are sent to the endpoint; over it
	// deliveries wait, and none is dropped. Zero means no limit, or the tenant's
	// [TenantLimits.EndpointRateLimit]; at most 1,000,000.
	RateLimit float64

	// Retry says how deliveries to this endpoint are retried. Zero means as
	// [DispatcherConfig.Retry] says.
	Retry EndpointRetry

	// ShedBacklog is how many deliveries may wait for their first attempt while the
	// endpoint answers but does not keep up, before new ones are shed: see
	// [IsolationConfig.ShedBacklog]. Zero means the tenant's
	// [TenantLimits.ShedBacklog], or the dispatcher's; negative: nothing is shed,
	// unless the tenant's says otherwise.
	ShedBacklog int

	// Secret signs the requests. Zero means that one is generated. Create and
	// RotateSecret return it once; reads leave it zero.
	Secret Secret

	// TLS holds a client certificate or certificate authorities for this endpoint.
	// The zero value means none.
	TLS EndpointTLS

	// Timeout bounds each attempt as a whole. Zero means the dispatcher's
	// [DispatcherConfig.RequestTimeout]; at most 30 s.
	Timeout time.Duration
}

// SecretInfo tells of a signing secret without showing it.
type SecretInfo struct {
	ID        uuid.UUID
	Hint      string // the prefix and the last four characters
	CreatedAt time.Time
	// ExpiresAt is when a secret that was rotated out stops signing; zero for
	// the current one.
	ExpiresAt time.Time
}

// EndpointUpdate says what [Endpoints.Update] changes. Nil fields stay.
type EndpointUpdate struct {
	URL          *string
	Types        []string
	Description  *string
	Filter       *json.RawMessage
	Headers      *Headers
	AdaptiveRate *bool
	AtMostOnce   *bool
	Burst        *int
	Envelope     *bool
	MaxInFlight  *int
	NewestFirst  *bool
	Ordering     *Ordering
	RateLimit    *float64
	ShedBacklog  *int
	Retry        *EndpointRetry // the zero value means DispatcherConfig.Retry
	Timeout      *time.Duration
	TLS          *EndpointTLS // the zero value takes the settings away

	// IfRevision, unless zero, refuses the update with ErrConflict when the
	// endpoint's revision is a different one.
	IfRevision int64
}

func (u EndpointUpdate) applyTo(p *EndpointParams) {
	set(&p.URL, u.URL)
	set(&p.Description, u.Description)
	set(&p.Filter, u.Filter)
	set(&p.Headers, u.Headers)
	set(&p.AdaptiveRate, u.AdaptiveRate)
	set(&p.AtMostOnce, u.AtMostOnce)
	set(&p.Burst, u.Burst)
	set(&p.Envelope, u.Envelope)
	set(&p.MaxInFlight, u.MaxInFlight)
	set(&p.NewestFirst, u.NewestFirst)
	set(&p.Ordering, u.Ordering)
	set(&p.RateLimit, u.RateLimit)
	set(&p.ShedBacklog, u.ShedBacklog)
	set(&p.Retry, u.Retry)
	set(&p.Timeout, u.Timeout)
	set(&p.TLS, u.TLS)
	if u.Types != nil {
		p.Types = u.Types
	}
}

func set[T any](dst, src *T) {
	if src != nil {
		*dst = *src
	}
}

// endpointOptions is the JSON document in EndpointRecord.Options: what no SQL
// statement needs to see.
type endpointOptions struct {
	Description  string          `json:"description,omitempty"`
	Filter       json.RawMessage `json:"filter,omitempty"`
	AdaptiveRate bool            `json:"adaptive_rate,omitempty"`
	AtMostOnce   bool            `json:"at_most_once,omitempty"`
	Burst        int             `json:"burst,omitempty"`
	Envelope     bool            `json:"envelope,omitempty"`
	MaxInFlight  int             `json:"max_in_flight,omitempty"`
	NewestFirst  bool            `json:"newest_first,omitempty"`
	RateLimit    float64         `json:"rate_limit,omitempty"`
	ShedBacklog  int             `json:"shed_backlog,omitempty"`
	Retry        EndpointRetry   `json:"retry,omitzero"`
	TimeoutMS    int64           `json:"timeout_ms,omitempty"`
	// Pauses and ByOperator are not among the settings; see pause, and
	// Endpoint.DisabledByOperator.
	Pauses     []pause `json:"pauses,omitempty"`
	ByOperator bool    `json:"by_operator,omitempty"`
}

// sealedSecret is one entry of the JSON document in EndpointRecord.Secrets.
type sealedSecret struct {
	ID        uuid.UUID `json:"id"`
	Sealed    []byte    `json:"sealed"`
	Hint      string    `json:"hint"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// endpointFromRecord reads an endpoint as stored. Headers and TLS settings
// stay sealed, and are not part of the result.
func endpointFromRecord(r *EndpointRecord) (Endpoint, error) {
	var o endpointOptions
	if len(r.Options) > 0 {
		if err := json.Unmarshal(r.Options, &o); err != nil {
			return Endpoint{}, fmt.Errorf("read options of endpoint %s: %w", r.ID, err)
		}
	}
	secrets, err := secretsOf(r)
	if err != nil {
		return Endpoint{}, err
	}
	e := Endpoint{
		ID: r.ID,
		EndpointParams: EndpointParams{
			Tenant:       r.Tenant,
			URL:          r.URL,
			Types:        slices.Clone(r.Types),
			Description:  o.Description,
			Filter:       o.Filter,
			AdaptiveRate: o.AdaptiveRate,
			AtMostOnce:   o.AtMostOnce,
			Burst:        o.Burst,
			Envelope:     o.Envelope,
			MaxInFlight:  o.MaxInFlight,
			NewestFirst:  o.NewestFirst,
			Ordering:     r.Ordering,
			RateLimit:    o.RateLimit,
			ShedBacklog:  o.ShedBacklog,
			Retry:        o.Retry,
			Timeout:      time.Duration(o.TimeoutMS) * time.Millisecond,
		},
		State:              r.State,
		StateReason:        r.StateReason,
		StateChangedAt:     r.StateChangedAt,
		DisabledByOperator: o.ByOperator,
		Revision:           r.Revision,
		CreatedAt:          r.CreatedAt,
		UpdatedAt:          r.UpdatedAt,
	}
	for _, s := range secrets {
		e.Secrets = append(e.Secrets, SecretInfo{ID: s.ID, Hint: s.Hint, CreatedAt: s.CreatedAt, ExpiresAt: s.ExpiresAt})
	}
	return e, nil
}

func secretsOf(r *EndpointRecord) ([]sealedSecret, error) {
	var secrets []sealedSecret
	if err := json.Unmarshal(r.Secrets, &secrets); err != nil {
		return nil, fmt.Errorf("read secrets of endpoint %s: %w", r.ID, err)
	}
	return secrets, nil
}

// putParams writes the parameters that are not sealed, Tenant apart, into the
// record.
func putParams(r *EndpointRecord, p *EndpointParams) error {
	before := optionsOf(r)
	o := endpointOptions{
		Description:  p.Description,
		Filter:       p.Filter,
		AdaptiveRate: p.AdaptiveRate,
		AtMostOnce:   p.AtMostOnce,
		Burst:        p.Burst,
		Envelope:     p.Envelope,
		MaxInFlight:  p.MaxInFlight,
		NewestFirst:  p.NewestFirst,
		RateLimit:    p.RateLimit,
		ShedBacklog:  p.ShedBacklog,
		Retry:        p.Retry,
		TimeoutMS:    p.Timeout.Milliseconds(),
		Pauses:       before.Pauses,
		ByOperator:   before.ByOperator,
	}
	if err := putOptions(r, &o); err != nil {
		return err
	}
	r.URL = p.URL
	r.Ordering = p.Ordering
	r.Types = slices.Compact(slices.Sorted(slices.Values(p.Types)))
	return nil
}

func cloneHeaders[H ~map[string]string](h H) H {
	if len(h) == 0 {
		return nil
	}
	return maps.Clone(h)
}
