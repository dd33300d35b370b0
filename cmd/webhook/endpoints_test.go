package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
)

func TestEndpointsAreCreatedListedAndChanged(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, w *world) {
		w.migrated(t)
		var made, other, paused, resumed, rotated endpointJSON
		var all, acme []endpointJSON
		w.must(t, &made, "endpoints", "create", "--tenant", "acme", "--url", "https://hooks.example.com/in?token=sesame", "--types", "order.*,invoice.paid")
		w.must(t, &other, "endpoints", "create", "--tenant", "globex", "--url", "https://hooks.example.com/other")
		w.must(t, &all, "endpoints", "list")
		w.must(t, &acme, "endpoints", "list", "--tenant", "acme")
		w.must(t, &paused, "endpoints", "pause", made.ID.String(), "--reason", "maintenance")
		foreign := w.run(t, "endpoints", "show", made.ID.String(), "--tenant", "globex")
		shown := w.run(t, "endpoints", "show", made.ID.String())
		w.must(t, &resumed, "endpoints", "resume", made.ID.String())
		w.must(t, &rotated, "endpoints", "rotate", made.ID.String())
		disabled := w.run(t, "endpoints", "disable", other.ID.String())
		refused := w.run(t, "endpoints", "resume", other.ID.String())

		assert.Regexp(t, `^whsec_`, made.Secret)
		assert.Equal(t, []string{"invoice.paid", "order.*"}, made.Types)
		require.Len(t, all, 2)
		require.Len(t, acme, 1)
		assert.Equal(t, made.ID, acme[0].ID)
		assert.Empty(t, acme[0].Secret)
		assert.Equal(t, webhook.EndpointPaused, paused.State)
		assert.Equal(t, "maintenance", paused.StateReason)
		assert.Equal(t, exitNotFound, foreign.status)
		assert.Contains(t, shown.out, "paused")
		assert.NotContains(t, shown.out, "sesame", "what may be a credential is left out for people")
		assert.Equal(t, webhook.EndpointActive, resumed.State)
		assert.NotEqual(t, made.Secret, rotated.Secret)
		assert.Zero(t, disabled.status)
		assert.Equal(t, exitFailed, refused.status)
		assert.Contains(t, refused.err, "disabled")
	})
}

func TestKeysAreNeededForSecretsAlone(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, w *world) {
		w.migrated(t)
		var made endpointJSON
		w.must(t, &made, "endpoints", "create", "--tenant", "acme", "--url", "https://hooks.example.com/in")
		w.env = []string{"DATABASE_URL=" + w.url}

		create := w.run(t, "endpoints", "create", "--tenant", "acme", "--url", "https://hooks.example.com/in")

		assert.Equal(t, exitFailed, create.status)
		assert.Contains(t, create.err, "WEBHOOK_KEYS")
		assert.Zero(t, w.run(t, "endpoints", "list").status)
		assert.Zero(t, w.run(t, "endpoints", "pause", made.ID.String()).status)
		w.env = append(w.env, "WEBHOOK_KEYS=nonsense")
		assert.Equal(t, exitUsage, w.run(t, "endpoints", "list").status)
	})
}

// failedDeliveries makes an endpoint to which n deliveries are dead.
func failedDeliveries(t *testing.T, w *world, s *service, n int) (webhook.Endpoint, *webhooktest.Receiver) {
	t.Helper()
	receiver := webhooktest.NewReceiver(t)
	receiver.Respond(webhooktest.Reply(500, "text/plain", []byte("out of order")))
	endpoint, err := s.hooks.Endpoints().Create(t.Context(), webhook.EndpointParams{Tenant: "acme", URL: receiver.URL + "/in", Types: []string{"*"}})
	require.NoError(t, err)
	for range n {
		s.enqueue(t, webhook.Event{Tenant: "acme", Type: "order.paid", Payload: json.RawMessage(`{}`)})
	}
	require.Eventually(t, func() bool {
		var dead []deliveryJSON
		w.must(t, &dead, "deliveries", "list", "--endpoint", endpoint.ID.String(), "--state", "dead")
		return len(dead) == n
	}, 30*time.Second, 100*time.Millisecond)
	return endpoint, receiver
}

func TestDeliveriesAreShownRetriedAndReplayed(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, w *world) {
		w.migrated(t)
		s := w.service(t)
		s.dispatch(t)
		endpoint, receiver := failedDeliveries(t, w, s, 5)
		var dead []deliveryJSON
		w.must(t, &dead, "deliveries", "list", "--state", "dead", "--tenant", "acme")
		var shown deliveryJSON
		w.must(t, &shown, "deliveries", "show", dead[0].ID.String())
		text := w.run(t, "deliveries", "show", dead[0].ID.String())
		var estimate webhook.ReplayEstimate
		w.must(t, &estimate, "replay", endpoint.ID.String(), "--dry-run", "--from", "1h")

		receiver.Respond(webhooktest.Status(204))
		var job webhook.ReplayJob
		w.must(t, &job, "replay", endpoint.ID.String())
		replayed := w.run(t, "replay", "watch", job.ID.String())
		receiver.RequireRequests(t, 10, 30*time.Second)
		var jobs []webhook.ReplayJob
		w.must(t, &jobs, "replay", "list", "--endpoint", endpoint.ID.String())
		require.Eventually(t, func() bool { // while a run is unfinished there is no other
			var arrived []deliveryJSON
			w.must(t, &arrived, "deliveries", "list", "--state", "delivered")
			return len(arrived) == 5
		}, eventually, tick)
		var again []deliveryJSON
		w.must(t, &again, "deliveries", "retry", dead[0].ID.String())
		receiver.RequireRequests(t, 11, 30*time.Second)

		require.Len(t, shown.Log, 1)
		assert.Equal(t, 500, shown.Log[0].Status)
		assert.Equal(t, "out of order", shown.Log[0].Excerpt)
		assert.Contains(t, text.out, "out of order")
		assert.Equal(t, 5, estimate.Matched)
		assert.Equal(t, webhook.ReplayDone, job.State)
		assert.Equal(t, 5, job.Created)
		assert.Contains(t, replayed.err, "100 %")
		assert.Contains(t, replayed.out, "done")
		assert.Len(t, jobs, 1)
		require.Len(t, again, 1)
		assert.Equal(t, 2, again[0].Run)
		assert.Equal(t, exitFailed, w.run(t, "deliveries", "cancel", dead[0].ID.String()).status, "it has ended")
		assert.Equal(t, exitNotFound, w.run(t, "deliveries", "show", endpoint.ID.String()).status)
		assert.Equal(t, exitNotFound, w.run(t, "deliveries", "show", dead[0].ID.String(), "--tenant", "globex").status)
	})
}

func TestAReplayGoesOnWhenItsWatcherIsInterrupted(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, w *world) {
		w.migrated(t)
		s := w.service(t)
		var endpoint webhook.Endpoint
		t.Run("while a dispatcher runs", func(t *testing.T) {
			s.dispatch(t)
			endpoint, _ = failedDeliveries(t, w, s, 1)
		})
		cmd := w.command(t.Context(), "replay", endpoint.ID.String())
		out, err := cmd.StderrPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		said := lines(out)
		first := <-said
		require.NoError(t, cmd.Process.Signal(interrupt))
		rest := ""
		for line := range said {
			rest += line
		}
		_ = cmd.Wait()

		assert.Contains(t, first, "0 of 1")
		assert.Contains(t, rest, "webhook replay watch")
		assert.Equal(t, exitInterrupted, cmd.ProcessState.ExitCode())
		var jobs []webhook.ReplayJob
		w.must(t, &jobs, "replay", "list")
		require.Len(t, jobs, 1)
		assert.Equal(t, webhook.ReplayRunning, jobs[0].State)
		var cancelled webhook.ReplayJob
		w.must(t, &cancelled, "replay", "cancel", jobs[0].ID.String())
		assert.Equal(t, webhook.ReplayCancelled, cancelled.State)
	})
}
