package webhook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/outhook/webhook/internal/egress"
)

// userAgent names the library to receivers.
const userAgent = "outhook-webhook (+https://github.com/outhook/webhook)"

// Names of the headers that do not depend on the signer, in canonical form, so
// that they can be put into an http.Header directly.
const (
	headerContentType    = "Content-Type"
	headerUserAgent      = "User-Agent"
	headerIdempotencyKey = "Idempotency-Key"
	headerAttempt        = "Webhook-Attempt"
	headerReplay         = "Webhook-Replay"
	headerTest           = "Webhook-Test"
	headerSkipped        = "Webhook-Ordering-Skipped"
)

// mediaJSON is the media type of payloads and envelopes.
const mediaJSON = "application/json"

// buildRequest makes the request of one attempt: the stored bytes, bare or in an
// envelope, the fixed headers, the endpoint's own, authorisation and the signatures, of
// which the later win.
func (c *core) buildRequest(ctx context.Context, t *target, d *Claimed, now time.Time, timeout time.Duration) (egress.Request, error) {
	secrets, own, err := t.open(ctx, c, now)
	if err != nil {
		return egress.Request{}, err
	}
	parts := requestParts{secrets: secrets, own: own.headers, auth: c.auth}
	if parts.body, parts.contentType, err = bodyOf(t, d); err != nil {
		return egress.Request{}, err
	}
	h, err := c.requestHeader(ctx, t, d, now, parts)
	if err != nil {
		return egress.Request{}, err
	}
	return egress.Request{URL: t.record.URL, Header: h, Body: parts.body, Timeout: timeout, TLS: own.tls, NoResend: t.options.AtMostOnce, KeepSuccessBody: c.keepSuccess}, nil
}

// requestParts are what a request is made from besides the delivery.
type requestParts struct {
	body        []byte
	contentType string
	secrets     []Secret
	own         map[string]string // the endpoint's own headers
	auth        Authenticator     // nil for none
}

func (c *core) requestHeader(ctx context.Context, t *target, d *Claimed, now time.Time, p requestParts) (http.Header, error) {
	h := c.unsignedHeader(t, d, p)
	if p.auth != nil {
		if err := p.auth.Authenticate(ctx, h, t.authInput()); err != nil {
			return nil, fmt.Errorf("authenticate: %w", err)
		}
	}
	in := SignInput{
		EndpointID: d.EndpointID, Tenant: d.Event.Tenant,
		ID: d.Event.ID.String(), Time: now, Body: p.body, Secrets: p.secrets,
	}
	if err := c.signer.Sign(ctx, h, in); err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return h, nil
}

// unsignedHeader is what a request has before it is authorised and signed.
func (*core) unsignedHeader(t *target, d *Claimed, p requestParts) http.Header {
	h := make(http.Header, 8+len(p.own))
	for name, value := range p.own {
		h.Set(name, value)
	}
	event := d.Event.ID.String()
	// One backing array for the single-valued headers.
	values := []string{p.contentType, userAgent, idempotencyKey(event, t.id), strconv.Itoa(d.Attempts + 1)}
	h[headerContentType] = values[0:1:1]
	h[headerUserAgent] = values[1:2:2]
	h[headerIdempotencyKey] = values[2:3:3]
	h[headerAttempt] = values[3:4:4]
	switch {
	case d.Run > 0:
		h[headerReplay] = []string{"true"}
	case d.Run == TestRun:
		h[headerTest] = []string{"true"}
	}
	if d.OrderingSkipped {
		h[headerSkipped] = []string{"true"}
	}
	return h
}

func (t *target) authInput() AuthInput {
	return AuthInput{EndpointID: t.record.ID, Tenant: t.record.Tenant, URL: t.record.URL}
}

// idempotencyKey is the same for every attempt and replay of an event to an
// endpoint: the hex SHA-256 of "event id|endpoint id" (docs/design.md §4).
func idempotencyKey(event, endpoint string) string {
	var text [36 + 1 + 36]byte
	b := append(text[:0], event...)
	b = append(b, '|')
	b = append(b, endpoint...)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// attemptOf makes the log entry of one request.
func (c *core) attemptOf(d *Claimed, started time.Time, res *egress.Result) *Attempt {
	a := &Attempt{
		DeliveryID: d.DeliveryID,
		EventID:    d.Event.ID,
		EndpointID: d.EndpointID,
		Tenant:     d.Event.Tenant,
		Number:     d.Attempts + 1,
		StartedAt:  started,
		Latency:    res.Latency,
		Status:     res.Status,
		Class:      ErrorClass(res.Class),
		Error:      egress.Detail(res.Err),
		Location:   res.Location,
		Excerpt:    res.Excerpt,
		Truncated:  res.Truncated,
		BodyHash:   res.BodyHash,
	}
	c.redactExcerpt(a)
	return a
}
