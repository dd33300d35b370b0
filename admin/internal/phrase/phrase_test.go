package phrase_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/outhook/webhook/admin/internal/phrase"
)

func TestSpansHaveTheUnitsThatPeopleUse(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0:                                     "0 s",
		1200 * time.Microsecond:               "1.2 ms",
		42 * time.Millisecond:                 "42 ms",
		1250 * time.Millisecond:               "1.2 s",
		42 * time.Second:                      "42 s",
		3 * time.Minute:                       "3 min",
		3*time.Minute + 20*time.Second:        "3 min 20 s",
		12*time.Minute + 20*time.Second:       "12 min",
		2*time.Hour + 5*time.Minute:           "2 h 5 min",
		23 * time.Hour:                        "23 h",
		50 * time.Hour:                        "2 d 2 h",
		-3 * time.Minute:                      "3 min",
		9 * 24 * time.Hour:                    "9 d",
		59*time.Minute + 59*time.Second + 9e8: "60 min",
	} {
		assert.Equal(t, want, phrase.Span(d), "%s", d)
	}
}

func TestTimesAreSaidFromNow(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 2, 14, 2, 9, 0, time.UTC)
	for want, at := range map[string]time.Time{
		"never":       {},
		"just now":    now.Add(-time.Second),
		"20 s ago":    now.Add(-20 * time.Second),
		"3 min ago":   now.Add(-3*time.Minute - 20*time.Second),
		"in 3 min":    now.Add(3 * time.Minute),
		"2 d ago":     now.Add(-50 * time.Hour),
		"2 Oct 2026":  now.AddDate(0, -1, 0),
		"12 Nov 2026": now.AddDate(0, 0, 10),
	} {
		assert.Equal(t, want, phrase.Ago(at, now))
	}
	assert.Equal(t, "13:55 UTC", phrase.Since(now.Add(-7*time.Minute-9*time.Second), now))
	assert.Equal(t, "1 Nov, 14:02 UTC", phrase.Since(now.Add(-24*time.Hour), now))
	assert.Equal(t, "2 Nov 2024", phrase.Since(now.AddDate(-2, 0, 0), now))
	assert.Equal(t, "2 Nov 2026, 14:02:09 UTC", phrase.Time(now))
}

func TestNumbersAreGrouped(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 7: "7", 999: "999", 1204: "1,204", 1234567: "1,234,567", -1204: "-1,204", -120: "-120", 100000: "100,000"} {
		assert.Equal(t, want, phrase.Number(n))
	}
	assert.Equal(t, "1 delivery", phrase.Plural(1, "delivery", "deliveries"))
	assert.Equal(t, "1,204 deliveries", phrase.Plural(1204, "delivery", "deliveries"))
	assert.Equal(t, "17 bytes", phrase.Bytes(17))
	assert.Equal(t, "1.5 KiB", phrase.Bytes(1536))
	assert.Equal(t, "2 MiB", phrase.Bytes(2<<20))
}

func TestAPartIsNeverSaidToBeAllOrNothing(t *testing.T) {
	t.Parallel()
	for part, want := range map[float64]string{1: "100 %", 0.9999: "> 99.9 %", 0.994: "99.4 %", 0.876: "87 %", 0: "0 %", 0.0001: "< 0.1 %", 0.004: "0.4 %"} {
		assert.Equal(t, want, phrase.Percent(part))
	}
}
