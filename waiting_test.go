package webhook_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
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

		reasons := func(endpoint uuid.UUID) []webhook.WaitReason { return w.reasons(w.hooks, endpoint) }
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

// reasons are why the deliveries to an endpoint wait, or to all of them, as a process
// says that has the hooks.
func (w *world) reasons(hooks *webhook.Hooks[*webhooktest.Tx], endpoint uuid.UUID) []webhook.WaitReason {
	w.t.Helper()
	page, err := hooks.Deliveries().List(w.t.Context(), webhook.DeliveryQuery{Scope: webhook.AllTenants(), EndpointID: endpoint})
	require.NoError(w.t, err)
	reasons, err := hooks.Deliveries().WaitReasons(w.t.Context(), page.Deliveries)
	require.NoError(w.t, err)
	return reasons
}

// elsewhere is another process on the same store.
func (w *world) elsewhere() *webhook.Hooks[*webhooktest.Tx] {
	w.t.Helper()
	hooks, err := webhook.New(w.store, webhook.Config{Secrets: w.box, Transport: loopback(w.t).Wrap(func(http.RoundTripper) http.RoundTripper { return w })})
	require.NoError(w.t, err)
	w.t.Cleanup(hooks.Close)
	return hooks
}

func TestADeliveryWithoutASlotWaitsForConcurrency(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg       webhook.DispatcherConfig
		urls      []string
		own       int // the endpoints' cap
		events    int
		inFlight  int
		elsewhere webhook.WaitReason
	}{
		"of its endpoint": {
			urls: []string{"https://one.example/"}, own: 2, events: 3, inFlight: 2,
			elsewhere: webhook.WaitConcurrency,
		},
		"of its endpoint, which is not known to do well": {
			urls: []string{"https://one.example/"}, events: 3, inFlight: 2,
			elsewhere: webhook.WaitDue,
		},
		"of its host": {
			cfg:  webhook.DispatcherConfig{MaxInFlightPerHost: 1},
			urls: []string{"https://one.example/a", "https://one.example/b"}, events: 1, inFlight: 1,
			elsewhere: webhook.WaitDue,
		},
		"of the process": {
			cfg:  webhook.DispatcherConfig{MaxInFlight: 1},
			urls: []string{"https://one.example/", "https://two.example/"}, events: 1, inFlight: 1,
			elsewhere: webhook.WaitDue,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(t *testing.T, w *world) {
				w.answer(hangs)
				for _, url := range c.urls {
					w.endpoint(url, func(p *webhook.EndpointParams) { p.MaxInFlight = c.own })
				}
				w.dispatch(c.cfg)
				for range c.events {
					w.enqueue(paid(`1`))
				}
				time.Sleep(2 * time.Second)

				and := func(last webhook.WaitReason) []webhook.WaitReason {
					return append(slices.Repeat([]webhook.WaitReason{webhook.WaitNone}, c.inFlight), last)
				}
				assert.ElementsMatch(t, and(webhook.WaitConcurrency), w.reasons(w.hooks, uuid.Nil))
				assert.ElementsMatch(t, and(c.elsewhere), w.reasons(w.elsewhere(), uuid.Nil))

				w.answer(status(http.StatusOK))
				time.Sleep(time.Minute)
				assert.ElementsMatch(t, and(webhook.WaitNone), w.reasons(w.hooks, uuid.Nil))
			})
		})
	}
}

func TestOnlyWhoSendsToAnEndpointKnowsOfItsSlots(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.answer(hangs)
		w.endpoint(someURL)
		other := w.elsewhere()
		w.dispatch(webhook.DispatcherConfig{})
		d, err := other.NewDispatcher(webhook.DispatcherConfig{})
		require.NoError(t, err)
		w.run(d)
		time.Sleep(time.Minute)
		for range 3 {
			w.enqueue(paid(`1`))
		}
		time.Sleep(2 * time.Second)

		both := append(w.reasons(w.hooks, uuid.Nil), w.reasons(other, uuid.Nil)...)
		none := webhook.WaitNone
		assert.ElementsMatch(t, []webhook.WaitReason{none, none, none, none, webhook.WaitConcurrency, webhook.WaitDue}, both)
	})
}

func TestADeliveryToASlowEndpointWaitsForTheSlowLane(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.answer(func(r *http.Request) (*http.Response, error) {
			if r.URL.Host != "fast.example" {
				time.Sleep(5 * time.Second)
			}
			return status(http.StatusOK)(r)
		})
		one, two := w.endpoint("https://one.example/"), w.endpoint("https://two.example/")
		fast := w.endpoint("https://fast.example/")
		both := func(hooks *webhook.Hooks[*webhooktest.Tx]) []webhook.WaitReason {
			return append(w.reasons(hooks, one.ID), w.reasons(hooks, two.ID)...)
		}
		w.dispatch(webhook.DispatcherConfig{MaxInFlight: 4, Isolation: webhook.IsolationConfig{SlowShare: 0.25}})
		w.enqueue(paid(`1`)) // shows which of them are slow
		time.Sleep(10 * time.Second)
		w.enqueue(paid(`2`))
		time.Sleep(time.Second)

		none := webhook.WaitNone
		assert.ElementsMatch(t, []webhook.WaitReason{none, none, none, webhook.WaitSlowLane}, both(w.hooks))
		assert.ElementsMatch(t, []webhook.WaitReason{none, none, none, webhook.WaitDue}, both(w.elsewhere()))
		assert.Equal(t, []webhook.WaitReason{none, none}, w.reasons(w.hooks, fast.ID))

		time.Sleep(time.Minute)
		assert.Equal(t, []webhook.WaitReason{none, none, none, none}, both(w.hooks))
	})
}

func TestARetryOverTheBudgetWaitsForIt(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.answer(status(http.StatusInternalServerError))
		e := w.endpoint(someURL, func(p *webhook.EndpointParams) { p.Retry.Delays = []time.Duration{time.Second, time.Hour} })
		cfg := seldom()
		cfg.Isolation.RetryFloor = time.Minute
		w.dispatch(cfg)
		for range 4 {
			w.enqueue(paid(`1`))
		}
		time.Sleep(10 * time.Second)

		// One retry a minute and a fifth of the six attempts.
		retry, budget := webhook.WaitRetry, webhook.WaitRetryBudget
		assert.ElementsMatch(t, []webhook.WaitReason{retry, retry, budget, budget}, w.reasons(w.hooks, e.ID))
		assert.ElementsMatch(t, []webhook.WaitReason{retry, retry, webhook.WaitDue, webhook.WaitDue}, w.reasons(w.elsewhere(), e.ID))

		// A first attempt is not held up.
		w.answer(status(http.StatusOK))
		event := w.enqueue(paid(`2`))
		time.Sleep(time.Second)
		assert.Equal(t, webhook.StateDelivered, w.delivery(event).State)

		time.Sleep(10 * time.Minute)
		assert.ElementsMatch(t, []webhook.WaitReason{webhook.WaitNone, retry, retry, webhook.WaitNone, webhook.WaitNone}, w.reasons(w.hooks, e.ID))
	})
}

func TestADeliveryOverItsRateIsRateLimited(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		e := w.endpoint(someURL, func(p *webhook.EndpointParams) { p.RateLimit, p.Burst = 0.1, 1 })
		w.dispatch(webhook.DispatcherConfig{})
		w.enqueue(paid(`1`))
		w.enqueue(paid(`2`))
		time.Sleep(5 * time.Second)
		assert.ElementsMatch(t, []webhook.WaitReason{webhook.WaitNone, webhook.WaitRateLimited}, w.reasons(w.hooks, e.ID))
		time.Sleep(10 * time.Second)
		assert.Equal(t, []webhook.WaitReason{webhook.WaitNone, webhook.WaitNone}, w.reasons(w.hooks, e.ID))
	})
}

func TestADispatcherThatIsStuckDelaysNobodyWhoAsksForLong(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		e := w.endpoint(someURL)
		release := make(chan struct{})
		w.dispatch(webhook.DispatcherConfig{TenantLimits: func(string) webhook.TenantLimits {
			<-release // the host keeps the loop waiting
			return webhook.TenantLimits{}
		}})
		w.enqueue(paid(`1`))
		time.Sleep(2 * time.Second)
		began := time.Now()
		assert.Equal(t, []webhook.WaitReason{webhook.WaitDue}, w.reasons(w.hooks, e.ID))
		assert.LessOrEqual(t, time.Since(began), 250*time.Millisecond)
		close(release)
		time.Sleep(2 * time.Second)
		assert.Equal(t, []webhook.WaitReason{webhook.WaitNone}, w.reasons(w.hooks, e.ID))
	})
}
