package egress

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// MaxURLBytes is the longest URL that is accepted (cases A24).
const MaxURLBytes = 2048

// URLError says which rule a URL breaks. Its text names the rule and its limit, never
// the URL itself, which may hold credentials.
type URLError struct {
	// Rule is a stable word: length, character, syntax, scheme, userinfo, fragment,
	// host, numeric_host, local_name, zone or port.
	Rule string
	// Text is the sentence for the person who entered the URL.
	Text string
}

func (e *URLError) Error() string { return "url: " + e.Text }

func badURL(rule, format string, args ...any) error {
	return &URLError{Rule: rule, Text: fmt.Sprintf(format, args...)}
}

// Target is a URL that passed the rules, normalised: lower-case scheme and ASCII host
// without a trailing dot, no default port, a path of at least "/". It is not changed
// after CheckURL returned it.
type Target struct {
	URL  *url.URL
	Host string     // ASCII name, or the text of Addr
	Addr netip.Addr // valid if the host is an address
	Port uint16
}

// String returns the normalised URL, which is what should be stored.
func (t *Target) String() string { return t.URL.String() }

// CheckURL applies the URL rules to raw. It returns a [*URLError] that names the rule,
// or a [*BlockedError] if the host is an address that is not allowed. A name is not
// resolved here: its addresses are judged when a connection is made.
func (g *Guard) CheckURL(raw string) (*Target, error) {
	st := g.state.Load()
	if st == nil {
		return nil, blocked("the guard has no policy")
	}
	if err := checkText(raw); err != nil {
		return nil, err
	}
	u, err := url.Parse(raw)
	if err != nil {
		// The parser's text quotes the URL.
		return nil, badURL("syntax", "not a valid URL")
	}
	t, err := st.rules.checkParsed(u)
	if err != nil {
		return nil, err
	}
	if t.Addr.IsValid() {
		if err := g.CheckAddr(netip.AddrPortFrom(t.Addr, t.Port)); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// checkText refuses what parsers of different makes read differently.
func checkText(raw string) error {
	if raw == "" {
		return badURL("length", "it is empty")
	}
	if len(raw) > MaxURLBytes {
		return badURL("length", "it has %d bytes, the limit is %d", len(raw), MaxURLBytes)
	}
	if !utf8.ValidString(raw) {
		return badURL("character", "it is not valid UTF-8")
	}
	for i := range len(raw) {
		if c := raw[i]; c <= ' ' || c == 0x7f || c == '\\' {
			return badURL("character", "byte %d is a space, a control character or a backslash", i)
		}
	}
	return nil
}

// checkParsed applies the rules that need no address and returns the target with a
// normalised copy of u.
func (r *rules) checkParsed(u *url.URL) (*Target, error) {
	switch {
	case u.Scheme == "https" && r.https, u.Scheme == "http" && r.http:
	default:
		return nil, badURL("scheme", "the scheme must be %s", r.schemeText())
	}
	if u.Opaque != "" {
		return nil, badURL("syntax", "the scheme must be followed by //")
	}
	if u.User != nil {
		return nil, badURL("userinfo", "it must not hold a user name or password")
	}
	if u.Fragment != "" || u.RawFragment != "" {
		return nil, badURL("fragment", "a fragment (#) is never sent, remove it")
	}
	t, err := r.checkHost(u.Host)
	if err != nil {
		return nil, err
	}
	if err := r.setPort(t, u); err != nil {
		return nil, err
	}
	t.URL = normalise(u, t)
	if n := len(t.URL.String()); n > MaxURLBytes {
		return nil, badURL("length", "it has %d bytes once encoded, the limit is %d", n, MaxURLBytes)
	}
	return t, nil
}

func (r *rules) schemeText() string {
	switch {
	case r.http && r.https:
		return "https or http"
	case r.http:
		return "http"
	}
	return "https"
}

// checkHost judges the host part of a URL, with brackets and port.
func (r *rules) checkHost(hostport string) (*Target, error) {
	host := hostport
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	if host == "" {
		return nil, badURL("host", "it has no host")
	}
	if strings.ContainsRune(host, '%') {
		return nil, badURL("zone", "the host must not hold a zone or a percent sign")
	}
	if strings.HasPrefix(host, "[") {
		a, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if err != nil || !a.Is6() {
			return nil, badURL("host", "the host in brackets is not an IPv6 address")
		}
		a = a.Unmap()
		return &Target{Host: a.String(), Addr: a}, nil
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Is4() {
		return &Target{Host: a.String(), Addr: a}, nil
	}
	name, err := hostToASCII(host)
	if err != nil {
		return nil, err
	}
	if err := r.checkName(name); err != nil {
		return nil, err
	}
	return &Target{Host: name}, nil
}

// hostToASCII returns the name that is looked up, dialled and verified: lower case,
// punycode, without a trailing dot. Names are mapped as browsers do (UTS 46), so what
// is judged afterwards is what the mapping made of look-alike digits and dots.
func hostToASCII(host string) (string, error) {
	name := strings.TrimSuffix(host, ".")
	plain := true
	for i := range len(name) {
		c := name[i]
		if c >= utf8.RuneSelf {
			plain = false
			break
		}
	}
	name = strings.ToLower(name)
	if !plain || strings.HasPrefix(name, "xn--") || strings.Contains(name, ".xn--") {
		ascii, err := hostProfile.ToASCII(name)
		if err != nil {
			return "", badURL("host", "the host is not a valid international name")
		}
		name = strings.TrimSuffix(ascii, ".")
	}
	if err := checkLabels(name); err != nil {
		return "", err
	}
	return name, nil
}

var hostProfile = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.Transitional(false), idna.StrictDomainName(false))

func checkLabels(name string) error {
	if name == "" {
		return badURL("host", "it has no host")
	}
	if len(name) > 253 {
		return badURL("host", "the host has %d bytes, the limit is 253", len(name))
	}
	last := name
	for label := range strings.SplitSeq(name, ".") {
		last = label
		if label == "" {
			return badURL("host", "the host has an empty label")
		}
		if len(label) > 63 {
			return badURL("host", "a label of the host has %d bytes, the limit is 63", len(label))
		}
		if label[0] == '-' || label[len(label)-1] == '-' {
			return badURL("host", "a label of the host begins or ends with a hyphen")
		}
		for i := range len(label) {
			c := label[i]
			switch {
			case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
			default:
				return badURL("host", "the host may hold letters, digits, hyphens, underscores and dots only")
			}
		}
	}
	if numericLabel(last) {
		return badURL("numeric_host", "a numeric host must be an IPv4 address in dotted decimal form")
	}
	return nil
}

// numericLabel reports whether other programs would read a host that ends in label as
// an IPv4 address: decimal, octal or hexadecimal (inet_aton, WHATWG URL).
func numericLabel(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		for i := range len(hex) {
			if !strings.Contains("0123456789abcdef", hex[i:i+1]) {
				return false
			}
		}
		return true
	}
	for i := range len(label) {
		if label[i] < '0' || label[i] > '9' {
			return false
		}
	}
	return true
}

// localSuffixes are names that mean the own host or network: RFC 6761, RFC 6762,
// RFC 8375, RFC 9476 and what clouds use for metadata.
var localSuffixes = []string{
	".localhost", ".localdomain", ".local", ".internal", ".intranet", ".lan",
	".home.arpa", ".alt", ".onion", ".in-addr.arpa", ".ip6.arpa",
}

// checkName refuses names that mean something local. It is a second line only: the
// address check holds whatever a name is called.
func (r *rules) checkName(name string) error {
	if r.hostListed(name) {
		return nil
	}
	if !strings.Contains(name, ".") {
		return badURL("local_name", "the host must be a full domain name")
	}
	for _, s := range localSuffixes {
		if strings.HasSuffix(name, s) {
			return badURL("local_name", "host names under %s are local", s[1:])
		}
	}
	return nil
}

func (r *rules) setPort(t *Target, u *url.URL) error {
	text := u.Port()
	if text == "" {
		if strings.HasSuffix(u.Host, ":") {
			return badURL("port", "the port is empty")
		}
		t.Port = defaultPort(u.Scheme)
	} else {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n == 0 {
			return badURL("port", "the port must be from 1 to 65535")
		}
		t.Port = uint16(n)
	}
	if !r.portPossible(t.Port) {
		return badURL("port", "port %d is not allowed (allowed: %s)", t.Port, r.portText)
	}
	return nil
}

func defaultPort(scheme string) uint16 {
	if scheme == "http" {
		return 80
	}
	return 443
}

// normalise returns the URL to store and to send.
func normalise(u *url.URL, t *Target) *url.URL {
	n := *u
	host := t.Host
	if t.Addr.Is6() {
		host = "[" + host + "]"
	}
	if t.Port != defaultPort(u.Scheme) {
		host += ":" + strconv.Itoa(int(t.Port))
	}
	n.Host = host
	if n.Path == "" {
		n.Path, n.RawPath = "/", ""
	}
	n.RawQuery = escapeNonASCII(n.RawQuery)
	return &n
}

// escapeNonASCII percent-encodes bytes that net/http would otherwise send raw.
func escapeNonASCII(s string) string {
	i := 0
	for i < len(s) && s[i] < utf8.RuneSelf {
		i++
	}
	if i == len(s) {
		return s
	}
	var b strings.Builder
	b.WriteString(s[:i])
	for ; i < len(s); i++ {
		if s[i] < utf8.RuneSelf {
			b.WriteByte(s[i])
			continue
		}
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}

// splitTarget reads the host:port that net/http asks to dial.
func splitTarget(address string) (host string, addr netip.Addr, port uint16, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", netip.Addr{}, 0, blocked("unreadable address " + address)
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || host == "" {
		return "", netip.Addr{}, 0, blocked("incomplete address " + address)
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return host, a, uint16(n), nil
	}
	name, err := hostToASCII(host)
	if err != nil {
		return "", netip.Addr{}, 0, blocked("host name " + host + ": " + err.Error())
	}
	return name, netip.Addr{}, uint16(n), nil
}
