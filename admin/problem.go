package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strings"

	"github.com/outhook/webhook"
)

// problem is why a request was refused, in the format of RFC 9457. Its type is
// about:blank, so that Title is the status in words; Code tells refusals apart.
type problem struct {
	Type   string         `json:"type" doc:"Always about:blank."`
	Title  string         `json:"title" doc:"The status in words."`
	Status int            `json:"status" doc:"The HTTP status."`
	Code   string         `json:"code" doc:"Which refusal this is, for programs."`
	Detail string         `json:"detail,omitempty" doc:"What is wrong, for people."`
	Errors []fieldProblem `json:"errors,omitempty" doc:"The fields that were refused."`
}

// fieldProblem says what is wrong with one field or parameter.
type fieldProblem struct {
	Field  string `json:"field" doc:"The field or parameter, such as types[0]."`
	Detail string `json:"detail" doc:"What is wrong with it."`
}

func (p problem) Error() string { return p.Code + ": " + p.Detail }

// The one answer for all that does not exist or belongs to somebody else, and the one
// for paths that do not exist.
var (
	errNotFound = problem{Status: http.StatusNotFound, Code: "not_found", Detail: "There is no such thing here."}
	errNoRoute  = problem{Status: http.StatusNotFound, Code: "no_route", Detail: "There is nothing at this path."}
)

// errPrecondition refuses what If-Match forbids.
var errPrecondition = problem{
	Status: http.StatusPreconditionFailed, Code: "precondition_failed", Detail: "It was changed by somebody else in the meantime.",
}

func isConflict(err error) bool { return errors.Is(err, webhook.ErrConflict) }

// badField refuses one field of a body that could be read.
func badField(field, detail string) error {
	return problem{
		Status: http.StatusUnprocessableEntity, Code: "invalid", Detail: "Some fields were refused.",
		Errors: []fieldProblem{{Field: field, Detail: detail}},
	}
}

// badParameter refuses one parameter of the query.
func badParameter(name, detail string) error {
	return problem{
		Status: http.StatusBadRequest, Code: "bad_request", Detail: "Some parameters were refused.",
		Errors: []fieldProblem{{Field: name, Detail: detail}},
	}
}

// problemOf says what an error means to whoever asked.
func (v *visit) problemOf(err error) problem {
	if p, ok := errors.AsType[problem](err); ok {
		return p
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return problem{Status: http.StatusRequestEntityTooLarge, Code: "body_too_large", Detail: "The body is too large."}
	}
	if refused, ok := errors.AsType[*webhook.InvalidError](err); ok {
		p := problem{
			Status: http.StatusUnprocessableEntity, Code: "invalid", Detail: "Some fields were refused.",
			Errors: []fieldProblem{{Field: fieldName(refused.Field), Detail: refused.Problem}},
		}
		if errors.Is(err, webhook.ErrPayloadTooLarge) {
			p.Status, p.Code = http.StatusRequestEntityTooLarge, "payload_too_large"
		}
		return p
	}
	switch {
	case errors.Is(err, webhook.ErrNotFound):
		return errNotFound
	case errors.Is(err, webhook.ErrConflict):
		return problem{Status: http.StatusConflict, Code: "conflict", Detail: "It was changed by somebody else in the meantime."}
	case errors.Is(err, webhook.ErrDisabledByOperator):
		return problem{Status: http.StatusForbidden, Code: "disabled_by_operator", Detail: "An operator has disabled the endpoint, and only an operator can enable it again."}
	case errors.Is(err, webhook.ErrEndpointDisabled):
		return problem{Status: http.StatusConflict, Code: "endpoint_disabled", Detail: "The endpoint is disabled: enable it first."}
	case errors.Is(err, webhook.ErrEventGone):
		return problem{Status: http.StatusConflict, Code: "event_gone", Detail: "The event is no longer stored, so that there is nothing to send."}
	case errors.Is(err, webhook.ErrPayloadMissing):
		return problem{Status: http.StatusNotFound, Code: "payload_missing", Detail: "The payload is not where large ones are kept."}
	case errors.Is(err, webhook.ErrPayloadDamaged):
		return problem{Status: http.StatusInternalServerError, Code: "payload_damaged", Detail: "What is kept is not the payload that was enqueued."}
	case errors.Is(err, webhook.ErrPayloadUnreachable):
		return problem{Status: http.StatusServiceUnavailable, Code: "payload_unreachable", Detail: "Where large payloads are kept does not answer. Try again in a moment."}
	case errors.Is(err, webhook.ErrFinished):
		return problem{Status: http.StatusConflict, Code: "finished", Detail: "It has finished already."}
	case errors.Is(err, webhook.ErrNoDispatcher):
		return problem{Status: http.StatusServiceUnavailable, Code: "no_dispatcher", Detail: "No dispatcher runs in this process, so that nothing can be sent from here."}
	case errors.Is(err, webhook.ErrBusy):
		return problem{Status: http.StatusServiceUnavailable, Code: "busy", Detail: "The endpoint has as many requests in flight as it may have. Try again in a moment."}
	case v.ctx().Err() != nil || errors.Is(err, context.Canceled):
		// Nobody reads the answer.
		return problem{Status: http.StatusServiceUnavailable, Code: "cancelled", Detail: "The request ended early."}
	}
	v.handler.log.ErrorContext(v.ctx(), "webhook admin: a request failed", "method", v.r.Method, "path", v.local, "error", err)
	return problem{Status: http.StatusInternalServerError, Code: "internal", Detail: "Something went wrong here. It has been logged."}
}

// fail answers with what is wrong: with a problem below api/, with a page elsewhere.
func (v *visit) fail(err error) {
	p := v.problemOf(err)
	p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	if !v.isAPI() {
		v.failPage(p)
		return
	}
	body, err := json.Marshal(p)
	if err != nil {
		body = []byte(`{"type":"about:blank","title":"Internal Server Error","status":500,"code":"internal"}`)
	}
	v.w.Header().Set("Content-Type", "application/problem+json")
	v.w.WriteHeader(p.Status)
	_, _ = v.w.Write(body)
}

var wordStart = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// fieldName is a field of the library in the words of the API: "types[0]" of
// "EndpointParams.Types[0]", "url" of "EndpointParams.URL".
func fieldName(field string) string {
	if _, name, ok := strings.Cut(field, "."); ok {
		field = name
	} else if field == "eventType" { // of Endpoints.SendTest
		field = "type"
	}
	name := strings.ToLower(wordStart.ReplaceAllString(field, "${1}_${2}"))
	for theirs, ours := range otherNames {
		if rest, ok := strings.CutPrefix(name, theirs); ok && (rest == "" || rest[0] == '[') {
			return ours + rest
		}
	}
	return name
}

// otherNames are the fields that the API calls differently, since JSON has no durations.
var otherNames = map[string]string{
	"overlap": "overlap_seconds", "timeout": "timeout_seconds", "retry.window": "retry.window_seconds", "retry.delays": "retry.delays_seconds",
}
