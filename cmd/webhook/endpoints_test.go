package main

import (
	"encoding/json"
	"strings"
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

func TestAnEndpointIsUpdated(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, w *world) {
		w.migrated(t)
		var made, updated endpointJSON
		w.must(t, &made, "endpoints", "create", "--tenant", "acme", "--url", "https://hooks.example.com/in", "--types", "order.*")
		id := made.ID.String()
		w.must(t, &updated, "endpoints", "update", id, "--url", "https://hooks.example.com/new", "--rate", "30", "--max-in-flight", "5", "--adaptive-rate")
		badURL := w.run(t, "endpoints", "update", id, "--url", "http://127.0.0.1/")
		foreign := w.run(t, "endpoints", "update", id, "--rate", "1", "--tenant", "globex")
		stored, err := w.service(t).hooks.Endpoints().Get(t.Context(), webhook.AllTenants(), made.ID)
		require.NoError(t, err)

		assert.Equal(t, "https://hooks.example.com/new", updated.URL)
		assert.Equal(t, []string{"order.*"}, updated.Types, "what is not named stays")
		assert.Empty(t, updated.Secret)
		assert.InDelta(t, 30, stored.RateLimit, 0)
		assert.Equal(t, 5, stored.MaxInFlight)
		assert.True(t, stored.AdaptiveRate)
		assert.Equal(t, exitUsage, badURL.status)
		assert.Equal(t, exitNotFound, foreign.status)
	})
}

func TestAnEndpointIsDeletedOnceSomebodySaysSo(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, w *world) {
		w.migrated(t)
		var first, second endpointJSON
		w.must(t, &first, "endpoints", "create", "--tenant", "acme", "--url", "https://hooks.example.com/in?token=sesame")
		w.must(t, &second, "endpoints", "create", "--tenant", "globex", "--url", "https://hooks.example.com/other")
		id := first.ID.String()
		silent := w.run(t, "endpoints", "delete", id)
		no := w.answer(t, "n\n", "endpoints", "delete", id)
		foreign := w.run(t, "endpoints", "delete", id, "--yes", "--tenant", "globex")
		var still []endpointJSON
		w.must(t, &still, "endpoints", "list")
		yes := w.answer(t, "yes\n", "endpoints", "delete", id)
		var gone deletedJSON
		w.must(t, &gone, "endpoints", "delete", second.ID.String(), "--yes")
		again := w.run(t, "endpoints", "delete", id, "--yes")
		var left []endpointJSON
		w.must(t, &left, "endpoints", "list")

		assert.Equal(t, exitUsage, silent.status)
		assert.Contains(t, silent.err, "--yes")
		assert.Equal(t, exitUsage, no.status)
		assert.Contains(t, no.err, "of acme, https://hooks.example.com/in")
		assert.NotContains(t, no.err, "sesame")
		assert.Equal(t, exitNotFound, foreign.status)
		assert.Len(t, still, 2)
		assert.Zero(t, yes.status, yes.err)
		assert.Contains(t, yes.out, "Deleted endpoint "+id)
		assert.Equal(t, second.ID, gone.ID)
		assert.Equal(t, exitNotFound, again.status)
		assert.Empty(t, left)
	})
}

func TestDeletingSaysWhatIsCancelled(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, w *world) {
		w.migrated(t)
		s := w.service(t)
		endpoint, err := s.hooks.Endpoints().Create(t.Context(), webhook.EndpointParams{Tenant: "acme", URL: "http://127.0.0.1:9000/in", Types: []string{"*"}})
		require.NoError(t, err)
		id := endpoint.ID.String()
		require.Zero(t, w.run(t, "endpoints", "pause", id).status)
		for range 3 {
			s.enqueue(t, webhook.Event{Tenant: "acme", Type: "order.paid", Payload: json.RawMessage(`{}`)})
		}
		s.dispatch(t)
		require.Eventually(t, func() bool {
			var waiting []deliveryJSON
			w.must(t, &waiting, "deliveries", "list", "--endpoint", id, "--state", "pending")
			return len(waiting) == 3
		}, eventually, tick)
		asked := w.answer(t, "no\n", "endpoints", "delete", id)
		done := w.run(t, "endpoints", "delete", id, "--yes")

		assert.Contains(t, asked.err, "3 deliveries that have not ended will be cancelled.")
		assert.Contains(t, done.out, "3 deliveries that have not ended are cancelled.")
		require.Eventually(t, func() bool {
			var cancelled []deliveryJSON
			w.must(t, &cancelled, "deliveries", "list", "--endpoint", id, "--state", "cancelled")
			return len(cancelled) == 3
		}, eventually, tick)
	})
}

func TestATestIsSentFromTheCommandLine(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, w *world) {
		w.migrated(t)
		receiver := webhooktest.NewReceiver(t)
		receiver.Respond(webhooktest.Reply(202, "text/plain", []byte("thank you")), webhooktest.Reply(500, "text/plain", []byte("out of order")))
		made, err := w.service(t).hooks.Endpoints().Create(t.Context(), webhook.EndpointParams{Tenant: "acme", URL: receiver.URL + "/in", Types: []string{"*"}})
		require.NoError(t, err)
		id := made.ID.String()
		var sent attemptJSON
		w.must(t, &sent, "endpoints", "test", id, "--type", "order.paid", "--allow", "127.0.0.1/32", "--allow-http")
		failed := w.run(t, "endpoints", "test", id, "--allow", "127.0.0.1/32", "--allow-http")
		blocked := w.run(t, "endpoints", "test", id)
		got := receiver.RequireRequests(t, 2, 30*time.Second)
		var logged deliveryJSON
		w.must(t, &logged, "deliveries", "show", sent.DeliveryID.String())
		w.env = []string{"WEBHOOK_DATABASE=" + w.url}
		keyless := w.run(t, "endpoints", "test", id)

		assert.Equal(t, 202, sent.Status)
		assert.JSONEq(t, `{"test":true,"type":"order.paid"}`, string(got[0].Body))
		assert.Equal(t, "true", got[0].Header.Get("Webhook-Test"))
		assert.Equal(t, exitProblem, failed.status)
		assert.Contains(t, failed.out, "500")
		assert.NotContains(t, failed.out, "out of order", "no excerpts from private addresses: they would be in the log")
		assert.Equal(t, exitProblem, blocked.status, "the strict policy holds unless the service's is repeated")
		assert.Contains(t, blocked.out, "blocked")
		assert.Equal(t, webhook.TestRun, logged.Run)
		assert.Equal(t, exitFailed, keyless.status)
		assert.Contains(t, keyless.err, "WEBHOOK_KEYS")
	})
}

func TestDeliveriesAreListedByEveryFilter(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, w *world) {
		w.migrated(t)
		s := w.service(t)
		s.dispatch(t)
		endpoint, _ := failedDeliveries(t, w, s, 2)
		s.enqueue(t, webhook.Event{Tenant: "acme", Type: "invoice.paid", ResourceID: "in_9", Payload: json.RawMessage(`{}`)})
		require.Eventually(t, func() bool {
			var dead []deliveryJSON
			w.must(t, &dead, "deliveries", "list", "--state", "dead")
			return len(dead) == 3
		}, eventually, tick)
		count := func(args ...string) int {
			var list []deliveryJSON
			w.must(t, &list, append([]string{"deliveries", "list"}, args...)...)
			return len(list)
		}
		var one []deliveryJSON
		w.must(t, &one, "deliveries", "list", "--type", "invoice.paid")
		require.Len(t, one, 1)
		page := w.run(t, "deliveries", "list", "--from", "1h", "--limit", "2")
		require.Zero(t, page.status, page.err)
		_, rest, found := strings.Cut(page.err, "go on with the same filters ")
		require.True(t, found, page.err)
		next := append([]string{"--limit", "2"}, strings.Fields(strings.Replace(rest, " and ", " ", 1))...)

		assert.Equal(t, 1, count("--resource", "in_9"))
		assert.Equal(t, 2, count("--type", "order.paid", "--endpoint", endpoint.ID.String()))
		assert.Equal(t, 1, count("--event", one[0].EventID.String()))
		assert.Equal(t, 3, count("--status", "5xx", "--from", "1h"))
		assert.Zero(t, count("--status", "2xx"))
		assert.Zero(t, count("--until", "1h"))
		assert.Equal(t, 1, count(next...), "a page goes on though its times were said relative to now")
		assert.Equal(t, exitUsage, w.run(t, "deliveries", "list", "--status", "9xx").status)

		var health []healthJSON
		w.must(t, &health, "endpoints", "health", "--all")
		require.Len(t, health, 1)
		assert.Equal(t, endpoint.ID, health[0].EndpointID)
		var shown endpointJSON
		w.must(t, &shown, "endpoints", "show", endpoint.ID.String())
		require.NotNil(t, shown.Health)
		assert.Contains(t, w.run(t, "endpoints", "show", endpoint.ID.String()).out, "dead in 30 days")
		assert.Zero(t, w.run(t, "endpoints", "health").status)
		var notices []noticeJSON
		w.must(t, &notices, "endpoints", "notices", "--endpoint", endpoint.ID.String())
		assert.Zero(t, w.run(t, "endpoints", "notices").status)
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
