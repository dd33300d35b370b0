package webhook_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
)

// senders counts, per tenant, which dispatcher sent how much, and whom nobody serves.
type senders struct {
	mu       sync.Mutex
	sent     map[string]int
	unserved map[string]int
}

func newSenders() *senders { return &senders{sent: map[string]int{}, unserved: map[string]int{}} }

func (s *senders) AttemptDone(r webhook.AttemptReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent[r.Tenant]++
}

func (s *senders) TenantUnserved(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unserved[tenant]++
}

func (s *senders) of(tenant string) (sent, unserved int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent[tenant], s.unserved[tenant]
}

// beating is a config whose dispatchers find one another soon.
func beating(alter func(*webhook.DispatcherConfig)) webhook.DispatcherConfig {
	cfg := webhook.DispatcherConfig{HeartbeatInterval: 20 * time.Millisecond, PollInterval: 20 * time.Millisecond}
	alter(&cfg)
	return cfg
}

func of(tenant string) webhook.Event {
	e := paid(`{}`)
	e.Tenant = tenant
	return e
}

func TestDispatchersSendForTheTenantsThatTheyServe(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	tenants := []string{"eu-1", "eu-2", "us-1", "plain", "dedicated", "asia-1"}
	for _, tenant := range tenants {
		for range 4 { // hosts, so that each dispatcher would get some
			h.endpoint(newTally(t, 0).URL, func(p *webhook.EndpointParams) { p.Tenant = tenant })
		}
	}
	serving := func(s webhook.Serves, o *senders) webhook.DispatcherConfig {
		return beating(func(c *webhook.DispatcherConfig) {
			c.Observer, c.Serves = o, s
			c.TenantLimits = func(tenant string) webhook.TenantLimits {
				region, _, ok := strings.Cut(tenant, "-")
				if !ok {
					region = ""
				}
				return webhook.TenantLimits{Region: region}
			}
		})
	}
	eu, rest, own := newSenders(), newSenders(), newSenders()
	h.dispatch(serving(webhook.Serves{Regions: []string{"eu"}}, eu))
	h.dispatch(serving(webhook.Serves{Regions: []string{"", "us"}}, rest))
	h.dispatch(serving(webhook.Serves{Tenants: []string{"dedicated"}}, own))
	require.EventuallyWithT(t, func(ct *assert.CollectT) { require.Len(ct, h.alive(), 3) }, 10*time.Second, time.Millisecond)
	waits := h.enqueue(of("asia-1"))
	for _, tenant := range []string{"eu-1", "eu-2", "us-1", "plain"} {
		for range 3 {
			h.settled(h.enqueue(of(tenant)), 4)
		}
	}
	h.eventually("it is told that nobody serves a tenant", func() bool {
		_, a := eu.of("asia-1")
		_, b := rest.of("asia-1")
		_, c := own.of("asia-1")
		return a+b+c > 0
	})
	for tenant, o := range map[string]*senders{"eu-1": eu, "eu-2": eu, "us-1": rest, "plain": rest} {
		sent, _ := o.of(tenant)
		assert.Equal(t, 12, sent, tenant)
	}
	assert.Empty(t, h.in(waits, webhook.StateDelivered))

	h.dispatch(serving(webhook.Serves{}, newSenders()))
	for _, d := range h.settled(waits, 4) {
		assert.Equal(t, webhook.StateDelivered, d.State, "one that serves everybody has come")
	}
}

// A host with a cap of most of a dispatcher's slots has more to do than one dispatcher
// can send.
func TestAHotHostIsSharedOutAndAFailingOneIsNot(t *testing.T) {
	t.Parallel()
	const limit, endpoints = 16, 24
	h := newHost(t)
	c := newTally(t, 10*time.Millisecond)
	for i := range endpoints {
		h.endpoint(fmt.Sprintf("%s/%d", c.URL, i))
	}
	host := "http://" + strings.TrimPrefix(c.URL, "http://")
	a, b := newSenders(), newSenders()
	for _, o := range []*senders{a, b} {
		h.dispatch(beating(func(cfg *webhook.DispatcherConfig) {
			cfg.Breaker = webhook.BreakerConfig{OpenFor: time.Hour, MaxOpenFor: time.Hour}
			cfg.MaxInFlight, cfg.MaxInFlightPerHost = 12, limit
			cfg.Observer = o
		}))
	}
	require.EventuallyWithT(t, func(ct *assert.CollectT) { require.Len(ct, h.alive(), 2) }, 10*time.Second, time.Millisecond)

	var splits []webhook.HostSplit
	h.eventually("the host is shared out", func() bool {
		if waiting(h) < 50*endpoints {
			h.enqueue(paid(`{}`))
		}
		var err error
		splits, err = h.store.ListSplits(t.Context(), time.Now())
		return err == nil && len(splits) == 1
	})
	ofA, _ := a.of("acme")
	ofB, _ := b.of("acme")
	h.eventually("both send to it", func() bool {
		if waiting(h) < 50*endpoints {
			h.enqueue(paid(`{}`))
		}
		x, _ := a.of("acme")
		y, _ := b.of("acme")
		return x > ofA && y > ofB
	})
	assert.Equal(t, host, splits[0].Host)
	assert.True(t, splits[0].Until.After(splits[0].NotBefore))

	c.answer(http.StatusInternalServerError)
	h.eventually("it is put together again", func() bool {
		if waiting(h) < 50*endpoints {
			h.enqueue(paid(`{}`))
		}
		splits, err := h.store.ListSplits(t.Context(), time.Now())
		return err == nil && len(splits) == 1 && splits[0].Until.IsZero() && splits[0].NotBefore.After(time.Now())
	})
}

// waiting is how many deliveries are unfinished.
func waiting(h *host) (n int) {
	h.t.Helper()
	lanes, err := h.store.Ready(h.t.Context(), webhook.ReadyParams{Now: time.Now(), Limit: 100})
	require.NoError(h.t, err)
	requests := make([]webhook.BacklogRequest, len(lanes))
	for i, lane := range lanes {
		requests[i] = webhook.BacklogRequest{EndpointID: lane.EndpointID, Limit: 1000}
	}
	counts, err := h.store.CountBacklog(h.t.Context(), requests)
	require.NoError(h.t, err)
	for _, c := range counts {
		n += c.Total
	}
	return n
}

// quiet is a store without notifications.
type quiet struct {
	webhook.Store[*webhooktest.Tx]
	webhook.ClusterStore
}

func TestAnOpeningIsFoundByPollingWhereNobodyCanTell(t *testing.T) {
	t.Parallel()
	told := &openings{of: make(map[uuid.UUID]int)}
	keys := webhook.NewKeyring(webhook.NewKey("test"))
	h := newHost(t, func(c *webhook.Config) { c.Secrets = keys })
	hooks, err := webhook.New(quiet{h.store, h.store}, webhook.Config{Logger: slog.New(told), Secrets: keys, Transport: loopback(t)})
	require.NoError(t, err)
	t.Cleanup(hooks.Close)
	c, other := newTally(t, 0), newTally(t, 0)
	e := h.endpoint(c.URL)
	h.endpoint(other.URL)
	d, err := hooks.NewDispatcher(webhook.DispatcherConfig{PollInterval: 10 * time.Millisecond})
	require.NoError(t, err)
	h.run(d)
	h.settled(h.enqueue(paid(`{}`)), 2)

	h.eventually("it finds the opening", func() bool {
		require.NoError(t, h.store.SaveHealth(t.Context(), []webhook.HealthRecord{{
			EndpointID: e.ID, UpdatedAt: time.Now(), State: circuitState("1"), OpenUntil: time.Now().Add(time.Hour),
		}}))
		return told.times(e.ID) > 0
	})
	h.reaches(h.enqueue(paid(`{}`)), webhook.StateDelivered) // at the other endpoint
	_, requests := c.total()
	assert.Equal(t, 1, requests)
}
