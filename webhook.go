// Package webhook adds outgoing webhooks to a Go service: events are written to
// the service's own database inside its own transactions and delivered from
// there, signed, at least once, with a finite and visible retry contract.
//
// # The pieces
//
// A [Hooks] value, made by [New] from a [Store], is the library's handle.
// [Hooks.Enqueue] writes an [Event] into the transaction that it is given, so
// that the event commits or rolls back with the business change it tells of.
// [Hooks.Endpoints] manages where events go. A [Dispatcher], made by
// [Hooks.NewDispatcher] and run by the host for as long as the process lives,
// does the rest: it fans each event out to one delivery per subscribed endpoint
// and sends each delivery until an attempt succeeds or the retry contract ends.
// [Hooks.Deliveries] shows what became of each, and replays it on demand.
//
// # What is promised
//
// No event is lost silently: a committed event becomes deliveries, each of which
// ends in a state that can be read and replayed. Delivery is at least once, so a
// receiver may see an event twice and recognises it by its id, which is the same
// in every attempt. Nothing is promised of the order in which unordered
// deliveries arrive.
//
// An endpoint that is slow or failing is never made worse, nor does it delay
// another: requests in flight are capped per endpoint, per host and in all, and
// an endpoint that fails has its circuit opened and is left alone.
//
// # Words
//
// An event is one fact that the host commits. An endpoint is a tenant's URL with
// the event types it subscribes to. A delivery is one event on its way to one
// endpoint; an attempt is one HTTP request of a delivery. A tenant is the host's
// customer, and the unit of isolation.
package webhook

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// Event is one fact to tell subscribers about. It is what a host passes to
// [Hooks.Enqueue].
type Event struct {
	// ContentType is the media type of Payload. Empty means application/json,
	// and only then must Payload be valid JSON.
	ContentType string

	// IdempotencyKey makes enqueuing idempotent: a second event of the same
	// tenant with the same key is not written, and Enqueue returns the id of
	// the first. At most 255 bytes; empty means that every call writes an event.
	IdempotencyKey string

	// Payload is stored and sent byte for byte as given: never re-encoded,
	// re-ordered or trimmed. Its size is limited by [Config.MaxPayload].
	Payload json.RawMessage

	// ResourceID names what the event is about, such as an invoice's id.
	// Optional; at most 255 bytes.
	ResourceID string

	// ResourceVersion is a number that grows with each change of the resource,
	// so that a receiver can tell which of two events is the newer. Optional;
	// zero means that the host keeps no versions; negative is refused.
	ResourceVersion int64

	// Tenant is the customer whose endpoints receive the event. Required, unless
	// [Config.SingleTenant] is set; at most 128 bytes.
	Tenant string

	// Type says what happened, for instance "invoice.paid": words of letters,
	// digits and underscores joined by full stops, at most 128 bytes.
	Type string
}

// EnqueueResult tells what [Hooks.Enqueue] did with an event.
type EnqueueResult struct {
	// EventID is the event's id for ever: receivers get it in the webhook-id
	// header. For a duplicate it is the id of the first event.
	EventID uuid.UUID

	// Duplicate is true when the tenant already has an event with the same
	// idempotency key. Nothing was written.
	Duplicate bool
}

// DeliveryState is where a delivery stands.
type DeliveryState string

// The states of a delivery. Pending and in flight are unfinished; the others
// are final for the delivery's run.
const (
	// StatePending waits for its next attempt.
	StatePending DeliveryState = "pending"
	// StateInFlight is leased by a dispatcher that is sending it.
	StateInFlight DeliveryState = "in_flight"
	// StateDelivered got a 2xx response.
	StateDelivered DeliveryState = "delivered"
	// StateDead has used up its attempts or its window, or was refused for good.
	StateDead DeliveryState = "dead"
	// StateCancelled was withdrawn: by an operator, or because its endpoint was
	// disabled or deleted.
	StateCancelled DeliveryState = "cancelled"
	// StateShed was not sent because its endpoint could not keep up.
	StateShed DeliveryState = "shed"
)

// ReasonShed is the reason of a delivery that was shed.
const ReasonShed = "the endpoint does not keep up"

// Final reports whether a delivery in this state gets no further attempt.
func (s DeliveryState) Final() bool {
	switch s {
	case StateDelivered, StateDead, StateCancelled, StateShed:
		return true
	case StatePending, StateInFlight:
		return false
	}
	return false
}

// ReasonOutcomeUnknown is the reason of a dead delivery to an at-most-once endpoint
// ([EndpointParams.AtMostOnce]) of which nobody knows whether it arrived.
const ReasonOutcomeUnknown = "outcome_unknown"

// Delivery is one event on its way to one endpoint: unique by event, endpoint
// and run.
type Delivery struct {
	ID         uuid.UUID
	EventID    uuid.UUID
	EndpointID uuid.UUID
	// Run is 0 for the first delivery of an event to an endpoint; each replay
	// adds one. A test has TestRun.
	Run       int
	Tenant    string
	EventType string
	State     DeliveryState
	// Reason says why a final delivery ended as it did, in a few words; empty
	// for a delivered one.
	Reason string
	// Attempts counts the attempts recorded so far.
	Attempts int
	// NextAttemptAt is when a pending delivery is due; zero when it is final.
	NextAttemptAt time.Time
	CreatedAt     time.Time
	// FinishedAt is zero while the delivery is unfinished.
	FinishedAt time.Time
	// AwaitsTurn is true for a pending delivery that waits for an earlier one of its
	// ordering key to end; see [Ordering].
	AwaitsTurn bool
	// OrderingSkipped is true for a delivery that was sent, or is to be, before an
	// earlier one of its ordering key: that one had held it up for too long. Its
	// requests say so: webhook-ordering-skipped: true.
	OrderingSkipped bool
	// LastStatus and LastClass are those of the latest attempt.
	LastStatus int
	LastClass  ErrorClass
}

// StatusClass is what the status of an attempt begins with.
type StatusClass string

// The classes of status.
const (
	Status2xx StatusClass = "2xx"
	Status3xx StatusClass = "3xx"
	Status4xx StatusClass = "4xx"
	Status5xx StatusClass = "5xx" // also what begins with a higher digit
	// StatusNone is that of an attempt without a response, and of no attempt.
	StatusNone StatusClass = "none"
)

// Bounds returns the first and the last status of a class; ok is false for a class that
// does not exist.
func (c StatusClass) Bounds() (first, last int, ok bool) {
	switch c {
	case Status2xx:
		return 200, 299, true
	case Status3xx:
		return 300, 399, true
	case Status4xx:
		return 400, 499, true
	case Status5xx:
		return 500, 999, true
	case StatusNone:
		return 0, 199, true
	}
	return 0, 0, false
}

// ErrorClass says what kind of thing went wrong with an attempt. Empty means
// that nothing did. Attempts of the classes cancelled, proxy and internal are in
// the log, so that it shows why a delivery waits, but are nobody's failures: they
// are not counted, use up no retry, and the next attempt has the same number.
type ErrorClass string

// The error classes (docs/design.md §4). Customers may see them; the detail behind
// them is for operators.
const (
	ClassNone      ErrorClass = ""
	ClassDNS       ErrorClass = "dns"       // the name did not resolve
	ClassConnect   ErrorClass = "connect"   // no connection could be made
	ClassTLS       ErrorClass = "tls"       // the TLS handshake or the certificate failed
	ClassTimeout   ErrorClass = "timeout"   // the deadline of the attempt passed
	ClassReset     ErrorClass = "reset"     // the connection broke before a response
	ClassBlocked   ErrorClass = "blocked"   // the egress guard refused the target
	ClassProtocol  ErrorClass = "protocol"  // what came back was not a usable HTTP response
	ClassBody      ErrorClass = "body"      // the response's body could not be read
	ClassHTTP4xx   ErrorClass = "http_4xx"  // a status of 400 to 499
	ClassHTTP5xx   ErrorClass = "http_5xx"  // a status of 500 or more
	ClassRedirect  ErrorClass = "redirect"  // a status of 300 to 399; never followed
	ClassCancelled ErrorClass = "cancelled" // our own shutdown ended the attempt
	ClassProxy     ErrorClass = "proxy"     // the egress proxy failed; not the endpoint's fault
	// ClassOutcomeUnknown is that of the attempt of an at-most-once endpoint whose
	// process died: it may have arrived.
	ClassOutcomeUnknown ErrorClass = "outcome_unknown"

	ClassInternal ErrorClass = "internal" // our own fault, such as a secret that cannot be opened; nothing was sent
)

// Attempt is one HTTP request of a delivery, as kept in the log.
type Attempt struct {
	DeliveryID uuid.UUID
	EventID    uuid.UUID
	EndpointID uuid.UUID
	Tenant     string
	// Number counts from 1 within the delivery's run. An attempt that is not
	// counted has the number of the next one that is.
	Number    int
	StartedAt time.Time
	Latency   time.Duration
	// Status is the HTTP status, or 0 when no response came.
	Status int
	Class  ErrorClass
	// Error is the detail for operators. It never holds a secret, a payload or
	// a URL's credentials, but may name addresses: do not show it to tenants.
	Error string
	// Location is where a redirect, which is never followed, pointed.
	Location string
	// Excerpt is the beginning of the response body: at most 1 KiB of a
	// non-2xx response and 64 bytes of a 2xx one ([Config.KeepSuccessExcerpts]). Any
	// bytes; not always UTF-8.
	Excerpt []byte
	// Truncated is true when the body was longer than the excerpt.
	Truncated bool
	// BodyHash is the SHA-256 of what was read of a 2xx response's body.
	BodyHash []byte
	// Late is true when the result came after the delivery's lease was lost; it
	// changed nothing but this log.
	Late bool
}
