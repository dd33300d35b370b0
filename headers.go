package webhook

import (
	"errors"
	"slices"
	"strconv"
	"strings"
)

// Limits of an endpoint's static headers: far above what an API key and a few routing
// hints need, far below the 8 KiB at which common servers refuse a request. Bytes are
// those of names and values together.
const (
	maxStaticHeaders     = 20
	maxStaticHeaderBytes = 4 << 10
)

// Why a name is refused.
const (
	hopByHop  = "hop-by-hop, which no endpoint may set"
	ours      = "set by the library"
	forbidden = "a name that no endpoint may set"
)

// refusedHeaders are names that an endpoint may not set, lower case. Only names that
// describe the customer to the customer's own receiver are left.
var refusedHeaders = map[string]string{
	// RFC 9110 §7.6.1 and what net/http writes by itself.
	"connection":        hopByHop,
	"expect":            hopByHop,
	"keep-alive":        hopByHop,
	"te":                hopByHop,
	"trailer":           hopByHop,
	"transfer-encoding": hopByHop,
	"upgrade":           hopByHop,
	"via":               hopByHop,
	"host":              ours,
	"http2-settings":    hopByHop,
	"max-forwards":      hopByHop,

	// Part of the message, or of the way in which it is sent.
	"accept":            forbidden,
	"cookie":            forbidden,
	"cookie2":           forbidden,
	"date":              forbidden,
	"early-data":        forbidden,
	"forwarded":         forbidden,
	"idempotency-key":   ours,
	"origin":            forbidden,
	"prefer":            forbidden,
	"range":             forbidden,
	"referer":           forbidden,
	"set-cookie":        forbidden,
	"user-agent":        ours,
	"x-idempotency-key": ours, // turns on silent re-sends in net/http
	"x-real-ip":         forbidden,

	// Trace context of this service.
	"baggage":     ours,
	"traceparent": ours,
	"tracestate":  ours,

	// Make a gateway read another method or path than the one that was signed.
	"x-http-method":          forbidden,
	"x-http-method-override": forbidden,
	"x-method-override":      forbidden,
	"x-original-url":         forbidden,
	"x-rewrite-url":          forbidden,

	// Unlock cloud metadata services, should a request ever reach one.
	"metadata":        forbidden,
	"metadata-flavor": forbidden,

	// Signatures, also in the formats that are not in use.
	"stripe-signature":          ours,
	"x-hub-signature":           ours,
	"x-hub-signature-256":       ours,
	"x-shopify-hmac-sha256":     ours,
	"x-slack-request-timestamp": ours,
	"x-slack-signature":         ours,
}

// refusedHeaderPrefixes are families of such names, lower case.
var refusedHeaderPrefixes = []struct{ prefix, reason string }{
	{"accept-", forbidden}, // Accept-Encoding would undo the bounds on a response
	{"access-control-", forbidden},
	{"content-", ours},
	{"if-", forbidden},
	{"proxy-", hopByHop},
	{"sec-", forbidden},
	{"svix-", ours},
	{"webhook-", ours},
	{"x-aws-ec2-metadata-", forbidden},
	{"x-forwarded-", forbidden},
	{"x-google-metadata-", forbidden},
}

// checkAllowHeaders judges [Config.AllowHeaders].
func checkAllowHeaders(patterns []string) error {
	for i, p := range patterns {
		field := "Config.AllowHeaders[" + strconv.Itoa(i) + "]"
		name, family := strings.CutSuffix(p, "*")
		if !isHeaderName(name) {
			return invalid(field, "is not an HTTP token, nor the beginning of one with a \"*\" behind it")
		}
		if reason := headerRefusal(name, nil); reason != "" && !family {
			return invalid(field, "is "+reason)
		}
	}
	return nil
}

// isAllowed reports whether a name is among the patterns of [Config.AllowHeaders].
func isAllowed(name string, patterns []string) bool {
	folded := foldHeaderName(name)
	return patterns == nil || slices.ContainsFunc(patterns, func(p string) bool {
		beginning, family := strings.CutSuffix(foldHeaderName(p), "*")
		return beginning == folded || family && strings.HasPrefix(folded, beginning)
	})
}

// checkStaticHeaders judges the static headers of an endpoint; allow are the names that
// the host allows, nil for all, and reserved names are those that the configured signer
// and the host set, in any case. It reports every problem, in
// the order of the names, each as an [InvalidError] that names the header and never its
// value, which may be a credential.
func checkStaticHeaders(headers map[string]string, allow []string, reserved ...string) error {
	if len(headers) > maxStaticHeaders {
		return overLimit("Headers", strconv.Itoa(len(headers))+" headers", maxStaticHeaders)
	}
	names := make([]string, 0, len(headers))
	size := 0
	for name, value := range headers {
		names = append(names, name)
		size += len(name) + len(value)
	}
	if size > maxStaticHeaderBytes {
		return overLimit("Headers", strconv.Itoa(size)+" bytes of names and values", maxStaticHeaderBytes)
	}
	slices.Sort(names)

	var errs []error
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		folded := foldHeaderName(name)
		if seen[folded] {
			errs = append(errs, invalid(headerField(name), "is given twice"))
			continue
		}
		seen[folded] = true
		if err := checkStaticHeader(name, headers[name], reserved); err != nil {
			errs = append(errs, err)
		} else if !isAllowed(name, allow) {
			errs = append(errs, invalid(headerField(name), "is a name that this service does not allow"))
		}
	}
	return errors.Join(errs...)
}

func checkStaticHeader(name, value string, reserved []string) error {
	if !isHeaderName(name) {
		return invalid(headerField(name), "has a name that is not an HTTP token")
	}
	if reason := headerRefusal(name, reserved); reason != "" {
		return invalid(headerField(name), "is "+reason)
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
		return invalid(headerField(name), "has a value with a character outside printable ASCII")
	}
	if strings.Trim(value, " ") != value {
		return invalid(headerField(name), "has a value that begins or ends with a space, which receivers trim")
	}
	return nil
}

func headerField(name string) string { return "Headers[" + strconv.Quote(name) + "]" }

func overLimit(field, size string, limit int) *InvalidError {
	return &InvalidError{
		Field:   field,
		Problem: "has " + size + ", over the limit of " + strconv.Itoa(limit),
		Limit:   limit,
	}
}

// headerRefusal returns why an endpoint may not set a header, "" if it may.
func headerRefusal(name string, reserved []string) string {
	lower := foldHeaderName(name)
	if reason := refusedHeaders[lower]; reason != "" {
		return reason
	}
	for _, family := range refusedHeaderPrefixes {
		if strings.HasPrefix(lower, family.prefix) {
			return family.reason
		}
	}
	for _, r := range reserved {
		if foldHeaderName(r) == lower {
			return ours
		}
	}
	return ""
}

// foldHeaderName makes one name of all that a receiver may take for it: gateways that
// hand headers on as CGI variables do not tell "_" from "-".
func foldHeaderName(name string) string {
	return strings.ReplaceAll(strings.ToLower(name), "_", "-")
}

// isHeaderName reports whether name is a token of RFC 9110 §5.6.2.
func isHeaderName(name string) bool {
	for i := range len(name) {
		c := name[i]
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !alnum && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return name != ""
}
