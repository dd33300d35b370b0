package oauth2auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

// tokenServer is a transport that answers as a token server does.
type tokenServer struct {
	requests atomic.Int64
	answer   func(n int64, r *http.Request) (*http.Response, error)
}

func (s *tokenServer) RoundTrip(r *http.Request) (*http.Response, error) {
	return s.answer(s.requests.Add(1), r)
}

func respond(status int, body string) (*http.Response, error) {
	return &http.Response{
		StatusCode: status, Status: fmt.Sprint(status), Proto: "HTTP/1.1",
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
	}, nil
}

// issue gives the tokens t1, t2 and so on, which live for an hour.
func issue() *tokenServer {
	return &tokenServer{answer: func(n int64, _ *http.Request) (*http.Response, error) {
		return respond(200, fmt.Sprintf(`{"access_token":"t%d","token_type":"bearer","expires_in":3600}`, n))
	}}
}

func config(transport http.RoundTripper) Config {
	return Config{ClientID: "id", ClientSecret: "open-sesame", TokenURL: "https://tokens.example/token", Transport: transport}
}

func newAuth(t *testing.T, transport http.RoundTripper) *ClientCredentials {
	t.Helper()
	a, err := New(config(transport))
	require.NoError(t, err)
	return a
}

func header(t *testing.T, a *ClientCredentials) string {
	t.Helper()
	h := http.Header{}
	require.NoError(t, a.Authenticate(t.Context(), h, webhook.AuthInput{}))
	return h.Get("Authorization")
}

func refusal(t *testing.T, a *ClientCredentials) error {
	t.Helper()
	h := http.Header{}
	err := a.Authenticate(t.Context(), h, webhook.AuthInput{})
	require.ErrorIs(t, err, ErrToken)
	assert.Empty(t, h)
	assert.NotContains(t, err.Error(), "open-sesame")
	assert.NotContains(t, err.Error(), "tokens.example")
	return err
}

func TestATokenIsSharedUntilShortlyBeforeItExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := issue()
		a := newAuth(t, server)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { assert.Equal(t, "Bearer t1", header(t, a)) })
		}
		wg.Wait()
		time.Sleep(59*time.Minute - time.Millisecond)
		assert.Equal(t, "Bearer t1", header(t, a))
		time.Sleep(time.Millisecond)
		assert.Equal(t, "Bearer t2", header(t, a))
		assert.EqualValues(t, 2, server.requests.Load())
	})
}

func TestTheRequestFollowsTheSpecification(t *testing.T) {
	t.Parallel()
	for _, inBody := range []bool{false, true} {
		server := &tokenServer{answer: func(_ int64, r *http.Request) (*http.Response, error) {
			assert.Equal(t, http.MethodPost, r.Method)
			body, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			form, err := url.ParseQuery(string(body))
			assert.NoError(t, err)
			want := url.Values{"grant_type": {"client_credentials"}, "scope": {"a b"}, "audience": {"hooks"}}
			user, password, ok := r.BasicAuth()
			assert.Equal(t, !inBody, ok)
			if inBody {
				want.Set("client_id", "id")
				want.Set("client_secret", "open-sesame")
			} else {
				assert.Equal(t, "id open-sesame", user+" "+password)
			}
			assert.Equal(t, want, form)
			return respond(200, `{"access_token":"t","token_type":"Bearer"}`)
		}}
		cfg := config(server)
		cfg.Scopes, cfg.Params, cfg.SecretInBody = []string{"a", "b"}, url.Values{"audience": {"hooks"}}, inBody
		a, err := New(cfg)
		require.NoError(t, err)
		assert.Equal(t, "Bearer t", header(t, a))
	}
}

func TestARefusedTokenIsReplacedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := issue()
		a := newAuth(t, server)
		header(t, a)
		a.Invalidate(webhook.AuthInput{})
		assert.Equal(t, "Bearer t1", header(t, a), "a token of this moment is not to blame")

		time.Sleep(minTokenAge)
		for range 20 { // as many attempts as were in flight
			a.Invalidate(webhook.AuthInput{})
			assert.Equal(t, "Bearer t2", header(t, a))
		}
		assert.EqualValues(t, 2, server.requests.Load())
	})
}

func TestAFailingServerIsLeftAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &tokenServer{answer: func(n int64, _ *http.Request) (*http.Response, error) {
			if n <= 9 {
				return respond(503, "open-sesame is not what I expected")
			}
			return respond(200, `{"access_token":"t","token_type":"bearer","expires_in":60}`)
		}}
		a := newAuth(t, server)
		for i, pause := range []int{5, 10, 20, 40, 80, 160, 300, 300, 300} {
			require.ErrorContains(t, refusal(t, a), "status 503")
			time.Sleep(time.Duration(pause)*time.Second - time.Millisecond)
			refusal(t, a)
			assert.EqualValues(t, i+1, server.requests.Load())
			time.Sleep(time.Millisecond)
		}
		assert.Equal(t, "Bearer t", header(t, a))
	})
}

func TestATokenIsUsedUpWhileTheServerIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &tokenServer{answer: func(n int64, _ *http.Request) (*http.Response, error) {
			if n == 1 {
				return respond(200, `{"access_token":"t1","token_type":"bearer","expires_in":3600}`)
			}
			return nil, errors.New("no route")
		}}
		a := newAuth(t, server)
		header(t, a)
		time.Sleep(59 * time.Minute)
		assert.Equal(t, "Bearer t1", header(t, a))
		assert.EqualValues(t, 2, server.requests.Load(), "the next one was asked for")
		time.Sleep(time.Minute)
		require.ErrorContains(t, refusal(t, a), "no route")
	})
}

func TestOneAttemptsDeadlineIsNotAnothersFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &tokenServer{answer: func(n int64, r *http.Request) (*http.Response, error) {
			select {
			case <-r.Context().Done():
				return nil, r.Context().Err()
			case <-time.After(2 * time.Second):
				return respond(200, `{"access_token":"t","token_type":"bearer"}`)
			}
		}}
		a := newAuth(t, server)
		hasty, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 2 { // one asks, one waits for the answer
			wg.Go(func() {
				err := a.Authenticate(hasty, http.Header{}, webhook.AuthInput{})
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.ErrorIs(t, err, ErrToken)
			})
		}
		wg.Wait()
		assert.Equal(t, "Bearer t", header(t, a))
	})
}

func TestTheTimeoutHoldsWithoutADeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAuth(t, &tokenServer{answer: func(_ int64, r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}})
		begin := time.Now()
		refusal(t, a)
		assert.Equal(t, defaultTimeout, time.Since(begin))
	})
}

func TestAnswersThatAreNoToken(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status int
		body   string
		want   string
	}{
		"standard error":   {401, `{"error":"invalid_client","error_description":"open-sesame is wrong"}`, "status 401, invalid_client"},
		"other error":      {400, `{"error":"open-sesame"}`, "status 400"},
		"error with 200":   {200, `{"error":"invalid_scope"}`, "status 200, invalid_scope"},
		"redirect":         {302, ``, "status 302"},
		"not JSON":         {200, `open-sesame`, "unusable answer"},
		"no token":         {200, `{"token_type":"bearer"}`, "unusable answer"},
		"another type":     {200, `{"access_token":"t","token_type":"mac"}`, "another type"},
		"header injection": {200, `{"access_token":"t\r\nX-A: b","token_type":"bearer"}`, "no header carries"},
	} {
		a := newAuth(t, &tokenServer{answer: func(int64, *http.Request) (*http.Response, error) { return respond(tt.status, tt.body) }})
		assert.ErrorContains(t, refusal(t, a), tt.want, name)
	}
}

func TestLifetimesThatServersGetWrong(t *testing.T) {
	t.Parallel()
	for expires, wait := range map[string]time.Duration{
		`-5`: minTokenAge * 3 / 4, `1`: minTokenAge * 3 / 4, `40`: 30 * time.Second, `0`: 59 * time.Minute,
	} {
		synctest.Test(t, func(t *testing.T) {
			server := &tokenServer{answer: func(int64, *http.Request) (*http.Response, error) {
				return respond(200, `{"access_token":"t","token_type":"bearer","expires_in":`+expires+`}`)
			}}
			a := newAuth(t, server)
			header(t, a)
			time.Sleep(wait - time.Millisecond)
			header(t, a)
			assert.EqualValues(t, 1, server.requests.Load(), expires)
			time.Sleep(time.Millisecond)
			header(t, a)
			assert.EqualValues(t, 2, server.requests.Load(), expires)
		})
	}
}

func TestTokenRequestsGoThroughTheGuard(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"access_token":"t","token_type":"bearer"}`)
	}))
	defer server.Close()
	port := netip.MustParseAddrPort(server.Listener.Addr().String()).Port()

	for name, allow := range map[string][]webhook.AllowRule{
		"closed": nil,
		"open":   {{Prefix: netip.MustParsePrefix("127.0.0.1/32"), Ports: []webhook.PortRange{{From: port, To: port}}}},
	} {
		guard, err := webhook.NewTransport(webhook.TransportConfig{Allow: allow, AllowHTTP: true})
		require.NoError(t, err)
		cfg := config(guard)
		cfg.TokenURL = server.URL
		a, err := New(cfg)
		require.NoError(t, err)
		if name == "open" {
			assert.Equal(t, "Bearer t", header(t, a))
			continue
		}
		before := requests.Load()
		require.ErrorIs(t, a.Authenticate(t.Context(), http.Header{}, webhook.AuthInput{}), ErrToken)
		assert.Equal(t, before, requests.Load(), "a loopback token server is not asked")
	}
}

func TestConfigurationsAreChecked(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Config){
		"ClientID":   func(c *Config) { c.ClientID = "" },
		"required":   func(c *Config) { c.ClientSecret = "" },
		"Transport":  func(c *Config) { c.Transport = nil },
		"Timeout":    func(c *Config) { c.Timeout = -1 },
		"TokenURL":   func(c *Config) { c.TokenURL = "" },
		"http or":    func(c *Config) { c.TokenURL = "file:///open-sesame" },
		"not an":     func(c *Config) { c.TokenURL = "https://%zz" },
		"user":       func(c *Config) { c.TokenURL = "https://a:open-sesame@h/" },
		"fragment":   func(c *Config) { c.TokenURL = "https://h/#a" },
		"grant_type": func(c *Config) { c.Params = url.Values{"grant_type": {"password"}} },
	} {
		cfg := config(issue())
		change(&cfg)
		_, err := New(cfg)
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "open-sesame")
	}
}

func TestP06NeitherSecretNorTokenIsPrinted(t *testing.T) {
	t.Parallel()
	server := &tokenServer{answer: func(int64, *http.Request) (*http.Response, error) {
		return respond(200, `{"access_token":"abracadabra","token_type":"bearer"}`)
	}}
	cfg := config(server)
	a := newAuth(t, server)
	header(t, a)
	for _, value := range []any{cfg, &cfg, a, struct{ A webhook.Authenticator }{a}, struct{ a *ClientCredentials }{a}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d"} {
			out := fmt.Sprintf(verb, value)
			assert.NotContains(t, out, "open-sesame", "%T %s", value, verb)
			assert.NotContains(t, out, "abracadabra", "%T %s", value, verb)
		}
	}
}
