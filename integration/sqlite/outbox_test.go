package sqlite_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/sqlite"
)

func TestAnEventComesAndGoesWithTheHostsTransaction(t *testing.T) {
	t.Parallel()
	store, db := newStore(t)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	gone := newEvent("acme", "key")
	_, err = store.InsertEvents(t.Context(), tx, []webhook.EventRecord{gone})
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())

	_, err = store.GetEvent(t.Context(), webhook.AllTenants(), gone.ID)
	require.ErrorIs(t, err, webhook.ErrNotFound)

	kept := newEvent("acme", "key")
	require.NoError(t, enqueue(t.Context(), store, db, kept))
	status, err := store.GetEvent(t.Context(), webhook.AllTenants(), kept.ID)
	require.NoError(t, err)
	assert.Equal(t, kept.Payload, status.Payload)
	assert.False(t, status.FannedOut)
}

func TestADuplicateLeavesTheTransactionUsable(t *testing.T) {
	t.Parallel()
	store, db := newStore(t)
	first := newEvent("acme", "key")
	require.NoError(t, enqueue(t.Context(), store, db, first))

	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	twin, other, again := newEvent("acme", "key"), newEvent("acme", "other"), newEvent("acme", "other")
	results, err := store.InsertEvents(t.Context(), tx, []webhook.EventRecord{twin, other, again})
	require.NoError(t, err)
	require.NoError(t, tx.Commit())

	assert.Equal(t, []webhook.EnqueueResult{
		{EventID: first.ID, Duplicate: true}, {EventID: other.ID}, {EventID: other.ID, Duplicate: true},
	}, results)
	assert.Equal(t, 2, count(t, db, "SELECT count(*) FROM webhook_event"))
	assert.Equal(t, 2, count(t, db, "SELECT count(*) FROM webhook_outbox"))
}

func TestAnErrorLeavesNothingHalfWrittenAndTheTransactionUsable(t *testing.T) {
	t.Parallel()
	store, db := newStore(t)
	createInvoices(t, db)
	taken := newEvent("acme", "")
	require.NoError(t, enqueue(t.Context(), store, db, taken))

	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	clash := newEvent("acme", "key")
	clash.ID = taken.ID
	_, err = store.InsertEvents(t.Context(), tx, []webhook.EventRecord{newEvent("acme", "another"), clash})
	require.Error(t, err)
	_, err = tx.ExecContext(t.Context(), "INSERT INTO invoice (paid) VALUES (1)")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())

	assert.Equal(t, 1, count(t, db, "SELECT count(*) FROM invoice"))
	assert.Equal(t, 1, count(t, db, "SELECT count(*) FROM webhook_event"))
	assert.Zero(t, count(t, db, "SELECT count(*) FROM webhook_idempotency_key"))
}

func TestOfManyThatRaceForAKeyOneWrites(t *testing.T) {
	t.Parallel()
	store, db := newStore(t)
	const racers = 16
	ids := make([]uuid.UUID, racers)
	var firsts int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range racers {
		wg.Go(func() {
			commit := i%4 != 0 // every fourth gives up
			result, err := race(t.Context(), store, db, commit)
			assert.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			if commit {
				ids[i] = result.EventID
				if !result.Duplicate {
					firsts++
				}
			}
		})
	}
	wg.Wait()

	assert.Equal(t, 1, firsts)
	var stored uuid.UUID
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT id FROM webhook_event").Scan(&stored))
	for i, id := range ids {
		if i%4 != 0 {
			assert.Equal(t, stored, id)
		}
	}
}

func race(ctx context.Context, store *sqlite.Store, db *sql.DB, commit bool) (webhook.EnqueueResult, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return webhook.EnqueueResult{}, err
	}
	defer func() { _ = tx.Rollback() }()
	results, err := store.InsertEvents(ctx, tx, []webhook.EventRecord{newEvent("acme", "the key")})
	if err != nil || !commit {
		return webhook.EnqueueResult{}, err
	}
	return results[0], tx.Commit()
}
