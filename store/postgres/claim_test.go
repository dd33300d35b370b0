package postgres_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/postgres"
)

// A fan-out makes many deliveries that are due at the same time. The index keeps those
// in one entry, which it reads in the same order in both directions, so that the two
// ends of the queue were the same rows. A claim that comes back short is taken to mean
// that nothing is left, so what was left waited for reconciliation.
func TestOldestAndNewestDoNotOverlapWhereManyAreDueAtTheSameTime(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), pgx.QueryExecModeCacheStatement)
	store := postgres.New(pool)
	const endpoints, events = 20, 45 // enough to fill pages of the index, which is when entries are merged
	requests := make([]webhook.ClaimRequest, 0, 2*endpoints)
	ids := make([]uuid.UUID, 0, endpoints)
	for range endpoints {
		endpoint, err := store.CreateEndpoint(t.Context(), webhook.EndpointRecord{
			ID: uuid.New(), Tenant: "acme", State: webhook.EndpointActive, Types: []string{"*"},
		})
		require.NoError(t, err)
		ids = append(ids, endpoint.ID)
		requests = append(requests,
			webhook.ClaimRequest{EndpointID: endpoint.ID, Limit: 5},
			webhook.ClaimRequest{EndpointID: endpoint.ID, Limit: 10, Newest: true})
	}
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := store.InsertEvents(t.Context(), tx, newEvents(t, events))
		return err
	}))
	now := time.Now()
	_, err := store.FanOut(t.Context(), webhook.FanOutParams{
		Now: now, MaxEvents: events, MaxDeliveries: events * endpoints,
		Matcher: &everyEndpoint{ids},
	})
	require.NoError(t, err)

	var counts []int
	for range 4 {
		claimed, err := store.Claim(t.Context(), webhook.ClaimParams{
			Now: now, LeaseUntil: now.Add(time.Minute), Token: uuid.New(),
			Requests: requests,
		})
		require.NoError(t, err)
		counts = append(counts, len(claimed))
	}

	assert.Equal(t, []int{300, 300, 300, 0}, counts)
}
