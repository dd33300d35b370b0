package webhook

import (
	"errors"
	"strconv"
)

// Errors to branch on with errors.Is.
var (
	// ErrInvalid is behind every [InvalidError]: an argument was refused before
	// anything was done.
	ErrInvalid = errors.New("webhook: invalid argument")

	// ErrPayloadTooLarge refuses a payload over [Config.MaxPayload]. It comes as
	// an [InvalidError], so ErrInvalid matches too.
	ErrPayloadTooLarge = errors.New("webhook: payload too large")

	// ErrNotFound is returned for an id that does not exist or belongs to
	// another tenant; the two cannot be told apart.
	ErrNotFound = errors.New("webhook: not found")

	// ErrCursor refuses a cursor that was not made by this library, or was made for
	// another list: of another tenant, or with another filter. It comes as an
	// [InvalidError], so ErrInvalid matches too.
	ErrCursor = errors.New("webhook: cursor of another list")

	// ErrNoDispatcher refuses a test where no dispatcher runs in this process that
	// could send it, and [Config.TestsWithoutDispatcher] is not set.
	ErrNoDispatcher = errors.New("webhook: no dispatcher runs in this process")

	// ErrBusy refuses a test for which no slot became free in time: as many requests
	// are on their way to the endpoint or its host, or in all, as may be.
	ErrBusy = errors.New("webhook: no slot is free")

	// ErrConflict is returned when an object was changed by someone else in the
	// meantime. Read it again and repeat the change.
	ErrConflict = errors.New("webhook: changed in the meantime")

	// ErrEndpointDisabled refuses a replay to a disabled endpoint, and pausing or
	// resuming one: enable it first.
	ErrEndpointDisabled = errors.New("webhook: the endpoint is disabled")

	// ErrDisabledByOperator refuses a tenant to enable an endpoint that was disabled
	// over its head; see [Endpoints.Disable].
	ErrDisabledByOperator = errors.New("webhook: the endpoint was disabled by an operator")

	// ErrEventGone refuses a replay of an event that is no longer stored, so that
	// there is nothing left to send.
	ErrEventGone = errors.New("webhook: the event is no longer stored")

	// ErrFinished refuses to cancel a delivery, or a replay job, that has ended.
	ErrFinished = errors.New("webhook: already finished")

	// ErrSchemaOutdated is returned when the database lacks migrations that this
	// version of the library needs, or was never migrated. Call Migrate on the store.
	ErrSchemaOutdated = errors.New("webhook: database schema is older than the library; run Migrate")

	// ErrSchemaNewer is returned when the database was migrated by a newer
	// version of the library than this one.
	ErrSchemaNewer = errors.New("webhook: database schema is newer than the library")
)

// InvalidError says which argument was refused, and which rule it broke. It
// never quotes payloads or secrets. It is returned as a pointer:
//
//	var refused *webhook.InvalidError
//	if errors.As(err, &refused) { … refused.Field … }
type InvalidError struct {
	// Field is the name of the refused field, for instance "Event.Type".
	Field string
	// Problem says what is wrong, with the limit where there is one.
	Problem string
	// Limit is the limit that was exceeded; 0 when the rule is not a limit.
	Limit int

	cause error
}

// Error names the field and the problem, and may be shown to whoever set the field.
func (e *InvalidError) Error() string { return "webhook: " + e.Field + " " + e.Problem }

// Is reports whether target is [ErrInvalid] or the more specific sentinel of
// this refusal.
func (e *InvalidError) Is(target error) bool {
	return target == ErrInvalid || (e.cause != nil && target == e.cause)
}

// Unwrap returns the error that explains the refusal further, if there is one.
func (e *InvalidError) Unwrap() error { return e.cause }

// in names the object that the refused field belongs to.
func (e *InvalidError) in(object string) *InvalidError {
	e.Field = object + "." + e.Field
	return e
}

func invalid(field, problem string) *InvalidError {
	return &InvalidError{Field: field, Problem: problem}
}

// asInvalid makes an InvalidError of any refusal.
func asInvalid(field string, err error) *InvalidError {
	if e, ok := errors.AsType[*InvalidError](err); ok {
		return e
	}
	return &InvalidError{Field: field, Problem: err.Error(), cause: err}
}

func tooLong(field string, size, limit int) *InvalidError {
	return &InvalidError{
		Field:   field,
		Problem: "is " + strconv.Itoa(size) + " bytes, over the limit of " + strconv.Itoa(limit),
		Limit:   limit,
	}
}
