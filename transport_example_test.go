package webhook_test

import (
	"fmt"
	"net/http"
	"net/netip"

	"github.com/outhook/webhook"
)

// The zero configuration lets requests out to public addresses over HTTPS. Its errors
// may be shown to the person who entered the URL.
func ExampleNewTransport() {
	transport, err := webhook.NewTransport(webhook.TransportConfig{})
	if err != nil {
		panic(err)
	}
	for _, entered := range []string{
		"https://Hooks.Acme.example:443",
		"http://hooks.acme.example/",
		"https://169.254.169.254/latest/meta-data/",
		"https://hooks.acme.example:22/",
	} {
		url, err := transport.CheckURL(entered)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(url)
	}
	// Output:
	// https://hooks.acme.example/
	// webhook: URL is refused: the scheme must be https
	// webhook: URL is refused: the address is not allowed
	// webhook: URL is refused: port 22 is not allowed (allowed: 443 and 1024-65535 less the ports of well-known services)
}

// Rules open single blocks of private addresses, here for receivers of the operator's
// own.
func ExampleAllowRule() {
	transport, err := webhook.NewTransport(webhook.TransportConfig{
		Allow: []webhook.AllowRule{{Prefix: netip.MustParsePrefix("10.20.0.0/16")}},
	})
	if err != nil {
		panic(err)
	}
	_, err = transport.CheckURL("https://10.20.0.7/in")
	fmt.Println(err)
	_, err = transport.CheckURL("https://10.21.0.7/in")
	fmt.Println(err)
	// Output:
	// <nil>
	// webhook: URL is refused: the address is not allowed
}

// Wrap puts instrumentation around the transport without losing its URL rules.
func ExampleTransport_Wrap() {
	transport, err := webhook.NewTransport(webhook.TransportConfig{})
	if err != nil {
		panic(err)
	}
	counting := transport.Wrap(func(inner http.RoundTripper) http.RoundTripper {
		return &counter{inner: inner} // or otelhttp.NewTransport(inner)
	})
	req, err := http.NewRequest(http.MethodPost, "https://10.0.0.1/", http.NoBody)
	if err != nil {
		panic(err)
	}
	resp, err := counting.RoundTrip(req)
	if err == nil {
		resp.Body.Close()
	}
	fmt.Println(err)
	// Output: the address is not allowed
}

type counter struct {
	inner http.RoundTripper
	n     int
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n++
	return c.inner.RoundTrip(r)
}
