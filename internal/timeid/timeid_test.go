package timeid_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outhook/webhook/internal/timeid"
)

func ascending(ids []uuid.UUID) bool {
	return slices.IsSortedFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
}

func TestIDsAscendAlsoWithinOneInstantAndWhenTheClockIsSetBackALittle(t *testing.T) {
	t.Parallel()
	var g timeid.Generator
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var all []uuid.UUID
	for _, at := range []time.Time{now, now, now.Add(-timeid.Slack / 2), now.Add(time.Second), now.Add(time.Second)} {
		ids, err := g.New(at, 3000)
		require.NoError(t, err)
		all = append(all, ids...)
	}

	assert.True(t, ascending(all))
	assert.Len(t, slices.Compact(all), len(all))
	for _, id := range all {
		require.Equal(t, uuid.Version(7), id.Version())
		require.Equal(t, uuid.RFC4122, id.Variant())
	}
}

func TestAnIDTellsTheTimeItWasMadeFrom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var g timeid.Generator
		at := time.UnixMicro(rapid.Int64Range(0, 4e15).Draw(t, "at"))
		ids, err := g.New(at, 5)
		require.NoError(t, err)
		for _, id := range ids {
			first, end := timeid.First(at), timeid.End(at.Add(time.Microsecond))
			assert.Negative(t, bytes.Compare(first[:], id[:]), "not before")
			assert.Positive(t, bytes.Compare(end[:], id[:]), "not after")
			sec, nsec := id.Time().UnixTime()
			assert.WithinDuration(t, at, time.Unix(sec, nsec), timeid.Slack)
		}
	})
}

func TestAClockThatWasSetBackFarIsFollowed(t *testing.T) {
	t.Parallel()
	var g timeid.Generator
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	_, err := g.New(now, 1)
	require.NoError(t, err)
	ids, err := g.New(now.Add(-time.Hour), 1)
	require.NoError(t, err)
	end := timeid.End(now.Add(-time.Hour))
	assert.Negative(t, bytes.Compare(ids[0][:], end[:]))
}
