package webhook

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/outhook/webhook/internal/egress"
)

// leastScrubbed is the shortest value that is looked for: shorter ones are no
// credentials, and are found everywhere.
const leastScrubbed = 8

// scrub takes the credentials that a request carried out of what is kept of its
// answer: debug pages and echo services show the headers that they got, and the log
// is kept in the clear. It finds them as they were sent, not re-encoded.
func scrub(res *egress.Result, sent http.Header) {
	if len(res.Excerpt) == 0 && res.Location == "" {
		return
	}
	for name, values := range sent {
		if isPublicHeader(name) {
			continue
		}
		for _, value := range values {
			scrubValue(res, value)
			// "Bearer token" may come back without its first word.
			if _, token, ok := strings.Cut(value, " "); ok {
				scrubValue(res, token)
			}
		}
	}
}

func scrubValue(res *egress.Result, value string) {
	if len(value) < leastScrubbed {
		return
	}
	if bytes.Contains(res.Excerpt, []byte(value)) {
		res.Excerpt = bytes.ReplaceAll(res.Excerpt, []byte(value), []byte(redacted))
	}
	res.Location = strings.ReplaceAll(res.Location, value, redacted)
	// The excerpt may end in the middle of it.
	for n := min(len(value)-1, len(res.Excerpt)); res.Truncated && n >= leastScrubbed/2; n-- {
		if bytes.HasSuffix(res.Excerpt, []byte(value[:n])) {
			res.Excerpt = append(res.Excerpt[:len(res.Excerpt)-n], redacted...)
			break
		}
	}
}

// isPublicHeader reports whether a header of a request holds nothing that the
// delivery log does not hold as well.
func isPublicHeader(name string) bool {
	switch name {
	case headerContentType, headerUserAgent, headerIdempotencyKey, headerAttempt, headerReplay:
		return true
	}
	return false
}
