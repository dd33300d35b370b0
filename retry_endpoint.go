package webhook

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// RetryPreset names a retry policy that ships with the library.
type RetryPreset string

// The presets.
const (
	RetryPresetDefault          RetryPreset = "default"           // DefaultRetrySchedule
	RetryPresetStandardWebhooks RetryPreset = "standard_webhooks" // StandardWebhooksRetrySchedule
	RetryPresetExponential      RetryPreset = "exponential"       // ExponentialRetry{}
	RetryPresetShort            RetryPreset = "short"             // ShortRetrySchedule
	RetryPresetStrict           RetryPreset = "strict"            // StrictRetry(nil)
	RetryPresetNone             RetryPreset = "none"              // one attempt and no retry
)

// Limits of an endpoint's own retry policy.
const (
	maxRetryDelays   = 100
	maxRetryWindow   = 30 * day // what events are kept for by default
	maxRetryStatuses = 100
)

// EndpointRetry says how deliveries to one endpoint are retried. Its zero value means
// [DispatcherConfig.Retry]. It is read anew at each attempt, so a change holds for
// what is pending too.
type EndpointRetry struct {
	// Preset names a policy. Empty means the one of the dispatcher, or the schedule in
	// the next three fields; they exclude one another.
	Preset RetryPreset `json:"preset,omitempty"`

	// Delays, Jitter and Window are a schedule of the endpoint's own, as
	// [RetrySchedule] has them. At most 100 delays; none of them, nor Window, over
	// 30 days.
	Delays []time.Duration `json:"delays,omitempty"`
	Jitter float64         `json:"jitter,omitempty"`
	Window time.Duration   `json:"window,omitempty"`

	// Statuses are the HTTP statuses after which there is another attempt: "503", or
	// "5xx" for all of a hundred, from 3xx to 5xx. After any other that means failure
	// the delivery is dead. Empty means that the policy decides, which retries all but
	// 410 unless it is strict. A failure without an answer, such as a timeout, is
	// always up to the policy. At most 100.
	Statuses []string `json:"statuses,omitempty"`
}

// IsZero reports whether nothing is set.
func (r EndpointRetry) IsZero() bool {
	return r.Preset == "" && len(r.Delays) == 0 && r.Jitter == 0 && r.Window == 0 && len(r.Statuses) == 0
}

// schedule reports whether the endpoint has a schedule of its own.
func (r *EndpointRetry) schedule() bool { return len(r.Delays) > 0 || r.Jitter != 0 || r.Window != 0 }

func (r *EndpointRetry) check() *InvalidError {
	switch {
	case r.Preset != "" && presetPolicy(r.Preset) == nil:
		return invalid("Preset", fmt.Sprintf("is %q, which is none of the presets", r.Preset))
	case r.Preset != "" && r.schedule():
		return invalid("Preset", "is set beside a schedule")
	case r.schedule() && len(r.Delays) == 0:
		return invalid("Delays", fmt.Sprintf("is empty beside Jitter or Window; the preset %q means one attempt", RetryPresetNone))
	case len(r.Delays) > maxRetryDelays:
		return &InvalidError{Field: "Delays", Problem: fmt.Sprintf("has %d, over the limit of %d", len(r.Delays), maxRetryDelays), Limit: maxRetryDelays}
	case len(r.Statuses) > maxRetryStatuses:
		return &InvalidError{Field: "Statuses", Problem: fmt.Sprintf("has %d, over the limit of %d", len(r.Statuses), maxRetryStatuses), Limit: maxRetryStatuses}
	case r.Window < 0 || r.Window > maxRetryWindow:
		return invalid("Window", fmt.Sprintf("is %v, not 0 to %v", r.Window, maxRetryWindow))
	case !(r.Jitter >= 0 && r.Jitter <= 1): // so that NaN is neither
		return invalid("Jitter", fmt.Sprintf("is %v, not 0 to 1", r.Jitter))
	}
	for i, d := range r.Delays {
		if d < 0 || d > maxRetryWindow {
			return invalid(fmt.Sprintf("Delays[%d]", i), fmt.Sprintf("is %v, not 0 to %v", d, maxRetryWindow))
		}
	}
	for i, s := range r.Statuses {
		if _, ok := parseStatuses(s); !ok {
			return invalid(fmt.Sprintf("Statuses[%d]", i), fmt.Sprintf("is %q, neither a status from 300 to 599 nor 3xx, 4xx or 5xx", s))
		}
	}
	return nil
}

// policy is what decides on retries to the endpoint, where the dispatcher's own
// policy is byDefault.
func (r *EndpointRetry) policy(byDefault RetryPolicy) RetryPolicy {
	policy := byDefault
	switch {
	case r.schedule():
		policy = RetrySchedule{Delays: r.Delays, Jitter: r.Jitter, Window: r.Window}
	case r.Preset != "":
		// One that is unknown here was written by a newer version.
		if preset := presetPolicy(r.Preset); preset != nil {
			policy = preset
		}
	}
	if len(r.Statuses) == 0 {
		return policy
	}
	if strict, ok := policy.(strictRetry); ok {
		policy = strict.policy // the statuses say it more exactly
	}
	limited := statusRetry{policy: policy}
	for _, s := range r.Statuses {
		if span, ok := parseStatuses(s); ok {
			limited.retried = append(limited.retried, span)
		}
	}
	return limited
}

// presetPolicy returns a policy by its name, or nil.
func presetPolicy(p RetryPreset) RetryPolicy {
	switch p {
	case RetryPresetDefault:
		return DefaultRetrySchedule()
	case RetryPresetStandardWebhooks:
		return StandardWebhooksRetrySchedule()
	case RetryPresetExponential:
		return ExponentialRetry{}
	case RetryPresetShort:
		return ShortRetrySchedule()
	case RetryPresetStrict:
		return StrictRetry(nil)
	case RetryPresetNone:
		return RetrySchedule{}
	}
	return nil
}

// statuses are those from the first to the last.
type statuses struct{ first, last int }

func parseStatuses(s string) (statuses, bool) {
	if len(s) != 3 || s[0] < '3' || s[0] > '5' {
		return statuses{}, false
	}
	hundred := int(s[0]-'0') * 100
	if s[1:] == "xx" {
		return statuses{hundred, hundred + 99}, true
	}
	n, err := strconv.Atoi(s)
	return statuses{n, n}, err == nil && n >= hundred
}

// statusRetry retries after the statuses that it lists, and after failures that
// brought no status.
type statusRetry struct {
	policy  RetryPolicy
	retried []statuses
}

// Next implements [RetryPolicy].
func (s statusRetry) Next(in RetryInput) (time.Time, bool) {
	if s.final(in.Status) {
		return time.Time{}, false
	}
	return s.policy.Next(in)
}

func (s statusRetry) final(status int) bool {
	return status >= http.StatusMultipleChoices && !slices.ContainsFunc(s.retried, func(span statuses) bool {
		return status >= span.first && status <= span.last
	})
}

// RetryWindow is that of the policy beneath.
func (s statusRetry) RetryWindow() time.Duration { return retryWindow(s.policy) }

// retryWindow asks a policy for how long after the beginning of a run attempts may
// start; 0 when it does not say, or has no end.
func retryWindow(policy RetryPolicy) time.Duration {
	if w, ok := policy.(interface{ RetryWindow() time.Duration }); ok {
		return max(w.RetryWindow(), 0)
	}
	return 0
}

// pause is a time during which an endpoint was paused.
type pause struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

const (
	// maxPauses and pausesKept bound what is remembered of an endpoint's pauses. The
	// oldest matter least: hardly a delivery is as old as they are.
	maxPauses  = 50
	pausesKept = 90 * day
)

// withPause adds a pause that ended, and drops what is too old to matter.
func withPause(pauses []pause, p pause) []pause {
	kept := slices.DeleteFunc(slices.Clone(pauses), func(old pause) bool { return old.To.Before(p.To.Add(-pausesKept)) })
	kept = append(kept, p)
	return kept[max(0, len(kept)-maxPauses):]
}

// paused is for how long of the time since began the endpoint was paused, up to
// limit; negative is no limit (docs/design.md §4).
func (t *target) paused(began, now time.Time, limit time.Duration) time.Duration {
	total := time.Duration(0)
	for _, p := range t.options.Pauses {
		total += overlap(p, began, now)
	}
	if t.record.State == EndpointPaused {
		total += overlap(pause{From: t.record.StateChangedAt, To: now}, began, now)
	}
	if limit >= 0 {
		total = min(total, limit)
	}
	return total
}

func overlap(p pause, from, to time.Time) time.Duration {
	if p.From.After(from) {
		from = p.From
	}
	if p.To.Before(to) {
		to = p.To
	}
	return max(to.Sub(from), 0)
}
