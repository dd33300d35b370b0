package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
)

// RequestCopy is the request of an attempt, put together again from the log: what the
// receiver got, so that a signature that it refuses can be checked by hand.
type RequestCopy struct {
	Method string
	// URL is the endpoint's present one: the log keeps none.
	URL string
	// Header is what was sent but for what an [Authenticator] added. The values of the
	// endpoint's own headers, which are the present ones, are replaced by "…".
	Header http.Header
	// Body is the event's payload, in an envelope if the endpoint has its payloads in one
	// now. [Config.Redaction] may leave some of the payload out. Do not change it.
	Body []byte
	// Signed is false where no secret that was in use then is stored any more. The
	// signature is then missing; where only some of them are gone, so are theirs.
	Signed bool
}

// Format leaves the query of the URL, the header and the body out of whatever prints the copy.
func (r RequestCopy) Format(f fmt.State, _ rune) { write(f, r) }

// LogValue leaves the URL, the header and the body out, for log/slog.
func (r RequestCopy) LogValue() slog.Value {
	return slog.GroupValue(slog.String("method", r.Method), slog.Int("headers", len(r.Header)), slog.Int("body_bytes", len(r.Body)), slog.Bool("signed", r.Signed))
}

// Request puts the request of an attempt together again. An attempt whose endpoint is
// deleted gives ErrNotFound, and one whose event is no longer stored ErrEventGone, but
// for tests, which have none; a payload that cannot be read from the [PayloadStore]
// gives ErrPayloadMissing, ErrPayloadDamaged or ErrPayloadUnreachable.
func (s *Deliveries) Request(ctx context.Context, scope Scope, a Attempt) (RequestCopy, error) {
	d, err := s.Get(ctx, scope, a.DeliveryID)
	if err != nil {
		return RequestCopy{}, err
	}
	event, err := s.eventOf(ctx, scope, &d)
	if err != nil {
		return RequestCopy{}, fmt.Errorf("get event %s: %w", d.EventID, err)
	}
	if event.Payload, err = s.core.payloads.read(ctx, &event.EventRecord); err != nil {
		return RequestCopy{}, fmt.Errorf("get event %s: %w", d.EventID, err)
	}
	rec, err := s.core.backend.GetEndpoint(ctx, scope, d.EndpointID)
	if err != nil {
		return RequestCopy{}, fmt.Errorf("get endpoint %s: %w", d.EndpointID, err)
	}
	if err := keepSecretsOf(&rec, a); err != nil {
		return RequestCopy{}, err
	}
	t := newTarget(rec)
	secrets, own, err := t.open(ctx, s.core, a.StartedAt)
	if err != nil {
		return RequestCopy{}, fmt.Errorf("open the secrets of endpoint %s: %w", rec.ID, err)
	}
	parts := requestParts{secrets: secrets, own: make(map[string]string, len(own.headers))}
	for name := range own.headers {
		parts.own[name] = "…"
	}
	claimed := &Claimed{DeliveryID: d.ID, EndpointID: d.EndpointID, Event: event.EventRecord, Run: d.Run, Attempts: a.Number - 1, OrderingSkipped: d.OrderingSkipped}
	if parts.body, parts.contentType, err = bodyOf(t, claimed); err != nil {
		return RequestCopy{}, err
	}
	r := RequestCopy{Method: http.MethodPost, URL: rec.URL, Body: parts.body, Signed: true}
	r.Header, err = s.core.requestHeader(ctx, t, claimed, a.StartedAt, parts)
	if errors.Is(err, ErrNoSigningSecret) {
		r.Signed = false
		r.Header, err = s.core.unsignedHeader(t, claimed, parts), nil
	}
	if err != nil {
		return RequestCopy{}, err
	}
	r.Body = s.core.shownBody(t, claimed, parts.body)
	return r, nil
}

// shownBody is a body with no more of the payload than the host wants shown.
func (c *core) shownBody(t *target, claimed *Claimed, body []byte) []byte {
	if c.redaction.Payload == nil {
		return body
	}
	event := EventStatus{EventRecord: claimed.Event}
	c.redactPayload(&event)
	shown := *claimed
	shown.Event = event.EventRecord
	body, _, err := bodyOf(t, &shown)
	if err != nil { // what is left fits into no envelope
		return event.Payload
	}
	return body
}

// eventOf is the event of a delivery, or ErrEventGone.
func (s *Deliveries) eventOf(ctx context.Context, scope Scope, d *Delivery) (EventStatus, error) {
	if d.Run == TestRun {
		return EventStatus{EventRecord: testEvent(d.EventID, d.Tenant, d.EventType, d.CreatedAt)}, nil
	}
	event, err := s.core.backend.GetEvent(ctx, scope, d.EventID)
	if errors.Is(err, ErrNotFound) {
		err = ErrEventGone
	}
	return event, err
}

// keepSecretsOf leaves a record those secrets that there were at the time of an attempt.
func keepSecretsOf(rec *EndpointRecord, a Attempt) error {
	sealed, err := secretsOf(rec)
	if err != nil {
		return err
	}
	kept := sealed[:0]
	for _, secret := range sealed {
		if !secret.CreatedAt.After(a.StartedAt) {
			kept = append(kept, secret)
		}
	}
	return putSecrets(rec, kept)
}
