package webhook

import "fmt"

// Redaction takes out of what is kept and shown what the host does not want there, such
// as card numbers. Each function may be nil, which redacts nothing. They are called from
// many goroutines, must not change what they are given, and what they return may be nil.
// A panic leaves nothing of what was to be redacted.
type Redaction struct {
	// Excerpt is given an attempt and returns what to keep of its Excerpt, before that
	// is stored or told to anybody. Where it returns something else, the BodyHash of a
	// 2xx is dropped: short answers can be guessed from it.
	Excerpt func(a Attempt) []byte

	// Payload is given an event and returns what [Events.Get] shows of its Payload, and
	// so what the admin handler does. What is stored and sent stays as it was enqueued.
	Payload func(e EventRecord) []byte
}

// redactExcerpt returns what is kept of an attempt.
func (c *core) redactExcerpt(a *Attempt) {
	if c.redaction.Excerpt == nil || len(a.Excerpt) == 0 {
		return
	}
	before := string(a.Excerpt)
	a.Excerpt = c.redacted("excerpt", func() []byte { return c.redaction.Excerpt(*a) })
	if string(a.Excerpt) != before {
		a.BodyHash = nil
	}
}

// redactPayload changes what is shown of an event.
func (c *core) redactPayload(e *EventStatus) {
	if c.redaction.Payload != nil {
		e.Payload = c.redacted("payload", func() []byte { return c.redaction.Payload(e.EventRecord) })
	}
}

func (c *core) redacted(what string, redact func() []byte) (kept []byte) {
	defer func() {
		if v := recover(); v != nil {
			c.log.Error("webhook: panic in the redaction", "of", what, "panic", fmt.Sprintf("%T", v))
			kept = nil
		}
	}()
	return redact()
}
