package webhook

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestRetryAfterInAllItsForms(t *testing.T) {
	t.Parallel() // B47, R10, R11
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"":                       0,
		"120":                    2 * time.Minute,
		" 120 ":                  2 * time.Minute,
		"1.2":                    2 * time.Second,
		"0":                      0,
		"-5":                     0,
		"+5":                     0,
		"soon":                   0,
		"abc":                    0,
		"NaN":                    0,
		"Inf":                    0,
		"0x10":                   0,
		"1e3":                    0,
		"1.2.3":                  0,
		".":                      0,
		"864000":                 time.Hour,
		"99999999999999999999":   time.Hour,
		strings.Repeat("9", 400): time.Hour,
		now.Add(90 * time.Second).Format(http.TimeFormat): 90 * time.Second,
		now.Add(-time.Minute).Format(http.TimeFormat):     0,
		"Fri, 31 Dec 9999 23:59:59 GMT":                   time.Hour,
		"Monday, 30-Nov-26 12:01:00 GMT":                  time.Minute,
		"Mon Nov 30 12:01:00 2026":                        time.Minute,
		"Mon, 30 Nov 2026 12:01:00 XXX":                   0,
	} {
		assert.Equal(t, want, retryAfter(http.StatusTooManyRequests, value, now), "429 with %q", value)
		assert.Equal(t, want, retryAfter(http.StatusServiceUnavailable, value, now), "503 with %q", value)
		assert.Zero(t, retryAfter(http.StatusInternalServerError, value, now), "500 with %q", value)
	}
}
