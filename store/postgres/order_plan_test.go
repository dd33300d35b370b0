package postgres_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/postgres"
)

// orderPlans runs what concerns ordered deliveries beside 20,000 of them, half of them of
// one key.
func orderPlans(t *testing.T, pool *pgxpool.Pool, store *postgres.Store, endpoint uuid.UUID, now time.Time, plans *planLog) {
	t.Helper()
	ctx := t.Context()
	check := func(what string, rows float64, run func() error) { t.Helper(); plans.check(t, what, rows, run) }
	exec(t, pool, `
		INSERT INTO webhook.delivery
			(id, event_id, endpoint_id, run, lane, tenant, event_type, next_attempt_at, created_at, order_key, order_seq)
		SELECT gen_random_uuid(), gen_random_uuid(), $1, 0, 3, 'tenant', 'order.created', $2::timestamptz, $2::timestamptz,
			CASE WHEN n % 2 = 0 THEN 'giant' ELSE 'r' || n END, 1000000000 + n
		FROM generate_series(1, 20000) n`, endpoint, now.Add(-time.Hour))
	exec(t, pool, `ANALYZE webhook.delivery`)

	// What is in the outbox comes first, and is looked at: as a rule there is next to
	// nothing in it that is older than what is fanned out.
	check("ReleaseOrdered beside a full outbox", 10_000, func() error {
		r, err := store.ReleaseOrdered(ctx, webhook.ReleaseOrderedParams{Now: now, HeldBefore: now.Add(-time.Hour), Limit: 100})
		assert.True(t, r.More)
		assert.Len(t, r.Released, 100, "none of what is in the outbox is of their keys")
		return err
	})
	exec(t, pool, `DELETE FROM webhook.outbox`)
	exec(t, pool, `VACUUM webhook.outbox`)
	check("ReleaseOrdered", 20*100, func() error {
		r, err := store.ReleaseOrdered(ctx, webhook.ReleaseOrderedParams{Now: now, Limit: 100})
		assert.Len(t, r.Released, 99, "one key has more waiting, whose turn it is not")
		return err
	})

	token := uuid.New()
	claim := func() (claimed []webhook.Claimed) {
		check("Claim of ordered deliveries", 100, func() (err error) {
			claimed, err = store.Claim(ctx, webhook.ClaimParams{
				Now: now, LeaseUntil: now.Add(time.Minute), Token: token,
				Requests: []webhook.ClaimRequest{{EndpointID: endpoint, Lane: webhook.LaneFirst, Limit: 2}},
			})
			return err
		})
		return claimed
	}
	exec(t, pool, `INSERT INTO webhook.event (id, resource_version, created_at, tenant, type, resource_id, content_type, payload)
		SELECT event_id, 0, now(), tenant, event_type, order_key, '', '{}' FROM webhook.delivery
		WHERE endpoint_id = $1 AND order_key IS NOT NULL`, endpoint)
	claimed := claim()
	require.NotEmpty(t, claimed)
	lease := webhook.Lease{DeliveryID: claimed[0].DeliveryID, Token: token}
	check("MarkSent", 100, func() error {
		lost, err := store.MarkSent(ctx, webhook.MarkSentParams{Now: now, Leases: []webhook.Lease{lease}})
		assert.Empty(t, lost)
		return err
	})
	check("Record of an ordered delivery", 1000, func() error {
		_, err := store.Record(ctx, webhook.RecordParams{Now: now, Results: []webhook.Result{
			{Lease: lease, State: webhook.StateDelivered, Order: claimed[0].Order},
		}})
		return err
	})
	check("EndUnknown", 10, func() error {
		_, err := store.EndUnknown(ctx, webhook.EndUnknownParams{Now: now, ExpiredBefore: now, Limit: 10})
		return err
	})
	check("EndOverdue", 1000, func() error {
		r, err := store.EndOverdue(ctx, webhook.EndOverdueParams{
			Now: now, EndpointID: endpoint, Lane: webhook.LaneWaiting, BegunBefore: now, Unattempted: true, Limit: 100,
		})
		assert.Equal(t, 100, r.Ended)
		return err
	})
}
