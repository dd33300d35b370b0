package admin

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook/admin/internal/phrase"
)

// The pages are made here: how a page is written, and what it gets.
//
// A page is a route in [Handler.pageRoutes] whose serve function gets a visit:
//
//   - visit.view is the data that the principal may see, and the only way to it;
//   - visit.id("endpoint_id") is an id of the path, or an error that becomes a 404;
//   - visit.principal says who looks: operator or not, readOnly or not;
//   - visit.base is the way to the handler's root, for links: "../" and so on;
//   - visit.render(status, "name.html", title, data) answers with a template;
//   - visit.redirect("endpoints/"+id) leads on after a form was posted;
//   - an error that it returns becomes the error page, with the status that the JSON
//     API would have: so a foreign id is a 404 as an unknown one is.
//
// Whatever changes data goes through the methods in actions.go, which the JSON API
// uses too: they write the audit record. A route that changes data is a POST and says
// mutates, and then nobody who may only read gets there. Cross-origin posts are
// refused before.
//
// A template is a file in templates/, parsed with layout.html, which it fills in by
// defining "main", and with parts.html, which has what several pages show. It gets a [page]. There are no inline scripts, no style attributes
// and no event handlers: the content security policy forbids them. Assets are files
// in static/, served as they are at static/NAME: {{.Base}}static/admin.css. All text
// goes through html/template as a string, whoever wrote it; nothing is turned into
// template.HTML, template.URL or the like.

//go:embed templates static snippets
var assets embed.FS

// page is what every template gets.
type page struct {
	Base     string // the way to the handler's root, to be put in front of links
	Operator bool   // false in the portal
	ReadOnly bool   // true where forms and buttons that change something are left out
	Name     string // of the principal
	Tenant   string // of a member
	Title    string
	Section  string // the first word of the path, for the navigation: "endpoints", …
	Done     string // what was just done, in words
	Data     any    // what the page itself shows
}

// templates are the pages' templates by file name, each with the layout.
type templates map[string]*template.Template

// templateFuncs are the functions that templates have besides the built-in ones.
var templateFuncs = template.FuncMap{
	"ago":    func(t time.Time) string { return phrase.Ago(t, time.Now()) },
	"bytes":  phrase.Bytes,
	"iso":    func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"left":   func(t time.Time) string { return phrase.Span(max(time.Until(t), 0).Round(time.Second)) },
	"number": func(n int) string { return phrase.Number(int64(n)) },
	"short":  func(id uuid.UUID) string { return "…" + id.String()[24:] },
	"span":   phrase.Span,
	"stamp":  phrase.Time,
}

func parseTemplates() (templates, error) {
	shared := []string{"templates/layout.html", "templates/parts.html"}
	names, err := fs.Glob(assets, "templates/*.html")
	if err != nil {
		return nil, fmt.Errorf("list templates: %w", err)
	}
	all := templates{}
	for _, name := range names {
		if slices.Contains(shared, name) {
			continue
		}
		t, err := template.New("layout.html").Funcs(templateFuncs).ParseFS(assets, append(shared, name)...)
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", name, err)
		}
		all[path.Base(name)] = t
	}
	return all, nil
}

// pageRoutes are the routes outside of api/.
func (h *Handler) pageRoutes() []route {
	return slices.Concat(
		[]route{
			{method: http.MethodGet, pattern: "/{$}", serve: overviewPage},
			{method: http.MethodGet, pattern: "/find", serve: findPage},
			{method: http.MethodGet, pattern: "/verify", serve: verifyPage},
			{method: http.MethodGet, pattern: "/static/{name}", serve: serveAsset},
		},
		h.endpointPages(),
		endpointFormPages(),
		secretPages(),
		deliveryPages(),
		replayPages(),
	)
}

// doneWords are what pages say after a form was posted, by the word in the query.
var doneWords = map[string]string{
	"cancelled": "Cancelled.",
	"deleted":   "The endpoint is deleted. What was waiting for it is cancelled; its log stays.",
	"disabled":  "The endpoint is disabled. What was waiting for it is cancelled and can be replayed.",
	"enabled":   "The endpoint is active again. What was cancelled stays so: replay it if it is wanted.",
	"paused":    "The endpoint is paused. What comes in the meantime waits.",
	"replaying": "The replay has begun.",
	"resumed":   "The endpoint is active again.",
	"retried":   "It will be sent again.",
	"saved":     "Saved. Attempts from now on use the new settings.",
	"tested":    "A test event was sent. This is what came back.",
}

// render answers with a template. Nothing is sent before all of it is known to work.
func (v *visit) render(status int, name, title string, data any) error {
	t := v.handler.templates[name]
	if t == nil {
		return fmt.Errorf("there is no template %s", name)
	}
	section, _, _ := strings.Cut(strings.TrimPrefix(v.local, "/"), "/")
	var body bytes.Buffer
	err := t.Execute(&body, page{
		Base: v.base, Operator: v.principal.operator, ReadOnly: v.principal.readOnly, Name: v.principal.name,
		Tenant: v.principal.tenant, Title: title, Section: section, Done: doneWords[v.r.URL.Query().Get("done")], Data: data,
	})
	if err != nil {
		return fmt.Errorf("render %s: %w", name, err)
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(status)
	_, _ = v.w.Write(body.Bytes())
	return nil
}

// redirect leads to another page; to is relative to the handler's root.
func (v *visit) redirect(to string) error {
	v.w.Header().Set("Location", v.base+to)
	v.w.WriteHeader(http.StatusSeeOther)
	return nil
}

// failPage answers with the error page, or with the way to the login.
func (v *visit) failPage(p problem) {
	if p.Status == http.StatusUnauthorized && v.handler.loginURL != "" && v.r.Method == http.MethodGet {
		v.w.Header().Set("Location", v.handler.loginURL)
		v.w.WriteHeader(http.StatusSeeOther)
		return
	}
	if err := v.render(p.Status, "error.html", p.Title, p); err != nil {
		v.handler.log.ErrorContext(v.ctx(), "webhook admin: the error page failed", "error", err)
		v.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		v.w.WriteHeader(p.Status)
	}
}

// assetTypes are the media types of what static/ may hold.
var assetTypes = map[string]string{
	".css": "text/css; charset=utf-8",
	".js":  "text/javascript; charset=utf-8",
	".svg": "image/svg+xml",
	".png": "image/png",
}

// serveAsset answers with a file of static/.
func serveAsset(v *visit) error {
	name := v.values.PathValue("name")
	kind := assetTypes[path.Ext(name)]
	body, err := assets.ReadFile("static/" + name)
	if err != nil || kind == "" || strings.ContainsAny(name, `/\`) {
		return errNoRoute
	}
	v.w.Header().Set("Content-Type", kind)
	_, _ = v.w.Write(body) //nolint:gosec // a file that is compiled in
	return nil
}
