package webhook_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
)

// lockedBuffer collects a log.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func TestB41B53NothingThatIsEmittedHoldsASecret(t *testing.T) {
	t.Parallel()
	log := &lockedBuffer{}
	h := newHost(t, func(c *webhook.Config) {
		c.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug, AddSource: true}))
	})
	w := newWatcher()
	closed := webhooktest.NewReceiver(t)
	closed.Close()
	answers := map[string]webhooktest.Behavior{
		"fine":      webhooktest.Status(200),
		"failing":   webhooktest.Status(500),
		"redirects": webhooktest.Redirect(302, "/elsewhere"),
		"resets":    webhooktest.Reset(),
		"not HTTP":  webhooktest.Raw([]byte("SSH-2.0\r\n")),
		"gone":      webhooktest.Status(410),
	}
	urls := map[string]string{"closed": closed.URL}
	received := map[string]*webhooktest.Receiver{}
	for name, answer := range answers {
		received[name] = webhooktest.NewReceiver(t)
		received[name].Respond(answer)
		urls[name] = received[name].URL
	}

	const header, token, query = "hdr-4f9a1c", "T0K-9c1b", "?token=T0K-9c1b"
	secrets := []string{header, token}
	var ids []uuid.UUID
	for name, url := range urls {
		ep := h.endpoint(url+"/in"+query, func(p *webhook.EndpointParams) {
			p.Tenant = name
			p.Headers = map[string]string{"X-Api-Key": header}
		})
		rotated, err := h.hooks.Endpoints().RotateSecret(t.Context(), webhook.AllTenants(), ep.ID, webhook.RotateOptions{})
		require.NoError(t, err)
		secrets = append(secrets, ep.Secret.Reveal(), rotated.Secret.Reveal())
		ids = append(ids, ep.ID)
	}
	h.dispatch(webhook.DispatcherConfig{Observer: w, Retry: webhook.RetrySchedule{Delays: []time.Duration{0}}})
	emitted := &strings.Builder{}
	const payload = "payload-77d1"
	for name := range urls {
		id := h.enqueue(webhook.Event{Tenant: name, Type: "a", Payload: []byte(`{"p":"` + payload + `"}`)})
		for _, d := range h.settled(id, 1) {
			fmt.Fprintf(emitted, "%+v\n", d)
		}
		for _, a := range h.attemptsOf(id) {
			fmt.Fprintf(emitted, "%+v %s\n", a, a.Error)
		}
	}
	for len(w.reports) > 0 {
		fmt.Fprintf(emitted, "%+v\n", w.next(t))
	}
	for _, id := range ids {
		ep, err := h.hooks.Endpoints().Get(t.Context(), webhook.AllTenants(), id)
		require.NoError(t, err)
		fmt.Fprintf(emitted, "%+v %#v\n", ep, ep)
		ep.URL = "" // its owner sees it
		asJSON, err := json.Marshal(any(ep))
		require.NoError(t, err)
		fmt.Fprintf(emitted, "%s\n", asJSON)
	}
	_, err := h.hooks.Endpoints().Create(t.Context(), webhook.EndpointParams{
		Tenant: "acme", URL: "http://user:p%40ss@127.0.0.1:8080/hook?token=" + token, Types: []string{"*"},
	})
	if err != nil {
		emitted.WriteString(err.Error())
	}
	h.enqueue(paid(`{}`)) // whatever the last one does
	emitted.WriteString(log.String())

	text := emitted.String()
	require.Contains(t, text, "http_5xx", "it was a busy run")
	for _, secret := range append(secrets, payload, "p@ss", "p%40ss") {
		for _, form := range formsOf(secret) {
			assert.NotContains(t, text, form)
		}
	}
	// Nor do the headers of requests hold a secret in any form.
	for name, r := range received {
		for _, got := range r.Requests() {
			assert.Equal(t, "/in"+query, got.Path, "the query is sent")
			got.Header.Del("X-Api-Key")
			sent := fmt.Sprint(got.Header)
			for _, secret := range secrets[2:] {
				for _, form := range formsOf(secret) {
					assert.NotContains(t, sent, form, name)
				}
			}
		}
	}
}

// formsOf lists how a secret might be written.
func formsOf(secret string) []string {
	forms := []string{secret}
	raw := [][]byte{[]byte(secret)}
	if text, ok := strings.CutPrefix(secret, "whsec_"); ok {
		key, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			panic(err)
		}
		forms = append(forms, text, string(key))
		raw = append(raw, []byte(text), key)
	}
	for _, b := range raw {
		forms = append(forms,
			base64.StdEncoding.EncodeToString(b), base64.RawURLEncoding.EncodeToString(b),
			hex.EncodeToString(b), strings.ToUpper(hex.EncodeToString(b)),
			url.QueryEscape(string(b)), fmt.Sprint(b), strings.Trim(fmt.Sprintf("%q", b), `"`))
	}
	return forms
}
