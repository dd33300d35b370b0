package canary_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/canary"
	"github.com/outhook/webhook/webhooktest"
)

func TestACanaryGoesTheRealWay(t *testing.T) {
	t.Parallel()
	transport, err := webhook.NewTransport(webhook.TransportConfig{
		Allow:     []webhook.AllowRule{{Prefix: netip.MustParsePrefix("127.0.0.1/32"), Ports: []webhook.PortRange{{From: 1024, To: 65535}}}},
		AllowHTTP: true,
	})
	require.NoError(t, err)
	store := webhooktest.NewStore()
	hooks, err := webhook.New(store, webhook.Config{Secrets: webhook.InsecurePlaintext(), Transport: transport})
	require.NoError(t, err)
	defer hooks.Close()
	server := httptest.NewUnstartedServer(nil)
	endpoint, err := hooks.Endpoints().Create(t.Context(), canary.Endpoint("operator", "http://"+server.Listener.Addr().String()))
	require.NoError(t, err)
	arrived := make(chan time.Duration, 10)
	receiver, err := canary.NewReceiver(canary.ReceiverConfig{
		Secrets: []string{endpoint.Secret.Reveal()}, OnReceipt: func(age time.Duration) { arrived <- age },
	})
	require.NoError(t, err)
	server.Config.Handler = receiver
	server.Start()
	defer server.Close()
	sender, err := canary.NewSender(canary.SenderConfig{Tenant: "operator", Interval: 20 * time.Millisecond, Enqueue: func(ctx context.Context, e webhook.Event) error {
		tx := store.Begin()
		if _, err := hooks.Enqueue(ctx, tx, e); err != nil {
			tx.Rollback()
			return err
		}
		return tx.Commit()
	}})
	require.NoError(t, err)
	dispatcher, err := hooks.NewDispatcher(webhook.DispatcherConfig{})
	require.NoError(t, err)

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { sender.Run(ctx); ended <- nil }()
	go func() { ended <- dispatcher.Run(ctx) }()
	first, second := <-arrived, <-arrived
	stop()
	require.NoError(t, <-ended)
	require.NoError(t, <-ended)

	assert.GreaterOrEqual(t, first, time.Duration(0))
	assert.GreaterOrEqual(t, second, time.Duration(0))
	received, refused := receiver.Counts()
	assert.GreaterOrEqual(t, received, int64(2))
	assert.Zero(t, refused)
}

func sign(t *testing.T, secret webhook.Secret, now time.Time, body string) *http.Request {
	t.Helper()
	req := httptest.NewRequest(http.MethodPost, "/canary", strings.NewReader(body))
	require.NoError(t, webhook.StandardWebhooks().Sign(t.Context(), req.Header, webhook.SignInput{
		ID: "evt", Time: now, Body: []byte(body), Secrets: []webhook.Secret{secret},
	}))
	return req
}

func TestTheGapGrowsUntilSomethingNewArrives(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	secret := webhook.NewSecret()
	r, err := canary.NewReceiver(canary.ReceiverConfig{Secrets: []string{secret.Reveal()}, Now: func() time.Time { return now }})
	require.NoError(t, err)
	take := func(secret webhook.Secret, body string) int {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, sign(t, secret, now, body))
		return w.Code
	}

	now = now.Add(30 * time.Second)
	assert.Equal(t, 30*time.Second, r.Gap(), "nothing has arrived yet")
	assert.Equal(t, 204, take(secret, `{"number":1,"sent_at":"2026-01-31T12:00:28Z"}`))
	assert.Equal(t, 2*time.Second, r.Gap())
	now = now.Add(time.Minute)
	assert.Equal(t, 204, take(secret, `{"number":0,"sent_at":"2026-01-31T11:00:00Z"}`))
	assert.Equal(t, 62*time.Second, r.Gap(), "an old one says that the way was open long ago")
	assert.Equal(t, 401, take(webhook.NewSecret(), `{"number":2,"sent_at":"2026-01-31T12:01:30Z"}`))
	assert.Equal(t, 422, take(secret, `{}`))
	assert.Equal(t, 62*time.Second, r.Gap())

	received, refused := r.Counts()
	assert.Equal(t, []int64{2, 1}, []int64{received, refused})
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/canary", nil))
	assert.Equal(t, "receipt gap 1m2s\n", w.Body.String())
	assert.NotContains(t, r.String(), secret.Reveal())
}

func TestASenderGoesOnAfterAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var sent atomic.Int64
		s, err := canary.NewSender(canary.SenderConfig{
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Enqueue: func(context.Context, webhook.Event) error {
				if sent.Add(1) == 1 {
					return errors.New("the database is away")
				}
				return nil
			},
		})
		require.NoError(t, err)
		ctx, stop := context.WithTimeout(t.Context(), 3*canary.DefaultInterval+time.Second)
		defer stop()

		s.Run(ctx)

		assert.Equal(t, int64(4), sent.Load(), "at once, and at every interval")
		assert.Contains(t, log.String(), "the database is away")
	})
}

func TestABadConfigIsRefused(t *testing.T) {
	t.Parallel()
	enqueue := func(context.Context, webhook.Event) error { return nil }
	_, err := canary.NewSender(canary.SenderConfig{})
	require.ErrorContains(t, err, "Enqueue")
	_, err = canary.NewSender(canary.SenderConfig{Enqueue: enqueue, Interval: -1})
	require.ErrorContains(t, err, "Interval")
	_, err = canary.NewReceiver(canary.ReceiverConfig{})
	require.ErrorContains(t, err, "Secrets")
}
