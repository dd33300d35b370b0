package guides

import (
	"net/http"
	"net/netip"

	"github.com/outhook/webhook"
)

// region: allow

// ForOwnReceivers lets requests into a network of your own, beside public addresses.
func ForOwnReceivers() (*webhook.Transport, error) {
	return webhook.NewTransport(webhook.TransportConfig{
		Allow: []webhook.AllowRule{{
			Prefix: netip.MustParsePrefix("10.20.0.0/16"), // receivers of our own teams
			Ports:  []webhook.PortRange{{From: 443, To: 443}, {From: 8443, To: 8443}},
		}},
		AllowHosts: []string{"*.corp.internal"}, // the names; their addresses are judged as always
	})
}

// end region

// region: loopback

// ForTests reaches receivers on this machine.
func ForTests() (*webhook.Transport, error) {
	return webhook.NewTransport(webhook.TransportConfig{
		AllowHTTP: true,
		Allow: []webhook.AllowRule{{
			Prefix:   netip.MustParsePrefix("127.0.0.0/8"),
			Ports:    []webhook.PortRange{{From: 1, To: 65535}},
			Excerpts: true,
		}},
	})
}

// end region

// region: wrap

// Counted counts requests on their way out, behind the guard's rules for URLs.
func Counted(transport *webhook.Transport, count func(host string)) http.RoundTripper {
	return transport.Wrap(func(inner http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			count(r.URL.Hostname())
			return inner.RoundTrip(r) // with the request's own context
		})
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// end region

// region: egress-proxy

// ThroughProxy sends everything through a proxy in a network of its own.
func ThroughProxy(password string) (*webhook.Transport, error) {
	return webhook.NewTransport(webhook.TransportConfig{
		Proxy: &webhook.EgressProxy{
			URL:               "http://webhooks:" + password + "@egress.internal:3128",
			TargetFaultStatus: []int{502, 503, 504},
		},
	})
}

// end region
