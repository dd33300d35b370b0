package sqlite_test

import (
	"database/sql"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/sqlite"
)

// everyMethod calls every method of the store in each way that makes another
// statement of it.
func everyMethod(t *testing.T, store *sqlite.Store, db *sql.DB) {
	t.Helper()
	ctx := t.Context()
	var ids []uuid.UUID
	var gone webhook.EndpointRecord
	for range 3 {
		gone = createEndpoint(t, store, "acme")
		ids = append(ids, gone.ID)
	}
	for _, events := range [][]webhook.EventRecord{
		newEvents(300, "acme"), newEvents(1, "acme"), newEvents(2, "nobody"),
		{newEvent("acme", "key")},
		{newEvent("acme", "key"), newEvent("acme", "other")},
	} {
		require.NoError(t, enqueue(ctx, store, db, events...))
	}
	for _, limit := range []int{2, 1000} { // a step that leaves an event half fanned out, and the rest
		m := newEveryone()
		_, err := store.FanOut(ctx, webhook.FanOutParams{Now: time.Now(), MaxEvents: 10, MaxDeliveries: limit, Matcher: m})
		require.NoError(t, err)
		require.NoError(t, fanOutAll(ctx, store, m))
	}
	m := newEveryone()
	m.payloads = true
	require.NoError(t, enqueue(ctx, store, db, newEvents(3, "acme")...))
	require.NoError(t, fanOutAll(ctx, store, m))

	require.NoError(t, store.SaveHealth(ctx, []webhook.HealthRecord{{EndpointID: ids[1], UpdatedAt: time.Now(), ShedUntil: time.Now().Add(time.Minute)}}))
	require.NoError(t, enqueue(ctx, store, db, newEvents(3, "acme")...))
	require.NoError(t, fanOutAll(ctx, store, m))
	_, err := store.CountBacklog(ctx, []webhook.BacklogRequest{{EndpointID: ids[0], Limit: 10, Since: time.Now(), SinceLimit: 10}})
	require.NoError(t, err)
	_, err = store.Ready(ctx, webhook.ReadyParams{Now: time.Now(), Limit: 10})
	require.NoError(t, err)
	claimed, token, err := claimFrom(ctx, store, 10, ids...)
	require.NoError(t, err)
	newest, err := store.Claim(ctx, webhook.ClaimParams{
		Now: time.Now(), LeaseUntil: time.Now().Add(time.Minute), Token: token,
		Requests: []webhook.ClaimRequest{{EndpointID: ids[0], Limit: 2, Newest: true}},
	})
	require.NoError(t, err)
	require.Len(t, newest, 2)
	_, err = store.Renew(ctx, webhook.RenewParams{
		Now: time.Now(), LeaseUntil: time.Now(), Leases: []webhook.Lease{{DeliveryID: claimed[0].DeliveryID, Token: token}},
	})
	require.NoError(t, err)
	recordInEveryWay(t, store, claimed, token)

	actInEveryWay(t, store, claimed)
	gone.State, gone.Revision = webhook.EndpointDisabled, 3
	_, err = store.UpdateEndpoint(ctx, gone)
	require.NoError(t, err)
	_, err = store.CancelDeliveries(ctx, webhook.CancelDeliveriesParams{Now: time.Now(), EndpointID: gone.ID, Limit: 10})
	require.NoError(t, err)
	readInEveryWay(t, store, claimed[0])
	orderInEveryWay(t, store, db)
	maintainInEveryWay(t, store)
	for done := false; !done; {
		progress, err := store.EraseTenant(ctx, webhook.EraseTenantParams{Now: time.Now(), Tenant: "nobody", Limit: 100, Counters: true})
		require.NoError(t, err)
		done = progress.Done
	}
	require.NoError(t, store.CheckSchema(ctx))
	require.NoError(t, store.Check(ctx))
}

// orderInEveryWay goes through what is ordered, sent once or overdue.
func orderInEveryWay(t *testing.T, store *sqlite.Store, db *sql.DB) {
	t.Helper()
	ctx, now := t.Context(), time.Now()
	e := createEndpoint(t, store, "ordered")
	e.Ordering = webhook.OrderingPerEndpoint
	e, err := store.UpdateEndpoint(ctx, e)
	require.NoError(t, err)
	require.NoError(t, enqueue(ctx, store, db, newEvents(4, "ordered")...))
	m := newEveryone()
	m.ordering = webhook.OrderingPerEndpoint
	require.NoError(t, fanOutAll(ctx, store, m))
	var claimed []webhook.Claimed
	var token uuid.UUID
	for range 2 {
		claimed, token, err = claimFrom(ctx, store, 10, e.ID)
		require.NoError(t, err)
		require.Len(t, claimed, 1)
		_, err = store.MarkSent(ctx, webhook.MarkSentParams{Now: now, Leases: []webhook.Lease{{DeliveryID: claimed[0].DeliveryID, Token: token}}})
		require.NoError(t, err)
		result := delivered(claimed[0], token)
		result.Order = claimed[0].Order
		_, err = store.Record(ctx, webhook.RecordParams{Now: now, Results: []webhook.Result{result}})
		require.NoError(t, err)
	}
	claimed, token, err = claimFrom(ctx, store, 10, e.ID)
	require.NoError(t, err)
	_, err = store.MarkSent(ctx, webhook.MarkSentParams{Now: now, Leases: []webhook.Lease{{DeliveryID: claimed[0].DeliveryID, Token: token}}})
	require.NoError(t, err)
	later := now.Add(24 * time.Hour)
	unknown, err := store.EndUnknown(ctx, webhook.EndUnknownParams{Now: later, ExpiredBefore: later, Limit: 10})
	require.NoError(t, err)
	assert.Equal(t, []webhook.EndedDeliveries{{EndpointID: e.ID, Tenant: e.Tenant, Deliveries: 1}}, unknown)
	released, err := store.ReleaseOrdered(ctx, webhook.ReleaseOrderedParams{Now: later, HeldBefore: now, Limit: 10})
	require.NoError(t, err)
	assert.Len(t, released.Released, 1)
	overdue, err := store.EndOverdue(ctx, webhook.EndOverdueParams{Now: later, EndpointID: e.ID, BegunBefore: later, Unattempted: true, Limit: 10})
	require.NoError(t, err)
	assert.Equal(t, 1, overdue.Ended)
}

func maintainInEveryWay(t *testing.T, store *sqlite.Store) {
	t.Helper()
	now := time.Now()
	require.NoError(t, store.Maintain(t.Context(), webhook.MaintainParams{Now: now}))
	_, err := store.TakeDuty(t.Context(), webhook.DutyParams{Name: "upkeep", Holder: newID(), Now: now, Until: now})
	require.NoError(t, err)
	for _, scope := range []webhook.Scope{webhook.AllTenants(), webhook.TenantScope("acme")} {
		for _, endpoint := range []uuid.UUID{uuid.Nil, newID()} {
			_, err := store.ListCounters(t.Context(), webhook.ListCountersParams{Scope: scope, EndpointID: endpoint, Limit: 10})
			require.NoError(t, err)
		}
	}
	later := now.AddDate(0, 0, 2)
	require.NoError(t, store.Maintain(t.Context(), webhook.MaintainParams{
		Now: later, DeliveriesBefore: later, DeadBefore: later, EventsBefore: later,
	}))
}

func recordInEveryWay(t *testing.T, store *sqlite.Store, claimed []webhook.Claimed, token uuid.UUID) {
	t.Helper()
	results := []webhook.Result{
		delivered(claimed[0], token), delivered(claimed[1], token), delivered(claimed[2], token),
		delivered(claimed[3], token), delivered(claimed[4], newID()),
	}
	results[1].State = webhook.StateDead
	results[2].State = webhook.StatePending
	results[3].State, results[3].Attempt = webhook.StatePending, nil
	_, err := store.Record(t.Context(), webhook.RecordParams{Now: time.Now(), Results: results})
	require.NoError(t, err)
}

// actInEveryWay acts on what recordInEveryWay left.
func actInEveryWay(t *testing.T, store *sqlite.Store, claimed []webhook.Claimed) {
	t.Helper()
	ctx, all := t.Context(), webhook.AllTenants()
	now := time.Now().Add(24 * time.Hour)
	hastened, err := store.HastenDelivery(ctx, webhook.HastenDeliveryParams{Now: now, Scope: all, DeliveryID: claimed[2].DeliveryID})
	require.NoError(t, err)
	assert.True(t, hastened)
	cancelled, err := store.CancelDelivery(ctx, webhook.CancelDeliveryParams{Now: now, Scope: all, DeliveryID: claimed[2].DeliveryID})
	require.NoError(t, err)
	assert.True(t, cancelled)
	run := webhook.StartRunParams{Now: now, Scope: all, EventID: claimed[0].Event.ID, EndpointID: claimed[0].EndpointID}
	first, started, err := store.StartRun(ctx, run)
	require.NoError(t, err)
	assert.True(t, started)
	again, started, err := store.StartRun(ctx, run)
	require.NoError(t, err)
	assert.False(t, started)
	assert.Equal(t, first, again)
	run.EventID = newID()
	_, _, err = store.StartRun(ctx, run)
	require.ErrorIs(t, err, webhook.ErrNotFound)
	replayInEveryWay(t, store, claimed)
}

func replayInEveryWay(t *testing.T, store *sqlite.Store, claimed []webhook.Claimed) {
	t.Helper()
	ctx, all, now := t.Context(), webhook.AllTenants(), time.Now()
	endpoint := claimed[0].EndpointID
	_, err := store.FinishedDeliveries(ctx, webhook.FinishedDeliveriesParams{
		EndpointID: endpoint, States: []webhook.DeliveryState{webhook.StateDead, webhook.StateDelivered}, Limit: 10,
	})
	require.NoError(t, err)
	for _, payload := range []bool{false, true} {
		page, err := store.StoredEvents(ctx, webhook.StoredEventsParams{
			EndpointID: endpoint, Tenant: "acme", Until: uuid.Max, Limit: 10, Payload: payload,
		})
		require.NoError(t, err)
		assert.NotEmpty(t, page.Next)
	}
	job := webhook.ReplayJobRecord{ID: newID(), EndpointID: endpoint, Tenant: "acme", State: webhook.ReplayRunning, CreatedAt: now, DueAt: now}
	require.NoError(t, store.CreateReplayJob(ctx, job))
	_, err = store.GetReplayJob(ctx, all, job.ID)
	require.NoError(t, err)
	for _, p := range []webhook.ListReplayJobsParams{{Scope: all}, {Scope: webhook.TenantScope("acme")}, {Scope: all, EndpointID: endpoint}} {
		p.Limit = 10
		jobs, err := store.ListReplayJobs(ctx, p)
		require.NoError(t, err)
		assert.Len(t, jobs, 1)
	}
	token := newID()
	_, ok, err := store.TakeReplayJob(ctx, webhook.TakeReplayJobParams{Now: now, LeaseUntil: now.Add(time.Minute), Token: token})
	require.NoError(t, err)
	assert.True(t, ok)
	_, held, err := store.AdvanceReplayJob(ctx, webhook.AdvanceReplayJobParams{
		Now: now, JobID: job.ID, Token: token, DueAt: now, State: webhook.ReplayRunning, Events: []uuid.UUID{claimed[1].Event.ID},
	})
	require.NoError(t, err)
	assert.True(t, held)
	cancelled, err := store.CancelReplayJob(ctx, webhook.CancelReplayJobParams{Now: now, Scope: all, JobID: job.ID})
	require.NoError(t, err)
	assert.True(t, cancelled)
}

func readInEveryWay(t *testing.T, store *sqlite.Store, c webhook.Claimed) {
	t.Helper()
	ctx := t.Context()
	for _, scope := range []webhook.Scope{webhook.AllTenants(), webhook.TenantScope("acme")} {
		_, err := store.GetEvent(ctx, scope, c.Event.ID)
		require.NoError(t, err)
		_, err = store.GetDelivery(ctx, scope, c.DeliveryID)
		require.NoError(t, err)
		_, err = store.ListAttempts(ctx, scope, c.DeliveryID)
		require.NoError(t, err)
		_, err = store.GetEndpoint(ctx, scope, c.EndpointID)
		require.NoError(t, err)
		_, err = store.ListEndpoints(ctx, webhook.ListEndpointsParams{Scope: scope, Limit: 10})
		require.NoError(t, err)
		for _, event := range []uuid.UUID{uuid.Nil, c.Event.ID} {
			for _, endpoint := range []uuid.UUID{uuid.Nil, c.EndpointID} {
				for _, state := range []webhook.DeliveryState{
					"", webhook.StatePending, webhook.StateInFlight, webhook.StateDelivered, webhook.StateDead, "unknown",
				} {
					_, err := store.ListDeliveries(ctx, webhook.ListDeliveriesParams{
						Scope: scope, EventID: event, EndpointID: endpoint, State: state, Limit: 10,
					})
					require.NoError(t, err)
				}
			}
		}
	}
}

var (
	scan = regexp.MustCompile(`^SCAN (\S+)`)
	// What may be scanned: things made by the statement itself, which the limit
	// of the statement bounds, and the schema.
	small = regexp.MustCompile(`^(\(subquery-\d+\)|e|due|ended|walk|CONSTANT|sqlite_master|\d+ CONSTANT|\d+-ROW)$`)
)

// The statements of the store, all of which are explained, do not read a table
// as a whole, nor sort more than what an event or a tenant has.
func TestNoStatementScansATable(t *testing.T) {
	t.Parallel()
	file := newFile(t) + options
	plain := open(t, file)
	migrated(t, plain)
	recorder, db := newRecorder(t, file)
	everyMethod(t, sqlite.New(db), db)
	statements := recorder.all()

	explained := 0
	for _, statement := range statements {
		plan := explain(t, plain, statement)
		if len(plan) == 0 {
			continue
		}
		explained++
		for _, step := range plan {
			if m := scan.FindStringSubmatch(step); m != nil && !small.MatchString(m[1]) {
				t.Errorf("%s in\n%s\n%s", step, statement, strings.Join(plan, "\n"))
			}
			if strings.HasPrefix(step, "USE TEMP B-TREE") && !maySort(statement) {
				t.Errorf("%s in\n%s\n%s", step, statement, strings.Join(plan, "\n"))
			}
		}
	}
	assert.Greater(t, explained, 40, "statements with a plan")
	assertIndexes(t, plain, statements)
}

// assertIndexes says which index the statements ride on whose cost would
// otherwise grow unnoticed.
func assertIndexes(t *testing.T, db *sql.DB, statements []string) {
	t.Helper()
	for statement, index := range map[string]string{
		"next_attempt_at <= ? AND lease_until <= ? AND sent_at = 0 AND next_attempt_at >= ? ORDER BY next_attempt_at, id LIMIT": "webhook_delivery_claim (endpoint_id=? AND lane=? AND next_attempt_at>? AND next_attempt_at<?)",
		"next_attempt_at >= ? ORDER BY next_attempt_at DESC, id DESC LIMIT":                                                     "webhook_delivery_claim (endpoint_id=? AND lane=? AND next_attempt_at>? AND next_attempt_at<?)",
		"FROM webhook_outbox WHERE position > 0":                                                                                "INTEGER PRIMARY KEY",
		"FROM webhook_idempotency_key":                                                                                          "PRIMARY KEY (tenant=? AND key=?)",
		"(SELECT seq FROM webhook_event WHERE id = ?) AND endpoint_id = ?":                                                      "_run (event_seq=? AND endpoint_id=?)",
	} {
		found := 0
		for _, s := range statements {
			plain := strings.Join(strings.Fields(s), " ")
			if !strings.Contains(plain, statement) {
				continue
			}
			found++
			assert.Contains(t, strings.Join(explain(t, db, s), "\n"), index, s)
		}
		assert.Positive(t, found, "statements with %q", statement)
	}
}

// maySort tells the statements that sort: listings, which sort the newest few of
// each table or endpoint and the deliveries of one event, and the attempts of
// one delivery.
func maySort(statement string) bool {
	return strings.Contains(statement, "UNION ALL SELECT * FROM (") || strings.Contains(statement, "SELECT * FROM (SELECT") ||
		strings.Contains(statement, "webhook_attempt WHERE delivery_id = ?") ||
		strings.Contains(statement, "SELECT 1 AS open") // the runs of one event to one endpoint
}

// explain returns the steps of a statement's plan; none for what has no plan.
func explain(t *testing.T, db *sql.DB, statement string) []string {
	t.Helper()
	keyword, _, _ := strings.Cut(strings.TrimSpace(statement), " ")
	switch strings.ToUpper(strings.TrimSpace(keyword)) {
	case "SELECT", "INSERT", "UPDATE", "DELETE", "WITH":
	default:
		return nil
	}
	args := make([]any, numParameters(statement))
	rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+statement, args...)
	require.NoError(t, err, statement)
	defer func() { require.NoError(t, rows.Close()) }()
	var steps []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		require.NoError(t, rows.Scan(&id, &parent, &unused, &detail))
		steps = append(steps, detail)
	}
	require.NoError(t, rows.Err())
	return steps
}

var numbered = regexp.MustCompile(`\?(\d+)`)

func numParameters(statement string) int {
	n := 0
	for _, m := range numbered.FindAllStringSubmatch(statement, -1) {
		n = max(n, int(m[1][0]-'0'))
	}
	if n > 0 {
		return n
	}
	return strings.Count(statement, "?")
}

// Field report B33: the cost of a claim grew with what had been delivered. The
// long run has a million finished rows; the short one shows the same in seconds.
func TestClaimsDoNotMeetHistory(t *testing.T) {
	finished := 20_000
	if os.Getenv("WEBHOOK_LONG") != "" {
		finished = 1_000_000
	}
	const parked, rounds = 10_000, 100
	young, old := newClaimer(t), newClaimer(t)
	fillHistory(t, old.db, old.ids[0], finished)
	park(t, old.db, old.ids[0], parked)

	var without, beside []time.Duration
	for range rounds { // in turns, so that whatever the machine does meets both
		without = append(without, young.claim(t))
		beside = append(beside, old.claim(t))
	}

	t.Logf("claims, p50: %v without history, %v beside %d finished and %d parked deliveries",
		percentile(without, 50), percentile(beside, 50), finished, parked)
	assert.Less(t, percentile(beside, 50), 3*percentile(without, 50)+time.Millisecond)
}

// claimer claims the deliveries to two endpoints.
type claimer struct {
	store   *sqlite.Store
	db      *sql.DB
	matcher webhook.Matcher
	ids     []uuid.UUID
}

func newClaimer(t *testing.T) *claimer {
	t.Helper()
	store, db := newStore(t)
	c := &claimer{store, db, newEveryone(), []uuid.UUID{createEndpoint(t, store, "acme").ID, createEndpoint(t, store, "acme").ID}}
	require.NoError(t, fanOutAll(t.Context(), store, c.matcher))
	return c
}

// claim makes a few deliveries, and returns how long it takes to claim them.
func (c *claimer) claim(t *testing.T) time.Duration {
	t.Helper()
	require.NoError(t, enqueue(t.Context(), c.store, c.db, newEvent("acme", "")))
	require.NoError(t, fanOutAll(t.Context(), c.store, c.matcher))
	began := time.Now()
	claimed, token, err := claimFrom(t.Context(), c.store, 10, c.ids...)
	took := time.Since(began)
	require.NoError(t, err)
	require.Len(t, claimed, 2)
	require.NoError(t, record(t.Context(), c.store, claimed, token))
	return took
}

const numbers = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) `

// fillHistory writes finished deliveries of an endpoint, with their attempts.
func fillHistory(t *testing.T, db *sql.DB, endpoint uuid.UUID, n int) {
	t.Helper()
	for _, statement := range []string{
		numbers + `INSERT INTO webhook_delivery_log
			SELECT randomblob(16), -i, randomblob(16), ?, 0, 'acme', 'order.created', 'delivered', '', 1, i, i, 200, '', 0 FROM n`,
		numbers + `INSERT INTO webhook_attempt
			SELECT randomblob(16), i, ?, i, 1, 200, '', '', '', x'6f6b', 0, randomblob(32), 0 FROM n`,
	} {
		_, err := db.ExecContext(t.Context(), statement, n, endpoint[:])
		require.NoError(t, err)
	}
}

// park writes deliveries of an endpoint that are due in an hour.
func park(t *testing.T, db *sql.DB, endpoint uuid.UUID, n int) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), numbers+`INSERT INTO webhook_delivery
		SELECT randomblob(16), -i, randomblob(16), ?, 0, 'acme', 'order.created', 0, ?, 0, x'', 0, i, 0, '', NULL, 0, 0, 0, 0 FROM n`,
		n, endpoint[:], time.Now().Add(time.Hour).UnixMicro())
	require.NoError(t, err)
}
