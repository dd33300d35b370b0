package webhook_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/egress"
)

// slowly answers with success, after so long that it counts against latency.
func slowly(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(8 * time.Second):
		return status(http.StatusOK)(r)
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
}

// row is one outcome of an attempt, and what docs/design.md §4 says of it.
type row struct {
	name    string
	answer  func(*http.Request) (*http.Response, error)
	class   webhook.ErrorClass
	state   webhook.DeliveryState // after nearly two minutes of nothing else
	circuit bool                  // opens it
	counts  bool                  // uses an attempt
	fails   bool                  // counts in health and auto-disable, as a failure
	before  func(w *world, e webhook.Endpoint)
}

// The outcome table of docs/design.md §4. Its rows for the egress proxy and for our own
// stop are tested where those are (TestAFaultOfTheEgressProxy…, TestStopping…).
func outcomes() []row {
	failure := func(name string, class webhook.ErrorClass, answer func(*http.Request) (*http.Response, error)) row {
		return row{name: name, answer: answer, class: class, state: webhook.StatePending, circuit: true, counts: true, fails: true}
	}
	rows := []row{
		{name: "2xx", answer: status(http.StatusAccepted), state: webhook.StateDelivered, counts: true},
		{name: "slow 2xx", answer: slowly, state: webhook.StateDelivered, circuit: true, counts: true},
		failure("5xx", webhook.ClassHTTP5xx, status(http.StatusInternalServerError)),
		failure("503", webhook.ClassHTTP5xx, status(http.StatusServiceUnavailable)),
		failure("timeout", webhook.ClassTimeout, hangs),
		failure("connect", webhook.ClassConnect, fails(&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED})),
		failure("tls", webhook.ClassTLS, fails(&tls.CertificateVerificationError{Err: errors.New("expired")})),
		failure("reset", webhook.ClassReset, fails(syscall.ECONNRESET)),
		failure("dns", webhook.ClassDNS, fails(&net.DNSError{Err: "no such host", Name: "hooks.example", IsNotFound: true})),
		failure("protocol", webhook.ClassProtocol, fails(errors.New("malformed HTTP response"))),
		failure("redirect", webhook.ClassRedirect, status(http.StatusFound, "Location", "https://elsewhere.example/")),
		{name: "429", answer: status(http.StatusTooManyRequests), class: webhook.ClassHTTP4xx, state: webhook.StatePending, counts: true},
		{name: "410", answer: status(http.StatusGone), class: webhook.ClassHTTP4xx, state: webhook.StateDead, counts: true},
		{name: "blocked", answer: fails(egress.ErrBlocked), class: webhook.ClassBlocked, state: webhook.StatePending, counts: true, fails: true},
		{
			name: "secret box", answer: status(http.StatusOK), class: webhook.ClassInternal, state: webhook.StatePending,
			before: func(w *world, _ webhook.Endpoint) { w.box.locked.Store(true) },
		},
	}
	for _, code := range []int{400, 401, 403, 404, 408, 409, 422} {
		rows = append(rows, failure(http.StatusText(code), webhook.ClassHTTP4xx, status(code)))
	}
	return rows
}

func TestTheOutcomeTable(t *testing.T) {
	t.Parallel() // B13, B42, R02
	for _, r := range outcomes() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(t *testing.T, w *world) { r.check(t, w) })
		})
	}
}

// check sends enough of one outcome to open a circuit.
func (r *row) check(t *testing.T, w *world) {
	w.answer(r.answer)
	e := w.endpoint(someURL, func(p *webhook.EndpointParams) {
		p.Retry.Delays = make([]time.Duration, 100)
		for i := range p.Retry.Delays {
			p.Retry.Delays[i] = time.Second
		}
	})
	if r.before != nil {
		r.before(w, e)
	}
	cfg := webhook.DispatcherConfig{Isolation: webhook.IsolationConfig{RetryShare: -1}}
	w.dispatch(cfg)
	var events []uuid.UUID
	enough := 60
	if r.state == webhook.StateDead {
		enough = 1 // the others would be cancelled
	}
	for range enough {
		events = append(events, w.enqueue(paid(`{}`)))
	}

	time.Sleep(110 * time.Second)

	first := w.delivery(events[0])
	assert.Equal(t, r.state, first.State)
	assert.Equal(t, r.class, first.LastClass)
	assert.Equal(t, r.counts, first.Attempts > 0, "uses an attempt: %d", first.Attempts)
	assert.Equal(t, r.circuit, strings.Contains(w.log.String(), "circuit open"), "opens the circuit")
	if r.name == "410" {
		assert.Equal(t, webhook.EndpointDisabled, w.state(e.ID))
	} else {
		assert.Equal(t, webhook.EndpointActive, w.state(e.ID))
	}
	health, err := w.hooks.Health().Endpoint(t.Context(), webhook.AllTenants(), e.ID)
	require.NoError(t, err)
	succeeds := r.state == webhook.StateDelivered
	assert.Equal(t, r.fails, health.Hour.Failed > 0, "counts as a failure: %d", health.Hour.Failed)
	assert.Equal(t, r.fails, health.ConsecutiveFailures > 0, "counts in auto-disable: %d", health.ConsecutiveFailures)
	assert.Equal(t, succeeds, health.Hour.Succeeded > 0, "counts as a success: %d", health.Hour.Succeeded)
	assert.Equal(t, r.counts, health.Hour.Attempts > 0, "is seen: %d", health.Hour.Attempts)
	log := w.attempts(first.ID)
	require.NotEmpty(t, log)
	if !r.counts {
		for _, a := range log {
			assert.Equal(t, 1, a.Number, "an attempt that does not count has the number of the next")
		}
	}
}

func TestAFailingReplayCountsLikeAnyOther(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		e := w.endpoint(someURL, func(p *webhook.EndpointParams) {
			p.Retry.Delays = []time.Duration{time.Second, time.Second, time.Second, time.Second, time.Second}
		})
		w.dispatch(webhook.DispatcherConfig{Isolation: webhook.IsolationConfig{RetryShare: -1}})
		id := w.enqueue(paid(`{}`))
		time.Sleep(time.Minute)
		require.Equal(t, 1, w.delivery(id).Attempts)
		w.answer(status(http.StatusInternalServerError))

		_, err := w.hooks.Deliveries().Replay(t.Context(), webhook.AllTenants(), webhook.ReplayRequest{EventID: id, EndpointID: e.ID})
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)

		runs := w.deliveries(id)
		require.Len(t, runs, 2)
		assert.Equal(t, 6, runs[0].Attempts, "its attempts are of its own run")
		assert.Equal(t, 1, runs[1].Attempts)
		assert.Contains(t, w.log.String(), "circuit open")
	})
}
