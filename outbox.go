package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// MaxEventsPerCall is how many events one [Hooks.EnqueueMany] takes (docs/design.md §2).
const MaxEventsPerCall = 10_000

// Limits of an event's fields, in bytes (docs/design.md §2).
const (
	maxTypeBytes   = 128
	maxTenantBytes = 128
	maxKeyBytes    = 255
	maxIDBytes     = 255
	maxMediaBytes  = 255
)

// Enqueue writes the event through tx, the host's own transaction: it is
// delivered if tx commits and never existed if tx rolls back. Enqueue takes one
// round trip and never ends tx.
//
// A refused event, or a nil tx, gives an [InvalidError] before any SQL runs, so that tx stays
// usable. An event whose idempotency key the tenant has used before is not
// written: the result holds the first event's id and Duplicate. While another
// transaction that used the same key is open, Enqueue waits for its end. An
// error of the database, such as a serialisation failure of the host's own
// transaction, is returned wrapped and reaches errors.As as the driver's error.
//
// A payload over [Config.PayloadThreshold] goes to the [PayloadStore] before the database is
// asked; an error of that store leaves tx as it was.
//
// Dispatchers are woken a few milliseconds after Enqueue; see also Wake.
func (h *Hooks[Tx]) Enqueue(ctx context.Context, tx Tx, event Event) (EnqueueResult, error) {
	if err := h.core.limits.check(&event); err != nil {
		return EnqueueResult{}, err.in("Event")
	}
	rec, err := h.core.record(&event)
	if err != nil {
		return EnqueueResult{}, err
	}
	results, err := h.insert(ctx, tx, []EventRecord{rec})
	if err != nil {
		return EnqueueResult{}, fmt.Errorf("enqueue event: %w", err)
	}
	return results[0], nil
}

// EnqueueMany writes up to MaxEventsPerCall events through tx in one statement
// and returns one result per event, in order. One refused event refuses the
// call before any SQL runs, with an error that names its index. Events of one
// call that share an idempotency key are duplicates of the first of them. See
// [Hooks.Enqueue] for the rest.
func (h *Hooks[Tx]) EnqueueMany(ctx context.Context, tx Tx, events []Event) ([]EnqueueResult, error) {
	if len(events) == 0 {
		return nil, nil
	}
	if len(events) > MaxEventsPerCall {
		return nil, &InvalidError{
			Field:   "events",
			Problem: fmt.Sprintf("are %d, over the limit of %d per call", len(events), MaxEventsPerCall),
			Limit:   MaxEventsPerCall,
		}
	}
	recs := make([]EventRecord, len(events))
	for i := range events {
		if err := h.core.limits.check(&events[i]); err != nil {
			return nil, err.in(fmt.Sprintf("events[%d]", i))
		}
		rec, err := h.core.record(&events[i])
		if err != nil {
			return nil, err
		}
		recs[i] = rec
	}
	results, err := h.insert(ctx, tx, recs)
	if err != nil {
		return nil, fmt.Errorf("enqueue %d events: %w", len(events), err)
	}
	return results, nil
}

// insert writes records, large payloads first. Of an error it is not known here whether
// the events were written, so their payloads stay.
func (h *Hooks[Tx]) insert(ctx context.Context, tx Tx, recs []EventRecord) (results []EnqueueResult, err error) {
	trace, end := h.core.enqueueSpan(ctx, len(recs))
	defer func() { end(err) }()
	for i := range recs {
		recs[i].TraceParent = trace
	}
	if err := h.core.payloads.put(ctx, recs); err != nil {
		return nil, err
	}
	results, err = h.store.InsertEvents(ctx, tx, recs)
	if err != nil {
		return nil, err
	}
	h.core.dropDuplicates(ctx, recs, results)
	h.core.waker.arm()
	return results, nil
}

// record gives a checked event its id.
func (c *core) record(e *Event) (EventRecord, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return EventRecord{}, fmt.Errorf("make an event id: %w", err)
	}
	rec := EventRecord{
		ID:              id,
		Tenant:          e.Tenant,
		Type:            e.Type,
		ResourceID:      e.ResourceID,
		ResourceVersion: e.ResourceVersion,
		IdempotencyKey:  e.IdempotencyKey,
		ContentType:     e.ContentType,
		Payload:         e.Payload,
	}
	if c.clock != nil {
		rec.CreatedAt = c.clock.Now().UTC().Truncate(time.Microsecond)
	}
	return rec, nil
}

// eventLimits are the rules that an event must keep to be accepted.
type eventLimits struct {
	maxPayload   int
	singleTenant bool
}

// check refuses an event that breaks a rule.
func (l eventLimits) check(e *Event) *InvalidError {
	if err := l.checkTenant("Tenant", e.Tenant); err != nil {
		return err
	}
	if err := checkType("Type", e.Type); err != nil {
		return err
	}
	if err := checkText("ResourceID", e.ResourceID, maxIDBytes); err != nil {
		return err
	}
	if e.ResourceVersion < 0 {
		return invalid("ResourceVersion", "is negative")
	}
	if err := checkText("IdempotencyKey", e.IdempotencyKey, maxKeyBytes); err != nil {
		return err
	}
	if err := checkText("ContentType", e.ContentType, maxMediaBytes); err != nil {
		return err
	}
	return l.checkPayload("Payload", e)
}

func (l eventLimits) checkTenant(field, tenant string) *InvalidError {
	switch {
	case l.singleTenant && tenant != "":
		return invalid(field, "is set, but Config.SingleTenant says that there are no tenants")
	case !l.singleTenant && tenant == "":
		return invalid(field, "is empty")
	}
	return checkText(field, tenant, maxTenantBytes)
}

func (l eventLimits) checkPayload(field string, e *Event) *InvalidError {
	if n := len(e.Payload); n > l.maxPayload {
		err := tooLong(field, n, l.maxPayload)
		err.cause = ErrPayloadTooLarge
		return err
	}
	if e.ContentType != "" {
		return nil
	}
	if len(e.Payload) == 0 {
		return invalid(field, "is empty, which is not valid JSON; set ContentType if that is meant")
	}
	if !json.Valid(e.Payload) {
		return invalid(field, "is not valid JSON; set ContentType if it is not meant to be")
	}
	return nil
}

// checkType accepts identifiers of letters, digits and underscores joined by
// full stops, as Standard Webhooks 1.0 recommends.
func checkType(field, s string) *InvalidError {
	if s == "" {
		return invalid(field, "is empty")
	}
	if len(s) > maxTypeBytes {
		return tooLong(field, len(s), maxTypeBytes)
	}
	wordStart := true
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '.':
			if wordStart {
				return invalid(field, "has an empty word: it must be words joined by full stops")
			}
			wordStart = true
		case c == '_', '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
			wordStart = false
		default:
			return invalid(field, "may hold only letters, digits, underscores and full stops")
		}
	}
	if wordStart {
		return invalid(field, "ends with a full stop")
	}
	return nil
}

// checkText refuses what a database or a header could not carry: control
// characters, NUL among them, and bytes that are not UTF-8.
func checkText(field, s string, limit int) *InvalidError {
	if len(s) > limit {
		return tooLong(field, len(s), limit)
	}
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c == 0x7f {
			return invalid(field, "holds a control character")
		}
	}
	if !utf8.ValidString(s) {
		return invalid(field, "is not valid UTF-8")
	}
	return nil
}
