package verify

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Scheme is a format of signatures: [StandardWebhooks], [Stripe], [GitHub], [Shopify] or
// [Slack], of which every zero value works. Others cannot be added from outside.
type Scheme interface {
	// key reads a secret in the scheme's notation.
	key(secret string) (key, error)
	// claim reads the headers.
	claim(h http.Header) (claim, error)
	// signsID reports whether a claim has a message id.
	signsID() bool
}

// StandardWebhooks is the format of Standard Webhooks 1.0, with HMAC-SHA256 (v1) and
// ed25519 (v1a) signatures. Versions that are not known are passed over.
type StandardWebhooks struct {
	// Prefix begins the three header names. Empty means "webhook-".
	Prefix string
}

// Sizes of an HMAC key in bytes (Standard Webhooks 1.0).
const (
	minKey = 24
	maxKey = 64
)

func (StandardWebhooks) key(secret string) (key, error) {
	if strings.HasPrefix(secret, "whsk_") {
		return key{}, errors.New("a signing key is the sender's; the receiver has its public half, whpk_")
	}
	if encoded, ok := strings.CutPrefix(secret, "whpk_"); ok {
		raw, err := decodeKey(encoded)
		if err != nil {
			return key{}, err
		}
		if len(raw) != ed25519.PublicKeySize {
			return key{}, fmt.Errorf("public key of %d bytes, want %d", len(raw), ed25519.PublicKeySize)
		}
		return key{public: raw}, nil
	}
	raw, err := decodeKey(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return key{}, err
	}
	if len(raw) < minKey || len(raw) > maxKey {
		return key{}, fmt.Errorf("key of %d bytes, want %d to %d", len(raw), minKey, maxKey)
	}
	return key{mac: raw}, nil
}

func decodeKey(encoded string) ([]byte, error) {
	if encoded == "" {
		return nil, errors.New("empty")
	}
	if strings.ContainsAny(encoded, "\r\n") { // which encoding/base64 passes over
		return nil, errors.New("line break")
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return nil, errors.New("not padded standard base64")
	}
	return raw, nil
}

func (s StandardWebhooks) claim(h http.Header) (claim, error) {
	prefix := orDefault(s.Prefix, "webhook-")
	id, err := single(h, prefix+"id")
	if err != nil {
		return claim{}, err
	}
	// With a full stop in it, one signed content could be read in two ways.
	if strings.ContainsFunc(id, func(r rune) bool { return r == '.' || r <= ' ' || r > '~' }) {
		return claim{}, fmt.Errorf("%w %sid: full stop, space or unprintable character", ErrMalformedHeader, prefix)
	}
	ts, err := single(h, prefix+"timestamp")
	if err != nil {
		return claim{}, err
	}
	c := claim{id: id, lead: []byte(id + "." + ts + ".")}
	if c.timestamp, err = parseTimestamp(prefix+"timestamp", ts); err != nil {
		return claim{}, err
	}
	list, err := single(h, prefix+"signature")
	if err != nil {
		return claim{}, err
	}
	c.signatures, err = standardSignatures(prefix+"signature", list)
	return c, err
}

func standardSignatures(name, list string) ([]signature, error) {
	if strings.Count(list, " ") >= maxSignatures {
		return nil, fmt.Errorf("%w %s: more than %d signatures", ErrMalformedHeader, name, maxSignatures)
	}
	var signatures []signature
	for entry := range strings.SplitSeq(list, " ") {
		version, encoded, ok := strings.Cut(entry, ",")
		if !ok || (version != "v1" && version != "v1a") {
			continue
		}
		raw, err := base64.StdEncoding.Strict().DecodeString(encoded)
		if err != nil || len(raw) == 0 {
			continue
		}
		signatures = append(signatures, signature{asymmetric: version == "v1a", bytes: raw})
	}
	return signatures, nil
}

func (StandardWebhooks) signsID() bool { return true }

// Stripe is the format of Stripe: "t=timestamp,v1=hex[,v1=hex]" over "timestamp.body".
// The key is the whole text of the secret, a whsec_ prefix included.
type Stripe struct {
	// Header is the header's name. Empty means "Stripe-Signature".
	Header string
}

func (Stripe) key(secret string) (key, error) { return textKey(secret) }

func (s Stripe) claim(h http.Header) (claim, error) {
	name := orDefault(s.Header, "Stripe-Signature")
	list, err := single(h, name)
	if err != nil {
		return claim{}, err
	}
	if strings.Count(list, ",") > maxSignatures {
		return claim{}, fmt.Errorf("%w %s: more than %d signatures", ErrMalformedHeader, name, maxSignatures)
	}
	var c claim
	var ts string
	for pair := range strings.SplitSeq(list, ",") {
		k, value, ok := strings.Cut(pair, "=")
		switch {
		case ok && k == "t" && ts != "":
			return claim{}, fmt.Errorf("%w %s: two timestamps", ErrMalformedHeader, name)
		case ok && k == "t":
			ts = value
		case ok && k == "v1":
			c.addHex(value)
		}
	}
	if c.timestamp, err = parseTimestamp(name, ts); err != nil {
		return claim{}, err
	}
	c.lead = []byte(ts + ".")
	return c, nil
}

func (Stripe) signsID() bool { return false }

// GitHub is the format of GitHub: "sha256=hex" over the body. It has no timestamp, so
// only [Config.Dedupe] keeps a recorded request from being sent again.
type GitHub struct {
	// Header is the header's name. Empty means "X-Hub-Signature-256".
	Header string
}

func (GitHub) key(secret string) (key, error) { return textKey(secret) }

func (s GitHub) claim(h http.Header) (claim, error) {
	value, err := single(h, orDefault(s.Header, "X-Hub-Signature-256"))
	if err != nil {
		return claim{}, err
	}
	var c claim
	if encoded, ok := strings.CutPrefix(value, "sha256="); ok {
		c.addHex(encoded)
	}
	return c, nil
}

func (GitHub) signsID() bool { return false }

// Shopify is the format of Shopify: base64 over the body. It has no timestamp, so only
// [Config.Dedupe] keeps a recorded request from being sent again.
type Shopify struct {
	// Header is the header's name. Empty means "X-Shopify-Hmac-SHA256".
	Header string
}

func (Shopify) key(secret string) (key, error) { return textKey(secret) }

func (s Shopify) claim(h http.Header) (claim, error) {
	value, err := single(h, orDefault(s.Header, "X-Shopify-Hmac-SHA256"))
	if err != nil {
		return claim{}, err
	}
	var c claim
	if raw, err := base64.StdEncoding.Strict().DecodeString(value); err == nil {
		c.signatures = append(c.signatures, signature{bytes: raw})
	}
	return c, nil
}

func (Shopify) signsID() bool { return false }

// Slack is the format of Slack: "v0=hex" over "v0:timestamp:body".
type Slack struct {
	// Header is the signature header's name. Empty means "X-Slack-Signature".
	Header string
	// TimestampHeader is the timestamp header's name. Empty means
	// "X-Slack-Request-Timestamp".
	TimestampHeader string
}

func (Slack) key(secret string) (key, error) { return textKey(secret) }

func (s Slack) claim(h http.Header) (claim, error) {
	tsName := orDefault(s.TimestampHeader, "X-Slack-Request-Timestamp")
	ts, err := single(h, tsName)
	if err != nil {
		return claim{}, err
	}
	value, err := single(h, orDefault(s.Header, "X-Slack-Signature"))
	if err != nil {
		return claim{}, err
	}
	c := claim{lead: []byte("v0:" + ts + ":")}
	if c.timestamp, err = parseTimestamp(tsName, ts); err != nil {
		return claim{}, err
	}
	if encoded, ok := strings.CutPrefix(value, "v0="); ok {
		c.addHex(encoded)
	}
	return c, nil
}

func (Slack) signsID() bool { return false }

// addHex passes over what is not hexadecimal: it fits no key.
func (c *claim) addHex(encoded string) {
	if raw, err := hex.DecodeString(encoded); err == nil && len(raw) > 0 {
		c.signatures = append(c.signatures, signature{bytes: raw})
	}
}

// textKey takes a secret as it is, but not what an editor or a shell added to it.
func textKey(secret string) (key, error) {
	if secret == "" {
		return key{}, errors.New("empty")
	}
	if strings.TrimSpace(secret) != secret {
		return key{}, errors.New("begins or ends with white space")
	}
	return key{mac: []byte(secret)}, nil
}

func orDefault(name, fallback string) string {
	if name == "" {
		return fallback
	}
	return name
}
