package egress_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/egress"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func respond(status int, body io.ReadCloser) (*http.Response, error) {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: body, ContentLength: -1}, nil
}

type slowBody struct {
	ctx    context.Context
	closed chan struct{}
}

func (b slowBody) Read([]byte) (int, error) { <-b.ctx.Done(); return 0, context.Cause(b.ctx) }
func (b slowBody) Close() error             { close(b.closed); return nil }

func TestAReplacedTransportKeepsRulesLimitsAndClasses(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	big := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		rt     roundTrip
		url    string
		class  egress.Class
		status int
	}{
		"answers":      {func(*http.Request) (*http.Response, error) { return respond(200, http.NoBody) }, "", "", 200},
		"answers much": {func(*http.Request) (*http.Response, error) { return respond(500, io.NopCloser(strings.NewReader(big))) }, "", egress.ClassHTTP5xx, 500},
		"refused URL":  {func(*http.Request) (*http.Response, error) { panic("not reached") }, "http://u:p@h.example/", egress.ClassBlocked, 0},
		"fails":        {func(*http.Request) (*http.Response, error) { return nil, errors.New("x") }, "", egress.ClassProtocol, 0},
		"hangs":        {func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() }, "", egress.ClassTimeout, 0},
		"hangs in the body": {func(r *http.Request) (*http.Response, error) {
			return respond(200, slowBody{r.Context(), closed})
		}, "", "", 200},
		"returns nothing":      {func(*http.Request) (*http.Response, error) { return nil, nil }, "", egress.ClassProtocol, 0},
		"returns no body":      {func(*http.Request) (*http.Response, error) { return respond(200, nil) }, "", egress.ClassProtocol, 0},
		"returns both":         {func(*http.Request) (*http.Response, error) { r, _ := respond(200, http.NoBody); return r, io.EOF }, "", egress.ClassReset, 0},
		"follows no redirects": {func(*http.Request) (*http.Response, error) { return respond(307, http.NoBody) }, "", egress.ClassRedirect, 307},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cl, err := egress.NewClient(egress.ClientConfig{Guard: newGuard(t, withHTTP()), Transport: c.rt, BodyTimeout: limit})
			require.NoError(t, err)
			url := c.url
			if url == "" {
				url = "https://hooks.example/in"
			}
			start := time.Now()
			res := cl.Do(t.Context(), egress.Request{URL: url, Body: []byte("{}"), Timeout: limit})
			assert.Less(t, time.Since(start), limit+late)
			assert.Equal(t, c.class, res.Class, "%v", res.Err)
			assert.Equal(t, c.status, res.Status)
			assert.LessOrEqual(t, len(res.Excerpt), 1024)
		})
	}
	t.Cleanup(func() { <-closed }) // the body is closed in any case
}

func TestTLSOptionsReachATransportThatIsWrapped(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	srv := secure(t, nil, ok)
	srv.TLS.Certificates[0] = ca.certificate(t, soon, "h.test")
	inner := newTransport(t, loopback(), egress.TransportConfig{Resolver: always("127.0.0.1")})
	wrapped := roundTrip(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context()) // as instrumentation does
		r.Header.Set("Traceparent", "00-x")
		return inner.RoundTrip(r)
	})
	c, err := egress.NewClient(egress.ClientConfig{Guard: inner.Guard(), Transport: wrapped})
	require.NoError(t, err)
	o, err := egress.NewTLSOptions(nil, nil, ca.pem)
	require.NoError(t, err)
	url := "https://h.test:" + port(t, srv) + "/"
	res := c.Do(t.Context(), egress.Request{URL: url, TLS: o})
	assert.True(t, res.OK(), "%v", res.Err)
	res = c.Do(t.Context(), egress.Request{URL: url, TLS: o})
	assert.True(t, res.Reused)
	assert.Equal(t, egress.ClassTLS, post(t, c, url).Class)
}

func TestTheCallersHeadersAreNotChanged(t *testing.T) {
	t.Parallel()
	c := newClient(t, loopback(), egress.TransportConfig{})
	h := http.Header{"A": {"b"}}
	res := c.Do(t.Context(), egress.Request{URL: answer(t, 200, "").URL, Header: h})
	require.True(t, res.OK())
	assert.Equal(t, http.Header{"A": {"b"}}, h)
}

func TestTimeLimitsHaveDefaultsAndACeiling(t *testing.T) {
	t.Parallel()
	var left time.Duration
	rt := roundTrip(func(r *http.Request) (*http.Response, error) {
		d, _ := r.Context().Deadline()
		left = time.Until(d)
		return respond(204, http.NoBody)
	})
	c, err := egress.NewClient(egress.ClientConfig{Guard: newGuard(t, egress.Policy{}), Transport: rt})
	require.NoError(t, err)
	for asked, want := range map[time.Duration]time.Duration{0: 10 * time.Second, -1: 10 * time.Second, time.Hour: 30 * time.Second, time.Second: time.Second} {
		c.Do(t.Context(), egress.Request{URL: "https://hooks.example/", Timeout: asked})
		assert.InDelta(t, want.Seconds(), left.Seconds(), 0.5)
	}
}

func TestClientsAndTransportsThatAreRefused(t *testing.T) {
	t.Parallel()
	nobody := roundTrip(func(*http.Request) (*http.Response, error) { return nil, io.EOF })
	g := newGuard(t, egress.Policy{})
	for text, cfg := range map[string]egress.ClientConfig{
		"Guard is required":     {Transport: nobody},
		"Transport is required": {Guard: g},
		"Timeout is -1ns":       {Guard: g, Transport: nobody, Timeout: -1},
		"BodyTimeout is 11m0s":  {Guard: g, Transport: nobody, BodyTimeout: 11 * time.Minute},
	} {
		_, err := egress.NewClient(cfg)
		assert.ErrorContains(t, err, text)
	}
	for text, cfg := range map[string]egress.TransportConfig{
		"ConnectTimeout is -1ns":                       {ConnectTimeout: -1},
		"IdleTimeout is 1h1m0s":                        {IdleTimeout: 61 * time.Minute},
		"MaxHeaderBytes is -1":                         {MaxHeaderBytes: -1},
		"MaxHeaderBytes is 1048577: want 0 to 1048576": {MaxHeaderBytes: 1<<20 + 1},
		"MaxIdlePerTarget is -1":                       {MaxIdlePerTarget: -1},
	} {
		_, err := egress.NewTransport(g, cfg)
		assert.ErrorContains(t, err, text)
	}
	_, err := egress.NewTransport(nil, egress.TransportConfig{})
	assert.ErrorContains(t, err, "a guard is required")
}
