package postgres_test

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/postgres"
)

// Deleting an endpoint with a large backlog (500,000 deliveries with WEBHOOK_LONG) is
// one row; what it had pending is settled behind it, in batches that keep nobody else
// from claiming.
func TestDeletingAnEndpointWithABacklogHoldsUpNobody(t *testing.T) {
	t.Parallel()
	backlog := 20_000
	if os.Getenv("WEBHOOK_LONG") != "" {
		backlog = 500_000
	}
	pool := openPool(t, migrated(t), pgx.QueryExecModeCacheStatement)
	store := postgres.New(pool)
	ctx := t.Context()
	now := time.Now()
	var both [2]webhook.EndpointRecord
	for i := range both {
		var err error
		both[i], err = store.CreateEndpoint(ctx, webhook.EndpointRecord{
			ID: uuid.Must(uuid.NewV7()), Tenant: "tenant", URL: "https://hooks.example/in", Types: []string{"*"}, State: webhook.EndpointActive,
		})
		require.NoError(t, err)
	}
	big, other := both[0], both[1]
	exec(t, pool, `
		INSERT INTO webhook.event (id, resource_version, created_at, tenant, type, resource_id, content_type, payload)
		SELECT '01a00000-0000-7000-8000-000000000001', 0, now(), 'tenant', 'order.created', '', '', '{}'`)
	park := func(endpoint uuid.UUID, n int) {
		exec(t, pool, `
			INSERT INTO webhook.delivery (id, event_id, endpoint_id, run, lane, tenant, event_type, next_attempt_at, created_at)
			SELECT gen_random_uuid(), '01a00000-0000-7000-8000-000000000001', $1, n, 0, 'tenant', 'order.created', $2::timestamptz, $2::timestamptz
			FROM generate_series(1, $3::integer) n`, endpoint, now.Add(-time.Hour), n)
	}
	park(big.ID, backlog)
	park(other.ID, backlog/4)
	exec(t, pool, `ANALYZE webhook.delivery`)

	began := time.Now()
	big.DeletedAt = now
	_, err := store.UpdateEndpoint(ctx, big)
	require.NoError(t, err)
	deleted := time.Since(began)

	settled := make(chan error, 1)
	cancelled := 0
	began = time.Now()
	go func() {
		for {
			n, err := store.CancelDeliveries(ctx, webhook.CancelDeliveriesParams{Now: now, EndpointID: big.ID, Reason: "endpoint deleted", Limit: 500})
			cancelled += n
			if err != nil || n == 0 {
				settled <- err
				return
			}
		}
	}()
	var claims []time.Duration
	for waiting := true; waiting; {
		select {
		case err := <-settled:
			require.NoError(t, err)
			waiting = false
		default:
			claims = append(claims, timeClaim(ctx, t, store, other.ID, now))
		}
	}
	took := time.Since(began)

	assert.Equal(t, backlog, cancelled)
	assert.Empty(t, claimOf(ctx, t, store, big.ID, now), "claimed of a deleted endpoint")
	assert.Equal(t, backlog, number(t, pool, `SELECT count(*)::int FROM webhook.delivery_dead WHERE state = 'cancelled'`), "visible, with the reason")
	require.NotEmpty(t, claims)
	slices.Sort(claims)
	t.Logf("deleted in %v, %d deliveries settled in %v (%.0f/s); meanwhile %d claims of another endpoint, p50 %v, p99 %v, longest %v",
		deleted, backlog, took, float64(backlog)/took.Seconds(), len(claims), claims[len(claims)/2], claims[len(claims)*99/100], claims[len(claims)-1])
	assert.Less(t, claims[len(claims)/2], time.Second, "claims wait for what is settled")
}

func claimOf(ctx context.Context, t *testing.T, store *postgres.Store, endpoint uuid.UUID, now time.Time) []webhook.Claimed {
	t.Helper()
	claimed, err := store.Claim(ctx, webhook.ClaimParams{
		Now: now, LeaseUntil: now.Add(time.Minute), Token: uuid.New(),
		Requests: []webhook.ClaimRequest{{EndpointID: endpoint, Limit: 1}},
	})
	require.NoError(t, err)
	return claimed
}

// timeClaim returns how long a claim took.
func timeClaim(ctx context.Context, t *testing.T, store *postgres.Store, endpoint uuid.UUID, now time.Time) time.Duration {
	t.Helper()
	began := time.Now()
	claimed := claimOf(ctx, t, store, endpoint, now)
	took := time.Since(began)
	require.Len(t, claimed, 1)
	return took
}
