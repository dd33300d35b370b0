package webhook

import (
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
)

// ErrNoSigningSecret is returned by a [Signer] that got no secret which its format can
// use. The attempt is not sent.
var ErrNoSigningSecret = errors.New("webhook: no secret to sign with")

// Signer adds the headers that prove where a request comes from and that its body is
// the one that was sent. It is called for each attempt, with that attempt's time, so
// that a retry has the same id and a fresh signature. An error keeps the attempt from
// being sent: there is no unsigned request.
//
// A Signer sets headers in h and touches nothing else. It must be safe for concurrent
// use and must not keep in.Body or in.Secrets. [StandardWebhooks] is the default;
// [CombineSigners] lets a receiver move from one format to another.
type Signer interface {
	Sign(ctx context.Context, h http.Header, in SignInput) error
}

// SignerFunc is a function that is a [Signer]: one that picks a format by the endpoint,
// for instance. Custom headers that it sets are not known to be reserved.
type SignerFunc func(ctx context.Context, h http.Header, in SignInput) error

// Sign calls f.
func (f SignerFunc) Sign(ctx context.Context, h http.Header, in SignInput) error {
	return f(ctx, h, in)
}

// SignInput is what one attempt's signature is made from.
type SignInput struct {
	// EndpointID and Tenant say whom the attempt goes to. They are not part of what
	// the formats that ship sign.
	EndpointID uuid.UUID
	Tenant     string
	// ID is the event id, the same for every attempt. It holds no full stop, which
	// separates the parts of the signed content, and no control character.
	ID string
	// Time is the attempt's time. Formats carry it in whole seconds.
	Time time.Time
	// Body is the request body, byte for byte.
	Body []byte
	// Secrets are the endpoint's active secrets, the current one first and then those
	// whose rotation overlap has not ended.
	Secrets []Secret
}

// Format leaves the payload out of whatever prints the input.
func (in SignInput) Format(f fmt.State, _ rune) { io.WriteString(f, in.LogValue().String()) }

// LogValue leaves the payload out, for log/slog.
func (in SignInput) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("id", in.ID),
		slog.String("endpoint", in.EndpointID.String()),
		slog.String("tenant", in.Tenant),
		slog.Time("time", in.Time),
		slog.Int("body_bytes", len(in.Body)),
		slog.Int("secrets", len(in.Secrets)),
	)
}

// checkID guards the signed content. Enqueue refuses such ids long before.
func (in SignInput) checkID() error {
	if in.ID == "" {
		return errors.New("webhook: cannot sign: event id is empty")
	}
	for i := range len(in.ID) {
		if c := in.ID[i]; c <= ' ' || c == '.' || c >= 0x7f {
			return errors.New("webhook: cannot sign: event id has a full stop, a space or an unprintable character")
		}
	}
	return nil
}

// StandardWebhooksConfig configures [StandardWebhooksWith].
type StandardWebhooksConfig struct {
	// Prefix begins the three header names. Empty means "webhook-", the prefix of the
	// specification; receivers written for Svix also take "svix-".
	Prefix string
}

// StandardWebhooks signs as Standard Webhooks 1.0 says, in the headers webhook-id,
// webhook-timestamp and webhook-signature. The signed content is "id.timestamp.body".
// The signature header has one entry per active secret, the current one first: "v1,"
// and the base64 HMAC-SHA256 for a whsec_ secret, "v1a," and the base64 ed25519
// signature for a whsk_ one. Text secrets are passed over.
func StandardWebhooks() Signer { return StandardWebhooksWith(StandardWebhooksConfig{}) }

// StandardWebhooksWith is [StandardWebhooks] with other header names.
func StandardWebhooksWith(c StandardWebhooksConfig) Signer {
	if c.Prefix == "" {
		c.Prefix = "webhook-"
	}
	return &standardSigner{
		id:        http.CanonicalHeaderKey(c.Prefix + "id"),
		timestamp: http.CanonicalHeaderKey(c.Prefix + "timestamp"),
		signature: http.CanonicalHeaderKey(c.Prefix + "signature"),
	}
}

// standardSigner holds canonical header names.
type standardSigner struct{ id, timestamp, signature string }

func (s *standardSigner) Sign(_ context.Context, h http.Header, in SignInput) error {
	if err := in.checkID(); err != nil {
		return err
	}
	var tsBuf [20]byte
	ts := strconv.AppendInt(tsBuf[:0], in.Time.Unix(), 10)

	scratch := getScratch()
	defer scratch.release()

	for _, secret := range in.Secrets {
		scratch.appendStandard(secret, in.ID, ts, in.Body)
	}
	if len(scratch.header) == 0 {
		return fmt.Errorf("%w in the Standard Webhooks format", ErrNoSigningSecret)
	}
	// One backing array; the capacities keep an append to one from reaching the next.
	values := [3]string{in.ID, string(ts), string(scratch.header)}
	h[s.id] = values[0:1:1]
	h[s.timestamp] = values[1:2:2]
	h[s.signature] = values[2:3:3]
	return nil
}

// Validate reports header names that HTTP does not allow.
func (s *standardSigner) Validate() error { return checkHeaderNames(s.headerNames()...) }

func (s *standardSigner) headerNames() []string { return []string{s.id, s.timestamp, s.signature} }

// signScratch is the memory of one Sign call. Bodies above maxScratch are not kept.
type signScratch struct {
	header  []byte // the signature header so far
	message []byte // ed25519 signs a contiguous message
	lead    []byte // what an HMAC takes before the body
	sum     [sha256.Size]byte
}

const maxScratch = 512 << 10

var scratchPool = sync.Pool{New: func() any { return &signScratch{header: make([]byte, 0, 256)} }}

func getScratch() *signScratch { return scratchPool.Get().(*signScratch) }

func (s *signScratch) release() {
	if cap(s.message) > maxScratch {
		s.message = nil
	}
	s.header = s.header[:0]
	scratchPool.Put(s)
}

// appendStandard adds the header entry of one secret, if the format has one for it.
func (s *signScratch) appendStandard(secret Secret, id string, ts, body []byte) {
	m := secret.material()
	if m == nil || m.kind == secretText {
		return
	}
	if len(s.header) > 0 {
		s.header = append(s.header, ' ')
	}
	s.lead = append(s.lead[:0], id...)
	s.lead = append(s.lead, '.')
	s.lead = append(s.lead, ts...)
	s.lead = append(s.lead, '.')
	if m.kind == secretEd25519 {
		s.message = append(append(s.message[:0], s.lead...), body...)
		s.header = append(s.header, "v1a,"...)
		s.header = base64.StdEncoding.AppendEncode(s.header, ed25519.Sign(m.private, s.message))
		return
	}
	s.header = append(s.header, "v1,"...)
	s.header = base64.StdEncoding.AppendEncode(s.header, s.mac(m.key, body))
}

// mac returns HMAC-SHA256 over lead and body, valid until the next call.
func (s *signScratch) mac(key, body []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(s.lead)
	h.Write(body)
	return h.Sum(s.sum[:0])
}
