package webhook_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
)

// walk follows a policy from the first failure to the end and returns when each
// further attempt is due, counted from the beginning of the run. An attempt
// takes no time.
func walk(p webhook.RetryPolicy) (due []time.Duration) {
	began := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	now := began
	for n := 1; ; n++ {
		at, ok := p.Next(webhook.RetryInput{Now: now, CreatedAt: began, Attempts: n})
		if !ok {
			return due
		}
		due = append(due, at.Sub(began))
		now = at
	}
}

func TestTheDefaultScheduleMakes16AttemptsIn72Hours(t *testing.T) {
	t.Parallel()
	s := webhook.DefaultRetrySchedule()
	s.Jitter = 0
	second, minute, hour := time.Second, time.Minute, time.Hour
	base := 42*minute + 35*second
	assert.Equal(t, []time.Duration{
		5 * second, 35 * second, 2*minute + 35*second, 12*minute + 35*second, base,
		base + hour, base + 3*hour, base + 7*hour, base + 13*hour, base + 21*hour,
		base + 31*hour, base + 41*hour, base + 51*hour, base + 61*hour, base + 71*hour,
	}, walk(s))
}

func TestJitterStaysWithin20PercentAndTheWindow(t *testing.T) {
	t.Parallel()
	s := webhook.DefaultRetrySchedule()
	for range 1000 {
		due := walk(s)
		require.Len(t, due, 15, "an attempt that jitter puts past the window moves to its end, and is made")
		before := time.Duration(0)
		for i, at := range due {
			delay := at - before
			if at != s.Window {
				require.GreaterOrEqual(t, delay, s.Delays[i]*8/10)
			}
			require.LessOrEqual(t, delay, s.Delays[i]*12/10)
			require.LessOrEqual(t, at, s.Window)
			before = at
		}
	}
}

func TestB47RetryAfterIsALowerBound(t *testing.T) {
	t.Parallel() // B47
	s := webhook.DefaultRetrySchedule()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for range 1000 {
		at, ok := s.Next(webhook.RetryInput{Now: now, CreatedAt: now, Attempts: 1, RetryAfter: 2 * time.Minute})
		require.True(t, ok)
		require.Equal(t, 2*time.Minute, at.Sub(now), "jitter never goes under what the receiver asked for")
		at, ok = s.Next(webhook.RetryInput{Now: now, CreatedAt: now, Attempts: 6, RetryAfter: 2 * time.Minute})
		require.True(t, ok)
		require.GreaterOrEqual(t, at.Sub(now), 48*time.Minute)
	}
}

func TestPastTheWindowADeliveryIsDead(t *testing.T) {
	t.Parallel()
	s := webhook.DefaultRetrySchedule()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	began := now.Add(-s.Window)
	_, ok := s.Next(webhook.RetryInput{Now: now, CreatedAt: began, Attempts: 3})
	assert.False(t, ok)
	at, ok := s.Next(webhook.RetryInput{Now: now.Add(-time.Nanosecond), CreatedAt: began, Attempts: 3})
	assert.True(t, ok)
	assert.Equal(t, now, at)
}

func TestTheZeroScheduleRetriesNothing(t *testing.T) {
	t.Parallel()
	assert.Empty(t, walk(webhook.RetrySchedule{}))
}

func TestTheStandardWebhooksScheduleMakes10AttemptsIn75Hours(t *testing.T) {
	t.Parallel()
	s := webhook.StandardWebhooksRetrySchedule()
	s.Jitter = 0
	due := walk(s)
	require.Len(t, due, 9)
	assert.Equal(t, 5*time.Second, due[0])
	assert.Equal(t, 5*time.Minute+5*time.Second, due[1])
	assert.Equal(t, 75*time.Hour+35*time.Minute+5*time.Second, due[8])
}

func TestTheShortScheduleMakes8AttemptsIn4Hours(t *testing.T) {
	t.Parallel()
	for range 1000 {
		due := walk(webhook.ShortRetrySchedule())
		require.Len(t, due, 7)
		require.LessOrEqual(t, due[6], 4*time.Hour)
	}
}

func TestExponentialRetryDoublesUpToItsCap(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	e := webhook.ExponentialRetry{}
	for n, bound := range map[int]time.Duration{
		1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 12: 2048 * time.Second,
		13: time.Hour, 40: time.Hour, 1000: time.Hour,
	} {
		longest := time.Duration(0)
		for range 2000 {
			at, ok := e.Next(webhook.RetryInput{Now: now, CreatedAt: now, Attempts: n})
			require.True(t, ok)
			delay := at.Sub(now)
			require.GreaterOrEqual(t, delay, time.Duration(0))
			require.LessOrEqual(t, delay, bound, "after attempt %d", n)
			longest = max(longest, delay)
		}
		assert.Greater(t, longest, bound/2, "jitter is full after attempt %d", n)
	}
	_, ok := e.Next(webhook.RetryInput{Now: now.Add(24 * time.Hour), CreatedAt: now, Attempts: 2})
	assert.False(t, ok, "the window ends after 24 h")
}

func TestStrictRetryEndsWhatTheReceiverCallsWrong(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	p := webhook.StrictRetry(webhook.DefaultRetrySchedule())
	for status := range 600 {
		_, retry := p.Next(webhook.RetryInput{Now: now, CreatedAt: now, Attempts: 1, Status: status})
		final := status >= 400 && status <= 499 && status != 408 && status != 425 && status != 429
		assert.Equal(t, !final, retry, "status %d", status)
	}
}

func TestARetryPolicyThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	hooks, err := webhook.New(webhooktest.NewStore(), webhook.Config{Secrets: webhook.InsecurePlaintext()})
	require.NoError(t, err)
	defer hooks.Close()

	for problem, policy := range map[string]webhook.RetryPolicy{
		"Delays[1] is -1s": webhook.RetrySchedule{Delays: []time.Duration{0, -time.Second}},
		"Jitter is 20":     webhook.RetrySchedule{Jitter: 20},
		"Jitter is NaN":    webhook.RetrySchedule{Jitter: math.NaN()},
		"schedule: Window": webhook.RetrySchedule{Window: -1},
		"Base is -1s":      webhook.ExponentialRetry{Base: -time.Second},
		"Cap is -1s":       webhook.ExponentialRetry{Cap: -time.Second},
		"retry: Window":    webhook.StrictRetry(webhook.ExponentialRetry{Window: -1}),
	} {
		_, err := hooks.NewDispatcher(webhook.DispatcherConfig{Retry: policy})
		require.ErrorIs(t, err, webhook.ErrInvalid, problem)
		require.ErrorContains(t, err, "DispatcherConfig.Retry", problem)
		require.ErrorContains(t, err, problem)
	}
	_, err = hooks.NewDispatcher(webhook.DispatcherConfig{Retry: webhook.StrictRetry(nil)})
	require.NoError(t, err, "nil is the default, here as in the DispatcherConfig")
}
