package webhook_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
)

// authority issues certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.key, a.cert, a.pem, _ = a.sign("authority", nil, nil)
	return a
}

// issue returns a certificate for name and loopback, and its key.
func (a *authority) issue(name string) (certPEM, keyPEM []byte) {
	a.t.Helper()
	_, _, certPEM, keyPEM = a.sign(name, a.cert, a.key)
	return certPEM, keyPEM
}

func (a *authority) sign(name string, parent *x509.Certificate, by *ecdsa.PrivateKey) (*ecdsa.PrivateKey, *x509.Certificate, []byte, []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(a.t, err)
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	if parent == nil {
		parent, by = template, key
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	require.NoError(a.t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	return key, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// gateway is a receiver that wants a client certificate, and notes whose it got.
func (a *authority) gateway(clients *x509.CertPool) (url string, callers chan string) {
	a.t.Helper()
	certPEM, keyPEM := a.issue("gateway")
	own, err := tls.X509KeyPair(certPEM, keyPEM)
	require.NoError(a.t, err)
	callers = make(chan string, 100)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		name := ""
		if len(r.TLS.PeerCertificates) > 0 {
			name = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		callers <- name
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}
	if clients != nil {
		server.TLS.ClientAuth, server.TLS.ClientCAs = tls.RequireAndVerifyClientCert, clients
	}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it complains of each stranger
	server.StartTLS()
	a.t.Cleanup(server.Close)
	return server.URL, callers
}

// once retries nothing.
var once = webhook.DispatcherConfig{Retry: webhook.RetrySchedule{Delays: []time.Duration{0}}}

func TestEachEndpointIsSpokenToWithItsOwnCertificate(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	gateway, callers := theirs.gateway(ours.pool())
	plain, plainCallers := theirs.gateway(nil)
	h := newHost(t)
	blueCert, blueKey := ours.issue("blue")
	redCert, redKey := ours.issue("red")
	strangerCert, strangerKey := theirs.issue("stranger")
	want := map[uuid.UUID]webhook.DeliveryState{}
	add := func(url string, state webhook.DeliveryState, s webhook.EndpointTLS) {
		want[h.endpoint(url, func(p *webhook.EndpointParams) { p.TLS = s }).ID] = state
	}
	add(gateway, webhook.StateDelivered, webhook.EndpointTLS{CertificatePEM: blueCert, KeyPEM: blueKey, RootCAsPEM: theirs.pem})
	add(gateway, webhook.StateDelivered, webhook.EndpointTLS{CertificatePEM: redCert, KeyPEM: redKey, RootCAsPEM: theirs.pem})
	add(plain, webhook.StateDelivered, webhook.EndpointTLS{RootCAsPEM: theirs.pem})
	add(gateway, webhook.StateDead, webhook.EndpointTLS{RootCAsPEM: theirs.pem})                                                    // no certificate
	add(gateway, webhook.StateDead, webhook.EndpointTLS{CertificatePEM: strangerCert, KeyPEM: strangerKey, RootCAsPEM: theirs.pem}) // not theirs to know
	add(gateway, webhook.StateDead, webhook.EndpointTLS{CertificatePEM: blueCert, KeyPEM: blueKey})                                 // an unknown gateway
	add(plain, webhook.StateDead, webhook.EndpointTLS{RootCAsPEM: append([]byte(nil), ours.pem...)})                                // another authority's
	add(plain, webhook.StateDead, webhook.EndpointTLS{})                                                                            // the host's roots
	h.dispatch(once)

	for _, d := range h.settled(h.enqueue(paid(`{}`)), len(want)) {
		assert.Equal(t, want[d.EndpointID], d.State)
		if d.State == webhook.StateDead {
			assert.Equal(t, webhook.ClassTLS, d.LastClass)
		}
	}
	assert.ElementsMatch(t, []string{"blue", "red"}, []string{<-callers, <-callers})
	assert.Empty(t, <-plainCallers)
	assert.Empty(t, callers, "nobody else got through")
	assert.Empty(t, plainCallers)
}

func TestAnUpdateKeepsATLSKeyThatItDoesNotTouch(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	gateway, callers := theirs.gateway(ours.pool())
	cert, key := ours.issue("blue")
	h := newHost(t)
	settings := webhook.EndpointTLS{CertificatePEM: cert, KeyPEM: key, RootCAsPEM: theirs.pem}
	e := h.endpoint(gateway, func(p *webhook.EndpointParams) { p.TLS = settings })
	assert.Empty(t, e.TLS.KeyPEM, "not even Create shows it again")
	s, all := h.hooks.Endpoints(), webhook.AllTenants()
	h.dispatch(once)
	delivers := func(state webhook.DeliveryState) {
		t.Helper()
		d := h.settled(h.enqueue(paid(`{}`)), 1)[0]
		assert.Equal(t, state, d.State, "%s", d.LastClass)
	}
	delivers(webhook.StateDelivered)

	description, headers := "ours", webhook.Headers{"X-A": "1"}
	for _, change := range []func() (webhook.Endpoint, error){
		func() (webhook.Endpoint, error) {
			return s.Update(t.Context(), all, e.ID, webhook.EndpointUpdate{Description: &description})
		},
		func() (webhook.Endpoint, error) {
			return s.Update(t.Context(), all, e.ID, webhook.EndpointUpdate{Headers: &headers})
		},
		func() (webhook.Endpoint, error) {
			return s.RotateSecret(t.Context(), all, e.ID, webhook.RotateOptions{})
		},
		func() (webhook.Endpoint, error) { return s.Pause(t.Context(), all, e.ID, "") },
		func() (webhook.Endpoint, error) { return s.Resume(t.Context(), all, e.ID) },
	} {
		got, err := change()
		require.NoError(t, err)
		assert.Equal(t, webhook.EndpointTLS{CertificatePEM: cert, RootCAsPEM: theirs.pem}, got.TLS, "without the key")
	}
	delivers(webhook.StateDelivered)

	// What a read gave, written back, lacks the key: that is refused rather than stored.
	got, err := s.Get(t.Context(), all, e.ID)
	require.NoError(t, err)
	_, err = s.Update(t.Context(), all, e.ID, webhook.EndpointUpdate{TLS: &got.TLS})
	require.ErrorIs(t, err, webhook.ErrInvalid)
	delivers(webhook.StateDelivered)

	cert, key = ours.issue("green")
	settings = webhook.EndpointTLS{CertificatePEM: cert, KeyPEM: key, RootCAsPEM: theirs.pem}
	_, err = s.Update(t.Context(), all, e.ID, webhook.EndpointUpdate{TLS: &settings})
	require.NoError(t, err)
	delivers(webhook.StateDelivered)
	got, err = s.Update(t.Context(), all, e.ID, webhook.EndpointUpdate{TLS: &webhook.EndpointTLS{}})
	require.NoError(t, err)
	assert.True(t, got.TLS.IsZero())
	assert.Equal(t, headers, got.Headers, "headers stay")
	delivers(webhook.StateDead)

	close(callers)
	var names []string
	for name := range callers {
		names = append(names, name)
	}
	assert.Equal(t, []string{"blue", "blue", "blue", "green"}, names)
}

func TestRefusedTLSSettingsAreNotQuoted(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	ours := newAuthority(t)
	cert, key := ours.issue("blue")
	_, otherKey := ours.issue("red")
	long := make([]byte, 64<<10+1)
	for name, s := range map[string]webhook.EndpointTLS{
		"no key":        {CertificatePEM: cert},
		"no cert":       {KeyPEM: key},
		"other key":     {CertificatePEM: cert, KeyPEM: otherKey},
		"swapped":       {CertificatePEM: key, KeyPEM: cert},
		"not PEM":       {CertificatePEM: []byte("sesame"), KeyPEM: []byte("sesame")},
		"no CA":         {RootCAsPEM: []byte("sesame")},
		"key as CA":     {RootCAsPEM: key},
		"long cert":     {CertificatePEM: long, KeyPEM: key},
		"long key":      {CertificatePEM: cert, KeyPEM: long},
		"long CA":       {RootCAsPEM: long},
		"broken base64": {CertificatePEM: cert, KeyPEM: append([]byte("-----BEGIN PRIVATE KEY-----\nsesame"), key[30:]...)},
	} {
		_, err := h.hooks.Endpoints().Create(t.Context(), webhook.EndpointParams{
			Tenant: "acme", URL: inbox, Types: []string{"*"}, TLS: s,
		})
		var refused *webhook.InvalidError
		require.ErrorAs(t, err, &refused, name)
		assert.Contains(t, refused.Field, "TLS", name)
		assert.NotContains(t, err.Error(), "sesame", name)
		assert.NotContains(t, err.Error(), string(key[40:60]), name)
	}
}

func TestATLSKeyIsInNoRecordAndNoOutput(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	cert, key := newAuthority(t).issue("blue")
	e := h.endpoint(inbox, func(p *webhook.EndpointParams) { p.TLS = webhook.EndpointTLS{CertificatePEM: cert, KeyPEM: key} })
	rec := h.record(e.ID)
	list, err := h.hooks.Endpoints().List(t.Context(), webhook.ListEndpointsParams{Scope: webhook.AllTenants()})
	require.NoError(t, err)
	block, _ := pem.Decode(key)
	dump := fmt.Sprintf("%s %s %s %s %+v %+v %s", rec.Headers, rec.Options, rec.Secrets, rec.URL, e, list, list[0].TLS.KeyPEM)
	for _, form := range []string{string(key), string(block.Bytes), string(key[40:60]), base64.StdEncoding.EncodeToString(key)[:40]} {
		assert.NotContains(t, dump, form)
	}
}

// keeper is an Authenticator that keeps its token until it is refused.
type keeper struct {
	mu          sync.Mutex
	token       int
	invalidated []webhook.AuthInput
	err         error
}

func (k *keeper) Authenticate(_ context.Context, h http.Header, in webhook.AuthInput) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return k.err
	}
	h.Set("Authorization", fmt.Sprintf("Bearer %s-%d", in.Tenant, k.token))
	h.Set("Webhook-Signature", "v1,forged")
	h.Set("Webhook-Id", "forged")
	return nil
}

func (k *keeper) Invalidate(in webhook.AuthInput) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.token++
	k.invalidated = append(k.invalidated, in)
}

func TestAnAuthenticatorWinsOverHeadersAndLosesToTheSignature(t *testing.T) {
	t.Parallel()
	auth := &keeper{}
	h := newHost(t, func(c *webhook.Config) { c.Authenticator = auth })
	r := webhooktest.NewReceiver(t)
	e := h.endpoint(r.URL, func(p *webhook.EndpointParams) {
		p.Headers = webhook.Headers{"Authorization": "Basic c3RhdGlj", "X-Team": "blue"}
	})
	r.Verify(t, e.Secret.Reveal())
	h.dispatch(once)
	id := h.enqueue(paid(`{}`))
	require.Equal(t, webhook.StateDelivered, h.settled(id, 1)[0].State)

	got := r.Requests()[0]
	require.NoError(t, got.VerifyErr)
	assert.Equal(t, []string{"Bearer acme-0"}, got.Header.Values("Authorization"))
	assert.Equal(t, "blue", got.Header.Get("X-Team"))
	assert.Equal(t, id.String(), got.ID())
	assert.Empty(t, auth.invalidated)
}

func TestA401BringsAFreshCredential(t *testing.T) {
	t.Parallel()
	auth := &keeper{}
	h := newHost(t, func(c *webhook.Config) { c.Authenticator = auth })
	r := webhooktest.NewReceiver(t)
	r.Respond(webhooktest.Status(403), webhooktest.Status(401), webhooktest.Status(204))
	e := h.endpoint(r.URL)
	h.dispatch(webhook.DispatcherConfig{Retry: webhook.RetrySchedule{Delays: []time.Duration{0, time.Millisecond, time.Millisecond}}})
	d := h.settled(h.enqueue(paid(`{}`)), 1)[0]

	assert.Equal(t, webhook.StateDelivered, d.State)
	assert.Equal(t, 3, d.Attempts, "a 401 counts like any other failure")
	var sent []string
	for _, got := range r.Requests() {
		sent = append(sent, got.Header.Get("Authorization"))
	}
	assert.Equal(t, []string{"Bearer acme-0", "Bearer acme-0", "Bearer acme-1"}, sent)
	assert.Equal(t, []webhook.AuthInput{{EndpointID: e.ID, Tenant: "acme", URL: e.URL}}, auth.invalidated)
}

func TestAnAuthenticatorThatFailsHoldsTheDelivery(t *testing.T) {
	t.Parallel()
	auth := &keeper{err: errors.New("the token server is away")}
	h, clock := newClockedHost(t, func(c *webhook.Config) { c.Authenticator = auth })
	r := webhooktest.NewReceiver(t)
	h.endpoint(r.URL)
	h.dispatch(webhook.DispatcherConfig{})
	event := h.enqueue(paid(`{}`))
	d, log := h.attempts(clock, event, 1)
	assert.Equal(t, [3]any{webhook.StatePending, 0, webhook.ClassInternal}, [3]any{d.State, d.Attempts, d.LastClass})
	assert.Equal(t, "authenticate: the token server is away", log[0].Error)
	assert.Empty(t, r.Requests(), "nothing is sent without authorisation")

	auth.mu.Lock()
	auth.err = nil
	auth.mu.Unlock()
	d, _ = h.attempts(clock, event, 2)
	assert.Equal(t, [2]any{webhook.StateDelivered, 1}, [2]any{d.State, d.Attempts})
}

func TestAnUnusableAuthenticatorIsRefusedByNew(t *testing.T) {
	t.Parallel()
	_, err := webhook.New(webhooktest.NewStore(), webhook.Config{
		Secrets: webhook.InsecurePlaintext(), Authenticator: webhook.BearerAuth("sesame\r\nX: y"),
	})
	var refused *webhook.InvalidError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, "Config.Authenticator", refused.Field)
	assert.NotContains(t, err.Error(), "sesame")
}
