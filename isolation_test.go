package webhook_test

import (
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

// all enqueues n events and waits for their deliveries.
func (h *host) all(n int) {
	h.t.Helper()
	ids := make([]uuid.UUID, n)
	for i := range ids {
		ids[i] = h.enqueue(paid(`{}`))
	}
	for _, id := range ids {
		h.settled(id, 1)
	}
}

func TestARateLimitHoldsOverRestarts(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	c := newTally(t, 0)
	h.endpoint(c.URL, func(p *webhook.EndpointParams) { p.RateLimit, p.Burst = 40, 4 })
	began := time.Now()
	for range 3 {
		stop := h.dispatch(webhook.DispatcherConfig{PollInterval: 10 * time.Millisecond})
		h.all(20)
		stop()
	}
	assert.GreaterOrEqual(t, time.Since(began), (60-4)*time.Second/40, "one burst, not one per start")
}

func TestATenantsPlanLimitsItsEndpoints(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	c := newTally(t, 10*time.Millisecond)
	h.endpoint(c.URL, func(p *webhook.EndpointParams) { p.MaxInFlight = 10 })
	var asked atomic.Value
	h.dispatch(webhook.DispatcherConfig{TenantLimits: func(tenant string) webhook.TenantLimits {
		asked.Store(tenant)
		return webhook.TenantLimits{MaxInFlightPerEndpoint: 3, RateLimit: 100, Burst: 10, Weight: 2}
	}})
	began := time.Now()
	h.all(40)
	assert.LessOrEqual(t, c.peak, 3)
	assert.GreaterOrEqual(t, time.Since(began), 300*time.Millisecond)
	assert.Equal(t, "acme", asked.Load())
}

func TestAPanicInTheTenantsPlanMeansTheDefaults(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.endpoint(newTally(t, 0).URL)
	h.dispatch(webhook.DispatcherConfig{TenantLimits: func(string) webhook.TenantLimits { panic("no such plan") }})
	h.all(1)
}

func TestAHostsCapIsItsEndpointsTogether(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	c := newTally(t, 10*time.Millisecond)
	for range 3 {
		h.endpoint(c.URL)
	}
	h.dispatch(webhook.DispatcherConfig{Isolation: webhook.IsolationConfig{
		HostCaps: []webhook.HostCap{{Pattern: "*.zapier.example", MaxInFlight: 100}, {Pattern: "127.0.0.1", MaxInFlight: 2}},
	}})
	ids := make([]uuid.UUID, 20)
	for i := range ids {
		ids[i] = h.enqueue(paid(`{}`))
	}
	for _, id := range ids {
		h.settled(id, 3)
	}
	assert.LessOrEqual(t, c.peak, 2)
}

func TestSettingsOfIsolationThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for field, cfg := range map[string]webhook.IsolationConfig{
		"BacklogFloor":        {BacklogFloor: 1.5},
		"ReplayShare":         {ReplayShare: math.NaN()},
		"RetryShare":          {RetryShare: 2},
		"SlowShare":           {SlowShare: -0.1},
		"HostCaps[0].Pattern": {HostCaps: []webhook.HostCap{{Pattern: "https://x.example", MaxInFlight: 5}}},
		"HostCaps[1].MaxInFlight": {HostCaps: []webhook.HostCap{
			{Pattern: "*.x.example", MaxInFlight: 5}, {Pattern: "y.example"},
		}},
	} {
		_, err := h.hooks.NewDispatcher(webhook.DispatcherConfig{Isolation: cfg})
		var refused *webhook.InvalidError
		require.ErrorAs(t, err, &refused, field)
		assert.Equal(t, "DispatcherConfig.Isolation."+field, refused.Field)
	}
	for field, p := range map[string]webhook.EndpointParams{
		"RateLimit": {RateLimit: math.NaN()},
		"Burst":     {Burst: -1},
	} {
		p.Tenant, p.URL, p.Types = "acme", "http://127.0.0.1:8080", []string{"*"}
		_, err := h.hooks.Endpoints().Create(t.Context(), p)
		var refused *webhook.InvalidError
		require.ErrorAs(t, err, &refused, field)
		assert.Equal(t, "EndpointParams."+field, refused.Field)
	}
}

func TestAnEndpointsPaceIsKept(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	e := h.endpoint("http://127.0.0.1:8080", func(p *webhook.EndpointParams) {
		p.AdaptiveRate, p.Burst, p.NewestFirst, p.RateLimit, p.ShedBacklog = true, 7, true, 2.5, -1
	})
	slower := 0.5
	_, err := h.hooks.Endpoints().Update(t.Context(), webhook.AllTenants(), e.ID, webhook.EndpointUpdate{RateLimit: &slower})
	require.NoError(t, err)

	got, err := h.hooks.Endpoints().Get(t.Context(), webhook.AllTenants(), e.ID)
	require.NoError(t, err)
	assert.True(t, got.AdaptiveRate)
	assert.True(t, got.NewestFirst)
	assert.Equal(t, 7, got.Burst)
	assert.Equal(t, -1, got.ShedBacklog)
	assert.InDelta(t, 0.5, got.RateLimit, 0)
}
