package main

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

func TestTailShowsAttemptsAsTheyHappen(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, w *world) {
		w.migrated(t)
		s := w.service(t)
		s.dispatch(t)
		endpoint, receiver := failedDeliveries(t, w, s, 2)

		cmd := w.command(t.Context(), "tail", "--json", "--tenant", "acme", "--endpoint", endpoint.ID.String(), "--since", "5m", "--count", "3")
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		said := lines(out)
		var seen [3]attemptJSON
		require.NoError(t, json.Unmarshal([]byte(<-said), &seen[0]))
		require.NoError(t, json.Unmarshal([]byte(<-said), &seen[1]))
		receiver.Respond(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(202) })
		s.enqueue(t, webhook.Event{Tenant: "acme", Type: "order.shipped", Payload: json.RawMessage(`{}`)})
		require.NoError(t, json.Unmarshal([]byte(<-said), &seen[2]))
		require.NoError(t, cmd.Wait(), "it ends after --count")

		assert.Equal(t, 500, seen[0].Status)
		assert.Equal(t, "order.paid", seen[1].EventType)
		assert.NotEqual(t, seen[0].DeliveryID, seen[1].DeliveryID, "each is shown once")
		assert.Equal(t, 202, seen[2].Status)
		assert.Equal(t, "order.shipped", seen[2].EventType)
		assert.Equal(t, "acme", seen[2].Tenant)
		assert.Equal(t, endpoint.ID, seen[2].EndpointID)

		failed := w.run(t, "tail", "--since", "5m", "--failed", "--count", "2", "--color", "always")
		assert.Contains(t, failed.out, "\x1b[31m500")
		assert.NotContains(t, failed.out, "202")
	})
}

func TestTailEndsWellWhenItIsStopped(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, w *world) {
		w.migrated(t)
		s := w.service(t)
		s.dispatch(t)
		failedDeliveries(t, w, s, 1)
		cmd := w.command(t.Context(), "tail", "--since", "5m", "--tenant", "acme")
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		first := <-lines(out)

		require.NoError(t, cmd.Process.Signal(interrupt))

		require.NoError(t, cmd.Wait())
		assert.Contains(t, first, "500")
		assert.Contains(t, first, "acme")
	})
}
