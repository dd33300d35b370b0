package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/postgres"
)

// While a backup or a report runs, nothing is cleared away of what is finished
// meanwhile. Claims and fan-outs begin behind it.
func TestWhatIsFinishedCostsNothingWhileASnapshotIsKept(t *testing.T) {
	t.Parallel()
	const batch, batches = 500, 12
	url := migrated(t)
	reading, err := openPool(t, url, pgx.QueryExecModeCacheStatement).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer func() { assert.NoError(t, reading.Rollback(t.Context())) }()
	_, err = reading.Exec(t.Context(), `SELECT count(*) FROM webhook.delivery`)
	require.NoError(t, err)

	pool, plans := explainingPool(t, url)
	store := postgres.New(pool)
	ids := newEndpoints(t, store, 10)
	matcher := &oneOf{everyEndpoint: everyEndpoint{ids}}
	var since time.Time
	claim := func(since time.Time) ([]webhook.Claimed, uuid.UUID) {
		p := webhook.ClaimParams{Now: time.Now(), LeaseUntil: time.Now().Add(90 * time.Second), Token: uuid.New()}
		for _, id := range ids {
			p.Requests = append(p.Requests, webhook.ClaimRequest{EndpointID: id, Limit: batch / len(ids), Since: since})
		}
		claimed, err := store.Claim(t.Context(), p)
		require.NoError(t, err)
		return claimed, p.Token
	}
	for range batches {
		insertEvents(t, pool, store, batch)
		since = time.Now()
		require.Equal(t, batch, fanOutAll(t, store, matcher))
		claimed, token := claim(since)
		require.Len(t, claimed, batch)
		recordAll(t, store, claimed, token)
	}
	highest := number(t, pool, `SELECT max(seq)::int FROM webhook.event`)
	insertEvents(t, pool, store, batch)
	pages := func(statement string, do func()) (hit int) {
		t.Helper()
		plans.take()
		do()
		for _, p := range plans.take() {
			if strings.Contains(p.Query, statement) {
				hit += p.Root.Hit + p.Root.Read
			}
		}
		require.Positive(t, hit, statement)
		return hit
	}
	none := func(since time.Time) func() {
		return func() {
			claimed, _ := claim(since)
			require.Empty(t, claimed)
		}
	}

	assert.Greater(t, pages("oldest", none(time.Time{})), batch*batches/6, "pages that are read from the beginning: the snapshot is kept")
	assert.Less(t, pages("oldest", none(time.Now())), 20*len(ids), "pages that are read behind what is finished")

	fanOut := func() {
		r, err := store.FanOut(t.Context(), webhook.FanOutParams{Now: time.Now(), MaxEvents: 1, MaxDeliveries: 1, Matcher: matcher})
		require.NoError(t, err)
		require.Equal(t, 1, r.Events)
	}
	fromStart := pages("taken", fanOut)
	store.LookAtOutboxFrom(int64(highest))
	behind := pages("taken", fanOut)
	t.Logf("pages read by a fan-out: %d from the beginning, %d behind what is finished", fromStart, behind)
	assert.Greater(t, fromStart, behind+20)
	assert.Less(t, behind, 40)
}
