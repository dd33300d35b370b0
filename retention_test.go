package webhook_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
)

const day = 24 * time.Hour

func TestARetentionThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for field, policy := range map[string]webhook.RetentionPolicy{
		"Dead":       {Dead: time.Hour},
		"Deliveries": {Deliveries: 1},
		"Events":     {Events: 29 * day}, // less than dead deliveries are kept for
	} {
		_, err := h.hooks.NewDispatcher(webhook.DispatcherConfig{Retention: policy})
		require.ErrorIs(t, err, webhook.ErrInvalid)
		require.ErrorContains(t, err, "DispatcherConfig.Retention."+field)
	}
	for _, policy := range []webhook.RetentionPolicy{
		{}, {Dead: day, Deliveries: day, Events: day}, {Dead: -1, Deliveries: -1, Events: -1}, {Events: -1},
	} {
		_, err := h.hooks.NewDispatcher(webhook.DispatcherConfig{Retention: policy})
		require.NoError(t, err)
	}
	_, err := h.hooks.NewDispatcher(webhook.DispatcherConfig{Retention: webhook.RetentionPolicy{Deliveries: -1}})
	require.ErrorContains(t, err, "Events", "events would go before what was delivered of them")
}

// upkept is a store that tells of upkeep, and may hold it up or fail it.
type upkept struct {
	*webhooktest.Store
	calls   chan webhook.MaintainParams
	hold    chan struct{} // nil: not held up
	failing atomic.Bool
	at      atomic.Int32 // at work now
	most    atomic.Int32 // at work at once, at most
}

func (s *upkept) Maintain(ctx context.Context, p webhook.MaintainParams) error {
	n := s.at.Add(1)
	defer s.at.Add(-1)
	for most := s.most.Load(); n > most && !s.most.CompareAndSwap(most, n); most = s.most.Load() {
	}
	s.calls <- p
	if s.hold != nil {
		select {
		case <-s.hold:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if s.failing.Load() {
		return errors.New("no upkeep today")
	}
	return s.Store.Maintain(ctx, p)
}

func newUpkept() *upkept {
	return &upkept{Store: webhooktest.NewStore(), calls: make(chan webhook.MaintainParams, 100)}
}

// dispatchers runs n of them on a store until stop is called.
func dispatchers(t *testing.T, n int, store webhook.Store[*webhooktest.Tx], policy webhook.RetentionPolicy) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for range n {
		hooks, err := webhook.New(store, webhook.Config{
			Secrets: webhook.NewKeyring(webhook.NewKey("test")), Transport: loopback(t),
		})
		require.NoError(t, err)
		t.Cleanup(hooks.Close)
		d, err := hooks.NewDispatcher(webhook.DispatcherConfig{Retention: policy})
		require.NoError(t, err)
		running.Go(func() { assert.NoError(t, d.Run(ctx)) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}

func TestUpkeepIsDoneAtStartAndHourlyByThePolicy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newUpkept()
		stop := dispatchers(t, 1, store, webhook.RetentionPolicy{Dead: -1, Events: -1})
		defer stop()

		synctest.Wait()
		p := <-store.calls
		assert.True(t, p.DeadBefore.IsZero(), "for ever")
		assert.True(t, p.EventsBefore.IsZero(), "for ever")
		assert.Equal(t, 7*day, p.Now.Sub(p.DeliveriesBefore))

		store.failing.Store(true) // which is made up for by the next time
		for range 3 {
			time.Sleep(time.Hour + time.Second)
			again := <-store.calls
			assert.WithinDuration(t, p.Now.Add(time.Hour), again.Now, time.Second)
			p = again
		}
		assert.Empty(t, store.calls)
	})
}

func TestOneOfManyDispatchersDoesTheUpkeep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newUpkept()
		store.hold = make(chan struct{})
		stop := dispatchers(t, 3, store, webhook.RetentionPolicy{})
		defer stop()

		time.Sleep(90 * time.Minute) // it takes long, and the others ask every hour
		assert.Len(t, store.calls, 1)
		close(store.hold)
		time.Sleep(time.Hour)
		assert.Greater(t, len(store.calls), 1, "it is done again")
		assert.EqualValues(t, 1, store.most.Load(), "at work at once")
	})
}

func TestUpkeepThatSomebodyElseDoesIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newUpkept()
		store.hold = make(chan struct{})
		stop := dispatchers(t, 1, store, webhook.RetentionPolicy{})
		defer stop()
		synctest.Wait()
		require.EqualValues(t, 1, store.at.Load())

		// As if this process had stood still for longer than the duty lasts.
		held, err := store.TakeDuty(t.Context(), webhook.DutyParams{
			Name: "upkeep", Holder: uuid.New(), Now: time.Now().Add(time.Hour), Until: time.Now().Add(48 * time.Hour),
		})
		require.NoError(t, err)
		require.True(t, held)
		time.Sleep(time.Minute)

		assert.Zero(t, store.at.Load())
	})
}

func TestUpkeepEndsWithItsDispatcherAndTheDutyIsFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newUpkept()
		store.hold = make(chan struct{})
		stop := dispatchers(t, 1, store, webhook.RetentionPolicy{})
		synctest.Wait()
		require.EqualValues(t, 1, store.at.Load())

		stop()

		assert.Zero(t, store.at.Load())
		held, err := store.TakeDuty(t.Context(), webhook.DutyParams{
			Name: "upkeep", Holder: uuid.New(), Now: time.Now(), Until: time.Now().Add(time.Minute),
		})
		require.NoError(t, err)
		assert.True(t, held)
	})
}
