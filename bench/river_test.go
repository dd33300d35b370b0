package bench

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/pgtest"
)

type postArgs struct {
	Payload []byte `json:"payload"`
}

func (postArgs) Kind() string { return "post" }

func TestRiverInsertsInTheHostsTransaction(t *testing.T) {
	t.Parallel()

	pool := pgtest.Pool(t)
	client, err := newRiver(t.Context(), pool, &river.Config{})
	require.NoError(t, err)

	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := client.InsertTx(t.Context(), tx, postArgs{Payload: []byte("{}")}, nil)
		return err
	}))
	var jobs int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM river_job`).Scan(&jobs))
	require.Equal(t, 1, jobs)
}
