package webhook_test

import (
	"fmt"
	"time"

	"github.com/outhook/webhook"
)

// Five attempts within an hour, of which only those that fail for a passing reason
// are repeated. It goes into [webhook.DispatcherConfig.Retry].
func ExampleRetrySchedule() {
	policy := webhook.StrictRetry(webhook.RetrySchedule{
		Delays: []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute, 30 * time.Minute},
		Jitter: 0, // 0.2 where many deliveries may fail at once
		Window: time.Hour,
	})

	began := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	now := began
	for attempt := 1; ; attempt++ {
		at, retry := policy.Next(webhook.RetryInput{Now: now, CreatedAt: began, Attempts: attempt, Status: 503})
		if !retry {
			fmt.Println("attempt", attempt, "was the last")
			break
		}
		fmt.Println("attempt", attempt+1, "after", at.Sub(began))
		now = at
	}
	_, retry := policy.Next(webhook.RetryInput{Now: began, CreatedAt: began, Attempts: 1, Status: 400})
	fmt.Println("after a 400:", retry)
	// Output:
	// attempt 2 after 10s
	// attempt 3 after 1m10s
	// attempt 4 after 11m10s
	// attempt 5 after 41m10s
	// attempt 5 was the last
	// after a 400: false
}
