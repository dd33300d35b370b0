package admin

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// The shapes of the JSON API: one for each thing, whoever asks. Doc tags go into the
// OpenAPI document.

// endpointShape is an endpoint. Header values, TLS keys and secrets are never in it,
// but for the secret in the answer that makes it.
type endpointShape struct {
	ID                 uuid.UUID             `json:"id"`
	Tenant             string                `json:"tenant" doc:"Whose endpoint it is."`
	URL                string                `json:"url" doc:"Where deliveries are posted to. Operators see … in the place of the query's values."`
	Types              []string              `json:"types" doc:"Patterns of the event types that it gets: *, order.*, or an exact type."`
	Description        string                `json:"description" doc:"For people."`
	Filter             json.RawMessage       `json:"filter,omitempty" doc:"The condition that payloads must meet."`
	HeaderNames        []string              `json:"header_names" doc:"The names of the headers sent with every request. Their values are never shown."`
	AdaptiveRate       bool                  `json:"adaptive_rate"`
	AtMostOnce         bool                  `json:"at_most_once" doc:"Send nothing again that may have arrived: a delivery may be dropped."`
	Envelope           bool                  `json:"envelope" doc:"The payload is sent as the data of a JSON object that says what the event is."`
	Burst              int                   `json:"burst" doc:"Requests that may go at once under rate_limit. 0: one second's worth."`
	MaxInFlight        int                   `json:"max_in_flight" doc:"Cap of the requests in flight. 0: the dispatcher's."`
	NewestFirst        bool                  `json:"newest_first" doc:"Drain a backlog from its newest end."`
	Ordering           webhook.Ordering      `json:"ordering,omitempty" doc:"In which order deliveries go; left out when in none."`
	RateLimit          float64               `json:"rate_limit" doc:"Requests per second. 0: no limit of its own."`
	ShedBacklog        int                   `json:"shed_backlog" doc:"How many deliveries may wait before new ones are recorded as shed. 0: the tenant's or the dispatcher's; negative: nothing is shed, unless the tenant's limits have it so."`
	TimeoutSeconds     float64               `json:"timeout_seconds" doc:"Limit of each attempt. 0: the dispatcher's."`
	Retry              *retryShape           `json:"retry,omitempty" doc:"A retry policy of its own. Left out: the dispatcher's."`
	TLS                *tlsShape             `json:"tls,omitempty" doc:"Certificates of its own."`
	State              webhook.EndpointState `json:"state"`
	StateReason        string                `json:"state_reason"`
	DisabledByOperator bool                  `json:"disabled_by_operator" doc:"True of a disabled endpoint that its tenant cannot enable."`
	StateChangedAt     time.Time             `json:"state_changed_at"`
	Secrets            []secretShape         `json:"secrets" doc:"The signing secrets in use, the current one first."`
	Secret             string                `json:"secret,omitempty" doc:"The signing secret. Shown once, where it was made."`
	Revision           int64                 `json:"revision" doc:"Grows with every change; the ETag is made of it."`
	CreatedAt          time.Time             `json:"created_at"`
	UpdatedAt          time.Time             `json:"updated_at"`
}

// secretShape tells of a signing secret without showing it.
type secretShape struct {
	ID        uuid.UUID `json:"id"`
	Hint      string    `json:"hint" doc:"The prefix and the last four characters."`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at,omitzero" doc:"When a secret that was rotated out stops signing."`
}

// tlsShape is an endpoint's own certificates. The key is never shown.
type tlsShape struct {
	CertificatePEM string `json:"certificate_pem" doc:"The client certificate and the rest of its chain."`
	RootCAsPEM     string `json:"root_cas_pem" doc:"The authorities that the endpoint's certificate must descend from."`
}

// retryShape is an endpoint's own retry policy, read and written.
type retryShape struct {
	Preset        webhook.RetryPreset `json:"preset,omitempty" doc:"A policy by name; instead of a schedule."`
	DelaysSeconds []float64           `json:"delays_seconds,omitempty" doc:"The times between attempts. n delays make n+1 attempts."`
	Jitter        float64             `json:"jitter,omitempty" doc:"Spreads each delay by that part of it: 0 to 1."`
	WindowSeconds float64             `json:"window_seconds,omitempty" doc:"How long after the beginning of the run attempts may start. 0: no window."`
	Statuses      []string            `json:"statuses,omitempty" doc:"The HTTP statuses after which there is another attempt, such as 503 or 5xx."`
}

func retryOf(r webhook.EndpointRetry) *retryShape {
	shape := &retryShape{Preset: r.Preset, Jitter: r.Jitter, WindowSeconds: r.Window.Seconds(), Statuses: r.Statuses}
	for _, d := range r.Delays {
		shape.DelaysSeconds = append(shape.DelaysSeconds, d.Seconds())
	}
	return shape
}

// retry is what the shape says to the library.
func (s *retryShape) retry() (webhook.EndpointRetry, error) {
	window, err := seconds("retry.window_seconds", s.WindowSeconds)
	if err != nil {
		return webhook.EndpointRetry{}, err
	}
	r := webhook.EndpointRetry{Preset: s.Preset, Jitter: s.Jitter, Window: window, Statuses: s.Statuses}
	for i, n := range s.DelaysSeconds {
		d, err := seconds("retry.delays_seconds["+strconv.Itoa(i)+"]", n)
		if err != nil {
			return webhook.EndpointRetry{}, err
		}
		r.Delays = append(r.Delays, d)
	}
	return r, nil
}

// endpoint is an endpoint as the visit may see it.
func (v *visit) endpoint(e webhook.Endpoint) endpointShape {
	shape := endpointShape{
		ID: e.ID, Tenant: e.Tenant, URL: v.url(e.URL), Types: e.Types, Description: e.Description, Filter: e.Filter,
		HeaderNames: headerNames(e.Headers), AdaptiveRate: e.AdaptiveRate, AtMostOnce: e.AtMostOnce, Envelope: e.Envelope, Burst: e.Burst,
		MaxInFlight: e.MaxInFlight, NewestFirst: e.NewestFirst, Ordering: e.Ordering, RateLimit: e.RateLimit, ShedBacklog: e.ShedBacklog, TimeoutSeconds: e.Timeout.Seconds(),
		State: e.State, StateReason: e.StateReason, DisabledByOperator: e.DisabledByOperator, StateChangedAt: e.StateChangedAt,
		Secrets: make([]secretShape, len(e.Secrets)), Revision: e.Revision, CreatedAt: e.CreatedAt, UpdatedAt: e.UpdatedAt,
	}
	for i, s := range e.Secrets {
		shape.Secrets[i] = secretShape{ID: s.ID, Hint: s.Hint, CreatedAt: s.CreatedAt, ExpiresAt: s.ExpiresAt}
	}
	if !e.Retry.IsZero() {
		shape.Retry = retryOf(e.Retry)
	}
	if !e.TLS.IsZero() {
		shape.TLS = &tlsShape{CertificatePEM: string(e.TLS.CertificatePEM), RootCAsPEM: string(e.TLS.RootCAsPEM)}
	}
	return shape
}

// endpointWithSecret is an endpoint in the answer that made its secret.
func (v *visit) endpointWithSecret(e webhook.Endpoint) endpointShape {
	shape := v.endpoint(e)
	shape.Secret = e.Secret.Reveal()
	return shape
}

// auditedEndpoint is an endpoint in an audit record: of the URL there is what no
// credential stands in.
func (v *visit) auditedEndpoint(e webhook.Endpoint) endpointShape {
	shape := v.endpoint(e)
	shape.URL = origin(e.URL)
	return shape
}

func headerNames(headers webhook.Headers) []string {
	names := make([]string, 0, len(headers))
	for name := range headers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// url is an endpoint's URL as the visit may see it. A customer's credential may stand
// in the query: members own it, operators do not.
func (v *visit) url(raw string) string {
	if !v.principal.operator {
		return raw
	}
	u, err := url.Parse(raw)
	if err != nil || u.RawQuery == "" {
		return raw
	}
	u.RawQuery = maskQuery(u.RawQuery)
	return u.String()
}

// origin is a URL's scheme and host.
func origin(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
}

// eventShape is an event without its payload.
type eventShape struct {
	ID              uuid.UUID            `json:"id"`
	Tenant          string               `json:"tenant"`
	Type            string               `json:"type"`
	ResourceID      string               `json:"resource_id,omitempty"`
	ResourceVersion int64                `json:"resource_version,omitempty"`
	ContentType     string               `json:"content_type" doc:"The media type of the payload."`
	PayloadBytes    int                  `json:"payload_bytes,omitempty" doc:"The size of the payload. Left out in lists."`
	PayloadFault    webhook.PayloadFault `json:"payload_fault,omitempty" doc:"Why the payload cannot be read from where large ones are kept: missing, damaged or unreachable. Left out in lists."`
	CreatedAt       time.Time            `json:"created_at"`
	FannedOut       bool                 `json:"fanned_out" doc:"False while it waits in the outbox."`
	Unmatched       bool                 `json:"unmatched" doc:"True when there was no endpoint to go to."`
}

func eventOf(e webhook.EventStatus) eventShape {
	return eventShape{
		ID: e.ID, Tenant: e.Tenant, Type: e.Type, ResourceID: e.ResourceID, ResourceVersion: e.ResourceVersion,
		ContentType: contentType(e.ContentType), PayloadBytes: e.PayloadSize(), PayloadFault: e.PayloadFault, CreatedAt: e.CreatedAt,
		FannedOut: e.FannedOut, Unmatched: e.Unmatched,
	}
}

func contentType(kind string) string {
	if kind == "" {
		return "application/json"
	}
	return kind
}

// deliveryShape is a delivery.
type deliveryShape struct {
	ID            uuid.UUID             `json:"id"`
	EventID       uuid.UUID             `json:"event_id"`
	EndpointID    uuid.UUID             `json:"endpoint_id"`
	Run           int                   `json:"run" doc:"0 for the first; each replay adds one. -1 for a test."`
	Tenant        string                `json:"tenant"`
	EventType     string                `json:"event_type"`
	State         webhook.DeliveryState `json:"state"`
	WaitReason    webhook.WaitReason    `json:"wait_reason,omitempty" doc:"Why a pending delivery has not been sent. due: nothing but its turn, or nothing that this process knows of, is in the way."`
	Reason        string                `json:"reason,omitempty" doc:"Why a final delivery ended as it did."`
	AttemptCount  int                   `json:"attempt_count"`
	NextAttemptAt time.Time             `json:"next_attempt_at,omitzero" doc:"When a pending delivery is due."`
	CreatedAt     time.Time             `json:"created_at"`
	FinishedAt    time.Time             `json:"finished_at,omitzero"`
	LastStatus    int                   `json:"last_status,omitempty" doc:"The HTTP status of the latest attempt."`
	LastClass     webhook.ErrorClass    `json:"last_class,omitempty" doc:"What went wrong with the latest attempt."`
	Skipped       bool                  `json:"ordering_skipped,omitempty" doc:"True when it went before an earlier one of its order, after the hold."`
	Attempts      []attemptShape        `json:"attempts,omitempty" doc:"The attempts, where one delivery is read."`
}

func deliveryOf(d webhook.Delivery) deliveryShape {
	return deliveryShape{
		ID: d.ID, EventID: d.EventID, EndpointID: d.EndpointID, Run: d.Run, Tenant: d.Tenant, EventType: d.EventType,
		State: d.State, Reason: d.Reason, AttemptCount: d.Attempts, NextAttemptAt: d.NextAttemptAt, CreatedAt: d.CreatedAt,
		FinishedAt: d.FinishedAt, LastStatus: d.LastStatus, LastClass: d.LastClass, Skipped: d.OrderingSkipped,
	}
}

// attemptShape is one attempt of a delivery.
type attemptShape struct {
	Number          int                `json:"number"`
	StartedAt       time.Time          `json:"started_at"`
	LatencyMS       float64            `json:"latency_ms"`
	Status          int                `json:"status,omitempty" doc:"The HTTP status; left out when no response came."`
	Class           webhook.ErrorClass `json:"class,omitempty" doc:"What went wrong; left out when nothing did."`
	Error           string             `json:"error,omitempty" doc:"The detail, for operators only."`
	Location        string             `json:"location,omitempty" doc:"Where a redirect pointed. It is not followed."`
	Excerpt         string             `json:"excerpt,omitempty" doc:"The beginning of the response's body: at most 1 KiB."`
	ExcerptEncoding string             `json:"excerpt_encoding,omitempty" doc:"base64 for an excerpt that is no text."`
	Truncated       bool               `json:"truncated" doc:"True when the body was longer than the excerpt."`
	BodySHA256      string             `json:"body_sha256,omitempty" doc:"Of what was read of a 2xx response's body."`
	Late            bool               `json:"late" doc:"True when the result came after the lease was lost: it changed nothing."`
}

// attempt is an attempt as the visit may see it. What names addresses is for operators.
func (v *visit) attempt(a webhook.Attempt) attemptShape {
	shape := attemptShape{
		Number: a.Number, StartedAt: a.StartedAt, LatencyMS: milliseconds(a.Latency), Status: a.Status,
		Class: a.Class, Location: a.Location, Truncated: a.Truncated, BodySHA256: hex.EncodeToString(a.BodyHash), Late: a.Late,
	}
	if v.principal.operator {
		shape.Error = a.Error
	}
	if utf8.Valid(a.Excerpt) {
		shape.Excerpt = string(a.Excerpt)
	} else {
		shape.Excerpt, shape.ExcerptEncoding = base64.StdEncoding.EncodeToString(a.Excerpt), "base64"
	}
	return shape
}

// maskQuery replaces the values of a query.
func maskQuery(query string) string {
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		name, _, ok := strings.Cut(pair, "=")
		if !ok {
			pairs[i] = "…"
			continue
		}
		pairs[i] = name + "=…"
	}
	return strings.Join(pairs, "&")
}
