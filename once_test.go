package webhook_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
)

func atMostOnce(p *webhook.EndpointParams) { p.AtMostOnce = true }

// fails breaks the connection with an error.
func fails(err error) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

func TestWhatMayHaveArrivedIsNotSentAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(*http.Request) (*http.Response, error)
		listed []string // statuses that are retried
		sent   int
		state  webhook.DeliveryState
		reason string
	}{
		"delivered":   {status(http.StatusOK), nil, 1, webhook.StateDelivered, ""},
		"no answer":   {hangs, nil, 1, webhook.StateDead, webhook.ReasonOutcomeUnknown},
		"reset":       {fails(syscall.ECONNRESET), nil, 1, webhook.StateDead, webhook.ReasonOutcomeUnknown},
		"an error":    {status(http.StatusInternalServerError), nil, 1, webhook.StateDead, "sent once, and answered with status 500"},
		"too many":    {status(http.StatusTooManyRequests), nil, 1, webhook.StateDead, "sent once, and answered with status 429"},
		"unavailable": {status(http.StatusServiceUnavailable), []string{"503"}, 3, webhook.StateDead, "retries used up"},
		"refused":     {fails(&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}), nil, 3, webhook.StateDead, "retries used up"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(t *testing.T, w *world) {
				w.answer(c.answer)
				w.endpoint(someURL, atMostOnce, func(p *webhook.EndpointParams) {
					p.Retry = webhook.EndpointRetry{Delays: []time.Duration{time.Second, time.Minute}, Statuses: c.listed}
				})
				w.dispatch(seldom())
				id := w.enqueue(paid(`{}`))

				time.Sleep(10 * time.Hour)

				assert.Len(t, w.requests(), c.sent)
				d := w.delivery(id)
				assert.Equal(t, [2]any{c.state, c.reason}, [2]any{d.State, d.Reason})
				assert.Equal(t, c.sent, d.Attempts)
			})
		})
	}
}

func TestAnAtMostOnceDeliveryWhoseDispatcherDiedEndsAsUnknown(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		ctx, all, backend := t.Context(), webhook.AllTenants(), w.hooks.Backend()
		e := w.endpoint(someURL, atMostOnce)
		_, err := w.hooks.Endpoints().Pause(ctx, all, e.ID, "")
		require.NoError(t, err)
		stop := w.dispatch(webhook.DispatcherConfig{})
		sent, unsent := w.enqueue(paid(`"sent"`)), w.enqueue(paid(`"unsent"`))
		time.Sleep(time.Second)
		stop()
		_, err = w.hooks.Endpoints().Resume(ctx, all, e.ID)
		require.NoError(t, err)
		// A dispatcher claims both, is about to send one, and dies.
		token := uuid.New()
		claimed, err := backend.Claim(ctx, webhook.ClaimParams{
			Now: time.Now(), LeaseUntil: time.Now().Add(webhook.DefaultLease), Token: token,
			Requests: []webhook.ClaimRequest{{EndpointID: e.ID, Limit: 10}},
		})
		require.NoError(t, err)
		require.Len(t, claimed, 2)
		lost, err := backend.MarkSent(ctx, webhook.MarkSentParams{
			Now: time.Now(), Leases: []webhook.Lease{{DeliveryID: w.delivery(sent).ID, Token: token}},
		})
		require.NoError(t, err)
		require.Empty(t, lost)

		seen := new(deaths)
		w.dispatch(webhook.DispatcherConfig{Observer: seen})
		w.dispatch(webhook.DispatcherConfig{Observer: seen})
		time.Sleep(webhook.DefaultLease + webhook.DefaultLease/3 - time.Second)
		assert.Equal(t, webhook.StateInFlight, w.delivery(sent).State, "its dispatcher may be alive, and about to tell")
		time.Sleep(time.Minute)

		d := w.delivery(sent)
		assert.Equal(t, map[uuid.UUID]int{e.ID: 1}, seen.all(), "told once, of two dispatchers")
		health, err := w.hooks.Health().Endpoint(ctx, all, e.ID)
		require.NoError(t, err)
		assert.Equal(t, int64(1), health.DeadCount)
		assert.Equal(t, []webhook.NoticeKind{webhook.NoticeDead}, w.notices(e.ID))
		assert.Equal(t, webhook.StateDead, d.State)
		assert.Equal(t, webhook.ReasonOutcomeUnknown, d.Reason)
		assert.Equal(t, webhook.ClassOutcomeUnknown, w.attempts(d.ID)[0].Class, "and the log shows it")
		assert.Equal(t, webhook.StateDelivered, w.delivery(unsent).State, "what was not marked was not sent")
		assert.Equal(t, []string{`"unsent"`}, bodies(w.requests()))
		assert.Contains(t, w.log.String(), "may have arrived")

		_, err = w.hooks.Deliveries().RetryNow(ctx, all, d.ID)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		assert.Equal(t, []string{`"unsent"`, `"sent"`}, bodies(w.requests()), "a person may send it again")
	})
}

// countedMarks is a store that counts how often marks are written.
type countedMarks struct {
	*webhooktest.Store
	calls, marks atomic.Int64
}

func (s *countedMarks) MarkSent(ctx context.Context, p webhook.MarkSentParams) ([]uuid.UUID, error) {
	s.calls.Add(1)
	s.marks.Add(int64(len(p.Leases)))
	time.Sleep(10 * time.Millisecond) // as a database would take
	return s.Store.MarkSent(ctx, p)
}

func TestMarksAreWrittenTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &countedMarks{Store: webhooktest.NewStore()}
		w := new(world)
		w.answer(status(http.StatusOK))
		hooks, err := webhook.New(store, webhook.Config{
			Secrets:   webhook.NewKeyring(webhook.NewKey("test")),
			Transport: loopback(t).Wrap(func(http.RoundTripper) http.RoundTripper { return w }),
		})
		require.NoError(t, err)
		defer hooks.Close()
		_, err = hooks.Endpoints().Create(t.Context(), webhook.EndpointParams{Tenant: "acme", URL: someURL, Types: []string{"*"}, AtMostOnce: true})
		require.NoError(t, err)
		d, err := hooks.NewDispatcher(webhook.DispatcherConfig{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { assert.NoError(t, d.Run(ctx)) })
		tx := store.Begin()
		for range 300 {
			_, err := hooks.Enqueue(t.Context(), tx, paid(`{}`))
			require.NoError(t, err)
		}
		require.NoError(t, tx.Commit())

		time.Sleep(time.Minute)
		cancel()
		running.Wait()

		assert.Len(t, w.requests(), 300)
		assert.EqualValues(t, 300, store.marks.Load())
		assert.Less(t, store.calls.Load(), int64(150), "writes")
	})
}

// deaths counts the deliveries that died, by endpoint.
type deaths struct {
	mu sync.Mutex
	of map[uuid.UUID]int
}

func (*deaths) AttemptDone(webhook.AttemptReport) {}

func (d *deaths) DeliveriesDied(r webhook.DeathReport) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of == nil {
		d.of = make(map[uuid.UUID]int)
	}
	d.of[r.EndpointID] += r.Deliveries
}

func (d *deaths) all() map[uuid.UUID]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.of)
}

// outage is a store that can be away, and then takes results last of all: when it has
// been looked twice for deliveries of unknown outcome, or might have been.
type outage struct {
	*webhooktest.Store

	away  atomic.Bool
	looks atomic.Int64 // since it is back
}

var errAway = errors.New("no connection")

func (s *outage) Now(ctx context.Context) (time.Time, error) {
	if s.away.Load() {
		return time.Time{}, errAway
	}
	return s.Store.Now(ctx)
}

func (s *outage) Renew(ctx context.Context, p webhook.RenewParams) ([]uuid.UUID, error) {
	if s.away.Load() {
		return nil, errAway
	}
	return s.Store.Renew(ctx, p)
}

func (s *outage) ReleaseOrdered(ctx context.Context, p webhook.ReleaseOrderedParams) (webhook.ReleaseOrderedResult, error) {
	if s.away.Load() {
		return webhook.ReleaseOrderedResult{}, errAway
	}
	s.looks.Add(1)
	return s.Store.ReleaseOrdered(ctx, p)
}

func (s *outage) EndUnknown(ctx context.Context, p webhook.EndUnknownParams) ([]webhook.EndedDeliveries, error) {
	if s.away.Load() {
		return nil, errAway
	}
	return s.Store.EndUnknown(ctx, p)
}

func (s *outage) Record(ctx context.Context, p webhook.RecordParams) (webhook.RecordResult, error) {
	if s.away.Load() || s.looks.Load() < 3 {
		return webhook.RecordResult{}, errAway
	}
	return s.Store.Record(ctx, p)
}

func TestAResultThatWaitedForTheDatabaseIsWrittenBeforeItsDeliveryEndsAsUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &outage{Store: webhooktest.NewStore()}
		w := new(world)
		w.answer(func(r *http.Request) (*http.Response, error) {
			store.away.Store(true)
			return status(http.StatusOK)(r)
		})
		hooks, err := webhook.New(store, webhook.Config{
			Secrets:   webhook.NewKeyring(webhook.NewKey("test")),
			Transport: loopback(t).Wrap(func(http.RoundTripper) http.RoundTripper { return w }),
		})
		require.NoError(t, err)
		defer hooks.Close()
		_, err = hooks.Endpoints().Create(t.Context(), webhook.EndpointParams{Tenant: "acme", URL: someURL, Types: []string{"*"}, AtMostOnce: true})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for range 2 {
			d, err := hooks.NewDispatcher(webhook.DispatcherConfig{})
			require.NoError(t, err)
			running.Go(func() { assert.NoError(t, d.Run(ctx)) })
		}
		time.Sleep(10 * time.Minute) // so that they have known the database for long
		tx := store.Begin()
		res, err := hooks.Enqueue(t.Context(), tx, paid(`{}`))
		require.NoError(t, err)
		require.NoError(t, tx.Commit())

		time.Sleep(10 * time.Minute)
		require.True(t, store.away.Load(), "sent, and then the database went away for longer than a lease")
		store.looks.Store(0)
		store.away.Store(false)
		time.Sleep(10 * time.Minute)

		list, err := store.ListDeliveries(t.Context(), webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), EventID: res.EventID, Limit: 2})
		require.NoError(t, err)
		require.Len(t, list.Deliveries, 1)
		assert.Equal(t, webhook.StateDelivered, list.Deliveries[0].State)
		assert.Len(t, w.requests(), 1)
		cancel()
		running.Wait()
	})
}
