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

// inOrder sends everything to all endpoints, in the order of its resource.
type inOrder struct{ everyEndpoint }

func (*inOrder) Ordering(uuid.UUID) webhook.Ordering { return webhook.OrderingPerResource }

// An event that was committed late, and is not looked at yet, keeps those after it waiting
// all the same.
func TestWhatIsBelowTheFloorOfTheOutboxKeepsItsPlaceInTheOrder(t *testing.T) {
	t.Parallel()
	url := migrated(t)
	pool := openPool(t, url, pgx.QueryExecModeCacheStatement)
	store := postgres.New(pool)
	matcher := &inOrder{everyEndpoint{newEndpoints(t, store, 1)}}
	fanOut := func(from int) webhook.FanOutResult {
		t.Helper()
		store.LookAtOutboxFrom(int64(from))
		r, err := store.FanOut(t.Context(), webhook.FanOutParams{Now: time.Now(), MaxEvents: 10, MaxDeliveries: 10, Matcher: matcher})
		require.NoError(t, err)
		return r
	}
	ready := func() int {
		t.Helper()
		lanes, err := store.Ready(t.Context(), webhook.ReadyParams{Now: time.Now(), Limit: 10})
		require.NoError(t, err)
		return len(lanes)
	}
	insertEvents(t, pool, store, 2)

	require.Equal(t, 1, fanOut(number(t, pool, `SELECT max(position)::int FROM webhook.outbox`)).Deliveries)
	assert.Zero(t, ready(), "it waits for the one before")
	require.Equal(t, 1, fanOut(1).Deliveries)
	assert.Equal(t, 1, ready())
	assert.Equal(t, 1, number(t, pool, `SELECT count(*)::int FROM webhook.delivery
		WHERE lane = 0 AND order_seq = (SELECT min(seq) FROM webhook.event)`), "whose turn it is")
}
