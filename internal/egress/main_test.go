package egress_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outhook/webhook/internal/egress"
)

// The receivers of these tests say what they like, and nothing of it may reach the
// standard logger, into which net/http writes.
func TestMain(m *testing.M) {
	log.SetOutput(&logged)
	// Most tests wait for time limits, not for a processor.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if text := logged.String(); strings.Contains(text, "nsolicited") {
			fmt.Fprintln(os.Stderr, "FAIL: net/http printed what a peer sent unasked:\n"+text)
			code = 1
		}
		os.Exit(code)
	}))
}

var logged lockedBuffer

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

// loopback is the policy under which tests reach their own receivers.
func loopback() egress.Policy {
	return egress.Policy{
		Allow: []egress.AllowRule{
			{Prefix: netip.MustParsePrefix("127.0.0.0/8"), Ports: anyPort, Excerpts: true},
			{Prefix: netip.MustParsePrefix("::1/128"), Ports: anyPort, Excerpts: true},
		},
		Schemes: []string{"https", "http"},
	}
}

var anyPort = []egress.PortRange{{From: 1, To: 65535}}

func newGuard(t testing.TB, p egress.Policy) *egress.Guard {
	t.Helper()
	g, err := egress.NewGuard(p)
	require.NoError(t, err)
	return g
}

func newTransport(t testing.TB, p egress.Policy, cfg egress.TransportConfig) *egress.Transport {
	t.Helper()
	tr, err := egress.NewTransport(newGuard(t, p), cfg)
	require.NoError(t, err)
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

func newClient(t testing.TB, p egress.Policy, cfg egress.TransportConfig) *egress.Client {
	t.Helper()
	tr := newTransport(t, p, cfg)
	c, err := egress.NewClient(egress.ClientConfig{Guard: tr.Guard(), Transport: tr})
	require.NoError(t, err)
	return c
}

// receiver serves h on loopback.
func receiver(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv
}

// answer is a receiver that reads the request and answers with status and body.
func answer(t testing.TB, status int, body string) *httptest.Server {
	t.Helper()
	return receiver(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
}

// names is a resolver that answers from a function of the name and of how often it
// was asked before.
type names func(host string, asked int) ([]netip.Addr, error)

type fakeResolver struct {
	answer names
	asked  map[string]int
	lock   chan struct{}
}

func resolver(f names) *fakeResolver {
	return &fakeResolver{answer: f, asked: map[string]int{}, lock: make(chan struct{}, 1)}
}

func (r *fakeResolver) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	host = strings.TrimSuffix(host, ".")
	r.lock <- struct{}{}
	n := r.asked[host]
	r.asked[host]++
	<-r.lock
	return r.answer(host, n)
}

// always answers every name with the same addresses.
func always(list ...string) *fakeResolver {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return resolver(func(string, int) ([]netip.Addr, error) { return out, nil })
}

func port(t testing.TB, srv *httptest.Server) string {
	t.Helper()
	_, p, err := net.SplitHostPort(srv.Listener.Addr().String())
	require.NoError(t, err)
	return p
}

// post sends one small event to url.
func post(t testing.TB, c *egress.Client, url string) egress.Result {
	t.Helper()
	return c.Do(t.Context(), egress.Request{URL: url, Body: []byte(`{"a":1}`), Header: http.Header{"Content-Type": {"application/json"}}, Timeout: 5 * time.Second})
}
