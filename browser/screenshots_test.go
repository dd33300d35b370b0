//go:build screenshots

package browser_test

import (
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
)

// The receivers of the pictures.
const (
	billing  = "https://hooks.acme.example/webhooks"
	crm      = "https://crm.acme.example/in"
	erp      = "https://erp.acme.example/incoming"
	globex   = "https://api.globex.example/events"
	umbrella = "https://in.umbrella.example/hook"
)

// TestScreenshots takes the pictures in docs/img: `make screenshots`. What they show was
// enqueued, sent and answered: the day before is lived through within a minute, by a
// clock that runs ahead.
func TestScreenshots(t *testing.T) {
	d := liveADay(t)
	w := d.world
	ids := d.ids
	w.eventually("all is well but for one", func() bool {
		o, err := w.hooks.Health().Overview(t.Context(), webhook.OverviewParams{Scope: webhook.AllTenants()})
		return err == nil && o.OldestReadyAgeHealthy < time.Second && o.Endpoints.Failing == 1
	})

	p := w.open("zoe@acme")
	p.visit("/settings/webhooks/")
	p.sees("Latest deliveries")
	p.shot("overview", 1150)
	p.visit("/settings/webhooks/endpoints/" + ids[erp].String())
	p.sees("Circuit")
	p.shot("endpoint", 1250)
	p.visit("/settings/webhooks/deliveries")
	p.sees("order.created")
	p.shot("deliveries", 1000)
	list, err := w.hooks.Deliveries().List(t.Context(), webhook.DeliveryQuery{Scope: webhook.AllTenants(), EndpointID: ids[erp], Status: webhook.Status4xx, Limit: 1})
	require.NoError(t, err)
	require.NotEmpty(t, list.Deliveries)
	p.visit("/settings/webhooks/deliveries/" + list.Deliveries[0].ID.String())
	p.press("What the receiver answered")
	p.shot("delivery", 1500)
	p.visit("/settings/webhooks/endpoints/" + ids[billing].String() + "/replay?count=yes&what=all&window=24h")
	p.sees("would be sent again")
	p.shot("replay", 1000)
	_, err = w.hooks.Endpoints().RotateSecret(t.Context(), webhook.AllTenants(), ids[crm], webhook.RotateOptions{})
	require.NoError(t, err)
	p.visit("/settings/webhooks/endpoints/" + ids[crm].String() + "/secret")
	p.sees("signs for another")
	p.shot("secret", 1150)
	p.visit("/settings/webhooks/endpoints/new")
	p.fill("URL", "http://hooks.acme.example/webhooks")
	p.tick("order.created")
	p.press("Add the endpoint")
	p.sees("the scheme must be https")
	p.shot("form", 1000)

	o := w.open("operator")
	o.visit("/admin/webhooks/")
	o.sees("Dispatchers")
	o.shot("operators-overview", 1500)
	o.visit("/admin/webhooks/endpoints")
	o.sees(globex)
	o.shot("operators-endpoints", 900)

	p.dark()
	p.visit("/settings/webhooks/endpoints/" + ids[billing].String() + "?range=day")
	p.sees("Healthy")
	p.shot("endpoint-dark", 1150)
	p.narrow()
	p.visit("/settings/webhooks/deliveries")
	p.sees("order.created")
	p.shot("deliveries-phone", 1100)
	p.media("prefers-color-scheme", "light")
	p.visit("/settings/webhooks/")
	p.sees("Latest deliveries")
	p.shot("overview-phone", 1400)
	p.visit("/settings/webhooks/endpoints/" + ids[billing].String())
	p.sees("Healthy")
	p.shot("endpoint-phone", 1700)
}

// aDay is a world that has been at work for a day.
type aDay struct {
	*world

	clock  *webhooktest.Clock
	ids    map[string]uuid.UUID // by URL
	random *rand.Rand
	orders int
	wrong  bool // the ERP system has not learnt its new secret
}

func liveADay(t *testing.T) *aDay {
	t.Helper()
	clock := webhooktest.NewClock(time.Now().Add(-24 * time.Hour))
	d := &aDay{
		world: newWorldAt(t, clock, webhook.DispatcherConfig{}),
		clock: clock, ids: map[string]uuid.UUID{}, random: rand.New(rand.NewPCG(1, 7)),
	}
	for _, e := range []struct {
		tenant, url, words string
		types              []string
	}{
		{"acme", billing, "Billing", []string{"invoice.*", "order.*"}},
		{"acme", crm, "", []string{"order.*"}},
		{"acme", erp, "", []string{"*"}},
		{"globex", globex, "", []string{"*"}},
		{"umbrella", umbrella, "", []string{"order.*"}},
	} {
		made, err := d.hooks.Endpoints().Create(t.Context(), webhook.EndpointParams{Tenant: e.tenant, URL: e.url, Types: e.types, Description: e.words})
		require.NoError(t, err)
		d.ids[e.url] = made.ID
	}
	for now := clock.Now(); ; now = clock.Now() {
		left := time.Until(now)
		switch {
		case -left > 70*time.Minute:
			d.pass(10*time.Minute, 5)
		case -left > 30*time.Second:
			d.pass(time.Minute, 0.5)
		default:
			d.keepTime()
			return d
		}
	}
}

// pass lets some time pass in which so many orders come in, more by day than by night.
func (d *aDay) pass(step time.Duration, orders float64) {
	d.t.Helper()
	hour := float64(d.clock.Now().Hour()) + float64(d.clock.Now().Minute())/60
	busy := 1.2 - math.Cos((hour-3)/24*2*math.Pi) // little at three in the morning
	d.answers(busy)
	for range int(busy*orders*(0.7+0.6*d.random.Float64()) + d.random.Float64()) {
		d.orders++
		d.order("acme", 4711+d.orders)
		if d.orders%3 == 0 {
			d.order("globex", 90+d.orders)
		}
		if d.orders%7 == 0 {
			d.order("umbrella", 20+d.orders)
		}
	}
	end := d.clock.Now().Add(step)
	d.eventually("the orders arrive", func() bool {
		d.clock.Advance(200 * time.Millisecond)
		return d.network.count(billing) >= d.orders && d.network.count(crm) >= d.orders &&
			d.network.count(globex) >= d.orders/3 && d.network.count(umbrella) >= d.orders/7
	})
	for d.clock.Now().Before(end) {
		d.clock.Advance(min(5*time.Second, end.Sub(d.clock.Now())))
		time.Sleep(200 * time.Microsecond)
	}
}

// answers are those of the next orders: what is busy is slower, and the ERP system does
// not learn the secret that was made within the last hour.
func (d *aDay) answers(busy float64) {
	slow := func(base time.Duration) time.Duration {
		return base + time.Duration(d.random.ExpFloat64()*busy*float64(base)/3)
	}
	d.network.answer(billing, answer{status: http.StatusNoContent, after: slow(14 * time.Millisecond)})
	d.network.answer(crm, answer{status: http.StatusOK, body: "ok", after: slow(40 * time.Millisecond)})
	if d.random.IntN(40) == 0 {
		d.network.answer(crm, answer{status: http.StatusBadGateway, body: "upstream is away", after: slow(9 * time.Millisecond)})
	}
	d.network.answer(globex, answer{status: http.StatusOK, after: slow(25 * time.Millisecond)})
	d.network.answer(umbrella, answer{status: http.StatusAccepted, after: slow(30 * time.Millisecond)})
	if !d.wrong && time.Since(d.clock.Now()) < 52*time.Minute {
		d.wrong = true
		_, err := d.hooks.Endpoints().RotateSecret(d.t.Context(), webhook.AllTenants(), d.ids[erp], webhook.RotateOptions{Overlap: -1})
		require.NoError(d.t, err)
	}
	if d.wrong {
		d.network.answer(erp, answer{status: http.StatusUnauthorized, body: `{"error":"signature does not match"}`, after: slow(8 * time.Millisecond)})
	} else {
		d.network.answer(erp, answer{status: http.StatusOK, body: `{"ok":true}`, after: slow(20 * time.Millisecond)})
	}
}

// keepTime makes the clock that of the machine from now on.
func (d *aDay) keepTime() {
	ctx, stop := context.WithCancel(context.Background())
	d.t.Cleanup(stop)
	go func() {
		for ctx.Err() == nil {
			d.clock.Set(time.Now())
			time.Sleep(20 * time.Millisecond)
		}
	}()
}
