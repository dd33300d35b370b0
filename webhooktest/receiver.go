package webhooktest

import (
	"context"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"time"

	"github.com/outhook/webhook/verify"
)

// TestingT is what this package needs of *testing.T.
type TestingT interface {
	// These are the methods of [testing.TB] of the same names.
	Helper()
	Errorf(format string, args ...any)
	FailNow()
	Cleanup(func())
}

// maxReceived is how much of a request's body a Receiver reads.
const maxReceived = 32 << 20

// Receiver is an HTTP server on loopback that plays a customer's endpoint: it
// records what it gets, verifies signatures if told to, and behaves or
// misbehaves as told. It is safe for concurrent use.
type Receiver struct {
	// URL is the receiver's address, without a path. Any path is answered.
	URL string

	server *httptest.Server
	stop   context.CancelFunc // ends every behaviour that still waits

	mu          sync.Mutex // protects everything below
	requests    []Request
	arrived     chan struct{} // closed and replaced when a request was recorded
	behaviors   []Behavior
	verifier    *verify.Verifier
	now         func() time.Time
	inFlight    int
	maxInFlight int
	connections map[string]struct{} // those that requests came on
}

// Request is a request that a [Receiver] got.
type Request struct {
	// Number counts from 1 over the receiver's life.
	Number     int
	ReceivedAt time.Time
	Method     string
	// Path is the path with its query, as it was sent.
	Path   string
	Host   string
	Header http.Header
	// Body is the raw body; BodyErr says why it is not whole.
	Body    []byte
	BodyErr error
	// VerifyErr says why the signature was refused; nil also when the receiver
	// was not told to verify.
	VerifyErr error
}

// ID is the event's id: the webhook-id header.
func (r Request) ID() string { return r.Header.Get("webhook-id") }

// Attempt is the number of the attempt: the webhook-attempt header.
func (r Request) Attempt() string { return r.Header.Get("webhook-attempt") }

// NewReceiver starts a receiver that answers every request with 200 OK, and
// closes it at the end of the test.
func NewReceiver(t TestingT) *Receiver {
	return startReceiver(t, (*httptest.Server).Start)
}

// NewTLSReceiver is NewReceiver over https, with a certificate for 127.0.0.1 and
// example.com that [Receiver.CertPool] trusts.
func NewTLSReceiver(t TestingT) *Receiver {
	return startReceiver(t, (*httptest.Server).StartTLS)
}

func startReceiver(t TestingT, start func(*httptest.Server)) *Receiver {
	ctx, stop := context.WithCancel(context.Background())
	r := &Receiver{
		stop:        stop,
		arrived:     make(chan struct{}),
		behaviors:   []Behavior{Status(http.StatusOK)},
		now:         time.Now,
		connections: map[string]struct{}{},
	}
	r.server = httptest.NewUnstartedServer(r)
	r.server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	r.server.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that tests refuse
	start(r.server)
	r.URL = r.server.URL
	t.Cleanup(r.Close)
	return r
}

// Close ends all requests and the server. It may be called more than once; after
// it, connections are refused.
func (r *Receiver) Close() {
	r.stop()
	r.server.CloseClientConnections()
	r.server.Close()
}

// CertPool returns a pool that trusts the certificate of [NewTLSReceiver].
func (r *Receiver) CertPool() *x509.CertPool {
	pool := x509.NewCertPool()
	if cert := r.server.Certificate(); cert != nil {
		pool.AddCert(cert)
	}
	return pool
}

// Respond sets how requests are answered from now on: the next one by the first
// behavior, and so on; the last one stays.
func (r *Receiver) Respond(first Behavior, then ...Behavior) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.behaviors = append([]Behavior{first}, then...)
}

// Verify makes the receiver verify Standard Webhooks signatures with any of the
// secrets from now on. Requests that fail are answered with 401 and recorded
// with their VerifyErr. A secret that is none fails the test.
func (r *Receiver) Verify(t TestingT, secrets ...string) {
	t.Helper()
	verifier, err := verify.New(verify.Config{Secrets: secrets, Now: r.time})
	if err != nil {
		t.Errorf("webhooktest: verify with these secrets: %v", err)
		t.FailNow()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.verifier = verifier
}

// SetNow sets the receiver's clock, by which it judges timestamps.
func (r *Receiver) SetNow(now func() time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = now
}

func (r *Receiver) time() time.Time {
	r.mu.Lock()
	now := r.now
	r.mu.Unlock()
	return now()
}

// ServeHTTP records a request and answers it.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, bodyErr := io.ReadAll(io.LimitReader(req.Body, maxReceived))
	got := Request{
		ReceivedAt: r.time(),
		Method:     req.Method,
		Path:       req.URL.RequestURI(),
		Host:       req.Host,
		Header:     req.Header.Clone(),
		Body:       body,
		BodyErr:    bodyErr,
	}
	behave := r.record(&got, req.RemoteAddr)
	defer r.finished()
	behave(w, req)
}

// record keeps a request and returns how to answer it.
func (r *Receiver) record(got *Request, connection string) Behavior {
	r.mu.Lock()
	verifier := r.verifier
	r.mu.Unlock()
	if verifier != nil {
		_, got.VerifyErr = verifier.Payload(got.Header, got.Body)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	got.Number = len(r.requests) + 1
	r.requests = append(r.requests, *got)
	r.connections[connection] = struct{}{}
	r.inFlight++
	r.maxInFlight = max(r.maxInFlight, r.inFlight)
	close(r.arrived)
	r.arrived = make(chan struct{})
	if got.VerifyErr != nil {
		return Status(http.StatusUnauthorized)
	}
	behave := r.behaviors[0]
	if len(r.behaviors) > 1 {
		r.behaviors = r.behaviors[1:]
	}
	return behave
}

func (r *Receiver) finished() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight--
}

// Requests returns what was received so far, in the order of arrival.
func (r *Receiver) Requests() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// InFlight returns how many requests are being answered, and how many were at
// most.
func (r *Receiver) InFlight() (now, most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inFlight, r.maxInFlight
}

// Connections returns on how many connections requests came.
func (r *Receiver) Connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.connections)
}

// Wait returns all requests once there are at least n, or the context's error
// with those that came before it ended.
func (r *Receiver) Wait(ctx context.Context, n int) ([]Request, error) {
	for {
		r.mu.Lock()
		got, arrived := slices.Clone(r.requests), r.arrived
		r.mu.Unlock()
		if len(got) >= n {
			return got, nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return got, ctx.Err()
		}
	}
}

// RequireRequests is Wait for tests: it fails the test if fewer than n requests
// came within the time.
func (r *Receiver) RequireRequests(t TestingT, n int, within time.Duration) []Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	got, err := r.Wait(ctx, n)
	if err != nil {
		t.Errorf("webhooktest: received %d requests within %s, want %d", len(got), within, n)
		t.FailNow()
	}
	return got
}
