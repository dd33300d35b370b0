package egress_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/egress"
)

// withHTTP is the strict policy but for the scheme, so that a case about something
// else than the scheme is refused for its own reason.
func withHTTP() egress.Policy { return egress.Policy{Schemes: []string{"https", "http"}} }

// blockedRule stands for a refusal by address.
const blockedRule = "address"

func ruleOf(t *testing.T, err error) string {
	t.Helper()
	require.Error(t, err)
	if u, ok := errors.AsType[*egress.URLError](err); ok {
		return u.Rule
	}
	require.ErrorIs(t, err, egress.ErrBlocked)
	return blockedRule
}

func TestURLsThatAreRefusedWhenAnEndpointIsWritten(t *testing.T) {
	t.Parallel()
	g := newGuard(t, withHTTP())
	for _, c := range []struct {
		id, rule string
		urls     []string
	}{
		{"A01 loopback", blockedRule, []string{"http://127.0.0.1/", "http://127.255.255.254/", "https://127.0.0.1:8443/x"}},
		{"A02 localhost names", "local_name", []string{
			"http://localhost/", "http://LOCALHOST./", "http://x.localhost/", "http://localhost.localdomain/",
			"https://metadata.google.internal/", "https://instance-data/", "https://metadata.azure.internal./",
			"https://printer.local/", "https://intranet/", "https://box.home.arpa/", "https://ｌｏｃａｌｈｏｓｔ/",
		}},
		{"A03 IPv6 loopback", blockedRule, []string{"http://[::1]/", "http://[0:0:0:0:0:0:0:1]/"}},
		{"A04 mapped loopback, B25", blockedRule, []string{"http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[::FFFF:7F00:1]:8080/"}},
		{"A05 private", blockedRule, []string{"https://10.0.0.1/", "https://172.16.0.1/", "https://172.31.255.255/", "https://192.168.0.1/"}},
		{"A07 metadata", blockedRule, []string{"http://169.254.169.254/latest/meta-data/", "http://169.254.170.2/"}},
		{"A08 unspecified", blockedRule, []string{"http://0.0.0.0/", "http://0.1.2.3/", "http://[::]/"}},
		{"A13 zone", "zone", []string{"http://[fe80::1%25eth0]/", "http://[fe80::1%25lo]:8080/", "http://[::1%25.example.com]/"}},
		{"A13 link-local", blockedRule, []string{"http://[fe80::1]/"}},
		{"A14 NAT64", blockedRule, []string{"http://[64:ff9b::7f00:1]/", "http://[64:ff9b::a9fe:a9fe]/"}},
		{"A17 credentials, B53", "userinfo", []string{"http://user:pw@example.com/", "http://user@example.com/", "http://@example.com/", "http://:@example.com/"}},
		{"A18 credentials before an address", "userinfo", []string{"http://good.com@127.0.0.1/", "http://good.com:80@127.0.0.1/"}},
		{"A19 other schemes", "scheme", []string{
			"file:///etc/passwd", "gopher://h/", "ftp://h/", "javascript:alert(1)", "unix:///x", "data:,x", "ws://example.com/",
			"httpsx://example.com/", "unix://example.com/",
		}},
		{"A20 no scheme", "scheme", []string{"//h/", "example.com", "/path", "?x", "example.com:443/x"}},
		{"A20 no host", "syntax", []string{"http:h", "https:example.com/x"}},
		{"A20 empty host", "host", []string{"http:///h", "http://", "http:///", "https://:443/", "https:///example.com"}},
		{"A20 empty", "length", []string{""}},
		{"A20 spaces", "character", []string{" http://h/", "http://h.example/ ", "http://h.example/a b"}},
		{"A21 ports", "port", []string{
			"https://h.example:0/", "https://h.example:99999/", "https://h.example:22/", "https://h.example:25/",
			"https://h.example:6379/", "https://h.example:5432/", "https://h.example:/", "https://h.example:65536/",
			"https://h.example:1023/", "https://h.example:11211/", "https://1.1.1.1:22/",
		}},
		{"A21 port text", "syntax", []string{"https://h.example:8o/", "https://h.example:-1/", "https://h.example:1:2/"}},
		{"A22 numeric hosts", "numeric_host", []string{
			"http://2130706433/", "http://0x7f000001/", "http://0177.0.0.1/", "http://127.1/", "http://0/", "http://127.0.0.1./",
			"http://0x7f.1/", "http://0X7F.0.0.0X1/", "http://127.0.0.0x1/", "http://foo.0x/", "http://1.2.3.4.5/", "http://256.256.256.256/",
			"http://①②⑦.⓪.⓪.①/", "http://１２７.0.0.1/", "http://127。0。0。1/", "http://0x7f\u00ad.1/", "http://example.123/",
		}},
		{"A23 control characters", "character", []string{
			"http://h.example/\r\nX: y", "http://h.example/\n", "http://h.exa\x00mple/", "http://h.example/\t", "http://h\r.example/",
			"http://h.example/\x7f", "http://h.example/?a=\x1b[2J", "http://h.example\\@127.0.0.1/",
		}},
		{"A23 not UTF-8", "character", []string{"http://h.example/\xff", "http://\xc3(.example/"}},
		{"A24 too long", "length", []string{"https://h.example/" + strings.Repeat("a", 2048-18+1), "https://h.example/" + strings.Repeat("é", 1000)}},
		{"fragment", "fragment", []string{"http://127.0.0.1#@good.com/", "https://h.example/#x", "https://h.example/#%20"}},
		{"host syntax", "host", []string{
			"https://a..b.example/", "https://.h.example/", "https://h.example../", "https://*.example.com/", "https://-h.example/",
			"https://h-.example/", "https://" + strings.Repeat("a", 64) + ".example/", "https://xn--.example/", "https://xn--a-\u00e9.example/",
			"https://" + strings.Repeat("a.", 127) + "example/", "https://h,x.example/", "https://h!.example/",
		}},
		{"host in brackets", "syntax", []string{"https://[example.com]/", "https://[127.0.0.1]/", "https://[::1/", "https://%31.example/"}},
	} {
		for _, raw := range c.urls {
			t.Run(fmt.Sprintf("%s %.40q", c.id, raw), func(t *testing.T) {
				_, err := g.CheckURL(raw)
				rule := ruleOf(t, err)
				assert.Equal(t, c.rule, rule, err.Error())
				assert.NotContains(t, err.Error(), "pw")
				assert.NotContains(t, err.Error(), "127.0.0.1")
			})
		}
	}
}

func TestA25PlainHTTPIsRefusedUnlessAskedFor(t *testing.T) {
	t.Parallel()
	_, err := newGuard(t, egress.Policy{}).CheckURL("http://hooks.example/")
	assert.Equal(t, "scheme", ruleOf(t, err))
	assert.EqualError(t, err, "url: the scheme must be https")

	_, err = newGuard(t, withHTTP()).CheckURL("http://hooks.example/")
	assert.NoError(t, err)

	_, err = newGuard(t, egress.Policy{}).CheckURL("https://hooks.example:80/")
	assert.Equal(t, "port", ruleOf(t, err), "80 is no port for https")
}

func TestURLsThatAreAcceptedAreNormalised(t *testing.T) {
	t.Parallel()
	g := newGuard(t, withHTTP())
	for raw, want := range map[string]string{
		"https://hooks.example":                          "https://hooks.example/",
		"https://hooks.example?x=1":                      "https://hooks.example/?x=1",
		"HTTPS://Hooks.EXAMPLE:443/In?A=B":               "https://hooks.example/In?A=B",
		"https://hooks.example:8443/":                    "https://hooks.example:8443/",
		"http://hooks.example:80/":                       "http://hooks.example/",
		"https://hooks.example./":                        "https://hooks.example/", // B62
		"https://hooks.example.:8443/":                   "https://hooks.example:8443/",
		"https://bücher.test:8443/":                      "https://xn--bcher-kva.test:8443/", // B62
		"https://BÜCHER.test:8443/":                      "https://xn--bcher-kva.test:8443/", // B62
		"https://xn--bcher-kva.test/":                    "https://xn--bcher-kva.test/",
		"https://faß.example/":                           "https://xn--fa-hia.example/",
		"https://a_b.example/":                           "https://a_b.example/", // B62
		"https://παράδειγμα.test/":                       "https://xn--hxajbheg2az3al.test/",
		"https://hooks。example/":                         "https://hooks.example/",
		"https://1.1.1.1/":                               "https://1.1.1.1/",
		"https://[2606:4700:4700::1111]/":                "https://[2606:4700:4700::1111]/",
		"https://[2606:4700:4700:0::1111]:8443/":         "https://[2606:4700:4700::1111]:8443/",
		"https://[::ffff:1.1.1.1]/":                      "https://1.1.1.1/",
		"https://h.example/%0d%0a":                       "https://h.example/%0d%0a",
		"https://h.example/é?q=é":                        "https://h.example/%C3%A9?q=%C3%A9",
		"https://h.example/a%2Fb/../c":                   "https://h.example/a%2Fb/../c",
		"https://h.example/" + strings.Repeat("a", 2030): "https://h.example/" + strings.Repeat("a", 2030),
	} {
		target, err := g.CheckURL(raw)
		if !assert.NoError(t, err, raw) {
			continue
		}
		assert.Equal(t, want, target.String())
		again, err := g.CheckURL(target.String())
		if assert.NoError(t, err, want) {
			assert.Equal(t, want, again.String(), "normalising is idempotent")
		}
	}
}

func TestURLErrorsNameTheRuleAndItsLimit(t *testing.T) {
	t.Parallel()
	g := newGuard(t, egress.Policy{})
	for raw, want := range map[string]string{
		"https://h.example/" + strings.Repeat("a", 3000): "url: it has 3018 bytes, the limit is 2048",
		"https://h.example:22/":                          "url: port 22 is not allowed (allowed: 443 and 1024-65535 less the ports of well-known services)",
		"https://u:secret@h.example/":                    "url: it must not hold a user name or password",
		"https://h.example/#top":                         "url: a fragment (#) is never sent, remove it",
		"https://intranet/":                              "url: the host must be a full domain name",
		"https://x.internal/":                            "url: host names under internal are local",
		"https://10.0.0.1/":                              "the address is not allowed",
	} {
		_, err := g.CheckURL(raw)
		assert.EqualError(t, err, want)
	}
	g = newGuard(t, egress.Policy{Ports: []egress.PortRange{egress.Port(443), {From: 8000, To: 8999}}})
	_, err := g.CheckURL("https://h.example:9000/")
	assert.EqualError(t, err, "url: port 9000 is not allowed (allowed: 443, 8000-8999)")
	_, err = g.CheckURL("https://h.example:8123/")
	assert.NoError(t, err)
}

func TestAllowHostsOpensNamesButNotTheirAddresses(t *testing.T) {
	t.Parallel()
	p := withHTTP()
	p.AllowHosts = []string{"localhost", "*.svc.cluster.local", "Bücher"}
	g := newGuard(t, p)
	for _, raw := range []string{"http://localhost/", "https://hooks.prod.svc.cluster.local:8443/", "https://bücher/"} {
		_, err := g.CheckURL(raw)
		assert.NoError(t, err, raw)
	}
	for _, raw := range []string{"http://x.localhost/", "https://svc.cluster.local/", "https://xsvc.cluster.local/"} {
		_, err := g.CheckURL(raw)
		assert.Equal(t, "local_name", ruleOf(t, err), raw)
	}

	tr, err := egress.NewTransport(g, egress.TransportConfig{Resolver: always("127.0.0.1")})
	require.NoError(t, err)
	c, err := egress.NewClient(egress.ClientConfig{Guard: g, Transport: tr})
	require.NoError(t, err)
	assert.Equal(t, egress.ClassBlocked, post(t, c, "http://localhost:8080/").Class)
}

func TestA32AURLThatWentBadIsRefusedAtUpdateAndAtTheAttempt(t *testing.T) {
	t.Parallel()
	c := newClient(t, egress.Policy{}, egress.TransportConfig{Resolver: always("1.1.1.1")})
	for _, raw := range []string{"http://127.0.0.1/", "https://10.0.0.1/", "https://u:p@h.example/", "::not a url", "", "https://localhost/"} {
		_, err := c.Guard().CheckURL(raw)
		assert.Error(t, err, "at update: %q", raw)
		res := post(t, c, raw)
		assert.Equal(t, egress.ClassBlocked, res.Class, "at the attempt: %q", raw)
		assert.False(t, res.Sent)
	}
}

func TestA34ARefusalReadsTheSameForEveryAddress(t *testing.T) {
	t.Parallel()
	guard := newGuard(t, withHTTP())
	texts := map[string]bool{}
	for _, ip := range []string{"10.0.0.1", "127.0.0.1", "169.254.169.254", "::1", "fd00:ec2::254"} {
		addr := netip.MustParseAddr(ip)
		err := guard.CheckAddr(netip.AddrPortFrom(addr, 443))
		texts[err.Error()] = true
		assert.Contains(t, egress.Detail(err), ip, "operators see the address")

		host := ip
		if addr.Is6() {
			host = "[" + ip + "]"
		}
		_, err = guard.CheckURL("http://" + host + "/")
		texts[err.Error()] = true

		c := newClient(t, withHTTP(), egress.TransportConfig{Resolver: always(ip)})
		for _, u := range []string{"http://" + host + "/", "http://rebound.example/"} {
			res := post(t, c, u)
			assert.Equal(t, egress.ClassBlocked, res.Class)
			texts[res.Err.Error()] = true
			texts[egress.PublicText(res.Class)] = true
			assert.Contains(t, egress.Detail(res.Err), ip)
			assert.Empty(t, res.Excerpt)
		}
	}
	assert.Len(t, texts, 1, "%v", texts)
}
