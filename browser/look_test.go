package browser_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

// hostile is what strangers write wherever they can.
const hostile = `"><script>alert(1)</script><img src=x onerror=alert(2)><svg onload=alert(3)>'` + "\u202e{{.}}</textarea></title>"

// Whatever tenants and receivers write is text.
func TestHostileNamesAndExcerptsAreText(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := "https://hooks.acme.example/%3Cscript%3Ealert(4)%3C/script%3E?q='\"%3E%3Cimg%20src=x%20onerror=alert(5)%3E"
	e, err := w.hooks.Endpoints().Create(t.Context(), webhook.EndpointParams{
		Tenant: "acme", URL: url, Types: []string{"*"}, Description: hostile, Filter: []byte(`{"a":{"$ne":"</pre><script>alert(6)</script>"}}`),
		Headers: webhook.Headers{"X-Evil": "</pre><script>alert(11)</script>"},
	})
	require.NoError(t, err)
	w.network.answer(e.URL, answer{status: http.StatusBadRequest, body: hostile + "\x07"})
	event := w.enqueue(webhook.Event{
		Tenant: "acme", Type: "order.created", ResourceID: hostile[:60],
		Payload: fmt.Appendf(nil, `{"a":%q,"b":"</pre><script>alert(7)</script>"}`, `<img src=x onerror=alert(8)>`),
	})
	binary := w.enqueue(webhook.Event{Tenant: "acme", Type: "file.made", ContentType: "application/x-evil", Payload: []byte("\x00\xff<script>alert(9)</script>")})
	var delivery webhook.Delivery
	w.eventually("it fails", func() bool {
		page, err := w.hooks.Deliveries().List(t.Context(), webhook.DeliveryQuery{Scope: webhook.AllTenants(), State: webhook.StateDead, Limit: 1})
		require.NoError(t, err)
		if len(page.Deliveries) == 1 {
			delivery = page.Deliveries[0]
		}
		return len(page.Deliveries) == 1
	})
	_, err = w.hooks.Endpoints().Pause(t.Context(), webhook.AllTenants(), e.ID, hostile)
	require.NoError(t, err)
	one := "endpoints/" + e.ID.String()
	for _, who := range []struct{ name, base string }{{"zoe@acme", "/settings/webhooks/"}, {"operator", "/admin/webhooks/"}} {
		p := w.open(who.name)
		for _, path := range []string{"", "endpoints", one, one + "/edit", one + "/secret", one + "/delete", one + "/replay", "deliveries", "events", "deliveries/" + delivery.ID.String(), "events/" + event, "events/" + binary, "find?q=" + "%3Cscript%3Ealert(10)%3C/script%3E"} {
			p.visit(who.base + path)
			p.until("load", `() => document.readyState === "complete"`)
			assert.Zero(t, ask[int](p, `() => document.querySelectorAll("script:not([src]), img, [onload], [onerror], main iframe").length`), path)
			assert.Equal(t, 1, ask[int](p, `() => [...document.querySelectorAll("title")].filter(t => !t.closest("svg")).length`), path)
		}
		p.visit(who.base + "deliveries/" + delivery.ID.String())
		p.press("What the receiver answered")
		p.sees(`<script>alert(1)</script>`)
		p.sees(`<U+202E>`)
		p.sees(`<U+0007>`)
	}
}

// Every page can be read in the dark and on a phone, and used with a keyboard.
func TestEveryPageCanBeReadAndUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.network.answer("https://good.acme.example/", answer{status: http.StatusNoContent})
	good := w.endpoint("acme", "https://good.acme.example/", "*")
	w.endpoint("acme", "https://a-very-long-name-of-a-host-that-does-not-fit.integrations.acme.example/webhooks/incoming/production", "*")
	event := w.order("acme", 1)
	var list []webhook.Delivery
	w.eventually("both are over", func() bool {
		page, err := w.hooks.Deliveries().List(t.Context(), webhook.DeliveryQuery{Scope: webhook.AllTenants(), Limit: 10})
		require.NoError(t, err)
		list = page.Deliveries
		return len(list) == 2 && list[0].State.Final() && list[1].State.Final()
	})
	job, err := w.hooks.Replays().Create(t.Context(), webhook.AllTenants(), webhook.ReplayJobRequest{EndpointID: good.ID, States: []webhook.DeliveryState{webhook.StateDelivered}})
	require.NoError(t, err)
	one := "endpoints/" + good.ID.String()
	paths := []string{
		"", "endpoints", one, one + "/edit", one + "/secret", one + "/delete", one + "/replay?count=yes&what=all", "endpoints/new", "deliveries", "events",
		"deliveries/" + list[0].ID.String(), "deliveries/" + list[1].ID.String(), "events/" + event, "replays", "replays/" + job.ID.String(), "verify", "find?q=x", "nothing",
	}
	for _, who := range []struct{ name, base string }{{"zoe@acme", "/settings/webhooks/"}, {"operator", "/admin/webhooks/"}} {
		p := w.open(who.name)
		for _, path := range paths {
			p.visit(who.base + path)
			p.until("load", `() => document.readyState === "complete"`)
			assert.Empty(t, ask[[]string](p, audit), "%s", path)
		}
		p.dark()
		for _, path := range paths {
			p.visit(who.base + path)
			p.until("load", `() => document.readyState === "complete"`)
			assert.Empty(t, ask[[]string](p, audit), "%s in the dark", path)
		}
		p.narrow()
		for _, path := range paths {
			p.visit(who.base + path)
			p.until("load", `() => document.readyState === "complete"`)
			assert.Empty(t, ask[[]string](p, audit), "%s on a phone", path)
			assert.LessOrEqual(t, ask[float64](p, `() => document.documentElement.scrollWidth - innerWidth`), 0.0, "%s is wider than a phone: %s", path,
				ask[string](p, `() => [...document.querySelectorAll("body *")].filter((e) => shown(e) && e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll, pre, .nav")).map((e) => e.outerHTML.slice(0, 120)).slice(0, 3).join("\n")`))
		}
	}
}

// audit lists what keeps somebody from reading or using a page: controls and links
// without a name, a text with too little contrast (WCAG 2.2, 1.4.3), not exactly one
// heading of the first level, headings that leave a level out, a focus that cannot be seen, controls too small to hit.
const audit = `() => {
	const found = [];
	const about = (e) => e.outerHTML.replace(/\s+/g, " ").slice(0, 140);
	if (document.querySelectorAll("h1").length !== 1) found.push("headings: " + document.querySelectorAll("h1").length);
	let level = 1;
	for (const e of document.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
		if (!shown(e)) continue;
		if (Number(e.nodeName[1]) > level + 1) found.push("a heading's level is left out: " + about(e));
		level = Number(e.nodeName[1]);
	}
	if (!document.title || !document.documentElement.lang) found.push("no title or language");
	for (const e of document.querySelectorAll("input:not([type=hidden]), select, textarea")) {
		if (![...(e.labels ?? [])].some((l) => l.textContent.trim() !== "")) found.push("no label: " + about(e));
	}
	for (const e of document.querySelectorAll("a[href], button, summary")) {
		if (e.textContent.trim() === "" && !e.getAttribute("aria-label")) found.push("no name: " + about(e));
		if (shown(e) && e.matches("button, .button") && e.getBoundingClientRect().height < 24) found.push("too small: " + about(e));
	}
	for (const e of document.querySelectorAll("svg")) {
		if (e.ariaHidden !== "true" && !e.getAttribute("aria-label")) found.push("a picture without words: " + about(e));
	}
	for (const e of document.querySelectorAll("[aria-describedby]")) {
		for (const id of e.getAttribute("aria-describedby").split(" ")) if (!document.getElementById(id)) found.push("describes nothing: " + about(e));
	}
	const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
	const rgba = (colour) => {
		canvas.clearRect(0, 0, 1, 1);
		canvas.fillStyle = colour;
		canvas.fillRect(0, 0, 1, 1);
		const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
		return [r, g, b, a / 255];
	};
	const luminance = (c) => {
		const [r, g, b] = c.map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const ground = (e) => {
		for (; e; e = e.parentElement) {
			const c = rgba(getComputedStyle(e).backgroundColor);
			if (c[3] > 0.99) return c;
		}
		return [255, 255, 255, 1];
	};
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	const seen = new Set();
	while (texts.nextNode()) {
		const e = texts.currentNode.parentElement;
		if (texts.currentNode.textContent.trim() === "" || !shown(e) || e.closest("script, style, .hidden, .skip, svg")) continue;
		const style = getComputedStyle(e);
		const fore = luminance(rgba(style.color).slice(0, 3)), back = luminance(ground(e).slice(0, 3));
		const contrast = (Math.max(fore, back) + 0.05) / (Math.min(fore, back) + 0.05);
		const key = style.color + ground(e);
		if (contrast < 4.5 && !seen.has(key)) {
			seen.add(key);
			found.push("contrast " + contrast.toFixed(2) + ": " + about(e));
		}
	}
	return found;
}`

// The keyboard reaches everything, in the order of the page, and shows where it is.
func TestTheKeyboardReachesEverything(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.endpoint("acme", "https://hooks.acme.example/", "*")
	p := w.open("zoe@acme")
	p.visit("/settings/webhooks/endpoints/" + e.ID.String())
	p.sees("Nothing has been sent to it yet")
	var reached []string
	for range 40 {
		p.key("\t")
		at := ask[string](p, `() => {
			const e = document.activeElement;
			if (e === document.body) return "";
			const style = getComputedStyle(e);
			return (words(e) || e.name || "?") + (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 1 ? " WITHOUT A RING" : "");
		}`)
		if at == "" || len(reached) > 0 && at == reached[0] {
			break
		}
		reached = append(reached, at)
	}
	all := strings.Join(reached, "\n")
	assert.Equal(t, "Skip to the content", reached[0])
	for _, want := range []string{"Overview", "Endpoints", "Deliveries", "Edit", "Pause", "Signing secret", "Replay", "Delete"} {
		assert.Contains(t, all, want)
	}
	assert.NotContains(t, all, "WITHOUT A RING")

	p.press("Pause")
	p.sees("The endpoint is paused.")
	p.until("focus what resumes", `() => { named("Resume").focus(); return document.activeElement === named("Resume"); }`)
	p.key("\r")
	p.sees("The endpoint is active again.")
}

// Links and forms lead where they should under any prefix, also one that a proxy in front
// of the host has made up.
func TestPagesWorkUnderAnyPrefix(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.open("zoe@acme")
	p.visit("/deep/down/hooks/")
	p.sees("Get events as they happen")
	p.press("Add an endpoint")
	p.fill("URL", "https://hooks.acme.example/")
	p.tick("All events")
	p.press("Add the endpoint")
	p.press("Go to the endpoint")
	p.sees("Nothing has been sent to it yet")
	p.press("Pause")
	p.sees("The endpoint is paused.")
	for _, link := range []string{"Endpoints", "Deliveries", "Events", "Replays", "Verify", "Overview"} {
		p.press(link)
		p.until("be there, with its style", `(name) => document.readyState === "complete" && location.pathname.startsWith("/deep/down/hooks/") &&
			document.querySelector(".nav a[aria-current]")?.textContent === name && getComputedStyle(document.querySelector(".nav")).display === "flex"`, link)
	}
	stranger := w.open("")
	stranger.visit("/settings/webhooks/")
	stranger.at("/login")
}
