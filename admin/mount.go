package admin

import (
	"net/http"
	"net/url"
	"path"
	"strings"
)

// localPath returns the part of the request's path that is the handler's own: "/",
// "/endpoints", … Whoever is in front may have taken the prefix off or left it on.
// An empty result means that the slash after the prefix is missing.
//
// Links and redirects need no prefix: they are relative, so that they also lead
// where they should behind a proxy that rewrites paths.
func (h *Handler) localPath(r *http.Request) string {
	p := r.URL.Path
	if h.prefix != "" {
		if rest, ok := strings.CutPrefix(p, h.prefix); ok && (rest == "" || rest[0] == '/') {
			return rest
		}
		return p
	}
	prefix, ok := mountedAt(r)
	if !ok {
		return p
	}
	// A prefix that was taken off right here, by http.StripPrefix inside of the
	// pattern, must not be taken off once more from a path that begins like it.
	if stripped, ok := strings.CutSuffix(requestPath(r), p); ok && strings.HasSuffix(stripped, prefix) {
		return p
	}
	return strings.TrimPrefix(p, prefix)
}

// mountedAt returns the part of the request's path that its pattern fixes, where it is
// a pattern that stands for all below it: "/admin/webhooks" of "/admin/webhooks/".
func mountedAt(r *http.Request) (prefix string, ok bool) {
	pattern := r.Pattern
	if i := strings.IndexByte(pattern, '/'); i >= 0 {
		pattern = pattern[i:] // without method and host
	}
	cut := strings.LastIndexByte(pattern, '/')
	if cut <= 0 {
		return "", false
	}
	rest := pattern[cut+1:] // "", "*" (chi) or "{rest...}"
	if rest != "" && rest != "*" && !strings.HasSuffix(rest, "...}") {
		return "", false
	}
	fixed := strings.Split(pattern[:cut], "/")
	segments := strings.Split(r.URL.Path, "/")
	if len(segments) < len(fixed) {
		return "", false
	}
	for i, segment := range fixed {
		if segment != segments[i] && !strings.HasPrefix(segment, "{") {
			return "", false
		}
	}
	return strings.Join(segments[:len(fixed)], "/"), true
}

// requestPath is the path that the client asked for.
func requestPath(r *http.Request) string {
	u, err := url.ParseRequestURI(r.RequestURI)
	if err != nil {
		return r.URL.Path
	}
	return u.Path
}

// addSlash sends a request for the mount point itself to the overview below it.
func addSlash(w http.ResponseWriter, r *http.Request) {
	target := url.URL{Path: "./" + path.Base(requestPath(r)) + "/", RawQuery: r.URL.RawQuery}
	w.Header().Set("Location", target.String())
	w.WriteHeader(http.StatusPermanentRedirect)
}

// baseOf returns the way from a page at the local path up to the handler's root, to
// be put in front of links: "./" or "../" once or more.
func baseOf(local string) string {
	if depth := strings.Count(local, "/") - 1; depth > 0 {
		return strings.Repeat("../", depth)
	}
	return "./"
}
