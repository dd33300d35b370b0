package webhook

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/vitals"
)

func TestWhatDisablesAnEndpointAndWhen(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	failing := func(d time.Duration, n int64) *vitals.State {
		return &vitals.State{Run: vitals.Run{Failures: n, Since: now.Add(-d)}}
	}
	low := func(d, scored time.Duration) *vitals.State {
		v := failing(d, 50)
		v.Outcomes.Bits, v.Outcomes.Known = 1<<50-1, 50
		v.LowSince = now.Add(-scored)
		return v
	}
	const hour = time.Hour
	for _, row := range []struct {
		name     string
		cfg      AutoDisableConfig
		v        *vitals.State
		open     time.Duration
		window   time.Duration
		disabled string
	}{
		{"nothing failed", AutoDisableConfig{}, &vitals.State{}, 0, 72 * hour, ""},
		{"72 hours, by default", AutoDisableConfig{}, failing(72*hour+lastAttempt, 10), 0, 100 * hour, "no success for 72 h in 10 attempts"},
		{"less than 72 hours", AutoDisableConfig{}, failing(72*hour+lastAttempt-time.Second, 1000), 0, 72 * hour, ""},
		{"too few attempts", AutoDisableConfig{}, failing(100*hour, 9), 0, 72 * hour, ""},
		{"other numbers", AutoDisableConfig{NoSuccessFor: hour, MinAttempts: 2}, failing(hour+lastAttempt, 2), 0, 72 * hour, "no success for 1 h in 2 attempts"},
		{"off", AutoDisableConfig{NoSuccessFor: -1}, failing(1000*hour, 1000), 1000 * hour, 72 * hour, ""},
		{"failures in a row", AutoDisableConfig{ConsecutiveFailures: 20}, failing(hour, 20), 0, hour, "20 failures in a row"},
		{"one fewer", AutoDisableConfig{ConsecutiveFailures: 20}, failing(hour, 19), 0, hour, ""},
		{"failures in a row within the retry window", AutoDisableConfig{ConsecutiveFailures: 20}, failing(hour, 99), 0, 2 * hour, ""},
		{"circuit open", AutoDisableConfig{CircuitOpenFor: 48 * hour}, failing(50*hour, 5), 48*hour + time.Second, 4 * hour, "circuit open for 48 h"},
		{"circuit not open for long", AutoDisableConfig{CircuitOpenFor: 48 * hour}, failing(50*hour, 5), 48 * hour, 4 * hour, ""},
		{"circuit open within the retry window", AutoDisableConfig{CircuitOpenFor: 48 * hour}, failing(50*hour, 5), 49 * hour, 72 * hour, ""},
		{"low score", AutoDisableConfig{ScoreBelow: 10}, low(30*hour, 24*hour), 0, 4 * hour, "score under 10 for 24 h"},
		{"low score, not for long", AutoDisableConfig{ScoreBelow: 10}, low(30*hour, 23*hour), 0, 4 * hour, ""},
		{"low score, by default", AutoDisableConfig{}, low(30*hour, 30*hour), 0, 4 * hour, ""},
		{"low score within the retry window", AutoDisableConfig{ScoreBelow: 10}, low(30*hour, 30*hour), 0, 72 * hour, ""},
	} {
		cfg, refused := row.cfg.withDefaults()
		require.Nil(t, refused, row.name)
		open := time.Time{}
		if row.open > 0 {
			open = now.Add(-row.open)
		}
		reason, disabled := cfg.verdict(row.v, open, now, row.window)
		assert.Equal(t, row.disabled != "", disabled, row.name)
		assert.Equal(t, row.disabled, reason, row.name)
	}
}

func TestARetrySpanIsTheWindowOrTheSumOfTheDelays(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 72*time.Hour, retrySpan(DefaultRetrySchedule()))
	assert.Zero(t, retrySpan(RetrySchedule{}))
	assert.Equal(t, 3*time.Second, retrySpan(RetrySchedule{Delays: []time.Duration{time.Second, 2 * time.Second}}))
	assert.Equal(t, 24*time.Hour, retrySpan(ExponentialRetry{}))
	assert.Equal(t, 72*time.Hour, retrySpan(silentPolicy{}), "of one that does not say")
}

type silentPolicy struct{}

func (silentPolicy) Next(RetryInput) (time.Time, bool) { return time.Time{}, false }

func TestAutoDisableConfigsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	for field, cfg := range map[string]AutoDisableConfig{
		"MinAttempts":         {MinAttempts: -1},
		"ScoreBelow":          {ScoreBelow: 101},
		"ScoreBelowFor":       {ScoreBelowFor: -1},
		"ConsecutiveFailures": {ConsecutiveFailures: -1},
	} {
		_, refused := cfg.withDefaults()
		require.NotNil(t, refused, field)
		assert.Equal(t, field, refused.Field)
	}
}

func BenchmarkObserve(b *testing.B) {
	r := &run{cfg: &DispatcherConfig{}}
	k := newHealthKeeper(r)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := sent{result: Result{State: StateDelivered, Attempt: &Attempt{StartedAt: at, Latency: time.Millisecond, Status: 200, Number: 1}}, outcome: 1}
	ids := make([][16]byte, 1000)
	for i := range ids {
		ids[i][0], ids[i][1] = byte(i), byte(i>>8)
		k.observe(ids[i], &s)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		k.observe(ids[i%1000], &s)
		i++
	}
}
