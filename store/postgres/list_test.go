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

// What lies behind more rows than the first look takes in is found by the second.
func TestAListGoesOnBehindItsFirstLook(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), pgx.QueryExecModeCacheStatement)
	store := postgres.New(pool)
	const rare, others = 3, 2_000
	exec(t, pool, `
		INSERT INTO webhook.delivery_log (id, event_id, endpoint_id, created_at, finished_at, run, attempts, last_status, tenant, event_type, last_class)
		SELECT ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, gen_random_uuid(), $1, now(), now(), 0, 1, 200, 'acme',
		       CASE WHEN n <= $2 THEN 'rare' ELSE 'common' END, ''
		FROM generate_series(1, $2::int + $3::int) n`, uuid.New(), rare, others)
	for _, p := range []webhook.ListDeliveriesParams{
		{EventType: "rare", Limit: rare + 1},
		{EventType: "rare", Status: webhook.Status2xx, From: time.UnixMilli(0), Limit: rare + 1},
	} {
		p.Scope = webhook.AllTenants()
		list, err := store.ListDeliveries(t.Context(), p)
		require.NoError(t, err)
		require.Len(t, list.Deliveries, rare)
		assert.Zero(t, list.Next)
		for i, d := range list.Deliveries {
			assert.Equal(t, "rare", d.EventType)
			assert.Equal(t, byte(rare-i), d.ID[15])
		}
	}
	list, err := store.ListDeliveries(t.Context(), webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), EventType: "nothing", Limit: 1})
	require.NoError(t, err)
	assert.Empty(t, list.Deliveries)
}
