package egress

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// PortRange is an inclusive range of TCP ports.
type PortRange struct {
	From, To uint16
}

// Port returns the range of one port.
func Port(p uint16) PortRange { return PortRange{From: p, To: p} }

func (r PortRange) contains(p uint16) bool { return r.From <= p && p <= r.To }

func (r PortRange) String() string {
	if r.From == r.To {
		return strconv.Itoa(int(r.From))
	}
	return fmt.Sprintf("%d-%d", r.From, r.To)
}

// AllowRule opens addresses that the guard refuses by default.
type AllowRule struct {
	// Excerpts keeps response excerpts and redirect targets from these addresses.
	// Off by default: a tenant who reads excerpts would read a private network.
	Excerpts bool

	// Ports lists the ports that the rule opens. Empty means the policy's ports.
	Ports []PortRange

	// Prefix is the address block that the rule opens, at least 7 bits long. A
	// metadata service and, loopback apart, the host's own addresses need a rule of
	// exactly one address (/32 or /128).
	Prefix netip.Prefix
}

// Policy says where requests may go. The zero value is the default: HTTPS to public
// addresses, port 443 and the ports from 1024 on that belong to no well-known service
// other than HTTP.
type Policy struct {
	// Allow opens private addresses, for an operator's own receivers and for tests.
	Allow []AllowRule

	// AllowHosts exempts host names from the name rules (single-label names,
	// localhost, .internal, .local and the like): an exact name, or "*.suffix" for
	// whatever ends with ".suffix". They are the operator's own names: the host's own
	// search list and hosts file apply to them, as to no other name. The addresses
	// behind them are judged as always.
	AllowHosts []string

	// Denied lists further blocks that are refused even if Allow lists them, say the
	// operator's own public addresses.
	Denied []netip.Prefix

	// LocalAddrs returns the host's own addresses, which are refused. Nil means those
	// of the network interfaces.
	LocalAddrs func() ([]netip.Addr, error)

	// NAT64 lists prefixes (of 32, 40, 48, 56, 64 or 96 bits, RFC 6052) whose
	// addresses are judged by the IPv4 address that they embed. Without it
	// 64:ff9b::/96 is refused, and a network's own prefix cannot be told from
	// ordinary addresses: a network that has one must list it.
	NAT64 []netip.Prefix

	// Ports lists the ports that may be used. Empty means 443, 80 if http is among
	// the schemes, and 1024 to 65535 less the well-known ports of databases, queues
	// and other services that do not speak HTTP.
	Ports []PortRange

	// Schemes lists "https", "http" or both. Empty means https only.
	Schemes []string
}

// minPrefixBits keeps a rule from being "everything": the widest block with a reason
// to be listed is fc00::/7.
const minPrefixBits = 7

// servicePorts are ports from 1024 on that a well-known service other than HTTP
// listens on. Some such services act on lines found anywhere in a request, so a
// customer must not point a POST with a payload of his choice at them.
var servicePorts = []uint16{
	1433, 1521, 1719, 1720, 1723, 2049, 2375, 2376, 2379, 2380, 3268, 3269, 3306, 3389,
	3659, 4045, 4190, 4369, 5060, 5061, 5222, 5269, 5432, 5433, 5671, 5672, 5900, 6000,
	6379, 6380, 6432, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 9042, 9092, 9300,
	10080, 10250, 10255, 11211, 15432, 26379, 27017, 27018, 27019,
}

// defaultPorts returns ports and those from 1024 on that belong to no known service.
func defaultPorts(ports ...PortRange) []PortRange {
	from := uint16(1024)
	for _, p := range servicePorts {
		if from < p {
			ports = append(ports, PortRange{From: from, To: p - 1})
		}
		from = p + 1
	}
	return append(ports, PortRange{From: from, To: 65535})
}

// rules is a policy, checked and ready to be asked. It is never changed.
type rules struct {
	allow       []AllowRule
	denied      []netip.Prefix
	hosts       map[string]struct{}
	http, https bool
	nat64       []netip.Prefix
	portText    string // for messages
	ports       []PortRange
	suffixes    []string // with the leading dot
}

func compile(p Policy) (*rules, error) {
	r := &rules{hosts: map[string]struct{}{}}
	if err := r.setSchemes(p.Schemes); err != nil {
		return nil, err
	}
	if err := r.setPorts(p.Ports); err != nil {
		return nil, err
	}
	if err := r.setHosts(p.AllowHosts); err != nil {
		return nil, err
	}
	for i, a := range p.Allow {
		prefix, err := cleanPrefix(a.Prefix)
		if err != nil {
			return nil, fmt.Errorf("egress policy: Allow[%d].Prefix: %w", i, err)
		}
		if prefix.Bits() < minPrefixBits {
			return nil, fmt.Errorf("egress policy: Allow[%d].Prefix %s opens too much: at least /%d", i, prefix, minPrefixBits)
		}
		if err := checkPorts(a.Ports); err != nil {
			return nil, fmt.Errorf("egress policy: Allow[%d].Ports: %w", i, err)
		}
		r.allow = append(r.allow, AllowRule{Excerpts: a.Excerpts, Ports: slices.Clone(a.Ports), Prefix: prefix})
	}
	for i, d := range p.Denied {
		prefix, err := cleanPrefix(d)
		if err != nil {
			return nil, fmt.Errorf("egress policy: Denied[%d]: %w", i, err)
		}
		r.denied = append(r.denied, prefix)
	}
	for i, n := range p.NAT64 {
		prefix, err := cleanPrefix(n)
		if err != nil {
			return nil, fmt.Errorf("egress policy: NAT64[%d]: %w", i, err)
		}
		if prefix.Addr().Is4() || !validNAT64Bits(prefix.Bits()) {
			return nil, fmt.Errorf("egress policy: NAT64[%d] %s: want an IPv6 prefix of 32, 40, 48, 56, 64 or 96 bits", i, prefix)
		}
		r.nat64 = append(r.nat64, prefix)
	}
	return r, nil
}

func (r *rules) setSchemes(schemes []string) error {
	if len(schemes) == 0 {
		r.https = true
		return nil
	}
	for _, s := range schemes {
		switch s {
		case "https":
			r.https = true
		case "http":
			r.http = true
		default:
			return fmt.Errorf("egress policy: Schemes holds %q: want https or http", s)
		}
	}
	return nil
}

func (r *rules) setPorts(ports []PortRange) error {
	if err := checkPorts(ports); err != nil {
		return fmt.Errorf("egress policy: Ports: %w", err)
	}
	if len(ports) == 0 {
		const text = "443 and 1024-65535 less the ports of well-known services"
		if r.http {
			r.ports, r.portText = defaultPorts(Port(443), Port(80)), "80, "+text
		} else {
			r.ports, r.portText = defaultPorts(Port(443)), text
		}
		return nil
	}
	r.ports = slices.Clone(ports)
	texts := make([]string, len(ports))
	for i, p := range ports {
		texts[i] = p.String()
	}
	r.portText = strings.Join(texts, ", ")
	return nil
}

func (r *rules) setHosts(hosts []string) error {
	for i, h := range hosts {
		name, wild := strings.CutPrefix(h, "*.")
		ascii, err := hostToASCII(name)
		if err != nil {
			return fmt.Errorf("egress policy: AllowHosts[%d] %q: %w", i, h, err)
		}
		if wild {
			r.suffixes = append(r.suffixes, "."+ascii)
			continue
		}
		r.hosts[ascii] = struct{}{}
	}
	return nil
}

func checkPorts(ports []PortRange) error {
	for _, p := range ports {
		if p.From == 0 || p.From > p.To {
			return fmt.Errorf("range %d-%d: want 1 <= From <= To <= 65535", p.From, p.To)
		}
	}
	return nil
}

// cleanPrefix returns p masked and, if it lies in ::ffff:0:0/96, as the IPv4 prefix
// that it means: an unmapped address never matches a mapped prefix.
func cleanPrefix(p netip.Prefix) (netip.Prefix, error) {
	if !p.IsValid() {
		return netip.Prefix{}, errors.New("not a valid prefix")
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, fmt.Errorf("%s mixes IPv4 and IPv6", p)
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}

// hostListed reports whether name is under AllowHosts.
func (r *rules) hostListed(name string) bool {
	if _, ok := r.hosts[name]; ok {
		return true
	}
	for _, s := range r.suffixes {
		if strings.HasSuffix(name, s) {
			return true
		}
	}
	return false
}

func (r *rules) portAllowed(p uint16) bool { return inPorts(r.ports, p) }

// portPossible reports whether a URL may name p at all: by the policy, or by a rule
// that opens it for some addresses. Which of them holds is judged per address.
func (r *rules) portPossible(p uint16) bool {
	if r.portAllowed(p) {
		return true
	}
	for _, a := range r.allow {
		if inPorts(a.Ports, p) {
			return true
		}
	}
	return false
}

func inPorts(ports []PortRange, p uint16) bool {
	for _, r := range ports {
		if r.contains(p) {
			return true
		}
	}
	return false
}

// rule returns the longest matching allow rule for an address and port, or nil.
func (r *rules) rule(ap netip.AddrPort) *AllowRule {
	var best *AllowRule
	for i := range r.allow {
		a := &r.allow[i]
		if !a.Prefix.Contains(ap.Addr()) {
			continue
		}
		if len(a.Ports) == 0 && !r.portAllowed(ap.Port()) {
			continue
		}
		if len(a.Ports) > 0 && !inPorts(a.Ports, ap.Port()) {
			continue
		}
		if best == nil || cmp.Less(best.Prefix.Bits(), a.Prefix.Bits()) {
			best = a
		}
	}
	return best
}

func interfaceAddrs() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the host's addresses: %w", err)
	}
	out := make([]netip.Addr, 0, len(list))
	for _, a := range list {
		ipn, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		if addr, ok := netip.AddrFromSlice(ipn.IP); ok {
			out = append(out, addr.Unmap())
		}
	}
	return out, nil
}
