package webhook_test

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

// What other senders of webhooks were reported to do wrong, in virtual time. Each test
// is named by its report.

func TestB07NothingIsStuckAfterACrash(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		ctx, all, backend := t.Context(), webhook.AllTenants(), w.hooks.Backend()
		w.answer(status(http.StatusInternalServerError))
		e := w.endpoint(someURL, func(p *webhook.EndpointParams) {
			p.Retry = webhook.EndpointRetry{Delays: []time.Duration{time.Hour}}
		})
		stop := w.dispatch(seldom())
		var last, first []uuid.UUID // on their last attempt, and on their first
		for range 5 {
			last = append(last, w.enqueue(paid(`{}`)))
		}
		time.Sleep(time.Minute)
		stop()
		_, err := w.hooks.Endpoints().Pause(ctx, all, e.ID, "")
		require.NoError(t, err)
		stop = w.dispatch(seldom())
		for range 45 {
			first = append(first, w.enqueue(paid(`{}`)))
		}
		time.Sleep(2 * time.Hour)
		stop()
		_, err = w.hooks.Endpoints().Resume(ctx, all, e.ID)
		require.NoError(t, err)
		claimed, err := backend.Claim(ctx, webhook.ClaimParams{
			Now: time.Now(), LeaseUntil: time.Now().Add(webhook.DefaultLease), Token: uuid.New(),
			Requests: []webhook.ClaimRequest{
				{EndpointID: e.ID, Lane: webhook.LaneFirst, Limit: 100}, {EndpointID: e.ID, Lane: webhook.LaneRetry, Limit: 100},
			},
		})
		require.NoError(t, err)
		require.Len(t, claimed, 50) // and dies

		w.dispatch(webhook.DispatcherConfig{Breaker: webhook.BreakerConfig{ConsecutiveFailures: -1, FailureRatio: -1}})
		time.Sleep(webhook.DefaultLease + 10*time.Minute)
		for _, id := range first {
			d := w.delivery(id)
			assert.Equal(t, [2]any{webhook.StatePending, 1}, [2]any{d.State, d.Attempts}, "retried")
		}
		for _, id := range last {
			d := w.delivery(id)
			assert.Equal(t, [2]any{webhook.StateDead, 2}, [2]any{d.State, d.Attempts}, "the attempt that was lost is made again")
		}
	})
}

func TestB13FailuresToConnectAreRetriedOnSchedule(t *testing.T) {
	t.Parallel()
	for class, err := range map[webhook.ErrorClass]error{
		webhook.ClassDNS:     &net.DNSError{Err: "no such host", Name: "hooks.example", IsNotFound: true},
		webhook.ClassConnect: &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED},
		webhook.ClassTLS:     &tls.CertificateVerificationError{Err: errors.New("expired")},
	} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			var before atomic.Bool
			w.answer(func(r *http.Request) (*http.Response, error) {
				if !before.Swap(true) {
					return nil, err
				}
				return status(http.StatusOK)(r)
			})
			w.endpoint(someURL)
			w.dispatch(webhook.DispatcherConfig{})
			id := w.enqueue(paid(`{}`))
			time.Sleep(time.Minute)

			d := w.delivery(id)
			assert.Equal(t, webhook.StateDelivered, d.State)
			log := w.attempts(d.ID)
			require.Len(t, log, 2)
			assert.Equal(t, class, log[0].Class)
			assert.InDelta(t, 5, log[1].StartedAt.Sub(log[0].StartedAt).Seconds(), 1.1)
		})
	}
}

func TestB39AnOutageOfTenMinutesLosesNothing(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.answer(fails(&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}))
		e := w.endpoint(someURL)
		w.dispatch(webhook.DispatcherConfig{})
		var events []uuid.UUID
		for range 5 {
			events = append(events, w.enqueue(paid(`{}`)))
			time.Sleep(2 * time.Minute)
		}
		w.answer(status(http.StatusOK))
		time.Sleep(3 * time.Hour)

		for _, id := range events {
			d := w.delivery(id)
			require.Equal(t, webhook.StateDelivered, d.State)
			log := w.attempts(d.ID)
			schedule := webhook.DefaultRetrySchedule().Delays
			for i := 1; i < len(log); i++ {
				assert.GreaterOrEqual(t, log[i].StartedAt.Sub(log[i-1].StartedAt), schedule[i-1]*8/10, "attempts are spaced")
			}
		}
		assert.Equal(t, webhook.EndpointActive, w.state(e.ID))
	})
}
