package egress_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/egress"
)

// raw is a receiver that speaks to the bare connection, and returns its URL.
func raw(t testing.TB, serve func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return "http://" + serveRaw(t, ln, serve) + "/"
}

func serveRaw(t testing.TB, ln net.Listener, serve func(net.Conn)) string {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			wg.Go(func() {
				serve(c)
				_ = c.Close()
				mu.Lock()
				delete(open, c)
				mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return ln.Addr().String()
}

// readRequest reads one request from c and reports whether there was one.
func readRequest(c net.Conn) bool {
	req, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, req.Body)
	return true
}

// untilClosed writes what next returns until the peer is gone.
func untilClosed(c net.Conn, every time.Duration, next string) {
	b := []byte(next) // converted once: memory is measured here
	for {
		if _, err := c.Write(b); err != nil {
			return
		}
		if every > 0 {
			<-time.After(every)
		}
	}
}

// eventually fails if cond does not come true soon.
func eventually(t testing.TB, cond func() bool, msg string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !cond() {
		if time.Now().After(deadline) {
			require.Fail(t, msg)
		}
		runtime.Gosched()
		<-time.After(5 * time.Millisecond)
	}
}

// hostile runs one attempt with a time limit and returns its result.
func hostile(t testing.TB, url string, limit time.Duration) egress.Result {
	t.Helper()
	tr := newTransport(t, loopback(), egress.TransportConfig{})
	c, err := egress.NewClient(egress.ClientConfig{Guard: tr.Guard(), Transport: tr, BodyTimeout: limit})
	require.NoError(t, err)
	start := time.Now()
	res := c.Do(t.Context(), egress.Request{URL: url, Body: []byte(`{}`), Timeout: limit})
	assert.Less(t, time.Since(start), limit+late, "ends within its time limit")
	return res
}

// Time limits: one that is reached whatever happens, one that is only reached by what
// waits for it, though the machine may stand still for a while, and one that nothing
// reaches that ends by itself.
const (
	limit   = 400 * time.Millisecond
	patient = 4 * time.Second
	ample   = 20 * time.Second
)

// late is how late a machine that stands still for a while may make something.
const late = 15 * time.Second

// limitOf is the time limit of an attempt that is to end so.
func limitOf(want egress.Class) time.Duration {
	if want == egress.ClassTimeout {
		return patient
	}
	return ample
}

func TestR01AnEndlessBodyAfterA200IsSuccess(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]string{
		"until close": "HTTP/1.1 200 OK\r\n\r\n",
		"length":      "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\n",
		"chunked":     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			chunk := strings.Repeat("x", 4096)
			if name == "chunked" {
				chunk = "1000\r\n" + chunk + "\r\n"
			}
			url := raw(t, func(c net.Conn) {
				readRequest(c)
				_, _ = io.WriteString(c, head)
				untilClosed(c, 0, chunk)
			})
			res := hostile(t, url, ample)
			assert.True(t, res.OK(), "%v", res.Err)
			assert.Equal(t, 200, res.Status)
			assert.Equal(t, strings.Repeat("x", 64), string(res.Excerpt))
			assert.True(t, res.Truncated)
			assert.Less(t, res.Latency, late, "nothing is drained")
		})
	}
}

func TestB01OnlyTheStartOfALongBodyIsKept(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 63, 64, 65, 1023, 1024, 1025, 16 << 10, 16<<10 + 1, 70_000, 10 << 20} {
		for _, status := range []int{200, 500} {
			srv := answer(t, status, strings.Repeat("b", size))
			res := post(t, newClient(t, loopback(), egress.TransportConfig{}), srv.URL)
			keep := 64
			if status == 500 {
				keep = 1024
			}
			assert.Equal(t, status, res.Status)
			assert.Len(t, res.Excerpt, min(size, keep), "%d of %d", status, size)
			assert.Equal(t, size > keep, res.Truncated, "%d of %d", status, size)
			assert.NoError(t, res.BodyErr)
		}
	}
	srv := answer(t, 200, strings.Repeat("b", 1024))
	c := newClient(t, loopback(), egress.TransportConfig{})
	res := c.Do(t.Context(), egress.Request{URL: srv.URL, KeepSuccessBody: true})
	assert.Len(t, res.Excerpt, 1024)
}

func TestR02ADrippingBody(t *testing.T) {
	t.Parallel()
	drip := func(status string) string {
		return raw(t, func(c net.Conn) {
			readRequest(c)
			_, _ = io.WriteString(c, "HTTP/1.1 "+status+"\r\n\r\n")
			untilClosed(c, 20*time.Millisecond, "x")
		})
	}
	res := hostile(t, drip("200 OK"), patient)
	assert.True(t, res.OK(), "the headers said 200")
	assert.Error(t, res.BodyErr)
	assert.True(t, res.Truncated)
	assert.NotEmpty(t, res.Excerpt)

	res = hostile(t, drip("500 no"), patient)
	assert.Equal(t, egress.ClassHTTP5xx, res.Class, "the status is known")
	assert.Equal(t, 500, res.Status)
	assert.NoError(t, res.Err)
}

func TestABodyHasLessTimeThanTheAttempt(t *testing.T) {
	t.Parallel()
	url := raw(t, func(c net.Conn) {
		readRequest(c)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		untilClosed(c, 20*time.Millisecond, "x")
	})
	tr := newTransport(t, loopback(), egress.TransportConfig{})
	c, err := egress.NewClient(egress.ClientConfig{Guard: tr.Guard(), Transport: tr, BodyTimeout: 200 * time.Millisecond})
	require.NoError(t, err)
	res := c.Do(t.Context(), egress.Request{URL: url, Timeout: 20 * time.Second})
	assert.True(t, res.OK())
	assert.Less(t, res.Latency, late)
}

func TestR03AGzipBombStaysCompressed(t *testing.T) {
	t.Parallel()
	var member bytes.Buffer
	zw := gzip.NewWriter(&member)
	_, err := zw.Write(make([]byte, 1<<20))
	require.NoError(t, err)
	require.NoError(t, zw.Close())
	bomb := bytes.Repeat(member.Bytes(), 200) // members follow one another: 200 MB
	for _, status := range []int{200, 500} {
		srv := receiver(t, func(w http.ResponseWriter, r *http.Request) {
			assert.Empty(t, r.Header.Get("Accept-Encoding"), "nothing invites compression")
			w.Header().Set("Content-Encoding", "gzip")
			w.WriteHeader(status)
			_, _ = w.Write(bomb)
		})
		c := newClient(t, loopback(), egress.TransportConfig{})
		res := post(t, c, srv.URL)
		assert.Equal(t, status, res.Status)
		assert.True(t, res.Truncated)
		assert.Equal(t, bomb[:len(res.Excerpt)], res.Excerpt, "the bytes as they came")
		assert.LessOrEqual(t, len(res.Excerpt), 1024)
	}
}

func TestR04TooManyHeaders(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]string{
		"one huge header": "X: " + strings.Repeat("h", 64<<10) + "\r\n",
		"many tiny ones":  strings.Repeat("a: b\r\n", 20_000),
		"never ending":    "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := raw(t, func(c net.Conn) {
				readRequest(c)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+head)
				if head == "" {
					untilClosed(c, 0, "X: "+strings.Repeat("h", 4096)+"\r\n")
				}
				_, _ = io.WriteString(c, "Content-Length: 0\r\n\r\n")
			})
			res := hostile(t, url, ample)
			assert.Equal(t, egress.ClassProtocol, res.Class, "%v", res.Err)
			assert.Zero(t, res.Status)
			assert.True(t, res.Sent)
			assert.Less(t, res.Latency, late)
		})
	}
}

func TestR05AFloodOfInformationalAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		every time.Duration
		want  egress.Class
	}{"103 fast": {0, egress.ClassProtocol}, "100 slow": {20 * time.Millisecond, egress.ClassTimeout}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := raw(t, func(nc net.Conn) {
				readRequest(nc)
				untilClosed(nc, c.every, "HTTP/1.1 "+name[:3]+" x\r\nA: b\r\n\r\n")
			})
			res := hostile(t, url, limitOf(c.want))
			assert.Equal(t, c.want, res.Class, "%v", res.Err)
		})
	}
}

func TestR06HeadersThatDripForever(t *testing.T) { // B59
	t.Parallel()
	url := raw(t, func(c net.Conn) {
		readRequest(c)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX: ")
		untilClosed(c, 10*time.Millisecond, "x")
	})
	res := hostile(t, url, limit)
	assert.Equal(t, egress.ClassTimeout, res.Class, "%v", res.Err)

	c := newClient(t, loopback(), egress.TransportConfig{ResponseHeaderTimeout: 200 * time.Millisecond})
	start := time.Now()
	res = c.Do(t.Context(), egress.Request{URL: url, Timeout: 20 * time.Second})
	assert.Equal(t, egress.ClassTimeout, res.Class, "%v", res.Err)
	assert.Less(t, time.Since(start), late)
}

func TestR07ReceiversThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		serve func(net.Conn)
		want  egress.Class
	}{
		"silent":              {func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, egress.ClassTimeout},
		"reads, then silent":  {func(c net.Conn) { readRequest(c); _, _ = io.Copy(io.Discard, c) }, egress.ClassTimeout},
		"closes at once":      {func(net.Conn) {}, egress.ClassReset},
		"reads, then closes":  {func(c net.Conn) { readRequest(c) }, egress.ClassReset},
		"reads, then resets":  {func(c net.Conn) { readRequest(c); _ = c.(*net.TCPConn).SetLinger(0) }, egress.ClassReset},
		"half-closes, silent": {func(c net.Conn) { _ = c.(*net.TCPConn).CloseWrite(); _, _ = io.Copy(io.Discard, c) }, egress.ClassReset},
		"closes in the headers": {func(c net.Conn) {
			readRequest(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX: ")
		}, egress.ClassReset},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res := hostile(t, raw(t, c.serve), limitOf(c.want))
			assert.Equal(t, c.want, res.Class, "%v", res.Err)
			assert.False(t, res.Resent, "the connection was new")
			assert.Zero(t, res.Status)
			assert.True(t, res.Sent)
		})
	}
	t.Run("resets", func(t *testing.T) {
		t.Parallel()
		// The reset may win the race against connect's return.
		res := hostile(t, raw(t, func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }), ample)
		assert.Contains(t, []egress.Class{egress.ClassReset, egress.ClassConnect}, res.Class, "%v", res.Err)
	})
	t.Run("answers too late", func(t *testing.T) { // B59
		t.Parallel()
		release := make(chan struct{})
		srv := receiver(t, func(w http.ResponseWriter, r *http.Request) { <-release; ok(w, r) })
		t.Cleanup(func() { close(release) })
		assert.Equal(t, egress.ClassTimeout, hostile(t, srv.URL, limit).Class)
	})
}

func TestAReceiverNeedNotReadALargePayload(t *testing.T) {
	t.Parallel()
	c := newClient(t, loopback(), egress.TransportConfig{})
	large := bytes.Repeat([]byte("x"), 16<<20)
	start := func(c net.Conn) { _, _ = io.ReadFull(c, make([]byte, 64<<10)) }
	for name, tc := range map[string]struct {
		serve func(net.Conn, <-chan struct{})
		want  egress.Class
	}{
		"reads nothing": {func(_ net.Conn, done <-chan struct{}) { <-done }, egress.ClassTimeout},
		"answers 413 first": {func(c net.Conn, done <-chan struct{}) {
			start(c)
			_, _ = io.WriteString(c, "HTTP/1.1 413 no\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
			<-done
		}, egress.ClassHTTP4xx},
		"answers 200 first": {func(c net.Conn, done <-chan struct{}) {
			start(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			<-done
		}, egress.ClassNone},
		"hangs up": {func(c net.Conn, _ <-chan struct{}) { start(c) }, egress.ClassReset},
	} {
		t.Run(name, func(t *testing.T) {
			done := make(chan struct{})
			url := raw(t, func(c net.Conn) { tc.serve(c, done) })
			res := c.Do(t.Context(), egress.Request{URL: url, Body: large, Timeout: limitOf(tc.want)})
			close(done)
			assert.Equal(t, tc.want, res.Class, "%v", res.Err)
			assert.Less(t, res.Latency, late)
		})
	}
}

// TestB59 counts what a hundred silent receivers of each kind leave behind.
func TestB59SilentReceiversLeaveNothingBehind(t *testing.T) {
	const (
		each  = 25      // of four kinds
		limit = patient // all of them wait at once
	)
	var open atomic.Int32
	silent := raw(t, func(c net.Conn) { open.Add(1); _, _ = io.Copy(io.Discard, c); open.Add(-1) })
	drip := raw(t, func(c net.Conn) {
		open.Add(1)
		readRequest(c)
		untilClosed(c, 50*time.Millisecond, "H")
		open.Add(-1)
	})
	body := raw(t, func(c net.Conn) {
		open.Add(1)
		readRequest(c)
		_, _ = io.WriteString(c, "HTTP/1.1 500 x\r\n\r\n")
		untilClosed(c, 50*time.Millisecond, "x")
		open.Add(-1)
	})
	tls := strings.Replace(silent, "http:", "https:", 1)
	tr := newTransport(t, loopback(), egress.TransportConfig{TLSTimeout: limit})
	c, err := egress.NewClient(egress.ClientConfig{Guard: tr.Guard(), Transport: tr, BodyTimeout: limit})
	require.NoError(t, err)
	goroutines := runtime.NumGoroutine()
	heap := heapInUse()

	var wg sync.WaitGroup
	start := time.Now()
	for _, url := range []string{silent, drip, body, tls} {
		for range each {
			wg.Go(func() {
				res := c.Do(t.Context(), egress.Request{URL: url, Body: []byte("{}"), Timeout: limit})
				want := egress.ClassTimeout
				if url == body {
					want = egress.ClassHTTP5xx
				}
				assert.Equal(t, want, res.Class, "%s: %v", url, res.Err)
				assert.GreaterOrEqual(t, res.Latency, limit-limit/10)
			})
		}
	}
	eventually(t, func() bool { return open.Load() == 4*each }, "not all wait at once")
	peak := heapInUse()
	wg.Wait()
	assert.Less(t, time.Since(start), limit+late, "they wait side by side")

	eventually(t, func() bool { return open.Load() == 0 }, "sockets stay open")
	eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines+4 }, "goroutines stay behind")
	t.Logf("%d attempts: heap %d KiB before, %d KiB during, %d KiB after", 4*each, heap>>10, peak>>10, heapInUse()>>10)
	assert.Less(t, heapInUse(), heap+8<<20)
}

// TestHostileAnswersCostLittleMemory measures what R01, R03, R04 and R05 allocate.
func TestHostileAnswersCostLittleMemory(t *testing.T) {
	flood := func(head, next string) string {
		return raw(t, func(c net.Conn) {
			readRequest(c)
			_, _ = io.WriteString(c, head)
			untilClosed(c, 0, next)
		})
	}
	c := newClient(t, loopback(), egress.TransportConfig{})
	for name, url := range map[string]string{
		"endless body":   flood("HTTP/1.1 200 OK\r\n\r\n", strings.Repeat("x", 64<<10)),
		"endless gzip":   flood("HTTP/1.1 500 no\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b\x08\x00", strings.Repeat("\x00", 64<<10)),
		"endless header": flood("HTTP/1.1 200 OK\r\nX: ", strings.Repeat("x", 64<<10)),
		"many headers":   flood("HTTP/1.1 200 OK\r\n", strings.Repeat("a: b\r\n", 10_000)),
		"103 flood":      flood("", strings.Repeat("HTTP/1.1 103 x\r\nA: b\r\n\r\n", 1000)),
		"chunk comments": flood("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", strings.Repeat("x", 64<<10)),
		"tiny chunks":    flood("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", strings.Repeat("1\r\nx\r\n", 10_000)),
		"trailers":       flood("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n0\r\n", strings.Repeat("A: b\r\n", 10_000)),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		res := c.Do(t.Context(), egress.Request{URL: url, Body: []byte("{}"), Timeout: 3 * time.Second})
		runtime.ReadMemStats(&after)
		grown := int64(after.TotalAlloc - before.TotalAlloc)
		t.Logf("%-15s class %-9q status %d: %d KiB allocated in %s", name, res.Class, res.Status, grown>>10, res.Latency.Round(time.Millisecond))
		assert.Less(t, grown, int64(2<<20), name)
	}
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}
