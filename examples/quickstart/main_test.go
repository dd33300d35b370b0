package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestQuickstartEndsWithWhatItDid(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	assert.Equal(t, "5 enqueued, 5 delivered, 1 rolled back, 6 attempts", lines[len(lines)-1])
	assert.Equal(t, 1, strings.Count(out.String(), "retry in"), "the first request fails once:\n%s", out.String())
}
