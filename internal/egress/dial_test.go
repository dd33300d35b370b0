package egress_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/egress"
)

// trap is a listener that nobody may connect to.
type trap struct {
	port  string
	count atomic.Int32
}

// trapAt listens on addr, "127.0.0.1:port", and counts connections. It returns nil if
// the port is taken.
func trapAt(t testing.TB, addr string) *trap {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil
	}
	tr := &trap{}
	_, tr.port, err = net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			tr.count.Add(1)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	return tr
}

// publicAndTrap starts a receiver on 127.0.0.2, which stands for a public address, and
// a trap on the same port of 127.0.0.1.
func publicAndTrap(t testing.TB, h http.HandlerFunc) (*httptest.Server, *trap) {
	t.Helper()
	for range 20 {
		ln, err := net.Listen("tcp", "127.0.0.2:0")
		require.NoError(t, err)
		srv := httptest.NewUnstartedServer(h)
		_ = srv.Listener.Close()
		srv.Listener = ln
		tr := trapAt(t, "127.0.0.1:"+port(t, srv))
		if tr == nil {
			_ = ln.Close()
			continue
		}
		srv.Start()
		t.Cleanup(srv.Close)
		return srv, tr
	}
	t.Fatal("no port is free on both addresses")
	return nil, nil
}

// public is a policy under which 127.0.0.2 is the public network.
func public() egress.Policy {
	return egress.Policy{
		Allow:   []egress.AllowRule{{Prefix: netip.MustParsePrefix("127.0.0.2/32"), Ports: anyPort, Excerpts: true}},
		Schemes: []string{"https", "http"},
	}
}

func ok(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	_, _ = io.WriteString(w, "ok")
}

func TestA26ANameThatLeadsInsideIsRefusedAtDelivery(t *testing.T) {
	t.Parallel()
	for _, ips := range [][]string{{"127.0.0.1"}, {"::1"}, {"::ffff:127.0.0.1"}, {"10.0.0.1", "127.0.0.1"}, {"169.254.169.254"}, {"0.0.0.0"}, {"::"}} {
		inside := trapAt(t, "127.0.0.1:0")
		c := newClient(t, withHTTP(), egress.TransportConfig{Resolver: always(ips...)})
		_, err := c.Guard().CheckURL("http://hooks.example:" + inside.port + "/")
		require.NoError(t, err, "registration passes: names are not resolved there")

		res := post(t, c, "http://hooks.example:"+inside.port+"/")

		assert.Equal(t, egress.ClassBlocked, res.Class, "%v: %v", ips, res.Err)
		assert.False(t, res.Sent)
		assert.Zero(t, inside.count.Load())
	}
}

func TestA27B27AReboundNameIsRefused(t *testing.T) {
	t.Parallel()
	srv, inside := publicAndTrap(t, ok)
	dns := resolver(func(_ string, asked int) ([]netip.Addr, error) {
		if asked == 0 {
			return []netip.Addr{netip.MustParseAddr("127.0.0.2")}, nil
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	})
	tr := newTransport(t, public(), egress.TransportConfig{Resolver: dns})
	c, err := egress.NewClient(egress.ClientConfig{Guard: tr.Guard(), Transport: tr})
	require.NoError(t, err)
	url := "http://rebind.example:" + port(t, srv) + "/"

	first := post(t, c, url)
	require.True(t, first.OK(), "%v", first.Err)
	pooled := post(t, c, url)
	assert.True(t, pooled.OK(), "a pooled connection stays on the address that was judged")
	assert.True(t, pooled.Reused)
	tr.CloseIdleConnections()
	second := post(t, c, url)

	assert.Equal(t, egress.ClassBlocked, second.Class)
	assert.Zero(t, inside.count.Load())
}

func TestA28B27OfSeveralAddressesTheRefusedOnesAreNeverDialled(t *testing.T) {
	t.Parallel()
	for _, ips := range [][]string{
		{"127.0.0.2", "127.0.0.1"}, {"127.0.0.1", "127.0.0.2"}, {"127.0.0.2", "::1"}, {"::1", "::ffff:127.0.0.1", "127.0.0.2"}, // B27
		{"10.0.0.1", "169.254.169.254", "127.0.0.2"},
	} {
		srv, inside := publicAndTrap(t, ok)
		c := newClient(t, public(), egress.TransportConfig{Resolver: always(ips...)})
		res := post(t, c, "http://mixed.example:"+port(t, srv)+"/")
		assert.True(t, res.OK(), "%v: %v", ips, res.Err)
		assert.Zero(t, inside.count.Load())
	}

	// Nor when the good one is down.
	inside := trapAt(t, "127.0.0.1:0")
	c := newClient(t, public(), egress.TransportConfig{Resolver: always("127.0.0.2", "127.0.0.1")})
	res := post(t, c, "http://mixed.example:"+inside.port+"/")
	assert.Equal(t, egress.ClassConnect, res.Class)
	assert.Zero(t, inside.count.Load())
}

func TestTheNameIsResolvedAbsolutelyAndItsAddressesTakeTurns(t *testing.T) {
	t.Parallel()
	srv, _ := publicAndTrap(t, ok)
	var asked atomic.Value
	dns := lookup(func(_ context.Context, host string) ([]netip.Addr, error) {
		asked.Store(host)
		return []netip.Addr{netip.MustParseAddr("127.0.0.2")}, nil
	})
	c := newClient(t, public(), egress.TransportConfig{Resolver: dns})
	res := post(t, c, "http://BÜCHER.example.:"+port(t, srv)+"/")
	require.True(t, res.OK(), "%v", res.Err)
	assert.Equal(t, "xn--bcher-kva.example.", asked.Load(), "what is judged is what is looked up")

	p := public()
	p.AllowHosts = []string{"receiver"}
	c = newClient(t, p, egress.TransportConfig{Resolver: dns})
	res = post(t, c, "http://receiver:"+port(t, srv)+"/")
	require.True(t, res.OK(), "%v", res.Err)
	assert.Equal(t, "receiver", asked.Load(), "an operator's own name may use the search list and the hosts file")
}

type lookup func(context.Context, string) ([]netip.Addr, error)

func (f lookup) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	return f(ctx, host)
}

func TestADeadAddressDoesNotHideALivingOne(t *testing.T) {
	t.Parallel()
	srv, _ := publicAndTrap(t, ok)
	p := public()
	p.Allow = append(p.Allow, egress.AllowRule{Prefix: netip.MustParsePrefix("127.0.0.0/8"), Ports: anyPort})
	// Nothing listens on .3 to .5; the answer is the fourth.
	c := newClient(t, p, egress.TransportConfig{Resolver: always("127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.2")})
	res := post(t, c, "http://many.example:"+port(t, srv)+"/")
	assert.True(t, res.OK(), "%v", res.Err)
}

func TestFailuresBeforeTheRequestHaveTheirClasses(t *testing.T) {
	t.Parallel()
	closed := closedPort(t)
	for name, c := range map[string]struct {
		dns  egress.Resolver
		url  string
		want egress.Class
	}{
		"refused":     {always("127.0.0.1"), "http://h.example:" + closed + "/", egress.ClassConnect},
		"no name":     {lookup(nxdomain), "http://h.example:" + closed + "/", egress.ClassDNS},
		"no address":  {always(), "http://h.example:" + closed + "/", egress.ClassDNS},
		"DNS hangs":   {lookup(hang), "http://h.example:" + closed + "/", egress.ClassDNS},
		"literal":     {lookup(nxdomain), "http://127.0.0.1:" + closed + "/", egress.ClassConnect},
		"blocked":     {always("10.0.0.1"), "https://h.example/", egress.ClassBlocked},
		"bad URL":     {always("127.0.0.1"), "https://u:p@h.example/", egress.ClassBlocked},
		"header name": {always("127.0.0.1"), "http://127.0.0.1:" + closed + "/?bad-header", egress.ClassProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			timeout := ample
			if name == "DNS hangs" {
				timeout = limit
			}
			cl := newClient(t, loopback(), egress.TransportConfig{Resolver: c.dns, ConnectTimeout: timeout})
			h := http.Header{}
			if c.want == egress.ClassProtocol {
				h["Bad\r\nName"] = []string{"x"}
			}
			res := cl.Do(t.Context(), egress.Request{URL: c.url, Header: h})
			assert.Equal(t, c.want, res.Class, "%v", res.Err)
			assert.False(t, res.Sent)
			assert.Zero(t, res.Status)
			assert.Error(t, res.Err)
			assert.NotEmpty(t, egress.PublicText(res.Class))
		})
	}
}

func nxdomain(_ context.Context, host string) ([]netip.Addr, error) {
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

func hang(ctx context.Context, _ string) ([]netip.Addr, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// closedPort returns a port of 127.0.0.1 that nobody listens on.
func closedPort(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, p, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	return p
}

func TestAPlainHTTPClientAroundTheTransportIsGuardedToo(t *testing.T) {
	t.Parallel()
	inside := trapAt(t, "127.0.0.1:0")
	hc := &http.Client{Transport: newTransport(t, withHTTP(), egress.TransportConfig{Resolver: always("127.0.0.1")})}
	for _, u := range []string{
		"http://127.0.0.1:" + inside.port + "/", "http://h.example:" + inside.port + "/", "http://localhost:" + inside.port + "/",
		"http://u:p@h.example:" + inside.port + "/", "ftp://127.0.0.1:" + inside.port + "/",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, u, http.NoBody)
		require.NoError(t, err)
		resp, err := hc.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		assert.Error(t, err, u)
		assert.Equal(t, egress.ClassBlocked, egress.Classify(err), u)
	}
	assert.Zero(t, inside.count.Load())
}

func ok2(r egress.Result) bool { return r.OK() }

// TestA29 runs itself in a process whose environment names a proxy.
func TestA29ProxiesOfTheEnvironmentAreIgnored(t *testing.T) {
	const child = "EGRESS_TEST_CHILD_URL"
	if url := os.Getenv(child); url != "" {
		c := newClient(t, loopback(), egress.TransportConfig{Resolver: always("127.0.0.1")})
		res := post(t, c, url)
		require.True(t, res.OK(), "%v", res.Err)
		strict := newClient(t, withHTTP(), egress.TransportConfig{Resolver: always("127.0.0.1")})
		require.Equal(t, egress.ClassBlocked, post(t, strict, url).Class)
		return
	}
	t.Parallel()
	var served atomic.Int32
	srv := receiver(t, func(w http.ResponseWriter, r *http.Request) { served.Add(1); ok(w, r) })
	proxy := trapAt(t, "127.0.0.1:0")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestA29ProxiesOfTheEnvironmentAreIgnored$", "-test.count=1")
	p := "http://127.0.0.1:" + proxy.port
	// A name, since net/http itself exempts loopback addresses from proxies.
	cmd.Env = append(os.Environ(), child+"=http://hooks.example:"+port(t, srv)+"/",
		"HTTP_PROXY="+p, "HTTPS_PROXY="+p, "http_proxy="+p, "https_proxy="+p, "ALL_PROXY="+p, "all_proxy="+p, "NO_PROXY=", "no_proxy=")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Zero(t, proxy.count.Load())
	assert.EqualValues(t, 1, served.Load())
}

func TestACallersContextIsNeverTheEndpointsFault(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{})
	srv := raw(t, func(c net.Conn) {
		readRequest(c)
		close(entered)
		_, _ = io.Copy(io.Discard, c)
	})
	c := newClient(t, loopback(), egress.TransportConfig{})
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-entered; cancel(errors.New("shutting down")) }()
	res := c.Do(ctx, egress.Request{URL: srv, Body: []byte("{}")})
	assert.Equal(t, egress.ClassCancelled, res.Class)
	assert.ErrorContains(t, res.Err, "shutting down")
	assert.True(t, res.Sent)

	res = c.Do(ctx, egress.Request{URL: srv})
	assert.Equal(t, egress.ClassCancelled, res.Class)
	assert.False(t, res.Sent, "not even begun")
}

func TestADialEndsWithItsAttempt(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 4)
	dns := lookup(func(ctx context.Context, host string) ([]netip.Addr, error) {
		_, err := hang(ctx, host)
		ended <- err
		return nil, err
	})
	c := newClient(t, loopback(), egress.TransportConfig{Resolver: dns, ConnectTimeout: time.Minute})
	res := c.Do(t.Context(), egress.Request{URL: "http://h.example/", Timeout: 100 * time.Millisecond})
	assert.Contains(t, []egress.Class{egress.ClassTimeout, egress.ClassDNS}, res.Class, "%v", res.Err)
	assert.False(t, res.Sent)
	assert.Error(t, <-ended, "not a minute later")

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	res = c.Do(ctx, egress.Request{URL: "http://h.example/"})
	assert.Equal(t, egress.ClassCancelled, res.Class, "%v", res.Err)
	assert.Error(t, <-ended)
}
