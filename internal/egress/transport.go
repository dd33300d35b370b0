package egress

import (
	"container/list"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Defaults of [TransportConfig], from docs/design.md §7 unless said otherwise.
const (
	DefaultConnectTimeout   = 3 * time.Second
	DefaultTLSTimeout       = 5 * time.Second
	DefaultMaxHeaderBytes   = 32 << 10
	DefaultIdleTimeout      = 30 * time.Second // below the 60 s and more of common load balancers
	DefaultMaxConnAge       = 10 * time.Minute
	DefaultMaxIdle          = 1024
	DefaultMaxIdlePerTarget = 20 // the default cap of requests in flight per host, docs/design.md §3
)

// maxTLSPools bounds the connection pools of endpoints with TLS options of their own.
// The least recently used one gives way and its idle connections are closed.
const maxTLSPools = 256

// TransportConfig configures a [Transport]. Zero fields mean their defaults.
type TransportConfig struct {
	ConnectTimeout time.Duration // DNS and TCP, each; default 3 s
	IdleTimeout    time.Duration // idle connections are closed after it; default 30 s
	// MaxConnAge is how long requests of a Client go out on one connection: a busy one
	// would otherwise never follow the name to a new address. Default 10 min.
	MaxConnAge     time.Duration
	MaxHeaderBytes int64 // of all response headers, 1xx included; default 32 KiB
	// MaxIdle bounds the idle connections of endpoints without TLS options; default
	// 1,024, negative keeps none.
	MaxIdle int
	// MaxIdlePerTarget bounds those of one scheme, host and port; default 20.
	MaxIdlePerTarget int
	Proxy            *ProxyConfig // nil: direct; the environment is never asked
	// Resolver looks names up; default Go's own resolver.
	Resolver Resolver
	// ResponseHeaderTimeout bounds the wait for the headers after the request is
	// written; default 0: only the attempt's own deadline does.
	ResponseHeaderTimeout time.Duration
	RootCAs               *x509.CertPool // default: the host's roots
	TLSTimeout            time.Duration  // default 5 s
}

// Transport is an [http.RoundTripper] that connects only where its [Guard] allows. It
// follows no redirect, keeps no cookie, reads no proxy settings from the environment,
// does not decompress, verifies TLS 1.2 or newer always, and speaks HTTP/1.1 only:
// with HTTP/2 one connection carries many attempts, so one hostile or overloaded peer
// decides about all of them at once (flow control, stream limits, resets), and the
// bounds above would have to be enforced anew per stream.
//
// Idle connections are kept per scheme, host, port, TLS options and policy: after
// [Guard.SetPolicy] none that was opened before is used again. It may be used by many
// goroutines.
type Transport struct {
	guard  *Guard
	cfg    TransportConfig
	dialer *dialer

	set atomic.Pointer[poolSet]
	mu  sync.Mutex // serialises the replacement of set
}

// NewTransport returns a Transport that asks g.
func NewTransport(g *Guard, cfg TransportConfig) (*Transport, error) {
	if g == nil {
		return nil, errors.New("egress transport: a guard is required")
	}
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	t := &Transport{guard: g, cfg: cfg}
	t.dialer = &dialer{guard: g, resolver: cfg.Resolver, connect: cfg.ConnectTimeout, maxAge: cfg.MaxConnAge, tlsTimeout: cfg.TLSTimeout}
	if cfg.Proxy != nil {
		p, err := newProxyDialer(cfg.Proxy, cfg.Resolver)
		if err != nil {
			return nil, err
		}
		t.dialer.proxy = p
	}
	t.pools()
	g.watch(func() { t.pools() })
	return t, nil
}

func (c *TransportConfig) setDefaults() error {
	for _, d := range []struct {
		name string
		v    *time.Duration
		def  time.Duration
	}{
		{"ConnectTimeout", &c.ConnectTimeout, DefaultConnectTimeout},
		{"IdleTimeout", &c.IdleTimeout, DefaultIdleTimeout},
		{"MaxConnAge", &c.MaxConnAge, DefaultMaxConnAge},
		{"TLSTimeout", &c.TLSTimeout, DefaultTLSTimeout},
		{"ResponseHeaderTimeout", &c.ResponseHeaderTimeout, 0},
	} {
		if *d.v < 0 || *d.v > time.Hour {
			return fmt.Errorf("egress transport: %s is %s: want 0 to 1h", d.name, *d.v)
		}
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	if c.MaxHeaderBytes < 0 || c.MaxHeaderBytes > 1<<20 {
		return fmt.Errorf("egress transport: MaxHeaderBytes is %d: want 0 to %d", c.MaxHeaderBytes, 1<<20)
	}
	if c.MaxHeaderBytes == 0 {
		c.MaxHeaderBytes = DefaultMaxHeaderBytes
	}
	if c.MaxIdlePerTarget < 0 {
		return fmt.Errorf("egress transport: MaxIdlePerTarget is %d: want 0 or more", c.MaxIdlePerTarget)
	}
	if c.MaxIdle == 0 {
		c.MaxIdle = DefaultMaxIdle
	}
	if c.MaxIdlePerTarget == 0 {
		c.MaxIdlePerTarget = DefaultMaxIdlePerTarget
	}
	if c.Resolver == nil {
		c.Resolver = &net.Resolver{PreferGo: true}
	}
	return nil
}

// Guard returns the guard that t asks.
func (t *Transport) Guard() *Guard { return t.guard }

// CloseIdleConnections closes the connections that no request is using.
func (t *Transport) CloseIdleConnections() { t.set.Load().closeIdle() }

// RoundTrip implements [http.RoundTripper]. A request that does not come from a
// [Client] has its URL checked here.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	a := attemptFrom(req.Context())
	if a != nil {
		a.guarded.Store(true)
	}
	if a == nil || a.url != req.URL {
		if err := t.checkRequest(req); err != nil {
			if req.Body != nil {
				_ = req.Body.Close()
			}
			return nil, err
		}
	}
	if a == nil {
		req = tracked(req)
	}
	set := t.pools()
	p := &set.plain
	if a != nil && a.tls != nil {
		p = set.forTLS(a.tls)
	}
	if a != nil && a.fresh {
		return p.fresh.RoundTrip(req)
	}
	return p.keep.RoundTrip(req)
}

func (t *Transport) checkRequest(req *http.Request) error {
	if req.URL == nil {
		return badURL("syntax", "it is missing")
	}
	_, err := t.guard.CheckURL(req.URL.String())
	return err
}

// pools returns the pools of the present policy, making them if it is new.
func (t *Transport) pools() *poolSet {
	state := t.guard.state.Load()
	if set := t.set.Load(); set != nil && set.state == state {
		return set
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	state = t.guard.state.Load()
	old := t.set.Load()
	if old != nil && old.state == state {
		return old
	}
	set := &poolSet{t: t, state: state, plain: t.newPool(nil), byTLS: map[[sha256.Size]byte]*list.Element{}}
	t.set.Store(set)
	if old != nil {
		// Connections still in use are closed when they become idle: nobody asks the
		// old pools for one any more.
		old.closeIdle()
	}
	return set
}

// poolSet holds the connections that were opened under one policy.
type poolSet struct {
	t     *Transport
	state *guardState
	plain pool

	mu    sync.Mutex // guards byTLS and order
	byTLS map[[sha256.Size]byte]*list.Element
	order list.List // of *tlsPool, the most recently used in front
}

type tlsPool struct {
	id [sha256.Size]byte
	pool
}

// pool is one connection pool and its twin without one.
type pool struct {
	keep  *http.Transport
	fresh *http.Transport // a new connection for every request, closed after it
}

func (s *poolSet) forTLS(o *TLSOptions) *pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byTLS[o.id]; e != nil {
		s.order.MoveToFront(e)
		return &e.Value.(*tlsPool).pool
	}
	p := &tlsPool{id: o.id, pool: s.t.newPool(o)}
	s.byTLS[o.id] = s.order.PushFront(p)
	if s.order.Len() > maxTLSPools {
		last := s.order.Remove(s.order.Back()).(*tlsPool)
		delete(s.byTLS, last.id)
		last.keep.CloseIdleConnections()
	}
	return &p.pool
}

func (s *poolSet) closeIdle() {
	s.plain.keep.CloseIdleConnections()
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := s.order.Front(); e != nil; e = e.Next() {
		e.Value.(*tlsPool).keep.CloseIdleConnections()
	}
}

func (t *Transport) newPool(o *TLSOptions) pool {
	p := pool{keep: t.newHTTP(o), fresh: t.newHTTP(o)}
	p.fresh.DisableKeepAlives = true
	if o != nil {
		p.keep.MaxIdleConns = p.keep.MaxIdleConnsPerHost
	}
	if t.cfg.MaxIdle < 0 {
		p.keep.DisableKeepAlives = true
	}
	return p
}

// newHTTP makes the http.Transport with every bound in place. Both dial functions go
// through the guard, Proxy stays nil, and there is no other way to a connection.
func (t *Transport) newHTTP(o *TLSOptions) *http.Transport {
	cfg := o.config(t.cfg.RootCAs)
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			ctx, cancel := dialContext(ctx)
			defer cancel()
			nc, err := t.dialer.dial(ctx, address)
			if err != nil {
				return nil, err // a nil *conn is no nil net.Conn
			}
			return nc, nil
		},
		DialTLSContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			ctx, cancel := dialContext(ctx)
			defer cancel()
			return t.dialer.dialTLS(ctx, address, cfg)
		},
		DisableCompression:     true,
		IdleConnTimeout:        t.cfg.IdleTimeout,
		MaxIdleConns:           max(t.cfg.MaxIdle, 0),
		MaxIdleConnsPerHost:    t.cfg.MaxIdlePerTarget,
		MaxResponseHeaderBytes: t.cfg.MaxHeaderBytes,
		Protocols:              &protocols,
		ReadBufferSize:         readBufferBytes,
		ResponseHeaderTimeout:  t.cfg.ResponseHeaderTimeout,
	}
}
