package verify

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"
)

// Why a request is refused. Errors of this package match one of these with errors.Is and
// hold nothing of a secret or a body.
var (
	// ErrInvalidSecret refuses a secret that the scheme cannot use.
	ErrInvalidSecret = errors.New("verify: invalid secret")
	// ErrMissingHeader is a request without one of the scheme's headers.
	ErrMissingHeader = errors.New("verify: missing header")
	// ErrMalformedHeader is a header that is there twice, or is not what it should be.
	ErrMalformedHeader = errors.New("verify: malformed header")
	// ErrTooOld is a timestamp before the tolerance: an old request sent again, or a
	// clock that is off.
	ErrTooOld = errors.New("verify: timestamp too old")
	// ErrTooNew is a timestamp after the tolerance.
	ErrTooNew = errors.New("verify: timestamp too far in the future")
	// ErrMismatch is a request of which no signature fits any of the secrets.
	ErrMismatch = errors.New("verify: no signature matches")
	// ErrBodyTooLarge is a body over [Config.MaxBody].
	ErrBodyTooLarge = errors.New("verify: body too large")
	// ErrBodyUnreadable is a body that ended early.
	ErrBodyUnreadable = errors.New("verify: body cannot be read")
	// ErrInProgress is a message that another request is being handled for.
	ErrInProgress = errors.New("verify: message is being handled already")
	// ErrDedupe is a dedupe store that failed.
	ErrDedupe = errors.New("verify: dedupe store failed")
)

// Defaults of a Config. The tolerance is that of the Standard Webhooks libraries; the
// body limit is four times what the sender takes by default.
const (
	defaultTolerance = 5 * time.Minute
	defaultMaxBody   = 1 << 20
)

// Config configures [New].
type Config struct {
	// Dedupe keeps messages that were already handled away from the handler of
	// [Verifier.Middleware]. The zero value does not.
	Dedupe Dedupe

	// Logger gets what the middleware cannot answer: a dedupe store that fails after
	// the handler has answered. Nil means silence.
	Logger *slog.Logger

	// MaxBody is the largest body that is read, in bytes. 0 means 1 MiB; negative is
	// refused.
	MaxBody int64

	// Now is the clock. Nil means time.Now.
	Now func() time.Time

	// OnError answers a refused request. Nil means the statuses in the package
	// documentation with a line of plain text.
	OnError func(w http.ResponseWriter, r *http.Request, err error)

	// Scheme is the format of the signatures. Nil means StandardWebhooks{}.
	Scheme Scheme

	// Secrets are the secrets to accept, at least one. For StandardWebhooks each is
	// "whsec_…", with or without the prefix, or "whpk_…", the public half of a signing
	// key; for the other schemes it is the secret's text as it is.
	Secrets []string

	// Tolerance is how far a timestamp may be from now, either way. 0 means 5 minutes;
	// negative means that it is not looked at, so that old requests can be sent again by
	// whoever recorded them. Schemes without a timestamp have no such check.
	Tolerance time.Duration
}

// Format keeps the secrets out of whatever prints the configuration.
func (c Config) Format(f fmt.State, _ rune) { io.WriteString(f, c.LogValue().String()) }

// LogValue keeps the secrets out of log/slog.
func (c Config) LogValue() slog.Value {
	return slog.StringValue(fmt.Sprintf("verify.Config(%d secrets)", len(c.Secrets)))
}

// Message is a request that was verified.
type Message struct {
	// ID is the same for each attempt at one message. Only StandardWebhooks signs one; it
	// is "" for other schemes unless [Dedupe.MessageID] finds one.
	ID string
	// Timestamp is when the attempt was signed; zero if the scheme has none.
	Timestamp time.Time
	// Body is the raw body, byte for byte as it was signed.
	Body []byte
}

// Verifier verifies requests. It is safe for concurrent use.
type Verifier struct {
	cfg  Config
	keys func() []key // not a slice, because fmt would print it
}

// New checks the configuration: an error names the field, and the secret by its position.
func New(cfg Config) (*Verifier, error) {
	if cfg.Scheme == nil {
		cfg.Scheme = StandardWebhooks{}
	}
	if cfg.Tolerance == 0 {
		cfg.Tolerance = defaultTolerance
	}
	if cfg.MaxBody == 0 {
		cfg.MaxBody = defaultMaxBody
	}
	if cfg.MaxBody < 0 {
		return nil, fmt.Errorf("verify: MaxBody is %d, want 0 or more", cfg.MaxBody)
	}
	cfg.MaxBody = min(cfg.MaxBody, math.MaxInt64-1) // one more must be a number
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.OnError == nil {
		cfg.OnError = answer
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if err := cfg.Dedupe.prepare(cfg.Scheme); err != nil {
		return nil, err
	}
	if len(cfg.Secrets) == 0 {
		return nil, fmt.Errorf("%w: Secrets is empty", ErrInvalidSecret)
	}
	keys := make([]key, 0, len(cfg.Secrets))
	for i, secret := range cfg.Secrets {
		k, err := cfg.Scheme.key(secret)
		if err != nil {
			return nil, fmt.Errorf("%w: Secrets[%d]: %w", ErrInvalidSecret, i, err)
		}
		keys = append(keys, k)
	}
	cfg.Secrets = nil // the keys suffice
	return &Verifier{cfg: cfg, keys: func() []key { return keys }}, nil
}

// Payload verifies a request whose body was already read: body must be its raw bytes,
// before any decoding. Secrets are Standard Webhooks secrets. It suits a program that is
// handed requests in another way than through net/http; otherwise see [Middleware].
func Payload(header http.Header, body []byte, secrets ...string) (Message, error) {
	v, err := New(Config{Secrets: secrets})
	if err != nil {
		return Message{}, err
	}
	return v.Payload(header, body)
}

// Payload verifies a request whose body was already read.
func (v *Verifier) Payload(header http.Header, body []byte) (Message, error) {
	c, err := v.claim(header)
	if err != nil {
		return Message{}, err
	}
	if !v.matches(c, body) {
		return Message{}, ErrMismatch
	}
	return v.message(c, header, body), nil
}

// claim reads the headers and checks what needs no body.
func (v *Verifier) claim(header http.Header) (claim, error) {
	c, err := v.cfg.Scheme.claim(header)
	if err != nil {
		return claim{}, err
	}
	if c.timestamp.IsZero() || v.cfg.Tolerance < 0 {
		return c, nil
	}
	age := v.cfg.Now().Sub(c.timestamp)
	if age > v.cfg.Tolerance {
		return claim{}, ErrTooOld
	}
	if age < -v.cfg.Tolerance {
		return claim{}, ErrTooNew
	}
	return c, nil
}

func (v *Verifier) message(c claim, header http.Header, body []byte) Message {
	m := Message{ID: c.id, Timestamp: c.timestamp, Body: body}
	if v.cfg.Dedupe.MessageID != nil {
		m.ID = v.cfg.Dedupe.MessageID(header, body)
	}
	return m
}

// matches compares every signature with every key that is of its kind.
func (v *Verifier) matches(c claim, body []byte) bool {
	var message []byte // what ed25519 needs in one piece, made once
	for _, k := range v.keys() {
		if k.public == nil {
			if k.matchesMAC(c, body) {
				return true
			}
			continue
		}
		for _, sig := range c.signatures {
			if !sig.asymmetric {
				continue
			}
			if message == nil {
				message = append(append(make([]byte, 0, len(c.lead)+len(body)), c.lead...), body...)
			}
			if ed25519.Verify(k.public, message, sig.bytes) {
				return true
			}
		}
	}
	return false
}

// key is one secret: an HMAC key or a public key.
type key struct {
	mac    []byte
	public ed25519.PublicKey
}

func (k key) matchesMAC(c claim, body []byte) bool {
	var sum []byte
	for _, sig := range c.signatures {
		if sig.asymmetric {
			continue
		}
		if sum == nil {
			h := hmac.New(sha256.New, k.mac)
			h.Write(c.lead)
			h.Write(body)
			sum = h.Sum(nil)
		}
		if hmac.Equal(sig.bytes, sum) {
			return true
		}
	}
	return false
}

// claim is what a request's headers say.
type claim struct {
	id         string
	timestamp  time.Time
	lead       []byte // what is signed before the body
	signatures []signature
}

type signature struct {
	asymmetric bool // ed25519, otherwise HMAC-SHA256
	bytes      []byte
}

// maxSignatures bounds the work that a request can ask for before it is known to be
// genuine. It leaves room for dozens of rotations within one overlap.
const maxSignatures = 64

// single returns the value of a header that must be there exactly once: two values would
// let two readers of one request see different ones.
func single(h http.Header, name string) (string, error) {
	values := h.Values(name)
	if len(values) == 0 || (len(values) == 1 && values[0] == "") {
		return "", fmt.Errorf("%w %s", ErrMissingHeader, name)
	}
	if len(values) > 1 {
		return "", fmt.Errorf("%w %s: there %d times", ErrMalformedHeader, name, len(values))
	}
	return values[0], nil
}

// parseTimestamp takes unix seconds in decimal digits and nothing else. Twelve digits
// reach the year 33658.
func parseTimestamp(name, s string) (time.Time, error) {
	if s == "" || len(s) > 12 {
		return time.Time{}, fmt.Errorf("%w %s: not a timestamp in seconds", ErrMalformedHeader, name)
	}
	seconds, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w %s: not a timestamp in seconds", ErrMalformedHeader, name)
	}
	return time.Unix(int64(seconds), 0), nil
}
