package postgres

import (
	"encoding/json"
	"testing"
	"time"

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
