package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/pgtest"
	"github.com/outhook/webhook/store/postgres"
)

// history is how full the database of a plan test is.
type history struct {
	endpoints int
	finished  int // delivered deliveries with an attempt each, over several days
	parked    int // deliveries of one endpoint that is paused
	due       int // deliveries of other endpoints that are due
	outbox    int // events that wait for fan-out
}

// The moderate history is enough for the planner to prefer indexes; the long one
// is what docs/design.md asks for (`make test-long`).
var (
	moderate = history{endpoints: 2_000, finished: 40_000, parked: 10_000, due: 10_000, outbox: 3_000}
	long     = history{endpoints: 2_000, finished: 1_000_000, parked: 100_000, due: 10_000, outbox: 3_000}
)

func TestNoStatementsCostGrowsWithBacklogOrHistory(t *testing.T) {
	t.Parallel()
	sizes := []history{moderate}
	if os.Getenv("WEBHOOK_LONG") != "" {
		sizes = append(sizes, long)
	}

	for _, size := range sizes {
		t.Run(fmt.Sprintf("%d finished and %d parked", size.finished, size.parked), func(t *testing.T) {
			t.Parallel()
			pool, plans := explainingPool(t, migrated(t))
			store := postgres.New(pool)
			now := fill(t, pool, store, size)
			fillHealth(t, pool)
			exec(t, pool, "VACUUM ANALYZE")

			runDispatcher(t, pool, store, now, plans)
			runAdmin(t, pool, store, plans)
			runHealth(t, pool, store, now, plans)
			orderPlans(t, pool, store, endpointIDs(t, pool)[60], now, plans)
		})
	}
}

// Field report B33: the cost of a claim grew with all that had ever been delivered. What
// it reads is counted in pages, which do not depend on how busy the machine is; the long
// run has a million and looks at the time as well.
func TestB33TheCostOfAClaimDoesNotGrowWithWhatWasDelivered(t *testing.T) {
	t.Parallel()
	const rounds = 20
	finished := 20_000
	isLong := os.Getenv("WEBHOOK_LONG") != ""
	if isLong {
		finished = 1_000_000
	}
	claims := func(finished int) (pages int, took time.Duration) {
		pool, plans := explainingPool(t, migrated(t))
		store := postgres.New(pool)
		fill(t, pool, store, history{endpoints: 20, finished: finished, due: 10 * rounds * 20})
		exec(t, pool, "VACUUM ANALYZE")
		ids := endpointIDs(t, pool)[1:]
		now, err := store.Now(t.Context())
		require.NoError(t, err)
		for range rounds {
			plans.take()
			began := time.Now()
			claimed, err := store.Claim(t.Context(), webhook.ClaimParams{
				Now: now, LeaseUntil: now.Add(time.Minute), Token: uuid.New(),
				Requests: []webhook.ClaimRequest{{EndpointID: ids[0], Limit: 5}, {EndpointID: ids[1], Limit: 5}},
			})
			took += time.Since(began)
			require.NoError(t, err)
			require.Len(t, claimed, 10)
			for _, p := range plans.take() {
				pages += p.Root.Hit + p.Root.Read
			}
		}
		return pages, took
	}

	without, quick := claims(0)
	beside, took := claims(finished)

	t.Logf("%d claims: %d pages in %v without history, %d in %v beside %d delivered", rounds, without, quick, beside, took, finished)
	require.Positive(t, without)
	assert.LessOrEqual(t, beside, 2*without)
	if isLong {
		assert.Less(t, took, 2*quick+100*time.Millisecond)
	}
}

// A queue's tables are empty at times. Plans that are right for that are wrong a
// moment later, and PostgreSQL keeps the plans of prepared statements.
func TestPlansMadeForEmptyTablesAreNotKept(t *testing.T) {
	t.Parallel()
	pool, plans := explainingPool(t, migrated(t))
	store := postgres.New(pool)
	exec(t, pool, "ALTER TABLE webhook.delivery SET (autovacuum_enabled = off)")
	exec(t, pool, "ALTER TABLE webhook.outbox SET (autovacuum_enabled = off)")
	exec(t, pool, "VACUUM ANALYZE")
	// The sixth execution is the first for which the server may keep a plan.
	for range 8 {
		p := webhook.ClaimParams{Now: time.Now(), LeaseUntil: time.Now(), Requests: []webhook.ClaimRequest{{EndpointID: uuid.New(), Limit: 1}}}
		_, err := store.Claim(t.Context(), p)
		require.NoError(t, err)
		fanOutAll(t, store, &everyEndpoint{})
		_, err = store.Ready(t.Context(), webhook.ReadyParams{Now: time.Now(), Limit: 10})
		require.NoError(t, err)
		lease := webhook.Lease{DeliveryID: uuid.New(), Token: uuid.New()}
		_, err = store.Record(t.Context(), webhook.RecordParams{Now: time.Now(), Results: []webhook.Result{{Lease: lease, State: webhook.StateDelivered}}})
		require.NoError(t, err)
		_, err = store.Renew(t.Context(), webhook.RenewParams{Now: time.Now(), LeaseUntil: time.Now(), Leases: []webhook.Lease{lease}})
		require.NoError(t, err)
	}

	now := fill(t, pool, store, moderate)

	runDispatcher(t, pool, store, now, plans)
	orderPlans(t, pool, store, endpointIDs(t, pool)[60], now, plans)
}

// PostgreSQL takes a column of which it knows nothing for one that is hardly ever NULL.
func TestATableThatWasNeverAnalysedIsNotReadForTheFewThatAreBeingSent(t *testing.T) {
	t.Parallel()
	pool, plans := explainingPool(t, migrated(t))
	store := postgres.New(pool)
	exec(t, pool, "ALTER TABLE webhook.delivery SET (autovacuum_enabled = off)")
	now := fill(t, pool, store, moderate)

	plans.check(t, "EndUnknown", 10, func() error {
		n, err := store.EndUnknown(t.Context(), webhook.EndUnknownParams{Now: now, Limit: 500})
		assert.Zero(t, n)
		return err
	})
}

// Vacuum would lock everybody out of a table whose end it gives back.
func TestVacuumKeepsNobodyFromTheQueue(t *testing.T) {
	t.Parallel()
	pool := pgtest.Open(t, migrated(t))
	rows, err := pool.Query(t.Context(), `SELECT relname FROM pg_class
		WHERE relnamespace = 'webhook'::regnamespace AND 'vacuum_truncate=off' = ANY (reloptions) ORDER BY relname`)
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	assert.Equal(t, []string{"delivery", "outbox"}, tables)
}

// check runs something and checks the plans that the server really used for it.
func (l *planLog) check(t *testing.T, what string, rows float64, run func() error) {
	t.Helper()
	l.take()
	require.NoError(t, run(), what)
	got := l.take()
	require.NotEmpty(t, got, "%s: no plan seen", what)
	for _, p := range got {
		p.check(t, what, rows)
	}
}

// runDispatcher calls what hosts and dispatchers call.
func runDispatcher(t *testing.T, pool *pgxpool.Pool, store *postgres.Store, now time.Time, plans *planLog) {
	t.Helper()
	ctx := t.Context()
	check := func(what string, rows float64, run func() error) { t.Helper(); plans.check(t, what, rows, run) }

	ids := endpointIDs(t, pool)
	check("Enqueue", 1, func() error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := store.InsertEvents(ctx, tx, newEvents(t, 1))
			return err
		})
	})
	keyed := newEvents(t, 3)
	for i := range keyed {
		keyed[i].IdempotencyKey = fmt.Sprintf("key %d", i+7)
	}
	for _, n := range []int{1, 3} {
		check(fmt.Sprintf("Enqueue of %d duplicates", n), 10, func() error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				r, err := store.InsertEvents(ctx, tx, keyed[:n])
				for i := range r {
					assert.True(t, r[i].Duplicate)
				}
				return err
			})
		})
	}
	check("FanOut", 100, func() error {
		_, err := store.FanOut(ctx, webhook.FanOutParams{
			Now: now, MaxEvents: 50, MaxDeliveries: 100,
			Matcher: &oneOf{everyEndpoint: everyEndpoint{ids}},
		})
		return err
	})
	shed := webhook.HealthRecord{EndpointID: ids[1], UpdatedAt: now, ShedUntil: now.Add(time.Minute)}
	check("SaveHealth", 10, func() error { return store.SaveHealth(ctx, []webhook.HealthRecord{shed}) })
	check("FanOut, shedding", 100, func() error {
		r, err := store.FanOut(ctx, webhook.FanOutParams{
			Now: now, MaxEvents: 50, MaxDeliveries: 100,
			Matcher: &oneOf{everyEndpoint: everyEndpoint{ids}},
		})
		assert.Positive(t, r.Shed[ids[1]])
		return err
	})
	check("CountBacklog", 2000, func() error {
		counted, err := store.CountBacklog(ctx, []webhook.BacklogRequest{
			{EndpointID: ids[0], Limit: 1000, Since: now.AddDate(0, 0, -7), SinceLimit: 900}, {EndpointID: ids[2], Limit: 10},
		})
		assert.Equal(t, webhook.Backlog{Total: 1000, Since: 900}, counted[0])
		return err
	})
	check("Ready", 10*250, func() error {
		ready, err := store.Ready(ctx, webhook.ReadyParams{Now: now, Limit: 200})
		assert.GreaterOrEqual(t, len(ready), 200)
		return err
	})

	var claimed []webhook.Claimed
	token := uuid.New()
	for _, newest := range []bool{false, true} {
		check(fmt.Sprintf("Claim, newest %v", newest), 200, func() error {
			p := webhook.ClaimParams{Now: now, LeaseUntil: now.Add(time.Minute), Token: token}
			for _, id := range ids[:50] {
				p.Requests = append(p.Requests, webhook.ClaimRequest{EndpointID: id, Limit: 2, Newest: newest})
			}
			c, err := store.Claim(ctx, p)
			claimed = append(claimed, c...)
			return err
		})
	}
	require.Len(t, claimed, 49*2*2, "all but the paused endpoint's")
	check("Renew", 1000, func() error {
		p := webhook.RenewParams{Now: now, LeaseUntil: now.Add(time.Hour)}
		for _, c := range claimed {
			p.Leases = append(p.Leases, webhook.Lease{DeliveryID: c.DeliveryID, Token: token})
		}
		lost, err := store.Renew(ctx, p)
		assert.Empty(t, lost)
		return err
	})
	results := webhook.RecordParams{Now: now}
	for i, c := range claimed {
		results.Results = append(results.Results, webhook.Result{
			Lease:         webhook.Lease{DeliveryID: c.DeliveryID, Token: token},
			State:         []webhook.DeliveryState{webhook.StateDelivered, webhook.StatePending, webhook.StateDead}[i%3],
			NextAttemptAt: now.Add(time.Minute), Lane: webhook.LaneRetry,
			Attempt: &webhook.Attempt{DeliveryID: c.DeliveryID, EventID: c.Event.ID, EndpointID: c.EndpointID, StartedAt: now},
		})
	}
	check("Record", 1000, func() error {
		r, err := store.Record(ctx, results)
		assert.Empty(t, r.Lost)
		return err
	})
	check("Record, late", 1000, func() error {
		r, err := store.Record(ctx, results)
		assert.Empty(t, r.Lost, "they were recorded before")
		return err
	})

	check("ChangedEndpoints, nothing", 1, func() error {
		_, revision, err := store.ChangedEndpoints(ctx, int64(len(ids)), 10)
		assert.EqualValues(t, len(ids), revision)
		return err
	})
	check("ChangedEndpoints", 10, func() error {
		_, _, err := store.ChangedEndpoints(ctx, 500, 10)
		return err
	})
}

// runReads calls what the admin pages call, and what follows from it.
func runAdmin(t *testing.T, pool *pgxpool.Pool, store *postgres.Store, plans *planLog) {
	t.Helper()
	ctx := t.Context()
	check := func(what string, rows float64, run func() error) { t.Helper(); plans.check(t, what, rows, run) }

	ids := endpointIDs(t, pool)
	parked := ids[0]
	check("GetEndpoint", 1, func() error { _, err := store.GetEndpoint(ctx, webhook.AllTenants(), parked); return err })
	check("ListEndpoints", 10, func() error {
		_, err := store.ListEndpoints(ctx, webhook.ListEndpointsParams{Scope: webhook.AllTenants(), Limit: 10})
		return err
	})
	check("ListEndpoints of a tenant", 10, func() error {
		_, err := store.ListEndpoints(ctx, webhook.ListEndpointsParams{Scope: webhook.TenantScope("tenant 5"), Limit: 10})
		return err
	})

	some, err := store.ListDeliveries(ctx, webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), State: webhook.StateDelivered, Limit: 1})
	require.NoError(t, err)
	require.Len(t, some.Deliveries, 1)
	d := some.Deliveries[0]
	check("GetEvent", 1, func() error { _, err := store.GetEvent(ctx, webhook.AllTenants(), d.EventID); return err })
	check("GetDelivery", 10, func() error { _, err := store.GetDelivery(ctx, webhook.AllTenants(), d.ID); return err })
	check("ListAttempts", 10, func() error {
		a, err := store.ListAttempts(ctx, webhook.AllTenants(), d.ID)
		assert.Len(t, a, 1)
		return err
	})
	for _, list := range []struct {
		what string
		rows float64
		p    webhook.ListDeliveriesParams
	}{
		{"all", 20 * 20, webhook.ListDeliveriesParams{Scope: webhook.AllTenants()}},
		{"an event's", 100, webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), EventID: d.EventID}},
		{"an endpoint's", 1000, webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), EndpointID: ids[7]}},
		{"an endpoint's dead", 1000, webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), EndpointID: ids[7], State: webhook.StateDead}},
		{"a parked endpoint's pending", 5001, webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), EndpointID: parked, State: webhook.StatePending}},
		{"a tenant's", 20_000, webhook.ListDeliveriesParams{Scope: webhook.TenantScope("tenant 5")}},
		{"delivered", 20 * 20, webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), State: webhook.StateDelivered}},
	} {
		list.p.Limit = 20
		check("ListDeliveries, "+list.what, list.rows, func() error { _, err := store.ListDeliveries(ctx, list.p); return err })
	}

	now := d.FinishedAt.AddDate(1, 0, 0)
	waiting, err := store.ListDeliveries(ctx, webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), EndpointID: parked, State: webhook.StatePending, Limit: 1})
	require.NoError(t, err)
	require.Len(t, waiting.Deliveries, 1)
	check("HastenDelivery", 10, func() error {
		hastened, err := store.HastenDelivery(ctx, webhook.HastenDeliveryParams{Now: now, Scope: webhook.AllTenants(), DeliveryID: waiting.Deliveries[0].ID})
		assert.True(t, hastened)
		return err
	})
	check("CancelDelivery", 10, func() error {
		cancelled, err := store.CancelDelivery(ctx, webhook.CancelDeliveryParams{Now: now, Scope: webhook.AllTenants(), DeliveryID: waiting.Deliveries[0].ID})
		assert.True(t, cancelled)
		return err
	})
	exec(t, pool, `UPDATE webhook.endpoint SET tenant = 'tenant' WHERE id = $1`, d.EndpointID)
	for _, what := range []string{"begun", "unfinished"} {
		check("StartRun, "+what, 100, func() error {
			_, started, err := store.StartRun(ctx, webhook.StartRunParams{Now: now, Scope: webhook.AllTenants(), EventID: d.EventID, EndpointID: d.EndpointID})
			assert.Equal(t, what == "begun", started)
			return err
		})
	}
	page, err := store.ListDeliveries(ctx, webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), EndpointID: d.EndpointID, State: webhook.StateDead, Limit: 2})
	require.NoError(t, err)
	dead := slices.DeleteFunc(page.Deliveries, func(gone webhook.Delivery) bool { return gone.EventID == d.EventID }) // it has a run
	if len(dead) > 0 {
		gone := dead[0].EventID
		exec(t, pool, `DELETE FROM webhook.event WHERE id = $1`, gone)
		_, _, err = store.StartRun(ctx, webhook.StartRunParams{Now: now, Scope: webhook.AllTenants(), EventID: gone, EndpointID: d.EndpointID})
		require.ErrorIs(t, err, webhook.ErrEventGone)
	}
	replayPlans(t, store, plans, d, now)

	e, err := store.GetEndpoint(ctx, webhook.AllTenants(), parked)
	require.NoError(t, err)
	e.State = webhook.EndpointDisabled
	check("UpdateEndpoint", 1, func() error { _, err := store.UpdateEndpoint(ctx, e); return err })
	check("CancelDeliveries", 100, func() error {
		n, err := store.CancelDeliveries(ctx, webhook.CancelDeliveriesParams{Now: d.FinishedAt.AddDate(1, 0, 0), EndpointID: parked, Limit: 100})
		assert.Equal(t, 100, n)
		return err
	})
}

// replayPlans works on a replay job of the endpoint of a delivery.
func replayPlans(t *testing.T, store *postgres.Store, plans *planLog, d webhook.Delivery, now time.Time) {
	t.Helper()
	ctx := t.Context()
	check := func(what string, rows float64, run func() error) { t.Helper(); plans.check(t, what, rows, run) }

	var page webhook.ReplayPage
	finished := webhook.FinishedDeliveriesParams{
		EndpointID: d.EndpointID, States: []webhook.DeliveryState{webhook.StateDelivered}, Limit: 10,
	}
	check("FinishedDeliveries", 20*30, func() (err error) {
		page, err = store.FinishedDeliveries(ctx, finished)
		assert.NotEmpty(t, page.Candidates)
		return err
	})
	finished.FinishedFrom, finished.FinishedTo = d.FinishedAt.Add(-time.Hour), d.FinishedAt.Add(time.Hour)
	check("FinishedDeliveries of two hours", 20*100, func() error { _, err := store.FinishedDeliveries(ctx, finished); return err })
	check("StoredEvents", 50*10, func() error {
		page, err := store.StoredEvents(ctx, webhook.StoredEventsParams{
			EndpointID: d.EndpointID, Tenant: "tenant", Until: uuid.Max, Limit: 50, Payload: true,
		})
		assert.NotEmpty(t, page.Candidates)
		return err
	})

	job := webhook.ReplayJobRecord{ID: uuid.Must(uuid.NewV7()), EndpointID: d.EndpointID, Tenant: "tenant", State: webhook.ReplayRunning, CreatedAt: now, DueAt: now}
	check("CreateReplayJob", 10, func() error { return store.CreateReplayJob(ctx, job) })
	check("GetReplayJob", 10, func() error { _, err := store.GetReplayJob(ctx, webhook.AllTenants(), job.ID); return err })
	for what, p := range map[string]webhook.ListReplayJobsParams{
		"all": {}, "a tenant's": {Scope: webhook.TenantScope("tenant")}, "an endpoint's": {EndpointID: d.EndpointID},
	} {
		p.Limit = 10
		check("ListReplayJobs, "+what, 100, func() error { _, err := store.ListReplayJobs(ctx, p); return err })
	}
	token := uuid.New()
	check("TakeReplayJob", 100, func() error {
		_, ok, err := store.TakeReplayJob(ctx, webhook.TakeReplayJobParams{Now: now, LeaseUntil: now.Add(time.Minute), Token: token})
		assert.True(t, ok)
		return err
	})
	var events []uuid.UUID
	for _, c := range page.Candidates {
		events = append(events, c.Event.ID)
	}
	check("AdvanceReplayJob", 200, func() error {
		created, held, err := store.AdvanceReplayJob(ctx, webhook.AdvanceReplayJobParams{
			Now: now, JobID: job.ID, Token: token, DueAt: now, State: webhook.ReplayRunning, Events: events,
		})
		assert.True(t, held)
		assert.Positive(t, created)
		return err
	})
	check("CancelReplayJob", 10, func() error {
		cancelled, err := store.CancelReplayJob(ctx, webhook.CancelReplayJobParams{Now: now, Scope: webhook.AllTenants(), JobID: job.ID})
		assert.True(t, cancelled)
		return err
	})
}

// overDays makes times on the last days, as many on each whatever the time of the day is:
// PostgreSQL reads a partition from end to end that holds but a few hundred rows. The part
// is 0 for now and 1 for the longest ago.
const overDays = `
	CREATE FUNCTION over_days(days int, part float8) RETURNS timestamptz LANGUAGE sql STABLE AS $$
		SELECT CASE WHEN part * days < 1 THEN now() - (now() - today) * (part * days)
		            ELSE today - interval '1 day' * (part * days - 1) END
		FROM (SELECT date_trunc('day', now(), 'UTC') AS today) t
	$$`

// fill writes a history and returns a time at which the due deliveries are due.
func fill(t *testing.T, pool *pgxpool.Pool, store *postgres.Store, h history) time.Time {
	t.Helper()
	now, err := store.Now(t.Context())
	require.NoError(t, err)
	// A week of partitions, as a system that has been running for long has.
	for ago := range 7 {
		require.NoError(t, store.Maintain(t.Context(), webhook.MaintainParams{Now: now.AddDate(0, 0, -ago)}))
	}
	exec(t, pool, `
		INSERT INTO webhook.endpoint (id, revision, created_at, updated_at, tenant, url, types, state, state_reason)
		SELECT gen_random_uuid(), n, now(), now(), 'tenant ' || n % 100, 'https://hooks.example/', '{*}',
		       CASE n WHEN 1 THEN 'paused' ELSE 'active' END, ''
		FROM generate_series(1, $1::int) n`, h.endpoints)
	exec(t, pool, `UPDATE webhook.endpoint_revision SET revision = $1::int`, h.endpoints)
	exec(t, pool, overDays)
	exec(t, pool, `CREATE TEMPORARY SEQUENCE IF NOT EXISTS n`)
	exec(t, pool, `
		CREATE TABLE made AS
		SELECT gen_random_uuid() AS event_id, gen_random_uuid() AS id, n, now() AS at,
		       (SELECT array_agg(id ORDER BY revision) FROM webhook.endpoint) AS endpoints
		FROM generate_series(1, $1::int) n`, 0)
	exec(t, pool, `ALTER TABLE made DROP COLUMN endpoints, ADD COLUMN endpoint_id uuid, ADD COLUMN what text`)
	exec(t, pool, `
		INSERT INTO made
		SELECT gen_random_uuid(), gen_random_uuid(), n, over_days(6, random()), e.id,
		       CASE WHEN n <= $1 THEN 'finished' WHEN n <= $1 + $2 THEN 'parked' WHEN n <= $1 + $2 + $3 THEN 'due' ELSE 'outbox' END
		FROM generate_series(1, $1::int + $2::int + $3::int + $4::int) n
		JOIN webhook.endpoint e ON e.revision = CASE WHEN n > $1 AND n <= $1 + $2 THEN 1 ELSE 1 + n % $5::int END`,
		h.finished, h.parked, h.due, h.outbox, h.endpoints)
	exec(t, pool, `
		INSERT INTO webhook.event (id, resource_version, created_at, tenant, type, resource_id, content_type, payload)
		SELECT event_id, 0, at, 'tenant', 'invoice.paid', '', '', '{}' FROM made`)
	exec(t, pool, `
		INSERT INTO webhook.idempotency_key (tenant, key, event_id)
		SELECT 'acme', 'key ' || n, event_id FROM made`)
	exec(t, pool, `
		INSERT INTO webhook.outbox (position, event_id)
		SELECT e.seq, e.id FROM made JOIN webhook.event e ON e.id = made.event_id WHERE what = 'outbox'`)
	exec(t, pool, `
		INSERT INTO webhook.delivery (id, event_id, endpoint_id, next_attempt_at, created_at, run, lane, tenant, event_type)
		SELECT id, event_id, endpoint_id, at, at, 0, 0, 'tenant', 'invoice.paid' FROM made WHERE what IN ('parked', 'due')`)
	exec(t, pool, `
		INSERT INTO webhook.delivery_log (id, event_id, endpoint_id, created_at, finished_at, run, attempts, last_status, tenant, event_type, last_class)
		SELECT id, event_id, endpoint_id, at, at, 0, 1, 200, 'tenant', 'invoice.paid', '' FROM made WHERE what = 'finished'`)
	exec(t, pool, `
		INSERT INTO webhook.delivery_dead (id, event_id, endpoint_id, created_at, finished_at, run, attempts, last_status, state, reason, tenant, event_type, last_class)
		SELECT id, event_id, endpoint_id, at, at, 0, 1, 500, 'dead', 'window', 'tenant', 'invoice.paid', '' FROM made WHERE what = 'finished' AND n % 4 = 0`)
	exec(t, pool, `
		INSERT INTO webhook.attempt (delivery_id, event_id, endpoint_id, lease_token, started_at, latency_ns, number, status, truncated, late, tenant, class, error, location, excerpt, body_hash)
		SELECT id, event_id, endpoint_id, id, at, 0, 1, 200, false, false, 'tenant', '', '', '', '', '' FROM made WHERE what = 'finished'`)
	exec(t, pool, `
		INSERT INTO webhook.replay_job (id, endpoint_id, after_id, created_at, due_at, finished_at, matched, handled, created, tenant, state, reason, request)
		SELECT id, endpoint_id, id, at, at, at, 1, 1, 1, 'tenant ' || n % 100, 'done', '', '' FROM made WHERE what = 'finished' AND n % 20 = 0`)
	exec(t, pool, `DROP TABLE made`)
	return now
}

func exec(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	_, err := pool.Exec(t.Context(), sql, args...)
	require.NoError(t, err, sql)
}

// endpointIDs returns the endpoints in the order of their revisions: the parked
// one first.
func endpointIDs(t *testing.T, pool *pgxpool.Pool) []uuid.UUID {
	t.Helper()
	found, err := pool.Query(t.Context(), `SELECT id FROM webhook.endpoint ORDER BY revision`)
	require.NoError(t, err)
	ids, err := pgx.CollectRows(found, pgx.RowTo[uuid.UUID])
	require.NoError(t, err)
	return ids
}

// planLog collects the plans of all statements that a pool runs.
type planLog struct {
	mu    sync.Mutex // protects plans
	plans []plan
}

func (l *planLog) take() []plan {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.plans
	l.plans = nil
	return taken
}

// explainingPool returns a pool on whose connections the server reports the plan
// of each statement, as it was really executed.
func explainingPool(t *testing.T, url string) (*pgxpool.Pool, *planLog) {
	t.Helper()
	log := new(planLog)
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	config.MaxConns = 1
	config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		_, text, ok := strings.Cut(n.Message, "plan:\n")
		if !ok {
			return
		}
		var p plan
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			p.Query = "unreadable plan: " + err.Error()
		}
		log.mu.Lock()
		defer log.mu.Unlock()
		log.plans = append(log.plans, p)
	}
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, `
			LOAD 'auto_explain';
			SET auto_explain.log_min_duration = 0;
			SET auto_explain.log_analyze = on;
			SET auto_explain.log_timing = off;
			SET auto_explain.log_buffers = on;
			SET auto_explain.log_format = json;
			SET client_min_messages = log`)
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool, log
}

type plan struct {
	Query string   `json:"Query Text"`
	Root  planNode `json:"Plan"`
}

type planNode struct {
	Type     string     `json:"Node Type"`
	Relation string     `json:"Relation Name"`
	Rows     float64    `json:"Actual Rows"`
	Loops    float64    `json:"Actual Loops"`
	Time     float64    `json:"Actual Total Time"` // milliseconds; 0 without timing
	Removed  float64    `json:"Rows Removed by Filter"`
	Hit      int        `json:"Shared Hit Blocks"` // those of the nodes below included
	Read     int        `json:"Shared Read Blocks"`
	Plans    []planNode `json:"Plans"`
}

// fewRows are as well read from end to end: a partition of tomorrow's, or the one
// row of endpoint_revision.
const fewRows = 60

// check fails the test when the plan reads a table from end to end, or when any
// of its steps handled more rows than asked for.
func (p plan) check(t *testing.T, what string, rows float64) {
	t.Helper()
	var walk func(n planNode)
	walk = func(n planNode) {
		touched := (n.Rows + n.Removed) * n.Loops
		if n.Type == "Seq Scan" && touched > fewRows {
			t.Errorf("%s: sequential scan of %s in\n%s", what, n.Relation, p)
		}
		if touched > rows*1.1+fewRows {
			t.Errorf("%s: %s %s handled %v rows, want at most %v, in\n%s", what, n.Type, n.Relation, touched, rows, p)
		}
		for _, child := range n.Plans {
			walk(child)
		}
	}
	walk(p.Root)
}

func (p plan) String() string {
	var b strings.Builder
	b.WriteString(p.Query + "\n")
	var walk func(n planNode, depth int)
	walk = func(n planNode, depth int) {
		fmt.Fprintf(&b, "%s%s %s rows=%v removed=%v loops=%v\n", strings.Repeat("  ", depth), n.Type, n.Relation, n.Rows, n.Removed, n.Loops)
		for _, child := range n.Plans {
			walk(child, depth+1)
		}
	}
	walk(p.Root, 0)
	return b.String()
}
