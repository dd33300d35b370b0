package egress

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

// readBufferBytes is the buffer that net/http gets for a connection's answers. A read
// into more than that is the body's own, see conn.Read.
const readBufferBytes = 1 << 10

// conn is a connection whose far address the guard judged: behind an egress proxy the
// connection's own remote address is the proxy's, so the verdict travels with it.
//
// It also stands between the peer and net/http, so that net/http never holds a byte that
// belongs to no answer: it prints those to the standard logger, and they are a
// stranger's to choose. So an answer is handed on in steps that cannot go beyond its
// end, and what arrives while no answer is expected ends the connection.
type conn struct {
	net.Conn // TCP, or TLS over it

	expires time.Time // from then on no request is written to it
	verdict verdict

	armed    atomic.Pointer[exchange] // has been given the connection, and is yet to write
	expected atomic.Pointer[exchange] // has written, and is yet to get its whole answer

	used    chan struct{} // closed by the first write of an exchange
	useOnce sync.Once
	closed  chan struct{}
	ending  sync.Once

	// Owned by whoever reads: net/http has one reader at a time and orders them.
	reading *exchange // whose answer is being read
	headers bool      // its headers are not over
	text    bool      // the present line of them is not blank
	spent   bool      // the peer has said more than it was asked
	rest    []byte    // read, but not handed on yet
	restErr error     // comes after rest
}

// exchange is one request and its answer on a connection.
type exchange struct {
	attempt *attempt // nil if the request is not a Client's
}

func newConn(nc net.Conn, expires time.Time, v verdict) *conn {
	return &conn{Conn: nc, expires: expires, verdict: v, used: make(chan struct{}), closed: make(chan struct{})}
}

// Write asks the attempt that the connection was given to, before its first byte.
func (c *conn) Write(b []byte) (int, error) {
	if x := c.armed.Swap(nil); x != nil {
		if x.attempt != nil {
			if err := x.attempt.mayWrite(); err != nil {
				return 0, err
			}
		}
		c.expected.Store(x)
		c.useOnce.Do(func() { close(c.used) })
	}
	return c.Conn.Write(b)
}

// Close closes the connection.
func (c *conn) Close() error {
	c.ending.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// putIdle notes that the answer to x is complete. It is called by the reader, possibly
// after the next request went out.
func (c *conn) putIdle(x *exchange) {
	c.expected.CompareAndSwap(x, nil)
	if len(c.rest) > 0 {
		c.rest, c.spent = nil, true
	}
}

// Read hands on what belongs to an expected answer. Headers come line by line, since a
// parser stops only after a line. How long a body is only net/http knows: a read into
// more than its buffer asks for no more than the body has left and gets what there is;
// any other fills the buffer, and gets one byte.
func (c *conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if c.spent {
		return 0, io.EOF
	}
	fresh := len(c.rest) == 0
	if fresh {
		if err := c.restErr; err != nil {
			return 0, err
		}
		n, err := c.Conn.Read(p)
		if n == 0 {
			return 0, err
		}
		c.rest, c.restErr = p[:n], err
	}
	if !c.answering() {
		c.rest, c.spent = nil, true
		return 0, io.EOF
	}
	n := min(c.step(len(p)), len(p))
	if !fresh {
		copy(p, c.rest[:n])
		c.rest = c.rest[n:]
	} else if c.rest = c.rest[n:]; len(c.rest) > 0 {
		c.rest = bytes.Clone(c.rest) // p is the caller's
	}
	return n, nil
}

// answering reports whether an answer is expected. Before the first request it waits for
// it: a peer that speaks first has spoken too early, but the request will say so.
func (c *conn) answering() bool {
	x := c.expected.Load()
	if x == nil {
		select {
		case <-c.used:
		default:
			select {
			case <-c.used:
			case <-c.closed:
				return false
			}
		}
		if x = c.expected.Load(); x == nil {
			return false
		}
	}
	if x != c.reading {
		c.reading, c.headers, c.text = x, true, false
	}
	return true
}

// step returns how much of rest may be handed on to a read of the given size.
func (c *conn) step(size int) int {
	if !c.headers {
		if size > readBufferBytes {
			return len(c.rest)
		}
		return 1
	}
	for i, b := range c.rest {
		switch b {
		case '\n':
			c.headers = c.text
			c.text = false
			return i + 1
		case '\r':
		default:
			c.text = true
		}
	}
	return len(c.rest)
}

// tracked returns req with a trace that tells its connection when its answer begins and
// ends. A [Client] brings one of its own.
func tracked(req *http.Request) *http.Request {
	x := &exchange{}
	var given atomic.Pointer[conn]
	return req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			if own, ok := info.Conn.(*conn); ok {
				given.Store(own)
				own.armed.Store(x)
			}
		},
		PutIdleConn: func(error) {
			if own := given.Load(); own != nil {
				own.putIdle(x)
			}
		},
	}))
}
