package egress

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ErrBlocked is what every refusal of an address matches with [errors.Is].
var ErrBlocked = errors.New("the address is not allowed")

// BlockedError is a refusal by the guard. Its text is the same for every address,
// so that a tenant who reads it learns nothing about the network; Detail is for
// operators only.
type BlockedError struct {
	detail string
}

func blocked(detail string) *BlockedError { return &BlockedError{detail: detail} }

// Error returns the same text for every refusal.
func (e *BlockedError) Error() string { return ErrBlocked.Error() }

// Is makes errors.Is(err, ErrBlocked) true.
func (e *BlockedError) Is(target error) bool { return target == ErrBlocked }

// Detail says which address was refused and why. Show it to operators, never to
// tenants.
func (e *BlockedError) Detail() string { return e.detail }

// maxDetail bounds the operator's text of an error, of which a peer may decide parts.
const maxDetail = 1 << 10

// withoutQuotes returns err without what net/http quotes of an answer that it could not
// read. A peer may answer with the request: then that is the payload, or a credential
// out of the URL. The chain ends here, since it leads to the same text.
func withoutQuotes(err error) error {
	text := err.Error()
	if strings.Contains(text, "invalid header field") {
		return err // our own request, and it names no value
	}
	before, quoted, found := strings.Cut(text, `"`)
	if !found {
		return err
	}
	return &opError{class: ClassProtocol, doing: fmt.Sprintf("%s[%d bytes]", before, max(len(quoted)-1, 0))}
}

// Detail returns the operator's text of err: with the detail of a refusal if there is
// one in its chain, else the error's own text. It is valid UTF-8 on one line and at
// most 1 KiB, so it can be stored and logged whatever the peer sent. Show it to
// operators only.
func Detail(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	if b, ok := errors.AsType[*BlockedError](err); ok {
		text = b.Error() + ": " + b.detail
	}
	if len(text) > maxDetail {
		text = text[:maxDetail]
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, text)
}

// PublicText returns what a tenant may read about a failure of the given class. It
// holds no address, no name and nothing that the peer said.
func PublicText(c Class) string {
	if s, ok := publicText[c]; ok {
		return s
	}
	return "the request failed"
}

var publicText = map[Class]string{
	ClassNone:      "",
	ClassBlocked:   ErrBlocked.Error(),
	ClassBody:      "the response body could not be read",
	ClassCancelled: "the attempt was stopped by the sender",
	ClassConnect:   "no connection could be made",
	ClassDNS:       "the host name could not be resolved",
	ClassHTTP4xx:   "the endpoint answered with a 4xx status",
	ClassHTTP5xx:   "the endpoint answered with a 5xx status",
	ClassProtocol:  "the endpoint's answer is not valid HTTP",
	ClassProxy:     "the request could not leave the sender's network",
	ClassRedirect:  "the endpoint answered with a redirect, which is not followed",
	ClassReset:     "the connection was closed before an answer",
	ClassTimeout:   "the endpoint did not answer in time",
	ClassTLS:       "no verified TLS connection could be made",
}
