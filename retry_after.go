package webhook

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxRetryAfter caps what a receiver may ask for (docs/design.md §4).
const maxRetryAfter = time.Hour

// retryAfter returns how long a response asks to be left alone: the value of
// its Retry-After header (RFC 9110 §10.2.3), in seconds or as a date, between 0
// and maxRetryAfter. Only 429 and 503 are asked; what cannot be read is ignored.
func retryAfter(status int, value string, now time.Time) time.Duration {
	if status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable {
		return 0
	}
	value = strings.TrimSpace(value)
	if value == "" {
		return 0
	}
	if strings.Trim(value, "0123456789.") == "" {
		// Some receivers send fractions of seconds, which the RFC does not know.
		seconds, err := strconv.ParseFloat(value, 64)
		switch {
		case errors.Is(err, strconv.ErrRange) || err == nil && seconds >= maxRetryAfter.Seconds():
			return maxRetryAfter
		case err != nil:
			return 0
		}
		return time.Duration(math.Ceil(seconds)) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}
