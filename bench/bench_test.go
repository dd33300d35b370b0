package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEveryComparisonRuns(t *testing.T) {
	t.Parallel()

	// A little of everything, with no regard for the figures.
	require.NoError(t, run(t.Context(), options{
		rounds: 1, endpoints: 5, events: 100, pending: 500, period: 20 * time.Millisecond, riverFetch: riverFetchCooldown,
		parked: 1_000, healthy: time.Second, logged: 5_000,
	}))
}

func TestMedianIsTheOneInTheMiddle(t *testing.T) {
	t.Parallel()

	assert.InDelta(t, 3, median([]float64{9, 1, 3}, identity), 0)
}

func TestPayloadsAreJSONOfOneKibibyte(t *testing.T) {
	t.Parallel()

	for _, n := range []int{0, 7, 123_456_789} {
		assert.Len(t, payload(n), payloadBytes)
		assert.True(t, json.Valid(payload(n)))
	}
}
