package webhooktest

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Behavior answers a request that a [Receiver] got; any http.HandlerFunc is one.
// The request's body has been read. A behavior that waits must give up when the
// request's context ends.
type Behavior func(w http.ResponseWriter, r *http.Request)

// Status answers with a status and no body.
func Status(code int) Behavior {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// Reply answers with a status and a body.
func Reply(code int, contentType string, body []byte) Behavior {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		_, _ = w.Write(body) // the sender may have hung up, which is its right
	}
}

// Redirect answers with a status of 3xx that points to location.
func Redirect(code int, location string) Behavior {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", location)
		w.WriteHeader(code)
	}
}

// TooManyRequests answers with 429 and a Retry-After of whole seconds, or without
// one if retryAfter is 0.
func TooManyRequests(retryAfter time.Duration) Behavior {
	return func(w http.ResponseWriter, _ *http.Request) {
		if retryAfter > 0 {
			seconds := int((retryAfter + time.Second - 1) / time.Second)
			w.Header().Set("Retry-After", strconv.Itoa(seconds))
		}
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

// Delay waits for d before it answers as told.
func Delay(d time.Duration, then Behavior) Behavior {
	return func(w http.ResponseWriter, r *http.Request) {
		pause(r.Context(), d)
		then(w, r)
	}
}

// Hang never answers: it waits until the sender or the receiver gives up.
func Hang() Behavior {
	return Hold(nil, nil)
}

// Hold waits until release is closed before it answers as told, so that a test
// can decide when.
func Hold(release <-chan struct{}, then Behavior) Behavior {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
			then(w, r)
		case <-r.Context().Done():
			giveUp()
		}
	}
}

// Drip answers with a status at once and then sends the body a byte at a time,
// with a pause before each.
func Drip(code int, body []byte, each time.Duration) Behavior {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(code)
		flush := http.NewResponseController(w)
		_ = flush.Flush()
		for i := range body {
			pause(r.Context(), each)
			if _, err := w.Write(body[i : i+1]); err != nil {
				return
			}
			_ = flush.Flush()
		}
	}
}

// DripHeader sends the response's header a byte at a time, with a pause before
// each, and never comes to its end.
func DripHeader(each time.Duration) Behavior {
	return func(w http.ResponseWriter, r *http.Request) {
		conn, ok := hijack(w)
		if !ok {
			return
		}
		defer conn.Close()
		header := "HTTP/1.1 200 OK\r\nX-Slow: "
		for i := 0; ; i++ {
			next := "x"
			if i < len(header) {
				next = header[i : i+1]
			}
			pause(r.Context(), each)
			if _, err := io.WriteString(conn, next); err != nil {
				return
			}
		}
	}
}

// Reset breaks the connection with a TCP reset instead of an answer.
func Reset() Behavior {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, ok := hijack(w)
		if !ok {
			return
		}
		if secure, ok := conn.(*tls.Conn); ok {
			conn = secure.NetConn() // no farewell of TLS before the reset
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // makes Close send a reset
		}
		_ = conn.Close()
	}
}

// Raw writes bytes in the place of an HTTP response and hangs up.
func Raw(response []byte) Behavior {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, ok := hijack(w)
		if !ok {
			return
		}
		_, _ = conn.Write(response)
		_ = conn.Close()
	}
}

// Flapping answers by one behavior for some requests, then by the other for
// some, and so on.
func Flapping(good Behavior, goodFor int, bad Behavior, badFor int) Behavior {
	var mu sync.Mutex // protects n
	n := 0
	return func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		isGood := n%(goodFor+badFor) < goodFor
		n++
		mu.Unlock()
		if isGood {
			good(w, r)
			return
		}
		bad(w, r)
	}
}

// Capacity lets at most n requests at a time be answered as told; one more is
// answered by overload.
func Capacity(n int, within, overload Behavior) Behavior {
	slots := make(chan struct{}, n)
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			within(w, r)
		default:
			overload(w, r)
		}
	}
}

// pause waits for d. It does not return if the request is no longer wanted.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		giveUp()
	}
}

// giveUp breaks the connection off: a handler that just returns would answer
// with 200.
func giveUp() { panic(http.ErrAbortHandler) }

// hijack takes the connection over. It cannot with HTTP/2, which a Receiver does
// not speak.
func hijack(w http.ResponseWriter) (net.Conn, bool) {
	conn, _, err := http.NewResponseController(w).Hijack()
	return conn, err == nil
}
