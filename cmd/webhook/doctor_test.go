package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"testing"
	"time"

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
		assert.Equal(t, levelWarning, allowed["egress"][1].Level, "a proxy in the environment is not used")
		assert.Equal(t, exitProblem, strictest)
	})
}

func TestDoctorSeesWhatHoldsTheHorizonAndStrayRows(t *testing.T) {
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

func TestDoctorFindsThatNotificationsGetLost(t *testing.T) {
	t.Parallel()
	d := &doctor{db: &database{store: deaf{}}}

	d.notifications(t.Context())

	require.Len(t, d.findings, 1)
	assert.Equal(t, levelWarning, d.findings[0].Level)
	assert.Contains(t, d.findings[0].Do, "ListenConn")
}

// deaf is a store whose notifications get lost, as behind some poolers.
type deaf struct{ migratedStore }

func (deaf) Notify(context.Context, webhook.Signal) error { return nil }

func (deaf) Listen(_ context.Context, ready func(), _ func(webhook.Signal)) error {
	ready()
	return assert.AnError
}

func TestBytesAreWrittenForPeople(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "512 KiB", bytesText(512<<10))
	assert.Equal(t, "3 MiB", bytesText(3<<20))
	assert.Equal(t, "1.5 GiB", bytesText(3<<29))
}
