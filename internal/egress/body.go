package egress

import (
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
)

const (
	// MaxRead is how much of a response body is read at all. Reading to the end keeps
	// the connection, so it is more than what is kept; an endless body costs no more.
	MaxRead = 16 << 10

	excerptBytes        = 1 << 10 // docs/design.md §7
	successExcerptBytes = 64      // docs/design.md §1
	maxLocation         = 2 << 10
	maxRetryAfter       = 128
)

// readBuffers are as long as MaxRead, so that one body is one slice.
var readBuffers = sync.Pool{New: func() any { return new([MaxRead]byte) }}

// readBody reads at most MaxRead bytes and keeps the first keep of them. Of a 2xx it
// keeps the hash as well.
func readBody(resp *http.Response, keep int, res *Result) {
	if resp.Body == http.NoBody {
		return
	}
	buf := readBuffers.Get().(*[MaxRead]byte)
	defer readBuffers.Put(buf)
	n, err := readUpTo(resp.Body, buf[:])
	if errors.Is(err, io.EOF) {
		err = nil
	} else {
		res.Truncated = true
	}
	res.BodyErr = err
	if n == 0 {
		return
	}
	if n > keep {
		res.Truncated = true
	}
	res.Excerpt = append([]byte(nil), buf[:min(n, keep)]...)
	if res.Class == ClassNone {
		sum := sha256.Sum256(buf[:n])
		res.BodyHash = sum[:]
	}
}

// readUpTo fills buf until it is full, without an error, or the body ends. Reading up
// to the very end, io.EOF, is what gives the connection back to its pool.
func readUpTo(body io.Reader, buf []byte) (int, error) {
	n := 0
	for n < len(buf) {
		m, err := body.Read(buf[n:])
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// cleanHeader cuts s and replaces what is not printable ASCII, so that neither a
// terminal nor a page acts on it.
func cleanHeader(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}
