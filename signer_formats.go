package webhook

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// Header names of the formats, canonical.
const (
	headerStripe         = "Stripe-Signature"
	headerGitHub         = "X-Hub-Signature-256"
	headerShopify        = "X-Shopify-Hmac-Sha256"
	headerSlack          = "X-Slack-Signature"
	headerSlackTimestamp = "X-Slack-Request-Timestamp"
)

// StripeSigner signs as Stripe does: "t=timestamp,v1=hex", with one v1 for each active
// secret, the current one first, over "timestamp.body". The key is the text of the
// secret, a whsec_ prefix included and nothing decoded. The zero value works.
type StripeSigner struct {
	// Header is the header's name. Empty means "Stripe-Signature".
	Header string
}

// Sign sets the header.
func (s StripeSigner) Sign(_ context.Context, h http.Header, in SignInput) error {
	if _, ok := currentTextSecret(in.Secrets); !ok {
		return noTextSecret("Stripe")
	}
	scratch := getScratch()
	defer scratch.release()

	scratch.lead = append(strconv.AppendInt(scratch.lead[:0], in.Time.Unix(), 10), '.')
	scratch.header = append(scratch.header, "t="...)
	scratch.header = append(scratch.header, scratch.lead[:len(scratch.lead)-1]...)
	for _, secret := range in.Secrets {
		if !hasTextKey(secret) {
			continue
		}
		scratch.header = append(scratch.header, ",v1="...)
		scratch.appendHexMAC(secret, in.Body)
	}
	h.Set(orDefault(s.Header, headerStripe), string(scratch.header))
	return nil
}

// Validate reports a header name that HTTP does not allow.
func (s StripeSigner) Validate() error { return checkHeaderNames(s.headerNames()...) }

func (s StripeSigner) headerNames() []string { return []string{orDefault(s.Header, headerStripe)} }

// GitHubSigner signs as GitHub does: "sha256=hex" over the body alone. The key is the
// text of the current secret. The format has room for one signature, so a receiver
// must know the new secret before a rotation, and it has no time, so whoever records a
// request can send it again. The zero value works.
type GitHubSigner struct {
	// Header is the header's name. Empty means "X-Hub-Signature-256".
	Header string
}

// Sign sets the header.
func (s GitHubSigner) Sign(_ context.Context, h http.Header, in SignInput) error {
	secret, ok := currentTextSecret(in.Secrets)
	if !ok {
		return noTextSecret("GitHub")
	}
	scratch := getScratch()
	defer scratch.release()

	scratch.lead = scratch.lead[:0]
	scratch.header = append(scratch.header, "sha256="...)
	scratch.appendHexMAC(secret, in.Body)
	h.Set(orDefault(s.Header, headerGitHub), string(scratch.header))
	return nil
}

// Validate reports a header name that HTTP does not allow.
func (s GitHubSigner) Validate() error { return checkHeaderNames(s.headerNames()...) }

func (s GitHubSigner) headerNames() []string { return []string{orDefault(s.Header, headerGitHub)} }

// ShopifySigner signs as Shopify does: base64 over the body alone. The key is the text
// of the current secret; what [GitHubSigner] says on rotation and time holds here too.
// The zero value works.
type ShopifySigner struct {
	// Header is the header's name. Empty means "X-Shopify-Hmac-SHA256".
	Header string
}

// Sign sets the header.
func (s ShopifySigner) Sign(_ context.Context, h http.Header, in SignInput) error {
	secret, ok := currentTextSecret(in.Secrets)
	if !ok {
		return noTextSecret("Shopify")
	}
	scratch := getScratch()
	defer scratch.release()

	scratch.lead = scratch.lead[:0]
	sum := scratch.mac([]byte(secret.material().text), in.Body)
	h.Set(orDefault(s.Header, headerShopify), base64.StdEncoding.EncodeToString(sum))
	return nil
}

// Validate reports a header name that HTTP does not allow.
func (s ShopifySigner) Validate() error { return checkHeaderNames(s.headerNames()...) }

func (s ShopifySigner) headerNames() []string { return []string{orDefault(s.Header, headerShopify)} }

// SlackSigner signs as Slack does: "v0=hex" over "v0:timestamp:body", with the timestamp
// in a header of its own. The key is the text of the current secret; the format has
// room for one signature, so a receiver must know the new secret before a rotation.
// The zero value works.
type SlackSigner struct {
	// Header is the signature header's name. Empty means "X-Slack-Signature".
	Header string
	// TimestampHeader is the timestamp header's name. Empty means
	// "X-Slack-Request-Timestamp".
	TimestampHeader string
}

// Sign sets both headers.
func (s SlackSigner) Sign(_ context.Context, h http.Header, in SignInput) error {
	secret, ok := currentTextSecret(in.Secrets)
	if !ok {
		return noTextSecret("Slack")
	}
	scratch := getScratch()
	defer scratch.release()

	ts := strconv.FormatInt(in.Time.Unix(), 10)
	scratch.lead = append(scratch.lead[:0], "v0:"...)
	scratch.lead = append(scratch.lead, ts...)
	scratch.lead = append(scratch.lead, ':')
	scratch.header = append(scratch.header, "v0="...)
	scratch.appendHexMAC(secret, in.Body)
	h.Set(orDefault(s.TimestampHeader, headerSlackTimestamp), ts)
	h.Set(orDefault(s.Header, headerSlack), string(scratch.header))
	return nil
}

// Validate reports a header name that HTTP does not allow.
func (s SlackSigner) Validate() error { return checkHeaderNames(s.headerNames()...) }

func (s SlackSigner) headerNames() []string {
	return []string{orDefault(s.Header, headerSlack), orDefault(s.TimestampHeader, headerSlackTimestamp)}
}

// CombineSigners signs in several formats at once, so that receivers can move from one
// to another in their own time. Every signer must succeed and each must have header
// names of its own.
func CombineSigners(signers ...Signer) Signer {
	return combinedSigner(append([]Signer(nil), signers...))
}

type combinedSigner []Signer

func (c combinedSigner) Sign(ctx context.Context, h http.Header, in SignInput) error {
	if len(c) == 0 {
		return errors.New("webhook: cannot sign: CombineSigners got no signer")
	}
	for _, s := range c {
		if err := s.Sign(ctx, h, in); err != nil {
			return err
		}
	}
	return nil
}

// Validate reports an empty or nil list, what its signers report, and two signers that
// would overwrite each other's header.
func (c combinedSigner) Validate() error {
	if len(c) == 0 {
		return errors.New("webhook: CombineSigners needs at least one signer")
	}
	seen := make(map[string]bool)
	for i, s := range c {
		if s == nil {
			return fmt.Errorf("webhook: CombineSigners: signer %d is nil", i)
		}
		if err := validateSigner(s); err != nil {
			return err
		}
		for _, name := range signerHeaderNames(s) {
			name = http.CanonicalHeaderKey(name)
			if seen[name] {
				return fmt.Errorf("webhook: CombineSigners: two signers set the header %q", name)
			}
			seen[name] = true
		}
	}
	return nil
}

func (c combinedSigner) headerNames() []string {
	var names []string
	for _, s := range c {
		names = append(names, signerHeaderNames(s)...)
	}
	return names
}

// validateSigner reports what is wrong with a signer that can tell.
func validateSigner(s Signer) error {
	if v, ok := s.(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}

// signerHeaderNames lists the headers that a signer of this package sets, which static
// headers must leave alone.
func signerHeaderNames(s Signer) []string {
	if n, ok := s.(interface{ headerNames() []string }); ok {
		return n.headerNames()
	}
	return nil
}

func checkHeaderNames(names ...string) error {
	for _, name := range names {
		if !isHeaderName(name) {
			return fmt.Errorf("webhook: signer: header name %q is not an HTTP token", name)
		}
	}
	return nil
}

// hasTextKey is false for signing keys: their text is what a receiver must not hold.
func hasTextKey(s Secret) bool { return !s.IsZero() && s.material().kind != secretEd25519 }

func currentTextSecret(secrets []Secret) (Secret, bool) {
	for _, s := range secrets {
		if hasTextKey(s) {
			return s, true
		}
	}
	return Secret{}, false
}

func noTextSecret(format string) error {
	return fmt.Errorf("%w in the %s format", ErrNoSigningSecret, format)
}

func (s *signScratch) appendHexMAC(secret Secret, body []byte) {
	s.header = hex.AppendEncode(s.header, s.mac([]byte(secret.material().text), body))
}

func orDefault(name, fallback string) string {
	if name == "" {
		return fallback
	}
	return name
}
