package egress_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/egress"
)

// connectProxy is an egress proxy that records what it is asked for.
type connectProxy struct {
	addr string

	mu     sync.Mutex
	asked  []string // targets of CONNECT
	auth   []string
	answer func(n int) string // instead of a tunnel, if not empty
}

func newProxy(t testing.TB, cfg *tls.Config, answer func(n int) string) *connectProxy {
	t.Helper()
	p := &connectProxy{answer: answer}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	if cfg != nil {
		ln = tls.NewListener(ln, cfg)
	}
	p.addr = serveRaw(t, ln, p.serve)
	return p
}

func (p *connectProxy) serve(c net.Conn) {
	br := bufio.NewReader(c)
	req, err := http.ReadRequest(br)
	if err != nil {
		return
	}
	p.mu.Lock()
	n := len(p.asked)
	p.asked = append(p.asked, req.Method+" "+req.RequestURI+" "+req.Host)
	p.auth = append(p.auth, req.Header.Get("Proxy-Authorization"))
	p.mu.Unlock()
	if p.answer != nil {
		if s := p.answer(n); s != "" {
			if s != "hang" {
				_, _ = io.WriteString(c, s)
				return
			}
			_, _ = io.Copy(io.Discard, br)
			return
		}
	}
	up, err := net.Dial("tcp", req.RequestURI)
	if err != nil {
		_, _ = io.WriteString(c, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
		return
	}
	_, _ = io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n")
	go func() {
		_, _ = io.Copy(up, br)
		_ = up.Close()
	}()
	_, _ = io.Copy(c, up)
	_ = c.Close()
	_ = up.Close()
}

func (p *connectProxy) targets() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.asked...)
}

func through(p *connectProxy, dns egress.Resolver) egress.TransportConfig {
	return egress.TransportConfig{Resolver: dns, Proxy: &egress.ProxyConfig{URL: "http://" + p.addr}, ConnectTimeout: patient}
}

func TestTheEgressProxyIsAskedForTheJudgedAddress(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	plain, _ := publicAndTrap(t, ok)
	p := newProxy(t, nil, nil)
	cfg := through(p, always("10.0.0.1", "127.0.0.2"))
	cfg.Proxy.URL = "http://svc:p%40ss@" + p.addr
	c := newClient(t, public(), cfg)
	res := post(t, c, "http://hooks.example:"+port(t, plain)+"/")
	require.True(t, res.OK(), "%v", res.Err)
	res = post(t, c, "http://hooks.example:"+port(t, plain)+"/")
	require.True(t, res.OK(), "%v", res.Err)
	assert.True(t, res.Reused)
	target := "127.0.0.2:" + port(t, plain)
	assert.Equal(t, []string{"CONNECT " + target + " " + target}, p.targets(), "an address, never a name; plain http as well")
	assert.Equal(t, []string{"Basic c3ZjOnBAc3M="}, p.auth)

	// TLS is verified against the name in the URL, behind a proxy that is spoken to
	// over TLS itself.
	secureProxy := newProxy(t, &tls.Config{Certificates: []tls.Certificate{ca.certificate(t, soon, "proxy.test")}}, nil)
	srv := secure(t, &tls.Config{Certificates: []tls.Certificate{ca.certificate(t, soon, "hooks.example")}}, ok)
	dns := lookup(func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	})
	_, proxyPort, err := net.SplitHostPort(secureProxy.addr)
	require.NoError(t, err)
	cfg = egress.TransportConfig{Resolver: dns, RootCAs: ca.pool, Proxy: &egress.ProxyConfig{URL: "https://proxy.test:" + proxyPort, RootCAs: ca.pool}}
	c = newClient(t, loopback(), cfg)
	res = post(t, c, "https://hooks.example:"+port(t, srv)+"/")
	assert.True(t, res.OK(), "%v", res.Err)
	res = post(t, c, "https://other.example:"+port(t, srv)+"/")
	assert.Equal(t, egress.ClassTLS, res.Class, "%v", res.Err)

	cfg.Proxy.RootCAs = nil
	res = post(t, newClient(t, loopback(), cfg), "https://hooks.example:"+port(t, srv)+"/")
	assert.Equal(t, egress.ClassProxy, res.Class, "%v", res.Err)
}

func TestTheEgressProxyIsNeverAskedForARefusedAddress(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil, nil)
	for _, ip := range []string{"10.0.0.1", "127.0.0.1", "169.254.169.254", "::1"} {
		c := newClient(t, withHTTP(), through(p, always(ip)))
		for _, u := range []string{"http://hooks.example/", "https://hooks.example/", "http://127.0.0.1/", "http://169.254.169.254/latest"} {
			assert.Equal(t, egress.ClassBlocked, post(t, c, u).Class, u)
		}
	}
	assert.Empty(t, p.targets())

	// Nor for itself, where policy would allow its address.
	c := newClient(t, loopback(), through(p, always("127.0.0.1")))
	res := post(t, c, "http://hooks.example:"+port2(t, "http://"+p.addr+"/")+"/")
	assert.Equal(t, egress.ClassBlocked, res.Class, "%v", res.Err)
	assert.Empty(t, p.targets())
}

func TestFaultsOfTheEgressProxyAreNotTheEndpoints(t *testing.T) {
	t.Parallel()
	srv, _ := publicAndTrap(t, ok)
	url := "http://hooks.example:" + port(t, srv) + "/"
	for name, c := range map[string]struct {
		answer string
		want   egress.Class
	}{
		"wants credentials": {"HTTP/1.1 407 no\r\nContent-Length: 0\r\n\r\n", egress.ClassProxy},
		"refuses":           {"HTTP/1.1 403 no\r\nContent-Length: 0\r\n\r\n", egress.ClassProxy},
		"is overloaded":     {"HTTP/1.1 503 no\r\nContent-Length: 0\r\n\r\n", egress.ClassProxy},
		"breaks":            {"HTTP/1.1 500 no\r\n\r\n", egress.ClassProxy},
		"redirects":         {"HTTP/1.1 302 no\r\nLocation: http://10.0.0.1/\r\n\r\n", egress.ClassProxy},
		"speaks something":  {"SSH-2.0-x\r\n\r\n", egress.ClassProxy},
		"hangs up":          {"\r\n", egress.ClassProxy},
		"hangs":             {"hang", egress.ClassProxy},
		"floods":            {"HTTP/1.1 200 OK\r\nX: " + string(make([]byte, 64<<10)), egress.ClassProxy},
		"speaks too early":  {"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", egress.ClassProxy},
		"cannot reach it":   {"HTTP/1.1 502 no\r\nContent-Length: 0\r\n\r\n", egress.ClassConnect},
		"cannot in time":    {"HTTP/1.1 504 no\r\nContent-Length: 0\r\n\r\n", egress.ClassConnect},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, nil, func(int) string { return c.answer })
			res := post(t, newClient(t, public(), through(p, always("127.0.0.2"))), url)
			assert.Equal(t, c.want, res.Class, "%v", res.Err)
			assert.False(t, res.Sent)
		})
	}
	t.Run("is down", func(t *testing.T) {
		t.Parallel()
		cfg := egress.TransportConfig{Resolver: always("127.0.0.2"), Proxy: &egress.ProxyConfig{URL: "http://u:s3cret@127.0.0.1:" + closedPort(t)}}
		res := post(t, newClient(t, public(), cfg), url)
		assert.Equal(t, egress.ClassProxy, res.Class)
		assert.NotContains(t, egress.Detail(res.Err), "s3cret")
	})
	t.Run("has no name", func(t *testing.T) {
		t.Parallel()
		dns := lookup(func(ctx context.Context, host string) ([]netip.Addr, error) {
			if host == "hooks.example." {
				return []netip.Addr{netip.MustParseAddr("127.0.0.2")}, nil
			}
			return nxdomain(ctx, host)
		})
		cfg := egress.TransportConfig{Resolver: dns, Proxy: &egress.ProxyConfig{URL: "http://proxy.example:3128"}}
		assert.Equal(t, egress.ClassProxy, post(t, newClient(t, public(), cfg), url).Class)
	})
	t.Run("other statuses for the target", func(t *testing.T) {
		t.Parallel()
		p := newProxy(t, nil, func(int) string { return "HTTP/1.1 503 no\r\n\r\n" })
		cfg := through(p, always("127.0.0.2"))
		cfg.Proxy.TargetFaultStatus = []int{503}
		assert.Equal(t, egress.ClassConnect, post(t, newClient(t, public(), cfg), url).Class)
	})
	t.Run("hangs after it served another", func(t *testing.T) {
		t.Parallel()
		p := newProxy(t, nil, func(n int) string {
			if n == 0 {
				return ""
			}
			return "hang"
		})
		c := newClient(t, public(), through(p, always("127.0.0.2")))
		require.True(t, ok2(post(t, c, url)))
		res := c.Do(t.Context(), egress.Request{URL: url, NoResend: true})
		assert.Equal(t, egress.ClassTimeout, res.Class, "%v", res.Err)
	})
}

func TestEgressProxiesThatAreRefused(t *testing.T) {
	t.Parallel()
	g := newGuard(t, egress.Policy{})
	for _, u := range []string{"", "proxy:3128", "socks5://u:s3cret@h:1", "http://", "http://u:s3cret@h:0", "http://u:s3cret@h:99999", "://u:s3cret@"} {
		_, err := egress.NewTransport(g, egress.TransportConfig{Proxy: &egress.ProxyConfig{URL: u}})
		require.Error(t, err, u)
		assert.NotContains(t, err.Error(), "s3cret")
	}
}
