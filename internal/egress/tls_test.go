package egress_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/egress"
)

// authority is a CA for one test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
	pool *x509.CertPool
}

var serials atomic.Int64

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(serials.Add(1)), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	a := &authority{cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pool: x509.NewCertPool()}
	a.pool.AddCert(cert)
	return a
}

// issue returns a certificate and its key as PEM, for names and both sides of TLS.
func (a *authority) issue(t testing.TB, notAfter time.Time, names ...string) (certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(serials.Add(1)), Subject: pkix.Name{CommonName: "leaf"}, DNSNames: names,
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: notAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

func (a *authority) certificate(t testing.TB, notAfter time.Time, names ...string) tls.Certificate {
	t.Helper()
	c, k := a.issue(t, notAfter, names...)
	pair, err := tls.X509KeyPair(c, k)
	require.NoError(t, err)
	return pair
}

// secure starts a TLS receiver and returns its port.
func secure(t testing.TB, cfg *tls.Config, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // handshake errors are meant
	srv.TLS = cfg
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv
}

var soon = time.Now().Add(time.Hour)

func TestB62TLSIsVerifiedAgainstTheNameInTheURL(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	var sni atomic.Value
	srv := secure(t, &tls.Config{
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			sni.Store(h.ServerName)
			c := ca.certificate(t, soon, "xn--bcher-kva.test")
			return &c, nil
		},
	}, ok)
	c := newClient(t, loopback(), egress.TransportConfig{Resolver: always("127.0.0.1"), RootCAs: ca.pool})
	for _, host := range []string{"bücher.test", "BÜCHER.test", "bücher.test.", "xn--bcher-kva.test"} { // B62
		res := post(t, c, "https://"+host+":"+port(t, srv)+"/")
		assert.True(t, res.OK(), "%s: %v", host, res.Err)
		assert.Equal(t, "xn--bcher-kva.test", sni.Load())
	}
}

func TestR08BadTLSIsNeverSentTo(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	var served atomic.Int32
	count := func(w http.ResponseWriter, r *http.Request) { served.Add(1); ok(w, r) }
	with := func(c tls.Certificate) *tls.Config { return &tls.Config{Certificates: []tls.Certificate{c}} }
	old := with(ca.certificate(t, soon, "h.test"))
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	plain := receiver(t, count)
	mute := closingPort(t)
	for name, c := range map[string]struct {
		port string
		want egress.Class
	}{
		"unknown CA":      {port(t, secure(t, with(other.certificate(t, soon, "h.test")), count)), egress.ClassTLS},
		"expired":         {port(t, secure(t, with(ca.certificate(t, time.Now().Add(-time.Hour), "h.test")), count)), egress.ClassTLS},
		"wrong name":      {port(t, secure(t, with(ca.certificate(t, soon, "g.test")), count)), egress.ClassTLS},
		"self-signed":     {port(t, secure(t, nil, count)), egress.ClassTLS},
		"TLS 1.1":         {port(t, secure(t, old, count)), egress.ClassTLS},
		"plain HTTP":      {port(t, plain), egress.ClassTLS},
		"hangs up":        {mute, egress.ClassReset},
		"handshake hangs": {port2(t, raw(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })), egress.ClassTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			cl := newClient(t, loopback(), egress.TransportConfig{Resolver: always("127.0.0.1"), RootCAs: ca.pool, TLSTimeout: limitOf(c.want)})
			res := post(t, cl, "https://h.test:"+c.port+"/")
			assert.Equal(t, c.want, res.Class, "%v", res.Err)
			assert.Zero(t, res.Status)
		})
	}
	t.Run("wants our certificate", func(t *testing.T) {
		// Under TLS 1.3 the server refuses after the handshake is over for us: its alert
		// may be read, or lost to a reset while the request is being written.
		cfg := with(ca.certificate(t, soon, "h.test"))
		cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, ca.pool
		cl := newClient(t, loopback(), egress.TransportConfig{Resolver: always("127.0.0.1"), RootCAs: ca.pool})
		res := post(t, cl, "https://h.test:"+port(t, secure(t, cfg, count))+"/")
		assert.Contains(t, []egress.Class{egress.ClassTLS, egress.ClassReset}, res.Class, "%v", res.Err)
	})
	assert.Zero(t, served.Load())
}

func closingPort(t testing.TB) string {
	t.Helper()
	return port2(t, raw(t, func(net.Conn) {}))
}

func port2(t testing.TB, url string) string {
	t.Helper()
	_, p, err := net.SplitHostPort(strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/"))
	require.NoError(t, err)
	return p
}

func TestHTTP2IsNotSpoken(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	var proto atomic.Value
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { proto.Store(r.Proto); ok(w, r) }))
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{ca.certificate(t, soon, "h.test")}}
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	c := newClient(t, loopback(), egress.TransportConfig{Resolver: always("127.0.0.1"), RootCAs: ca.pool})
	res := post(t, c, "https://h.test:"+port(t, srv)+"/")
	require.True(t, res.OK(), "%v", res.Err)
	assert.Equal(t, "HTTP/1.1", proto.Load())
}

func TestEndpointsWithOtherTLSOptionsShareNoConnection(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	var conns atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for _, c := range r.TLS.PeerCertificates {
			_, _ = io.WriteString(w, c.DNSNames[0])
		}
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{ca.certificate(t, soon, "h.test")}, ClientAuth: tls.RequestClientCert}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	options := func(name string) *egress.TLSOptions {
		certPEM, keyPEM := ca.issue(t, soon, name)
		o, err := egress.NewTLSOptions(certPEM, keyPEM, ca.pem)
		require.NoError(t, err)
		return o
	}
	acme, globex := options("acme"), options("globex")
	onlyCA, err := egress.NewTLSOptions(nil, nil, ca.pem)
	require.NoError(t, err)
	sameCA, err := egress.NewTLSOptions(nil, nil, bytes.Clone(ca.pem))
	require.NoError(t, err)
	c := newClient(t, loopback(), egress.TransportConfig{Resolver: always("127.0.0.1")})
	url := "https://h.test:" + port(t, srv) + "/"
	do := func(o *egress.TLSOptions) egress.Result {
		return c.Do(t.Context(), egress.Request{URL: url, Body: []byte("{}"), TLS: o})
	}

	assert.Equal(t, egress.ClassTLS, do(nil).Class, "the host's roots do not know this CA")
	before := conns.Load()
	for range 3 {
		for o, want := range map[*egress.TLSOptions]string{acme: "acme", globex: "globex", onlyCA: "", sameCA: ""} {
			res := do(o)
			require.True(t, res.OK(), "%v", res.Err)
			assert.Equal(t, want, string(res.Excerpt), "the certificate of this endpoint")
		}
	}
	assert.EqualValues(t, 3, conns.Load()-before, "one connection per set of options, however often it was read")
}

func TestTLSOptionsThatAreRefused(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	certPEM, keyPEM := ca.issue(t, soon, "x")
	_, otherKey := ca.issue(t, soon, "y")
	for name, in := range map[string][3][]byte{
		"nothing":      {},
		"no key":       {certPEM, nil, nil},
		"no cert":      {nil, keyPEM, nil},
		"another key":  {certPEM, otherKey, nil},
		"CA is no PEM": {nil, nil, []byte("x")},
		"CA is a key":  {nil, nil, keyPEM},
	} {
		_, err := egress.NewTLSOptions(in[0], in[1], in[2])
		require.Error(t, err, name)
		assert.NotContains(t, err.Error(), "PRIVATE")
	}
}

func TestPoolsOfEndpointsWithTLSOptionsAreBounded(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	var open atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(ok))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		default:
		}
	}
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{ca.certificate(t, soon, "h.test")}}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	c := newClient(t, loopback(), egress.TransportConfig{Resolver: always("127.0.0.1")})
	for i := range 300 {
		// The same CA, spelled differently: each counts as options of its own.
		o, err := egress.NewTLSOptions(nil, nil, append(bytes.Repeat([]byte("\n"), i), ca.pem...))
		require.NoError(t, err)
		res := c.Do(t.Context(), egress.Request{URL: "https://h.test:" + port(t, srv) + "/", TLS: o})
		require.True(t, res.OK(), "%v", res.Err)
	}
	eventually(t, func() bool { return open.Load() <= 256 }, "pools pile up")
}
