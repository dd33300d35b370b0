package admin_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/admin"
	"github.com/outhook/webhook/webhooktest"
)

// user is whoever a host's own login knows.
type user struct {
	email, account string
	staff          bool
}

func loggedIn(r *http.Request) (user, bool) {
	users := map[string]user{
		"1": {email: "olga@host.example", staff: true},
		"2": {email: "ann@acme.example", account: "acme"},
	}
	cookie, err := r.Cookie("session")
	if err != nil {
		return user{}, false
	}
	u, ok := users[cookie.Value]
	return u, ok
}

func Example() {
	hooks, err := webhook.New(webhooktest.NewStore(), webhook.Config{Secrets: webhook.InsecurePlaintext()})
	if err != nil {
		panic(err)
	}
	defer hooks.Close()

	ops, err := admin.New(hooks, admin.Config{
		Authorize: func(r *http.Request) (admin.Operator, error) {
			u, ok := loggedIn(r)
			if !ok {
				return admin.Operator{}, admin.ErrUnauthenticated
			}
			if !u.staff {
				return admin.Operator{}, admin.ErrForbidden
			}
			return admin.Operator{Name: u.email}, nil
		},
	})
	if err != nil {
		panic(err)
	}
	portal, err := admin.NewPortal(hooks, admin.PortalConfig{
		Authorize: func(r *http.Request) (admin.Member, error) {
			u, ok := loggedIn(r)
			if !ok {
				return admin.Member{}, admin.ErrUnauthenticated
			}
			return admin.Member{Name: u.email, Tenant: u.account}, nil
		},
		Audit: func(_ context.Context, r admin.AuditRecord) {
			fmt.Println("audit:", r.Actor, r.Action, "of", r.Tenant)
		},
	})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/admin/webhooks/", ops)
	mux.Handle("/settings/webhooks/", portal)

	visit := func(session, path string) {
		r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, path, nil)
		r.AddCookie(&http.Cookie{Name: "session", Value: session})
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(path, w.Code)
	}
	visit("1", "/admin/webhooks/api/endpoints")
	visit("2", "/admin/webhooks/api/endpoints")
	visit("2", "/settings/webhooks/api/endpoints")
	visit("", "/settings/webhooks/api/endpoints")
	// Output:
	// /admin/webhooks/api/endpoints 200
	// /admin/webhooks/api/endpoints 403
	// /settings/webhooks/api/endpoints 200
	// /settings/webhooks/api/endpoints 401
}
