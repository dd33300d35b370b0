package webhook

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/outhook/webhook/internal/egress"
	"github.com/outhook/webhook/internal/machine"
	"github.com/outhook/webhook/internal/timeid"
)

// DefaultMaxPayload is the default of [Config.MaxPayload]: 256 KiB.
const DefaultMaxPayload = 256 << 10

// Config configures [New]. Its zero value is complete but for Secrets, which
// must be chosen.
type Config struct {
	// AllowHeaders are the names that endpoints' own headers may have, in any case;
	// one that ends in "*" allows all names that begin so, such as "X-*". Nil allows
	// every name that is not refused in any case: see [EndpointParams.Headers]. A list
	// without a name allows none. They are judged when headers are set, so a narrower
	// list leaves those that are stored as they are.
	AllowHeaders []string

	// Authenticator adds authorisation to requests. Nil adds none.
	Authenticator Authenticator

	// Clock is for tests; nil means the database's time.
	Clock Clock

	// KeepSuccessExcerpts keeps of the body of a 2xx as much as of another answer,
	// 1 KiB, in the log. False keeps 64 bytes and a hash, enough to recognise a captive
	// page or a changed answer by.
	KeepSuccessExcerpts bool

	// Logger receives one record per attempt and whatever an operator should
	// know. It never receives secrets or payloads. Nil means no logging.
	Logger *slog.Logger

	// MaxPayload is the largest payload that Enqueue accepts, in bytes. Zero
	// means DefaultMaxPayload, and with a PayloadStore DefaultMaxStoredPayload;
	// negative is refused. Requests in flight hold their payloads in memory.
	MaxPayload int

	// PayloadStore keeps payloads that are larger than PayloadThreshold outside of the
	// database: see [PayloadStore]. Nil keeps all of them in the database. All processes
	// on one database must have the same; it cannot be taken away while events refer to
	// it.
	PayloadStore PayloadStore

	// PayloadThreshold is the largest payload that is kept in the database all the same,
	// in bytes. Zero means DefaultPayloadThreshold; negative is refused, and so is any
	// without a PayloadStore.
	PayloadThreshold int

	// Redaction takes out of excerpts and payloads what is not to be kept or shown.
	// Credentials that a request carried are taken out of excerpts in any case.
	Redaction Redaction

	// Secrets seals the endpoints' signing secrets and custom headers at rest.
	// Required: use [NewKeyring], an own [SecretBox] in front of a KMS, or, to
	// choose no protection explicitly, [InsecurePlaintext].
	Secrets SecretBox

	// Signer signs every request. Nil means [StandardWebhooks]. A [SignerFunc] can pick
	// the format by the endpoint.
	Signer Signer

	// SingleTenant is for hosts without tenants: events and endpoints then have
	// an empty Tenant. False means that an empty Tenant is refused.
	SingleTenant bool

	// TestsWithoutDispatcher lets [Endpoints.SendTest] send in a process in which no
	// dispatcher runs: one that serves pages, or a command. The caps of the dispatchers
	// are then exceeded by the one request, and an endpoint without a timeout of its own
	// has [DefaultRequestTimeout]. False means that such a test is refused.
	TestsWithoutDispatcher bool

	// Tracer connects events and attempts with the host's traces. Nil means no tracing.
	Tracer Tracer

	// Transport is what requests go through. Nil means [NewTransport] with its zero
	// configuration: public addresses over HTTPS only. Give a Transport with other
	// rules, one that is wrapped ([Transport.Wrap]), or any other RoundTripper, which
	// then is responsible for the addresses that it connects to.
	Transport http.RoundTripper
}

// Hooks is the library's handle: it enqueues events, manages endpoints and
// makes dispatchers, all on one [Store]. It is safe for concurrent use. Make it
// with [New].
type Hooks[Tx any] struct {
	core  *core
	store Store[Tx]
}

// core is what does not depend on the host's transaction type.
type core struct {
	allow       []string      // names of endpoints' own headers; nil: all
	auth        Authenticator // nil: none
	backend     Backend
	box         SecretBox
	client      *egress.Client
	clock       Clock // nil: the database's time
	deliveries  *Deliveries
	endpoints   *Endpoints
	events      *Events
	health      *Health
	keepSuccess bool
	log         *slog.Logger
	limits      eventLimits
	payloads    *payloads
	machine     machine.Clock
	redaction   Redaction
	replays     *Replays
	running     running
	tests       timeid.Generator // ids of tests
	testsAlone  bool             // without a dispatcher, too
	signer      Signer
	tracer      Tracer // nil: none
	waker       *waker
}

// New makes the library's handle from a store and a configuration. It does no
// I/O. Errors are [InvalidError] values that name the field.
func New[Tx any](store Store[Tx], cfg Config) (*Hooks[Tx], error) {
	if store == nil {
		return nil, invalid("store", "is nil")
	}
	c, err := newCore(store, cfg)
	if err != nil {
		return nil, err
	}
	return &Hooks[Tx]{core: c, store: store}, nil
}

func newCore(backend Backend, cfg Config) (*core, error) {
	if cfg.Secrets == nil {
		return nil, invalid("Config.Secrets", "is missing: give a Keyring, another SecretBox, or InsecurePlaintext()")
	}
	if err := validateSecretBox(cfg.Secrets); err != nil {
		return nil, &InvalidError{Field: "Config.Secrets", Problem: "is unusable: " + err.Error(), cause: err}
	}
	if cfg.Signer == nil {
		cfg.Signer = StandardWebhooks()
	}
	if err := validateSigner(cfg.Signer); err != nil {
		return nil, &InvalidError{Field: "Config.Signer", Problem: "is unusable: " + err.Error(), cause: err}
	}
	if cfg.Authenticator != nil {
		if err := validateAuthenticator(cfg.Authenticator); err != nil {
			return nil, &InvalidError{Field: "Config.Authenticator", Problem: "is unusable: " + err.Error(), cause: err}
		}
	}
	if err := checkAllowHeaders(cfg.AllowHeaders); err != nil {
		return nil, err
	}
	kept, err := newPayloads(&cfg)
	if err != nil {
		return nil, err
	}
	client, err := newEgressClient(cfg.Transport, DefaultRequestTimeout)
	if err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	notifier, _ := backend.(Notifier)
	machine, clock := machineClock(cfg.Clock)
	c := &core{
		allow:       slices.Clone(cfg.AllowHeaders),
		auth:        cfg.Authenticator,
		backend:     backend,
		box:         cfg.Secrets,
		client:      client,
		clock:       clock,
		machine:     machine,
		keepSuccess: cfg.KeepSuccessExcerpts,
		log:         cfg.Logger,
		payloads:    kept,
		redaction:   cfg.Redaction,
		signer:      cfg.Signer,
		testsAlone:  cfg.TestsWithoutDispatcher,
		tracer:      cfg.Tracer,
		limits:      eventLimits{maxPayload: cfg.MaxPayload, singleTenant: cfg.SingleTenant},
		waker:       newWaker(notifier),
	}
	c.deliveries = &Deliveries{core: c}
	c.endpoints = &Endpoints{core: c}
	c.events = &Events{core: c}
	c.health = &Health{core: c}
	c.replays = &Replays{core: c}
	return c, nil
}

// Backend returns the store without the host's transaction type: what reads of
// the delivery log go through.
func (h *Hooks[Tx]) Backend() Backend { return h.core.backend }

// Endpoints returns the service that manages endpoints.
func (h *Hooks[Tx]) Endpoints() *Endpoints { return h.core.endpoints }

// Deliveries returns the service that reads, cancels and repeats deliveries.
func (h *Hooks[Tx]) Deliveries() *Deliveries { return h.core.deliveries }

// Health returns the service that tells how endpoints fare.
func (h *Hooks[Tx]) Health() *Health { return h.core.health }

// Events returns the service that reads events.
func (h *Hooks[Tx]) Events() *Events { return h.core.events }

// Replays returns the service that manages replay jobs.
func (h *Hooks[Tx]) Replays() *Replays { return h.core.replays }

// Wake tells dispatchers that events were committed. Calling it after commit
// spares them the few milliseconds by which they would otherwise look too early
// or too late; nothing depends on it.
func (h *Hooks[Tx]) Wake() { h.core.waker.wake() }

// Close stops the wake-ups that Enqueue arms, and waits for one that is being
// sent. It does not close the store. Call it when the process stops; enqueuing
// after it works, and dispatchers then find the events by polling.
func (h *Hooks[Tx]) Close() { h.core.waker.close() }

// now returns the time for writes outside of the dispatcher.
func (c *core) now(ctx context.Context) (time.Time, error) {
	if c.clock != nil {
		return c.clock.Now().UTC(), nil
	}
	now, err := c.backend.Now(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the database's time: %w", err)
	}
	return now, nil
}
