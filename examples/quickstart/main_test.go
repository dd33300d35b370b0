package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestQuickstartEndsWithWhatItDid(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, nil))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	assert.Equal(t, "5 enqueued, 5 delivered, 1 rolled back, 6 attempts", lines[len(lines)-1])
	assert.Equal(t, 1, strings.Count(out.String(), "retry in"), "the first request fails once:\n%s", out.String())
}

func TestServeShowsThePagesUntilItIsStopped(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out bytes.Buffer
	done := make(chan error, 1)
	go func() { done <- run(ctx, &out, listener) }()
	base := "http://" + listener.Addr().String() + "/webhooks/"
	// The listener takes connections at once and answers when it is served.
	for path, want := range map[string]string{"": "Overview", "endpoints": "http://127.0.0.1:", "deliveries": "order.paid", "api/endpoints": `"items"`} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
		require.NoError(t, err)
		response, err := (&http.Client{}).Do(request)
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		response.Body.Close()
		assert.Equal(t, http.StatusOK, response.StatusCode, path)
		assert.Contains(t, string(body), want, path)
	}
	stop()
	require.NoError(t, <-done)
	assert.Contains(t, out.String(), "The pages are at http://127.0.0.1:")
}
