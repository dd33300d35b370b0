package egress_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/egress"
)

func TestAPolicyChangeEndsPooledConnections(t *testing.T) {
	t.Parallel()
	var conns atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(ok))
	closed := make(chan struct{}, 8)
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			conns.Add(1)
		case http.StateClosed:
			closed <- struct{}{}
		default:
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	c := newClient(t, loopback(), egress.TransportConfig{})
	require.True(t, ok2(post(t, c, srv.URL)))
	res := post(t, c, srv.URL)
	require.True(t, res.Reused)

	require.NoError(t, c.Guard().SetPolicy(loopback()))
	<-closed // at once, not when the next request comes
	res = post(t, c, srv.URL)
	assert.True(t, res.OK())
	assert.False(t, res.Reused, "opened under the old policy")
	assert.EqualValues(t, 2, conns.Load())

	require.NoError(t, c.Guard().SetPolicy(withHTTP()))
	assert.Equal(t, egress.ClassBlocked, post(t, c, srv.URL).Class)
}

func TestAConnectionInUseDuringAPolicyChangeIsNotPooled(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	srv := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			entered <- struct{}{}
			<-leave
		}
		ok(w, r)
	})
	c := newClient(t, loopback(), egress.TransportConfig{})
	done := make(chan egress.Result)
	go func() { done <- post(t, c, srv.URL+"/slow") }()
	<-entered
	require.NoError(t, c.Guard().SetPolicy(loopback()))
	close(leave)
	res := <-done
	assert.True(t, res.OK())
	res = post(t, c, srv.URL+"/")
	assert.True(t, res.OK())
	assert.False(t, res.Reused)
}

func TestA31RedirectsAreNotFollowed(t *testing.T) { // B21, B22
	t.Parallel()
	for _, status := range []int{300, 301, 302, 303, 304, 305, 307, 308} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			target := trapAt(t, "127.0.0.1:0")
			location := "http://127.0.0.1:" + target.port + "/login"
			srv := receiver(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", location)
				w.WriteHeader(status)
			})
			res := post(t, newClient(t, loopback(), egress.TransportConfig{}), srv.URL)
			assert.Equal(t, egress.ClassRedirect, res.Class)
			assert.Equal(t, status, res.Status)
			assert.Equal(t, location, res.Location)
			assert.NoError(t, res.Err)
			assert.Zero(t, target.count.Load())
		})
	}
}

func TestALocationCannotHarmAReader(t *testing.T) {
	t.Parallel()
	srv := raw(t, func(c net.Conn) {
		readRequest(c)
		_, _ = io.WriteString(c, "HTTP/1.1 302 x\r\nLocation: http://x/\xff\u202e\r\nContent-Length: 0\r\n\r\n")
	})
	res := post(t, newClient(t, loopback(), egress.TransportConfig{}), srv)
	assert.Equal(t, egress.ClassRedirect, res.Class, "%v", res.Err)
	assert.Equal(t, "http://x/??", res.Location)
}

func TestExcerptsOfPrivateAddressesAreWithheld(t *testing.T) {
	t.Parallel()
	p := loopback()
	for i := range p.Allow {
		p.Allow[i].Excerpts = false
	}
	srv := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "http://internal/")
		w.WriteHeader(http.StatusFound)
		_, _ = io.WriteString(w, "secret")
	})
	c := newClient(t, p, egress.TransportConfig{})
	res := post(t, c, srv.URL)
	assert.Equal(t, 302, res.Status)
	assert.Empty(t, res.Excerpt)
	assert.Empty(t, res.Location)
	assert.True(t, res.Withheld)
	res = post(t, c, answer(t, 200, "1234").URL)
	assert.True(t, res.OK())
	assert.Empty(t, res.Excerpt)
	assert.Empty(t, res.BodyHash, "a hash of little is as good as the text")

	// The same through a transport that is not ours.
	foreign, err := egress.NewClient(egress.ClientConfig{Guard: c.Guard(), Transport: &http.Transport{DisableKeepAlives: true}})
	require.NoError(t, err)
	res = post(t, foreign, srv.URL)
	assert.Equal(t, 302, res.Status)
	assert.Empty(t, res.Excerpt)
	assert.True(t, res.Withheld)
}

func TestAPolicyMayChangeUnderLoad(t *testing.T) {
	t.Parallel()
	srv := receiver(t, ok)
	c := newClient(t, loopback(), egress.TransportConfig{})
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				res := post(t, c, srv.URL)
				if !res.OK() && res.Class != egress.ClassBlocked {
					t.Errorf("%s: %v", res.Class, res.Err)
					return
				}
			}
		})
	}
	for i := range 200 {
		p := loopback()
		if i%2 == 1 {
			p = withHTTP()
		}
		if !assert.NoError(t, c.Guard().SetPolicy(p)) {
			break
		}
		if i%2 == 1 {
			assert.Equal(t, egress.ClassBlocked, post(t, c, srv.URL).Class, "at once, and with a full pool")
		}
	}
	close(stop)
	wg.Wait()
}

func TestTheHostsOwnAddressesAreReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var list []netip.Addr
		var fault error
		g := newGuard(t, egress.Policy{LocalAddrs: func() ([]netip.Addr, error) { return list, fault }})
		a := at443("9.9.9.9")
		require.NoError(t, g.CheckAddr(a))
		list = []netip.Addr{a.Addr()}
		require.NoError(t, g.CheckAddr(a), "not for every connection")
		time.Sleep(31 * time.Second)
		require.ErrorIs(t, g.CheckAddr(a), egress.ErrBlocked)
		list, fault = nil, errors.New("no netlink")
		time.Sleep(31 * time.Second)
		require.ErrorIs(t, g.CheckAddr(a), egress.ErrBlocked, "what was read last holds")
	})
}
