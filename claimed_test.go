package webhook_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
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

// claimHook is a store that does something once, after deliveries to an endpoint were
// claimed and before the dispatcher gets them.
type claimHook struct {
	*webhooktest.Store
	endpoint uuid.UUID
	do       func()
	once     sync.Once
	claimed  int
}

func (s *claimHook) Claim(ctx context.Context, p webhook.ClaimParams) ([]webhook.Claimed, error) {
	claimed, err := s.Store.Claim(ctx, p)
	if n := len(slices.DeleteFunc(slices.Clone(claimed), func(c webhook.Claimed) bool { return c.EndpointID != s.endpoint })); n > 0 {
		s.once.Do(func() {
			s.claimed = n
			s.do()
		})
	}
	return claimed, err
}

func TestB29AnEndpointThatIsDeletedBetweenClaimAndRequestLeavesNothingClaimed(t *testing.T) {
	t.Parallel()
	for _, answer := range []int{http.StatusOK, http.StatusInternalServerError} {
		t.Run(fmt.Sprint(answer), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { deletedAfterClaim(t, answer) })
		})
	}
}

func deletedAfterClaim(t *testing.T, answer int) {
	t.Helper()
	store := &claimHook{Store: webhooktest.NewStore()}
	w := new(world)
	w.answer(func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/removed" {
			return status(answer)(r)
		}
		return status(http.StatusOK)(r)
	})
	hooks, err := webhook.New(store, webhook.Config{
		Secrets:   webhook.NewKeyring(webhook.NewKey("test")),
		Transport: loopback(t).Wrap(func(http.RoundTripper) http.RoundTripper { return w }),
	})
	require.NoError(t, err)
	defer hooks.Close()
	create := func(path string) uuid.UUID {
		e, err := hooks.Endpoints().Create(t.Context(), webhook.EndpointParams{Tenant: "acme", URL: "https://" + path[1:] + ".example" + path, Types: []string{"*"}})
		require.NoError(t, err)
		return e.ID
	}
	removed, other := create("/removed"), create("/other")
	store.endpoint = removed
	store.do = func() { assert.NoError(t, hooks.Endpoints().Delete(t.Context(), webhook.AllTenants(), removed)) }
	const events = 50
	tx := store.Begin()
	for range events {
		_, err := hooks.Enqueue(t.Context(), tx, paid(`{}`))
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit())
	d, err := hooks.NewDispatcher(webhook.DispatcherConfig{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, d.Run(ctx)) })

	time.Sleep(3 * time.Minute) // longer than a lease
	cancel()
	running.Wait()

	states := func(endpoint uuid.UUID) map[webhook.DeliveryState]int {
		page, err := hooks.Deliveries().List(t.Context(), webhook.DeliveryQuery{Scope: webhook.AllTenants(), EndpointID: endpoint, Limit: 1000})
		require.NoError(t, err)
		n := make(map[webhook.DeliveryState]int)
		for i := range page.Deliveries {
			delivery := &page.Deliveries[i]
			n[delivery.State]++
			if delivery.State == webhook.StateCancelled {
				assert.Equal(t, "endpoint deleted", delivery.Reason)
			}
		}
		return n
	}
	require.Positive(t, store.claimed, "they were claimed before it was deleted")
	got := states(removed)
	assert.Equal(t, events, got[webhook.StateCancelled]+got[webhook.StateDelivered], "each has ended: %v", got)
	assert.LessOrEqual(t, got[webhook.StateDelivered], store.claimed)
	if answer != http.StatusOK {
		assert.Zero(t, got[webhook.StateDelivered])
	}
	assert.Equal(t, map[webhook.DeliveryState]int{webhook.StateDelivered: events}, states(other), "the others go on")
}
