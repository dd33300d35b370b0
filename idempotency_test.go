package webhook_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
)

func keyedWorld(t *testing.T) (*webhook.Hooks[*webhooktest.Tx], *webhooktest.Clock) {
	t.Helper()
	clock := webhooktest.NewClock(time.Date(2026, 3, 1, 9, 59, 0, 0, time.UTC))
	store := webhooktest.NewStore()
	store.SetNow(clock.Now)
	hooks, err := webhook.New(store, webhook.Config{Secrets: webhook.InsecurePlaintext(), Clock: clock})
	require.NoError(t, err)
	t.Cleanup(hooks.Close)
	return hooks, clock
}

func keyedParams(key string) webhook.EndpointParams {
	return webhook.EndpointParams{Tenant: "acme", URL: "https://a.example/in", Types: []string{"*"}, IdempotencyKey: key}
}

func TestAnEndpointIsMadeOncePerIdempotencyKey(t *testing.T) {
	t.Parallel()
	hooks, clock := keyedWorld(t)
	endpoints := hooks.Endpoints()

	first, err := endpoints.Create(t.Context(), keyedParams("k"))
	require.NoError(t, err)
	assert.False(t, first.Secret.IsZero())
	assert.Equal(t, uuid.Version(7), first.ID.Version())
	assert.Equal(t, uuid.RFC4122, first.ID.Variant())

	for range 24 {
		clock.Advance(time.Hour)
		again, err := endpoints.Create(t.Context(), keyedParams("k"))
		require.NoError(t, err)
		assert.Equal(t, first.ID, again.ID)
		assert.True(t, again.Secret.IsZero(), "the secret was shown")
	}

	other, err := endpoints.Create(t.Context(), keyedParams("another"))
	require.NoError(t, err)
	assert.NotEqual(t, first.ID, other.ID)
	p := keyedParams("k")
	p.Tenant = "globex"
	foreign, err := endpoints.Create(t.Context(), p)
	require.NoError(t, err)
	assert.NotEqual(t, first.ID, foreign.ID, "a key is the tenant's own")

	clock.Advance(2 * time.Hour)
	late, err := endpoints.Create(t.Context(), keyedParams("k"))
	require.NoError(t, err)
	assert.NotEqual(t, first.ID, late.ID, "keys are not kept for ever")
}

func TestAnIdempotencyKeyOfSomethingElseIsAConflict(t *testing.T) {
	t.Parallel()
	hooks, clock := keyedWorld(t)
	e, err := hooks.Endpoints().Create(t.Context(), keyedParams("k"))
	require.NoError(t, err)

	p := keyedParams("k")
	p.URL = "https://b.example/in"
	_, err = hooks.Endpoints().Create(t.Context(), p)
	require.ErrorIs(t, err, webhook.ErrConflict)

	// What was changed since is still what the key made.
	clock.Advance(time.Minute)
	_, err = hooks.Endpoints().Update(t.Context(), webhook.AllTenants(), e.ID, webhook.EndpointUpdate{URL: &p.URL})
	require.NoError(t, err)
	again, err := hooks.Endpoints().Create(t.Context(), keyedParams("k"))
	require.NoError(t, err)
	assert.Equal(t, e.ID, again.ID)
	assert.Equal(t, p.URL, again.URL)

	// And what was deleted is not made again.
	p = keyedParams("d")
	d, err := hooks.Endpoints().Create(t.Context(), p)
	require.NoError(t, err)
	require.NoError(t, hooks.Endpoints().Delete(t.Context(), webhook.AllTenants(), d.ID))
	_, err = hooks.Endpoints().Create(t.Context(), p)
	require.ErrorIs(t, err, webhook.ErrConflict)

	p.IdempotencyKey = "\n"
	_, err = hooks.Endpoints().Create(t.Context(), p)
	require.ErrorIs(t, err, webhook.ErrInvalid)
}

func TestTwinsWithOneIdempotencyKeyMakeOneEndpoint(t *testing.T) {
	t.Parallel()
	hooks, _ := keyedWorld(t)
	var wg sync.WaitGroup
	made := make([]webhook.Endpoint, 20)
	errs := make([]error, len(made))
	for i := range made {
		wg.Go(func() { made[i], errs[i] = hooks.Endpoints().Create(t.Context(), keyedParams("k")) })
	}
	wg.Wait()
	secrets := 0
	for i := range made {
		require.NoError(t, errs[i])
		assert.Equal(t, made[0].ID, made[i].ID)
		if !made[i].Secret.IsZero() {
			secrets++
		}
	}
	assert.Equal(t, 1, secrets, "one of them made it")
	list, err := hooks.Endpoints().List(t.Context(), webhook.ListEndpointsParams{Scope: webhook.AllTenants()})
	require.NoError(t, err)
	assert.Len(t, list, 1)
}

func TestAReplayJobIsMadeOncePerIdempotencyKey(t *testing.T) {
	t.Parallel()
	hooks, clock := keyedWorld(t)
	a, err := hooks.Endpoints().Create(t.Context(), keyedParams(""))
	require.NoError(t, err)
	b, err := hooks.Endpoints().Create(t.Context(), keyedParams(""))
	require.NoError(t, err)
	scope := webhook.TenantScope("acme")

	r := webhook.ReplayJobRequest{EndpointID: a.ID, IdempotencyKey: "k"}
	first, err := hooks.Replays().Create(t.Context(), scope, r)
	require.NoError(t, err)
	clock.Advance(time.Hour)
	again, err := hooks.Replays().Create(t.Context(), scope, r)
	require.NoError(t, err)
	assert.False(t, first.Duplicate)
	assert.True(t, again.Duplicate)
	assert.Equal(t, first.ID, again.ID)

	r.EndpointID = b.ID
	_, err = hooks.Replays().Create(t.Context(), scope, r)
	require.ErrorIs(t, err, webhook.ErrConflict)

	var wg sync.WaitGroup
	ids := make([]uuid.UUID, 20)
	for i := range ids {
		wg.Go(func() {
			job, err := hooks.Replays().Create(t.Context(), scope, webhook.ReplayJobRequest{EndpointID: b.ID, IdempotencyKey: "twins"})
			if assert.NoError(t, err) {
				ids[i] = job.ID
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		assert.Equal(t, ids[0], id)
	}
}
