package postgres_test

import (
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/postgres"
)

const day = 24 * time.Hour

// past says how much of it a database has; all of it is older than its retention.
type past struct {
	delivered int // deliveries, with an attempt each, over five days; the others are taken from them
	dead      int // likewise, with two attempts each
	pending   int // deliveries that wait still, with an attempt each
	outbox    int // events that wait for fan-out
}

// idsAt makes ids as they were made at a time.
const idsAt = `
	CREATE FUNCTION id_at(at timestamptz) RETURNS uuid LANGUAGE sql VOLATILE AS $$
		SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || substr(md5(random()::text), 1, 3) ||
		        '8' || substr(md5(random()::text), 1, 15))::uuid
	$$`

// fillPast writes events and what became of them on the five days that begin 40
// days ago, into partitions of their own, and returns the present time.
func fillPast(t *testing.T, pool *pgxpool.Pool, store *postgres.Store, p past) time.Time {
	t.Helper()
	now, err := store.Now(t.Context())
	require.NoError(t, err)
	for ago := 36; ago <= 40; ago++ {
		require.NoError(t, store.Maintain(t.Context(), webhook.MaintainParams{Now: now.AddDate(0, 0, -ago)}))
	}
	exec(t, pool, `UPDATE webhook.counted SET before = '-infinity'`) // days are filled now that are over long since
	exec(t, pool, idsAt)
	exec(t, pool, `
		CREATE TABLE made AS
		SELECT id_at(at) AS event_id, id_at(at) AS id, at, 'delivered' AS what, n,
		       ('00000000-0000-7000-8000-' || lpad(to_hex(n % 50), 12, '0'))::uuid AS endpoint_id
		FROM (
			SELECT n, date_trunc('day', $2::timestamptz, 'UTC') - interval '40 days' + interval '5 days' * (n::float8 / $1::float8) AS at
			FROM generate_series(0, $1::int - 1) n
		) n`, p.delivered, now)
	for _, rare := range []struct {
		what string
		n    int
	}{{"dead", p.dead}, {"pending", p.pending}, {"outbox", p.outbox}} {
		exec(t, pool, `UPDATE made SET what = $1::text WHERE ctid = ANY (ARRAY(SELECT ctid FROM made WHERE what = 'delivered' ORDER BY random() LIMIT $2::int))`, rare.what, rare.n)
	}
	exec(t, pool, `
		INSERT INTO webhook.event (id, resource_version, created_at, tenant, type, resource_id, content_type, payload, idempotency_key)
		SELECT event_id, 0, at, 'acme', 'invoice.paid', '', '', decode(repeat('61', 300), 'hex'), 'key ' || n FROM made ORDER BY n`)
	exec(t, pool, `INSERT INTO webhook.idempotency_key (tenant, key, event_id) SELECT 'acme', 'key ' || n, event_id FROM made`)
	exec(t, pool, `
		INSERT INTO webhook.outbox (position, event_id)
		SELECT e.seq, e.id FROM made JOIN webhook.event e ON e.id = made.event_id WHERE what = 'outbox'`)
	exec(t, pool, `
		INSERT INTO webhook.delivery (id, event_id, endpoint_id, next_attempt_at, created_at, run, lane, attempts, tenant, event_type)
		SELECT id, event_id, endpoint_id, at, at, 0, 1, 1, 'acme', 'invoice.paid' FROM made WHERE what = 'pending'`)
	exec(t, pool, `
		INSERT INTO webhook.delivery_log (id, event_id, endpoint_id, created_at, finished_at, run, attempts, last_status, tenant, event_type, last_class)
		SELECT id, event_id, endpoint_id, at, at, 0, 1, 200, 'acme', 'invoice.paid', '' FROM made WHERE what = 'delivered'`)
	exec(t, pool, `
		INSERT INTO webhook.delivery_dead (id, event_id, endpoint_id, created_at, finished_at, run, attempts, last_status, state, reason, tenant, event_type, last_class)
		SELECT id, event_id, endpoint_id, at, at, 0, 2, 500, 'dead', 'window', 'acme', 'invoice.paid', '' FROM made WHERE what = 'dead'`)
	exec(t, pool, `
		INSERT INTO webhook.attempt (delivery_id, event_id, endpoint_id, lease_token, started_at, latency_ns, number, status, truncated, late, tenant, class, error, location, excerpt, body_hash)
		SELECT id, event_id, endpoint_id, gen_random_uuid(), at, 0, number, 200, false, false, 'acme', '', '', '', decode(repeat('61', 64), 'hex'), ''
		FROM made, generate_series(1, CASE what WHEN 'dead' THEN 2 ELSE 1 END) number WHERE what <> 'outbox'`)
	exec(t, pool, `DROP TABLE made`)
	exec(t, pool, `VACUUM ANALYZE`)
	return now
}

// policy is the default retention.
func policy(now time.Time) webhook.MaintainParams {
	return webhook.MaintainParams{
		Now: now, DeliveriesBefore: now.Add(-7 * day), DeadBefore: now.Add(-30 * day), EventsBefore: now.Add(-30 * day),
	}
}

func number(t testing.TB, pool *pgxpool.Pool, query string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), query, args...).Scan(&n), query)
	return n
}

// oldPartitions are those of the days that fillPast fills.
func oldPartitions(t *testing.T, pool *pgxpool.Pool, now time.Time) []string {
	t.Helper()
	var old []string
	for _, table := range []string{"attempt", "delivery_dead", "delivery_log"} {
		for _, name := range partitions(t, pool, table) {
			if name > table+now.AddDate(0, 0, -41).Format("_20060102") && name < table+now.AddDate(0, 0, -35).Format("_20060102") {
				old = append(old, name)
			}
		}
	}
	return old
}

func TestDaysPastTheirRetentionAreDropped(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), pgx.QueryExecModeCacheStatement)
	store := postgres.New(pool)
	now := fillPast(t, pool, store, past{delivered: 3000, dead: 100, pending: 50, outbox: 20})
	require.Len(t, oldPartitions(t, pool, now), 15)
	// What a process leaves behind that ends between detaching and dropping.
	left := "delivery_log" + now.AddDate(0, 0, -40).Format("_20060102")
	exec(t, pool, `ALTER TABLE webhook.delivery_log DETACH PARTITION webhook.`+left)

	// First with dead deliveries kept for longer, and then by the usual policy.
	p := policy(now)
	p.DeadBefore = now.Add(-60 * day)
	require.NoError(t, store.Maintain(t.Context(), p))
	assert.Len(t, oldPartitions(t, pool, now), 5, "those of dead deliveries")
	assert.Equal(t, 250, number(t, pool, `SELECT count(*) FROM webhook.attempt_kept`), "attempts of the dead and the pending")
	assert.Zero(t, number(t, pool, `SELECT count(*) FROM webhook.attempt`))
	assert.Zero(t, number(t, pool, `SELECT count(*) FROM pg_class WHERE relname = $1`, left))

	require.NoError(t, store.Maintain(t.Context(), policy(now)))
	assert.Empty(t, oldPartitions(t, pool, now))
	require.NoError(t, store.Maintain(t.Context(), policy(now.Add(60*day))))
	assert.Equal(t, 50, number(t, pool, `SELECT count(*) FROM webhook.attempt_kept`), "attempts of the pending")
	assert.Equal(t, 50, number(t, pool, `SELECT count(*) FROM webhook.delivery`))
	assert.Equal(t, 20, number(t, pool, `SELECT count(*) FROM webhook.outbox o JOIN webhook.event e ON e.id = o.event_id`))
	assert.Equal(t, 70, number(t, pool, `SELECT count(*) FROM webhook.event`))
	assert.Equal(t, 70, number(t, pool, `SELECT count(*) FROM webhook.idempotency_key k JOIN webhook.event e ON e.id = k.event_id`))
	assert.Equal(t, 3000-20+100, number(t, pool, `SELECT sum(attempts)::int FROM webhook.counter`), "attempts counted")
}

func TestUpkeepGivesWayToReadersOfTheLog(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), pgx.QueryExecModeCacheStatement)
	store := postgres.New(pool)
	now := fillPast(t, pool, store, past{delivered: 1000})
	reader, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = reader.Exec(t.Context(), `SELECT FROM webhook.delivery_log LIMIT 1`)
	require.NoError(t, err)

	err = store.Maintain(t.Context(), policy(now))

	require.ErrorContains(t, err, "lock timeout", "it does not wait for ever")
	assert.Zero(t, number(t, pool, `SELECT count(*) FROM webhook.event`), "and does the rest nevertheless")
	assert.Equal(t, 1000, number(t, pool, `SELECT count(*) FROM webhook.attempt`), "but attempts do not go before their deliveries")
	require.NoError(t, reader.Rollback(t.Context()))
	require.NoError(t, store.Maintain(t.Context(), policy(now)))
	assert.Empty(t, oldPartitions(t, pool, now))
}

// Attempts that stay are copied before their partition goes, which may take several
// tries.
func TestAttemptsThatAreCopiedAreThereOnce(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), pgx.QueryExecModeCacheStatement)
	store := postgres.New(pool)
	now := fillPast(t, pool, store, past{delivered: 1000, dead: 20})
	p := policy(now)
	p.DeadBefore = now.Add(-60 * day)
	reader, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = reader.Exec(t.Context(), `SELECT FROM webhook.attempt LIMIT 1`)
	require.NoError(t, err)
	dead, err := store.ListDeliveries(t.Context(), webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), State: webhook.StateDead, Limit: 100})
	require.NoError(t, err)
	require.Len(t, dead.Deliveries, 20)
	requireTwoEach := func() {
		for _, d := range dead.Deliveries {
			attempts, err := store.ListAttempts(t.Context(), webhook.TenantScope("acme"), d.ID)
			require.NoError(t, err)
			require.Len(t, attempts, 2)
		}
	}

	for range 2 {
		require.ErrorContains(t, store.Maintain(t.Context(), p), "lock timeout")
		requireTwoEach()
	}
	require.NoError(t, reader.Rollback(t.Context()))
	require.NoError(t, store.Maintain(t.Context(), p))

	requireTwoEach()
	assert.Equal(t, 40, number(t, pool, `SELECT count(*) FROM webhook.attempt_kept`))
}

// A run of an old event may begin at any time.
func TestAnEventIsNotRemovedWhileARunOfItBegins(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), pgx.QueryExecModeCacheStatement)
	store := postgres.New(pool)
	endpoint := newEndpoints(t, store, 1)[0]
	insertEvents(t, pool, store, 400)
	fanOutAll(t, store, &everyEndpoint{})
	found, err := pool.Query(t.Context(), `SELECT id FROM webhook.event`)
	require.NoError(t, err)
	events, err := pgx.CollectRows(found, pgx.RowTo[uuid.UUID])
	require.NoError(t, err)
	later := time.Now().AddDate(1, 0, 0)

	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, store.Maintain(t.Context(), policy(later))) })
	begun := 0
	for _, id := range slices.Backward(events) {
		_, started, err := store.StartRun(t.Context(), webhook.StartRunParams{Now: later, Scope: webhook.AllTenants(), EventID: id, EndpointID: endpoint})
		if started {
			begun++
		} else {
			require.ErrorIs(t, err, webhook.ErrNotFound, "it was removed, and was never delivered")
		}
	}
	wg.Wait()

	assert.Equal(t, begun, number(t, pool, `SELECT count(*) FROM webhook.delivery d JOIN webhook.event e ON e.id = d.event_id`))
	assert.Equal(t, begun, number(t, pool, `SELECT count(*) FROM webhook.delivery`))
}

func TestUpkeepReadsNoTableAsAWhole(t *testing.T) {
	t.Parallel()
	pool, plans := explainingPool(t, migrated(t))
	store := postgres.New(pool)
	now := fillPast(t, pool, store, past{delivered: 30_000, dead: 1_000, pending: 3_000, outbox: 1_000})
	plans.take()

	require.NoError(t, store.Maintain(t.Context(), policy(now)))

	got := plans.take()
	require.NotEmpty(t, got)
	queues := []string{"event", "idempotency_key", "outbox", "unmatched", "delivery", "attempt_kept"}
	for _, p := range got {
		p.each(func(n planNode) {
			touched := (n.Rows + n.Removed) * n.Loops
			if n.Type == "Seq Scan" && touched > fewRows && slices.Contains(queues, n.Relation) {
				t.Errorf("sequential scan of %s in\n%s", n.Relation, p)
			}
			if touched > 10_000 { // a slice of a day that is counted
				t.Errorf("%s %s handled %v rows in\n%s", n.Type, n.Relation, touched, p)
			}
		})
	}
	assert.Equal(t, 30_000-1_000+1_000, number(t, pool, `SELECT sum(attempts)::int FROM webhook.counter`), "attempts counted, in several slices a day")
	assert.Equal(t, 30_000-5_000, number(t, pool, `SELECT sum(delivered)::int FROM webhook.counter`))
	for _, p := range []webhook.ListCountersParams{
		{Scope: webhook.AllTenants()}, {Scope: webhook.TenantScope("acme")}, {Scope: webhook.AllTenants(), EndpointID: uuid.New()},
	} {
		p.Limit = 10
		plans.check(t, "ListCounters", 100, func() error { _, err := store.ListCounters(t.Context(), p); return err })
	}
}

// each calls fn for every node of the plan.
func (p plan) each(fn func(planNode)) {
	var walk func(planNode)
	walk = func(n planNode) {
		fn(n)
		for _, child := range n.Plans {
			walk(child)
		}
	}
	walk(p.Root)
}

// Field report B35: the log grew without end, deleting it all at once made a storm
// of vacuuming, and what was still wanted went with it.
func TestB35RemovingTheOldDisturbsNobody(t *testing.T) {
	t.Parallel()
	size := past{delivered: 6_000, dead: 10, pending: 5}
	if os.Getenv("WEBHOOK_LONG") != "" {
		size.delivered = 300_000
	}
	pool := openPool(t, migrated(t), pgx.QueryExecModeCacheStatement)
	store := postgres.New(pool)
	now := fillPast(t, pool, store, size)
	exec(t, pool, `CREATE TABLE removed (transaction xid8, events int)`)
	exec(t, pool, `
		CREATE FUNCTION note_removal() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			INSERT INTO removed SELECT pg_current_xact_id(), count(*) FROM gone;
			RETURN NULL;
		END $$`)
	exec(t, pool, `CREATE TRIGGER note AFTER DELETE ON webhook.event REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION note_removal()`)

	p := policy(now)
	p.DeadBefore = now.Add(-60 * day) // dead deliveries are still wanted
	done := make(chan time.Time)
	began := time.Now()
	go func() {
		defer close(done)
		assert.NoError(t, store.Maintain(t.Context(), p))
	}()
	busy := enqueueFor(t, pool, store, done)

	t.Logf("enqueue p50 and p99: %v and %v while %d deliveries and events went in %v",
		percentile(busy, 50), percentile(busy, 99), size.delivered, time.Since(began))
	assert.Equal(t, size.delivered-size.pending, number(t, pool, `SELECT sum(events)::int FROM removed`))
	assert.LessOrEqual(t, number(t, pool, `SELECT max(n)::int FROM (SELECT sum(events) AS n FROM removed GROUP BY transaction) t`), 1000,
		"events that one transaction removes: what it keeps from others, and what vacuum has to do at a time")
	assert.Equal(t, 10, number(t, pool, `SELECT count(*) FROM webhook.delivery_dead`))
	assert.Equal(t, 5, number(t, pool, `SELECT count(*) FROM webhook.delivery`))
	assert.Equal(t, 25, number(t, pool, `SELECT count(*) FROM webhook.attempt_kept`))
	assert.Zero(t, number(t, pool, `SELECT count(*) FROM webhook.delivery_log`))
	assert.Equal(t, 5+len(busy), number(t, pool, `SELECT count(*) FROM webhook.event`))
}

// enqueueFor enqueues one event after the other, as a host that has other things to do
// too, until told to stop, and returns how long each took.
func enqueueFor(t *testing.T, pool *pgxpool.Pool, store *postgres.Store, stop <-chan time.Time) []time.Duration {
	t.Helper()
	var took []time.Duration
	others := time.NewTicker(time.Millisecond)
	defer others.Stop()
	for {
		select {
		case <-stop:
			if len(took) > 0 {
				return took
			}
		case <-others.C:
		}
		events := newEvents(t, 1)
		events[0].IdempotencyKey = events[0].ID.String()
		began := time.Now()
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := store.InsertEvents(t.Context(), tx, events)
			return err
		}))
		took = append(took, time.Since(began))
	}
}

func percentile(took []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(took))
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}

// The queue's indexes are as large as what is pending makes them, whatever has gone
// through.
func TestTheQueueDoesNotGrowWithWhatHasGoneThrough(t *testing.T) {
	t.Parallel()
	const window, vacuumed = 500, 6000
	total := 4 * vacuumed
	if os.Getenv("WEBHOOK_LONG") != "" {
		total = 1_000_000
	}
	pool := openPool(t, migrated(t), pgx.QueryExecModeCacheStatement)
	store := postgres.New(pool)
	// A long snapshot, as ANALYZE takes one, keeps a vacuum from its work; how long one is
	// depends on what else the machine does.
	exec(t, pool, `DO $$ DECLARE t regclass; BEGIN
		FOR t IN SELECT oid FROM pg_class WHERE relnamespace = 'webhook'::regnamespace AND relkind = 'r' LOOP
			EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', t);
		END LOOP;
	END $$`)
	ids := newEndpoints(t, store, 50)
	matcher := &oneOf{everyEndpoint: everyEndpoint{ids}}
	size := func(relations string) int {
		return number(t, pool, `SELECT sum(pg_relation_size(r.name::regclass))::int FROM unnest($1::text[]) AS r (name)`, relations)
	}

	var claimIndex, queue []int // sizes
	for through := window; through <= total; through += window {
		insertEvents(t, pool, store, window)
		fanOutAll(t, store, matcher)
		for claimed, token := claimSome(t, store, ids); len(claimed) > 0; claimed, token = claimSome(t, store, ids) {
			recordAll(t, store, claimed, token)
		}
		if through%vacuumed == 0 {
			// What autovacuum does by the tables' settings, which a test that is over
			// in seconds cannot wait for.
			require.Eventually(t, func() bool {
				return number(t, pool, `SELECT count(*) FROM pg_stat_activity
					WHERE datname = current_database() AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid()`) == 0
			}, time.Minute, time.Millisecond, "somebody keeps a snapshot, such as an ANALYZE of the catalogs")
			exec(t, pool, `VACUUM webhook.delivery`)
			exec(t, pool, `VACUUM webhook.outbox`)
			claimIndex = append(claimIndex, size(`{webhook.delivery_claim_idx}`))
			queue = append(queue, size(`{webhook.delivery,webhook.delivery_pkey,webhook.delivery_event_idx,webhook.delivery_claim_idx,webhook.outbox,webhook.outbox_pkey}`))
		}
	}

	t.Logf("after %d deliveries the claim index had at most %d KiB and the queue %d KiB; at first %d and %d",
		total, slices.Max(claimIndex)>>10, slices.Max(queue)>>10, claimIndex[0]>>10, queue[0]>>10)
	assert.Zero(t, number(t, pool, `SELECT count(*) FROM webhook.delivery`))
	// What is pending and what goes through between two vacuums needs room: some 40
	// bytes a row in the claim index, and 400 in all. Of all that went through, each row
	// would need twice as much.
	// One that begins in the moment before a vacuum leaves that one's work to the next.
	assert.LessOrEqual(t, slices.Max(claimIndex), (window+2*vacuumed)*64)
	assert.LessOrEqual(t, slices.Max(queue), (window+2*vacuumed)*1280)
}
