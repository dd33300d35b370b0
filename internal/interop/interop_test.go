package interop

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/verify"
)

// bodies are what serialisers and proxies like to change.
var bodies = [][]byte{
	[]byte(`{"test": 2432232314}`),
	[]byte("{\"a\" : 1,\n \"a\":\"é\\/\", \"n\":12345678901234567890}\n"),
	[]byte("\x00\xff\xfe not JSON"),
	[]byte(" "),
	nil,
}

const id = "msg_p5jXN8AQM9LWM0D4loKWxJek"

func sign(t *testing.T, at time.Time, body []byte, secrets ...webhook.Secret) http.Header {
	t.Helper()
	h := make(http.Header)
	err := webhook.StandardWebhooks().Sign(t.Context(), h, webhook.SignInput{ID: id, Time: at, Body: body, Secrets: secrets})
	require.NoError(t, err)
	return h
}

func theirs(t *testing.T, secret webhook.Secret) *standardwebhooks.Webhook {
	t.Helper()
	w, err := standardwebhooks.NewWebhook(secret.Reveal())
	require.NoError(t, err)
	return w
}

func TestTheirReceiverAcceptsWhatWeSend(t *testing.T) {
	t.Parallel()
	for _, body := range bodies {
		secret := webhook.NewSecret()
		h := sign(t, time.Now(), body, secret)
		require.NoError(t, theirs(t, secret).Verify(body, h))
		require.Error(t, theirs(t, secret).Verify(append([]byte("x"), body...), h))
		require.Error(t, theirs(t, webhook.NewSecret()).Verify(body, h))
	}
}

func TestTheirReceiverFollowsOurRotations(t *testing.T) {
	t.Parallel()
	secrets := []webhook.Secret{webhook.NewSecret(), webhook.NewSigningKey(), webhook.NewSecret(), webhook.NewSecret()}
	h := sign(t, time.Now(), bodies[0], secrets...)
	for i, secret := range secrets {
		if secret.PublicKey() != "" {
			continue // their library has no ed25519
		}
		assert.NoError(t, theirs(t, secret).Verify(bodies[0], h), "secret %d", i)
	}
}

func TestOurReceiverAcceptsWhatTheySend(t *testing.T) {
	t.Parallel()
	for _, body := range bodies {
		secret := webhook.NewSecret()
		now := time.Now()
		signature, err := theirs(t, secret).Sign(id, now, body)
		require.NoError(t, err)
		h := http.Header{}
		h.Set(standardwebhooks.HeaderWebhookID, id)
		h.Set(standardwebhooks.HeaderWebhookTimestamp, fmt.Sprint(now.Unix()))
		h.Set(standardwebhooks.HeaderWebhookSignature, signature)

		_, err = verify.Payload(h, body, secret.Reveal())
		require.NoError(t, err)
		_, err = verify.Payload(h, body, webhook.NewSecret().Reveal())
		require.ErrorIs(t, err, verify.ErrMismatch)
		assert.Equal(t, h, sign(t, now, body, secret), "the same headers, to the byte")
	}
}

func TestBothReceiversDrawTheLineAtFiveMinutes(t *testing.T) {
	t.Parallel()
	secret := webhook.NewSecret()
	for offset, ok := range map[time.Duration]bool{
		-time.Hour: false, -6 * time.Minute: false, -4 * time.Minute: true, 0: true, 4 * time.Minute: true, 6 * time.Minute: false, time.Hour: false,
	} {
		h := sign(t, time.Now().Add(offset), bodies[0], secret)
		_, ours := verify.Payload(h, bodies[0], secret.Reveal())
		assert.Equal(t, ok, ours == nil, "ours, %v", offset)
		assert.Equal(t, ok, theirs(t, secret).Verify(bodies[0], h) == nil, "theirs, %v", offset)
	}
}

func TestBothReadTheSameKeyFromASecret(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
		"whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "whsec_+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/",
	} {
		secret, err := webhook.ParseSecret(text)
		require.NoError(t, err)
		w, err := standardwebhooks.NewWebhook(text)
		require.NoError(t, err)
		require.NoError(t, w.Verify(bodies[0], sign(t, time.Now(), bodies[0], secret)))
	}
}
