package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/outhook/webhook"
)

// field is a field of a body that may be left out. In an update a field that is left
// out stays as it is, and null takes it back to its default (RFC 7396).
type field[T any] struct {
	Set   bool
	Value T
}

// UnmarshalJSON reads a field that is there.
func (f *field[T]) UnmarshalJSON(doc []byte) error {
	f.Set = true
	if string(doc) == "null" {
		var zero T
		f.Value = zero
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(doc))
	decoder.DisallowUnknownFields()
	return decoder.Decode(&f.Value)
}

// or returns a pointer to what the field says; nil when it is left out.
func (f field[T]) pointer() *T {
	if !f.Set {
		return nil
	}
	return &f.Value
}

// endpointInput is what an endpoint is made from and changed with.
type endpointInput struct {
	Tenant         field[string]            `json:"tenant" doc:"Whose endpoint it is. Required of operators, fixed in the portal and for ever."`
	URL            field[string]            `json:"url" doc:"Where deliveries are posted to. Required of a new endpoint."`
	Types          field[[]string]          `json:"types" doc:"Patterns of event types: *, order.*, or an exact type. Required of a new endpoint; at most 100."`
	Description    field[string]            `json:"description" doc:"For people. At most 1,024 bytes."`
	Filter         field[json.RawMessage]   `json:"filter" doc:"A condition that payloads must meet, in the language of docs/filters.md."`
	Headers        field[map[string]string] `json:"headers" doc:"Headers sent with every request: all of them, as their values are never shown."`
	AdaptiveRate   field[bool]              `json:"adaptive_rate"`
	AtMostOnce     field[bool]              `json:"at_most_once"`
	Envelope       field[bool]              `json:"envelope"`
	Burst          field[int]               `json:"burst"`
	MaxInFlight    field[int]               `json:"max_in_flight"`
	NewestFirst    field[bool]              `json:"newest_first"`
	Ordering       field[webhook.Ordering]  `json:"ordering" doc:"per_resource or per_endpoint; null is in no order. A change holds for deliveries made after it."`
	RateLimit      field[float64]           `json:"rate_limit"`
	ShedBacklog    field[int]               `json:"shed_backlog"`
	TimeoutSeconds field[float64]           `json:"timeout_seconds" doc:"Limit of each attempt: 0 to 30."`
	Retry          field[retryShape]        `json:"retry" doc:"A retry policy of its own; null goes back to the dispatcher's."`
	TLS            field[tlsInput]          `json:"tls" doc:"Certificates of its own; null takes them away."`
	Secret         field[string]            `json:"secret" doc:"A signing secret of one's own for a new endpoint: whsec_… or whsk_…. As a rule one is generated."`
}

// tlsInput is an endpoint's own certificates, with the key.
type tlsInput struct {
	CertificatePEM string `json:"certificate_pem"`
	KeyPEM         string `json:"key_pem"`
	RootCAsPEM     string `json:"root_cas_pem"`
}

func (in tlsInput) tls() webhook.EndpointTLS {
	return webhook.EndpointTLS{CertificatePEM: []byte(in.CertificatePEM), KeyPEM: []byte(in.KeyPEM), RootCAsPEM: []byte(in.RootCAsPEM)}
}

// params are the parameters of a new endpoint.
func (in *endpointInput) params() (webhook.EndpointParams, error) {
	timeout, err := seconds("timeout_seconds", in.TimeoutSeconds.Value)
	if err != nil {
		return webhook.EndpointParams{}, err
	}
	p := webhook.EndpointParams{
		Tenant: in.Tenant.Value, URL: in.URL.Value, Types: in.Types.Value, Description: in.Description.Value,
		Filter: in.Filter.Value, Headers: in.Headers.Value, AdaptiveRate: in.AdaptiveRate.Value,
		AtMostOnce: in.AtMostOnce.Value, Envelope: in.Envelope.Value, Burst: in.Burst.Value, MaxInFlight: in.MaxInFlight.Value,
		NewestFirst: in.NewestFirst.Value, Ordering: in.Ordering.Value, RateLimit: in.RateLimit.Value, ShedBacklog: in.ShedBacklog.Value,
		Timeout: timeout, TLS: in.TLS.Value.tls(),
	}
	if p.Retry, err = in.Retry.Value.retry(); err != nil {
		return p, err
	}
	p.Secret, err = secretInput(in.Secret.Value)
	return p, err
}

// update is what changes of an endpoint.
func (in *endpointInput) update() (webhook.EndpointUpdate, error) {
	for name, set := range map[string]bool{"tenant": in.Tenant.Set, "secret": in.Secret.Set} {
		if set {
			return webhook.EndpointUpdate{}, badField(name, "cannot be changed here")
		}
	}
	u := webhook.EndpointUpdate{
		URL: in.URL.pointer(), Types: in.Types.Value, Description: in.Description.pointer(), Filter: in.Filter.pointer(),
		AdaptiveRate: in.AdaptiveRate.pointer(), AtMostOnce: in.AtMostOnce.pointer(), Envelope: in.Envelope.pointer(), Burst: in.Burst.pointer(),
		MaxInFlight: in.MaxInFlight.pointer(), NewestFirst: in.NewestFirst.pointer(), Ordering: in.Ordering.pointer(),
		RateLimit: in.RateLimit.pointer(), ShedBacklog: in.ShedBacklog.pointer(),
	}
	if in.Types.Set && len(in.Types.Value) == 0 {
		return u, badField("types", `is empty; use "*" for all event types`)
	}
	if in.Headers.Set {
		headers := webhook.Headers(in.Headers.Value)
		u.Headers = &headers
	}
	if in.TimeoutSeconds.Set {
		timeout, err := seconds("timeout_seconds", in.TimeoutSeconds.Value)
		if err != nil {
			return u, err
		}
		u.Timeout = &timeout
	}
	if in.Retry.Set {
		retry, err := in.Retry.Value.retry()
		if err != nil {
			return u, err
		}
		u.Retry = &retry
	}
	if in.TLS.Set {
		certificates := in.TLS.Value.tls()
		u.TLS = &certificates
	}
	return u, nil
}

// seconds makes a duration of a number that may be anything.
func seconds(name string, n float64) (time.Duration, error) {
	const most = 1e9 // far beyond any limit, and far from an overflow
	if !(n >= 0 && n <= most) {
		return 0, badField(name, fmt.Sprintf("is %v, which makes no sense", n))
	}
	return time.Duration(n * float64(time.Second)), nil
}

// secretInput reads a secret that somebody brings; none is zero.
func secretInput(s string) (webhook.Secret, error) {
	if s == "" {
		return webhook.Secret{}, nil
	}
	secret, err := webhook.ParseSecret(s)
	if err != nil {
		return webhook.Secret{}, badField("secret", err.Error()) // which does not quote it
	}
	return secret, nil
}

// reasonInput is the body of actions that somebody may give a reason for.
type reasonInput struct {
	Reason string `json:"reason" doc:"For people. At most 1,024 bytes."`
}

// rotateInput is the body of a rotation.
type rotateInput struct {
	OverlapSeconds field[float64] `json:"overlap_seconds" doc:"How long the present secret goes on signing beside the new one: 0 ends it at once, at most 604800. As a rule 86400."`
	Secret         field[string]  `json:"secret" doc:"A secret of one's own: whsec_… or whsk_…. As a rule one is generated."`
}

func (in *rotateInput) options() (webhook.RotateOptions, error) {
	var o webhook.RotateOptions
	overlap, err := seconds("overlap_seconds", in.OverlapSeconds.Value)
	if err != nil {
		return o, err
	}
	o.Overlap = overlap
	if in.OverlapSeconds.Set && overlap == 0 {
		o.Overlap = -1 // to the library, zero means the default
	}
	o.Secret, err = secretInput(in.Secret.Value)
	return o, err
}
