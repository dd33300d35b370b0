package webhook_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
)

// newClockedHost is a host whose time a test moves.
func newClockedHost(t *testing.T, alter ...func(*webhook.Config)) (*host, *webhooktest.Clock) {
	t.Helper()
	clock := webhooktest.NewClock(time.Now())
	h := newHost(t, append(alter, func(c *webhook.Config) { c.Clock = clock })...)
	h.store.SetNow(clock.Now)
	return h, clock
}

// attempts waits until the delivery has n attempts in its log, moving the clock, and
// returns the delivery and them.
func (h *host) attempts(clock *webhooktest.Clock, event uuid.UUID, n int) (webhook.Delivery, []webhook.Attempt) {
	h.t.Helper()
	var d webhook.Delivery
	var log []webhook.Attempt
	require.EventuallyWithT(h.t, func(c *assert.CollectT) {
		clock.Advance(100 * time.Millisecond)
		list, err := h.hooks.Backend().ListDeliveries(h.t.Context(), webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), EventID: event, Limit: 1})
		require.NoError(c, err)
		require.Len(c, list.Deliveries, 1)
		d = list.Deliveries[0]
		log, err = h.hooks.Backend().ListAttempts(h.t.Context(), webhook.AllTenants(), d.ID)
		require.NoError(c, err)
		require.GreaterOrEqual(c, len(log), n)
	}, 20*time.Second, time.Millisecond)
	require.Len(h.t, log, n)
	d, err := h.hooks.Backend().GetDelivery(h.t.Context(), webhook.AllTenants(), d.ID) // after its log
	require.NoError(h.t, err)
	return d, log
}

// switchBox opens nothing while it is locked.
type switchBox struct {
	webhook.SecretBox
	locked atomic.Bool
}

func (b *switchBox) Open(ctx context.Context, sealed, associated []byte) ([]byte, error) {
	if b.locked.Load() {
		return nil, &webhook.SecretUnreadableError{KeyID: "2025", UnknownKey: true, Err: errors.New("no such key")}
	}
	return b.SecretBox.Open(ctx, sealed, associated)
}

func TestS11AnUnreadableSecretHoldsTheDeliveryAndTheLogSaysWhy(t *testing.T) {
	t.Parallel()
	box := &switchBox{SecretBox: webhook.NewKeyring(webhook.NewKey("test"))}
	box.locked.Store(true)
	h, clock := newClockedHost(t, func(c *webhook.Config) { c.Secrets = box })
	r := webhooktest.NewReceiver(t)
	r.SetNow(clock.Now)
	e := h.endpoint(r.URL)
	r.Verify(t, e.Secret.Reveal())
	w := newWatcher()
	h.dispatch(webhook.DispatcherConfig{Observer: w})
	event := h.enqueue(paid(`{"card":"4111"}`))

	d, log := h.attempts(clock, event, 2)
	assert.Empty(t, r.Requests(), "nothing goes out unsigned")
	assert.Equal(t, webhook.StatePending, d.State)
	assert.Equal(t, webhook.ClassInternal, d.LastClass)
	assert.Zero(t, d.Attempts, "no retry is used up")
	for _, a := range log {
		assert.Equal(t, webhook.ClassInternal, a.Class)
		assert.Equal(t, 1, a.Number)
		assert.Contains(t, a.Error, `secret is unreadable: key "2025": no such key`)
	}
	assert.GreaterOrEqual(t, log[1].StartedAt.Sub(log[0].StartedAt), time.Minute)
	report := w.next(t)
	assert.True(t, report.Uncounted)
	assert.Equal(t, webhook.ClassInternal, report.Class)

	box.locked.Store(false)
	d, log = h.attempts(clock, event, 3)
	assert.Equal(t, webhook.StateDelivered, d.State)
	assert.Equal(t, 1, d.Attempts)
	assert.Equal(t, webhook.ClassNone, log[2].Class)
	require.Len(t, r.Requests(), 1)
	require.NoError(t, r.Requests()[0].VerifyErr)
	assert.Equal(t, "1", r.Requests()[0].Attempt())
}

func TestS11ManyHeldDeliveriesOpenNoCircuit(t *testing.T) {
	t.Parallel()
	box := &switchBox{SecretBox: webhook.NewKeyring(webhook.NewKey("test"))}
	box.locked.Store(true)
	h, clock := newClockedHost(t, func(c *webhook.Config) { c.Secrets = box })
	r := webhooktest.NewReceiver(t)
	h.endpoint(r.URL)
	h.dispatch(webhook.DispatcherConfig{})
	var events []uuid.UUID
	for range 30 {
		events = append(events, h.enqueue(paid(`{}`)))
	}
	for _, e := range events {
		h.attempts(clock, e, 1)
	}
	box.locked.Store(false)
	require.Eventually(t, func() bool {
		clock.Advance(100 * time.Millisecond)
		return len(r.Requests()) == len(events)
	}, 20*time.Second, time.Millisecond)
}

func TestAHangingKeyServiceIsWaitedForNoLongerThanAReceiver(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(c *webhook.Config) {
		c.Authenticator = webhook.AuthenticatorFunc(func(ctx context.Context, _ http.Header, _ webhook.AuthInput) error {
			<-ctx.Done()
			return ctx.Err()
		})
	})
	r := webhooktest.NewReceiver(t)
	h.endpoint(r.URL)
	w := newWatcher()
	h.dispatch(webhook.DispatcherConfig{Observer: w, RequestTimeout: 50 * time.Millisecond})
	h.enqueue(paid(`{}`))
	report := w.next(t)
	assert.Equal(t, webhook.ClassInternal, report.Class)
	assert.Contains(t, report.Error, "authenticate: context deadline exceeded")
	assert.Empty(t, r.Requests())
}

func TestAFaultOfTheEgressProxyIsLoggedAndNotCounted(t *testing.T) {
	t.Parallel()
	ln := httptest.NewServer(nil)
	closed := ln.URL
	ln.Close()
	transport, err := webhook.NewTransport(webhook.TransportConfig{
		Allow:     []webhook.AllowRule{{Prefix: netip.MustParsePrefix("127.0.0.1/32"), Ports: []webhook.PortRange{{From: 1, To: 65535}}}},
		AllowHTTP: true,
		Proxy:     &webhook.EgressProxy{URL: strings.Replace(closed, "://", "://hooks:sesame@", 1)},
	})
	require.NoError(t, err)
	t.Cleanup(transport.CloseIdleConnections)
	h, clock := newClockedHost(t, func(c *webhook.Config) { c.Transport = transport })
	h.endpoint("http://127.0.0.1:1024/in")
	h.dispatch(webhook.DispatcherConfig{})

	d, log := h.attempts(clock, h.enqueue(paid(`{}`)), 1)

	assert.Equal(t, [2]any{webhook.StatePending, 0}, [2]any{d.State, d.Attempts})
	assert.Equal(t, webhook.ClassProxy, log[0].Class)
	assert.NotContains(t, log[0].Error, "sesame")
}

func TestAnAttemptThatOurStopCutShortIsLoggedAndNotCounted(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	arrived := make(chan struct{}, 2)
	var once sync.Once
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		once.Do(func() { <-r.Context().Done() })
	}))
	t.Cleanup(server.Close)
	h.endpoint(server.URL)
	stop := h.dispatch(webhook.DispatcherConfig{GracePeriod: -1})
	event := h.enqueue(paid(`{}`))
	<-arrived
	stop()
	h.dispatch(webhook.DispatcherConfig{})
	d := h.settled(event, 1)[0]

	assert.Equal(t, 1, d.Attempts)
	log, err := h.hooks.Backend().ListAttempts(t.Context(), webhook.AllTenants(), d.ID)
	require.NoError(t, err)
	require.Len(t, log, 2, "the receiver may have seen both")
	assert.Equal(t, [2]webhook.ErrorClass{webhook.ClassCancelled, webhook.ClassNone}, [2]webhook.ErrorClass{log[0].Class, log[1].Class})
	assert.Equal(t, [2]int{1, 1}, [2]int{log[0].Number, log[1].Number})
}

func TestAFormatIsPickedByTheEndpoint(t *testing.T) {
	t.Parallel()
	var hub uuid.UUID
	h := newHost(t, func(c *webhook.Config) {
		c.Signer = webhook.SignerFunc(func(ctx context.Context, h http.Header, in webhook.SignInput) error {
			if in.EndpointID == hub && in.Tenant == "acme" {
				return webhook.GitHubSigner{}.Sign(ctx, h, in)
			}
			return webhook.StandardWebhooks().Sign(ctx, h, in)
		})
	})
	standard, github := webhooktest.NewReceiver(t), webhooktest.NewReceiver(t)
	h.endpoint(standard.URL)
	hub = h.endpoint(github.URL).ID
	h.dispatch(webhook.DispatcherConfig{})
	h.settled(h.enqueue(paid(`{}`)), 2)
	assert.NotEmpty(t, standard.Requests()[0].Header.Get("Webhook-Signature"))
	assert.Empty(t, github.Requests()[0].Header.Get("Webhook-Signature"))
	assert.Contains(t, github.Requests()[0].Header.Get("X-Hub-Signature-256"), "sha256=")
}

func TestASecretThatEndsAtOnceIsWarnedOf(t *testing.T) {
	t.Parallel()
	log := &lockedBuffer{}
	h := newHost(t, func(c *webhook.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	e := h.endpoint(inbox)
	rotate := func(overlap time.Duration) {
		_, err := h.hooks.Endpoints().RotateSecret(t.Context(), webhook.AllTenants(), e.ID, webhook.RotateOptions{Overlap: overlap})
		require.NoError(t, err)
	}
	rotate(time.Hour)
	assert.NotContains(t, log.String(), "WARN")
	rotate(-1)
	assert.Contains(t, log.String(), "level=WARN")
	assert.Contains(t, log.String(), "ended without an overlap")
	assert.Contains(t, log.String(), e.ID.String())
}
