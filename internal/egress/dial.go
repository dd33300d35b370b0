package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// Resolver looks names up. [*net.Resolver] is one; tests bring their own.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

const (
	// maxAddrs bounds how many addresses of one name are tried, so that a DNS answer
	// with hundreds of them is not a port scan on a customer's behalf.
	maxAddrs = 6

	// fallbackDelay is how long the next address waits for the one before it
	// (RFC 8305 §5, Connection Attempt Delay).
	fallbackDelay = 250 * time.Millisecond
)

// dialer makes connections that the guard allows.
type dialer struct {
	guard      *Guard
	resolver   Resolver
	connect    time.Duration
	maxAge     time.Duration // of a pooled connection
	tlsTimeout time.Duration
	proxy      *proxyDialer // nil: direct
}

type candidate struct {
	ap      netip.AddrPort
	verdict verdict
}

// dial connects to host:port. It resolves the name once, judges every address, and
// dials only those that passed, by number.
func (d *dialer) dial(ctx context.Context, address string) (*conn, error) {
	host, addr, port, err := splitTarget(address)
	if err != nil {
		return nil, err
	}
	found := []netip.Addr{addr}
	if !addr.IsValid() {
		if found, err = d.resolve(ctx, host); err != nil {
			return nil, err
		}
	}
	list, err := d.admit(found, port)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, d.connect, errConnectTimeout)
	defer cancel()
	return race(ctx, list, d.dialOne)
}

var errConnectTimeout = errors.New("connect timeout")

func (d *dialer) resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, d.connect)
	defer cancel()
	query := name
	if st := d.guard.state.Load(); st == nil || !st.rules.hostListed(name) {
		// The trailing dot keeps the search list of resolv.conf out: inside a cluster it
		// would turn a customer's name into one of the cluster's own.
		query += "."
	}
	found, err := d.resolver.LookupNetIP(ctx, "ip", query)
	if err == nil && len(found) == 0 {
		err = errors.New("no addresses")
	}
	if err != nil {
		return nil, &opError{class: ClassDNS, doing: "look up " + name, err: err}
	}
	return found, nil
}

// admit returns the addresses that passed, families taking turns. If none did, the
// refusal of the first is returned.
func (d *dialer) admit(found []netip.Addr, port uint16) ([]candidate, error) {
	var first *BlockedError
	var v4, v6 []candidate
	for _, a := range found {
		ap := netip.AddrPortFrom(a.Unmap(), port)
		v, b := d.guard.judge(netip.AddrPortFrom(a, port))
		if b != nil {
			if first == nil {
				first = b
			}
			continue
		}
		if ap.Addr().Is4() {
			v4 = append(v4, candidate{ap, v})
		} else {
			v6 = append(v6, candidate{ap, v})
		}
	}
	if len(v4)+len(v6) == 0 {
		return nil, first
	}
	one, two := v6, v4
	if found[0].Unmap().Is4() {
		one, two = v4, v6
	}
	out := make([]candidate, 0, maxAddrs)
	for i := 0; len(out) < maxAddrs && (i < len(one) || i < len(two)); i++ {
		if i < len(one) {
			out = append(out, one[i])
		}
		if i < len(two) && len(out) < maxAddrs {
			out = append(out, two[i])
		}
	}
	return out, nil
}

// dialOne connects to one judged address, or has the proxy do so.
func (d *dialer) dialOne(ctx context.Context, c candidate) (*conn, error) {
	if d.proxy != nil {
		nc, err := d.proxy.connect(ctx, c.ap)
		if err != nil {
			return nil, err
		}
		return d.wrap(nc, c), nil
	}
	nd := net.Dialer{ControlContext: d.guard.Control}
	nc, err := nd.DialContext(ctx, "tcp", c.ap.String())
	if err != nil {
		return nil, connectError(ctx, "connect to "+c.ap.String(), err)
	}
	return d.wrap(nc, c), nil
}

func (d *dialer) wrap(nc net.Conn, c candidate) *conn {
	return newConn(nc, time.Now().Add(d.maxAge), c.verdict)
}

// connectError gives a failed dial its class. A refusal keeps its own.
func connectError(ctx context.Context, doing string, err error) error {
	if errors.Is(err, ErrBlocked) {
		return err
	}
	class := ClassConnect
	if isTimeout(err) || errors.Is(context.Cause(ctx), errConnectTimeout) {
		class = ClassTimeout
	}
	return &opError{class: class, doing: doing, err: err}
}

// race tries the candidates in order, the next one as soon as the one before failed or
// took fallbackDelay, and returns the first connection (RFC 8305). All goroutines end
// when ctx does, or soon after a winner cancels them.
func race(ctx context.Context, list []candidate, dial func(context.Context, candidate) (*conn, error)) (*conn, error) {
	if len(list) == 1 {
		return dial(ctx, list[0])
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		conn *conn
		err  error
	}
	results := make(chan result) // unbuffered: whoever finds nobody waiting closes his connection
	start := func(c candidate) {
		nc, err := dial(ctx, c)
		select {
		case results <- result{nc, err}:
		case <-ctx.Done():
			if nc != nil {
				_ = nc.Close()
			}
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	next, running := 0, 0
	var firstErr error
	for {
		select {
		case <-timer.C:
			if next < len(list) {
				go start(list[next])
				next++
				running++
				timer.Reset(fallbackDelay)
			}
		case r := <-results:
			running--
			if r.err == nil {
				return r.conn, nil
			}
			if firstErr == nil {
				firstErr = r.err
			}
			if next == len(list) && running == 0 {
				return nil, firstErr
			}
			timer.Reset(0)
		case <-ctx.Done():
			return nil, connectError(ctx, "connect", context.Cause(ctx))
		}
	}
}

// dialTLS connects and completes a verified handshake under cfg.
func (d *dialer) dialTLS(ctx context.Context, address string, cfg *tls.Config) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, blocked("unreadable address " + address)
	}
	own, err := d.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	cfg = cfg.Clone()
	cfg.ServerName = host
	ctx, cancel := context.WithTimeout(ctx, d.tlsTimeout)
	defer cancel()
	tc := tls.Client(own.Conn, cfg)
	if err := tc.HandshakeContext(ctx); err != nil {
		_ = own.Close()
		return nil, handshakeError(ctx, host, err)
	}
	own.Conn = tc
	return own, nil
}

func handshakeError(ctx context.Context, host string, err error) error {
	class := ClassTLS
	switch {
	case ctx.Err() != nil || isTimeout(err):
		class = ClassTimeout
	case isReset(err):
		class = ClassReset
	}
	return &opError{class: class, doing: fmt.Sprintf("TLS handshake with %s", host), err: err}
}
