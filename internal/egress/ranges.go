package egress

import "net/netip"

// specialIPv4 lists what an IPv4 target must not be: the IANA special-purpose
// registry (RFC 6890 and its updates) plus multicast and reserved space.
var specialIPv4 = prefixes(
	"0.0.0.0/8",       // this network; reaches the own host
	"10.0.0.0/8",      // private
	"100.64.0.0/10",   // carrier-grade NAT
	"127.0.0.0/8",     // loopback
	"169.254.0.0/16",  // link-local, most metadata services
	"172.16.0.0/12",   // private
	"192.0.0.0/24",    // IETF protocol assignments
	"192.0.2.0/24",    // TEST-NET-1
	"192.31.196.0/24", // AS112
	"192.52.193.0/24", // AMT
	"192.88.99.0/24",  // 6to4 relay, deprecated
	"192.168.0.0/16",  // private
	"192.175.48.0/24", // AS112
	"198.18.0.0/15",   // benchmarking
	"198.51.100.0/24", // TEST-NET-2
	"203.0.113.0/24",  // TEST-NET-3
	"224.0.0.0/4",     // multicast
	"240.0.0.0/4",     // reserved, and the broadcast address
)

// globalIPv6 is the only unicast space that IANA has given out; all else is refused.
var globalIPv6 = netip.MustParsePrefix("2000::/3")

// specialIPv6 lists the special blocks inside globalIPv6.
var specialIPv6 = prefixes(
	"2001::/23",         // Teredo, benchmarking, ORCHID, DET and other protocol blocks
	"2001:db8::/32",     // documentation
	"2002::/16",         // 6to4: embeds any IPv4 address
	"2620:4f:8000::/48", // AS112
	"3fff::/20",         // documentation
)

// metadata lists the instance metadata and platform services of the large clouds.
// They hand out credentials, so a wide allow rule does not open them: only a rule for
// exactly that address does. Some are public addresses that no range covers.
var metadata = addrs(
	"100.100.100.200", // Alibaba
	"168.63.129.16",   // Azure wire server
	"169.254.169.253", // AWS resolver
	"169.254.169.254", // AWS, Azure, GCP, OCI, DigitalOcean and others
	"169.254.170.2",   // AWS ECS
	"169.254.170.23",  // AWS EKS pod identity
	"169.254.42.42",   // Scaleway
	"192.0.0.192",     // OCI
	"fd00:42::42",     // Scaleway
	"fd00:ec2::23",    // AWS EKS pod identity
	"fd00:ec2::253",   // AWS resolver
	"fd00:ec2::254",   // AWS
	"fd20:ce::254",    // GCP
)

// neverIPv4 can be opened by no rule: a packet to them does not go to one host that
// an operator could name.
var neverIPv4 = prefixes("0.0.0.0/8", "224.0.0.0/4", "255.255.255.255/32")

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

func addrs(list ...string) map[netip.Addr]struct{} {
	out := make(map[netip.Addr]struct{}, len(list))
	for _, s := range list {
		out[netip.MustParseAddr(s)] = struct{}{}
	}
	return out
}

func contains(list []netip.Prefix, a netip.Addr) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// special reports whether a, unmapped and without a zone, is not an ordinary public
// unicast address.
func special(a netip.Addr) bool {
	if a.Is4() {
		return contains(specialIPv4, a)
	}
	return !globalIPv6.Contains(a) || contains(specialIPv6, a) || isatap(a)
}

// never reports whether a is refused whatever the operator lists.
func never(a netip.Addr) bool {
	if a.Is4() {
		return contains(neverIPv4, a)
	}
	return a.IsUnspecified() || a.IsMulticast()
}

// isatap reports whether the interface identifier is that of RFC 5214, which tunnels
// to an embedded IPv4 address under any routing prefix.
func isatap(a netip.Addr) bool {
	b := a.As16()
	return (b[8] == 0x00 || b[8] == 0x02) && b[9] == 0x00 && b[10] == 0x5e && b[11] == 0xfe
}

// embeddedIPv4 extracts the IPv4 address of a NAT64 address under prefix p, as laid
// out in RFC 6052 §2.2: octet 8 is skipped.
func embeddedIPv4(a netip.Addr, p netip.Prefix) netip.Addr {
	b := a.As16()
	var v4 [4]byte
	at := p.Bits() / 8
	for i := range v4 {
		if at == 8 {
			at++
		}
		v4[i] = b[at]
		at++
	}
	return netip.AddrFrom4(v4)
}

func validNAT64Bits(bits int) bool {
	switch bits {
	case 32, 40, 48, 56, 64, 96:
		return true
	}
	return false
}
