package webhook_test

import (
	"bytes"
	"crypto/sha256"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
)

func answers(status int, body string) webhooktest.Behavior {
	return func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(status)
		_, _ = rw.Write([]byte(body))
	}
}

// attempted delivers one event and returns the delivery's one attempt.
func (h *host) attempted(answer webhooktest.Behavior) webhook.Attempt {
	h.t.Helper()
	receiver := webhooktest.NewReceiver(h.t)
	receiver.Respond(answer)
	h.endpoint(receiver.URL)
	h.dispatch(webhook.DispatcherConfig{Retry: noRetry()})
	d := h.settled(h.enqueue(paid(`{"card":"4111111111111111"}`)), 1)[0]
	attempts, err := h.hooks.Deliveries().Attempts(h.t.Context(), acme, d.ID)
	require.NoError(h.t, err)
	require.Len(h.t, attempts, 1)
	return attempts[0]
}

func TestB01OfAnAnswerAsMuchIsKeptAsTheRulesSay(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("x", 70_000)
	for name, c := range map[string]struct {
		status int
		keep   bool
		bytes  int
	}{
		"a failure": {500, false, 1024}, "a success": {200, false, 64}, "a success, when asked": {200, true, 1024},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, func(cfg *webhook.Config) { cfg.KeepSuccessExcerpts = c.keep })
			a := h.attempted(answers(c.status, body))
			assert.Len(t, a.Excerpt, c.bytes)
			assert.True(t, a.Truncated)
			assert.Equal(t, c.status == 200, len(a.BodyHash) > 0)
		})
	}
}

// B03: bytes that are no text are kept as they came.
func TestB03AnAnswerThatIsNoTextIsKeptByteForByte(t *testing.T) {
	t.Parallel()
	const odd = "caf\xe9\xff\xc3\x00\x00 end"
	h := newHost(t)
	a := h.attempted(answers(200, odd))
	assert.Equal(t, odd, string(a.Excerpt))
	sum := sha256.Sum256([]byte(odd))
	assert.Equal(t, sum[:], a.BodyHash)
}

func TestWhatTheHostDoesNotWantIsNeitherKeptNorShown(t *testing.T) {
	t.Parallel()
	stars := func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("4111111111111111"), []byte("****")) }
	h := newHost(t, func(cfg *webhook.Config) {
		cfg.Redaction = webhook.Redaction{
			Excerpt: func(a webhook.Attempt) []byte { return stars(a.Excerpt) },
			Payload: func(e webhook.EventRecord) []byte { return stars(e.Payload) },
		}
	})
	a := h.attempted(answers(200, "no card 4111111111111111 here"))

	assert.Equal(t, "no card **** here", string(a.Excerpt))
	assert.Empty(t, a.BodyHash, "what was taken out could be guessed")
	e, err := h.hooks.Events().Get(t.Context(), acme, a.EventID)
	require.NoError(t, err)
	assert.JSONEq(t, `{"card":"****"}`, string(e.Payload))
	stored, err := h.hooks.Backend().GetEvent(t.Context(), acme, a.EventID)
	require.NoError(t, err)
	assert.JSONEq(t, `{"card":"4111111111111111"}`, string(stored.Payload), "what is stored is what is sent")
}

func TestARedactionThatPanicsLeavesNothing(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(cfg *webhook.Config) {
		cfg.Redaction = webhook.Redaction{
			Excerpt: func(webhook.Attempt) []byte { panic("no") },
			Payload: func(webhook.EventRecord) []byte { panic("no") },
		}
	})
	a := h.attempted(answers(500, "secret"))
	assert.Empty(t, a.Excerpt)
	e, err := h.hooks.Events().Get(t.Context(), acme, a.EventID)
	require.NoError(t, err)
	assert.Empty(t, e.Payload)
}
