package webhook_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outhook/webhook"
)

// about is an event about a resource.
func about(resource, payload string) webhook.Event {
	e := paid(payload)
	e.ResourceID = resource
	return e
}

func bodies(requests []request) []string {
	var list []string
	for _, r := range requests {
		list = append(list, r.body)
	}
	return list
}

func inOrder(o webhook.Ordering) func(*webhook.EndpointParams) {
	return func(p *webhook.EndpointParams) { p.Ordering = o }
}

func TestB58OrderIsKeptInsideABatch(t *testing.T) {
	t.Parallel() // B58
	for _, dispatchers := range []int{1, 2} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			var once sync.Once
			w.answer(func(r *http.Request) (*http.Response, error) {
				code := http.StatusOK
				once.Do(func() { code = http.StatusServiceUnavailable })
				return status(code)(r)
			})
			w.endpoint(someURL, inOrder(webhook.OrderingPerResource))
			w.enqueue(about("in_9", `"A"`))
			w.enqueue(about("in_9", `"B"`))
			for range dispatchers {
				w.dispatch(webhook.DispatcherConfig{})
			}
			time.Sleep(time.Minute)

			assert.Equal(t, []string{`"A"`, `"A"`, `"B"`}, bodies(w.requests()))
		})
	}
}

func TestOneThatFailsHoldsUpItsResourceAndNoOther(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		failing := w.failBodies(`"bad"`)
		w.endpoint(someURL, inOrder(webhook.OrderingPerResource))
		w.dispatch(seldom())
		bad := w.enqueue(about("r1", `"bad"`))
		next := w.enqueue(about("r1", `"next"`))
		other := w.enqueue(about("r2", `"other"`))
		loose := w.enqueue(paid(`"loose"`))
		time.Sleep(time.Hour)

		assert.Equal(t, webhook.StateDelivered, w.delivery(other).State)
		assert.Equal(t, webhook.StateDelivered, w.delivery(loose).State)
		waiting := w.delivery(next)
		assert.Equal(t, webhook.StatePending, waiting.State)
		assert.True(t, waiting.AwaitsTurn, "and says so")
		assert.False(t, w.delivery(bad).AwaitsTurn)

		time.Sleep(3*time.Hour + 20*time.Minute) // the hold passes

		assert.Equal(t, webhook.StateDelivered, w.delivery(next).State)
		assert.True(t, w.delivery(next).OrderingSkipped)
		assert.Equal(t, webhook.StatePending, w.delivery(bad).State, "it goes on by its retry policy")
		for _, r := range w.requests() {
			want := ""
			if r.body == `"next"` {
				want = "true"
			}
			assert.Equal(t, want, r.header.Get("webhook-ordering-skipped"), r.body)
		}

		failing.Store(false)
		time.Sleep(11 * time.Hour)
		assert.Equal(t, webhook.StateDelivered, w.delivery(bad).State)
		assert.False(t, w.delivery(bad).OrderingSkipped)
	})
}

func TestOrderHoldsThroughAPauseAndARestart(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		e := w.endpoint(someURL, inOrder(webhook.OrderingPerEndpoint))
		stop := w.dispatch(webhook.DispatcherConfig{})
		ctx, all := t.Context(), webhook.AllTenants()
		var want []string
		for i := range 40 {
			body := fmt.Sprintf(`"%02d"`, i)
			want = append(want, body)
			w.enqueue(paid(body))
			switch i {
			case 10:
				_, err := w.hooks.Endpoints().Pause(ctx, all, e.ID, "")
				require.NoError(t, err)
			case 20:
				stop()
				_, err := w.hooks.Endpoints().Resume(ctx, all, e.ID)
				require.NoError(t, err)
				stop = w.dispatch(webhook.DispatcherConfig{})
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)

		assert.Equal(t, want, bodies(w.requests()))
	})
}

func TestRetryNowAndReplayReorderNothingSilently(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		failing := w.failBodies(`"2"`)
		e := w.endpoint(someURL, inOrder(webhook.OrderingPerResource))
		w.dispatch(seldom())
		first := w.enqueue(about("r", `"1"`))
		second := w.enqueue(about("r", `"2"`))
		third := w.enqueue(about("r", `"3"`))
		time.Sleep(time.Second)

		_, err := w.hooks.Deliveries().RetryNow(t.Context(), webhook.AllTenants(), w.delivery(third).ID)
		require.NoError(t, err)
		_, err = w.hooks.Deliveries().Replay(t.Context(), webhook.AllTenants(), webhook.ReplayRequest{EventID: first, EndpointID: e.ID})
		require.NoError(t, err)
		time.Sleep(time.Second)
		got := w.requests()
		last := got[len(got)-1]
		assert.Equal(t, `"1"`, last.body, "the older one is sent again before the newer ones")
		assert.Equal(t, "true", last.header.Get("webhook-replay"))
		assert.Equal(t, webhook.StatePending, w.delivery(third).State)

		failing.Store(false)
		_, err = w.hooks.Deliveries().RetryNow(t.Context(), webhook.AllTenants(), w.delivery(second).ID)
		require.NoError(t, err)
		time.Sleep(time.Second)
		got = w.requests()
		assert.Equal(t, []string{`"2"`, `"3"`}, bodies(got[len(got)-2:]))
	})
}

// Whatever comes of attempts, and however dispatchers come and go, what a receiver gets
// of a resource is in order, one at a time, but for what is marked.
func TestOrderIsKeptWhateverHappens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		dispatchers := rapid.IntRange(1, 3).Draw(rt, "dispatchers")
		resources := rapid.IntRange(1, 3).Draw(rt, "resources")
		steps := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 25).Draw(rt, "steps")
		answers := rapid.SliceOfN(rapid.SampledFrom([]int{200, 200, 200, 500, 429, 404}), 1, 20).Draw(rt, "answers")
		inVirtualTime(t, func(_ *testing.T, w *world) {
			k := &orderly{flying: map[string]bool{}, last: map[string]int{}, answers: answers}
			w.answer(k.receive)
			e := w.endpoint(someURL, inOrder(webhook.OrderingPerResource), func(p *webhook.EndpointParams) {
				p.Retry.Delays = slices.Repeat([]time.Duration{10 * time.Second}, 30)
			})
			stops := make([]func(), dispatchers)
			cfg := webhook.DispatcherConfig{
				Breaker: webhook.BreakerConfig{ConsecutiveFailures: -1}, OrderingHold: -1,
				Lease: time.Hour, PollInterval: 10 * time.Second, HeartbeatInterval: time.Minute,
			}
			start := func(i int) { stops[i] = w.dispatch(cfg) }
			for i := range stops {
				start(i)
			}
			var events []uuid.UUID
			for i, step := range steps {
				switch {
				case step < 6:
					resource := fmt.Sprintf("r%d", step%resources)
					events = append(events, w.enqueue(about(resource, fmt.Sprintf(`{"resource":%q,"n":%d}`, resource, i))))
				case step == 6:
					stops[i%dispatchers]()
					start(i % dispatchers)
				case step == 7:
					_, err := w.hooks.Endpoints().Pause(w.t.Context(), webhook.AllTenants(), e.ID, "")
					require.NoError(w.t, err)
					time.Sleep(time.Second)
					_, err = w.hooks.Endpoints().Resume(w.t.Context(), webhook.AllTenants(), e.ID)
					require.NoError(w.t, err)
				case step == 8 && len(events) > 0:
					for _, d := range w.deliveries(events[i%len(events)]) {
						if !d.State.Final() {
							_, err := w.hooks.Deliveries().RetryNow(w.t.Context(), webhook.AllTenants(), d.ID)
							require.NoError(w.t, err)
						}
					}
				default:
					time.Sleep(time.Duration(i) * 7 * time.Second)
				}
			}
			k.recover()
			time.Sleep(20 * time.Minute)
			for _, stop := range stops {
				stop()
			}
			for _, id := range events {
				require.True(rt, w.delivery(id).State.Final(), "a delivery is stuck")
			}
			require.Empty(rt, k.wrong)
		})
	})
}

// orderly is a receiver that minds the order.
type orderly struct {
	mu        sync.Mutex
	flying    map[string]bool
	last      map[string]int
	answers   []int
	asked     int
	recovered bool
	wrong     []string
}

func (k *orderly) receive(r *http.Request) (*http.Response, error) {
	var e struct {
		Resource string `json:"resource"`
		N        int    `json:"n"`
	}
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
		return nil, err
	}
	code := k.arrive(e.Resource, e.N)
	time.Sleep(50 * time.Millisecond)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.flying[e.Resource] = false
	return status(code)(r)
}

func (k *orderly) arrive(resource string, n int) (code int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.flying[resource] {
		k.wrong = append(k.wrong, fmt.Sprintf("%d of %s came beside another", n, resource))
	}
	if n < k.last[resource] {
		k.wrong = append(k.wrong, fmt.Sprintf("%d of %s came after %d", n, resource, k.last[resource]))
	}
	k.flying[resource], k.last[resource] = true, n
	k.asked++
	if k.recovered {
		return http.StatusOK
	}
	return k.answers[k.asked%len(k.answers)]
}

// recover makes it answer all with success.
func (k *orderly) recover() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.recovered = true
}
