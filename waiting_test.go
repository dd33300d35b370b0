package webhook_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

func TestAPendingDeliverySaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.answer(func(r *http.Request) (*http.Response, error) {
			switch r.URL.Host {
			case "failing.example":
				return status(http.StatusInternalServerError)(r)
			case "patient.example":
				return status(http.StatusTooManyRequests, "Retry-After", "600")(r)
			}
			return status(http.StatusOK)(r)
		})
		ctx, all := t.Context(), webhook.AllTenants()
		retry := func(p *webhook.EndpointParams) {
			p.Retry.Delays = []time.Duration{time.Second, time.Second, time.Second, time.Second, time.Second, time.Second, time.Hour}
		}
		failing := w.endpoint("https://failing.example/", retry)
		patient := w.endpoint("https://patient.example/", retry)
		ordered := w.endpoint("https://failing.example/ordered", inOrder(webhook.OrderingPerEndpoint), retry)
		paused := w.endpoint("https://paused.example/")
		_, err := w.hooks.Endpoints().Pause(ctx, all, paused.ID, "")
		require.NoError(t, err)
		w.dispatch(webhook.DispatcherConfig{})
		w.enqueue(paid(`1`))
		time.Sleep(20 * time.Second)
		w.enqueue(paid(`2`))
		time.Sleep(time.Second)

		reasons := func(endpoint uuid.UUID) []webhook.WaitReason {
			page, err := w.hooks.Deliveries().List(ctx, webhook.DeliveryQuery{Scope: all, EndpointID: endpoint})
			require.NoError(t, err)
			reasons, err := w.hooks.Deliveries().WaitReasons(ctx, page.Deliveries)
			require.NoError(t, err)
			return reasons
		}
		assert.Equal(t, []webhook.WaitReason{webhook.WaitPaused, webhook.WaitPaused}, reasons(paused.ID))
		assert.Contains(t, reasons(failing.ID), webhook.WaitCircuitOpen)
		assert.Contains(t, reasons(ordered.ID), webhook.WaitOrdering)
		assert.Contains(t, reasons(patient.ID), webhook.WaitRateLimited)
		assert.Contains(t, reasons(patient.ID), webhook.WaitRetry)

		_, err = w.hooks.Endpoints().Resume(ctx, all, paused.ID)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		assert.Equal(t, []webhook.WaitReason{webhook.WaitNone, webhook.WaitNone}, reasons(paused.ID))
	})
}
