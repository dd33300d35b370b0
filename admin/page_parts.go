package admin

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/admin/internal/phrase"
)

// tag is a state as pages show it: a colour, an icon and a word, so that none of them
// must be understood alone.
type tag struct {
	Class, Icon, Word string
}

// formField is a field of a form, with what is wrong with it.
type formField struct {
	Name, Label, Hint, Value, Error, Placeholder, Type string

	Rows           int // of a text area; zero for a line
	Required, Mono bool
}

// namedValue is something that has a name, such as a setting.
type namedValue struct{ Name, Value string }

// choice is one of several things to choose from.
type choice struct {
	Value, Word, Hint string
	Chosen            bool
}

// choicesOf marks the chosen one.
func choicesOf(chosen string, list ...choice) []choice {
	for i := range list {
		list[i].Chosen = list[i].Value == chosen
	}
	return list
}

// endpointName is what pages call an endpoint in passing.
type endpointName struct {
	ID   uuid.UUID
	Name string
}

func (v *visit) endpointName(e webhook.Endpoint) endpointName {
	return endpointName{ID: e.ID, Name: v.url(e.URL)}
}

// readPageQuery is readQuery for a page: a form sends its empty fields too, and the
// word that a redirect left is none of the page's own.
func (v *visit) readPageQuery(op *operation) error {
	query, err := url.ParseQuery(v.r.URL.RawQuery)
	if err != nil {
		return problem{Status: http.StatusBadRequest, Code: "bad_request", Detail: "The query cannot be read."}
	}
	query.Del("done")
	for name, values := range query {
		if values = slices.DeleteFunc(values, func(s string) bool { return s == "" }); len(values) == 0 {
			delete(query, name)
		} else {
			query[name] = values
		}
	}
	return v.checkQuery(op, query)
}

// nextPage is the address of the page that a cursor begins.
func (v *visit) nextPage(path, cursor string) string {
	if cursor == "" {
		return ""
	}
	query := url.Values{}
	maps.Copy(query, v.query)
	query.Set("cursor", cursor)
	return v.base + path + "?" + query.Encode()
}

// form reads a posted form.
func (v *visit) form() (url.Values, error) {
	if err := v.r.ParseForm(); err != nil {
		if strings.Contains(err.Error(), "too large") {
			return nil, problem{Status: http.StatusRequestEntityTooLarge, Code: "body_too_large", Detail: "The form is too large."}
		}
		return nil, problem{Status: http.StatusBadRequest, Code: "bad_form", Detail: "The form cannot be read."}
	}
	return v.r.PostForm, nil
}

// fieldErrors are what is wrong with the fields of a form, by name; ok is false for an
// error that is about something else.
func (v *visit) fieldErrors(err error) (fields map[string]string, ok bool) {
	p := v.problemOf(err)
	if p.Status != http.StatusUnprocessableEntity || len(p.Errors) == 0 {
		return nil, false
	}
	fields = map[string]string{}
	for _, e := range p.Errors {
		name, place, _ := strings.Cut(e.Field, "[")
		detail := e.Detail
		if n, err := strconv.Atoi(strings.TrimSuffix(place, "]")); err == nil {
			detail = "no. " + strconv.Itoa(n+1) + " " + detail
		}
		if fields[name] == "" {
			fields[name] = sentence(detail)
		}
	}
	return fields, true
}

// sentence makes a sentence of what an error says.
func sentence(s string) string {
	if s == "" {
		return ""
	}
	s = strings.ToUpper(s[:1]) + s[1:]
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}

// typesInWords says which events an endpoint gets.
func typesInWords(types []string) string {
	switch {
	case slices.Contains(types, "*"):
		return "all events"
	case len(types) <= 3:
		return strings.Join(types, ", ")
	default:
		return fmt.Sprintf("%s and %d more", strings.Join(types[:2], ", "), len(types)-2)
	}
}

// classWords say what kind of thing went wrong.
var classWords = map[webhook.ErrorClass]string{
	webhook.ClassDNS:       "name not found",
	webhook.ClassConnect:   "no connection",
	webhook.ClassTLS:       "TLS failed",
	webhook.ClassTimeout:   "timed out",
	webhook.ClassReset:     "connection broke",
	webhook.ClassBlocked:   "address not allowed",
	webhook.ClassProtocol:  "no HTTP answer",
	webhook.ClassBody:      "answer broke off",
	webhook.ClassHTTP4xx:   "refused",
	webhook.ClassHTTP5xx:   "server error",
	webhook.ClassRedirect:  "redirect",
	webhook.ClassCancelled: "broken off by us",
	webhook.ClassProxy:     "our proxy failed",
	webhook.ClassInternal:  "our fault, not sent",
}

// classAdvice says what to do about it.
var classAdvice = map[webhook.ErrorClass]string{
	webhook.ClassDNS:       "The host name does not resolve. Check the URL, and the DNS records of the name.",
	webhook.ClassConnect:   "Nobody accepts connections at this address and port. Check that the server is up and that its firewall lets us in.",
	webhook.ClassTLS:       "The certificate was refused, or no TLS was spoken. It must be valid, complete with its chain, and for this name.",
	webhook.ClassTimeout:   "No complete answer came in time. Answer first and work later.",
	webhook.ClassReset:     "The connection was closed before an answer came. A proxy or a crash of the receiver does that.",
	webhook.ClassBlocked:   "The name leads to an address that is not public. Nothing is sent there.",
	webhook.ClassProtocol:  "What came back was no HTTP. Check the port.",
	webhook.ClassBody:      "The answer began and did not end.",
	webhook.ClassHTTP4xx:   "The receiver understood the request and refused it.",
	webhook.ClassHTTP5xx:   "The receiver failed. Its own log says why.",
	webhook.ClassRedirect:  "Redirects are not followed. Enter the URL that it leads to.",
	webhook.ClassCancelled: "We stopped while it was on its way. It does not count and is sent again.",
	webhook.ClassProxy:     "Our own proxy failed. It does not count against the endpoint.",
	webhook.ClassInternal:  "Something failed here before anything was sent. It does not count against the endpoint.",
}

// adviceFor says what to do about the outcome of an attempt.
func adviceFor(status int, class webhook.ErrorClass) string {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "The receiver refused it as not authorised. Check that it knows the present signing secret, and that nothing in front of it wants a login."
	case http.StatusNotFound:
		return "There is nothing at this path. Check the URL."
	case http.StatusMethodNotAllowed:
		return "The receiver does not take POST at this path."
	case http.StatusGone:
		return "410 means that nothing more is wanted: the endpoint was disabled."
	case http.StatusRequestEntityTooLarge:
		return "The receiver refuses bodies of this size."
	case http.StatusTooManyRequests:
		return "The receiver asks for patience. It is being sent to more slowly."
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return "Something in front of the receiver cannot reach it."
	}
	return classAdvice[class]
}

// answerTag says how an attempt ended.
func answerTag(status int, class webhook.ErrorClass) tag {
	word := classWords[class]
	if status != 0 {
		word = strconv.Itoa(status)
		if text := http.StatusText(status); text != "" {
			word += " " + text
		}
	}
	switch {
	case status == 0 && class == webhook.ClassNone:
		return tag{"still", "dot", "none yet"}
	case class == webhook.ClassNone:
		return tag{"ok", "check", word}
	case class == webhook.ClassCancelled || class == webhook.ClassProxy || class == webhook.ClassInternal:
		return tag{"still", "info", word}
	case status == http.StatusTooManyRequests:
		return tag{"warn", "clock", word}
	default:
		return tag{"bad", "cross", word}
	}
}

// deliveryTag says where a delivery stands.
func deliveryTag(d webhook.Delivery) tag {
	if d.Run == webhook.TestRun && d.State == webhook.StateCancelled {
		return tag{"bad", "cross", "test failed"}
	}
	switch d.State {
	case webhook.StateDelivered:
		return tag{"ok", "check", "delivered"}
	case webhook.StateDead:
		return tag{"bad", "cross", "failed"}
	case webhook.StateCancelled:
		return tag{"", "stop", "cancelled"}
	case webhook.StateShed:
		return tag{"warn", "down", "shed"}
	case webhook.StateInFlight:
		return tag{"info", "send", "sending"}
	case webhook.StatePending:
	}
	if d.Attempts > 0 {
		return tag{"warn", "retry", "retrying"}
	}
	return tag{"info", "clock", "waiting"}
}

// stateChoices are the states that the log can be limited to.
var stateChoices = []choice{
	{Value: string(webhook.StatePending), Word: "Waiting or retrying"},
	{Value: string(webhook.StateInFlight), Word: "Sending"},
	{Value: string(webhook.StateDelivered), Word: "Delivered"},
	{Value: string(webhook.StateDead), Word: "Failed"},
	{Value: string(webhook.StateCancelled), Word: "Cancelled"},
	{Value: string(webhook.StateShed), Word: "Shed"},
}

// deliveryRow is a delivery in a list.
type deliveryRow struct {
	deliveryShape

	Tag, Answer tag
	Next        string // when it goes on
	EndpointURL string
}

// deliveryTable is a list of deliveries.
type deliveryTable struct {
	Base         string
	Operator     bool
	ShowEndpoint bool
	Rows         []deliveryRow
}

// deliveryTable makes the rows of a list. The names of endpoints are read once each.
func (v *visit) deliveryTable(list []webhook.Delivery, showEndpoint bool) (deliveryTable, error) {
	t := deliveryTable{Base: v.base, Operator: v.principal.operator, ShowEndpoint: showEndpoint, Rows: make([]deliveryRow, len(list))}
	reasons, err := v.view.WaitReasons(v.ctx(), list)
	if err != nil {
		return t, err
	}
	names := v.endpointNames()
	for i, d := range list {
		t.Rows[i] = deliveryRow{deliveryShape: deliveryOf(d), Tag: deliveryTag(d), Answer: answerTag(d.LastStatus, d.LastClass), Next: nextInWords(d, reasons[i], time.Now())}
		if !showEndpoint {
			continue
		}
		if t.Rows[i].EndpointURL, err = names(d.EndpointID); err != nil {
			return t, err
		}
	}
	return t, nil
}

// endpointNames returns a function that names endpoints, and reads each once. One that
// is deleted has no name.
func (v *visit) endpointNames() func(uuid.UUID) (string, error) {
	names := map[uuid.UUID]string{}
	return func(id uuid.UUID) (string, error) {
		if name, known := names[id]; known {
			return name, nil
		}
		e, err := v.view.Endpoint(v.ctx(), id)
		if err != nil && !errors.Is(err, webhook.ErrNotFound) {
			return "", err
		}
		names[id] = v.url(e.URL)
		return names[id], nil
	}
}

// nextInWords says when a delivery goes on, or what it waits for.
func nextInWords(d webhook.Delivery, why webhook.WaitReason, now time.Time) string {
	switch why {
	case webhook.WaitNone:
	case webhook.WaitPaused:
		return "endpoint paused"
	case webhook.WaitOrdering:
		return "behind another one"
	case webhook.WaitCircuitOpen:
		return "circuit open"
	case webhook.WaitRateLimited:
		return "held back by a rate limit"
	case webhook.WaitRetryBudget:
		return "retry budget used up"
	case webhook.WaitSlowLane:
		return "slow lane full"
	case webhook.WaitConcurrency:
		return "no free slot"
	case webhook.WaitRetry:
		return "next attempt " + phrase.Ago(d.NextAttemptAt, now)
	case webhook.WaitDue:
		return "due now"
	}
	return ""
}
