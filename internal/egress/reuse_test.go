package egress_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/egress"
)

// keepAlive answers requests on one connection and asks before each whether to hang
// up instead; n counts the requests of the connection from 0.
func keepAlive(t testing.TB, hangUp func(n int, body []byte) bool) string {
	t.Helper()
	return raw(t, func(c net.Conn) {
		br := bufio.NewReader(c)
		for n := 0; ; n++ {
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			body, _ := io.ReadAll(req.Body)
			if hangUp(n, body) {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
}

func TestAConnectionIsUsedAgain(t *testing.T) {
	t.Parallel()
	var conns atomic.Int32
	url := keepAlive(t, func(n int, _ []byte) bool {
		if n == 0 {
			conns.Add(1)
		}
		return false
	})
	c := newClient(t, loopback(), egress.TransportConfig{})
	for i := range 10 {
		res := post(t, c, url)
		require.True(t, res.OK(), "%v", res.Err)
		assert.Equal(t, i > 0, res.Reused)
	}
	assert.EqualValues(t, 1, conns.Load())
}

func TestB28AReusedConnectionThatIsDeadIsReplacedOnce(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	bodies := map[string]int{}
	url := keepAlive(t, func(n int, body []byte) bool {
		mu.Lock()
		bodies[string(body)]++
		mu.Unlock()
		return n == 1 // the second request of every connection is lost
	})
	c := newClient(t, loopback(), egress.TransportConfig{})
	first := c.Do(t.Context(), egress.Request{URL: url, Body: []byte("1")})
	require.True(t, first.OK())
	second := c.Do(t.Context(), egress.Request{URL: url, Body: []byte("2")})
	assert.True(t, second.OK(), "%v", second.Err)
	assert.True(t, second.Resent)
	assert.False(t, second.Reused, "the answer came on a new connection")
	assert.Equal(t, map[string]int{"1": 1, "2": 2}, bodies)
}

func TestB28ManyDeadConnectionsMakeOneResendEach(t *testing.T) {
	t.Parallel()
	// Twenty connections are pooled and then all hang up on their next request.
	var seen atomic.Int32
	var warm sync.WaitGroup
	warm.Add(20)
	url := keepAlive(t, func(n int, body []byte) bool {
		if string(body) == "warm" {
			warm.Done()
			warm.Wait() // each on a connection of its own
			return false
		}
		seen.Add(1)
		return n > 0
	})
	c := newClient(t, loopback(), egress.TransportConfig{})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { c.Do(t.Context(), egress.Request{URL: url, Body: []byte("warm")}) })
	}
	wg.Wait()
	res := c.Do(t.Context(), egress.Request{URL: url, Body: []byte("x"), Header: http.Header{"Idempotency-Key": {"k"}}})
	assert.True(t, res.OK(), "%v", res.Err)
	assert.EqualValues(t, 2, seen.Load(), "net/http would have tried every pooled connection")
}

func TestB28RacingAnIdleTimeoutLosesNothing(t *testing.T) {
	t.Parallel()
	// The receiver closes idle connections after 10 ms, without a word, and the events
	// come 8 to 12 ms apart: some meet a connection that is just being closed.
	srv := newIdleServer(t, 10*time.Millisecond)
	c := newClient(t, loopback(), egress.TransportConfig{})
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var resent int
	for i := range 200 {
		res := post(t, c, srv.url)
		require.True(t, res.OK(), "event %d: %s %v", i, res.Class, res.Err)
		if res.Resent {
			resent++
		}
		tick.Reset(8*time.Millisecond + time.Duration(i%41)*100*time.Microsecond)
		<-tick.C
	}
	t.Logf("200 delivered, %d of them on a second try", resent)
}

type idleServer struct{ url string }

func newIdleServer(t testing.TB, idle time.Duration) idleServer {
	t.Helper()
	return idleServer{url: raw(t, func(c net.Conn) {
		br := bufio.NewReader(c)
		for n := 0; ; n++ {
			if n > 0 {
				_ = c.SetReadDeadline(time.Now().Add(idle))
			}
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})}
}

func TestB28AGoodbyeInWordsIsNoAnswer(t *testing.T) {
	t.Parallel()
	for _, goodbye := range []string{
		"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n", "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "bye\r\n",
	} {
		said := make(chan struct{})
		var conns atomic.Int32
		url := raw(t, func(c net.Conn) {
			first := conns.Add(1) == 1
			readRequest(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			if first {
				_, _ = io.WriteString(c, goodbye)
				close(said)
			}
			_, _ = io.Copy(io.Discard, c)
		})
		c := newClient(t, loopback(), egress.TransportConfig{})
		require.True(t, ok2(post(t, c, url)))
		<-said
		res := post(t, c, url)
		// Words that cross with the request cannot be told from its answer. Those that
		// came before it must not fail it.
		if res.Status == 0 && res.Class == egress.ClassProtocol {
			assert.ErrorContains(t, res.Err, "malformed HTTP response")
			continue
		}
		assert.Contains(t, []int{200, 400, 408}, res.Status, "%q: %v", goodbye, res.Err)
	}
}

func TestAnAnswerThatBeganIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	var seen atomic.Int32
	url := raw(t, func(c net.Conn) {
		br := bufio.NewReader(c)
		for n := 0; ; n++ {
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			seen.Add(1)
			if n == 1 {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX: ")
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	c := newClient(t, loopback(), egress.TransportConfig{})
	require.True(t, ok2(post(t, c, url)))
	res := post(t, c, url)
	assert.Equal(t, egress.ClassReset, res.Class, "%v", res.Err)
	assert.False(t, res.Resent)
	assert.EqualValues(t, 2, seen.Load())
}

func TestATimeoutOnAReusedConnectionIsNotResent(t *testing.T) {
	t.Parallel()
	var seen atomic.Int32
	block := make(chan struct{})
	url := keepAlive(t, func(n int, _ []byte) bool {
		seen.Add(1)
		if n == 1 {
			<-block
		}
		return false
	})
	t.Cleanup(func() { close(block) })
	c := newClient(t, loopback(), egress.TransportConfig{})
	require.True(t, ok2(post(t, c, url)))
	res := c.Do(t.Context(), egress.Request{URL: url, Timeout: patient})
	assert.Equal(t, egress.ClassTimeout, res.Class)
	assert.EqualValues(t, 2, seen.Load())
}

func TestNoResendWritesTheRequestOnce(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"x", ""} {
		var conns, seen atomic.Int32
		url := keepAlive(t, func(n int, b []byte) bool {
			if n == 0 {
				conns.Add(1)
			}
			if !bytes.Equal(b, []byte(body)) {
				return false
			}
			seen.Add(1)
			return true
		})
		c := newClient(t, loopback(), egress.TransportConfig{})
		require.True(t, ok2(post(t, c, url))) // a pooled connection stands ready

		res := c.Do(t.Context(), egress.Request{URL: url, Body: []byte(body), NoResend: true, Header: http.Header{"Idempotency-Key": {"k"}}})

		assert.Equal(t, egress.ClassReset, res.Class, "%v", res.Err)
		assert.True(t, res.Sent, "so its outcome is unknown")
		assert.False(t, res.Reused, "a pooled connection could be dead")
		assert.False(t, res.Resent)
		assert.EqualValues(t, 1, seen.Load())
		assert.EqualValues(t, 2, conns.Load())
	}
}

func TestNoResendHoldsForAForeignTransportToo(t *testing.T) {
	t.Parallel()
	var seen atomic.Int32
	url := keepAlive(t, func(n int, _ []byte) bool { seen.Add(1); return n == 1 })
	foreign := &http.Transport{}
	t.Cleanup(foreign.CloseIdleConnections)
	c, err := egress.NewClient(egress.ClientConfig{Guard: newGuard(t, loopback()), Transport: foreign})
	require.NoError(t, err)
	for _, body := range []string{"", "x"} {
		seen.Store(0)
		require.True(t, ok2(post(t, c, url)))
		res := c.Do(t.Context(), egress.Request{URL: url, Body: []byte(body), NoResend: true, Header: http.Header{"Idempotency-Key": {"k"}}})
		assert.Equal(t, egress.ClassReset, res.Class, "%v", res.Err)
		assert.EqualValues(t, 2, seen.Load())
	}
}

func TestAnOldConnectionIsReplacedBeforeItIsUsed(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	srv := secure(t, &tls.Config{Certificates: []tls.Certificate{ca.certificate(t, soon, "h.test")}}, ok)
	var seen, conns atomic.Int32
	plain := keepAlive(t, func(n int, _ []byte) bool {
		if n == 0 {
			conns.Add(1)
		}
		seen.Add(1)
		return false
	})
	cfg := egress.TransportConfig{MaxConnAge: time.Nanosecond, Resolver: always("127.0.0.1"), RootCAs: ca.pool}
	c := newClient(t, loopback(), cfg)
	for range 50 {
		for _, url := range []string{plain, "https://h.test:" + port(t, srv) + "/"} {
			res := post(t, c, url)
			require.True(t, res.OK(), "%v", res.Err)
			assert.False(t, res.Reused)
			assert.False(t, res.Resent, "nothing was written to the old connection")
		}
	}
	assert.EqualValues(t, 50, seen.Load())
	assert.EqualValues(t, 50, conns.Load())
}

func TestIdleConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	var open atomic.Int32
	var once sync.WaitGroup
	once.Add(30)
	url := raw(t, func(c net.Conn) {
		open.Add(1)
		defer open.Add(-1)
		br := bufio.NewReader(c)
		for {
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			once.Done()
			once.Wait() // all thirty are in flight at once
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	c := newClient(t, loopback(), egress.TransportConfig{MaxIdlePerTarget: 5, IdleTimeout: 300 * time.Millisecond})
	var wg sync.WaitGroup
	for range 30 {
		wg.Go(func() { assert.True(t, ok2(post(t, c, url))) })
	}
	wg.Wait()
	eventually(t, func() bool { return open.Load() <= 5 }, "more than five stay open")
	eventually(t, func() bool { return open.Load() == 0 }, "idle connections outlive their time")
}
