package egress_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/egress"
)

// at443 asks about the one port that every policy here allows.
func at443(s string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(s), 443) }

func TestAddressesThatAreRefused(t *testing.T) {
	t.Parallel()
	g := newGuard(t, egress.Policy{})
	for id, list := range map[string][]string{
		"A01 loopback":         {"127.0.0.1", "127.255.255.254", "127.0.0.0"},
		"A03 IPv6 loopback":    {"::1"},
		"A04 mapped, B25":      {"::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:10.0.0.1", "::ffff:169.254.169.254"},
		"A05 private":          {"10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.255.255"},
		"A07 metadata":         {"169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.0.0", "168.63.129.16", "192.0.0.192"},
		"A08 this network":     {"0.0.0.0", "0.1.2.3", "::"},
		"A09 carrier NAT":      {"100.64.0.1", "100.127.255.255", "100.100.100.200"},
		"A10 multicast and up": {"224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "ff02::1", "ff0e::1"},
		"A11 test networks": {
			"192.0.2.1", "198.51.100.1", "203.0.113.1", "198.18.0.1", "198.19.255.255", "192.88.99.1",
			"192.0.0.8", "192.31.196.1", "192.52.193.1", "192.175.48.1",
		},
		"A12 unique local":    {"fd00:ec2::254", "fc00::1", "fdff::1", "fd20:ce::254"},
		"A13 link-local":      {"fe80::1", "fe80::1%lo", "fec0::1"},
		"A13 zone":            {"2606:4700::1%eth0", "::1%lo"},
		"A14 NAT64":           {"64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b::101:101", "64:ff9b:1::7f00:1"},
		"A15 6to4":            {"2002:7f00:1::", "2002:a9fe:a9fe::", "2002:101:101::"},
		"A16 Teredo and docs": {"2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:db8::1", "3fff::1", "2001:2::1", "2001:10::1", "2001:20::1", "2001:30::1"},
		"outside 2000::/3": {
			"::7f00:1", "::ffff:0:7f00:1", "100::1", "100:0:0:1::1", "5f00::1", "4000::1", "6000::1", "1fff::1", "8000::1", "e000::1",
		},
		"AS112 and ISATAP": {"2620:4f:8000::1", "2606:4700::5efe:a00:1", "2606:4700::200:5efe:a00:1"},
	} {
		for _, s := range list {
			t.Run(fmt.Sprintf("%s %s", id, s), func(t *testing.T) {
				err := g.CheckAddr(at443(s))
				require.ErrorIs(t, err, egress.ErrBlocked)
				assert.EqualError(t, err, "the address is not allowed")
			})
		}
	}
}

func TestAddressesThatAreAllowed(t *testing.T) {
	t.Parallel()
	g := newGuard(t, egress.Policy{})
	for id, list := range map[string][]string{
		"A06 neighbours of private": {"172.15.255.255", "172.32.0.0", "11.0.0.0", "9.255.255.255", "1.1.1.1", "2606:4700:4700::1111", "192.167.255.255", "192.169.0.0"},
		"A06 neighbours":            {"126.255.255.255", "128.0.0.0", "169.253.255.255", "169.255.0.0", "1.0.0.0", "223.255.255.255", "168.63.129.15"},
		"A06 mapped public":         {"::ffff:1.1.1.1"},
		"A09 neighbours":            {"100.63.255.255", "100.128.0.0"},
		"A11 neighbours":            {"198.17.255.255", "198.20.0.0", "192.0.1.1", "192.0.3.1", "203.0.112.255", "203.0.114.0"},
		"IPv6":                      {"2001:200::1", "2001:4860:4860::8888", "2003::1", "2a00::1", "3ffe::1", "2001:db7::1", "2001:db9::1"},
	} {
		for _, s := range list {
			t.Run(fmt.Sprintf("%s %s", id, s), func(t *testing.T) {
				assert.NoError(t, g.CheckAddr(at443(s)))
			})
		}
	}
}

func TestA21ThePortIsJudgedAgainAtTheAddress(t *testing.T) {
	t.Parallel()
	g := newGuard(t, egress.Policy{})
	for _, p := range []uint16{0, 1, 22, 25, 80, 1023, 3306, 5432, 6379, 27017} {
		assert.ErrorIs(t, g.CheckAddr(netip.AddrPortFrom(netip.MustParseAddr("1.1.1.1"), p)), egress.ErrBlocked, "%d", p)
	}
	for _, p := range []uint16{443, 1024, 3000, 8080, 8443, 32768, 65535} {
		assert.NoError(t, g.CheckAddr(netip.AddrPortFrom(netip.MustParseAddr("1.1.1.1"), p)), "%d", p)
	}
}

func TestA30ControlRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	g := newGuard(t, loopback())
	for _, c := range []struct{ network, address string }{
		{"tcp4", ""},
		{"tcp4", ":80"},
		{"tcp4", "host:80"},
		{"tcp6", "[::1%lo]:80"},
		{"tcp4", "1.2.3.4"},
		{"tcp4", "1.2.3.4:"},
		{"unix", "/var/run/docker.sock"},
		{"unix", "127.0.0.1:80"},
		{"udp4", "127.0.0.1:80"},
		{"udp6", "[::1]:80"},
		{"", "127.0.0.1:80"},
		{"tcp", "127.0.0.1:80"},
		{"ip4", "127.0.0.1:80"},
		{"tcp4", "127.0.0.1:0"},
		{"tcp4", "127.0.0.1:65536"},
		{"tcp4", "0.0.0.0:80"},
		{"tcp6", "[::]:80"},
		{"tcp4", "127.0.0.1:80:80"},
		{"tcp6", "::1:80"},
		{"tcp4", "[127.0.0.1]:80"},
	} {
		assert.ErrorIs(t, g.Control(t.Context(), c.network, c.address, nil), egress.ErrBlocked, "%s %q", c.network, c.address)
	}
	assert.NoError(t, g.Control(t.Context(), "tcp4", "127.0.0.1:80", nil))
	assert.NoError(t, g.Control(t.Context(), "tcp6", "[::1]:80", nil))
	assert.NoError(t, g.Control(t.Context(), "tcp6", "[::ffff:127.0.0.1]:80", nil))
}

func TestAGuardWithoutAPolicyRefusesEverything(t *testing.T) {
	t.Parallel()
	var g egress.Guard
	assert.ErrorIs(t, g.CheckAddr(at443("1.1.1.1")), egress.ErrBlocked)
	assert.ErrorIs(t, g.Control(t.Context(), "tcp4", "1.1.1.1:443", nil), egress.ErrBlocked)
	_, err := g.CheckURL("https://h.example/")
	assert.ErrorIs(t, err, egress.ErrBlocked)
}

func allow(rules ...egress.AllowRule) egress.Policy { return egress.Policy{Allow: rules} }

func block(s string, ports ...egress.PortRange) egress.AllowRule {
	return egress.AllowRule{Prefix: netip.MustParsePrefix(s), Ports: ports}
}

func TestAnAllowRuleOpensItsPrefixAndItsPortsOnly(t *testing.T) {
	t.Parallel()
	g := newGuard(t, allow(block("10.1.0.0/16", egress.Port(80), egress.Port(6379)), block("10.2.0.0/16"), block("::ffff:10.3.0.0/112")))
	for _, s := range []string{"10.1.2.3:80", "10.1.2.3:6379", "10.2.0.1:443", "10.2.0.1:8080", "10.3.0.1:443", "[::ffff:10.1.2.3]:80"} {
		assert.NoError(t, g.CheckAddr(netip.MustParseAddrPort(s)), s)
	}
	for _, s := range []string{"10.1.2.3:443", "10.2.0.1:80", "10.4.0.1:443", "10.0.255.255:80", "1.1.1.1:80", "1.1.1.1:6379"} {
		assert.ErrorIs(t, g.CheckAddr(netip.MustParseAddrPort(s)), egress.ErrBlocked, s)
	}
	_, err := g.CheckURL("https://10.1.2.3:6379/")
	assert.NoError(t, err, "the URL rules know the ports of rules")
	_, err = g.CheckURL("https://1.1.1.1:6379/")
	assert.ErrorIs(t, err, egress.ErrBlocked, "but not for other addresses")
}

func TestMetadataStaysShutUnlessNamedExactly(t *testing.T) {
	t.Parallel()
	wide := newGuard(t, allow(block("169.254.0.0/16"), block("100.64.0.0/10"), block("fc00::/7"), block("168.0.0.0/7"), block("192.0.0.0/24")))
	for _, s := range []string{
		"169.254.169.254", "169.254.170.2", "169.254.170.23", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254",
		"fd20:ce::254", "::ffff:169.254.169.254",
	} {
		assert.ErrorIs(t, wide.CheckAddr(at443(s)), egress.ErrBlocked, s)
	}
	assert.NoError(t, wide.CheckAddr(at443("169.254.1.1")))
	assert.NoError(t, wide.CheckAddr(at443("fd00:ec2::253:1")))

	exact := newGuard(t, allow(block("169.254.169.254/32"), block("fd00:ec2::254/128")))
	assert.NoError(t, exact.CheckAddr(at443("169.254.169.254")))
	assert.NoError(t, exact.CheckAddr(at443("fd00:ec2::254")))
	assert.ErrorIs(t, exact.CheckAddr(at443("169.254.170.2")), egress.ErrBlocked)
}

func TestTheHostsOwnAddressesAreRefused(t *testing.T) {
	t.Parallel()
	own := func() ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("fe80::1%eth0")}, nil
	}
	g := newGuard(t, egress.Policy{LocalAddrs: own, Allow: []egress.AllowRule{block("10.0.0.0/8"), block("127.0.0.0/8")}})
	assert.ErrorIs(t, g.CheckAddr(at443("8.8.8.8")), egress.ErrBlocked, "also a public one")
	assert.ErrorIs(t, g.CheckAddr(at443("10.0.0.5")), egress.ErrBlocked, "a wide rule does not open it")
	assert.NoError(t, g.CheckAddr(at443("10.0.0.6")))
	assert.NoError(t, g.CheckAddr(at443("127.0.0.1")), "loopback is always the host's own: a rule means it")

	g = newGuard(t, egress.Policy{LocalAddrs: own, Allow: []egress.AllowRule{block("10.0.0.5/32")}})
	assert.NoError(t, g.CheckAddr(at443("10.0.0.5")))

	_, err := egress.NewGuard(egress.Policy{LocalAddrs: func() ([]netip.Addr, error) { return nil, errors.New("no netlink") }})
	assert.ErrorContains(t, err, "no netlink")
}

func TestDeniedBeatsAllowed(t *testing.T) {
	t.Parallel()
	g := newGuard(t, egress.Policy{
		Allow:  []egress.AllowRule{block("10.0.0.0/8"), block("10.9.9.9/32")},
		Denied: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16"), netip.MustParsePrefix("185.0.0.0/8")},
	})
	for _, s := range []string{"10.9.9.9", "10.9.0.1", "185.1.1.1", "::ffff:185.1.1.1"} {
		assert.ErrorIs(t, g.CheckAddr(at443(s)), egress.ErrBlocked, s)
	}
	assert.NoError(t, g.CheckAddr(at443("10.8.0.1")))
}

func TestANAT64AddressIsJudgedByTheAddressInside(t *testing.T) {
	t.Parallel()
	g := newGuard(t, egress.Policy{NAT64: []netip.Prefix{
		netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("2a00:1::/32"), netip.MustParsePrefix("2a00:2:100::/40"),
		netip.MustParsePrefix("2a00:3:1::/48"), netip.MustParsePrefix("2a00:4:1:100::/56"), netip.MustParsePrefix("2a00:5:1:1::/64"),
	}})
	// The layouts are those of RFC 6052 §2.2, for 10.0.0.1 and 1.2.3.4.
	for _, s := range []string{
		"64:ff9b::a00:1", "64:ff9b::a9fe:a9fe", "2a00:1:a00:1::", "2a00:2:10a:0:1::", "2a00:3:1:a00:0:100::", "2a00:4:1:10a:0:1::", "2a00:5:1:1:a:0:100:0",
	} {
		assert.ErrorIs(t, g.CheckAddr(at443(s)), egress.ErrBlocked, s)
	}
	for _, s := range []string{
		"64:ff9b::102:304", "2a00:1:102:304::", "2a00:2:101:203:4::", "2a00:3:1:102:3:400::", "2a00:4:1:101:2:304::", "2a00:5:1:1:1:203:400:0",
	} {
		assert.NoError(t, g.CheckAddr(at443(s)), s)
	}
}

func TestPoliciesThatAreRefused(t *testing.T) {
	t.Parallel()
	for text, p := range map[string]egress.Policy{
		"Allow[0].Prefix 0.0.0.0/0 opens too much": allow(block("0.0.0.0/0")),
		"Allow[0].Prefix ::/0 opens too much":      allow(block("::/0")),
		"Allow[0].Prefix: ":                        allow(egress.AllowRule{}),
		"mixes IPv4 and IPv6":                      allow(block("::ffff:0:0/90")),
		"Allow[0].Ports: range 0-0":                allow(block("10.0.0.0/8", egress.PortRange{})),
		"Ports: range 9-8":                         {Ports: []egress.PortRange{{From: 9, To: 8}}},
		"Denied[0]: ":                              {Denied: []netip.Prefix{{}}},
		"NAT64[0] 10.0.0.0/8":                      {NAT64: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
		"NAT64[0] 2a00::/33":                       {NAT64: []netip.Prefix{netip.MustParsePrefix("2a00::/33")}},
		`Schemes holds "ftp"`:                      {Schemes: []string{"ftp"}},
		`AllowHosts[0] "a b"`:                      {AllowHosts: []string{"a b"}},
		`AllowHosts[0] "*"`:                        {AllowHosts: []string{"*"}},
		`AllowHosts[0] "*."`:                       {AllowHosts: []string{"*."}},
	} {
		_, err := egress.NewGuard(p)
		assert.ErrorContains(t, err, text)
	}
}

func TestAnInvalidPolicyLeavesTheOldOneInPlace(t *testing.T) {
	t.Parallel()
	g := newGuard(t, allow(block("10.0.0.0/8")))
	require.Error(t, g.SetPolicy(allow(block("0.0.0.0/0"))))
	assert.NoError(t, g.CheckAddr(at443("10.0.0.1")))
	require.NoError(t, g.SetPolicy(egress.Policy{}))
	assert.ErrorIs(t, g.CheckAddr(at443("10.0.0.1")), egress.ErrBlocked)
}
