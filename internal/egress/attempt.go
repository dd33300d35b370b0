package egress

import (
	"context"
	"errors"
	"net"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// errTimeUp is the cause of a context whose attempt ran out of time.
var errTimeUp = errors.New("the attempt's time is up")

// attempt is the state of one Client.Do and the context of its request: whatever a
// RoundTripper wraps around it, the Transport below finds it again.
type attempt struct {
	context.Context // ends with the caller's, at the deadline, or in end
	traced          context.Context

	cancel   context.CancelCauseFunc
	deadline time.Time
	exchange exchange
	gate     func() error    // nil, or Request.BeforeWrite
	fresh    bool            // wants a new connection
	parent   context.Context // the caller's
	timer    *time.Timer
	tls      *TLSOptions
	trace    httptrace.ClientTrace
	url      *url.URL // the checked one

	// Set from the goroutines of the transport.
	firstByte atomic.Bool
	gotConn   atomic.Bool
	guarded   atomic.Bool
	refused   atomic.Pointer[opError] // why nothing may be written any more
	retired   atomic.Bool             // the connection was too old, and closed before it was used
	reused    atomic.Bool
	timeUp    atomic.Bool

	mu sync.Mutex // guards nc
	nc net.Conn
}

type attemptKey struct{}

// attemptFrom returns the attempt that ctx descends from, or nil.
func attemptFrom(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

func newAttempt(ctx context.Context, target *Target, r *Request, limit time.Duration) *attempt {
	a := &attempt{deadline: time.Now().Add(limit), fresh: r.NoResend, gate: r.BeforeWrite, parent: ctx, tls: r.TLS, url: target.URL}
	a.exchange.attempt = a
	a.Context, a.cancel = context.WithCancelCause(ctx)
	a.timer = time.AfterFunc(limit, a.expire)
	a.trace.GotConn = a.onConn
	a.trace.GotFirstResponseByte = a.onFirstByte
	a.trace.PutIdleConn = a.onIdle
	a.traced = httptrace.WithClientTrace(a, &a.trace)
	return a
}

// dialContext returns a context for a connection that is opened on behalf of the
// attempt in ctx, if there is one. net/http detaches it from the request, since another
// request may use the connection; here it still ends with the attempt's time or the
// caller's context, so that nothing outlives them. It does not end with the attempt.
func dialContext(ctx context.Context) (context.Context, context.CancelFunc) {
	a := attemptFrom(ctx)
	if a == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithDeadline(ctx, a.deadline)
	stop := context.AfterFunc(a.parent, cancel)
	return ctx, func() { stop(); cancel() }
}

// Deadline implements [context.Context].
func (a *attempt) Deadline() (time.Time, bool) {
	if d, ok := a.Context.Deadline(); ok && d.Before(a.deadline) {
		return d, true
	}
	return a.deadline, true
}

// Value implements [context.Context].
func (a *attempt) Value(key any) any {
	if _, ok := key.(attemptKey); ok {
		return a
	}
	return a.Context.Value(key)
}

func (a *attempt) expire() {
	a.timeUp.Store(true)
	a.cancel(errTimeUp)
}

func (a *attempt) end() {
	a.timer.Stop()
	a.cancel(nil)
}

func (a *attempt) onConn(info httptrace.GotConnInfo) {
	a.gotConn.Store(true)
	a.reused.Store(info.Reused)
	// net/http calls this before it writes, so a connection that is closed here takes
	// nothing with it.
	own, _ := info.Conn.(*conn)
	if own != nil && info.Reused && time.Now().After(own.expires) {
		a.retired.Store(true)
		_ = own.Close()
	}
	a.mu.Lock()
	a.nc = info.Conn
	a.mu.Unlock()
	if own != nil {
		own.armed.Store(&a.exchange)
	}
}

// onIdle is called when the answer was read to its end.
func (a *attempt) onIdle(error) {
	if own, ok := a.connection().(*conn); ok {
		own.putIdle(&a.exchange)
	}
}

// mayWrite is asked before the request's first byte. What it answers is kept in
// refused: net/http closes the connection of a write that failed, and may report what
// its reader makes of that instead.
func (a *attempt) mayWrite() error {
	if a.gate != nil {
		if err := a.gate(); err != nil {
			return a.refuse(ClassCancelled, err)
		}
	}
	if !time.Now().Before(a.deadline) {
		return a.refuse(ClassTimeout, errTimeUp)
	}
	return nil
}

func (a *attempt) refuse(c Class, err error) error {
	refused := &opError{class: c, doing: "not sent", err: err}
	a.refused.Store(refused)
	return refused
}

func (a *attempt) onFirstByte() { a.firstByte.Store(true) }

func (a *attempt) connection() net.Conn {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.nc
}

// limitBody leaves at most d for the body, within the attempt's time.
func (a *attempt) limitBody(d time.Duration) {
	if left := time.Until(a.deadline); left > d {
		a.timer.Reset(d)
	}
}

// resendable reports whether err is the race between a request and the end of an idle
// connection: pooled, no byte of an answer, and neither time nor caller gone. Some
// servers say goodbye in words; net/http then reports those as its error.
func (a *attempt) resendable(r *Request, err error) bool {
	if a.refused.Load() != nil {
		return false
	}
	if a.retired.Load() {
		return a.Err() == nil
	}
	return !r.NoResend && a.reused.Load() && !a.firstByte.Load() && a.Err() == nil &&
		(Classify(err) == ClassReset || strings.Contains(err.Error(), "readLoopPeekFailLocked"))
}

// again prepares the second and last try.
func (a *attempt) again() {
	a.fresh = true
	a.retired.Store(false)
	a.reused.Store(false)
}

// failure returns the class and the operator's detail of a request without an answer.
// When the attempt's time or the caller's context ended, that is the reason, whatever
// its end looked like from where the request stood; only a fault that has nothing to
// do with it keeps its own class.
func (a *attempt) failure(ctx context.Context, err error) (Class, error) {
	if refused := a.refused.Load(); refused != nil {
		return refused.class, refused
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // a foreign transport's; it quotes the URL, query and all
	}
	op, known := errors.AsType[*opError](err)
	if known && !isTimeout(err) && !errors.Is(err, context.Canceled) {
		return op.class, err
	}
	if a.timeUp.Load() {
		return ClassTimeout, &opError{class: ClassTimeout, doing: a.phase(), err: errTimeUp}
	}
	if ctx.Err() != nil {
		return ClassCancelled, &opError{class: ClassCancelled, doing: a.phase(), err: context.Cause(ctx)}
	}
	c := Classify(err)
	if c == ClassProtocol {
		err = withoutQuotes(err)
	}
	return c, err
}

// phase says how far the attempt came.
func (a *attempt) phase() string {
	switch {
	case !a.gotConn.Load():
		return "no connection yet"
	case !a.firstByte.Load():
		return "no answer yet"
	}
	return "answer incomplete"
}

// sent reports whether the request may have left. A foreign transport may not tell
// about its connection; then only a class from before the request says no.
func (a *attempt) sent(c Class) bool {
	if a.gotConn.Load() {
		return true
	}
	early := c == ClassBlocked || c == ClassConnect || c == ClassDNS || c == ClassProxy
	return !early && !a.guarded.Load()
}
