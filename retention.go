package webhook

import (
	"fmt"
	"time"
)

// Defaults of [RetentionPolicy] (docs/design.md §4).
const (
	DefaultRetentionDead       = 30 * day
	DefaultRetentionDeliveries = 7 * day
	DefaultRetentionEvents     = 30 * day

	// MinRetention is the shortest retention: days are counted when they are over,
	// and stores remove whole days at a time.
	MinRetention = day

	day = 24 * time.Hour
)

// RetentionPolicy says how long things are kept that nothing waits for any more.
// For every field zero means the default, negative means for ever, and anything
// between zero and [MinRetention] is refused. What is removed is removed in the
// hours after its time: until then it is there and may be read.
//
// What is pending is never removed, whatever its age, and neither is its event.
type RetentionPolicy struct {
	// Dead is how long dead, cancelled and shed deliveries are kept, with their
	// attempts, from when they ended. Default 30 days.
	Dead time.Duration

	// Deliveries is how long delivered deliveries are kept, with their attempts,
	// from when they were delivered. Default 7 days.
	Deliveries time.Duration

	// Events is how long events are kept, with their payloads and idempotency
	// keys, from when they were enqueued. A delivery whose event is gone can be
	// read and not be replayed. Default 30 days; not less than the other two.
	Events time.Duration
}

// withDefaults returns a copy with the defaults filled in.
func (p RetentionPolicy) withDefaults() (RetentionPolicy, error) {
	orDuration(&p.Dead, DefaultRetentionDead)
	orDuration(&p.Deliveries, DefaultRetentionDeliveries)
	orDuration(&p.Events, DefaultRetentionEvents)
	for _, f := range []struct {
		field string
		value time.Duration
	}{{"Dead", p.Dead}, {"Deliveries", p.Deliveries}, {"Events", p.Events}} {
		field := "DispatcherConfig.Retention." + f.field
		if f.value > 0 && f.value < MinRetention {
			return RetentionPolicy{}, invalid(field, fmt.Sprintf("is %v, want at least %v, or less than 0 for ever", f.value, MinRetention))
		}
		if longest := longer(p.Dead, p.Deliveries); f.field == "Events" && longer(f.value, longest) != f.value {
			return RetentionPolicy{}, invalid(field, fmt.Sprintf("is %v, want at least what deliveries are kept for (%v), or less than 0 for ever", f.value, longest))
		}
	}
	return p, nil
}

// longer returns the longer of two retentions, of which a negative one is for ever.
func longer(a, b time.Duration) time.Duration {
	if a < 0 || b < 0 {
		return min(a, b)
	}
	return max(a, b)
}

// before returns the time before which a retention has passed; zero for ever.
func before(now time.Time, retention time.Duration) time.Time {
	if retention < 0 {
		return time.Time{}
	}
	return now.Add(-retention)
}
