package browser_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

// A customer's day: they add an endpoint, see that it fails and read why, mend it, send
// again what was missed, and rotate the secret.
func TestACustomersDay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slices.Repeat([]time.Duration{time.Second}, 90)...)
	w.network.answer("https://hooks.acme.example/webhooks", answer{status: http.StatusOK, body: "ok"})
	p := w.open("zoe@acme")

	p.visit("/settings/webhooks/")
	p.sees("Get events as they happen")
	p.press("Add an endpoint")
	p.at("/endpoints/new")

	// The form says what is wrong, beside the field, and keeps what was typed.
	p.fill("URL", "http://hooks.acme.example/webhook")
	p.fill("Description", "Our billing system")
	p.tick("order.created")
	p.press("Add the endpoint")
	p.sees("Is refused: the scheme must be https.")
	assert.True(t, ask[bool](p, `() => {
		const url = document.querySelector("#url");
		return url.ariaInvalid === "true" && document.activeElement === url && url.ariaDescribedByElements?.length === 2 &&
			document.querySelector("#description").value === "Our billing system" && control("order.created").checked;
	}`))
	p.fill("URL", "https://hooks.acme.example/webhook")
	p.press("Add the endpoint")
	p.sees("The endpoint is ready.")
	secret := ask[string](p, `() => document.querySelector("#secret").textContent`)
	_, err := webhook.ParseSecret(secret)
	require.NoError(t, err)

	// A test fails, and says why.
	p.press("Send a test")
	p.sees("The test did not arrive.")
	p.sees("There is nothing at this path. Check the URL.")
	p.press("What the receiver answered")
	p.sees("<h1>Not found</h1>")

	// So does the first event; the page shows it without being asked.
	p.press("https://hooks.acme.example/webhook")
	p.sees("test failed")
	event := w.order("acme", 1)
	p.sees("retrying")

	// The path lacks an s.
	p.press("Edit")
	p.at("/edit")
	p.fill("URL", "https://hooks.acme.example/webhooks")
	p.press("Save")
	p.sees("Saved. Attempts from now on use the new settings.")
	assert.NotContains(t, ask[string](p, `() => document.body.innerText`), secret)
	p.sees("delivered")

	// What arrived is sent once more, as somebody at the other end has lost it.
	before := w.network.count("https://hooks.acme.example/webhooks")
	p.press("Replay")
	p.at("/replay")
	p.press("Count them")
	p.sees("Nothing matches.")
	p.tick("Everything")
	p.press("Count them")
	p.sees("1 delivery would be sent again.")
	p.shot("replay-wizard", 1200)
	p.press("Replay 1 delivery")
	p.sees("The replay has begun.")
	p.sees("1 of 1")
	p.sees("done")
	w.eventually("the replay arrives", func() bool { return w.network.count("https://hooks.acme.example/webhooks") > before })
	p.press("See its deliveries")
	p.sees("replay 1")

	// The secret is rotated, and the old one goes on for a day.
	p.visit("/settings/webhooks/endpoints")
	p.press("https://hooks.acme.example/webhooks")
	p.press("Signing secret")
	p.press("Rotate the secret")
	p.sees("The secret is rotated. The one before signs beside it for 24 hours.")
	p.sees("signs for another 23 h 59 min")
	fresh := ask[string](p, `() => document.querySelector("#secret").textContent`)
	require.NotEqual(t, secret, fresh)
	p.until("count down", `() => {
		window.first ??= document.querySelector("time[data-countdown]").textContent;
		return document.querySelector("time[data-countdown]").textContent !== window.first;
	}`)
	// A reload shows the page again, and neither posts the form nor shows the secret.
	p.visit(ask[string](p, `() => location.pathname`))
	p.sees("Rotate the secret")
	assert.NotContains(t, ask[string](p, `() => document.body.innerText`), fresh)
	list, err := w.hooks.Endpoints().List(t.Context(), webhook.ListEndpointsParams{Scope: webhook.TenantScope("acme")})
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Len(t, list[0].Secrets, 2)

	// An id out of a log leads to its event, and the payload can be had byte for byte.
	p.fill("Find an event, delivery or endpoint by its id", event)
	p.until("find", `() => { document.querySelector(".find").requestSubmit(); return true; }`)
	p.at("/events/" + event)
	p.sees("Zoë & Söhne")
	payload := ask[string](p, `() => {
		const r = new XMLHttpRequest();
		r.open("GET", document.querySelector("a[download]").href, false);
		r.send();
		return r.responseText;
	}`)
	p.press("order.created")
	p.sees("webhook-signature")
	assert.Equal(t, `{"order":"order_1","customer":"Zoë & Söhne","amount":100,"currency":"EUR"}`, payload)
}

// The log is filtered while one types, and keeps itself up to date.
func TestTheDeliveryLogIsLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.network.answer("https://good.acme.example/", answer{status: http.StatusNoContent})
	w.endpoint("acme", "https://good.acme.example/", "*")
	bad := w.endpoint("acme", "https://bad.acme.example/", "*")
	event := w.order("acme", 1)
	p := w.open("zoe@acme")
	p.visit("/settings/webhooks/deliveries")
	p.sees("https://good.acme.example/")
	p.sees("https://bad.acme.example/")

	p.choose("State", "Delivered")
	p.seesNot("https://bad.acme.example/")
	p.sees("https://good.acme.example/")
	p.until("have the filter in the address", `() => location.search === "?state=delivered"`)
	p.choose("State", "Any")
	p.press("More filters")
	p.fill("Endpoint id", bad.ID.String()[:10])
	p.sees("Not an id yet")
	p.fill("Endpoint id", bad.ID.String())
	p.sees("https://bad.acme.example/")
	p.seesNot("https://good.acme.example/")

	// The next event appears by itself.
	p.fill("Endpoint id", "")
	p.fill("Event id", event)
	p.until("see both", `() => document.querySelectorAll("#list tbody tr").length === 2`)
	p.fill("Event id", "")
	w.order("acme", 2)
	p.until("see all four", `() => document.querySelectorAll("#list tbody tr").length === 4`)
}

// Everything works where no script runs, with links, forms and reloads.
func TestPagesWorkWithoutScripts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.network.answer("https://hooks.acme.example/", answer{status: http.StatusNoContent})
	p := w.open("zoe@acme")
	p.withoutScripts()
	p.visit("/settings/webhooks/endpoints/new")
	p.fill("URL", "https://hooks.acme.example/")
	p.tick("All events")
	p.press("Add the endpoint")
	p.sees("The endpoint is ready.")
	p.visit("/settings/webhooks/endpoints")
	w.order("acme", 1)
	w.eventually("it arrives", func() bool { return w.network.count("https://hooks.acme.example/") == 1 })
	p.press("Deliveries")
	p.choose("State", "Delivered")
	p.press("Apply")
	p.sees("order.created")
	p.press("order.created")
	p.sees("Delivered at the first attempt")
	p.press("Send it again")
	p.sees("It will be sent again.")
	assert.False(t, ask[bool](p, `() => document.documentElement.classList.contains("js")`))
}
