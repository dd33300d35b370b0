package egress_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
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

// overTLS serves like raw, over TLS, and returns the pool that verifies it.
func overTLS(t testing.TB, serve func(net.Conn)) (string, *x509.CertPool) {
	t.Helper()
	cert := httptest.NewUnstartedServer(nil)
	cert.StartTLS()
	t.Cleanup(cert.Close)
	roots := x509.NewCertPool()
	roots.AddCert(cert.Certificate())
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ln = tls.NewListener(ln, &tls.Config{Certificates: cert.TLS.Certificates, MinVersion: tls.VersionTLS12})
	return "https://" + serveRaw(t, ln, serve) + "/", roots
}

// TestWhatNobodyAskedForIsReadByNobody: what a peer sends beyond an answer is neither
// printed (TestMain looks) nor taken for the answer to the next request.
func TestWhatNobodyAskedForIsReadByNobody(t *testing.T) {
	t.Parallel()
	const surplus = "HTTP/1.1 500 SECRETSURPLUS\r\nContent-Length: 0\r\n\r\n"
	answers := map[string]string{
		"no body":      "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		"no content":   "HTTP/1.1 204 No Content\r\n\r\n",
		"length":       "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"long":         "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + strings.Repeat("x", 5000),
		"chunks":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"trailer":      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n",
		"hints before": "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"bare LF":      "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
	}
	for name, text := range answers {
		for _, scheme := range []string{"http", "https"} {
			for _, later := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/later=%t", name, scheme, later), func(t *testing.T) {
					t.Parallel()
					gone := make(chan struct{}, 16)
					serve := func(c net.Conn) {
						defer func() { gone <- struct{}{} }()
						br := bufio.NewReader(c)
						for {
							req, err := http.ReadRequest(br)
							if err != nil {
								return
							}
							_, _ = io.Copy(io.Discard, req.Body)
							parts := []string{text + surplus}
							if later {
								parts = []string{text, surplus}
							}
							for _, part := range parts {
								_, _ = io.WriteString(c, part)
							}
						}
					}
					url, roots := overTLS(t, serve)
					if scheme == "http" {
						url = raw(t, serve)
					}
					c := newClient(t, loopback(), egress.TransportConfig{RootCAs: roots})
					for range 3 {
						res := post(t, c, url)
						require.True(t, res.OK(), "%d %v", res.Status, res.Err)
						if later || len(text) > 1<<10 {
							// What has not been read yet may cross with the next request, and
							// nothing tells it from its answer.
							<-gone
						}
					}
				})
			}
		}
	}
}

func TestR15ABannerFailsTheRequestAndIsPrintedNowhere(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]bool{"before the request": false, "in answer to it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := raw(t, func(c net.Conn) {
				if wait {
					readRequest(c)
				}
				_, _ = io.WriteString(c, "SSH-2.0 SECRETBANNER\r\n")
				_, _ = io.Copy(io.Discard, c)
			})
			c := newClient(t, loopback(), egress.TransportConfig{})
			for range 20 {
				res := post(t, c, url)
				require.Equal(t, egress.ClassProtocol, res.Class, "%v", res.Err)
				assert.NotContains(t, egress.PublicText(res.Class), "SECRET")
			}
		})
	}
}

func TestAnUnusedConnectionThatEndsIsNoticed(t *testing.T) {
	t.Parallel()
	// A request may be served by another connection than the one dialled for it, which
	// then lies idle, unused.
	var conns atomic.Int32
	hold := make(chan struct{})
	url := raw(t, func(c net.Conn) {
		if conns.Add(1) == 1 {
			<-hold
		}
		br := bufio.NewReader(c)
		for {
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	c := newClient(t, loopback(), egress.TransportConfig{})
	first := make(chan egress.Result, 1)
	go func() { first <- post(t, c, url) }()
	require.Eventually(t, func() bool { return conns.Load() == 1 }, 5*time.Second, time.Millisecond)
	require.True(t, ok2(post(t, c, url)))
	close(hold)
	require.True(t, ok2(<-first))
	require.True(t, ok2(post(t, c, url)))
}

func TestAPlainClientAroundTheTransportKeepsItsConnections(t *testing.T) {
	t.Parallel()
	var conns atomic.Int32
	url := keepAlive(t, func(n int, _ []byte) bool {
		if n == 0 {
			conns.Add(1)
		}
		return false
	})
	c := http.Client{Transport: newTransport(t, loopback(), egress.TransportConfig{})}
	for range 5 {
		resp, err := c.Post(url, "text/plain", strings.NewReader("x"))
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, "ok", string(body))
	}
	assert.EqualValues(t, 1, conns.Load())
}

func TestAnAnswerThatComesInPiecesIsWhole(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("line\r\n\r\n", 200)
	for name, text := range map[string]string{
		"length": fmt.Sprintf("HTTP/1.1 500 No\r\nContent-Length: %d\r\nX-Long: %s\r\n\r\n%s", len(body), strings.Repeat("x", 3000), body),
		"chunks": fmt.Sprintf("HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n%x;ext\r\n%s\r\n0\r\n\r\n", len(body), body),
		"close":  "HTTP/1.1 500 No\r\nConnection: close\r\n\r\n" + body,
		"early":  "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 500 No\n\n" + body,
	} {
		for _, size := range []int{1, 2, 3, 7, 1023, 1024, 1025, 1 << 20} {
			t.Run(fmt.Sprintf("%s by %d", name, size), func(t *testing.T) {
				t.Parallel()
				url := raw(t, func(c net.Conn) {
					readRequest(c)
					for rest := []byte(text); len(rest) > 0; {
						n := min(size, len(rest))
						if _, err := c.Write(rest[:n]); err != nil {
							return
						}
						rest = rest[n:]
					}
				})
				res := post(t, newClient(t, loopback(), egress.TransportConfig{}), url)
				require.Equal(t, 500, res.Status, "%v", res.Err)
				require.NoError(t, res.BodyErr)
				assert.Equal(t, body[:1024], string(res.Excerpt))
			})
		}
	}
}
