package postgres

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/pgtest"
)

// Array literals are what drivers without arrays get; the server has the last
// word on what they mean.
func TestArrayLiteralsMeanTheSameToTheServer(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	read := func(sql string, literal any) (elements []string) {
		var text string
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT array_to_json("+sql+")::text", literal).Scan(&text), literal)
		require.NoError(t, json.Unmarshal([]byte(text), &elements))
		return elements
	}

	words := []string{"", "NULL", "null", `"`, `\`, `\\"`, "a,b", "{}", " x ", "é\n\t", "'"}
	assert.Equal(t, words, read(`$1::text::text[]`, sqlEncoder{}.texts(words)))
	assert.Equal(t, []string{`\x`, `\x00ff22`}, read(`$1::text::bytea[]::text[]`, sqlEncoder{}.bytes([][]byte{{}, {0, 255, '"'}})))
	assert.Equal(t, []string{"true", "false"}, read(`$1::text::boolean[]::text[]`, sqlEncoder{}.bools([]bool{true, false})))
	assert.Equal(t, []string{"-9223372036854775808", "7"}, read(`$1::text::bigint[]::text[]`, sqlEncoder{}.int64s([]int64{-1 << 63, 7})))
	at := time.Date(2026, 2, 3, 4, 5, 6, 123456789, time.FixedZone("", -3600))
	assert.Equal(t, []string{"2026-02-03 05:05:06.123456", "0001-01-01 00:00:00"},
		read(`ARRAY(SELECT (x AT TIME ZONE 'UTC')::text FROM unnest($1::text::timestamptz[]) x)`, sqlEncoder{}.times([]time.Time{at, {}})))
	assert.Empty(t, read(`$1::text::uuid[]`, sqlEncoder{}.uuids(nil)))
}

func TestPgxArraysArriveAsTheyAre(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)

	ids := []uuid.UUID{uuid.Max, {}, uuid.MustParse("0196f0a0-0000-7000-8000-000000000001")}
	words := []string{"", "NULL", `{"a,b"}`, "é"}
	blobs := [][]byte{{}, {0, 255}}
	numbers := []int64{-1 << 63, 0, 1<<63 - 1}
	at := []time.Time{time.Date(2026, 2, 3, 4, 5, 6, 123456000, time.UTC), {}}
	var e pgxEncoder
	var gotIDs [][16]byte
	var gotWords []string
	var gotBlobs [][]byte
	var gotNumbers []int64
	var gotTimes []time.Time
	require.NoError(t, pool.QueryRow(t.Context(),
		`SELECT $1::uuid[], $2::text[], $3::bytea[], $4::bigint[], $5::timestamptz[]`,
		e.uuids(ids), e.texts(words), e.bytes(blobs), e.int64s(numbers), e.times(at),
	).Scan(&gotIDs, &gotWords, &gotBlobs, &gotNumbers, &gotTimes))
	require.Len(t, gotIDs, len(ids))
	for i, id := range ids {
		assert.Equal(t, id, uuid.UUID(gotIDs[i]))
	}
	assert.Equal(t, words, gotWords)
	assert.Equal(t, blobs, gotBlobs)
	assert.Equal(t, numbers, gotNumbers)
	require.Len(t, gotTimes, len(at))
	for i := range at {
		assert.True(t, at[i].Equal(gotTimes[i]), "%s, want %s", gotTimes[i], at[i])
	}

	var empty int
	require.NoError(t, pool.QueryRow(t.Context(),
		`SELECT coalesce(cardinality($1::uuid[]), -1) + coalesce(cardinality($2::text[]), -1)`, e.uuids(nil), e.texts(nil),
	).Scan(&empty))
	assert.Zero(t, empty, "no elements are an empty array, not NULL")
}

// Results are written a thousand at a time in fifteen arrays.
func TestPgxArraysAllocateNothingPerElement(t *testing.T) {
	const n = 1000
	var e pgxEncoder
	types := pgtype.NewMap()
	buf := make([]byte, 0, 64*n)
	for oid, array := range map[uint32]any{
		pgtype.UUIDArrayOID:        e.uuids(make([]uuid.UUID, n)),
		pgtype.ByteaArrayOID:       e.bytes(make([][]byte, n)),
		pgtype.Int8ArrayOID:        e.int64s(slices.Repeat([]int64{1 << 40}, n)),
		pgtype.TimestamptzArrayOID: e.times(make([]time.Time, n)),
	} {
		allocated := testing.AllocsPerRun(10, func() {
			_, err := types.Encode(oid, pgtype.BinaryFormatCode, array, buf)
			require.NoError(t, err)
		})
		assert.Less(t, allocated, 20.0, "array type %d", oid)
	}
}
