package sqlite_test

import (
	"database/sql"
	"encoding/binary"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/sqlite"
)

// Field report B35: removing a long log kept the host from writing, and took along
// what was still wanted.
func TestB35RemovingTheOldDisturbsNobody(t *testing.T) {
	t.Parallel()
	delivered := 4_000
	if os.Getenv("WEBHOOK_LONG") != "" {
		delivered = 300_000
	}
	const dead, pending = 10, 5
	file := newMigratedFile(t) + options
	db := open(t, file)
	rec, recorded := newRecorder(t, file)
	store := sqlite.New(recorded)
	now := time.Now()
	fillOld(t, db, now.AddDate(0, 0, -40), delivered, dead, pending)

	done := make(chan time.Time)
	began := time.Now()
	go func() {
		defer close(done)
		assert.NoError(t, store.Maintain(t.Context(), webhook.MaintainParams{
			Now: now, DeliveriesBefore: now.AddDate(0, 0, -7), DeadBefore: now.AddDate(0, 0, -60), EventsBefore: now.AddDate(0, 0, -30),
		}))
	}()
	busy := enqueueFor(t, store, db, done)
	took := time.Since(began)

	t.Logf("enqueue p50 and p99: %v and %v while %d deliveries and events went in %v", percentile(busy, 50), percentile(busy, 99), delivered, took)
	assert.Positive(t, rec.mostDeleted())
	assert.LessOrEqual(t, rec.mostDeleted(), int64(1000), "rows that one transaction removes, which keeps the host waiting")
	assert.Zero(t, count(t, db, "SELECT count(*) FROM webhook_delivery_log"))
	assert.Equal(t, dead, count(t, db, "SELECT count(*) FROM webhook_delivery_dead"))
	assert.Equal(t, pending, count(t, db, "SELECT count(*) FROM webhook_delivery"))
	assert.Equal(t, dead+pending, count(t, db, "SELECT count(*) FROM webhook_attempt"))
	assert.Equal(t, pending+len(busy), count(t, db, "SELECT count(*) FROM webhook_event"))
	assert.Equal(t, pending+len(busy), count(t, db, "SELECT count(*) FROM webhook_idempotency_key"))
}

// fillOld writes events from a time on, one a millisecond, each with one delivery
// and one attempt.
func fillOld(t *testing.T, db *sql.DB, from time.Time, delivered, dead, pending int) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	exec := func(statement string, args ...any) {
		t.Helper()
		_, err := tx.ExecContext(t.Context(), statement, args...)
		require.NoError(t, err)
	}
	endpoint := newID()
	for i := range delivered + dead + pending {
		at := from.Add(time.Duration(i) * time.Millisecond)
		event, delivery, micros := idAt(at), idAt(at), at.UnixMicro()
		exec(`INSERT INTO webhook_event (id, tenant, type, resource_id, resource_version, idempotency_key, content_type, created_at, payload)
			VALUES (?, 'acme', 'order.created', '', 0, ?, '', ?, zeroblob(300))`, event[:], event.String(), micros)
		exec(`INSERT INTO webhook_idempotency_key VALUES ('acme', ?, ?)`, event.String(), event[:])
		exec(`INSERT INTO webhook_attempt (delivery_id, number, lease_token, started_at, latency, status, class, error, location, excerpt, truncated, body_hash, late)
			VALUES (?, 1, ?, ?, 1, 200, '', '', '', x'6f6b', 0, zeroblob(32), 0)`, delivery[:], endpoint[:], micros)
		table, state := "log", "delivered"
		switch {
		case i >= delivered+dead:
			exec(`INSERT INTO webhook_delivery (id, event_seq, event_id, endpoint_id, run, tenant, event_type, lane, next_attempt_at, lease_until, lease_token, attempts, created_at, last_status, last_class)
				VALUES (?, (SELECT max(seq) FROM webhook_event), ?, ?, 0, 'acme', 'order.created', 1, ?, 0, x'', 1, ?, 500, '')`, delivery[:], event[:], endpoint[:], micros, micros)
			continue
		case i >= delivered:
			table, state = "dead", "dead"
		}
		exec(`INSERT INTO webhook_delivery_`+table+` (id, event_seq, event_id, endpoint_id, run, tenant, event_type, state, reason, attempts, created_at, finished_at, last_status, last_class)
			VALUES (?, (SELECT max(seq) FROM webhook_event), ?, ?, 0, 'acme', 'order.created', ?, '', 1, ?, ?, 200, '')`,
			delivery[:], event[:], endpoint[:], state, micros, micros)
	}
	require.NoError(t, tx.Commit())
}

// idAt is an id as one made at the time has.
func idAt(at time.Time) uuid.UUID {
	id := newID()
	var stamp [8]byte
	binary.BigEndian.PutUint64(stamp[:], uint64(at.UnixMilli()))
	copy(id[:6], stamp[2:])
	return id
}

// enqueueFor enqueues one event after the other, as a host that has other things to do
// too, until told to stop, and returns how long each took.
func enqueueFor(t *testing.T, store *sqlite.Store, db *sql.DB, stop <-chan time.Time) []time.Duration {
	t.Helper()
	var took []time.Duration
	others := time.NewTicker(time.Millisecond)
	defer others.Stop()
	for {
		select {
		case <-stop:
			return took
		case <-others.C:
		}
		began := time.Now()
		require.NoError(t, enqueue(t.Context(), store, db, newEvent("acme", newID().String())))
		took = append(took, time.Since(began))
	}
}

func percentile(took []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(took))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}
