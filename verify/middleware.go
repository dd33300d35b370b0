package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Middleware lets verified Standard Webhooks requests through to a handler, which reads
// the raw body as usual. It panics if a secret is malformed or none is given: that is a
// mistake in the configuration, to be found at the start and not with the first request.
// [New] returns it as an error instead and has options.
func Middleware(secrets ...string) func(http.Handler) http.Handler {
	v, err := New(Config{Secrets: secrets})
	if err != nil {
		panic(err)
	}
	return v.Middleware
}

// Middleware lets verified requests through to next.
func (v *Verifier) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, err := v.Request(r)
		if err != nil {
			v.cfg.OnError(w, r, err)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), messageKey{}, m))
		if v.cfg.Dedupe.Store == nil || m.ID == "" {
			next.ServeHTTP(w, r)
			return
		}
		v.serveOnce(w, r, m.ID, next)
	})
}

// Request verifies a request and reads its body, of which r.Body then gives a fresh
// copy. Headers are looked at first, so that the body of a request without a signature,
// or with an old one, is not read at all.
func (v *Verifier) Request(r *http.Request) (Message, error) {
	c, err := v.claim(r.Header)
	if err != nil {
		return Message{}, err
	}
	body, err := v.readBody(r)
	if err != nil {
		return Message{}, err
	}
	if !v.matches(c, body) {
		return Message{}, ErrMismatch
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	r.TransferEncoding = nil
	return v.message(c, r.Header, body), nil
}

type messageKey struct{}

// FromContext gives a handler behind [Middleware] the message that it is called for. Its
// ID is what to recognise a repeated message by.
func FromContext(ctx context.Context) (Message, bool) {
	m, ok := ctx.Value(messageKey{}).(Message)
	return m, ok
}

func (v *Verifier) readBody(r *http.Request) ([]byte, error) {
	limit := v.cfg.MaxBody
	if r.ContentLength > limit {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrBodyTooLarge, r.ContentLength, limit)
	}
	if r.Body == nil {
		return nil, nil
	}
	var body bytes.Buffer
	if r.ContentLength > 0 {
		// A claimed length is no reason to hold more memory than most bodies need.
		body.Grow(int(min(r.ContentLength, defaultMaxBody)) + bytes.MinRead)
	}
	// One byte more than allowed tells a body at the limit from one over it.
	n, err := body.ReadFrom(io.LimitReader(r.Body, limit+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBodyUnreadable, err)
	}
	if n > limit {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrBodyTooLarge, limit)
	}
	return body.Bytes(), nil
}

// serveOnce calls next for a message that was not handled yet.
func (v *Verifier) serveOnce(w http.ResponseWriter, r *http.Request, id string, next http.Handler) {
	d := v.cfg.Dedupe
	result, err := d.Store.Claim(r.Context(), id, d.Lease)
	if err != nil {
		v.cfg.OnError(w, r, fmt.Errorf("%w: %w", ErrDedupe, err))
		return
	}
	switch {
	case result == Claimed:
	case result == Handled && d.Replays && r.Header.Get("webhook-replay") == "true":
		next.ServeHTTP(w, r) // it stays handled, whatever comes of the replay
		return
	case result == Handled:
		w.WriteHeader(http.StatusOK)
		return
	default:
		// Not a success: if the other request fails, the sender must come again.
		v.cfg.OnError(w, r, ErrInProgress)
		return
	}

	recorder := &statusRecorder{ResponseWriter: w}
	done := false
	defer func() { // also when next panics
		if done && recorder.succeeded() {
			v.settle(r, id, func(ctx context.Context) error { return d.Store.Complete(ctx, id, d.Keep) })
			return
		}
		v.settle(r, id, func(ctx context.Context) error { return d.Store.Release(ctx, id) })
	}()
	next.ServeHTTP(recorder, r)
	done = true
}

// settleTimeout bounds the last word to a dedupe store after the sender has its answer.
const settleTimeout = 5 * time.Second

// settle tells the store how handling went, even if the sender has hung up meanwhile.
func (v *Verifier) settle(r *http.Request, id string, tell func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), settleTimeout)
	defer cancel()
	if err := tell(ctx); err != nil {
		v.cfg.Logger.ErrorContext(ctx, "verify: dedupe store failed after handling", "message_id", id, "error", err)
	}
}

// statusRecorder remembers the status that a handler answers with.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

func (s *statusRecorder) WriteHeader(status int) {
	if s.status == 0 && status >= 200 { // 1xx is not the answer yet
		s.status = status
	}
	s.ResponseWriter.WriteHeader(status)
}

func (s *statusRecorder) Write(p []byte) (int, error) {
	if s.status == 0 {
		s.status = http.StatusOK
	}
	return s.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach what the wrapped writer can do.
func (s *statusRecorder) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// succeeded reports a 2xx, which net/http also sends for a handler that writes nothing.
func (s *statusRecorder) succeeded() bool { return s.status == 0 || s.status/100 == 2 }

// answer is the default OnError. What it says of a refusal is what the sender's operator
// needs to mend it, and nothing that helps a forger.
func answer(w http.ResponseWriter, _ *http.Request, err error) {
	status, text := http.StatusBadRequest, err.Error()
	switch {
	case errors.Is(err, ErrTooOld), errors.Is(err, ErrTooNew), errors.Is(err, ErrMismatch):
		status = http.StatusUnauthorized
	case errors.Is(err, ErrBodyTooLarge):
		status = http.StatusRequestEntityTooLarge
	case errors.Is(err, ErrBodyUnreadable):
		text = ErrBodyUnreadable.Error()
	case errors.Is(err, ErrInProgress):
		status = http.StatusConflict
	case errors.Is(err, ErrDedupe):
		status, text = http.StatusServiceUnavailable, ErrDedupe.Error()
	}
	http.Error(w, text, status)
}
