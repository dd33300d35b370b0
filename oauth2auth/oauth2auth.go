// Package oauth2auth authorises webhook requests with OAuth 2.0 client credentials
// (RFC 6749 §4.4). It is a module of its own, so that only who uses it downloads
// golang.org/x/oauth2.
//
// A token is fetched when an attempt first needs one, shared by all attempts, and replaced
// before it expires or when an endpoint has answered 401. One request for a token is under
// way at a time, and a token server that fails is left alone for a while: 5 s at first,
// then twice as long each time, up to 5 min. Meanwhile the deliveries wait.
//
// Where the token URL comes from a customer it needs the same guard as the endpoint's:
// give [Config.Transport] the [webhook.Transport] that the attempts go through.
package oauth2auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/outhook/webhook"
)

// Defaults and bounds of a Config, and the pace at which failures are repeated.
const (
	defaultTimeout  = 10 * time.Second
	defaultLifetime = time.Hour // RFC 6749 §5.1 leaves it open; an hour is what most servers say
	maxEarly        = time.Minute
	minTokenAge     = 10 * time.Second
	firstPause      = 5 * time.Second
	longestPause    = 5 * time.Minute
)

// ErrToken is wrapped by every error of a request for a token. Such an error holds the
// delivery. It names no credential, and of the server's answer only the status and a
// standard error code.
var ErrToken = errors.New("oauth2auth: no token")

// Config configures [New].
type Config struct {
	// ClientID and ClientSecret are the credentials. Required.
	ClientID     string
	ClientSecret string

	// Params are further parameters of the request, such as audience or resource.
	Params url.Values

	// Scopes are asked for. Optional.
	Scopes []string

	// SecretInBody sends the credentials in the request's body, for servers that do not
	// take them in the Authorization header, as RFC 6749 §2.3.1 wants them to.
	SecretInBody bool

	// Timeout bounds a request for a token. 0 means 10 s; negative is refused. An
	// attempt's own deadline applies besides.
	Timeout time.Duration

	// TokenURL is the server's token endpoint, an https URL; http only if the Transport
	// lets it through.
	TokenURL string

	// Transport carries the requests. Required: it is the guarded transport of the
	// attempts where the TokenURL comes from a customer, and http.DefaultTransport only
	// where it is the operator's own. Redirects are not followed.
	Transport http.RoundTripper
}

// Format leaves the secret out of whatever prints the configuration.
func (c Config) Format(f fmt.State, _ rune) { io.WriteString(f, c.LogValue().String()) }

// LogValue leaves the secret out, for log/slog.
func (c Config) LogValue() slog.Value {
	return slog.StringValue("oauth2auth.Config(" + c.ClientID + ")")
}

// ClientCredentials is a [webhook.Authenticator]. It is safe for concurrent use.
type ClientCredentials struct {
	fetch func(context.Context) (*oauth2.Token, error) // holds the secret, where fmt does not look
	state chan *state                                  // a lock that can be waited for until a context ends

	refused atomic.Pointer[time.Time] // when an endpoint last refused a token
}

// state belongs to whoever has taken it from the channel.
type state struct {
	token     func() string // "" before the first token
	fetched   time.Time
	replaceAt time.Time // from here on a new token is asked for
	expiresAt time.Time // until here this one will do
	failure   error
	pause     time.Duration
	retryAt   time.Time
}

var (
	_ webhook.Authenticator   = (*ClientCredentials)(nil)
	_ webhook.AuthInvalidator = (*ClientCredentials)(nil)
)

// New checks the configuration, without a request; an error names the field.
func New(cfg Config) (*ClientCredentials, error) {
	if cfg.ClientID == "" || cfg.ClientSecret == "" {
		return nil, errors.New("oauth2auth: ClientID and ClientSecret are required")
	}
	if cfg.Transport == nil {
		return nil, errors.New("oauth2auth: Transport is required")
	}
	if cfg.Timeout < 0 {
		return nil, fmt.Errorf("oauth2auth: Timeout is %v, want 0 or more", cfg.Timeout)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	if err := checkURL(cfg.TokenURL); err != nil {
		return nil, err
	}
	for _, name := range []string{"grant_type", "scope", "client_id", "client_secret"} {
		if cfg.Params.Has(name) {
			return nil, fmt.Errorf("oauth2auth: Params must not hold %q", name)
		}
	}
	a := &ClientCredentials{fetch: fetcher(cfg), state: make(chan *state, 1)}
	a.state <- &state{token: func() string { return "" }}
	return a, nil
}

// checkURL does not quote the URL: it may hold a credential.
func checkURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return errors.New("oauth2auth: TokenURL is not an http or https URL")
	}
	if u.User != nil || u.Fragment != "" {
		return errors.New("oauth2auth: TokenURL must not hold a user or a fragment")
	}
	return nil
}

func fetcher(cfg Config) func(context.Context) (*oauth2.Token, error) {
	style := oauth2.AuthStyleInHeader
	if cfg.SecretInBody {
		style = oauth2.AuthStyleInParams
	}
	conf := clientcredentials.Config{
		ClientID: cfg.ClientID, ClientSecret: cfg.ClientSecret, TokenURL: cfg.TokenURL,
		Scopes: slices.Clone(cfg.Scopes), EndpointParams: maps.Clone(cfg.Params), AuthStyle: style,
	}
	client := &http.Client{
		Transport:     cfg.Transport,
		Timeout:       cfg.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return func(ctx context.Context) (*oauth2.Token, error) {
		return conf.Token(context.WithValue(ctx, oauth2.HTTPClient, client))
	}
}

// Authenticate sets the Authorization header.
func (a *ClientCredentials) Authenticate(ctx context.Context, h http.Header, _ webhook.AuthInput) error {
	var s *state
	select {
	case s = <-a.state:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrToken, ctx.Err())
	}
	defer func() { a.state <- s }()

	if refused := a.refused.Load(); refused != nil && refused.Sub(s.fetched) >= minTokenAge {
		s.expiresAt = time.Time{}
	}
	if err := s.ensure(ctx, a.fetch); err != nil {
		return err
	}
	h.Set("Authorization", "Bearer "+s.token())
	return nil
}

// Invalidate drops the token, unless it is only seconds old: then another attempt has just
// replaced it, or fresh tokens are refused too and fetching more of them is no help. It
// does not wait.
func (a *ClientCredentials) Invalidate(webhook.AuthInput) {
	now := time.Now()
	a.refused.Store(&now)
}

// ensure leaves s with a token to use, or returns why there is none.
func (s *state) ensure(ctx context.Context, fetch func(context.Context) (*oauth2.Token, error)) error {
	now := time.Now()
	usable := now.Before(s.expiresAt)
	if usable && now.Before(s.replaceAt) {
		return nil
	}
	err := s.failure
	if !now.Before(s.retryAt) {
		err = s.refresh(ctx, fetch)
	}
	if usable {
		return nil // the server has until the token expires
	}
	return err
}

func (s *state) refresh(ctx context.Context, fetch func(context.Context) (*oauth2.Token, error)) error {
	token, err := fetch(ctx)
	if err != nil {
		err = describe(err)
	} else {
		err = checkToken(token)
	}
	now := time.Now()
	if err == nil {
		s.accept(token, now)
		return nil
	}
	if ctx.Err() == nil { // otherwise it says nothing about the server
		s.failure = err
		s.pause = min(max(2*s.pause, firstPause), longestPause)
		s.retryAt = now.Add(s.pause)
	}
	return err
}

func (s *state) accept(token *oauth2.Token, now time.Time) {
	lifetime := defaultLifetime
	if !token.Expiry.IsZero() {
		// A server that says less would be asked for every attempt.
		lifetime = max(token.Expiry.Sub(now), minTokenAge)
	}
	*s = state{
		token:   func() string { return token.AccessToken },
		fetched: now,
		// Early enough that it does not expire on its way.
		replaceAt: now.Add(lifetime - min(maxEarly, lifetime/4)),
		expiresAt: now.Add(lifetime),
	}
}

func checkToken(token *oauth2.Token) error {
	if token.TokenType != "" && !strings.EqualFold(token.TokenType, "bearer") {
		return fmt.Errorf("%w: of another type than Bearer", ErrToken)
	}
	if strings.ContainsFunc(token.AccessToken, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("%w: a character that no header carries", ErrToken)
	}
	return nil
}

// codes are the errors of RFC 6749 §5.2.
var codes = []string{
	"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope",
}

// describe keeps what an operator needs of an error and drops what may hold a secret: the
// server's answer and the token URL.
func describe(err error) error {
	if answer, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		status := 0
		if answer.Response != nil {
			status = answer.Response.StatusCode
		}
		if slices.Contains(codes, answer.ErrorCode) {
			return fmt.Errorf("%w: status %d, %s", ErrToken, status, answer.ErrorCode)
		}
		return fmt.Errorf("%w: status %d", ErrToken, status)
	}
	if request, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("%w: %w", ErrToken, request.Err)
	}
	return fmt.Errorf("%w: unusable answer", ErrToken)
}
