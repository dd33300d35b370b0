package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"

	"github.com/google/uuid"

	"github.com/outhook/webhook/internal/egress"
)

// maxPEMBytes bounds each of the PEM texts of an [EndpointTLS].
const maxPEMBytes = 64 << 10

// EndpointTLS is how an endpoint wants to be spoken to beyond what every TLS
// server gets: with a client certificate, or with certificate authorities of its
// own. Verification cannot be turned off.
type EndpointTLS struct {
	// CertificatePEM is the client certificate, followed by the rest of its chain.
	CertificatePEM []byte
	// KeyPEM is the private key of the certificate. It is sealed at rest, and reads
	// leave it empty.
	KeyPEM []byte
	// RootCAsPEM are the authorities that the endpoint's certificate must descend
	// from. Empty means those of the transport.
	RootCAsPEM []byte
}

// Format leaves the key out of whatever prints the settings.
func (t EndpointTLS) Format(f fmt.State, _ rune) { io.WriteString(f, t.LogValue().String()) }

// LogValue leaves the key out, for log/slog.
func (t EndpointTLS) LogValue() slog.Value {
	return slog.GroupValue(
		slog.Bool("client_certificate", len(t.CertificatePEM) > 0),
		slog.Bool("root_cas", len(t.RootCAsPEM) > 0),
	)
}

// MarshalJSON leaves the key out.
func (t EndpointTLS) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		CertificatePEM []byte `json:"CertificatePEM"`
		RootCAsPEM     []byte `json:"RootCAsPEM"`
	}{t.CertificatePEM, t.RootCAsPEM})
}

// IsZero reports whether there are no settings.
func (t EndpointTLS) IsZero() bool {
	return len(t.CertificatePEM) == 0 && len(t.KeyPEM) == 0 && len(t.RootCAsPEM) == 0
}

func (t EndpointTLS) check() *InvalidError {
	for field, pem := range map[string][]byte{
		"TLS.CertificatePEM": t.CertificatePEM, "TLS.KeyPEM": t.KeyPEM, "TLS.RootCAsPEM": t.RootCAsPEM,
	} {
		if len(pem) > maxPEMBytes {
			return tooLong(field, len(pem), maxPEMBytes)
		}
	}
	if _, err := t.options(); err != nil {
		return asInvalid("TLS", err)
	}
	return nil
}

// options returns what the transport takes; nil for no settings.
func (t EndpointTLS) options() (*egress.TLSOptions, error) {
	if t.IsZero() {
		return nil, nil
	}
	return egress.NewTLSOptions(t.CertificatePEM, t.KeyPEM, t.RootCAsPEM)
}

// private is what is sealed of an endpoint besides its signing secrets: custom
// headers, which are credentials as often as not, and TLS settings with their key.
type private struct {
	Headers map[string]string `json:"headers,omitempty"`
	Cert    []byte            `json:"cert,omitempty"`
	Key     []byte            `json:"key,omitempty"`
	RootCAs []byte            `json:"root_cas,omitempty"`
}

func privateOf(p *EndpointParams) private {
	return private{
		Headers: cloneHeaders(p.Headers),
		Cert:    bytes.Clone(p.TLS.CertificatePEM),
		Key:     bytes.Clone(p.TLS.KeyPEM),
		RootCAs: bytes.Clone(p.TLS.RootCAsPEM),
	}
}

// show puts what may be shown into the parameters: everything but the key.
func (v *private) show(p *EndpointParams) {
	p.Headers = cloneHeaders(v.Headers)
	p.TLS = EndpointTLS{CertificatePEM: bytes.Clone(v.Cert), RootCAsPEM: bytes.Clone(v.RootCAs)}
}

func (v *private) tls() EndpointTLS {
	return EndpointTLS{CertificatePEM: v.Cert, KeyPEM: v.Key, RootCAsPEM: v.RootCAs}
}

// sealPrivate seals v into the record. Its associated data is that of a secret
// with the zero id.
func (c *core) sealPrivate(ctx context.Context, rec *EndpointRecord, v private) error {
	rec.Headers = nil
	if len(v.Headers) == 0 && v.tls().IsZero() {
		return nil
	}
	doc, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write the headers of endpoint %s: %w", rec.ID, err)
	}
	if rec.Headers, err = c.box.Seal(ctx, doc, secretAAD(rec.Tenant, rec.ID, uuid.Nil)); err != nil {
		return fmt.Errorf("seal the headers of endpoint %s: %w", rec.ID, err)
	}
	return nil
}

// openPrivate reverses sealPrivate. Its errors match ErrSecretUnreadable.
func (c *core) openPrivate(ctx context.Context, rec *EndpointRecord) (private, error) {
	var v private
	if len(rec.Headers) == 0 {
		return v, nil
	}
	doc, err := c.box.Open(ctx, rec.Headers, secretAAD(rec.Tenant, rec.ID, uuid.Nil))
	if err != nil {
		return v, fmt.Errorf("open the headers of endpoint %s: %w", rec.ID, unreadable(err))
	}
	if json.Unmarshal(doc, &v) != nil {
		// The decoder's error could quote what it read.
		return private{}, fmt.Errorf("open the headers of endpoint %s: not the document expected: %w", rec.ID, ErrSecretUnreadable)
	}
	return v, nil
}
