package webhook

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// ErrInvalidKey is wrapped by every error about a malformed key or keyring.
var ErrInvalidKey = errors.New("webhook: invalid key")

// maxKeyIDBytes fits the envelope's length byte with room for a date and a name.
const maxKeyIDBytes = 64

// Key is an AES-256 key that seals endpoint secrets at rest. Keep it where the
// database's backups are not. It formats as its ID only; [Key.Reveal] gives the text
// that [ParseKey] reads.
type Key struct {
	// ID is stored with everything that the key seals: 1 to 64 of the characters
	// A-Z a-z 0-9 . _ -, never reused for other bytes.
	ID string
	// Bytes is the key: random, never a passphrase.
	Bytes [32]byte
}

// NewKey makes a random key. The id is checked by [Keyring.Validate].
func NewKey(id string) Key {
	k := Key{ID: id}
	rand.Read(k.Bytes[:]) // never fails: it ends the process instead
	return k
}

// ParseKey reads "id:base64", where the base64 is standard, padded, and of exactly
// 32 bytes: "openssl rand -base64 32" makes one. Errors wrap [ErrInvalidKey] and do not
// contain the key.
func ParseKey(s string) (Key, error) {
	if s == "" {
		return Key{}, fmt.Errorf("%w: it is empty, want id:base64", ErrInvalidKey)
	}
	id, encoded, ok := strings.Cut(s, ":")
	if !ok {
		return Key{}, fmt.Errorf("%w: want id:base64", ErrInvalidKey)
	}
	if err := checkKeyID(id); err != nil {
		return Key{}, err
	}
	if strings.ContainsAny(encoded, "\r\n") {
		return Key{}, fmt.Errorf("%w %q: line break", ErrInvalidKey, id)
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return Key{}, fmt.Errorf("%w %q: not padded standard base64", ErrInvalidKey, id)
	}
	k := Key{ID: id}
	if len(raw) != len(k.Bytes) {
		return Key{}, fmt.Errorf("%w %q: %d bytes, want %d", ErrInvalidKey, id, len(raw), len(k.Bytes))
	}
	copy(k.Bytes[:], raw)
	if k.Bytes == [32]byte{} {
		return Key{}, fmt.Errorf("%w %q: all zero", ErrInvalidKey, id)
	}
	return k, nil
}

// Reveal returns the key as "id:base64", to be put into a secret store.
func (k Key) Reveal() string {
	return k.ID + ":" + base64.StdEncoding.EncodeToString(k.Bytes[:])
}

// String returns the id and "[redacted]".
func (k Key) String() string { return k.ID + ":" + redacted }

// GoString redacts, for %#v.
func (k Key) GoString() string { return "webhook.Key(" + k.String() + ")" }

// Format redacts for every verb and flag of fmt.
func (k Key) Format(f fmt.State, _ rune) { io.WriteString(f, k.String()) }

// LogValue redacts, for log/slog.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// MarshalText redacts, also for encoding/json.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Keyring is the [SecretBox] that ships: AES-256-GCM from the standard library with a
// random nonce, under keys that have ids. The first key seals, every key opens, so
// that keys are rotated by putting a new one in front, running Reencrypt, and then
// dropping the old one. Nothing is sealed in another way by mistake: problems with
// the keys are kept until [Keyring.Validate], which [New] calls, and until then
// Seal and Open refuse. A key must not seal more than 2^32 secrets.
//
// A Keyring is immutable and safe for concurrent use.
type Keyring struct {
	primary string
	size    int
	find    func(id string) cipher.AEAD // not a map, because fmt would print the keys in it
	err     error
}

// NewKeyring makes a keyring that seals with primary and also opens what the older
// keys sealed.
func NewKeyring(primary Key, older ...Key) *Keyring {
	aeads := make(map[string]cipher.AEAD, 1+len(older))
	seen := make(map[[32]byte]string, 1+len(older))
	var err error
	for _, k := range append([]Key{primary}, older...) {
		err = errors.Join(err, addKey(aeads, seen, k))
	}
	return &Keyring{
		primary: primary.ID, size: len(aeads), err: err,
		find: func(id string) cipher.AEAD { return aeads[id] },
	}
}

func addKey(aeads map[string]cipher.AEAD, seen map[[32]byte]string, k Key) error {
	if err := checkKeyID(k.ID); err != nil {
		return err
	}
	if k.Bytes == [32]byte{} {
		return fmt.Errorf("%w %q: all zero", ErrInvalidKey, k.ID)
	}
	if _, ok := aeads[k.ID]; ok {
		return fmt.Errorf("%w %q: its id is there twice", ErrInvalidKey, k.ID)
	}
	if id, ok := seen[k.Bytes]; ok {
		return fmt.Errorf("%w %q: same bytes as key %q", ErrInvalidKey, k.ID, id)
	}
	block, err := aes.NewCipher(k.Bytes[:])
	if err != nil {
		return fmt.Errorf("%w %q: %w", ErrInvalidKey, k.ID, err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return fmt.Errorf("%w %q: %w", ErrInvalidKey, k.ID, err)
	}
	seen[k.Bytes] = k.ID
	aeads[k.ID] = aead
	return nil
}

func checkKeyID(id string) error {
	if id == "" || len(id) > maxKeyIDBytes {
		return fmt.Errorf("%w: id of %d bytes, want 1 to %d", ErrInvalidKey, len(id), maxKeyIDBytes)
	}
	for i := range len(id) {
		if !isKeyIDByte(id[i]) {
			// The id is not echoed: a key given without one would be taken for it.
			return fmt.Errorf("%w: id has a character other than A-Z a-z 0-9 . _ -", ErrInvalidKey)
		}
	}
	return nil
}

func isKeyIDByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '.' || c == '_' || c == '-'
}

// Validate reports every problem of the keys, as errors that wrap [ErrInvalidKey].
func (r *Keyring) Validate() error {
	if r == nil {
		return fmt.Errorf("%w: nil keyring", ErrInvalidKey)
	}
	if r.find == nil {
		return fmt.Errorf("%w: a keyring without keys, NewKeyring makes one", ErrInvalidKey)
	}
	return r.err
}

// The envelope of a sealed secret:
//
//	"v1" | length of key id, 1 byte | key id | nonce, 12 bytes | ciphertext | tag, 16 bytes
//
// What stands before the nonce is authenticated together with the associated data.
const envelopeVersion = "v1"

// Seal seals plaintext under the first key.
func (r *Keyring) Seal(_ context.Context, plaintext, associated []byte) ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	aead := r.find(r.primary)
	header := make([]byte, 0, len(envelopeVersion)+1+len(r.primary)+len(plaintext)+aead.Overhead())
	header = append(header, envelopeVersion...)
	header = append(header, byte(len(r.primary)))
	header = append(header, r.primary...)
	return aead.Seal(header, nil, plaintext, envelopeAAD(header, associated)), nil
}

// Open opens what any of the keys sealed with the same associated data. Its errors are
// [*SecretUnreadableError], but for a keyring that is invalid itself.
func (r *Keyring) Open(_ context.Context, sealed, associated []byte) ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	header, id, ok := parseEnvelope(sealed)
	if !ok {
		return nil, &SecretUnreadableError{Err: errors.New("not sealed by a keyring, or damaged")}
	}
	aead := r.find(id)
	if aead == nil {
		return nil, &SecretUnreadableError{KeyID: id, UnknownKey: true, Err: errors.New("not in the keyring")}
	}
	plaintext, err := aead.Open(nil, nil, sealed[len(header):], envelopeAAD(header, associated))
	if err != nil {
		return nil, &SecretUnreadableError{KeyID: id, Err: errors.New("damaged, or moved from another endpoint")}
	}
	return plaintext, nil
}

// NeedsReseal reports whether sealed was sealed by another key than the first one, or
// cannot be read at all: what Reencrypt has to look at.
func (r *Keyring) NeedsReseal(sealed []byte) bool {
	_, id, ok := parseEnvelope(sealed)
	return !ok || r == nil || id != r.primary
}

// String tells the number of keys and the id of the sealing one.
func (r *Keyring) String() string {
	if r.Validate() != nil {
		return "webhook.Keyring(invalid)" // an id that is no id may be a key
	}
	return fmt.Sprintf("webhook.Keyring(%d keys, sealing with %q)", r.size, r.primary)
}

// GoString redacts, for %#v.
func (r *Keyring) GoString() string { return r.String() }

// Format redacts for every verb and flag of fmt.
func (r *Keyring) Format(f fmt.State, _ rune) { io.WriteString(f, r.String()) }

// LogValue redacts, for log/slog.
func (r *Keyring) LogValue() slog.Value { return slog.StringValue(r.String()) }

// parseEnvelope returns what stands before the nonce and the key id in it.
func parseEnvelope(sealed []byte) (header []byte, id string, ok bool) {
	const fixed = len(envelopeVersion) + 1
	if len(sealed) < fixed || string(sealed[:len(envelopeVersion)]) != envelopeVersion {
		return nil, "", false
	}
	end := fixed + int(sealed[fixed-1])
	if len(sealed) < end {
		return nil, "", false
	}
	id = string(sealed[fixed:end])
	if checkKeyID(id) != nil {
		return nil, "", false
	}
	return sealed[:end:end], id, true
}

// envelopeAAD needs no length between its parts: the header holds its own.
func envelopeAAD(header, associated []byte) []byte {
	aad := make([]byte, 0, len(header)+len(associated))
	aad = append(aad, header...)
	return append(aad, associated...)
}

// plaintextTag keeps what [InsecurePlaintext] wrote apart from everything sealed, so
// that neither box takes the other's bytes for its own.
const plaintextTag = "plain1|"

// InsecurePlaintext is the [SecretBox] that seals nothing: whoever reads the database or
// a backup of it can sign in the place of this service. It exists for tests and
// demonstrations, and so that plaintext is something that was asked for by name.
func InsecurePlaintext() SecretBox { return insecurePlaintext{} }

type insecurePlaintext struct{}

func (insecurePlaintext) Seal(_ context.Context, plaintext, _ []byte) ([]byte, error) {
	return append([]byte(plaintextTag), plaintext...), nil
}

func (insecurePlaintext) Open(_ context.Context, sealed, _ []byte) ([]byte, error) {
	if len(sealed) < len(plaintextTag) || string(sealed[:len(plaintextTag)]) != plaintextTag {
		return nil, &SecretUnreadableError{Err: errors.New("sealed, but no keyring is configured")}
	}
	return append([]byte(nil), sealed[len(plaintextTag):]...), nil
}

func (insecurePlaintext) NeedsReseal([]byte) bool { return false }
