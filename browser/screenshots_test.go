//go:build screenshots

package browser_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/vitals"
)

// TestScreenshots takes the pictures in docs/img: `make screenshots`. The deliveries are
// made as anywhere; of what lies hours back, how the endpoints fared is written down as
// if it had been.
func TestScreenshots(t *testing.T) {
	w := newWorld(t, slowRetries()...)
	w.network.answer("https://hooks.acme.example/webhooks", answer{status: http.StatusNoContent, after: 38 * time.Millisecond})
	w.network.answer("https://crm.acme.example/in", answer{status: http.StatusOK, body: "ok", after: 120 * time.Millisecond})
	w.network.answer("https://erp.acme.example/incoming", answer{status: http.StatusUnauthorized, body: `{"error":"signature does not match"}`, after: 12 * time.Millisecond})
	good := w.endpoint("acme", "https://hooks.acme.example/webhooks", "invoice.*", "order.*")
	crm := w.endpoint("acme", "https://crm.acme.example/in", "order.*")
	erp := w.endpoint("acme", "https://erp.acme.example/incoming", "*")
	_, err := w.hooks.Endpoints().Update(t.Context(), webhook.AllTenants(), good.ID, webhook.EndpointUpdate{Description: new("Billing")})
	require.NoError(t, err)
	var first string
	for n := range 7 {
		id := w.order("acme", 4711+n)
		if n == 0 {
			first = id
		}
	}
	w.eventually("the circuit opens", func() bool {
		h, err := w.hooks.Health().Endpoint(t.Context(), webhook.AllTenants(), erp.ID)
		return err == nil && h.Circuit.State != webhook.CircuitClosed && w.network.count("https://hooks.acme.example/webhooks") == 7
	})
	w.fared(good.ID, 60, 0, http.StatusNoContent, 40*time.Millisecond)
	w.fared(crm.ID, 35, 0.04, http.StatusBadGateway, 130*time.Millisecond)
	w.fared(erp.ID, 12, 1, http.StatusUnauthorized, 14*time.Millisecond)

	p := w.open("zoe@acme")
	p.visit("/settings/webhooks/")
	p.sees("Latest deliveries")
	p.shot("overview", 1150)
	p.visit("/settings/webhooks/endpoints/" + erp.ID.String())
	p.sees("Circuit")
	p.shot("endpoint", 1250)
	p.visit("/settings/webhooks/deliveries")
	p.sees("order.created")
	p.shot("deliveries", 1000)
	list, err := w.hooks.Deliveries().List(t.Context(), webhook.DeliveryQuery{Scope: webhook.AllTenants(), EventID: uuid.MustParse(first), EndpointID: erp.ID})
	require.NoError(t, err)
	p.visit("/settings/webhooks/deliveries/" + list.Deliveries[0].ID.String())
	p.press("What the receiver answered")
	p.shot("delivery", 1500)
	p.visit("/settings/webhooks/endpoints/" + good.ID.String() + "/replay?count=yes&what=all&window=24h")
	p.sees("would be sent again")
	p.shot("replay", 1000)
	_, err = w.hooks.Endpoints().RotateSecret(t.Context(), webhook.AllTenants(), crm.ID, webhook.RotateOptions{})
	require.NoError(t, err)
	p.visit("/settings/webhooks/endpoints/" + crm.ID.String() + "/secret")
	p.sees("signs for another")
	p.shot("secret", 1150)
	p.visit("/settings/webhooks/endpoints/new")
	p.fill("URL", "http://hooks.acme.example/webhooks")
	p.tick("order.created")
	p.press("Add the endpoint")
	p.sees("the scheme must be https")
	p.shot("form", 1000)

	p.dark()
	p.visit("/settings/webhooks/endpoints/" + good.ID.String() + "?range=day")
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
}

func slowRetries() []time.Duration {
	return []time.Duration{0, 100 * time.Millisecond, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour}
}

// fared writes down how an endpoint fared in the last day.
func (w *world) fared(id uuid.UUID, perBucket int, failing float64, status int, latency time.Duration) {
	w.t.Helper()
	random := rand.New(rand.NewPCG(uint64(perBucket), 7))
	now := time.Now()
	state := vitals.State{At: now, UsualLatency: latency}
	if failing < 1 {
		state.LastSuccess = now.Add(-4 * time.Second)
	}
	if failing > 0 {
		state.LastFailure, state.LastStatus, state.LastClass = now.Add(-9*time.Second), status, "http_4xx"
	}
	fill := func(n int, each time.Duration, scale int) vitals.Buckets {
		var buckets vitals.Buckets
		for i := range n {
			all := int64(perBucket*scale + random.IntN(perBucket*scale))
			bad := int64(float64(all) * failing)
			if failing > 0 && failing < 1 && i%4 != 2 {
				bad = 0
			}
			counts := vitals.Counts{vitals.OK: all - bad, vitals.Delivered: all - bad}
			if status < 500 {
				counts[vitals.Client] = bad
			} else {
				counts[vitals.Server] = bad
			}
			buckets = append(buckets, vitals.Bucket{At: now.Truncate(each).Add(-time.Duration(n-1-i) * each), Counts: counts})
		}
		return buckets
	}
	state.Fine, state.Coarse = fill(13, vitals.Fine, 1), fill(25, vitals.Coarse, 12)
	state.Latencies.Since = now.Add(-20 * time.Minute)
	for range 400 {
		state.Latencies.All.Add(latency + time.Duration(random.ExpFloat64()*float64(latency)/2))
	}
	switch {
	case failing == 1:
		state.Outcomes.Known, state.Outcomes.Bits = 20, 1<<20-1
		state.Run = vitals.Run{Failures: 37, Since: now.Add(-52 * time.Minute)}
		state.Suspected = vitals.Suspicion{Status: status}
	case failing > 0:
		state.Outcomes.Known, state.Outcomes.Bits = 20, 1<<5
	default:
		state.Outcomes.Known = 20
	}
	level := webhook.LevelWell
	if failing > 0 {
		level = webhook.LevelUnsteady
	}
	if failing == 1 {
		level = webhook.LevelFailing
	}
	data, err := json.Marshal(&state)
	require.NoError(w.t, err)
	version := int64(0)
	if known, err := w.store.LoadVitals(context.Background(), []uuid.UUID{id}); err == nil && len(known) == 1 {
		version = known[0].Version
	}
	stale, err := w.store.SaveVitals(context.Background(), webhook.SaveVitalsParams{Vitals: []webhook.VitalsRecord{{EndpointID: id, Version: version, Level: level, Data: data}}})
	require.NoError(w.t, err)
	require.Empty(w.t, stale)
}
