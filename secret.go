package webhook

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/subtle"
	"database/sql/driver"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ErrInvalidSecret is wrapped by every error about a malformed secret. Such an
// error says what is wrong and never contains the secret or a part of it.
var ErrInvalidSecret = errors.New("webhook: invalid secret")

// Sizes of a symmetric key in bytes (Standard Webhooks 1.0, "Signature scheme":
// between 192 and 512 bits).
const (
	minSecretBytes = 24
	maxSecretBytes = 64
	newSecretBytes = 32
)

// Sizes of a text secret in bytes. The formats that use one publish no limits:
// below 16 a secret could be found by trying, above 256 it is a pasted mistake.
const (
	minTextSecretBytes = 16
	maxTextSecretBytes = 256
)

// Prefixes of the serialised forms (Standard Webhooks 1.0).
const (
	prefixSymmetric  = "whsec_"
	prefixPrivateKey = "whsk_"
	prefixPublicKey  = "whpk_"
)

// redacted stands for a secret wherever something formats one.
const redacted = "[redacted]"

type secretKind uint8

const (
	secretSymmetric secretKind = iota + 1 // whsec_: HMAC with the decoded bytes
	secretEd25519                         // whsk_: ed25519 private key
	secretText                            // free text: HMAC with the text itself
)

// Secret is what proves to an endpoint that a request comes from here: a
// symmetric key (whsec_…), an ed25519 signing key (whsk_…), or the free text
// that a Stripe, GitHub, Shopify or Slack style receiver already knows.
//
// A Secret never shows itself: fmt with any verb, log/slog, encoding/json and
// every other encoder that asks for text get "[redacted]", and a database driver
// gets an error. [Secret.Reveal] is the only way to the value and
// [Secret.Hint] is what a page may show.
//
// Secrets are immutable and safe for concurrent use. The zero Secret is no
// secret: [Secret.IsZero] reports it and nothing can be signed with it.
type Secret struct {
	// fmt cannot call methods through an unexported field of a user's struct: it
	// prints the content of what a pointer there points to if the verb does not fit,
	// but of two pointers in a row only an address.
	ref **secretMaterial
}

func newSecret(m secretMaterial) Secret {
	pointer := &m
	return Secret{ref: &pointer}
}

// material returns nil for the zero Secret.
func (s Secret) material() *secretMaterial {
	if s.ref == nil {
		return nil
	}
	return *s.ref
}

// secretMaterial is decoded once and never changes.
type secretMaterial struct {
	kind    secretKind
	text    string             // the serialised form, prefix included
	key     []byte             // HMAC key of v1; nil for other kinds
	private ed25519.PrivateKey // key of v1a; nil for other kinds
}

// NewSecret makes a symmetric secret of 32 random bytes.
func NewSecret() Secret {
	key := make([]byte, newSecretBytes)
	rand.Read(key) // never fails: it ends the process instead
	return symmetricSecret(key)
}

// NewSigningKey makes an ed25519 signing key, for endpoints whose receiver
// should not hold anything that can sign: it verifies with [Secret.PublicKey].
func NewSigningKey() Secret {
	seed := make([]byte, ed25519.SeedSize)
	rand.Read(seed)
	return signingKey(ed25519.NewKeyFromSeed(seed))
}

// ParseSecret reads a secret in the form that [Secret.Reveal] gives:
//
//   - "whsec_" and the padded standard base64 of 24 to 64 bytes. The prefix may be
//     left out, as it may be with the Standard Webhooks libraries: the key is the same.
//   - "whsk_" and the base64 of an ed25519 private key of 64 bytes, seed and public half.
//
// Anything else is refused with an error that wraps [ErrInvalidSecret]: nothing is
// trimmed, repaired or used as text instead, because the receiver would then be left
// with another key than the sender. A free-text secret goes through [ParseTextSecret].
func ParseSecret(s string) (Secret, error) {
	if encoded, ok := strings.CutPrefix(s, prefixPrivateKey); ok {
		return parseSigningKey(encoded)
	}
	if strings.HasPrefix(s, prefixPublicKey) {
		return Secret{}, fmt.Errorf("%w: a public key cannot sign", ErrInvalidSecret)
	}
	key, err := decodeSecret(strings.TrimPrefix(s, prefixSymmetric))
	if err != nil {
		return Secret{}, err
	}
	if len(key) < minSecretBytes || len(key) > maxSecretBytes {
		return Secret{}, fmt.Errorf("%w: key of %d bytes, want %d to %d",
			ErrInvalidSecret, len(key), minSecretBytes, maxSecretBytes)
	}
	return symmetricSecret(key), nil
}

// ParseTextSecret takes a secret that a receiver already knows as free text, for
// [StripeSigner], [GitHubSigner], [ShopifySigner] and [SlackSigner], which use the
// bytes of the text as the key, undecoded. It must be 16 to 256 bytes of printable
// UTF-8 without surrounding white space. [StandardWebhooks] cannot sign with it.
func ParseTextSecret(s string) (Secret, error) {
	if len(s) < minTextSecretBytes || len(s) > maxTextSecretBytes {
		return Secret{}, fmt.Errorf("%w: text of %d bytes, want %d to %d",
			ErrInvalidSecret, len(s), minTextSecretBytes, maxTextSecretBytes)
	}
	if !utf8.ValidString(s) {
		return Secret{}, fmt.Errorf("%w: text is not UTF-8", ErrInvalidSecret)
	}
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return Secret{}, fmt.Errorf("%w: text has an unprintable character", ErrInvalidSecret)
	}
	if strings.TrimSpace(s) != s {
		return Secret{}, fmt.Errorf("%w: text begins or ends with white space", ErrInvalidSecret)
	}
	return textSecret(s), nil
}

func parseSigningKey(encoded string) (Secret, error) {
	raw, err := decodeSecret(encoded)
	if err != nil {
		return Secret{}, err
	}
	if len(raw) != ed25519.PrivateKeySize {
		return Secret{}, fmt.Errorf("%w: signing key of %d bytes, want %d",
			ErrInvalidSecret, len(raw), ed25519.PrivateKeySize)
	}
	private := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
	// Signing with a foreign public half would leak the private one.
	if subtle.ConstantTimeCompare(private, raw) != 1 {
		return Secret{}, fmt.Errorf("%w: signing key whose halves do not belong together", ErrInvalidSecret)
	}
	return signingKey(private), nil
}

// decodeSecret is strict where encoding/base64 is not: line breaks and stray
// bits at the end are refused, so that each key has exactly one serialised form.
func decodeSecret(encoded string) ([]byte, error) {
	if encoded == "" {
		return nil, fmt.Errorf("%w: empty", ErrInvalidSecret)
	}
	if strings.ContainsAny(encoded, "\r\n") {
		return nil, fmt.Errorf("%w: line break", ErrInvalidSecret)
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		// The error of encoding/base64 gives an offset only, but it is not ours to trust.
		return nil, fmt.Errorf("%w: not padded standard base64", ErrInvalidSecret)
	}
	return raw, nil
}

func symmetricSecret(key []byte) Secret {
	text := prefixSymmetric + base64.StdEncoding.EncodeToString(key)
	return newSecret(secretMaterial{kind: secretSymmetric, text: text, key: key})
}

func signingKey(private ed25519.PrivateKey) Secret {
	text := prefixPrivateKey + base64.StdEncoding.EncodeToString(private)
	return newSecret(secretMaterial{kind: secretEd25519, text: text, private: private})
}

func textSecret(s string) Secret {
	return newSecret(secretMaterial{kind: secretText, text: s})
}

// IsZero reports whether s holds no secret.
func (s Secret) IsZero() bool { return s.ref == nil }

// Reveal returns the secret in its serialised form, prefix included. Show it once,
// to the endpoint's owner, when it was made.
func (s Secret) Reveal() string {
	if s.IsZero() {
		return ""
	}
	return s.material().text
}

// KeyBytes returns a copy of the key material: the decoded bytes of a whsec_ secret,
// the 64 bytes of an ed25519 private key, the bytes of a text, nil for the zero Secret.
func (s Secret) KeyBytes() []byte {
	m := s.material()
	if m == nil {
		return nil
	}
	switch m.kind {
	case secretSymmetric:
		return slices.Clone(m.key)
	case secretEd25519:
		return slices.Clone(m.private)
	default:
		return []byte(m.text)
	}
}

// PublicKey returns what a receiver verifies the signatures of a signing key with:
// "whpk_" and the base64 of 32 bytes. It is "" for secrets of other kinds.
func (s Secret) PublicKey() string {
	m := s.material()
	if m == nil || m.kind != secretEd25519 {
		return ""
	}
	return prefixPublicKey + base64.StdEncoding.EncodeToString(m.private[ed25519.SeedSize:])
}

// Hint returns enough to tell secrets apart on a page: the prefix and the last four
// characters, such as "whsec_…LaSw".
func (s Secret) Hint() string {
	m := s.material()
	if m == nil {
		return ""
	}
	prefix := ""
	switch m.kind {
	case secretSymmetric:
		prefix = prefixSymmetric
	case secretEd25519:
		prefix = prefixPrivateKey
	case secretText:
	}
	runes := []rune(m.text)
	return prefix + "…" + string(runes[len(runes)-4:])
}

// Equal reports whether both are the same secret, in constant time for secrets of
// one length. Two zero secrets are equal.
func (s Secret) Equal(other Secret) bool {
	a, b := s.material(), other.material()
	if a == nil || b == nil {
		return a == b
	}
	return a.kind == b.kind && subtle.ConstantTimeCompare([]byte(a.text), []byte(b.text)) == 1
}

// String returns "[redacted]", or "" for the zero Secret.
func (s Secret) String() string {
	if s.IsZero() {
		return ""
	}
	return redacted
}

// GoString redacts, for %#v.
func (s Secret) GoString() string { return "webhook.Secret(" + s.String() + ")" }

// Format redacts for every verb and flag of fmt.
func (s Secret) Format(f fmt.State, verb rune) {
	if verb == 'v' && f.Flag('#') {
		io.WriteString(f, s.GoString())
		return
	}
	io.WriteString(f, s.String())
}

// LogValue redacts, for log/slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalJSON redacts. With the omitzero option a zero Secret is left out.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + s.String() + `"`), nil }

// MarshalText redacts.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Value refuses: a Secret is sealed before it is stored, and a driver that asked
// for text instead would store "[redacted]".
func (s Secret) Value() (driver.Value, error) {
	return nil, errors.New("webhook: a Secret cannot be a query argument: seal it first")
}
