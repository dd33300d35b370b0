package crash_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/verify"
	"github.com/outhook/webhook/webhooktest"
)

// target is a customer's receiver that keeps a ledger of its own, verifies what it
// gets, and misbehaves when it is told to.
type target struct {
	crowd crowd

	t  *soak
	id uuid.UUID

	mu        sync.Mutex // protects everything below
	behavior  webhooktest.Behavior
	until     time.Time // of the behavior
	verifier  *verify.Verifier
	secrets   []string
	accepted  map[uuid.UUID]int // orders that were answered with 2xx, and how often
	arrived   map[uuid.UUID]bool
	ordered   bool
	newest    map[string]int64 // version that arrived, by resource
	overtaken int              // versions that arrived after a newer one, for the first time
	unsigned  int
}

// newTarget makes a receiver and its endpoint. Every other one wants the events of a
// resource in order.
func (s *soak) newTarget(tenant string, ordered bool) *target {
	t := &target{
		t: s, accepted: map[uuid.UUID]int{}, arrived: map[uuid.UUID]bool{},
		ordered: ordered, newest: map[string]int64{},
	}
	ordering := webhook.OrderingNone
	if ordered {
		ordering = webhook.OrderingPerResource
	}
	srv := httptest.NewServer(t)
	s.w.t.Cleanup(srv.Close)
	e, err := s.w.host.endpoints.Create(s.w.t.Context(), webhook.EndpointParams{
		Tenant: tenant, URL: srv.URL, Types: []string{"*"}, MaxInFlight: soakCap, Ordering: ordering,
	})
	require.NoError(s.w.t, err)
	t.id = e.ID
	t.accept(e.Secret)
	return t
}

// accept makes the receiver take one more secret.
func (t *target) accept(secret webhook.Secret) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.secrets = append(t.secrets, secret.Reveal())
	v, err := verify.New(verify.Config{Secrets: t.secrets})
	require.NoError(t.t.w.t, err)
	t.verifier = v
}

// misbehave lets the receiver answer otherwise for a while.
func (t *target) misbehave(b webhooktest.Behavior, d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.behavior, t.until = b, time.Now().Add(d)
}

func (t *target) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender died while it wrote
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var payload struct {
		Order    uuid.UUID `json:"order"`
		Resource string    `json:"resource"`
		Version  int64     `json:"version"`
	}

	t.crowd.enter(r)
	defer t.crowd.leave()
	t.mu.Lock()
	if _, err := t.verifier.Payload(r.Header, body); err != nil || json.Unmarshal(body, &payload) != nil {
		t.unsigned++
	}
	if !t.arrived[payload.Order] && payload.Version < t.newest[payload.Resource] {
		t.overtaken++
	}
	t.arrived[payload.Order] = true
	t.newest[payload.Resource] = max(t.newest[payload.Resource], payload.Version)
	behavior := t.behavior
	if time.Now().After(t.until) {
		behavior = webhooktest.Delay(5*time.Millisecond, webhooktest.Status(http.StatusOK))
	}
	t.mu.Unlock()

	answer := &statusWriter{ResponseWriter: rw}
	defer func() { // a behavior may end in http.ErrAbortHandler
		t.mu.Lock()
		defer t.mu.Unlock()
		if answer.status/100 == 2 {
			t.accepted[payload.Order]++
		}
	}()
	behavior(answer, r)
}

// statusWriter remembers the status.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets behaviors take the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
