package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/pgtest"
	"github.com/outhook/webhook/verify"
)

func TestAPaidOrderReachesTheCustomer(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	transport, err := webhook.NewTransport(webhook.TransportConfig{
		Allow: []webhook.AllowRule{{
			Prefix: netip.MustParsePrefix("127.0.0.1/32"),
			Ports:  []webhook.PortRange{{From: 1024, To: 65535}},
		}},
		AllowHTTP: true,
	})
	require.NoError(t, err)

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- serve(ctx, pool, listener, webhook.Config{
			Secrets:   webhook.NewKeyring(webhook.NewKey("test")),
			Transport: transport,
		})
	}()
	base := "http://" + listener.Addr().String()

	got := make(chan string, 10)
	receiver := httptest.NewUnstartedServer(nil)
	endpoint := post(t, base+"/endpoints", `{"tenant":"acme","url":"http://`+receiver.Listener.Addr().String()+`/in"}`)
	receiver.Config.Handler = verify.Middleware(endpoint["secret"].(string))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.Header.Get("webhook-id") + " " + string(body)
	}))
	receiver.Start()
	defer receiver.Close()

	post(t, base+"/orders", `{"tenant":"acme","id":"o_1","amount":4200}`)
	paid := post(t, base+"/orders/o_1/pay", ``)
	again := post(t, base+"/orders/o_1/pay", ``)

	assert.Equal(t, paid["event"].(string)+` {"id":"o_1","tenant":"acme","amount":4200}`, <-got)
	assert.Equal(t, paid["event"], again["event"], "paying twice tells once")
	assert.Equal(t, true, again["duplicate"])
	stop()
	require.NoError(t, <-ended)
	assert.Empty(t, got)
}

func post(t *testing.T, url, body string) map[string]any {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	var answer map[string]any
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&answer))
	require.Less(t, resp.StatusCode, 300, "%v", answer)
	return answer
}
