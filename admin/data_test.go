package admin_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

// ids are one of each thing that a tenant has.
type ids struct {
	endpoint, event, delivery, replay uuid.UUID
}

// of returns the id that a parameter of a path or query is about.
func (i ids) of(name string) string {
	switch name {
	case "endpoint_id":
		return i.endpoint.String()
	case "event_id":
		return i.event.String()
	case "delivery_id":
		return i.delivery.String()
	case "replay_id":
		return i.replay.String()
	}
	return ""
}

func unknownIDs() ids {
	id := func() uuid.UUID { return uuid.Must(uuid.NewV7()) }
	return ids{endpoint: id(), event: id(), delivery: id(), replay: id()}
}

// path fills the ids into a path of the document.
func (op apiOperation) at(i ids) string {
	path := op.path
	for _, name := range op.pathParams() {
		path = strings.ReplaceAll(path, "{"+name+"}", i.of(name))
	}
	return path
}

// network is a Transport that answers from memory.
type network struct{}

// The network's hosts: what begins with "dead" answers 500, what begins with "lost"
// cannot be reached, what begins with "hangs" does not answer, all others take what they
// get.
func (network) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasPrefix(r.URL.Host, "hangs") {
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	}
	if strings.HasPrefix(r.URL.Host, "lost") {
		return nil, errors.New("dial tcp 10.1.2.3:443: connection refused")
	}
	status, body := http.StatusOK, "thanks"
	if strings.HasPrefix(r.URL.Host, "dead") {
		status, body = http.StatusInternalServerError, hostileExcerpt
	}
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
	}
	return &http.Response{
		StatusCode: status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader([]byte(body))), Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

const hostileExcerpt = "<script>alert(1)</script>\x00\x1b[2J\xff\xfe"

const secretPayload = `{"n": 12345678901234567890, "n": 2, "s": "<script>"}`

// populate gives a tenant one of each: an endpoint that answers 500, an event whose
// delivery to it is dead after one attempt, and a replay job.
func (w *world) populate(tenant string) ids {
	w.t.Helper()
	e, err := w.hooks.Endpoints().Create(w.t.Context(), webhook.EndpointParams{
		Tenant: tenant, URL: "https://dead." + tenant + ".example/in?token=t0ken", Types: []string{"*"},
		Headers: webhook.Headers{"X-Api-Key": "hunter2"}, Retry: webhook.EndpointRetry{Preset: webhook.RetryPresetNone},
	})
	require.NoError(w.t, err)
	res, err := w.enqueueInTx(w.t.Context(), webhook.Event{Tenant: tenant, Type: "invoice.paid", ResourceID: "in_9", Payload: []byte(secretPayload)})
	require.NoError(w.t, err)
	d := w.deliver(tenant, res.EventID)
	job, err := w.hooks.Replays().Create(w.t.Context(), webhook.TenantScope(tenant), webhook.ReplayJobRequest{EndpointID: e.ID})
	require.NoError(w.t, err)
	_, err = w.store.AddNotices(w.t.Context(), []webhook.NoticeRecord{{
		ID: uuid.Must(uuid.NewV7()), EndpointID: e.ID, Tenant: tenant, Kind: webhook.NoticeFailing,
		Streak: d.CreatedAt, CreatedAt: d.FinishedAt, Detail: []byte(`{"reason":"it answers 500","status":500,"class":"http_5xx"}`),
	}})
	require.NoError(w.t, err)
	return ids{endpoint: e.ID, event: res.EventID, delivery: d.ID, replay: job.ID}
}

// dispatch runs a dispatcher until stop is called.
func (w *world) dispatch() (stop func()) {
	w.t.Helper()
	d, err := w.hooks.NewDispatcher(webhook.DispatcherConfig{PollInterval: 10 * time.Millisecond})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error)
	go func() { done <- d.Run(ctx) }()
	return func() {
		cancel()
		require.NoError(w.t, <-done)
	}
}

// deliver runs a dispatcher until the first delivery of an event is final.
func (w *world) deliver(tenant string, event uuid.UUID) webhook.Delivery {
	w.t.Helper()
	stop := w.dispatch()
	var final webhook.Delivery
	require.Eventually(w.t, func() bool {
		list := w.deliveriesOf(tenant, event)
		if len(list) == 0 || !list[0].State.Final() {
			return false
		}
		final = list[0]
		return true
	}, 20*time.Second, 5*time.Millisecond)
	stop()
	return final
}

func (w *world) deliveriesOf(tenant string, event uuid.UUID) []webhook.Delivery {
	w.t.Helper()
	page, err := w.hooks.Deliveries().List(w.t.Context(), webhook.DeliveryQuery{Scope: webhook.TenantScope(tenant), EventID: event})
	require.NoError(w.t, err)
	return page.Deliveries
}

// bodyFor is a body that an operation takes, about somebody's things.
func (w *world) bodyFor(op apiOperation, i ids) any {
	w.t.Helper()
	if op.doc["requestBody"] == nil {
		return nil
	}
	type m = map[string]any
	bodies := map[string]any{
		"createEndpoint":  m{"url": "https://new.example/in", "types": []string{"order.*"}},
		"updateEndpoint":  m{"description": "changed"},
		"pauseEndpoint":   m{"reason": "maintenance"},
		"disableEndpoint": m{"reason": "abuse"},
		"rotateSecret":    m{"overlap_seconds": 3600},
		"testEndpoint":    m{"type": "invoice.paid"},
		"cancelDelivery":  m{"reason": "wrong"},
		"createReplay":    m{"endpoint_id": i.endpoint},
		"estimateReplay":  m{"endpoint_id": i.endpoint},
		"replayEvent":     m{"endpoint_id": i.endpoint},
		"enqueueEvent":    m{"type": "invoice.paid", "payload": m{"a": 1}},
	}
	body, ok := bodies[op.id]
	require.True(w.t, ok, "the test knows no body for %s", op.id)
	return body
}
