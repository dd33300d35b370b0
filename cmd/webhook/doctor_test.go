package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/pgtest"
)

// doctor runs the doctor and returns what it found by check.
func (w *world) doctor(t *testing.T, args ...string) (found map[string][]finding, status int) {
	t.Helper()
	got := w.run(t, append([]string{"doctor", "--json"}, args...)...)
	var all []finding
	require.NoError(t, json.Unmarshal([]byte(got.out), &all), "%s%s", got.out, got.err)
	found = make(map[string][]finding)
	for _, f := range all {
		found[f.Check] = append(found[f.Check], f)
	}
	return found, got.status
}

// exec runs SQL on the world's database.
func (w *world) exec(t *testing.T, statement string) {
	t.Helper()
	if isPostgres(w.url) {
		_, err := pgtest.Open(t, w.url).Exec(t.Context(), statement)
		require.NoError(t, err)
		return
	}
	db, err := sql.Open("sqlite", "file:"+w.url)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), statement)
	require.NoError(t, err)
}

// How long a test looks for what another process does, and how often.
const (
	eventually = 30 * time.Second
	tick       = 100 * time.Millisecond
)

func TestDoctorFindsADatabaseWithoutTables(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, w *world) {
		if !isPostgres(w.url) {
			w.exec(t, "CREATE TABLE orders (id TEXT)")
		}
		found, status := w.doctor(t)

		assert.Equal(t, exitProblem, status)
		require.Len(t, found["schema"], 1)
		assert.Equal(t, levelProblem, found["schema"][0].Level)
		assert.Contains(t, found["schema"][0].Do, "webhook migrate up")
	})
}

func TestDoctorIsContentWithAHealthyDatabase(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, w *world) {
		w.migrated(t)
		s := w.service(t)
		s.dispatch(t)
		// Until a dispatcher has been heard of; and a machine that stands still for a
		// while looks like clocks that are apart, and like one that is not heard of.
		var found map[string][]finding
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			var status int
			found, status = w.doctor(t)
			assert.Zero(c, status)
			for check, findings := range found {
				for _, f := range findings {
					if check == "server" && f.Level == levelWarning {
						continue // a throw-away server does without fsync
					}
					assert.Equal(c, levelOK, f.Level, "%+v", f)
				}
			}
		}, eventually, tick)
		for _, check := range []string{"clock", "schema", "indexes", "bloat", "notify", "dispatchers", "fan-out", "backlog", "egress"} {
			assert.NotEmpty(t, found[check], check)
		}
		text := w.run(t, "doctor")
		assert.Contains(t, text.out, "0 problems")
	})
}

func TestDoctorMissesAnIndex(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, w *world) {
		w.migrated(t)
		index := "webhook.delivery_claim_idx"
		if !isPostgres(w.url) {
			index = sqliteIndex(t, w)
		}
		w.exec(t, "DROP INDEX "+index)

		found, status := w.doctor(t)

		assert.Equal(t, exitProblem, status)
		assert.Contains(t, found["indexes"][0].Found, "missing")
		statement := regexp.MustCompile(`CREATE [^;]*;`).FindString(found["indexes"][0].Do)
		require.NotEmpty(t, statement, "it says how to make it again")
		w.exec(t, statement)
		mended, _ := w.doctor(t)
		assert.Equal(t, levelOK, mended["indexes"][0].Level)
	})
}

// sqliteIndex is the name of one of the indexes that the migrations make.
func sqliteIndex(t *testing.T, w *world) string {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+w.url)
	require.NoError(t, err)
	defer db.Close()
	var name string
	require.NoError(t, db.QueryRowContext(t.Context(),
		`SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL LIMIT 1`).Scan(&name))
	return name
}

func TestDoctorFindsWorkThatNobodyDoes(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, w *world) {
		w.migrated(t)
		w.service(t).enqueue(t, webhook.Event{Tenant: "acme", Type: "order.paid", Payload: json.RawMessage(`{}`)})
		if isPostgres(w.url) {
			w.exec(t, "UPDATE webhook.event SET created_at = created_at - interval '1 hour'")
		} else {
			w.exec(t, "UPDATE webhook_event SET created_at = created_at - 3600000000")
		}

		found, status := w.doctor(t)

		assert.Equal(t, exitProblem, status)
		assert.Equal(t, levelProblem, found["dispatchers"][0].Level)
		assert.Equal(t, levelProblem, found["fan-out"][0].Level)
		assert.Contains(t, found["fan-out"][0].Found, "1h0m")
	})
}

func TestDoctorChecksURLsAgainstThePolicy(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, w *world) {
		w.migrated(t)
		_, err := w.service(t).hooks.Endpoints().Create(t.Context(), webhook.EndpointParams{
			Tenant: "acme", URL: "http://127.0.0.1:9000/in", Types: []string{"*"},
		})
		require.NoError(t, err)
		w.env = append(w.env, "HTTPS_PROXY=http://proxy.example:3128")

		strict, status := w.doctor(t)
		allowed, allowedStatus := w.doctor(t, "--allow", "127.0.0.1/32", "--allow-http")
		_, strictest := w.doctor(t, "--allow", "127.0.0.1/32", "--allow-http", "--strict")

		assert.Equal(t, exitProblem, status)
		assert.Contains(t, strict["egress"][0].Found, "1 endpoints are refused")
		assert.Zero(t, allowedStatus)
		assert.Equal(t, levelOK, allowed["egress"][0].Level)
		require.Len(t, allowed["egress"], 3)
		assert.Equal(t, levelWarning, allowed["egress"][2].Level, "a proxy in the environment is not used")
		assert.Equal(t, exitProblem, strictest)
	})
}

func TestDoctorSeesStrayRowsAndMissingPartitions(t *testing.T) {
	t.Parallel()
	w := newWorld(pgtest.New(t)).migrated(t)
	w.exec(t, `INSERT INTO webhook.attempt_default SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(),
		now() - interval '40 days', 0, 1, 200, false, false, 'acme', '', '', '', '', ''`)
	w.exec(t, `DROP TABLE webhook.delivery_log_`+tomorrow(t, w))

	found, status := w.doctor(t)

	assert.Zero(t, status, "these are warnings")
	require.Len(t, found["partitions"], 2)
	assert.Contains(t, found["partitions"][0].Found, "attempt_default")
	assert.Contains(t, found["partitions"][1].Found, "none for tomorrow")
}

func tomorrow(t *testing.T, w *world) (day string) {
	t.Helper()
	require.NoError(t, pgtest.Open(t, w.url).QueryRow(t.Context(),
		`SELECT to_char(now() AT TIME ZONE 'UTC' + interval '1 day', 'YYYYMMDD')`).Scan(&day))
	return day
}

// examined runs the doctor in this process, with limits that a small database reaches.
func (w *world) examined(t *testing.T, change func(*doctor)) map[string][]finding {
	t.Helper()
	a := &app{database: w.url, getenv: func(string) string { return "" }}
	db, err := a.open(t.Context(), openOptions{})
	require.NoError(t, err)
	defer db.close()
	policy, err := webhook.NewTransport(webhook.TransportConfig{})
	require.NoError(t, err)
	d := &doctor{db: db, policy: policy, getenv: a.getenv, limits: defaultLimits()}
	change(d)
	d.examine(t.Context())
	found := make(map[string][]finding)
	for _, f := range d.findings {
		found[f.Check] = append(found[f.Check], f)
	}
	return found
}

func TestDoctorTellsAnOlderSchemaFromANewer(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, w *world) {
		require.Zero(t, w.run(t, "migrate", "up", "--to", "1").status)
		older, olderStatus := w.doctor(t)
		require.Zero(t, w.run(t, "migrate", "up").status)
		if isPostgres(w.url) {
			w.exec(t, "INSERT INTO webhook.migration (version, name) VALUES (999, 'from the future')")
		} else {
			w.exec(t, "INSERT INTO webhook_migration (version, name, applied_at) VALUES (999, 'from the future', 0)")
		}
		newer, newerStatus := w.doctor(t)

		assert.Equal(t, exitProblem, olderStatus)
		assert.Contains(t, older["schema"][0].Found, "version 1 of")
		assert.Contains(t, older["schema"][0].Do, "webhook migrate up")
		assert.Equal(t, exitProblem, newerStatus)
		assert.Regexp(t, `version \d+, but this command knows`, newer["schema"][0].Found)
		assert.Contains(t, newer["schema"][0].Do, "version of the library")
	})
}

func TestDoctorFindsIndexesThatAnInterruptedMigrationLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(pgtest.New(t)).migrated(t)
	for range 2 {
		require.Zero(t, w.run(t, "endpoints", "create", "--tenant", "acme", "--url", "https://hooks.example.com/in").status)
	}
	w.exec(t, "DROP INDEX webhook.delivery_claim_idx")
	pool := pgtest.Open(t, w.url)
	for _, name := range []string{"delivery_claim_idx", "endpoint_x_ccnew"} {
		_, err := pool.Exec(t.Context(), "CREATE UNIQUE INDEX CONCURRENTLY "+name+" ON webhook.endpoint (tenant)")
		require.Error(t, err, "two rows have one tenant, and the index stays behind")
	}

	found, status := w.doctor(t)

	assert.Equal(t, exitProblem, status)
	require.Len(t, found["indexes"], 2)
	assert.Equal(t, levelProblem, found["indexes"][0].Level)
	assert.Equal(t, "not valid: delivery_claim_idx", found["indexes"][0].Found)
	assert.Contains(t, found["indexes"][0].Do, "REINDEX INDEX CONCURRENTLY")
	assert.Equal(t, levelWarning, found["indexes"][1].Level)
	assert.Contains(t, found["indexes"][1].Found, "endpoint_x_ccnew")
}

func TestDoctorFindsBloat(t *testing.T) {
	t.Parallel()
	w := newWorld(pgtest.New(t)).migrated(t)
	w.exec(t, `ALTER TABLE webhook.outbox SET (autovacuum_enabled = false)`)
	w.exec(t, `INSERT INTO webhook.outbox (position, event_id) SELECT n, gen_random_uuid() FROM generate_series(1, 20000) n`)
	w.exec(t, `DELETE FROM webhook.outbox`)
	small := func(d *doctor) { d.limits.deadRows, d.limits.tableBytes, d.limits.indexBytes = 10_000, 1<<18, 1<<18 }

	var dead map[string][]finding
	require.Eventually(t, func() bool { // the statistics come a little later
		dead = w.examined(t, small)
		return len(dead["bloat"]) == 2 && strings.Contains(dead["bloat"][1].Found, "20000 dead rows")
	}, eventually, tick)
	w.exec(t, `ALTER TABLE webhook.outbox RESET (autovacuum_enabled)`)
	w.exec(t, `VACUUM (TRUNCATE false) webhook.outbox`)
	var hollow map[string][]finding
	require.Eventually(t, func() bool {
		hollow = w.examined(t, small)
		return len(hollow["bloat"]) == 2 && hollow["bloat"][0].Level == levelWarning
	}, eventually, tick)

	assert.Equal(t, levelProblem, dead["bloat"][0].Level)
	assert.Contains(t, dead["bloat"][0].Do, `ALTER TABLE "webhook"."outbox" RESET (autovacuum_enabled)`)
	assert.Contains(t, dead["bloat"][1].Do, "VACUUM")
	assert.Contains(t, hollow["bloat"][0].Found, "table outbox takes")
	assert.Contains(t, hollow["bloat"][0].Do, "VACUUM FULL")
	assert.Contains(t, hollow["bloat"][1].Found, "indexes of table outbox")
	assert.Contains(t, hollow["bloat"][1].Do, "REINDEX TABLE CONCURRENTLY")
}

func TestDoctorFindsATransactionThatHoldsTheHorizon(t *testing.T) {
	t.Parallel()
	w := newWorld(pgtest.New(t)).migrated(t)
	tx, err := pgtest.Open(t, w.url).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	_, err = tx.Exec(t.Context(), "SELECT count(*) FROM webhook.endpoint")
	require.NoError(t, err)

	found := w.examined(t, func(d *doctor) { d.limits.transaction = 0 })

	require.NotEmpty(t, found["horizon"])
	assert.Equal(t, levelWarning, found["horizon"][0].Level)
	assert.Contains(t, found["horizon"][0].Found, "transaction of process")
	assert.Contains(t, found["horizon"][0].Do, "End it")
}

func TestDoctorFindsSpaceInAnSQLiteFile(t *testing.T) {
	t.Parallel()
	w := newWorld(filepath.Join(t.TempDir(), "shop.db")).migrated(t)
	db, err := sql.Open("sqlite", "file:"+w.url+"?_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	defer db.Close()
	reader, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer reader.Rollback()
	var n int
	require.NoError(t, reader.QueryRowContext(t.Context(), "SELECT count(*) FROM webhook_endpoint").Scan(&n))
	w.exec(t, "CREATE TABLE filler AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) SELECT randomblob(4000) AS b FROM n")
	w.exec(t, "DROP TABLE filler")

	found := w.examined(t, func(d *doctor) { d.limits.freeBytes, d.limits.walBytes = 1<<20, 1<<20 })

	require.Len(t, found["bloat"], 2)
	assert.Contains(t, found["bloat"][0].Do, "VACUUM")
	assert.Contains(t, found["bloat"][1].Found, "write-ahead log")
	assert.Contains(t, found["bloat"][1].Do, "reader that never ends")
}

func TestDoctorChecksHowTheServiceOpensItsSQLiteFile(t *testing.T) {
	t.Parallel()
	w := newWorld(filepath.Join(t.TempDir(), "shop.db")).migrated(t)

	careless, status := w.doctor(t, "--service-dsn", "file:"+w.url)
	deferred, deferredStatus := w.doctor(t, "--service-dsn", "file:"+w.url+"?_pragma=busy_timeout(5000)")
	right, rightStatus := w.doctor(t, "--service-dsn", "file:"+w.url+"?_pragma=busy_timeout(5000)&_txlock=immediate")

	assert.Equal(t, exitProblem, status)
	assert.Contains(t, careless["connections"][0].Found, "no busy timeout")
	assert.Contains(t, careless["connections"][0].Do, "_txlock=immediate")
	assert.Equal(t, exitProblem, deferredStatus)
	assert.Contains(t, deferred["connections"][0].Found, "do not begin immediate")
	assert.Zero(t, rightStatus)
	assert.Equal(t, levelOK, right["connections"][0].Level)
}

func TestDoctorFindsThatWriteAheadLoggingIsOff(t *testing.T) {
	t.Parallel()
	w := newWorld(filepath.Join(t.TempDir(), "shop.db")).migrated(t)
	w.exec(t, "PRAGMA journal_mode = DELETE")

	found, status := w.doctor(t)

	assert.Equal(t, exitProblem, status)
	assert.Equal(t, levelProblem, found["file"][0].Level)
	assert.Contains(t, found["file"][0].Do, "webhook migrate up")
}

func TestDoctorFindsAClockThatIsWrong(t *testing.T) {
	t.Parallel()
	w := newWorld(pgtest.New(t)).migrated(t)
	w.exec(t, `CREATE SCHEMA skew`)
	w.exec(t, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = skew, pg_catalog', current_database()); END $$`)
	// A server whose clock is wrong tells so.
	skew := func(by string) finding {
		w.exec(t, `CREATE OR REPLACE FUNCTION skew.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
			$$ SELECT pg_catalog.clock_timestamp() + interval '`+by+`' $$`)
		found, _ := w.doctor(t)
		require.Len(t, found["clock"], 1)
		return found["clock"][0]
	}

	slightly, badly := skew("30 seconds"), skew("-10 minutes")

	assert.Equal(t, levelWarning, slightly.Level)
	assert.Contains(t, slightly.Do, "NTP")
	assert.Equal(t, levelProblem, badly.Level)
	assert.Regexp(t, `-(9m5\d\.\d+|10m)`, badly.Found)
	assert.Contains(t, badly.Do, "5 minutes off")
}

func TestDoctorFindsThatAPoolerLosesNotifications(t *testing.T) {
	t.Parallel()
	direct := pgtest.New(t)
	newWorld(direct).migrated(t)
	w := newWorld(pgtest.StartPooler(t, direct, "application_name").URL(t))

	found, status := w.doctor(t)

	assert.Zero(t, status, "polling finds everything")
	require.Len(t, found["notify"], 1)
	assert.Equal(t, levelWarning, found["notify"][0].Level)
	assert.Contains(t, found["notify"][0].Do, "ListenConn")
	assert.Equal(t, levelOK, found["schema"][0].Level, "the rest is checked through the pooler")
	assert.Equal(t, levelOK, found["indexes"][0].Level)
}

func TestDoctorFindsThatNotificationsGetLost(t *testing.T) {
	t.Parallel()
	d := &doctor{db: &database{store: deaf{}}}

	d.notifications(t.Context())

	require.Len(t, d.findings, 1)
	assert.Equal(t, levelWarning, d.findings[0].Level)
	assert.Contains(t, d.findings[0].Do, "ListenConn")
}

// deaf is a store whose notifications get lost without a word.
type deaf struct{ migratedStore }

func (deaf) Notify(context.Context, webhook.Signal) error { return nil }

func (deaf) Listen(_ context.Context, ready func(), _ func(webhook.Signal)) error {
	ready()
	return assert.AnError
}

func TestDoctorFindsAttemptsThatTheGuardRefused(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, w *world) {
		w.migrated(t)
		made, err := w.service(t).hooks.Endpoints().Create(t.Context(), webhook.EndpointParams{Tenant: "acme", URL: "http://127.0.0.1:9000/in", Types: []string{"*"}})
		require.NoError(t, err)
		require.Equal(t, exitProblem, w.run(t, "endpoints", "test", made.ID.String()).status)

		found, status := w.doctor(t, "--allow", "127.0.0.1/32", "--allow-http")

		assert.Zero(t, status)
		require.Len(t, found["egress"], 2)
		assert.Equal(t, levelWarning, found["egress"][1].Level)
		assert.Contains(t, found["egress"][1].Found, made.ID.String())
		assert.Contains(t, found["egress"][1].Do, "TransportConfig.Allow")
	})
}

func TestBytesAreWrittenForPeople(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "512 KiB", bytesText(512<<10))
	assert.Equal(t, "3 MiB", bytesText(3<<20))
	assert.Equal(t, "1.5 GiB", bytesText(3<<29))
}
