package webhook_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

// world is a host in the virtual time of a synctest bubble, with receivers that are
// functions: days pass at once, and nothing depends on the machine's speed.
type world struct {
	*host

	log *logBuffer
	box *switchBox // of the endpoints' secrets

	mu      sync.Mutex
	receive func(*http.Request) (*http.Response, error)
	asked   []request
}

// request is one that a receiver got.
type request struct {
	at     time.Time
	host   string
	header http.Header
	body   string
}

// inVirtualTime runs a test in a bubble, with a world in it.
func inVirtualTime(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{log: new(logBuffer), box: &switchBox{SecretBox: webhook.NewKeyring(webhook.NewKey("test"))}}
		w.answer(status(http.StatusOK))
		w.host = newHost(t, func(c *webhook.Config) {
			c.Transport = loopback(t).Wrap(func(http.RoundTripper) http.RoundTripper { return w })
			c.Secrets = w.box
			c.Logger = slog.New(slog.NewTextHandler(w.log, nil))
		})
		test(t, w)
	})
}

// RoundTrip implements [http.RoundTripper].
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.asked = append(w.asked, request{at: time.Now(), host: r.URL.Host, header: r.Header, body: string(body)})
	receive := w.receive
	w.mu.Unlock()
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	return receive(r)
}

// answer sets what receivers do from now on.
func (w *world) answer(receive func(*http.Request) (*http.Response, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.receive = receive
}

// requests returns those that came so far.
func (w *world) requests() []request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]request(nil), w.asked...)
}

// times returns when requests came, counted from a time.
func (w *world) times(from time.Time) []time.Duration {
	var times []time.Duration
	for _, r := range w.requests() {
		times = append(times, r.at.Sub(from))
	}
	return times
}

// status answers with a status, and headers given in pairs.
func status(code int, header ...string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		h := http.Header{}
		for i := 0; i+1 < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(bytes.NewReader(nil)), Request: r}, nil
	}
}

// hangs answers nothing until the sender gives up.
func hangs(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
}

// failBodies makes receivers fail for a body, while what is returned is set.
func (w *world) failBodies(body string) *atomic.Bool {
	failing := new(atomic.Bool)
	failing.Store(true)
	w.answer(func(r *http.Request) (*http.Response, error) {
		got, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		if failing.Load() && string(got) == body {
			return status(http.StatusInternalServerError)(r)
		}
		return status(http.StatusOK)(r)
	})
	return failing
}

const someURL = "https://hooks.example/in"

// seldom is a dispatcher that looks around seldom, so that days are cheap, and whose
// circuits never open.
func seldom() webhook.DispatcherConfig {
	return webhook.DispatcherConfig{
		Breaker:           webhook.BreakerConfig{ConsecutiveFailures: -1},
		HeartbeatInterval: 5 * time.Minute,
		Lease:             time.Hour,
		PollInterval:      10 * time.Minute,
	}
}

// delivery returns the only delivery of an event.
func (w *world) delivery(event uuid.UUID) webhook.Delivery {
	w.t.Helper()
	list := w.deliveries(event)
	require.Len(w.t, list, 1)
	return list[0]
}

// deliveries returns those of an event, the newest first.
func (w *world) deliveries(event uuid.UUID) []webhook.Delivery {
	w.t.Helper()
	synctest.Wait()
	page, err := w.hooks.Deliveries().List(w.t.Context(), webhook.DeliveryQuery{Scope: webhook.AllTenants(), EventID: event})
	require.NoError(w.t, err)
	return page.Deliveries
}

func (w *world) attempts(delivery uuid.UUID) []webhook.Attempt {
	w.t.Helper()
	list, err := w.hooks.Deliveries().Attempts(w.t.Context(), webhook.AllTenants(), delivery)
	require.NoError(w.t, err)
	return list
}

// logBuffer keeps what is logged.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements [io.Writer].
func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns all of it.
func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
