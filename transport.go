package webhook

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/outhook/webhook/internal/egress"
)

// PortRange is an inclusive range of TCP ports, from 1 to 65535.
type PortRange struct {
	From, To uint16
}

// AllowRule opens addresses that a [Transport] refuses by default: an operator's own
// receivers, or loopback in tests. There is no switch that opens everything.
type AllowRule struct {
	// Excerpts keeps response excerpts and redirect targets from these addresses in
	// the attempt log. Off by default: where tenants choose URLs and read attempts,
	// it would let them read a private network.
	Excerpts bool

	// Ports lists the ports that the rule opens, also ones that are refused
	// elsewhere. Empty means the ports of [TransportConfig].
	Ports []PortRange

	// Prefix is the block of addresses, at least 7 bits long. Cloud metadata services
	// and, loopback apart, this host's own addresses stay shut unless a rule lists
	// exactly that address (/32 or /128).
	Prefix netip.Prefix
}

// EgressProxy is a proxy that every request leaves through. It is asked, with CONNECT
// and for http targets too, for the address that was resolved and judged here, so it
// cannot be led elsewhere; TLS runs through the tunnel, against the name in the URL.
type EgressProxy struct {
	// RootCAs verifies a proxy that is spoken to over https. Nil means the host's
	// roots.
	RootCAs *x509.CertPool

	// TargetFaultStatus lists the answers to CONNECT that mean "the target cannot be
	// reached" and count as the endpoint's failure. Empty means 502 and 504. Any
	// other refusal is the proxy's fault and charged to no endpoint.
	TargetFaultStatus []int

	// URL is http://host:port or https://host:port, with user:password@ where the
	// proxy wants Basic credentials. Its address is not judged: it is the operator's.
	URL string
}

// Resolver looks host names up; [*net.Resolver] is one. Names are passed with a
// trailing dot, so that no search list applies, unless AllowHosts lists them.
type Resolver interface {
	// LookupNetIP returns the addresses of host. network is "ip".
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// TransportConfig configures [NewTransport]. The zero value is the strict default:
// HTTPS to public addresses only.
type TransportConfig struct {
	// Allow opens addresses that are refused by default.
	Allow []AllowRule

	// AllowHosts exempts host names from the name rules (single-label names,
	// localhost, .local, .internal and the like): exact names, or "*.suffix". They are
	// the operator's own names, so the search list and the hosts file of this machine
	// apply to them, as to no other name. Their addresses are judged as always.
	AllowHosts []string

	// AllowHTTP accepts http URLs besides https. Off by default: payloads would
	// travel in the clear.
	AllowHTTP bool

	// ConnectTimeout bounds the DNS lookup and the connection, each. Zero means 3 s;
	// negative is an error, as for every duration here.
	ConnectTimeout time.Duration

	// Denied lists blocks that are refused even where Allow lists them, such as the
	// operator's own public addresses.
	Denied []netip.Prefix

	// IdleTimeout is how long a connection is kept for the next attempt. Zero means
	// 30 s.
	IdleTimeout time.Duration

	// MaxConnAge is how long attempts share one connection, so that even a busy
	// connection follows its name to a new address. Zero means 10 min.
	MaxConnAge time.Duration

	// MaxHeaderBytes bounds all response headers of an attempt, informational (1xx)
	// ones included. Zero means 32 KiB; at most 1 MiB.
	MaxHeaderBytes int64

	// MaxIdle bounds the idle connections. Zero means 1,024; negative keeps none.
	MaxIdle int

	// MaxIdlePerTarget bounds the idle connections to one scheme, host and port. Zero
	// means 20, the default cap of requests in flight per host.
	MaxIdlePerTarget int

	// NAT64 lists NAT64 prefixes (RFC 6052) whose addresses are judged by the IPv4
	// address inside. Without it 64:ff9b::/96 is refused. A network with a prefix of
	// its own must list it: nothing else tells it from ordinary addresses.
	NAT64 []netip.Prefix

	// Ports lists the ports that URLs may use. Empty means 443, with AllowHTTP also
	// 80, and those from 1024 on that belong to no well-known service which speaks
	// another protocol than HTTP, such as databases.
	Ports []PortRange

	// Proxy sends every request through an egress proxy. Nil connects directly. Proxy
	// settings of the environment (HTTPS_PROXY and its kin) are never used.
	Proxy *EgressProxy

	// Resolver looks names up. Nil means Go's own resolver with the host's settings.
	Resolver Resolver

	// ResponseHeaderTimeout bounds the wait for the response headers once a request
	// is written. Zero means that only the attempt's own time limit does.
	ResponseHeaderTimeout time.Duration

	// RootCAs verifies endpoints that bring no CA pool of their own. Nil means the
	// host's roots. Verification cannot be turned off.
	RootCAs *x509.CertPool

	// TLSTimeout bounds the TLS handshake. Zero means 5 s.
	TLSTimeout time.Duration
}

// Transport sends requests to addresses that strangers chose. It refuses private,
// local and otherwise special addresses at every connection, on the very address that
// is dialled; it follows no redirects, keeps no cookies, reads no proxy settings from
// the environment and always verifies TLS. docs/security.md has the whole list.
//
// It is an [http.RoundTripper]. To instrument it, give [Transport.Wrap] the wrapper,
// say otelhttp.NewTransport; to replace it, write a RoundTripper of your own, which
// then stands for its addresses itself. URL rules, time limits, body limits and error
// classes stay in all cases.
//
// Make one with [NewTransport]. It may be used by many goroutines.
type Transport struct {
	t *egress.Transport
}

// NewTransport returns a Transport, or an error that names the field that is wrong. It
// reads the host's own addresses, which are refused as targets.
func NewTransport(cfg TransportConfig) (*Transport, error) {
	guard, err := egress.NewGuard(cfg.policy())
	if err != nil {
		return nil, fmt.Errorf("webhook: transport: %w", err)
	}
	t, err := egress.NewTransport(guard, cfg.transport())
	if err != nil {
		return nil, fmt.Errorf("webhook: transport: %w", err)
	}
	return &Transport{t: t}, nil
}

// RoundTrip implements [http.RoundTripper]. It checks the request's URL, so a plain
// [http.Client] around a Transport is guarded too.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) { return t.t.RoundTrip(req) }

// CloseIdleConnections closes the connections that no request is using.
func (t *Transport) CloseIdleConnections() { t.t.CloseIdleConnections() }

// CheckURL returns raw as it would be stored and sent: host in lower-case ASCII
// without a trailing dot, no default port. Its error says which rule the URL breaks,
// quotes nothing of it, and may be shown to the person who entered it. A host name is
// not resolved here; its addresses are judged at every connection.
func (t *Transport) CheckURL(raw string) (string, error) { return checkURL(t.t.Guard(), raw) }

// SetPolicy replaces what decides where requests may go: Allow, AllowHosts, AllowHTTP,
// Denied, NAT64 and Ports of cfg. Its other fields are ignored. Connections that were
// opened before are not used again. On an error nothing changes.
func (t *Transport) SetPolicy(cfg TransportConfig) error {
	if err := t.t.Guard().SetPolicy(cfg.policy()); err != nil {
		return fmt.Errorf("webhook: transport: %w", err)
	}
	return nil
}

// Wrap returns wrap(t), still knowing the URL rules of t. Wrap may also return a
// RoundTripper that does not use t at all, for instance one that answers from memory
// in a test.
func (t *Transport) Wrap(wrap func(http.RoundTripper) http.RoundTripper) http.RoundTripper {
	return &wrappedTransport{RoundTripper: wrap(t), inner: t}
}

type wrappedTransport struct {
	http.RoundTripper
	inner *Transport
}

// CheckURL applies the rules of the wrapped Transport.
func (w *wrappedTransport) CheckURL(raw string) (string, error) { return w.inner.CheckURL(raw) }

// CloseIdleConnections closes those of the wrapped Transport.
func (w *wrappedTransport) CloseIdleConnections() { w.inner.CloseIdleConnections() }

// newEgressClient returns the client that every request leaves through: attempts,
// tests, replays and probes alike. A nil rt is a Transport of its own with the
// defaults; one that is not a Transport gets the default URL rules, its addresses being
// its own affair.
func newEgressClient(rt http.RoundTripper, timeout time.Duration) (*egress.Client, error) {
	var guard *egress.Guard
	switch x := rt.(type) {
	case nil:
		t, err := NewTransport(TransportConfig{})
		if err != nil {
			return nil, err
		}
		rt, guard = t, t.t.Guard()
	case *Transport:
		guard = x.t.Guard()
	case *wrappedTransport:
		guard = x.inner.t.Guard()
	default:
		g, err := egress.NewGuard(egress.Policy{})
		if err != nil {
			return nil, fmt.Errorf("webhook: transport: %w", err)
		}
		guard = g
	}
	c, err := egress.NewClient(egress.ClientConfig{Guard: guard, Timeout: timeout, Transport: rt})
	if err != nil {
		return nil, fmt.Errorf("webhook: transport: %w", err)
	}
	return c, nil
}

// checkURL applies the rules of guard.
func checkURL(guard *egress.Guard, raw string) (string, error) {
	target, err := guard.CheckURL(raw)
	if err != nil {
		return "", &InvalidError{Field: "URL", Problem: "is refused: " + urlProblem(err), cause: err}
	}
	return target.String(), nil
}

// urlProblem is the text for the person who entered the URL: a refused address has the
// same one whichever it is.
func urlProblem(err error) string {
	if u, ok := errors.AsType[*egress.URLError](err); ok {
		return u.Text
	}
	return egress.PublicText(egress.ClassBlocked)
}

func (c *TransportConfig) policy() egress.Policy {
	p := egress.Policy{
		AllowHosts: c.AllowHosts,
		Denied:     c.Denied,
		NAT64:      c.NAT64,
		Ports:      egressPorts(c.Ports),
	}
	if c.AllowHTTP {
		p.Schemes = []string{"https", "http"}
	}
	for _, a := range c.Allow {
		p.Allow = append(p.Allow, egress.AllowRule{Excerpts: a.Excerpts, Ports: egressPorts(a.Ports), Prefix: a.Prefix})
	}
	return p
}

func egressPorts(list []PortRange) []egress.PortRange {
	out := make([]egress.PortRange, len(list))
	for i, r := range list {
		out[i] = egress.PortRange(r)
	}
	return out
}

func (c *TransportConfig) transport() egress.TransportConfig {
	out := egress.TransportConfig{
		ConnectTimeout:        c.ConnectTimeout,
		IdleTimeout:           c.IdleTimeout,
		MaxConnAge:            c.MaxConnAge,
		MaxHeaderBytes:        c.MaxHeaderBytes,
		MaxIdle:               c.MaxIdle,
		MaxIdlePerTarget:      c.MaxIdlePerTarget,
		Resolver:              c.Resolver,
		ResponseHeaderTimeout: c.ResponseHeaderTimeout,
		RootCAs:               c.RootCAs,
		TLSTimeout:            c.TLSTimeout,
	}
	if p := c.Proxy; p != nil {
		out.Proxy = &egress.ProxyConfig{RootCAs: p.RootCAs, TargetFaultStatus: p.TargetFaultStatus, URL: p.URL}
	}
	return out
}
