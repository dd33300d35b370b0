package admin

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/outhook/webhook/admin/internal/scope"
)

// Handler serves the JSON API below api/ and the pages elsewhere. It is an
// http.Handler; make it with [New] or [NewPortal].
type Handler struct {
	*settings

	csp       string
	cross     *http.CrossOriginProtection
	limiter   *limiter
	mux       *http.ServeMux
	openAPI   json.RawMessage
	routes    []route
	source    *scope.Source // used by authorize alone: all else has a visit's view
	templates templates
}

// New makes the handler for operators, who see all tenants. It does no I/O. A
// configuration without Authorize, or one that makes no sense, gives a
// [webhook.InvalidError].
func New(hooks Hooks, cfg Config) (*Handler, error) {
	s, err := cfg.settings()
	if err != nil {
		return nil, err
	}
	return newHandler(hooks, s)
}

// NewPortal makes the handler for the users of tenants, each of whom sees one. It
// does no I/O. A configuration without Authorize, or one that makes no sense, gives
// a [webhook.InvalidError].
func NewPortal(hooks Hooks, cfg PortalConfig) (*Handler, error) {
	s, err := cfg.settings()
	if err != nil {
		return nil, err
	}
	return newHandler(hooks, s)
}

func newHandler(hooks Hooks, s *settings) (*Handler, error) {
	if hooks == nil {
		return nil, s.invalid("hooks", "is nil")
	}
	h := &Handler{
		settings: s,
		csp:      contentSecurityPolicy(s.frameAncestors),
		cross:    http.NewCrossOriginProtection(),
		limiter:  newLimiter(s.actionsPerMinute),
		mux:      http.NewServeMux(),
		source:   scope.NewSource(hooks),
	}
	for _, origin := range s.trustedOrigins {
		if err := h.cross.AddTrustedOrigin(origin); err != nil {
			return nil, s.invalid("TrustedOrigins", "has an entry that is no origin: "+err.Error())
		}
	}
	var err error
	if h.templates, err = parseTemplates(); err != nil {
		return nil, err
	}
	h.routes = append(h.apiRoutes(), h.pageRoutes()...)
	if h.openAPI, err = openAPIOf(h.routes, h.operators); err != nil {
		return nil, fmt.Errorf("describe the API: %w", err)
	}
	for _, rt := range h.routes {
		h.mux.HandleFunc(rt.method+" "+rt.pattern, func(w http.ResponseWriter, r *http.Request) { h.serve(w, r, rt) })
	}
	return h, nil
}

// route is one method on one path.
type route struct {
	method  string
	pattern string // of http.ServeMux, below the mount point
	// mutates is true of what changes data: nobody who may only read gets there.
	mutates bool
	// limited is true of what a principal may ask for only so often.
	limited bool
	// maxBody replaces maxBodyBytes where it is not zero.
	maxBody int64
	serve   func(*visit) error
	// op describes a route of the API in the OpenAPI document; nil for pages.
	op *operation
}
