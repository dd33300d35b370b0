package webhook

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrInvalidHeader is wrapped by every error about an endpoint's static headers. Such an
// error names the header and never its value, which may be a credential.
var ErrInvalidHeader = errors.New("webhook: invalid static header")

// Limits of an endpoint's static headers (DESIGN.md §5). Bytes are those of names and
// values together.
const (
	maxStaticHeaders     = 20
	maxStaticHeaderBytes = 4 << 10
)

// refusedHeaders are names that an endpoint may not set, lower case. Only names that
// describe the customer to the customer's own receiver are left.
var refusedHeaders = map[string]string{
	// RFC 9110 §7.6.1 and what net/http writes by itself.
	"connection":        "hop-by-hop",
	"expect":            "hop-by-hop",
	"keep-alive":        "hop-by-hop",
	"te":                "hop-by-hop",
	"trailer":           "hop-by-hop",
	"transfer-encoding": "hop-by-hop",
	"upgrade":           "hop-by-hop",
	"via":               "hop-by-hop",
	"host":              "set by the library",
	"http2-settings":    "hop-by-hop",
	"max-forwards":      "hop-by-hop",

	// Part of the message, or of the way in which it is sent.
	"accept":            "not allowed",
	"cookie":            "not allowed",
	"cookie2":           "not allowed",
	"date":              "not allowed",
	"early-data":        "not allowed",
	"forwarded":         "not allowed",
	"idempotency-key":   "set by the library",
	"origin":            "not allowed",
	"prefer":            "not allowed",
	"range":             "not allowed",
	"referer":           "not allowed",
	"set-cookie":        "not allowed",
	"user-agent":        "set by the library",
	"x-idempotency-key": "set by the library", // turns on silent re-sends in net/http
	"x-real-ip":         "not allowed",

	// Trace context of this service.
	"baggage":     "set by the library",
	"traceparent": "set by the library",
	"tracestate":  "set by the library",

	// Make a gateway read another method or path than the one that was signed.
	"x-http-method":          "not allowed",
	"x-http-method-override": "not allowed",
	"x-method-override":      "not allowed",
	"x-original-url":         "not allowed",
	"x-rewrite-url":          "not allowed",

	// Unlock cloud metadata services, should a request ever reach one.
	"metadata":        "not allowed",
	"metadata-flavor": "not allowed",

	// Signatures, also in the formats that are not in use.
	"stripe-signature":          "set by the library",
	"x-hub-signature":           "set by the library",
	"x-hub-signature-256":       "set by the library",
	"x-shopify-hmac-sha256":     "set by the library",
	"x-slack-request-timestamp": "set by the library",
	"x-slack-signature":         "set by the library",
}

// refusedHeaderPrefixes are families of such names, lower case.
var refusedHeaderPrefixes = []struct{ prefix, reason string }{
	{"accept-", "not allowed"}, // Accept-Encoding would undo the bounds on a response
	{"access-control-", "not allowed"},
	{"content-", "set by the library"},
	{"if-", "not allowed"},
	{"proxy-", "hop-by-hop"},
	{"sec-", "not allowed"},
	{"svix-", "set by the library"},
	{"webhook-", "set by the library"},
	{"x-aws-ec2-metadata-", "not allowed"},
	{"x-forwarded-", "not allowed"},
	{"x-google-metadata-", "not allowed"},
}

// checkStaticHeaders judges the static headers of an endpoint; reserved names are those
// that the configured signer and the host set, in any case. It reports every problem,
// in the order of the names.
func checkStaticHeaders(headers map[string]string, reserved ...string) error {
	if len(headers) > maxStaticHeaders {
		return fmt.Errorf("%w: %d headers, at most %d", ErrInvalidHeader, len(headers), maxStaticHeaders)
	}
	names := make([]string, 0, len(headers))
	size := 0
	for name, value := range headers {
		names = append(names, name)
		size += len(name) + len(value)
	}
	if size > maxStaticHeaderBytes {
		return fmt.Errorf("%w: names and values of %d bytes, at most %d", ErrInvalidHeader, size, maxStaticHeaderBytes)
	}
	slices.Sort(names)

	var errs []error
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		folded := foldHeaderName(name)
		if seen[folded] {
			errs = append(errs, fmt.Errorf("%w %q: given twice", ErrInvalidHeader, name))
			continue
		}
		seen[folded] = true
		if err := checkStaticHeader(name, headers[name], reserved); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func checkStaticHeader(name, value string, reserved []string) error {
	if !isHeaderName(name) {
		return fmt.Errorf("%w %q: the name is not an HTTP token", ErrInvalidHeader, name)
	}
	if reason := headerRefusal(name, reserved); reason != "" {
		return fmt.Errorf("%w %q: %s", ErrInvalidHeader, name, reason)
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
		return fmt.Errorf("%w %q: the value has a character outside printable ASCII", ErrInvalidHeader, name)
	}
	if strings.Trim(value, " ") != value {
		return fmt.Errorf("%w %q: the value begins or ends with a space, which a receiver would not see",
			ErrInvalidHeader, name)
	}
	return nil
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
			return "set by the library"
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
