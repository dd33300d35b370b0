package postgres_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/postgres"
)

// The log of docs/design.md §8's size is looked at with WEBHOOK_LONG.
func TestB55NoListLooksAtMoreThanItMay(t *testing.T) {
	t.Parallel()
	deliveries := 30_000
	if os.Getenv("WEBHOOK_LONG") != "" {
		deliveries = 1_000_000
	}
	pool, plans := explainingPool(t, migrated(t))
	exec(t, pool, "SET auto_explain.log_timing = on")
	store := postgres.New(pool)
	fillLog(t, pool, store, deliveries)
	exec(t, pool, "VACUUM ANALYZE")
	plans.take()

	ctx := t.Context()
	ids := endpointIDs(t, pool)
	var middle uuid.UUID
	require.NoError(t, pool.QueryRow(ctx, `SELECT id FROM webhook.delivery_log ORDER BY id OFFSET $1 LIMIT 1`, deliveries/4).Scan(&middle))
	plans.take() // none of the store's
	all, giant := webhook.AllTenants(), ids[0]
	now, err := store.Now(ctx)
	require.NoError(t, err)
	lists := map[string]webhook.ListDeliveriesParams{
		"everything":                    {Scope: all},
		"a deep page":                   {Scope: all, Before: middle},
		"a giant's":                     {Scope: all, EndpointID: giant},
		"a giant's, deep":               {Scope: all, EndpointID: giant, Before: middle},
		"a giant's dead":                {Scope: all, EndpointID: giant, State: webhook.StateDead},
		"shed":                          {Scope: all, State: webhook.StateShed},
		"in flight":                     {Scope: all, State: webhook.StateInFlight},
		"of a rare type":                {Scope: all, EventType: "rare.type"},
		"of a rare type, deep":          {Scope: all, EventType: "rare.type", Before: middle},
		"a giant's of a rare type":      {Scope: all, EndpointID: giant, EventType: "rare.type"},
		"with a redirect":               {Scope: all, Status: webhook.Status3xx},
		"with a redirect of a giant":    {Scope: all, EndpointID: giant, Status: webhook.Status3xx},
		"of an hour long ago":           {Scope: all, From: now.Add(-100 * time.Hour), Until: now.Add(-99 * time.Hour)},
		"a giant's of an hour long ago": {Scope: all, EndpointID: giant, From: now.Add(-100 * time.Hour), Until: now.Add(-99 * time.Hour)},
		"of a resource":                 {Scope: all, ResourceID: "in_7"},
		"of a common resource":          {Scope: all, ResourceID: "common"},
		"a tenant's":                    {Scope: webhook.TenantScope("tenant 1")},
		"a tenant's of a rare type":     {Scope: webhook.TenantScope("tenant 1"), EventType: "rare.type"},
		"a tenant's, deep":              {Scope: webhook.TenantScope("tenant 1"), Before: middle},
		"nobody's":                      {Scope: webhook.TenantScope("nobody")},
	}
	for what, p := range lists {
		p.Limit = 50
		listing, err := store.ListDeliveries(ctx, p)
		require.NoError(t, err, what)
		inTime(t, what, plans, fmt.Sprintf("%d found, more %v", len(listing.Deliveries), listing.Next != uuid.Nil))
	}
	for what, p := range map[string]webhook.ListEventsParams{
		"all events":                    {Scope: all},
		"a tenant's events":             {Scope: webhook.TenantScope("tenant 1")},
		"a tenant's, oldest first":      {Scope: webhook.TenantScope("tenant 1"), OldestFirst: true, SettledAt: now},
		"a tenant's of a rare type":     {Scope: webhook.TenantScope("tenant 1"), Type: "rare.type"},
		"a tenant's of a resource":      {Scope: webhook.TenantScope("tenant 1"), ResourceID: "in_7"},
		"a tenant's without a match":    {Scope: webhook.TenantScope("tenant 1"), Unmatched: true},
		"events of a rare type":         {Scope: all, Type: "rare.type"},
		"events that nobody subscribed": {Scope: all, Unmatched: true},
	} {
		p.Limit = 50
		listing, err := store.ListEvents(ctx, p)
		require.NoError(t, err, what)
		inTime(t, what, plans, fmt.Sprintf("%d found, more %v", len(listing.Events), listing.More))
	}
	d, err := store.ListDeliveries(ctx, webhook.ListDeliveriesParams{Scope: all, EndpointID: ids[1], State: webhook.StateDelivered, Limit: 1})
	require.NoError(t, err)
	require.Len(t, d.Deliveries, 1)
	plans.take()
	attempts, err := store.ListAttempts(ctx, all, d.Deliveries[0].ID)
	require.NoError(t, err)
	assert.Len(t, attempts, 3)
	inTime(t, "attempts", plans, "")
}

// longestList is how long one statement of a list may take to execute. In the short run,
// where the machine is busy with other tests or stands still, the rows that are looked at
// are what counts.
func longestList() float64 {
	if os.Getenv("WEBHOOK_LONG") != "" {
		return 50
	}
	return 15_000
}

// inTime checks what the server really did for a list.
func inTime(t *testing.T, what string, plans *planLog, found string) {
	t.Helper()
	for _, p := range plans.take() {
		took := p.Root.Time * max(p.Root.Loops, 1)
		t.Logf("%s (%s): %.1f ms", what, found, took)
		assert.LessOrEqual(t, took, longestList(), "%s: milliseconds of\n%s", what, p)
		p.bounded(t, what, 20_000)
	}
}

// bounded fails the test when a step handled more rows than asked for. Small partitions
// may be read from end to end.
func (p plan) bounded(t *testing.T, what string, rows float64) {
	t.Helper()
	var walk func(n planNode)
	walk = func(n planNode) {
		if touched := (n.Rows + n.Removed) * n.Loops; touched > rows {
			t.Errorf("%s: %s %s handled %v rows, want at most %v, in\n%s", what, n.Type, n.Relation, touched, rows, p)
		}
		for _, child := range n.Plans {
			walk(child)
		}
	}
	walk(p.Root)
}

// fillLog writes deliveries with three attempts each, over seven days. Every other one
// is of one giant endpoint; a hundred are rare in one way or another.
func fillLog(t *testing.T, pool *pgxpool.Pool, store *postgres.Store, deliveries int) {
	t.Helper()
	now, err := store.Now(t.Context())
	require.NoError(t, err)
	for ago := range 8 {
		require.NoError(t, store.Maintain(t.Context(), webhook.MaintainParams{Now: now.AddDate(0, 0, -ago)}))
	}
	exec(t, pool, `
		INSERT INTO webhook.endpoint (id, revision, created_at, updated_at, tenant, url, types, state, state_reason)
		SELECT gen_random_uuid(), n, now(), now(), 'tenant ' || n % 100, 'https://hooks.example/', '{*}', 'active', ''
		FROM generate_series(1, 2000) n`)
	exec(t, pool, `UPDATE webhook.endpoint_revision SET revision = 2000`)
	exec(t, pool, overDays)
	// Ids begin with the time, as those that the store makes do.
	exec(t, pool, `
		CREATE TABLE made AS
		SELECT n, at, e.id AS endpoint_id, e.tenant,
		       (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || substr(md5(n::text), 1, 3) || '8' || substr(md5('d' || n), 1, 15))::uuid AS id,
		       (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || substr(md5(n::text), 1, 3) || '8' || substr(md5('e' || n), 1, 15))::uuid AS event_id,
		       CASE WHEN n % 20000 = 7 THEN 'rare.type' ELSE 'invoice.' || n % 10 END AS type,
		       CASE WHEN n % 10000 = 7 THEN 'in_7' WHEN n % 3 = 0 THEN 'common' ELSE '' END AS resource_id
		FROM (SELECT n, over_days(7, n::float8 / $1::int) AS at FROM generate_series(1, $1::int) n) n
		JOIN webhook.endpoint e ON e.revision = CASE WHEN n % 2 = 0 THEN 1 ELSE 1 + n % 2000 END`, deliveries)
	exec(t, pool, `
		INSERT INTO webhook.event (id, resource_version, created_at, tenant, type, resource_id, content_type, payload)
		SELECT event_id, 0, at, tenant, type, resource_id, '', '{}' FROM made ORDER BY at`)
	exec(t, pool, `INSERT INTO webhook.unmatched (event_id, found_at) SELECT event_id, at FROM made WHERE n % 50000 = 3`)
	exec(t, pool, `
		INSERT INTO webhook.delivery (id, event_id, endpoint_id, next_attempt_at, created_at, run, lane, tenant, event_type, last_status, lease_token)
		SELECT id, event_id, endpoint_id, at, at, 0, 0, tenant, type, 503, CASE WHEN n % 100000 = 11 THEN id END FROM made WHERE n % 20 = 11`)
	exec(t, pool, `
		INSERT INTO webhook.delivery_dead (id, event_id, endpoint_id, created_at, finished_at, run, attempts, last_status, state, reason, tenant, event_type, last_class)
		SELECT id, event_id, endpoint_id, at, at, 0, 3, CASE n % 100000 WHEN 12 THEN 302 ELSE 500 END,
		       CASE n % 100000 WHEN 32 THEN 'shed' ELSE 'dead' END, 'window', tenant, type, '' FROM made WHERE n % 20 = 12`)
	exec(t, pool, `
		INSERT INTO webhook.delivery_log (id, event_id, endpoint_id, created_at, finished_at, run, attempts, last_status, tenant, event_type, last_class)
		SELECT id, event_id, endpoint_id, at, at, 0, 3, 200, tenant, type, '' FROM made WHERE n % 20 NOT IN (11, 12)`)
	exec(t, pool, `
		INSERT INTO webhook.attempt (delivery_id, event_id, endpoint_id, lease_token, started_at, latency_ns, number, status, truncated, late, tenant, class, error, location, excerpt, body_hash)
		SELECT id, event_id, endpoint_id, gen_random_uuid(), at, 0, number, 200, false, false, tenant, '', '', '', '', '' FROM made, generate_series(1, 3) number`)
	exec(t, pool, `DROP TABLE made`)
}
