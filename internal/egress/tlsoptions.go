package egress

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// TLSOptions are the TLS settings of one endpoint: a client certificate, a CA pool, or
// both. They never share connections with an endpoint that has others. Make them with
// [NewTLSOptions]; they are not changed afterwards and may be shared.
type TLSOptions struct {
	certificate *tls.Certificate
	id          [sha256.Size]byte
	roots       *x509.CertPool
}

// NewTLSOptions reads PEM blocks: a client certificate chain with its private key, and
// the CA certificates that the endpoint's own certificate must descend from. Either
// may be empty; without CAs the host's roots are used. No error quotes its input.
func NewTLSOptions(certPEM, keyPEM, caPEM []byte) (*TLSOptions, error) {
	o := &TLSOptions{}
	h := sha256.New()
	if len(certPEM) > 0 || len(keyPEM) > 0 {
		c, err := tls.X509KeyPair(certPEM, keyPEM)
		if err != nil {
			return nil, fmt.Errorf("read the client certificate and key: %w", err)
		}
		o.certificate = &c
		for _, der := range c.Certificate {
			fmt.Fprintf(h, "cert %d\n", len(der))
			h.Write(der)
		}
	}
	if len(caPEM) > 0 {
		o.roots = x509.NewCertPool()
		if !o.roots.AppendCertsFromPEM(caPEM) {
			return nil, errors.New("read the CA certificates: no certificate found")
		}
		fmt.Fprintf(h, "ca %d\n", len(caPEM))
		h.Write(caPEM)
	}
	if o.certificate == nil && o.roots == nil {
		return nil, errors.New("TLS options: neither a client certificate nor CA certificates given")
	}
	h.Sum(o.id[:0])
	return o, nil
}

// config returns the TLS settings for connections under o, which may be nil.
func (o *TLSOptions) config(roots *x509.CertPool) *tls.Config {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, RootCAs: roots}
	if o == nil {
		return cfg
	}
	if o.roots != nil {
		cfg.RootCAs = o.roots
	}
	if c := o.certificate; c != nil {
		// Always the endpoint's own, whatever CAs the server names: a certificate that
		// does not fit must fail there, not be left out silently.
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c, nil }
	}
	return cfg
}
