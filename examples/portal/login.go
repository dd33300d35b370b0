package main

import (
	"crypto/rand"
	"html/template"
	"net/http"
	"sync"
)

// user is somebody who can log in: of a tenant, or of the staff.
type user struct {
	Name   string
	Tenant string
	Staff  bool
}

// users are those that there are. A real host has them in its database, with passwords
// or a single sign-on.
var users = []user{
	{Name: "zoe@acme.example", Tenant: "acme"},
	{Name: "gus@globex.example", Tenant: "globex"},
	{Name: "olga@host.example", Staff: true},
}

// sessions are those who are logged in, by what their cookie holds.
type sessions struct {
	mu   sync.Mutex
	byID map[string]user
}

func newSessions() *sessions { return &sessions{byID: map[string]user{}} }

const cookieName = "session"

func (s *sessions) user(r *http.Request) (user, bool) {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return user{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u, ok := s.byID[cookie.Value]
	return u, ok
}

func (s *sessions) begin(w http.ResponseWriter, u user) {
	id := rand.Text()
	s.mu.Lock()
	s.byID[id] = u
	s.mu.Unlock()
	// A real host is served over HTTPS and sets Secure, too.
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: id, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode})
}

func (s *sessions) end(w http.ResponseWriter, r *http.Request) {
	if cookie, err := r.Cookie(cookieName); err == nil {
		s.mu.Lock()
		delete(s.byID, cookie.Value)
		s.mu.Unlock()
	}
	http.SetCookie(w, &http.Cookie{Name: cookieName, Path: "/", MaxAge: -1})
}

var loginTemplate = template.Must(template.New("login").Parse(`<!DOCTYPE html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Log in</title>
<h1>Log in</h1><form method="post" action="/login">{{range .}}<p><button name="user" value="{{.Name}}">{{.Name}}</button> {{if .Staff}}staff{{else}}of {{.Tenant}}{{end}}</p>{{end}}</form></html>`))

func (h *host) loginPage(w http.ResponseWriter, _ *http.Request) {
	if err := loginTemplate.Execute(w, users); err != nil {
		h.log.Error("login page", "error", err)
	}
}

func (h *host) login(w http.ResponseWriter, r *http.Request) {
	for _, u := range users {
		if u.Name == r.FormValue("user") {
			h.sessions.begin(w, u)
			http.Redirect(w, r, "/", http.StatusSeeOther)
			return
		}
	}
	http.Error(w, "nobody has this name", http.StatusForbidden)
}

func (h *host) logout(w http.ResponseWriter, r *http.Request) {
	h.sessions.end(w, r)
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

var homeTemplate = template.Must(template.New("home").Parse(`<!DOCTYPE html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>The shop</title>
<h1>The shop</h1><p>You are {{.Name}}.</p>
{{if .Staff}}<p><a href="/admin/webhooks/">All webhooks</a></p>{{else}}<p><a href="/settings/webhooks/">Your webhooks</a></p><form method="post" action="/orders"><button>Order something</button></form>{{end}}
<form method="post" action="/logout"><button>Log out</button></form></html>`))

func (h *host) home(w http.ResponseWriter, r *http.Request) {
	u, ok := h.sessions.user(r)
	if !ok {
		http.Redirect(w, r, "/login", http.StatusSeeOther)
		return
	}
	if err := homeTemplate.Execute(w, u); err != nil {
		h.log.Error("home page", "error", err)
	}
}
