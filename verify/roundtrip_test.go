package verify_test

import (
	"go/parser"
	"go/token"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/verify"
)

// Whatever the sender signs, in any format and with any body, the receiver accepts while
// it knows one of the secrets, and refuses when a byte of the body is another.
func TestWhatIsSignedVerifies(t *testing.T) {
	t.Parallel()
	formats := []struct {
		signer webhook.Signer
		scheme verify.Scheme
		single bool // the format has room for the current secret only
	}{
		{webhook.StandardWebhooks(), verify.StandardWebhooks{}, false},
		{webhook.StandardWebhooksWith(webhook.StandardWebhooksConfig{Prefix: "acme-"}), verify.StandardWebhooks{Prefix: "acme-"}, false},
		{webhook.StripeSigner{}, verify.Stripe{}, false},
		{webhook.StripeSigner{Header: "X-Sig"}, verify.Stripe{Header: "X-Sig"}, false},
		{webhook.GitHubSigner{}, verify.GitHub{}, true},
		{webhook.ShopifySigner{}, verify.Shopify{}, true},
		{webhook.SlackSigner{}, verify.Slack{}, true},
		{webhook.CombineSigners(webhook.SlackSigner{}, webhook.StandardWebhooks()), verify.StandardWebhooks{}, false},
	}
	rapid.Check(t, func(t *rapid.T) {
		format := formats[rapid.IntRange(0, len(formats)-1).Draw(t, "format")]
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		now := time.Unix(rapid.Int64Range(0, 9_999_999_999).Draw(t, "now"), 0)
		secrets := make([]webhook.Secret, rapid.IntRange(1, 5).Draw(t, "secrets"))
		for i := range secrets {
			secrets[i] = webhook.NewSecret()
		}
		known := secrets[0]
		if !format.single {
			known = secrets[rapid.IntRange(0, len(secrets)-1).Draw(t, "known")]
		}

		header := make(http.Header)
		require.NoError(t, format.signer.Sign(t.Context(), header, webhook.SignInput{
			ID: "0190b6a5-7c1e-7000-8000-000000000000", Time: now, Body: body, Secrets: secrets,
		}))
		v, err := verify.New(verify.Config{
			Scheme: format.scheme, Secrets: []string{known.Reveal()}, Now: func() time.Time { return now },
		})
		require.NoError(t, err)
		_, err = v.Payload(header, body)
		require.NoError(t, err)

		changed := append([]byte(nil), body...)
		if len(changed) == 0 {
			changed = []byte{0}
		} else {
			changed[rapid.IntRange(0, len(changed)-1).Draw(t, "at")] ^= 1
		}
		_, err = v.Payload(header, changed)
		require.ErrorIs(t, err, verify.ErrMismatch)
	})
}

func TestTheReceiverSideNeedsTheStandardLibraryOnly(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, imported := range file.Imports {
			assert.NotContains(t, imported.Path.Value, ".", name)
		}
	}
}
