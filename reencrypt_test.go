package webhook_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
)

// withBox is another process on the same database, with other keys.
func (h *host) withBox(box webhook.SecretBox, alter ...func(*webhook.Config)) *host {
	h.t.Helper()
	cfg := webhook.Config{Secrets: box, Transport: loopback(h.t)}
	for _, f := range alter {
		f(&cfg)
	}
	hooks, err := webhook.New(h.store, cfg)
	require.NoError(h.t, err)
	h.t.Cleanup(hooks.Close)
	return &host{t: h.t, store: h.store, hooks: hooks}
}

func (h *host) record(id uuid.UUID) webhook.EndpointRecord {
	h.t.Helper()
	rec, err := h.store.GetEndpoint(h.t.Context(), webhook.AllTenants(), id)
	require.NoError(h.t, err)
	return rec
}

// proves that every receiver gets an event, signed with its endpoint's secret.
func (h *host) proves(receivers map[uuid.UUID]*webhooktest.Receiver) {
	h.t.Helper()
	before := map[uuid.UUID]int{}
	for id, r := range receivers {
		before[id] = len(r.Requests())
	}
	stop := h.dispatch(webhook.DispatcherConfig{})
	for _, d := range h.settled(h.enqueue(paid(`{}`)), len(receivers)) {
		assert.Equal(h.t, webhook.StateDelivered, d.State, "%s", d.LastClass)
	}
	stop()
	for id, r := range receivers {
		got := r.Requests()[before[id]:]
		require.Len(h.t, got, 1)
		require.NoError(h.t, got[0].VerifyErr)
		assert.Equal(h.t, "sesame", got[0].Header.Get("X-Token"))
	}
}

func TestP05KeysAreRotatedWhileEverythingDelivers(t *testing.T) {
	t.Parallel()
	older, old, next := webhook.NewKey("2024"), webhook.NewKey("2025"), webhook.NewKey("2026")
	first := newHost(t, func(c *webhook.Config) { c.Secrets = webhook.NewKeyring(older) })
	both := first.withBox(webhook.NewKeyring(old, older))
	receivers := map[uuid.UUID]*webhooktest.Receiver{}
	for i, h := range []*host{first, first, both} {
		r := webhooktest.NewReceiver(t)
		e := h.endpoint(r.URL, func(p *webhook.EndpointParams) { p.Headers = webhook.Headers{"X-Token": "sesame"} })
		secret := e.Secret
		for range i { // secrets of one endpoint under two keys
			rotated, err := both.hooks.Endpoints().RotateSecret(t.Context(), webhook.AllTenants(), e.ID, webhook.RotateOptions{})
			require.NoError(t, err)
			secret = rotated.Secret
		}
		r.Verify(t, secret.Reveal())
		receivers[e.ID] = r
	}
	both.proves(receivers)

	moved := first.withBox(webhook.NewKeyring(next, old, older))
	moved.proves(receivers)
	changed, err := moved.hooks.Endpoints().Reencrypt(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 3, changed)
	changed, err = moved.hooks.Endpoints().Reencrypt(t.Context())
	require.NoError(t, err)
	assert.Zero(t, changed, "there is nothing left to do")

	first.withBox(webhook.NewKeyring(next)).proves(receivers)
}

func TestP05ReencryptLosesNoChangeMadeBesideIt(t *testing.T) {
	t.Parallel()
	old, next := webhook.NewKey("2025"), webhook.NewKey("2026")
	h := newHost(t, func(c *webhook.Config) { c.Secrets = webhook.NewKeyring(old) })
	// Processes are updated one after the other: some still seal with the old key.
	behind, ahead := h.withBox(webhook.NewKeyring(old, next)), h.withBox(webhook.NewKeyring(next, old))
	var ids []uuid.UUID
	for range 20 {
		ids = append(ids, h.endpoint(inbox, func(p *webhook.EndpointParams) { p.Headers = webhook.Headers{"X-Token": "0"} }).ID)
	}
	const changes = 5
	var wg sync.WaitGroup
	for i, id := range ids {
		wg.Go(func() {
			by := []*host{behind, ahead}[i%2].hooks.Endpoints()
			for n := range changes {
				headers := webhook.Headers{"X-Token": fmt.Sprint(n + 1)}
				_, err := by.Update(t.Context(), webhook.AllTenants(), id, webhook.EndpointUpdate{Headers: &headers})
				assert.NoError(t, err)
				_, err = by.RotateSecret(t.Context(), webhook.AllTenants(), id, webhook.RotateOptions{})
				assert.NoError(t, err)
			}
		})
	}
	for range 3 {
		wg.Go(func() {
			_, err := ahead.hooks.Endpoints().Reencrypt(t.Context())
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	_, err := ahead.hooks.Endpoints().Reencrypt(t.Context())
	require.NoError(t, err)

	last := h.withBox(webhook.NewKeyring(next))
	_, err = last.hooks.Endpoints().Reencrypt(t.Context())
	require.NoError(t, err, "the old key is not needed")
	for _, id := range ids {
		e, err := last.hooks.Endpoints().Get(t.Context(), webhook.AllTenants(), id)
		require.NoError(t, err)
		assert.Equal(t, webhook.Headers{"X-Token": fmt.Sprint(changes)}, e.Headers)
		assert.Len(t, e.Secrets, 1+changes)
	}
}

func TestP02P05AMovedCiphertextIsReportedAndHoldsItsDeliveries(t *testing.T) {
	t.Parallel()
	old, next := webhook.NewKey("2025"), webhook.NewKey("2026")
	h := newHost(t, func(c *webhook.Config) { c.Secrets = webhook.NewKeyring(old) })
	headers := func(p *webhook.EndpointParams) { p.Headers = webhook.Headers{"X-Token": "sesame"} }
	whole, sound := webhooktest.NewReceiver(t), webhooktest.NewReceiver(t)
	var victims []uuid.UUID
	for range 4 {
		victims = append(victims, h.endpoint(whole.URL, headers).ID)
	}
	good := h.endpoint(sound.URL, headers)
	sound.Verify(t, good.Secret.Reveal())
	for i, spoil := range []func(*webhook.EndpointRecord){
		func(r *webhook.EndpointRecord) { r.Secrets = h.record(good.ID).Secrets },
		func(r *webhook.EndpointRecord) { r.Headers = h.record(good.ID).Headers },
		func(r *webhook.EndpointRecord) { r.Secrets = []byte(`{"not": "a list"}`) },
		func(r *webhook.EndpointRecord) { r.Headers = []byte("v1") },
	} {
		rec := h.record(victims[i])
		spoil(&rec)
		_, err := h.store.UpdateEndpoint(t.Context(), rec)
		require.NoError(t, err)
	}
	before := map[uuid.UUID]webhook.EndpointRecord{}
	for _, id := range victims {
		before[id] = h.record(id)
	}

	moved := h.withBox(webhook.NewKeyring(next, old))
	changed, err := moved.hooks.Endpoints().Reencrypt(t.Context())

	require.ErrorIs(t, err, webhook.ErrSecretUnreadable)
	for _, id := range victims {
		assert.ErrorContains(t, err, id.String(), "it says which")
		assert.Equal(t, before[id], h.record(id), "and leaves it alone")
	}
	assert.NotContains(t, err.Error(), "sesame")
	assert.Equal(t, 1, changed)
	moved.dispatch(webhook.DispatcherConfig{})
	event := moved.enqueue(paid(`{}`))
	require.Eventually(t, func() bool { return len(sound.Requests()) == 1 }, 10*time.Second, time.Millisecond)
	require.NoError(t, sound.Requests()[0].VerifyErr)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		list, err := h.store.ListDeliveries(t.Context(), webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), EventID: event, Limit: 10})
		require.NoError(c, err)
		classes := map[webhook.ErrorClass]int{}
		for _, d := range list.Deliveries {
			classes[d.LastClass]++
		}
		require.Equal(c, map[webhook.ErrorClass]int{webhook.ClassInternal: 4, webhook.ClassNone: 1}, classes)
	}, 10*time.Second, time.Millisecond)
	assert.Empty(t, whole.Requests(), "nothing is sent unsigned, or without its headers")
}

func TestReencryptDropsSecretsThatSignNothingAnyMore(t *testing.T) {
	t.Parallel()
	gone, old, next := webhook.NewKey("2024"), webhook.NewKey("2025"), webhook.NewKey("2026")
	clock := webhooktest.NewClock(time.Now())
	clocked := func(c *webhook.Config) { c.Clock = clock }
	h := newHost(t, clocked, func(c *webhook.Config) { c.Secrets = webhook.NewKeyring(gone) })
	e := h.endpoint(inbox)
	_, err := h.withBox(webhook.NewKeyring(old, gone), clocked).hooks.Endpoints().
		RotateSecret(t.Context(), webhook.AllTenants(), e.ID, webhook.RotateOptions{Overlap: time.Hour})
	require.NoError(t, err)

	moved := h.withBox(webhook.NewKeyring(next, old), clocked).hooks.Endpoints()
	_, err = moved.Reencrypt(t.Context())
	require.ErrorIs(t, err, webhook.ErrSecretUnreadable, "during the overlap the key is still needed")
	var unknown *webhook.SecretUnreadableError
	require.ErrorAs(t, err, &unknown)
	assert.True(t, unknown.UnknownKey)
	assert.Equal(t, "2024", unknown.KeyID)

	clock.Advance(time.Hour)
	changed, err := moved.Reencrypt(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, changed)
	got, err := moved.Get(t.Context(), webhook.AllTenants(), e.ID)
	require.NoError(t, err)
	assert.Len(t, got.Secrets, 1)
}

// contested changes endpoints at the moment when somebody else is about to.
type contested struct {
	webhook.Store[*webhooktest.Tx]
	mu     sync.Mutex
	before map[uuid.UUID]func()
}

func (c *contested) UpdateEndpoint(ctx context.Context, e webhook.EndpointRecord) (webhook.EndpointRecord, error) {
	c.mu.Lock()
	f := c.before[e.ID]
	delete(c.before, e.ID)
	c.mu.Unlock()
	if f != nil {
		f()
	}
	return c.Store.UpdateEndpoint(ctx, e)
}

func TestReencryptMeetsADeletionAndAChange(t *testing.T) {
	t.Parallel()
	old, next := webhook.NewKey("2025"), webhook.NewKey("2026")
	h := newHost(t, func(c *webhook.Config) { c.Secrets = webhook.NewKeyring(old) })
	deleted, changed, quiet := h.endpoint(inbox).ID, h.endpoint(inbox).ID, h.endpoint(inbox).ID
	store := &contested{Store: h.store, before: map[uuid.UUID]func(){
		deleted: func() {
			assert.NoError(t, h.hooks.Endpoints().Delete(t.Context(), webhook.AllTenants(), deleted))
		},
		changed: func() {
			_, err := h.hooks.Endpoints().Pause(t.Context(), webhook.AllTenants(), changed, "by hand")
			assert.NoError(t, err)
		},
	}}
	hooks, err := webhook.New(store, webhook.Config{Secrets: webhook.NewKeyring(next, old)})
	require.NoError(t, err)
	t.Cleanup(hooks.Close)

	n, err := hooks.Endpoints().Reencrypt(t.Context())

	require.NoError(t, err)
	assert.Equal(t, 2, n)
	last := h.withBox(webhook.NewKeyring(next)).hooks.Endpoints()
	list, err := last.List(t.Context(), webhook.ListEndpointsParams{Scope: webhook.AllTenants()})
	require.NoError(t, err)
	states := map[uuid.UUID]webhook.EndpointState{}
	for _, e := range list {
		states[e.ID] = e.State
	}
	assert.Equal(t, map[uuid.UUID]webhook.EndpointState{changed: webhook.EndpointPaused, quiet: webhook.EndpointActive}, maps.Clone(states))
	_, err = last.RotateSecret(t.Context(), webhook.AllTenants(), changed, webhook.RotateOptions{})
	require.NoError(t, err)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = hooks.Endpoints().Reencrypt(ended)
	require.ErrorIs(t, err, context.Canceled)
}
