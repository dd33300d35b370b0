package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
)

// Class says in one word why an attempt failed. It is coarse on purpose: a tenant
// may see it, and it never tells one refused address from another.
type Class string

// The classes of docs/design.md §4. ClassNone is success; ClassProxy is a fault of the
// operator's egress proxy, which is never charged to an endpoint.
const (
	ClassNone      Class = ""
	ClassBlocked   Class = "blocked"   // the guard refused the URL or every address
	ClassBody      Class = "body"      // for callers that need the answer's body, see Result.BodyErr
	ClassCancelled Class = "cancelled" // the caller's context ended first
	ClassConnect   Class = "connect"   // no TCP connection
	ClassDNS       Class = "dns"       // the name has no address, or the resolver failed
	ClassHTTP4xx   Class = "http_4xx"
	ClassHTTP5xx   Class = "http_5xx"
	ClassProtocol  Class = "protocol" // an answer that is not HTTP, too long, or has no usable status
	ClassProxy     Class = "proxy"    // the egress proxy failed or refused
	ClassRedirect  Class = "redirect" // any 3xx: redirects are not followed
	ClassReset     Class = "reset"    // the connection ended before an answer
	ClassTimeout   Class = "timeout"  // a time limit passed: connect, handshake, headers or the whole attempt
	ClassTLS       Class = "tls"      // the handshake or the verification failed
)

// opError is a failure whose class is known where it happens.
type opError struct {
	class Class
	doing string // what was being done, in operator's words
	err   error
}

func (e *opError) Error() string {
	if e.err == nil {
		return e.doing
	}
	return e.doing + ": " + e.err.Error()
}

func (e *opError) Unwrap() error { return e.err }

// ClassifyStatus returns the class of an HTTP status code: ClassNone for 200 to
// 299 only, and ClassProtocol for what is outside 200 to 599.
func ClassifyStatus(status int) Class {
	switch {
	case status >= 200 && status <= 299:
		return ClassNone
	case status >= 300 && status <= 399:
		return ClassRedirect
	case status >= 400 && status <= 499:
		return ClassHTTP4xx
	case status >= 500 && status <= 599:
		return ClassHTTP5xx
	}
	return ClassProtocol
}

// Classify returns the class of an error that a RoundTripper returned. What it does
// not know is ClassProtocol: the receiver answered something that HTTP is not.
func Classify(err error) Class {
	if err == nil {
		return ClassNone
	}
	if op, ok := errors.AsType[*opError](err); ok {
		return op.class
	}
	if errors.Is(err, ErrBlocked) {
		return ClassBlocked
	}
	if _, ok := errors.AsType[*URLError](err); ok {
		return ClassBlocked
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return ClassDNS
	}
	if isTimeout(err) {
		return ClassTimeout
	}
	if errors.Is(err, context.Canceled) {
		return ClassCancelled
	}
	if isTLS(err) {
		return ClassTLS
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return ClassConnect
	}
	if isReset(err) {
		return ClassReset
	}
	return ClassProtocol
}

func isTimeout(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	ne, ok := errors.AsType[net.Error](err)
	return ok && ne.Timeout()
}

func isTLS(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.AlertError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return true
	}
	// A server that refuses a client certificate under TLS 1.3 says so after the
	// handshake, as the "remote error" of the first read.
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

func isReset(err error) bool {
	for _, e := range []error{
		io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed,
		syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	// net/http keeps this one private.
	return strings.Contains(err.Error(), "server closed idle connection")
}
