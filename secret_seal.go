package webhook

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// SecretBox seals secrets before they are stored and opens them before they are used.
// [Keyring] is the one that ships; a key management service fits it, with
// [CachedSecretBox] around it. Implementations must be safe for concurrent use.
//
// associated is not secret and not stored by the box: Open must fail unless it gets
// the bytes that Seal got. It names the tenant, endpoint and secret, so that a row
// which was moved to another endpoint does not open there. A service without such
// a notion can seal associated together with the plaintext and compare it in Open.
//
// Whatever error Open gives, the deliveries that need the secret wait: nothing is
// ever sent unsigned.
type SecretBox interface {
	// Seal returns plaintext sealed. It must not keep or change its arguments.
	Seal(ctx context.Context, plaintext, associated []byte) ([]byte, error)
	// Open returns what Seal got. Its result belongs to the caller.
	Open(ctx context.Context, sealed, associated []byte) ([]byte, error)
}

// ErrSecretUnreadable is what every failure to open a stored secret matches, through
// errors.Is: an unknown key, a damaged or moved ciphertext, a key management service
// that does not answer. It holds the delivery and is never charged to the endpoint.
var ErrSecretUnreadable = errors.New("webhook: secret is unreadable")

// SecretUnreadableError says why a stored secret cannot be opened. It matches
// [ErrSecretUnreadable].
type SecretUnreadableError struct {
	// Err is the cause.
	Err error
	// KeyID is the id of the [Key] that sealed the secret, "" where it is not known.
	KeyID string
	// UnknownKey is true if the keyring has no key of that id: add it again, as an
	// older key, and waiting deliveries proceed.
	UnknownKey bool
}

// Error names the cause and the key id, nothing of the secret.
func (e *SecretUnreadableError) Error() string {
	msg := ErrSecretUnreadable.Error()
	if e.KeyID != "" {
		msg = fmt.Sprintf("%s: key %q", msg, e.KeyID)
	}
	if e.Err != nil {
		msg += ": " + e.Err.Error()
	}
	return msg
}

// Is makes errors.Is(err, ErrSecretUnreadable) true.
func (e *SecretUnreadableError) Is(target error) bool { return target == ErrSecretUnreadable }

// Unwrap returns the cause.
func (e *SecretUnreadableError) Unwrap() error { return e.Err }

// secretAAD is the associated data of a stored secret. Each part has its length in
// front, so that no two different triples give the same bytes.
func secretAAD(tenant string, endpoint, secret uuid.UUID) []byte {
	const domain = "whk/v1"
	aad := make([]byte, 0, len(domain)+3*binary.MaxVarintLen32+len(tenant)+2*len(uuid.UUID{}))
	aad = append(aad, domain...)
	aad = binary.AppendUvarint(aad, uint64(len(tenant)))
	aad = append(aad, tenant...)
	aad = binary.AppendUvarint(aad, uint64(len(endpoint)))
	aad = append(aad, endpoint[:]...)
	aad = binary.AppendUvarint(aad, uint64(len(secret)))
	return append(aad, secret[:]...)
}

// textSecretTag marks a free-text secret among the sealed plaintexts. No serialised
// key can begin with it: a colon is not in the base64 alphabet.
const textSecretTag = "text:"

// sealSecret gives the bytes to store for s.
func sealSecret(ctx context.Context, box SecretBox, s Secret, associated []byte) ([]byte, error) {
	if s.IsZero() {
		return nil, fmt.Errorf("%w: empty", ErrInvalidSecret)
	}
	m := s.material()
	plaintext := m.text
	if m.kind == secretText {
		plaintext = textSecretTag + plaintext
	}
	sealed, err := box.Seal(ctx, []byte(plaintext), associated)
	if err != nil {
		return nil, fmt.Errorf("webhook: seal secret: %w", err)
	}
	return sealed, nil
}

// openSecret reverses sealSecret. Each of its errors matches ErrSecretUnreadable.
func openSecret(ctx context.Context, box SecretBox, sealed, associated []byte) (Secret, error) {
	plaintext, err := box.Open(ctx, sealed, associated)
	if err != nil {
		return Secret{}, unreadable(err)
	}
	if text, ok := strings.CutPrefix(string(plaintext), textSecretTag); ok {
		s, err := ParseTextSecret(text)
		return s, unreadable(err)
	}
	s, err := ParseSecret(string(plaintext))
	return s, unreadable(err)
}

// resealSecret moves a sealed secret to the key that seals now. The boxes may be the
// same. Its errors from opening match ErrSecretUnreadable.
func resealSecret(ctx context.Context, from, to SecretBox, sealed, associated []byte) ([]byte, error) {
	s, err := openSecret(ctx, from, sealed, associated)
	if err != nil {
		return nil, err
	}
	return sealSecret(ctx, to, s, associated)
}

// needsReseal reports whether Reencrypt has to touch a stored secret. A box that
// cannot tell gets all of them.
func needsReseal(box SecretBox, sealed []byte) bool {
	teller, ok := box.(interface{ NeedsReseal(sealed []byte) bool })
	return !ok || teller.NeedsReseal(sealed)
}

func unreadable(err error) error {
	if err == nil || errors.Is(err, ErrSecretUnreadable) {
		return err
	}
	return &SecretUnreadableError{Err: err}
}

// validateSecretBox reports what is wrong with a box that can tell.
func validateSecretBox(box SecretBox) error {
	if v, ok := box.(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}
