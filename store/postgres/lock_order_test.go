package postgres_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/postgres"
)

// Leases are renewed, marked and recorded at the same time, in batches that each
// dispatcher puts together in its own order.
func TestWhatTouchesTheSameLeasesDoesNotDeadlock(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), pgx.QueryExecModeCacheStatement)
	store := postgres.New(pool)
	ids := newEndpoints(t, store, 50)
	for range 10 {
		insertEvents(t, pool, store, 500)
		fanOutAll(t, store, &oneOf{everyEndpoint: everyEndpoint{ids}})
		claimed, token := claimSome(t, store, ids)
		leases := func() []webhook.Lease {
			shuffled := make([]webhook.Lease, len(claimed))
			for to, from := range rand.Perm(len(claimed)) {
				shuffled[to] = webhook.Lease{DeliveryID: claimed[from].DeliveryID, Token: token}
			}
			return shuffled
		}
		now := time.Now()
		results := func() (all []webhook.Result) {
			for _, lease := range leases() {
				all = append(all, webhook.Result{Lease: lease, State: webhook.StateDelivered})
			}
			return all
		}

		var touching sync.WaitGroup
		for range 3 {
			touching.Go(func() {
				_, err := store.Renew(t.Context(), webhook.RenewParams{LeaseUntil: now.Add(time.Minute), Leases: leases()})
				assert.NoError(t, err)
			})
		}
		touching.Go(func() {
			_, err := store.MarkSent(t.Context(), webhook.MarkSentParams{Now: now, Leases: leases()})
			assert.NoError(t, err)
		})
		for range 2 {
			touching.Go(func() {
				_, err := store.Record(t.Context(), webhook.RecordParams{Now: now, Results: results()})
				assert.NoError(t, err)
			})
		}
		touching.Wait()
	}
}
