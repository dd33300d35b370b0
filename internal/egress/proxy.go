package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

// ProxyConfig describes an egress proxy that speaks CONNECT. It is the only way to use
// a proxy: the environment's HTTP_PROXY and its kin are ignored.
//
// The target is resolved and judged in this process, and the proxy is asked for the
// judged address, so it cannot be led elsewhere by another DNS answer. TLS to the
// target is verified against the name in the URL, through the tunnel.
type ProxyConfig struct {
	// RootCAs verifies an https proxy. Nil means the host's roots.
	RootCAs *x509.CertPool

	// TargetFaultStatus lists the answers to CONNECT that mean "the target cannot be
	// reached" and so count as the endpoint's failure to connect. Empty means 502
	// and 504. Any other refusal is a fault of the proxy, charged to nobody. Squid
	// answers 503 for both, so which it should be is the operator's choice.
	TargetFaultStatus []int

	// URL is http://host:port or https://host:port, with user:password@ if the proxy
	// wants Basic credentials. The address is the operator's word: it may be private.
	URL string
}

// proxyAlive is how long ago a CONNECT must have succeeded for a hanging one to be
// blamed on its target rather than on the proxy.
const proxyAlive = 30 * time.Second

// maxConnectAnswer bounds the proxy's answer to CONNECT.
const maxConnectAnswer = 32 << 10

type proxyDialer struct {
	auth        string // value of Proxy-Authorization, or ""
	host        string
	addr        netip.Addr // valid if host is an address
	port        uint16
	resolver    Resolver
	targetFault []int
	tls         *tls.Config  // nil: plain
	lastOK      atomic.Int64 // nanoseconds since start of the last success, 0: none
	start       time.Time
}

func newProxyDialer(cfg *ProxyConfig, resolver Resolver) (*proxyDialer, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		// The text never quotes the URL: it may hold credentials.
		return nil, errors.New("egress proxy: URL: want http://host:port or https://host:port")
	}
	p := &proxyDialer{
		host: u.Hostname(), port: defaultPort(u.Scheme), resolver: resolver,
		targetFault: cfg.TargetFaultStatus, start: time.Now(),
	}
	if len(p.targetFault) == 0 {
		p.targetFault = []int{http.StatusBadGateway, http.StatusGatewayTimeout}
	}
	if s := u.Port(); s != "" {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil || n == 0 {
			return nil, errors.New("egress proxy: URL: port must be from 1 to 65535")
		}
		p.port = uint16(n)
	}
	if a, err := netip.ParseAddr(p.host); err == nil {
		p.addr = a.Unmap()
	}
	if u.User != nil {
		pw, _ := u.User.Password()
		p.auth = "Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+pw))
	}
	if u.Scheme == "https" {
		p.tls = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: cfg.RootCAs, ServerName: p.host, NextProtos: []string{"http/1.1"}}
	}
	return p, nil
}

func proxyFault(doing string, err error) error {
	return &opError{class: ClassProxy, doing: "egress proxy: " + doing, err: err}
}

// connect opens a tunnel to target, an address that the guard has judged.
func (p *proxyDialer) connect(ctx context.Context, target netip.AddrPort) (net.Conn, error) {
	list, err := p.addrs(ctx)
	if err != nil {
		return nil, proxyFault("look up", err)
	}
	if target.Port() == p.port && slices.Contains(list, target.Addr()) {
		return nil, blocked(target.String() + " is the egress proxy")
	}
	nc, err := p.dial(ctx, list)
	if err != nil {
		return nil, proxyFault("connect", err)
	}
	// CONNECT has no context of its own: closing the connection ends it.
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	err = p.tunnel(nc, target)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = nc.Close()
		return nil, p.blame(ctx, target, err)
	}
	p.lastOK.Store(int64(time.Since(p.start)) | 1)
	return nc, nil
}

func (p *proxyDialer) addrs(ctx context.Context) ([]netip.Addr, error) {
	if p.addr.IsValid() {
		return []netip.Addr{p.addr}, nil
	}
	list, err := p.resolver.LookupNetIP(ctx, "ip", p.host)
	if err == nil && len(list) == 0 {
		err = errors.New("no addresses")
	}
	for i := range list {
		list[i] = list[i].Unmap()
	}
	return list, err
}

func (p *proxyDialer) dial(ctx context.Context, list []netip.Addr) (net.Conn, error) {
	var nd net.Dialer
	var firstErr error
	for _, a := range list {
		nc, err := nd.DialContext(ctx, "tcp", netip.AddrPortFrom(a, p.port).String())
		if err != nil {
			if firstErr == nil {
				firstErr = err
			}
			continue
		}
		if p.tls == nil {
			return nc, nil
		}
		tc := tls.Client(nc, p.tls)
		if err := tc.HandshakeContext(ctx); err != nil {
			_ = nc.Close()
			return nil, err
		}
		return tc, nil
	}
	return nil, firstErr
}

// errRefused is the proxy's answer to CONNECT other than 2xx.
type errRefused struct{ status int }

func (e errRefused) Error() string {
	return fmt.Sprintf("CONNECT was answered with status %d", e.status)
}

func (p *proxyDialer) tunnel(nc net.Conn, target netip.AddrPort) error {
	req := "CONNECT " + target.String() + " HTTP/1.1\r\nHost: " + target.String() + "\r\n"
	if p.auth != "" {
		req += "Proxy-Authorization: " + p.auth + "\r\n"
	}
	if _, err := io.WriteString(nc, req+"\r\n"); err != nil {
		return err
	}
	br := bufio.NewReaderSize(io.LimitReader(nc, maxConnectAnswer), 1024)
	resp, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return err
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return errRefused{resp.StatusCode}
	}
	if br.Buffered() > 0 {
		// Neither TLS nor HTTP lets the far side speak first.
		return errors.New("data before the tunnel was used")
	}
	return nil
}

// blame decides whose fault a failed CONNECT is.
func (p *proxyDialer) blame(ctx context.Context, target netip.AddrPort, err error) error {
	doing := "connect to " + target.String() + " through the egress proxy"
	if r, ok := errors.AsType[errRefused](err); ok && slices.Contains(p.targetFault, r.status) {
		return &opError{class: ClassConnect, doing: doing, err: err}
	}
	// A proxy that waits for a silent target and a proxy that hangs look alike. If it
	// served somebody else a moment ago, the target is to blame.
	ok := p.lastOK.Load()
	if ctx.Err() != nil && ok != 0 && time.Since(p.start)-time.Duration(ok) < proxyAlive {
		return &opError{class: ClassTimeout, doing: doing, err: err}
	}
	return proxyFault("open a tunnel to "+target.String(), err)
}
