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

// fillHealth writes what months leave behind: vitals of each endpoint, of which every
// hundredth fails, notices that were told, what dispatchers did, and payloads to remove.
func fillHealth(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	exec(t, pool, `
		INSERT INTO webhook.endpoint_vitals (endpoint_id, version, level, data)
		SELECT id, 1, CASE WHEN revision % 100 = 0 THEN 2 ELSE 0 END, '{}' FROM webhook.endpoint`)
	exec(t, pool, `
		INSERT INTO webhook.notice (id, endpoint_id, streak, created_at, due_at, attempts, kind, tenant, detail)
		SELECT gen_random_uuid(), e.id, now() - n * interval '1 hour', now() - n * interval '1 hour',
		       CASE WHEN n = 0 AND e.revision % 100 = 0 THEN now() END, 1, 'endpoint.failing', e.tenant, '{}'
		FROM webhook.endpoint e, generate_series(0, 9) n`)
	exec(t, pool, `
		INSERT INTO webhook.activity (at, dispatcher, data)
		SELECT now() - n * interval '5 minutes', gen_random_uuid(), '{}' FROM generate_series(1, 20000) n`)
	exec(t, pool, `INSERT INTO webhook.payload_gone (event_id, tenant) SELECT gen_random_uuid(), 'tenant' FROM generate_series(1, 20000)`)
}

// runHealth calls what health, notices and payloads need.
func runHealth(t *testing.T, pool *pgxpool.Pool, store *postgres.Store, now time.Time, plans *planLog) {
	t.Helper()
	ctx := t.Context()
	check := func(what string, rows float64, run func() error) { t.Helper(); plans.check(t, what, rows, run) }
	ids := endpointIDs(t, pool)
	some := ids[100:110]

	check("LoadVitals", 10, func() error {
		loaded, err := store.LoadVitals(ctx, some)
		assert.Len(t, loaded, 10)
		return err
	})
	notice := func(endpoint uuid.UUID) webhook.NoticeRecord {
		id, err := uuid.NewV7()
		require.NoError(t, err)
		return webhook.NoticeRecord{
			ID: id, EndpointID: endpoint, Tenant: "tenant 5", Kind: webhook.NoticeDead, Streak: now, CreatedAt: now, DueAt: now, Detail: []byte("{}"),
		}
	}
	check("SaveVitals", 100, func() error {
		stale, err := store.SaveVitals(ctx, webhook.SaveVitalsParams{
			Vitals: []webhook.VitalsRecord{
				{EndpointID: some[0], Version: 1, Level: webhook.LevelFailing, Data: []byte("{}")},
				{EndpointID: some[1], Version: 7, Data: []byte("{}")},
			},
			Notices: []webhook.NoticeRecord{notice(some[0])},
		})
		assert.Equal(t, []uuid.UUID{some[1]}, stale)
		return err
	})
	for what, scope := range map[string]webhook.Scope{"all": webhook.AllTenants(), "a tenant's": webhook.TenantScope("tenant 0")} {
		check("ListUnwell, "+what, 200, func() error {
			unwell, err := store.ListUnwell(ctx, webhook.ListUnwellParams{Scope: scope, Level: webhook.LevelFailing, Limit: 5})
			assert.Len(t, unwell, 5)
			return err
		})
		check("ListNotices, "+what, 200, func() error {
			notices, err := store.ListNotices(ctx, webhook.ListNoticesParams{Scope: scope, Limit: 10})
			assert.Len(t, notices, 10)
			return err
		})
	}
	check("ReadHealth", 200, func() error {
		rows, err := store.ReadHealth(ctx, webhook.ReadHealthParams{Now: now, Endpoints: some, CountUpTo: 10})
		assert.Len(t, rows, 10)
		return err
	})
	check("AddNotices", 10, func() error {
		added, err := store.AddNotices(ctx, []webhook.NoticeRecord{notice(some[2])})
		assert.Len(t, added, 1)
		return err
	})
	var due []webhook.NoticeRecord
	check("DueNotices", 20, func() (err error) {
		due, err = store.DueNotices(ctx, now.Add(time.Hour), 5)
		assert.Len(t, due, 5)
		return err
	})
	check("SettleNotices", 20, func() error { return store.SettleNotices(ctx, due) })
	check("ListNotices, an endpoint's", 20, func() error {
		notices, err := store.ListNotices(ctx, webhook.ListNoticesParams{Scope: webhook.AllTenants(), EndpointID: some[3], Limit: 5})
		assert.Len(t, notices, 5)
		return err
	})
	check("SaveActivity", 10, func() error {
		return store.SaveActivity(ctx, []webhook.ActivityRecord{{At: now, Dispatcher: uuid.New(), Data: []byte("{}")}})
	})
	check("ListActivity", 100, func() error {
		_, err := store.ListActivity(ctx, now.Add(-time.Hour), now)
		return err
	})

	var gone []webhook.PayloadKey
	check("GonePayloads", 10, func() (err error) {
		gone, err = store.GonePayloads(ctx, uuid.Nil, 10)
		assert.Len(t, gone, 10)
		return err
	})
	check("ForgetPayloads", 10, func() error { return store.ForgetPayloads(ctx, []uuid.UUID{gone[0].EventID, gone[1].EventID}) })
	check("AbsentEvents", 10, func() error {
		absent, err := store.AbsentEvents(ctx, []uuid.UUID{gone[2].EventID, gone[3].EventID})
		assert.Len(t, absent, 2)
		return err
	})
}
