package webhook

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/outhook/webhook/internal/egress"
)

func TestCredentialsThatAReceiverEchoesAreNotKept(t *testing.T) {
	t.Parallel()
	sent := http.Header{
		"Authorization": {"Bearer open-sesame-7f3d"},
		"X-Api-Key":     {"sk_live_1234567890"},
		"X-Team":        {"blue"},
		"Content-Type":  {"application/json"},
	}
	for text, want := range map[string]string{
		"":                         "",
		"blue application/json":    "blue application/json",
		"Bearer open-sesame-7f3d.": "[redacted].",
		`{"token":"open-sesame-7f3d","x":"sk_live_1234567890 sk_live_1234567890"}`: `{"token":"[redacted]","x":"[redacted] [redacted]"}`,
	} {
		res := egress.Result{Excerpt: []byte(text), Location: text}
		scrub(&res, sent)
		assert.Equal(t, want, string(res.Excerpt))
		assert.Equal(t, want, res.Location)
	}
	cut := egress.Result{Excerpt: []byte("key sk_live_12345"), Truncated: true}
	scrub(&cut, sent)
	assert.Equal(t, "key [redacted]", string(cut.Excerpt))
}
