package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"time"
)

// Time limits of one attempt (docs/design.md §2 and §7).
const (
	DefaultTimeout     = 10 * time.Second
	MaxTimeout         = 30 * time.Second
	DefaultBodyTimeout = 2 * time.Second
)

// ClientConfig configures a [Client]. Zero fields mean their defaults.
type ClientConfig struct {
	// BodyTimeout bounds the reading of a response body, within the attempt's own
	// limit: the status is known by then, and a dripping body must not hold a slot.
	// Default 2 s.
	BodyTimeout time.Duration

	// Guard checks every URL. Required.
	Guard *Guard

	// MaxTimeout is the longest time limit that a request may ask for; longer ones
	// are cut to it. Default 30 s.
	MaxTimeout time.Duration

	// Timeout is the limit of a request that names none. Default 10 s.
	Timeout time.Duration

	// Transport sends the requests. Required; usually a [*Transport], or one that is
	// wrapped. Another RoundTripper keeps the URL rules, time limits, body limits and
	// classes, but judges no address. It must honour the request's context.
	Transport http.RoundTripper
}

// Client sends requests, each within its bounds. It may be used by many goroutines.
type Client struct {
	cfg ClientConfig
}

// NewClient returns a client, or an error that names the field that is wrong.
func NewClient(cfg ClientConfig) (*Client, error) {
	if cfg.Guard == nil {
		return nil, errors.New("egress client: Guard is required")
	}
	if cfg.Transport == nil {
		return nil, errors.New("egress client: Transport is required")
	}
	for _, f := range []struct {
		name string
		v    *time.Duration
		def  time.Duration
	}{
		{"BodyTimeout", &cfg.BodyTimeout, DefaultBodyTimeout},
		{"MaxTimeout", &cfg.MaxTimeout, MaxTimeout},
		{"Timeout", &cfg.Timeout, DefaultTimeout},
	} {
		if *f.v < 0 || *f.v > 10*time.Minute {
			return nil, fmt.Errorf("egress client: %s is %s: want 0 to 10m", f.name, *f.v)
		}
		if *f.v == 0 {
			*f.v = f.def
		}
	}
	return &Client{cfg: cfg}, nil
}

// Guard returns the guard that checks the URLs.
func (c *Client) Guard() *Guard { return c.cfg.Guard }

// Request is one POST.
type Request struct {
	// BeforeWrite, if not nil, is called right before the first byte is written to a
	// connection of a [Transport]. An error ends the attempt, unsent, as
	// ClassCancelled.
	BeforeWrite func() error

	// Body is sent as it is. It must not be changed, not even after Do returned: a
	// receiver that answers early may still be reading.
	Body []byte

	// Header is sent as it is, and must not be changed either. Names and values are the
	// caller's duty; what HTTP forbids ends as ClassProtocol.
	Header http.Header

	// KeepSuccessBody keeps the excerpt of a 2xx as long as that of a failure.
	KeepSuccessBody bool

	// NoResend makes the request at-most-once: it goes out on a new connection and is
	// never written twice, not even when a connection turns out to be dead.
	NoResend bool

	Timeout time.Duration // of the whole attempt; 0 means the client's default
	TLS     *TLSOptions   // nil: no client certificate, the transport's CAs
	URL     string        // checked again here, at every attempt
}

// Result is what became of one request.
type Result struct {
	// BodyErr is what ended the reading of the body early, if anything did. It never
	// changes the class: after a status of 200 to 299 the receiver has the event.
	BodyErr error

	// BodyHash is the SHA-256 of what was read of a 2xx body, at most MaxRead bytes;
	// nil if the body was empty.
	BodyHash []byte

	Class Class

	// Err is the operator's detail of a failure without a status, nil otherwise. Use
	// [Detail] for its text, and [PublicText] for what a tenant may read.
	Err error

	// Excerpt is the start of the body: 1 KiB of a failure, 64 bytes of a 2xx. The
	// bytes are raw: neither decompressed nor valid UTF-8 by necessity.
	Excerpt []byte

	Latency    time.Duration // from the start until the body was read or given up
	Location   string        // of a 3xx, cleaned and at most 2 KiB
	Resent     bool          // a dead idle connection made it go out a second time
	RetryAfter string        // the header as received, at most 128 bytes
	Reused     bool          // went out on a pooled connection

	// Sent is false only if no byte of the request can have left.
	Sent bool

	StartedAt time.Time
	Status    int // 0 if no answer came

	Truncated bool // the body was longer than Excerpt
	Withheld  bool // Excerpt, BodyHash and Location are dropped: the peer is not public
}

// OK reports whether the receiver has the event.
func (r *Result) OK() bool { return r.Class == ClassNone }

// Do sends one request and returns what became of it. It returns within the request's
// time limit, or soon after ctx ends (ClassCancelled).
//
// A status of 200 to 299 is success as soon as the headers are complete: what the body
// does afterwards is only noted. If a pooled connection turns out to be dead before any
// byte of an answer came, the request goes out once more on a new connection, unless
// NoResend is set.
func (c *Client) Do(ctx context.Context, r Request) Result {
	res := Result{StartedAt: time.Now()}
	c.do(ctx, &r, &res)
	res.Latency = time.Since(res.StartedAt)
	return res
}

func (c *Client) do(ctx context.Context, r *Request, res *Result) {
	if err := ctx.Err(); err != nil {
		res.Class, res.Err = ClassCancelled, context.Cause(ctx)
		return
	}
	target, err := c.cfg.Guard.CheckURL(r.URL)
	if err != nil {
		res.Class, res.Err = ClassBlocked, err
		return
	}
	a := newAttempt(ctx, target, r, c.timeout(r.Timeout))
	defer a.end()

	resp, err := c.roundTrip(a, target, r)
	if err != nil && a.resendable(r, err) {
		res.Resent = !a.retired.Load()
		a.again()
		resp, err = c.roundTrip(a, target, r)
	}
	res.Reused = a.reused.Load()
	if err != nil {
		res.Class, res.Err = a.failure(ctx, err)
		res.Sent = a.sent(res.Class)
		return
	}
	res.Sent = true
	c.answer(a, resp, r, res)
}

func (c *Client) timeout(d time.Duration) time.Duration {
	if d <= 0 {
		d = c.cfg.Timeout
	}
	return min(d, c.cfg.MaxTimeout)
}

// roundTrip writes the request once.
func (c *Client) roundTrip(a *attempt, target *Target, r *Request) (*http.Response, error) {
	// GetBody stays nil and the body is never http.NoBody, so net/http sends nothing
	// twice by itself: it would for any request with an Idempotency-Key, as often as
	// it finds dead connections. NopCloser around bytes.Reader is what it knows to be in
	// memory, so that headers and body leave in one write.
	body := io.NopCloser(bytes.NewReader(r.Body))
	header := r.Header
	if header == nil {
		header = http.Header{}
	}
	req := (&http.Request{
		Method:        http.MethodPost,
		URL:           target.URL,
		Host:          target.URL.Host,
		Header:        header,
		Body:          body,
		ContentLength: int64(len(r.Body)),
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
	}).WithContext(a.traced)
	resp, err := c.cfg.Transport.RoundTrip(req)
	if err != nil {
		if resp != nil && resp.Body != nil {
			_ = resp.Body.Close()
		}
		return nil, err
	}
	if resp == nil || resp.Body == nil {
		return nil, errors.New("the transport returned neither a response nor an error")
	}
	return resp, nil
}

// answer fills in the result from a response and closes it.
func (c *Client) answer(a *attempt, resp *http.Response, r *Request, res *Result) {
	defer resp.Body.Close()
	res.Status = resp.StatusCode
	res.Class = ClassifyStatus(resp.StatusCode)
	res.RetryAfter = cleanHeader(resp.Header.Get("Retry-After"), maxRetryAfter)
	if res.Class == ClassRedirect {
		res.Location = cleanHeader(resp.Header.Get("Location"), maxLocation)
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// The body is the connection itself.
		res.Err = errors.New("the endpoint wants to switch protocols")
		return
	}
	if res.Class == ClassProtocol {
		res.Err = fmt.Errorf("status %03d is outside 200 to 599", resp.StatusCode)
	}
	keep := excerptBytes
	if res.Class == ClassNone && !r.KeepSuccessBody {
		keep = successExcerptBytes
	}
	a.limitBody(c.cfg.BodyTimeout)
	readBody(resp, keep, res)
	if !c.mayShow(a) {
		res.Excerpt, res.BodyHash, res.Location, res.Withheld = nil, nil, "", true
	}
}

// mayShow reports whether what the peer said may be kept. A transport that tells
// nothing of its connection is the operator's own, and trusted.
func (c *Client) mayShow(a *attempt) bool {
	nc := a.connection()
	if nc == nil {
		return true
	}
	if own, ok := nc.(*conn); ok {
		return own.verdict.excerpts
	}
	addr := nc.RemoteAddr()
	if addr == nil {
		return true
	}
	ap, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return true
	}
	v, b := c.cfg.Guard.judge(ap)
	return b == nil && v.excerpts
}
