package browser_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

// An operator's day: something fails, they look whose it is and why, stop it, and let the
// tenant know.
func TestAnOperatorsDay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.network.answer("https://hooks.acme.example/in?token=…", answer{status: http.StatusNoContent})
	w.network.answer("https://hooks.globex.example/in", answer{status: http.StatusServiceUnavailable, body: "overloaded"})
	acme := w.endpoint("acme", "https://hooks.acme.example/in?token=t0psecret", "*")
	globex := w.endpoint("globex", "https://hooks.globex.example/in", "*")
	for n := range 8 {
		w.order("globex", n+1)
	}
	w.eventually("the circuit opens", func() bool {
		h, err := w.hooks.Health().Endpoint(t.Context(), webhook.AllTenants(), globex.ID)
		return err == nil && h.Circuit.State != webhook.CircuitClosed
	})

	p := w.open("operator")
	p.visit("/admin/webhooks/endpoints")
	p.sees("https://hooks.globex.example/in")
	p.sees("https://hooks.acme.example/in?token=…")
	assert.NotContains(t, ask[string](p, `() => document.documentElement.innerHTML`), "t0psecret")
	p.fill("Tenant", "globex")
	p.seesNot("hooks.acme.example")
	p.press("https://hooks.globex.example/in")
	p.until("read what is wrong", `() => /Circuit (half )?open since \d\d:\d\d UTC/.test(words(document.body))`)
	p.sees("503 Service Unavailable")

	p.press("Disable")
	p.at("/disable")
	p.fill("Reason", "Please call us.")
	p.press("Disable it")
	p.sees("The endpoint is disabled.")
	p.sees(": Please call us.")
	w.eventually("what waits is cancelled", func() bool {
		page, err := w.hooks.Deliveries().List(t.Context(), webhook.DeliveryQuery{Scope: webhook.AllTenants(), EndpointID: globex.ID, Limit: 20})
		require.NoError(t, err)
		for _, d := range page.Deliveries {
			if !d.State.Final() {
				return false
			}
		}
		return true
	})
	p.visit("/admin/webhooks/deliveries?tenant=globex")
	p.choose("State", "Cancelled")
	p.sees("cancelled")

	// The tenant sees why, and that it takes the operator to enable it again.
	w.network.answer("https://hooks.globex.example/in", answer{status: http.StatusNoContent, after: 10 * time.Millisecond})
	c := w.open("gus@globex")
	c.visit("/settings/webhooks/endpoints/" + globex.ID.String())
	c.sees("Disabled by an operator since")
	c.sees("Please call us.")
	assert.False(t, ask[bool](c, `() => Boolean(named("Enable"))`))
	p.visit("/admin/webhooks/endpoints/" + globex.ID.String())
	p.press("Enable")
	p.sees("The endpoint is active again.")
	c.visit("/settings/webhooks/endpoints/" + globex.ID.String())
	c.seesNot("Disabled by an operator")
	c.press("Replay")
	c.press("Count them")
	c.sees("would be sent again.")

	// Nobody sees anything of the other.
	c.visit("/settings/webhooks/endpoints/" + acme.ID.String())
	c.sees("There is no such thing here.")
	c.visit("/admin/webhooks/")
	c.sees("You may not use this.")
}
