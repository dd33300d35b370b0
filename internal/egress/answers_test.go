package egress_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/egress"
)

func TestR12OnlyA2xxIsSuccess(t *testing.T) { // B23, B24
	t.Parallel()
	for status, want := range map[string]egress.Class{
		"200": "", "201": "", "202": "", "203": "", "204": "", "205": "", "206": "", "226": "", "299": "",
		"300": egress.ClassRedirect, "304": egress.ClassRedirect, "399": egress.ClassRedirect,
		"400": egress.ClassHTTP4xx, "404": egress.ClassHTTP4xx, "410": egress.ClassHTTP4xx, "418": egress.ClassHTTP4xx, "499": egress.ClassHTTP4xx,
		"500": egress.ClassHTTP5xx, "503": egress.ClassHTTP5xx, "599": egress.ClassHTTP5xx,
		"101": egress.ClassProtocol, "099": egress.ClassProtocol, "000": egress.ClassProtocol, "600": egress.ClassProtocol, "999": egress.ClassProtocol,
		"99": egress.ClassProtocol, "2000": egress.ClassProtocol, "-20": egress.ClassProtocol, "20x": egress.ClassProtocol,
	} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			url := raw(t, func(c net.Conn) {
				readRequest(c)
				head := "HTTP/1.1 " + status + " x\r\n"
				if status == "101" {
					head += "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
					_, _ = io.WriteString(c, head)
					_, _ = io.Copy(io.Discard, c)
					return
				}
				_, _ = io.WriteString(c, head+"Content-Length: 0\r\n\r\n")
			})
			res := hostile(t, url, ample)
			assert.Equal(t, want, res.Class, "%v", res.Err)
			assert.Equal(t, want == egress.ClassNone, res.OK())
		})
	}
	t.Run("103 before 500", func(t *testing.T) {
		t.Parallel()
		url := raw(t, func(c net.Conn) {
			readRequest(c)
			_, _ = io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 500 no\r\nContent-Length: 0\r\n\r\n")
		})
		res := hostile(t, url, ample)
		assert.Equal(t, 500, res.Status)
		assert.Equal(t, egress.ClassHTTP5xx, res.Class)
	})
}

func TestA2xxCountsWhateverItsBodyDoes(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"cut short":       "Content-Length: 100\r\n\r\nabc",
		"bad chunk":       "Transfer-Encoding: chunked\r\n\r\nzz\r\nabc",
		"cut chunk":       "Transfer-Encoding: chunked\r\n\r\n10\r\nabc",
		"bad after chunk": "Transfer-Encoding: chunked\r\n\r\n3\r\nabcX",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := raw(t, func(c net.Conn) { readRequest(c); _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+body) })
			res := hostile(t, url, ample)
			assert.True(t, res.OK())
			assert.Error(t, res.BodyErr)
			assert.True(t, res.Truncated)
		})
	}
}

func TestR13CookiesAreNotKept(t *testing.T) {
	t.Parallel()
	var cookies atomic.Int32
	srv := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		cookies.Add(int32(len(r.Cookies())))
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "1"})
		ok(w, r)
	})
	c := newClient(t, loopback(), egress.TransportConfig{})
	for range 3 {
		require.True(t, ok2(post(t, c, srv.URL)))
	}
	assert.Zero(t, cookies.Load())
}

func TestB03R14AnyBytesMayComeBack(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"<script>alert(1)</script>", "\x00\x1b[2J", "\xe9\xff\xc3"} {
		res := post(t, newClient(t, loopback(), egress.TransportConfig{}), answer(t, 500, body).URL)
		assert.Equal(t, body, string(res.Excerpt), "the excerpt is the bytes; who shows them escapes them")
	}
}

func TestR15ABannerReachesOperatorsOnly(t *testing.T) {
	t.Parallel()
	for name, banner := range map[string]string{
		"SSH":            "SSH-2.0-SECRET\r\n",
		"SMTP":           "220 SECRET ESMTP\r\n",
		"HTTP/0.9":       "<html>SECRET</html>",
		"bad status":     "HTTP/1.1 SECRETBANNER x\r\n\r\n",
		"bad header":     "HTTP/1.1 200 OK\r\nSECRET\r\n\r\n",
		"two lengths":    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"bad length":     "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"bad encoding":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: SECRET\r\n\r\n",
		"binary":         "\x16\x03\x01\x00SECRET\r\n\r\n",
		"NUL":            "\x00\x00\x00\x00\r\n\r\n",
		"HTTP/2 preface": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"HTTP/2 frames":  "\x00\x00\x12\x04\x00\x00\x00\x00\x00\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := raw(t, func(c net.Conn) { readRequest(c); _, _ = io.WriteString(c, banner) })
			res := hostile(t, url, ample)
			assert.Equal(t, egress.ClassProtocol, res.Class, "%v", res.Err)
			assert.Empty(t, res.Excerpt)
			assert.NotContains(t, egress.PublicText(res.Class), "SECRET")
		})
	}
}

func TestAnOperatorsTextIsShortAndPrintable(t *testing.T) {
	t.Parallel()
	for _, banner := range []string{
		"HTTP/1.1 200 OK\r\n" + strings.Repeat("\x00\xff\u202e\x1b[2J", 2000) + "\r\n\r\n",
		"\x00\xff\u202e\x1b[2J" + strings.Repeat("x", 3000) + "\r\n\r\n",
	} {
		url := raw(t, func(c net.Conn) { readRequest(c); _, _ = io.WriteString(c, banner) })
		text := egress.Detail(hostile(t, url, ample).Err)
		assert.NotEmpty(t, text)
		assert.LessOrEqual(t, len(text), 1024)
		assert.True(t, utf8.ValidString(text))
		for _, r := range text {
			assert.True(t, unicode.IsPrint(r), "%q", r)
		}
	}
	assert.Equal(t, "a??b", egress.Detail(errors.New("a\n\xffb")))
	assert.Empty(t, egress.Detail(nil))
}

func TestB53NeitherQueryNorCredentialsAreInAnyText(t *testing.T) {
	t.Parallel()
	c := newClient(t, loopback(), egress.TransportConfig{Resolver: lookup(nxdomain), TLSTimeout: limit})
	closed := closedPort(t)
	banner := raw(t, func(c net.Conn) { readRequest(c); _, _ = io.WriteString(c, "SSH\r\n\r\n") })
	for _, url := range []string{
		"http://user:p%40ss@127.0.0.1:" + closed + "/hook?token=T0K#frag", "http://user:p%40ss@[::1/hook?token=T0K", "http://127.0.0.1:" + closed + "/hook?token=T0K#frag",
		"http://127.0.0.1:" + closed + "/hook?token=T0K", "https://127.0.0.1:" + closed + "/hook?token=T0K", "http://h.example/hook?token=T0K", banner + "hook?token=T0K",
		"https" + strings.TrimPrefix(banner, "http") + "?token=T0K", "ftp://user:p%40ss@h/?token=T0K", "http://h.example:22/?token=T0K", "http://10.0.0.1/?token=T0K",
	} {
		res := post(t, c, url)
		require.NotEmpty(t, res.Class, url)
		for _, text := range []string{res.Err.Error(), egress.Detail(res.Err), egress.PublicText(res.Class), fmt.Sprintf("%+v", res), fmt.Sprintf("%#v", res.Err)} {
			for _, secret := range []string{"p@ss", "p%40ss", "T0K"} {
				assert.NotContains(t, text, secret, url)
			}
		}
	}
	assert.Equal(t, egress.ClassBlocked, post(t, c, "http://user:p%40ss@127.0.0.1:1/").Class, "credentials in a URL are refused")
}

func TestRetryAfterIsHandedOnAsItCame(t *testing.T) { // R10, R11: its meaning is the retry contract's
	t.Parallel()
	for _, v := range []string{"120", "-5", "soon", "99999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT", strings.Repeat("9", 500)} {
		srv := receiver(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", v)
			w.WriteHeader(http.StatusTooManyRequests)
		})
		res := post(t, newClient(t, loopback(), egress.TransportConfig{}), srv.URL)
		assert.Equal(t, egress.ClassHTTP4xx, res.Class)
		assert.Equal(t, v[:min(len(v), 128)], res.RetryAfter)
	}
}

func TestAPeerThatEchoesTheRequestPutsNothingOfItIntoAnyText(t *testing.T) {
	t.Parallel()
	before := map[string]string{
		"as it is":        "",
		"as a header":     "HTTP/1.1 200 OK\r\n",
		"as a header, 2":  "HTTP/1.1 200 OK\r\nX: y\r\n",
		"as a status":     "HTTP/1.1 ",
		"as a length":     "HTTP/1.1 200 OK\r\nContent-Length: ",
		"as two lengths":  "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: ",
		"as a coding":     "HTTP/1.1 200 OK\r\nTransfer-Encoding: ",
		"as a trailer":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: ",
		"as a fold":       "HTTP/1.1 200 OK\r\n ",
		"as a chunk size": "HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n",
	}
	for name, prefix := range before {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := raw(t, func(c net.Conn) {
				buf := make([]byte, 4096)
				n, _ := c.Read(buf)
				_, _ = c.Write(append([]byte(prefix), buf[:n]...))
				for part := range bytes.SplitSeq(buf[:n], []byte("\r\n")) {
					_, _ = c.Write(append([]byte(prefix), part...))
				}
			})
			c := newClient(t, loopback(), egress.TransportConfig{})
			res := c.Do(t.Context(), egress.Request{
				URL: url + "hook?token=T0K", Body: []byte("T0K"), Header: http.Header{"X-Key": {"T0K"}}, Timeout: 5 * time.Second,
			})
			if res.Err == nil {
				return // it was an answer
			}
			for _, text := range []string{res.Err.Error(), egress.Detail(res.Err), fmt.Sprintf("%+v", res.Err), fmt.Sprintf("%#v", res.Err)} {
				assert.NotContains(t, text, "T0K")
			}
		})
	}
}

func TestAForeignTransportsErrorLosesTheURL(t *testing.T) {
	t.Parallel()
	foreign := roundTripper(func(r *http.Request) (*http.Response, error) {
		return nil, &url.Error{Op: "Post", URL: r.URL.String(), Err: io.ErrUnexpectedEOF}
	})
	c, err := egress.NewClient(egress.ClientConfig{Guard: newGuard(t, loopback()), Transport: foreign})
	require.NoError(t, err)
	res := post(t, c, "http://127.0.0.1:1/hook?token=T0K")
	assert.Equal(t, egress.ClassReset, res.Class)
	assert.Equal(t, "unexpected EOF", res.Err.Error())
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
