package webhook_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
)

// forgetful is a store that records nothing until told to.
type forgetful struct {
	webhook.Store[*webhooktest.Tx]

	records atomic.Bool
}

func (f *forgetful) Record(ctx context.Context, p webhook.RecordParams) (webhook.RecordResult, error) {
	if !f.records.Load() {
		return webhook.RecordResult{}, errors.New("the database takes no writes")
	}
	return f.Store.Record(ctx, p)
}

// roundTrip is a transport made of a function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func fine() *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(""))}
}

// busyClock is the machine's clock; it counts the timers that fire at once.
type busyClock struct{ spins atomic.Int64 }

func (c *busyClock) Now() time.Time { return time.Now() }

func (c *busyClock) NewTimer(d time.Duration) (<-chan time.Time, func()) {
	if d <= 0 {
		c.spins.Add(1)
	}
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}

func TestSendingPausesWhileTooManyResultsAreUnrecorded(t *testing.T) {
	t.Parallel()
	const events, bound, inFlight = 1_000, 300, 50
	store := &forgetful{Store: webhooktest.NewStore()}
	clock := &busyClock{}
	var sent atomic.Int64
	hooks, err := webhook.New(store, webhook.Config{
		Clock:   clock,
		Secrets: webhook.NewKeyring(webhook.NewKey("test")),
		Transport: roundTrip(func(*http.Request) (*http.Response, error) {
			sent.Add(1)
			return fine(), nil
		}),
	})
	require.NoError(t, err)
	t.Cleanup(hooks.Close)
	h := &host{t: t, store: store.Store.(*webhooktest.Store), hooks: hooks}
	h.endpoint("https://hooks.example/in")
	many := make([]webhook.Event, events)
	for i := range many {
		many[i] = paid(`{}`)
	}
	tx := h.store.Begin()
	_, err = hooks.EnqueueMany(t.Context(), tx, many)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	d, err := hooks.NewDispatcher(webhook.DispatcherConfig{MaxInFlight: inFlight, MaxInFlightPerEndpoint: inFlight, MaxInFlightPerHost: inFlight})
	require.NoError(t, err)
	webhook.LimitUnrecorded(d, bound)
	h.run(d)

	require.Eventually(t, func() bool { return sent.Load() >= bound }, 20*time.Second, time.Millisecond)
	before := clock.spins.Load()
	rest := time.NewTimer(300 * time.Millisecond)
	<-rest.C
	assert.Less(t, clock.spins.Load()-before, int64(50), "the scheduler does not spin while it may not send")
	assert.LessOrEqual(t, sent.Load(), int64(bound+2*inFlight))

	store.records.Store(true)
	require.Eventually(t, func() bool { return sent.Load() >= events }, 20*time.Second, time.Millisecond)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		left, err := store.ListDeliveries(t.Context(), webhook.ListDeliveriesParams{
			Scope: webhook.AllTenants(), State: webhook.StateInFlight, Limit: 1,
		})
		require.NoError(c, err)
		require.Empty(c, left.Deliveries)
	}, 20*time.Second, 10*time.Millisecond)
	assert.EqualValues(t, events, sent.Load(), "each was sent once")
}

// hanging is a store whose claims neither succeed nor fail.
type hanging struct {
	webhook.Store[*webhooktest.Tx]

	claims chan struct{}
}

func (h *hanging) Claim(ctx context.Context, _ webhook.ClaimParams) ([]webhook.Claimed, error) {
	h.claims <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestADatabaseThatHangsDoesNotHoldUpTheStop(t *testing.T) {
	t.Parallel()
	store := &hanging{Store: webhooktest.NewStore(), claims: make(chan struct{}, 100)}
	hooks, err := webhook.New(store, webhook.Config{Secrets: webhook.NewKeyring(webhook.NewKey("test"))})
	require.NoError(t, err)
	t.Cleanup(hooks.Close)
	h := &host{t: t, store: store.Store.(*webhooktest.Store), hooks: hooks}
	h.endpoint("https://hooks.example/in")
	stop := h.dispatch(webhook.DispatcherConfig{GracePeriod: time.Second})
	h.enqueue(paid(`{}`))
	<-store.claims

	began := time.Now()
	stop()

	assert.Less(t, time.Since(began), 15*time.Second, "five seconds, on a busy machine; a third of the lease is thirty")
}
