// Package admin shows what became of every webhook, and lets people act on it: a
// JSON API and pages for operators ([New]) and for a tenant's own users
// ([NewPortal]). Both are plain http.Handlers that are mounted under any prefix of
// any router, behind the host's own login:
//
//	h, err := admin.New(hooks, admin.Config{
//		Authorize: func(r *http.Request) (admin.Operator, error) {
//			user, ok := sessions.User(r)
//			if !ok {
//				return admin.Operator{}, admin.ErrUnauthenticated
//			}
//			if !user.Staff {
//				return admin.Operator{}, admin.ErrForbidden
//			}
//			return admin.Operator{Name: user.Email}, nil
//		},
//	})
//	…
//	mux.Handle("/admin/webhooks/", h)
//
// Neither can be built without an Authorize function. In the portal, the member that
// it returns decides whose data there is; nothing in a request does. What belongs to
// another tenant is answered exactly like what does not exist.
//
// docs/admin.md in the repository describes the API and everything that can be
// configured. The handler serves an OpenAPI document at api/openapi.json.
package admin
