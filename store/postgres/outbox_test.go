package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/postgres"
)

func TestTextThatTheServerWouldRefuseIsRefusedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), pgx.QueryExecModeCacheStatement)
	store := postgres.New(pool)

	for field, set := range map[string]func(*webhook.EventRecord, string){
		"Event.Tenant":         func(e *webhook.EventRecord, s string) { e.Tenant = s },
		"Event.Type":           func(e *webhook.EventRecord, s string) { e.Type = s },
		"Event.ResourceID":     func(e *webhook.EventRecord, s string) { e.ResourceID = s },
		"Event.IdempotencyKey": func(e *webhook.EventRecord, s string) { e.IdempotencyKey = s },
		"Event.ContentType":    func(e *webhook.EventRecord, s string) { e.ContentType = s },
	} {
		for _, bad := range []string{"a\x00b", "a\xffb"} {
			require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				events := newEvents(t, 2)
				set(&events[1], bad)
				_, err := store.InsertEvents(t.Context(), tx, events)
				require.ErrorIs(t, err, webhook.ErrInvalid)
				require.EqualError(t, err, "webhook: "+field+" is not UTF-8 without NUL")
				// The host goes on in the same transaction.
				_, err = store.InsertEvents(t.Context(), tx, newEvents(t, 1))
				return err
			}))
		}
	}
	var events int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM webhook.event`).Scan(&events))
	assert.Equal(t, 10, events)
}

// Documented on Enqueue: what a host at REPEATABLE READ brings upon itself comes
// back as its driver's error, for its own retry loop to see.
func TestASerializationFailureReachesTheHostAsItsDriversError(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), pgx.QueryExecModeCacheStatement)
	store := postgres.New(pool)
	events := newEvents(t, 2)
	for i := range events {
		events[i].IdempotencyKey = "the same"
	}
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(t.Context(), `SELECT 1`) // takes the snapshot
	require.NoError(t, err)
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := store.InsertEvents(t.Context(), tx, events[:1])
		return err
	}))

	_, err = store.InsertEvents(t.Context(), tx, events[1:])

	var failure *pgconn.PgError
	require.ErrorAs(t, err, &failure)
	assert.Equal(t, "40001", failure.Code)
}

// Two hosts that take two keys in opposite order in separate calls wait for one
// another; PostgreSQL ends one of them.
func TestADeadlockOfTheHostsMakingReachesItAsItsDriversError(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), pgx.QueryExecModeCacheStatement)
	store := postgres.New(pool)
	keyed := func(key string) []webhook.EventRecord {
		e := newEvents(t, 1)
		e[0].IdempotencyKey = key
		return e
	}
	first, err := pool.Begin(t.Context())
	require.NoError(t, err)
	second, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = store.InsertEvents(t.Context(), first, keyed("a"))
	require.NoError(t, err)
	_, err = store.InsertEvents(t.Context(), second, keyed("b"))
	require.NoError(t, err)

	results := make(chan error, 2)
	for tx, key := range map[pgx.Tx]string{first: "b", second: "a"} {
		go func() {
			_, err := store.InsertEvents(t.Context(), tx, keyed(key))
			if err != nil {
				err = errors.Join(err, tx.Rollback(t.Context()))
			} else {
				err = tx.Commit(t.Context())
			}
			results <- err
		}()
	}

	err = errors.Join(<-results, <-results)
	var failure *pgconn.PgError
	require.ErrorAs(t, err, &failure)
	assert.Equal(t, "40P01", failure.Code)
}

// A host may use another pool than the store's, with another way of running
// statements.
func TestTheHostsTransactionMayRunStatementsInAnotherModeThanTheStore(t *testing.T) {
	t.Parallel()
	url := migrated(t)
	modes := []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	}
	written := 0
	for _, storeMode := range modes {
		store := postgres.New(openPool(t, url, storeMode))
		for _, hostMode := range modes {
			host := openPool(t, url, hostMode)
			for _, n := range []int{1, 3} {
				events := newEvents(t, n)
				events[0].IdempotencyKey = fmt.Sprintf("%s %s %d", storeMode, hostMode, n)
				for _, duplicate := range []bool{false, true} {
					require.NoError(t, pgx.BeginFunc(t.Context(), host, func(tx pgx.Tx) error {
						r, err := store.InsertEvents(t.Context(), tx, events[:1+(n-1)*b2i(!duplicate)])
						require.NoError(t, err, "%s in %s", storeMode, hostMode)
						assert.Equal(t, duplicate, r[0].Duplicate)
						return nil
					}))
				}
				written += n
			}
			host.Close()
		}
	}
	ids := newEndpoints(t, postgres.New(openPool(t, url, modes[0])), 1)
	assert.Equal(t, written, fanOutAll(t, postgres.New(openPool(t, url, modes[0])), &everyEndpoint{ids}))
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestPayloadsOverOneStatementsLimitAreSplit(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), pgx.QueryExecModeCacheStatement)
	store := postgres.New(pool)
	events := newEvents(t, 5)
	for i := range events {
		events[i].Payload = []byte(strings.Repeat("x", 15<<20))
		events[i].IdempotencyKey = fmt.Sprint(9 - i)
	}

	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := store.InsertEvents(t.Context(), tx, events)
		return err
	}))

	found, err := pool.Query(t.Context(), `SELECT id FROM webhook.event ORDER BY seq`)
	require.NoError(t, err)
	ids, err := pgx.CollectRows(found, pgx.RowTo[[16]byte])
	require.NoError(t, err)
	require.Len(t, ids, 5)
	for i := range ids {
		assert.EqualValues(t, events[i].ID, ids[i])
	}
}
