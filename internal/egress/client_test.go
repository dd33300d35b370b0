package egress_test

import (
	"crypto/sha256"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/egress"
)

func TestARequestArrivesAsItWasGiven(t *testing.T) {
	t.Parallel()
	type seen struct {
		method, path, body string
		header             http.Header
	}
	got := make(chan seen, 1)
	srv := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- seen{r.Method, r.URL.RequestURI(), string(b), r.Header}
		_, _ = io.WriteString(w, "ok")
	})
	c := newClient(t, loopback(), egress.TransportConfig{})

	res := c.Do(t.Context(), egress.Request{
		URL:    srv.URL + "/in?token=T0K",
		Body:   []byte(`{"b" : 1}`),
		Header: http.Header{"Content-Type": {"application/json"}, "User-Agent": {"x"}, "Webhook-Id": {"msg_1"}},
	})

	require.True(t, res.OK(), "%v", res.Err)
	r := <-got
	assert.Equal(t, "POST", r.method)
	assert.Equal(t, "/in?token=T0K", r.path)
	assert.Equal(t, `{"b" : 1}`, r.body)
	assert.Equal(t, http.Header{
		"Content-Type": {"application/json"}, "Content-Length": {"9"}, "User-Agent": {"x"}, "Webhook-Id": {"msg_1"},
	}, r.header, "nothing is added to what the caller gave")
	assert.Equal(t, 200, res.Status)
	assert.Equal(t, "ok", string(res.Excerpt))
	sum := sha256.Sum256([]byte("ok"))
	assert.Equal(t, sum[:], res.BodyHash)
	assert.False(t, res.Truncated)
	assert.False(t, res.Reused)
	assert.True(t, res.Sent)
	assert.Positive(t, res.Latency)
	assert.False(t, res.StartedAt.IsZero())
}
