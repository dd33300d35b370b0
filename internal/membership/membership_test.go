package membership

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func members(n int) []uuid.UUID {
	list := make([]uuid.UUID, n)
	for i := range list {
		list[i] = uuid.New()
	}
	return list
}

func TestKeysAreSharedOutEvenly(t *testing.T) {
	t.Parallel()
	list := members(5)
	counts := map[uuid.UUID]int{}
	const keys = 50_000
	for i := range keys {
		counts[Owner(list, fmt.Sprintf("https://host-%d.example:443", i))]++
	}
	require.Len(t, counts, 5)
	for _, n := range counts {
		assert.InEpsilon(t, keys/5, n, 0.05)
	}
}

func TestEveryMemberComputesTheSameOwner(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list := members(rapid.IntRange(1, 20).Draw(t, "members"))
		key := rapid.String().Draw(t, "key")
		owner := Owner(list, key)
		require.Contains(t, list, owner)
		shuffled := rapid.Permutation(list).Draw(t, "order")
		require.Equal(t, owner, Owner(shuffled, key))
	})
}

func TestOnlyTheKeysOfAMemberThatLeavesChangeHands(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list := members(rapid.IntRange(2, 20).Draw(t, "members"))
		key := rapid.String().Draw(t, "key")
		gone := rapid.IntRange(0, len(list)-1).Draw(t, "gone")
		before := Owner(list, key)
		rest := slices.Delete(slices.Clone(list), gone, gone+1)
		if before != list[gone] {
			require.Equal(t, before, Owner(rest, key))
		}
	})
}

func TestWithoutMembersNobodyOwnsAKey(t *testing.T) {
	t.Parallel()
	assert.Zero(t, Owner(nil, "key"))
}

func BenchmarkOwner(b *testing.B) {
	list := members(10)
	for b.Loop() {
		Owner(list, "https://hooks.example.com:443")
	}
}
