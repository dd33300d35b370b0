package webhook_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
)

// floorWatch is a store that remembers from when on the oldest deliveries were asked for.
type floorWatch struct {
	*webhooktest.Store
	mu    sync.Mutex
	since map[webhook.Lane]time.Time // in the last claim of the lane
	fail  bool                       // the next claim
	takes time.Duration              // each claim
	hangs time.Duration              // the next look for what is ready
}

func (s *floorWatch) Claim(ctx context.Context, p webhook.ClaimParams) ([]webhook.Claimed, error) {
	s.mu.Lock()
	for _, r := range p.Requests {
		if !r.Newest {
			s.since[r.Lane] = r.Since
		}
	}
	fail, takes := s.fail, s.takes
	s.fail = false
	s.mu.Unlock()
	defer time.Sleep(takes) // what is committed meanwhile it does not see
	if fail {
		return nil, errors.New("the connection is gone")
	}
	return s.Store.Claim(ctx, p)
}

func (s *floorWatch) Ready(ctx context.Context, p webhook.ReadyParams) ([]webhook.ReadyLane, error) {
	s.mu.Lock()
	hangs := s.hangs
	s.hangs = 0
	s.mu.Unlock()
	time.Sleep(hangs)
	return s.Store.Ready(ctx, p)
}

func (s *floorWatch) last(lane webhook.Lane) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since[lane]
}

// watchedHost is a host with one endpoint and a running dispatcher, in a synctest bubble.
type watchedHost struct {
	*host
	store    *floorWatch
	endpoint webhook.Endpoint
	world    *world
}

func inWatchedHost(t *testing.T, do func(t *testing.T, h *watchedHost)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &floorWatch{Store: webhooktest.NewStore(), since: make(map[webhook.Lane]time.Time)}
		w := new(world)
		w.answer(status(http.StatusOK))
		hooks, err := webhook.New(store, webhook.Config{
			Secrets:   webhook.NewKeyring(webhook.NewKey("test")),
			Transport: loopback(t).Wrap(func(http.RoundTripper) http.RoundTripper { return w }),
		})
		require.NoError(t, err)
		defer hooks.Close()
		h := &watchedHost{host: &host{t: t, store: store.Store, hooks: hooks}, store: store, world: w}
		h.endpoint = h.host.endpoint("https://hooks.example/in")
		stop := h.dispatch(webhook.DispatcherConfig{})
		defer stop()
		do(t, h)
	})
}

// deliver enqueues events one after the other and has each delivered within a second.
func (h *watchedHost) deliver(n int) {
	h.t.Helper()
	for range n {
		event := h.enqueue(paid(`{}`))
		time.Sleep(time.Second)
		require.Equal(h.t, webhook.StateDelivered, h.stateOf(event))
	}
}

func (h *watchedHost) stateOf(event uuid.UUID) webhook.DeliveryState {
	h.t.Helper()
	page, err := h.hooks.Deliveries().List(h.t.Context(), webhook.DeliveryQuery{Scope: webhook.AllTenants(), EventID: event, Limit: 10})
	require.NoError(h.t, err)
	require.Len(h.t, page.Deliveries, 1)
	return page.Deliveries[0].State
}

func TestClaimsBeginWhereTheLastOnesFoundNothingMore(t *testing.T) {
	inWatchedHost(t, func(t *testing.T, h *watchedHost) {
		h.deliver(10)

		assert.WithinRange(t, h.store.last(webhook.LaneFirst), time.Now().Add(-5*time.Second), time.Now())
	})
}

func TestFloorsRiseWhileEachClaimMissesSomething(t *testing.T) {
	inWatchedHost(t, func(t *testing.T, h *watchedHost) {
		h.store.mu.Lock()
		h.store.takes = 100 * time.Millisecond
		h.store.mu.Unlock()
		for range 500 {
			h.enqueue(paid(`{}`))
			time.Sleep(20 * time.Millisecond)
		}

		assert.WithinRange(t, h.store.last(webhook.LaneFirst), time.Now().Add(-5*time.Second), time.Now())
	})
}

func TestClaimsOfRetriesBeginWhereTheLastOnesFoundNothingMore(t *testing.T) {
	inWatchedHost(t, func(t *testing.T, h *watchedHost) {
		h.deliver(1)
		h.world.answer(status(http.StatusInternalServerError))
		began := time.Now()
		first := h.enqueue(paid(`{}`))
		time.Sleep(20 * time.Second) // it is tried again after five seconds
		second := h.enqueue(paid(`{}`))
		time.Sleep(20 * time.Second)

		assert.WithinRange(t, h.store.last(webhook.LaneRetry), began, time.Now())
		h.world.answer(status(http.StatusOK))
		time.Sleep(time.Hour)
		assert.Equal(t, webhook.StateDelivered, h.stateOf(first))
		assert.Equal(t, webhook.StateDelivered, h.stateOf(second))
	})
}

func TestClaimsBeginAnewAfterOneThatFailed(t *testing.T) {
	inWatchedHost(t, func(t *testing.T, h *watchedHost) {
		h.deliver(5)
		require.NotZero(t, h.store.last(webhook.LaneFirst))
		h.store.mu.Lock()
		h.store.fail = true
		h.store.mu.Unlock()

		h.deliver(1)

		assert.Zero(t, h.store.last(webhook.LaneFirst))
	})
}

func TestWhatBecameDueLongAgoIsClaimedWhenItsLeaseRunsOut(t *testing.T) {
	inWatchedHost(t, func(t *testing.T, h *watchedHost) {
		h.deliver(3)
		lost := h.lost(30 * time.Second)
		h.deliver(25)
		require.Equal(t, webhook.StateInFlight, h.stateOf(lost))

		h.deliver(10)

		assert.Equal(t, webhook.StateDelivered, h.stateOf(lost))
	})
}

func TestALookForWhatIsReadyThatHungPutsNoOtherOff(t *testing.T) {
	inWatchedHost(t, func(t *testing.T, h *watchedHost) {
		h.deliver(3)
		h.store.mu.Lock()
		h.store.hangs = 20 * time.Second
		h.store.mu.Unlock()
		lost := h.lost(30 * time.Second)

		h.deliver(33)

		assert.Equal(t, webhook.StateDelivered, h.stateOf(lost))
	})
}

// lost enqueues an event that another dispatcher, which is never heard of again, claims.
func (h *watchedHost) lost(lease time.Duration) uuid.UUID {
	h.t.Helper()
	_, err := h.hooks.Endpoints().Pause(h.t.Context(), webhook.AllTenants(), h.endpoint.ID, "")
	require.NoError(h.t, err)
	event := h.enqueue(paid(`{}`))
	time.Sleep(3 * time.Second)
	_, err = h.hooks.Endpoints().Resume(h.t.Context(), webhook.AllTenants(), h.endpoint.ID)
	require.NoError(h.t, err)
	claimed, err := h.store.Store.Claim(h.t.Context(), webhook.ClaimParams{
		Now: time.Now(), LeaseUntil: time.Now().Add(lease), Token: uuid.New(),
		Requests: []webhook.ClaimRequest{{EndpointID: h.endpoint.ID, Limit: 1}},
	})
	require.NoError(h.t, err)
	require.Len(h.t, claimed, 1)
	return event
}

func TestWhatWaitedThroughAPauseIsClaimedWhenItEnds(t *testing.T) {
	inWatchedHost(t, func(t *testing.T, h *watchedHost) {
		h.deliver(3)
		_, err := h.hooks.Endpoints().Pause(t.Context(), webhook.AllTenants(), h.endpoint.ID, "")
		require.NoError(t, err)
		waiting := h.enqueue(paid(`{}`))
		time.Sleep(10 * time.Minute)
		require.Equal(t, webhook.StatePending, h.stateOf(waiting))

		_, err = h.hooks.Endpoints().Resume(t.Context(), webhook.AllTenants(), h.endpoint.ID)
		require.NoError(t, err)
		time.Sleep(100 * time.Millisecond)

		assert.Equal(t, webhook.StateDelivered, h.stateOf(waiting))
	})
}

func TestABacklogIsClaimedFromItsOldEndOn(t *testing.T) {
	inWatchedHost(t, func(t *testing.T, h *watchedHost) {
		h.deliver(3)
		h.world.answer(func(r *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return status(http.StatusOK)(r)
		})
		var events []uuid.UUID
		for range 300 { // at 20 a second
			events = append(events, h.enqueue(paid(`{}`)))
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		assert.WithinRange(t, h.store.last(webhook.LaneFirst), time.Now().Add(-10*time.Second), time.Now().Add(-6*time.Second),
			"among those that wait")
		time.Sleep(20 * time.Second)

		for _, event := range events {
			assert.Equal(t, webhook.StateDelivered, h.stateOf(event))
		}
	})
}
