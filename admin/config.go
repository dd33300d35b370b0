package admin

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/outhook/webhook"
)

// What an Authorize function returns to refuse a request. Any other error refuses
// it as well, as [ErrForbidden] does, and is logged.
var (
	// ErrUnauthenticated says that nobody is logged in. The answer is 401 or, for a
	// page where a LoginURL is configured, the way to that.
	ErrUnauthenticated = errors.New("admin: not logged in")

	// ErrForbidden says that whoever is logged in must not be here. The answer is 403.
	ErrForbidden = errors.New("admin: not allowed")
)

// Hooks is what the handlers work on. Every [webhook.Hooks] is one, whatever the
// host's transaction type.
type Hooks interface {
	// These are the methods of [webhook.Hooks] of the same names.
	Backend() webhook.Backend
	Deliveries() *webhook.Deliveries
	Endpoints() *webhook.Endpoints
	Events() *webhook.Events
	Health() *webhook.Health
	Replays() *webhook.Replays
}

// Operator is somebody who runs the host and sees all of its tenants.
type Operator struct {
	// Name is who it is in audit records, such as an address or an account's id.
	// Required: an operator without a name is refused.
	Name string

	// ReadOnly lets the operator look and change nothing.
	ReadOnly bool
}

// Member is one of a tenant's own users.
type Member struct {
	// Name is who it is in audit records, such as an address or an account's id.
	// Required: a member without a name is refused.
	Name string

	// ReadOnly lets the member look and change nothing.
	ReadOnly bool

	// Tenant is whose endpoints, events and deliveries the member may see and change.
	// It is the only thing that decides that: nothing in a request does. Required,
	// unless [PortalConfig.SingleTenant] is set.
	Tenant string
}

// EventType tells people of a type of event that the host enqueues.
type EventType struct {
	// Name is the type, such as "invoice.paid". Required.
	Name string `json:"name" doc:"The type, such as invoice.paid."`
	// Description says when such an event occurs, in a sentence.
	Description string `json:"description,omitempty" doc:"When such an event occurs."`
}

// Config configures [New]. Authorize is required; the rest has defaults.
type Config struct {
	// ActionsPerMinute bounds how often a operator may ask for what
	// causes requests to receivers or long reads: tests, retries, replays and their dry
	// runs, new endpoints and secrets. More is answered with 429. Zero means 60; negative
	// means no bound. Each process counts for itself.
	ActionsPerMinute int

	// Audit is told of every change that was made. It is called before the change is
	// answered and should return soon; a panic in it is logged. Nil tells nobody.
	Audit func(context.Context, AuditRecord)

	// Authorize says who is asking, from the host's own login. It is called once for
	// every request, those for assets included, by many goroutines. Required: there is
	// no handler that is open to everybody. See [ErrUnauthenticated] and [ErrForbidden].
	Authorize func(*http.Request) (Operator, error)

	// Enqueue lets events be posted over HTTP: it enqueues one in a transaction of its
	// own, with [webhook.Hooks.Enqueue]. Nil, the default, leaves that route out.
	Enqueue func(context.Context, webhook.Event) (webhook.EnqueueResult, error)

	// EventTypes are the types that people choose from. Optional: without them types
	// are typed in.
	EventTypes []EventType

	// FrameAncestors are the origins that may show the pages in a frame, such as
	// "https://app.example". None may by default.
	FrameAncestors []string

	// Logger is told of what fails here. It never receives secrets or payloads. Nil
	// means no logging.
	Logger *slog.Logger

	// LoginURL is where a browser that is not logged in is sent to from a page: an
	// absolute URL, or a path that begins with "/". Empty answers 401.
	LoginURL string

	// Prefix is the path that the handler is mounted under, such as "/admin/webhooks".
	// Only routers that neither take the prefix off nor are a [http.ServeMux] need it.
	Prefix string

	// ReadOnly turns everything off that changes something, for everybody.
	ReadOnly bool

	// TrustedOrigins are other origins whose pages may post here, such as
	// "https://app.example". See [http.CrossOriginProtection.AddTrustedOrigin].
	TrustedOrigins []string
}

// PortalConfig configures [NewPortal]. Authorize is required; the rest has defaults.
type PortalConfig struct {
	// ActionsPerMinute bounds how often a tenant's members, together, may ask for what
	// causes requests to receivers or long reads: tests, retries, replays and their dry
	// runs, new endpoints and secrets. More is answered with 429. Zero means 60; negative
	// means no bound. Each process counts for itself.
	ActionsPerMinute int

	// Audit is told of every change that was made. It is called before the change is
	// answered and should return soon; a panic in it is logged. Nil tells nobody.
	Audit func(context.Context, AuditRecord)

	// Authorize says who is asking and whose data that may see, from the host's own
	// login. It is called once for every request, those for assets included, by many
	// goroutines. Required. See [ErrUnauthenticated] and [ErrForbidden].
	Authorize func(*http.Request) (Member, error)

	// Enqueue lets a tenant's users post events over HTTP, as [Config.Enqueue] does.
	// The event's tenant is the member's. Nil, the default, leaves that route out.
	Enqueue func(context.Context, webhook.Event) (webhook.EnqueueResult, error)

	// EventTypes are the types that people choose from. Optional: without them types
	// are typed in.
	EventTypes []EventType

	// FrameAncestors are the origins that may show the pages in a frame, such as
	// "https://app.example". None may by default.
	FrameAncestors []string

	// Logger is told of what fails here. It never receives secrets or payloads. Nil
	// means no logging.
	Logger *slog.Logger

	// LoginURL is where a browser that is not logged in is sent to from a page: an
	// absolute URL, or a path that begins with "/". Empty answers 401.
	LoginURL string

	// Prefix is the path that the handler is mounted under, such as
	// "/settings/webhooks". Only routers that neither take the prefix off nor are a
	// [http.ServeMux] need it.
	Prefix string

	// ReadOnly turns everything off that changes something, for everybody.
	ReadOnly bool

	// SingleTenant is for hosts that have set [webhook.Config.SingleTenant]: the tenant
	// of every member is the one with the empty name.
	SingleTenant bool

	// TrustedOrigins are other origins whose pages may post here, such as
	// "https://app.example". See [http.CrossOriginProtection.AddTrustedOrigin].
	TrustedOrigins []string
}

// settings is what a Handler is made from: either kind of configuration, checked.
type settings struct {
	object           string // what errors call the configuration
	actionsPerMinute int    // 0: no bound
	audit            func(context.Context, AuditRecord)
	authorize        func(*http.Request) (principal, error)
	enqueue          func(context.Context, webhook.Event) (webhook.EnqueueResult, error)
	eventTypes       []EventType
	frameAncestors   []string
	log              *slog.Logger
	loginURL         string
	operators        bool
	prefix           string
	readOnly         bool
	trustedOrigins   []string
}

func (c Config) settings() (*settings, error) {
	s := &settings{
		object: "Config", actionsPerMinute: c.ActionsPerMinute, audit: c.Audit, enqueue: c.Enqueue, eventTypes: c.EventTypes, frameAncestors: c.FrameAncestors,
		log: c.Logger, loginURL: c.LoginURL, operators: true, prefix: c.Prefix, readOnly: c.ReadOnly, trustedOrigins: c.TrustedOrigins,
	}
	if c.Authorize == nil {
		return nil, s.invalid("Authorize", "is missing: without it the handler would be open to everybody")
	}
	s.authorize = func(r *http.Request) (principal, error) {
		o, err := c.Authorize(r)
		return principal{name: o.Name, operator: true, readOnly: o.ReadOnly}, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	return s, nil
}

func (c PortalConfig) settings() (*settings, error) {
	s := &settings{
		object: "PortalConfig", actionsPerMinute: c.ActionsPerMinute, audit: c.Audit, enqueue: c.Enqueue, eventTypes: c.EventTypes, frameAncestors: c.FrameAncestors,
		log: c.Logger, loginURL: c.LoginURL, prefix: c.Prefix, readOnly: c.ReadOnly, trustedOrigins: c.TrustedOrigins,
	}
	if c.Authorize == nil {
		return nil, s.invalid("Authorize", "is missing: without it the portal would be open to everybody")
	}
	s.authorize = func(r *http.Request) (principal, error) {
		m, err := c.Authorize(r)
		switch {
		case err != nil:
		case c.SingleTenant && m.Tenant != "":
			err = errors.New("the member has a tenant, and PortalConfig.SingleTenant is set")
		case !c.SingleTenant && m.Tenant == "":
			err = errors.New("the member has no tenant")
		}
		return principal{name: m.Name, tenant: m.Tenant, readOnly: m.ReadOnly}, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	return s, nil
}

// check refuses what makes no sense, and fills in defaults.
func (s *settings) check() error {
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	switch {
	case s.actionsPerMinute == 0:
		s.actionsPerMinute = defaultActionsPerMinute
	case s.actionsPerMinute < 0:
		s.actionsPerMinute = 0
	}
	if s.prefix != "" && (!strings.HasPrefix(s.prefix, "/") || strings.ContainsAny(s.prefix, "?#{}")) {
		return s.invalid("Prefix", `is no path that begins with "/"`)
	}
	s.prefix = strings.TrimRight(s.prefix, "/")
	if u := s.loginURL; u != "" && !strings.HasPrefix(u, "/") && !strings.HasPrefix(u, "https://") && !strings.HasPrefix(u, "http://") {
		return s.invalid("LoginURL", `is neither an absolute URL nor a path that begins with "/"`)
	}
	for _, origin := range s.frameAncestors {
		if origin == "" || strings.ContainsAny(origin, " ;,\t\r\n'\"") {
			return s.invalid("FrameAncestors", "has an entry that is no origin")
		}
	}
	for _, t := range s.eventTypes {
		if t.Name == "" {
			return s.invalid("EventTypes", "has an entry without a name")
		}
	}
	return nil
}

func (s *settings) invalid(field, problem string) error {
	return &webhook.InvalidError{Field: s.object + "." + field, Problem: problem}
}

// principal is who asks: an operator or a tenant's member.
type principal struct {
	name     string
	operator bool
	readOnly bool
	tenant   string // of a member
}
