package webhook

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAuthenticatorsSetTheAuthorizationHeader(t *testing.T) {
	t.Parallel()
	for want, a := range map[string]Authenticator{
		"Bearer mF_9.B5f-4.1JqM":                 BearerAuth("mF_9.B5f-4.1JqM"),       // RFC 6750 §2.1
		"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==":     BasicAuth("Aladdin", "open sesame"), // RFC 7617 §2
		"Basic dGVzdDoxMjPCow==":                 BasicAuth("test", "123£"),           // RFC 7617 §2.1
		"Basic dXNlcjpwYXNzOndpdGg6Y29sb25zOg==": BasicAuth("user", "pass:with:colons:"),
	} {
		require.NoError(t, validateAuthenticator(a))
		h := http.Header{"Authorization": {"from a static header", "twice"}}
		require.NoError(t, a.Authenticate(t.Context(), h, AuthInput{}))
		assert.Equal(t, http.Header{"Authorization": {want}}, h)
	}
}

func TestCredentialsThatNoHeaderCarriesAreRefused(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]Authenticator{
		"empty token":      BearerAuth(""),
		"token with space": BearerAuth("sesame open"),
		"token line break": BearerAuth("sesame\r\nX-A: b"),
		"token not ASCII":  BearerAuth("sésame"),
		"colon in name":    BasicAuth("a:b", "sesame"),
		"control in name":  BasicAuth("a\n", "sesame"),
		"control in pass":  BasicAuth("a", "sesame\x00"),
	} {
		require.Error(t, validateAuthenticator(a), name)
		h := http.Header{}
		err := a.Authenticate(t.Context(), h, AuthInput{})
		require.Error(t, err, name)
		assert.NotContains(t, err.Error(), "sesame", name)
		assert.Empty(t, h, name)
	}
}

func TestOneAuthenticatorServesSeveralEndpoints(t *testing.T) {
	t.Parallel()
	withToken, withNothing, broken := uuid.New(), uuid.New(), uuid.New()
	a := AuthenticatorFunc(func(ctx context.Context, h http.Header, in AuthInput) error {
		switch in.EndpointID {
		case withToken:
			return BearerAuth("abc").Authenticate(ctx, h, in)
		case broken:
			return errors.New("no credential")
		}
		return nil
	})
	require.NoError(t, validateAuthenticator(a))
	h := http.Header{}
	require.NoError(t, a.Authenticate(t.Context(), h, AuthInput{EndpointID: withNothing}))
	assert.Empty(t, h)
	require.NoError(t, a.Authenticate(t.Context(), h, AuthInput{EndpointID: withToken}))
	assert.Equal(t, "Bearer abc", h.Get("Authorization"))
	require.Error(t, a.Authenticate(t.Context(), h, AuthInput{EndpointID: broken}))
}

type countingAuth struct {
	AuthenticatorFunc
	invalidated []AuthInput
}

func (c *countingAuth) Invalidate(in AuthInput) { c.invalidated = append(c.invalidated, in) }

func TestA401ReachesWhatKeepsCredentials(t *testing.T) {
	t.Parallel()
	a, in := &countingAuth{}, AuthInput{EndpointID: uuid.New()}
	invalidateAuth(a, in)
	assert.Equal(t, []AuthInput{in}, a.invalidated)
	invalidateAuth(BearerAuth("abc"), in)
	invalidateAuth(nil, in)
}

func TestP06CredentialsAreNotPrinted(t *testing.T) {
	t.Parallel()
	for _, value := range []any{
		BearerAuth("open-sesame"), BasicAuth("Aladdin", "open-sesame"),
		struct{ a Authenticator }{BearerAuth("open-sesame")},
		struct{ A Authenticator }{BasicAuth("Aladdin", "open-sesame")},
		AuthInput{URL: "https://h/?token=open-sesame"},
	} {
		for form, out := range forms(t, value) {
			if form != "json" && form != "xml" && form != "gob" { // which a URL is there for
				assert.NotContains(t, out, "open-sesame", "%T in %s", value, form)
			}
			assert.NotContains(t, out, "QWxhZGRpbjpv", "%T in %s", value, form)
		}
	}
}
