package egress_test

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/outhook/webhook/internal/egress"
)

// endsInNumber is the rule of the WHATWG URL standard for hosts that are IPv4.
var endsInNumber = regexp.MustCompile(`\.([0-9]+|0x[0-9a-f]*)$`)

// FuzzCheckURL looks for a URL that panics, that passes and is not what it seems, or
// that means something else once it is stored and read again.
func FuzzCheckURL(f *testing.F) {
	for _, s := range []string{
		"https://hooks.example/in?x=1", "http://127.0.0.1/", "http://[::ffff:7f00:1]/", "http://[fe80::1%25eth0]/", "https://u:p@h.example/",
		"http://2130706433/", "http://0x7f.1/", "https://bücher.test:8443/", "http://①②⑦.⓪.⓪.①/", "https://h.example.:443/#x", "//h/", "http:h",
		"https://h.example/%0d%0a", "https://xn--.example/", "https://a_b.example:65535/é?é", "https://[2606:4700::1111]:1024/", "https://h。example/",
	} {
		f.Add(s)
	}
	g, err := egress.NewGuard(egress.Policy{Schemes: []string{"https", "http"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		target, err := g.CheckURL(raw)
		if err != nil {
			var u *egress.URLError
			if !errors.As(err, &u) && !errors.Is(err, egress.ErrBlocked) {
				t.Fatalf("%q: untyped error %v", raw, err)
			}
			return
		}
		text := target.String()
		again, err := g.CheckURL(text)
		if err != nil || again.String() != text {
			t.Fatalf("%q became %q, which became %v, %v", raw, text, again, err)
		}
		u, err := url.Parse(text)
		if err != nil {
			t.Fatalf("%q became %q: %v", raw, text, err)
		}
		host := u.Hostname()
		if host != target.Host || u.User != nil || u.Fragment != "" || u.Opaque != "" {
			t.Fatalf("%q became %q with host %q, judged as %q", raw, text, host, target.Host)
		}
		for i := range len(text) {
			if text[i] <= ' ' || text[i] >= 0x7f {
				t.Fatalf("%q became %q: not printable ASCII", raw, text)
			}
		}
		if a, err := netip.ParseAddr(host); err == nil {
			if !target.Addr.IsValid() || g.CheckAddr(netip.AddrPortFrom(a, target.Port)) != nil {
				t.Fatalf("%q passed with the address %s", raw, a)
			}
			return
		}
		if net.ParseIP(host) != nil || strings.HasSuffix(host, ".") || strings.ToLower(host) != host || !strings.Contains(host, ".") {
			t.Fatalf("%q passed with the host %q", raw, host)
		}
		if endsInNumber.MatchString(host) {
			t.Fatalf("%q passed with the numeric host %q", raw, host)
		}
		// What net/http writes is what was judged.
		req, err := http.NewRequest(http.MethodPost, text, http.NoBody)
		if err != nil || req.Host != u.Host {
			t.Fatalf("%q: request %v", text, err)
		}
	})
}

// FuzzControl looks for an address that panics or that is let through though the
// standard library alone knows that it is not public.
func FuzzControl(f *testing.F) {
	for _, s := range []string{"", ":80", "host:80", "[::1%lo]:80", "1.2.3.4", "127.0.0.1:443", "[::ffff:10.0.0.1]:443", "1.1.1.1:443", "[64:ff9b::7f00:1]:443"} {
		f.Add("tcp4", s)
		f.Add("tcp6", s)
	}
	f.Add("unix", "/x")
	g, err := egress.NewGuard(egress.Policy{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, network, address string) {
		if g.Control(t.Context(), network, address, nil) != nil {
			return
		}
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatalf("%q passed: %v", address, err)
		}
		ip := net.ParseIP(host)
		n, _ := strconv.Atoi(port)
		if ip == nil || !ip.IsGlobalUnicast() || ip.IsPrivate() || ip.IsLoopback() || n == 0 || (n < 1024 && n != 443) || !strings.HasPrefix(network, "tcp") {
			t.Fatalf("%s %q passed", network, address)
		}
	})
}

// FuzzCheckAddr walks all of both address spaces; the oracle is written from the
// registry's bytes rather than from prefixes.
func FuzzCheckAddr(f *testing.F) {
	for _, s := range []string{"1.1.1.1", "10.0.0.1", "::1", "2001:db8::1", "2606:4700::1", "::ffff:127.0.0.1", "64:ff9b::1"} {
		a := netip.MustParseAddr(s)
		f.Add(a.AsSlice(), uint16(443))
	}
	g, err := egress.NewGuard(egress.Policy{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte, port uint16) {
		a, _ := netip.AddrFromSlice(b) // invalid for other lengths: refused
		if g.CheckAddr(netip.AddrPortFrom(a, port)) != nil {
			return
		}
		if !a.IsValid() || port == 0 {
			t.Fatal("an invalid address passed")
		}
		a = a.Unmap()
		if a.Is4() {
			v := a.As4()
			if v[0] == 0 || v[0] == 10 || v[0] == 127 || v[0] >= 224 || (v[0] == 192 && v[1] == 168) || (v[0] == 172 && v[1]>>4 == 1) ||
				(v[0] == 169 && v[1] == 254) || (v[0] == 100 && v[1]>>6 == 1) || (v[0] == 198 && v[1]>>1 == 9) {
				t.Fatalf("%s passed", a)
			}
			return
		}
		v := a.As16()
		if v[0]>>5 != 1 || (v[0] == 0x20 && v[1] == 0x02) || (v[0] == 0x20 && v[1] == 0x01 && v[2] < 2) || (v[0] == 0x20 && v[1] == 1 && v[2] == 0xd && v[3] == 0xb8) {
			t.Fatalf("%s passed", a)
		}
	})
}
