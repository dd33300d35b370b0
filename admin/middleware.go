package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
)

// ServeHTTP answers a request. Whatever happens, the answer carries the security
// headers; who asks is settled before anything else is looked at.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.secure(w.Header())
	local := h.localPath(r)
	v := &visit{handler: h, w: w, r: r, local: local, base: baseOf(local)}
	defer v.contain()

	if err := h.cross.Check(r); err != nil {
		v.fail(problem{Status: http.StatusForbidden, Code: "cross_origin", Detail: "The request came from another site."})
		return
	}
	if err := h.authorizeVisit(v); err != nil {
		v.fail(err)
		return
	}
	if local == "" {
		addSlash(w, r)
		return
	}
	h.dispatch(v)
}

// authorizeVisit settles who asks, and so what the visit may see.
func (h *Handler) authorizeVisit(v *visit) error {
	p, err := h.authorize(v.r)
	if err == nil && p.name == "" {
		err = errors.New("the principal has no name")
	}
	switch {
	case errors.Is(err, ErrUnauthenticated):
		return problem{Status: http.StatusUnauthorized, Code: "unauthenticated", Detail: "Log in first."}
	case err != nil:
		if !errors.Is(err, ErrForbidden) {
			h.log.WarnContext(v.ctx(), "webhook admin: a request could not be authorized", "error", err)
		}
		return problem{Status: http.StatusForbidden, Code: "forbidden", Detail: "You may not use this."}
	}
	p.readOnly = p.readOnly || h.readOnly
	v.principal = p
	if p.operator {
		v.view = h.source.Everything()
	} else {
		v.view = h.source.Tenant(p.tenant)
	}
	return nil
}

type visitKey struct{}

// dispatch finds the visit's route.
func (h *Handler) dispatch(v *visit) {
	// The mux would redirect to the clean path, and it knows nothing of the prefix.
	if clean := path.Clean(v.local); clean != v.local {
		v.fail(errNoRoute)
		return
	}
	r := v.r.Clone(context.WithValue(v.ctx(), visitKey{}, v))
	r.URL.Path, r.URL.RawPath = v.local, ""
	r.Host = "" // routes have none
	handler, pattern := h.mux.Handler(r)
	if pattern != "" {
		h.mux.ServeHTTP(v.w, r)
		return
	}
	// No path, or no such method on it: the mux knows which ones there are.
	var refusal refusalWriter
	handler.ServeHTTP(&refusal, r)
	if refusal.status != http.StatusMethodNotAllowed {
		v.fail(errNoRoute)
		return
	}
	v.w.Header().Set("Allow", refusal.Header().Get("Allow"))
	v.fail(problem{Status: http.StatusMethodNotAllowed, Code: "method_not_allowed", Detail: "This method is not for this path."})
}

// serve runs a route that the mux has chosen.
func (h *Handler) serve(_ http.ResponseWriter, r *http.Request, rt route) {
	v, ok := r.Context().Value(visitKey{}).(*visit)
	if !ok {
		return // only dispatch calls the mux
	}
	v.values = r // which has the path's values
	if rt.mutates && v.principal.readOnly {
		v.fail(problem{Status: http.StatusForbidden, Code: "read_only", Detail: "Nothing can be changed here."})
		return
	}
	if rt.limited {
		if err := v.limit(); err != nil {
			v.fail(err)
			return
		}
	}
	limit := int64(maxBodyBytes)
	if rt.maxBody > 0 {
		limit = rt.maxBody
	}
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, limit)
	if rt.op != nil {
		if err := v.readQuery(rt.op); err != nil {
			v.fail(err)
			return
		}
	}
	if err := rt.serve(v); err != nil {
		v.fail(err)
	}
}

// secure sets the headers that every answer has.
func (h *Handler) secure(header http.Header) {
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", h.csp)
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Content-Type-Options", "nosniff")
	if len(h.frameAncestors) == 0 {
		header.Set("X-Frame-Options", "DENY")
	}
}

// contentSecurityPolicy allows what the handler itself serves, and no inline script or
// style.
func contentSecurityPolicy(frameAncestors []string) string {
	frames := "'none'"
	if len(frameAncestors) > 0 {
		frames = strings.Join(frameAncestors, " ")
	}
	return "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors " + frames
}

// contain turns a panic into an answer. The panic's value is logged by its type alone
// unless it is an error of the runtime: it may hold anything.
func (v *visit) contain() {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p)
	}
	v.handler.log.ErrorContext(v.ctx(), "webhook admin: a handler panicked",
		"panic", fmt.Sprintf("%T", p), "path", v.local, "stack", string(debug.Stack()))
	v.fail(problem{Status: http.StatusInternalServerError, Code: "internal", Detail: "Something went wrong here. It has been logged."})
}

// refusalWriter finds out how the mux refuses a request.
type refusalWriter struct {
	header http.Header
	status int
}

func (w *refusalWriter) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}

func (w *refusalWriter) Write(b []byte) (int, error) { return len(b), nil }

func (w *refusalWriter) WriteHeader(status int) { w.status = status }
