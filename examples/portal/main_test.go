package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/webhooktest"
)

// visitor is a browser with its cookies.
type visitor struct {
	t      *testing.T
	client *http.Client
	base   string
}

func (v *visitor) do(method, path string, form url.Values) (status int, body string) {
	v.t.Helper()
	request, err := http.NewRequestWithContext(v.t.Context(), method, v.base+path, nil)
	require.NoError(v.t, err)
	if form != nil {
		request.URL.RawQuery = form.Encode() // FormValue reads it there as well
	}
	response, err := v.client.Do(request)
	require.NoError(v.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(v.t, err)
	return response.StatusCode, string(text)
}

func TestEachSeesWhatIsTheirs(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h, err := newHost(t.Context(), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer h.close()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.serve(ctx, listener) }()

	visit := func(name string) *visitor {
		jar, err := cookiejar.New(nil)
		require.NoError(t, err)
		v := &visitor{t: t, client: &http.Client{Jar: jar}, base: "http://" + listener.Addr().String()}
		if name != "" {
			status, _ := v.do("POST", "/login", url.Values{"user": {name}})
			require.Equal(t, http.StatusOK, status)
		}
		return v
	}
	receiver := webhooktest.NewReceiver(t)
	zoe, gus, olga, nobody := visit("zoe@acme.example"), visit("gus@globex.example"), visit("olga@host.example"), visit("")

	created, err := zoe.client.PostForm(zoe.base+"/settings/webhooks/endpoints/new", url.Values{"url": {receiver.URL + "/in"}, "type": {"order.created"}})
	require.NoError(t, err)
	created.Body.Close()
	require.Equal(t, http.StatusCreated, created.StatusCode)
	status, body := zoe.do("POST", "/orders", nil)
	require.Equal(t, http.StatusOK, status)
	assert.Contains(t, body, "Deliveries")
	receiver.RequireRequests(t, 1, 30*time.Second)

	_, body = zoe.do("GET", "/settings/webhooks/endpoints", nil)
	assert.Contains(t, body, receiver.URL)
	_, body = olga.do("GET", "/admin/webhooks/endpoints", nil)
	assert.Contains(t, body, receiver.URL)
	_, body = gus.do("GET", "/settings/webhooks/endpoints", nil)
	assert.NotContains(t, body, receiver.URL)
	status, _ = zoe.do("GET", "/admin/webhooks/", nil)
	assert.Equal(t, http.StatusForbidden, status)
	status, _ = olga.do("GET", "/settings/webhooks/", nil)
	assert.Equal(t, http.StatusForbidden, status)
	_, body = nobody.do("GET", "/settings/webhooks/", nil)
	assert.Contains(t, body, "Log in")

	stop()
	require.NoError(t, <-done)
}
