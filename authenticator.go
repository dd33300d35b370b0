package webhook

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/google/uuid"
)

// Authenticator adds authorisation to an attempt's request, for receivers behind a gateway
// that wants more than a signature. [BearerAuth] and [BasicAuth] are ones that ship, and
// package oauth2auth fetches tokens with OAuth 2.0 client credentials.
//
// It is asked for each attempt and decides by the endpoint: an [AuthenticatorFunc] that
// looks the endpoint up and calls another Authenticator, or does nothing, serves several.
// It sets headers in h and touches nothing else; what it sets wins over an endpoint's
// static headers and loses to the signature. An error keeps the attempt from being sent
// and is not charged to the endpoint. It must not name a credential. Implementations must
// be safe for concurrent use and end with ctx.
type Authenticator interface {
	Authenticate(ctx context.Context, h http.Header, in AuthInput) error
}

// AuthInput says which endpoint an attempt goes to.
type AuthInput struct {
	EndpointID uuid.UUID
	Tenant     string
	// URL is where the request goes. Its query may hold a credential of the customer's.
	URL string
}

// Format leaves the query of the URL out of whatever prints the input.
func (in AuthInput) Format(f fmt.State, _ rune) { io.WriteString(f, in.LogValue().String()) }

// LogValue leaves the URL out, for log/slog.
func (in AuthInput) LogValue() slog.Value {
	return slog.GroupValue(slog.String("endpoint", in.EndpointID.String()), slog.String("tenant", in.Tenant))
}

// AuthInvalidator is what an [Authenticator] may be besides: one that keeps credentials for
// a while. Invalidate is called when an endpoint has answered 401, so that the next attempt
// brings a fresh one.
type AuthInvalidator interface {
	Invalidate(in AuthInput)
}

// AuthenticatorFunc is a function that is an [Authenticator].
type AuthenticatorFunc func(ctx context.Context, h http.Header, in AuthInput) error

// Authenticate calls f.
func (f AuthenticatorFunc) Authenticate(ctx context.Context, h http.Header, in AuthInput) error {
	return f(ctx, h, in)
}

// BearerAuth sends the token as RFC 6750 says: "Authorization: Bearer token". A token that
// no header can carry is reported by New, and until then by every attempt.
func BearerAuth(token string) Authenticator {
	a := authorization{value: func() string { return "Bearer " + token }}
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		a.err = errors.New("webhook: BearerAuth: the token is empty or has a character that no token has")
	}
	return a
}

// BasicAuth sends a user name and password as RFC 7617 says, in UTF-8. A colon in the name
// and control characters, which the format cannot carry, are reported by New, and until
// then by every attempt.
func BasicAuth(username, password string) Authenticator {
	encoded := base64.StdEncoding.EncodeToString([]byte(username + ":" + password))
	a := authorization{value: func() string { return "Basic " + encoded }}
	if strings.Contains(username, ":") || strings.ContainsFunc(username+password, isControl) {
		a.err = errors.New("webhook: BasicAuth: a colon in the user name or a control character")
	}
	return a
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// authorization is a constant Authorization header. The value is a function because fmt
// does not print what a function holds.
type authorization struct {
	value func() string
	err   error
}

func (a authorization) Authenticate(_ context.Context, h http.Header, _ AuthInput) error {
	if a.err != nil {
		return a.err
	}
	h["Authorization"] = []string{a.value()}
	return nil
}

// Validate reports a credential that no header can carry.
func (a authorization) Validate() error { return a.err }

// validateAuthenticator reports what is wrong with an authenticator that can tell.
func validateAuthenticator(a Authenticator) error {
	if v, ok := a.(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}

// invalidateAuth passes a 401 on to an authenticator that keeps credentials.
func invalidateAuth(a Authenticator, in AuthInput) {
	if i, ok := a.(AuthInvalidator); ok {
		i.Invalidate(in)
	}
}
