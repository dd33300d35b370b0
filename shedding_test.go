package webhook_test

import (
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

// shedWatcher remembers what an observer is told of shedding.
type shedWatcher struct {
	mu      sync.Mutex
	changes []webhook.SheddingReport
	shed    map[uuid.UUID]int
}

func (*shedWatcher) AttemptDone(webhook.AttemptReport) {}

func (w *shedWatcher) SheddingChanged(r webhook.SheddingReport) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes = append(w.changes, r)
}

func (w *shedWatcher) DeliveriesShed(r webhook.ShedReport) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shed[r.EndpointID] += r.Count
}

func (w *shedWatcher) told() ([]webhook.SheddingReport, map[uuid.UUID]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.changes), maps.Clone(w.shed)
}

// Shedding through the whole of the library: decided by the owner, recorded by
// fan-out, told to the host, over when the backlog is, and inherited meanwhile.
func TestAnEndpointThatDoesNotKeepUpIsShedVisibly(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	slow, brisk := newTally(t, 20*time.Millisecond), newTally(t, 0)
	e := h.endpoint(slow.URL, func(p *webhook.EndpointParams) { p.MaxInFlight, p.ShedBacklog = 1, 30 })
	other := h.endpoint(brisk.URL)
	w := &shedWatcher{shed: map[uuid.UUID]int{}}
	cfg := webhook.DispatcherConfig{
		Isolation:         webhook.IsolationConfig{ShedGrowth: time.Second},
		HeartbeatInterval: 20 * time.Millisecond,
		Observer:          w,
		PollInterval:      20 * time.Millisecond,
	}
	stop := h.dispatch(cfg)
	enqueued, began := 0, time.Now()
	h.eventually("new deliveries are shed", func() bool {
		// However slow everything is, the backlog grows, and not without bounds.
		waiting, err := h.store.CountBacklog(t.Context(), []webhook.BacklogRequest{{EndpointID: e.ID, Limit: 1000}})
		require.NoError(t, err)
		_, shed := w.told()
		for n := waiting[0].Total; n < 35+int(time.Since(began)/(20*time.Millisecond)) && shed[e.ID] == 0; n++ {
			h.enqueue(paid(`{}`))
			enqueued++
		}
		return shed[e.ID] > 0
	})

	changes, shed := w.told()
	assert.Equal(t, []webhook.SheddingReport{{EndpointID: e.ID, Tenant: "acme", Shedding: true, Backlog: 31}}, changes)
	assert.Zero(t, shed[other.ID])
	h.eventually("its owner is told", func() bool {
		notices, err := h.hooks.Health().Notices(t.Context(), webhook.ListNoticesParams{Scope: webhook.AllTenants(), EndpointID: e.ID})
		return err == nil && slices.ContainsFunc(notices, func(n webhook.Notice) bool { return n.Kind == webhook.NoticeShedding })
	})
	listed := h.listed(e.ID, webhook.StateShed)
	require.NotEmpty(t, listed)
	assert.Equal(t, webhook.ReasonShed, listed[0].Reason)
	status, err := h.hooks.Backend().GetEvent(t.Context(), webhook.AllTenants(), listed[0].EventID)
	require.NoError(t, err, "the event is kept")
	assert.False(t, status.Unmatched)
	assert.Empty(t, h.listed(other.ID, webhook.StateShed))

	stop()
	h.dispatch(cfg)
	h.eventually("the backlog is down and the next dispatcher ends it", func() bool {
		changes, _ := w.told()
		return len(changes) > 1
	})
	changes, _ = w.told()
	assert.Equal(t, webhook.SheddingReport{EndpointID: e.ID, Tenant: "acme"}, changes[1])
	replayed, err := h.hooks.Deliveries().Replay(t.Context(), webhook.AllTenants(), webhook.ReplayRequest{EventID: listed[0].EventID, EndpointID: e.ID})
	require.NoError(t, err)
	h.eventually("what was shed is replayed", func() bool {
		d, err := h.hooks.Deliveries().Get(t.Context(), webhook.AllTenants(), replayed.ID)
		return err == nil && d.State == webhook.StateDelivered
	})
	h.eventually("what came later is delivered", func() bool {
		return len(h.listed(e.ID, webhook.StateDelivered))+len(h.listed(e.ID, webhook.StateShed)) == enqueued+1
	})
}

func TestAPlansBacklogIsTheMost(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ own, tenants, want int }{
		{0, 0, 0}, {5, 0, 5}, {-1, 0, -1}, {0, 7, 7}, {5, 7, 5}, {9, 7, 7}, {-1, 7, 7}, {5, -1, 5}, {0, -1, -1}, {-1, -1, -1},
	} {
		assert.Equal(t, tc.want, webhook.ShedBacklog(tc.own, tc.tenants), "own %d, tenant's %d", tc.own, tc.tenants)
	}
}
