package admin

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/admin/internal/phrase"
)

// maxShownPayload is how much of a payload is shown on a page; all of it can be
// downloaded.
const maxShownPayload = 64 << 10

// deliveryData is what the page of a delivery shows.
type deliveryData struct {
	Delivery deliveryShape
	Test     bool
	Tag      tag
	Summary  string // what became of it, in words
	Holds    string // why it waits longer than it would have to
	Endpoint *endpointName
	Steps    []deliveryStep
	Request  *requestView
	Payload  *payloadView
	Others   deliveryTable // other runs and endpoints of the event
	Refresh  int           // seconds between two looks
	CanStop  bool
	RetryAs  string // what trying again is called
}

// deliveryStep is one thing that happened to a delivery.
type deliveryStep struct {
	At       time.Time
	Mark     tag
	Title    string
	Note     string
	Advice   string
	Latency  time.Duration
	Location string
	Detail   string // for operators
	Excerpt  string
	Hex      bool
	Cut      bool
	ID       string
}

// requestView is a request as it was sent.
type requestView struct {
	Number  int
	Method  string
	URL     string
	Headers []headerShape
	Signed  bool
	Masked  bool // some headers are the endpoint's own
}

// payloadView is the payload of an event as a page shows it.
type payloadView struct {
	EventID     uuid.UUID
	Test        bool // that of a test, which has no event to download it from
	ContentType string
	Size        int
	Text        string
	Pretty, Hex bool
	Cut         bool
	Fault       webhook.PayloadFault
}

func deliveryPage(v *visit) error {
	id, err := v.id("delivery_id")
	if err != nil {
		return err
	}
	d, err := v.view.Delivery(v.ctx(), id)
	if err != nil {
		return err
	}
	attempts, err := v.view.Attempts(v.ctx(), id)
	if err != nil {
		return err
	}
	data := deliveryData{Delivery: deliveryOf(d), Test: d.Run == webhook.TestRun, Tag: deliveryTag(d), CanStop: !d.State.Final(), RetryAs: "Send it again", Refresh: 15}
	data.Summary = deliveryInWords(d, time.Now())
	if data.CanStop {
		data.Refresh, data.RetryAs = 2, "Send it now"
	}
	e, err := v.view.Endpoint(v.ctx(), d.EndpointID)
	switch {
	case err == nil:
		name := v.endpointName(e)
		data.Endpoint = &name
		if d.State == webhook.StatePending {
			if data.Holds, err = v.holds(d, e); err != nil {
				return err
			}
		}
	case !errors.Is(err, webhook.ErrNotFound):
		return err
	}
	data.Steps = v.steps(d, attempts)
	if data.Payload, err = v.payloadOf(d.EventID); err != nil {
		return err
	}
	if err := v.addRequest(&data, attempts); err != nil {
		return err
	}
	list, err := v.view.Deliveries(v.ctx(), webhook.DeliveryQuery{EventID: d.EventID, Limit: 21})
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(list.Deliveries, func(other webhook.Delivery) bool { return other.ID == id })
	if data.Others, err = v.deliveryTable(others, true); err != nil {
		return err
	}
	return v.render(http.StatusOK, "delivery.html", d.EventType, data)
}

// holds says what holds up a pending delivery, beside the time of its next attempt, if
// anything does.
func (v *visit) holds(d webhook.Delivery, e webhook.Endpoint) (string, error) {
	switch e.State {
	case webhook.EndpointPaused:
		return "The endpoint is paused" + because(e.StateReason) + ".", nil
	case webhook.EndpointDisabled:
		return "The endpoint is disabled" + because(e.StateReason) + ". What waits for it is being cancelled.", nil
	case webhook.EndpointActive:
	}
	h, err := v.view.Health(v.ctx(), e.ID)
	switch {
	case errors.Is(err, webhook.ErrNotFound):
		return "", nil
	case err != nil:
		return "", err
	case h.Circuit.State == webhook.CircuitOpen:
		return "The endpoint has failed too often and is left alone: its circuit is open, " + probeInWords(h.Circuit.NextProbeAt, time.Now()) + ". Waiting uses up no attempt.", nil
	case h.Circuit.State == webhook.CircuitHalfOpen:
		return "The endpoint has failed too often: one delivery goes first, as a probe.", nil
	}
	reasons, err := v.view.WaitReasons(v.ctx(), []webhook.Delivery{d})
	if err != nil {
		return "", err
	}
	return waitInWords(reasons[0]), nil
}

// waitInWords explains a reason to wait; empty for those that are told elsewhere on the page.
func waitInWords(why webhook.WaitReason) string {
	switch why {
	case webhook.WaitOrdering:
		return "An earlier delivery of its order goes first."
	case webhook.WaitRateLimited:
		return "A rate limit holds the endpoint back: its own, its tenant's, or one that it told of with a 429. Waiting uses up no attempt."
	case webhook.WaitRetryBudget:
		return "The endpoint has had as many retries in the last minute as it may, so that they do not add to its trouble. Waiting uses up no attempt."
	case webhook.WaitSlowLane:
		return "The endpoint is slow, and the slots that slow ones share are taken."
	case webhook.WaitConcurrency:
		return "As many requests are in flight as may be."
	case webhook.WaitNone, webhook.WaitPaused, webhook.WaitCircuitOpen, webhook.WaitRetry, webhook.WaitDue:
	}
	return ""
}

// deliveryInWords says where a delivery stands.
func deliveryInWords(d webhook.Delivery, now time.Time) string {
	if d.Run == webhook.TestRun {
		if d.State == webhook.StateDelivered {
			return "The test arrived."
		}
		return "The test did not arrive. A test is sent once and changes nothing."
	}
	attempts := phrase.Plural(int64(d.Attempts), "attempt", "attempts")
	switch d.State {
	case webhook.StateDelivered:
		if d.Attempts == 1 {
			return "Delivered at the first attempt, " + phrase.Span(d.FinishedAt.Sub(d.CreatedAt)) + " after it was made."
		}
		return "Delivered after " + attempts + ", " + phrase.Span(d.FinishedAt.Sub(d.CreatedAt)) + " after it was made."
	case webhook.StateDead:
		return "Given up after " + attempts + because(d.Reason) + ". Nothing is lost: it can be sent again."
	case webhook.StateCancelled:
		return "Cancelled" + because(d.Reason) + ". It can be sent again."
	case webhook.StateShed:
		return "Not sent, since the endpoint could not keep up" + because(d.Reason) + ". It can be sent again."
	case webhook.StateInFlight:
		return "It is on its way."
	case webhook.StatePending:
	}
	next := "is due now"
	if d.NextAttemptAt.After(now.Add(time.Second)) {
		next = "follows " + phrase.Ago(d.NextAttemptAt, now)
	}
	if d.Attempts == 0 {
		return "It waits for its first attempt, which " + next + "."
	}
	return "It has failed so far, in " + attempts + ". The next one " + next + "."
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + strings.TrimSuffix(reason, ".")
}

// steps are what happened to a delivery, the newest first.
func (v *visit) steps(d webhook.Delivery, attempts []webhook.Attempt) []deliveryStep {
	steps := []deliveryStep{{At: d.CreatedAt, Mark: tag{Icon: "box"}, Title: "Delivery made", Note: runInWords(d.Run)}}
	for i, a := range attempts {
		answer := answerTag(a.Status, a.Class)
		s := deliveryStep{
			At: a.StartedAt, Mark: answer, Latency: a.Latency, Location: a.Location, Cut: a.Truncated, ID: fmt.Sprintf("attempt-%d", i+1),
			Title: fmt.Sprintf("Attempt %d: %s", a.Number, answer.Word), Advice: adviceFor(a.Status, a.Class),
		}
		if a.Late {
			s.Note = "The result came when the delivery was no longer ours: it changed nothing."
		}
		if v.principal.operator {
			s.Detail = a.Error
		}
		s.Excerpt, s.Hex = inert(a.Excerpt)
		steps = append(steps, s)
	}
	switch {
	case d.State == webhook.StateInFlight:
		steps = append(steps, deliveryStep{Mark: deliveryTag(d), Title: "On its way"})
	case d.State == webhook.StatePending && !d.NextAttemptAt.IsZero():
		next := deliveryStep{At: d.NextAttemptAt, Mark: deliveryTag(d), Title: "Next attempt"}
		if now := time.Now(); !d.NextAttemptAt.After(now) {
			next.At, next.Title = time.Time{}, "Next attempt, due since "+phrase.Since(d.NextAttemptAt, now)
		}
		steps = append(steps, next)
	case d.Run != webhook.TestRun && d.State != webhook.StateDelivered && !d.FinishedAt.IsZero():
		steps = append(steps, deliveryStep{At: d.FinishedAt, Mark: deliveryTag(d), Title: sentence(deliveryTag(d).Word), Note: sentence(d.Reason)})
	}
	slices.Reverse(steps)
	return steps
}

func runInWords(run int) string {
	switch run {
	case webhook.TestRun:
		return "A test, sent by hand."
	case 0:
		return ""
	case 1:
		return "A replay: the event had been sent to this endpoint before."
	default:
		return fmt.Sprintf("Replay no. %d: the event had been sent to this endpoint before.", run)
	}
}

// inert makes text of what a stranger's server answered: what is no text is shown as
// a hex dump, and control and bidirectional formatting characters as their codes.
func inert(b []byte) (text string, dumped bool) {
	if len(b) == 0 {
		return "", false
	}
	if !utf8.Valid(b) || bytes.IndexByte(b, 0) >= 0 {
		return hex.Dump(b), true
	}
	var out strings.Builder
	for _, r := range string(b) {
		switch {
		case r == '\n' || r == '\t':
			out.WriteRune(r)
		case r == '\r':
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
			fmt.Fprintf(&out, "<U+%04X>", r)
		default:
			out.WriteRune(r)
		}
	}
	return out.String(), false
}

// payloadOf is the payload of an event; nil where that is no longer stored.
func (v *visit) payloadOf(id uuid.UUID) (*payloadView, error) {
	e, err := v.view.Event(v.ctx(), id)
	if errors.Is(err, webhook.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return payloadViewOf(e), nil
}

func payloadViewOf(e webhook.EventStatus) *payloadView {
	p := &payloadView{EventID: e.ID, ContentType: contentType(e.ContentType), Size: e.PayloadSize(), Fault: e.PayloadFault}
	shown := e.Payload
	if len(shown) > maxShownPayload {
		shown, p.Cut = shown[:maxShownPayload], true
	}
	var pretty bytes.Buffer
	if !p.Cut && json.Indent(&pretty, shown, "", "  ") == nil {
		p.Pretty = !bytes.Equal(pretty.Bytes(), shown)
		p.Text, p.Hex = inert(pretty.Bytes())
		return p
	}
	if p.Cut {
		shown = cutText(shown)
	}
	p.Text, p.Hex = inert(shown)
	return p
}

// cutText leaves the half of a character at the end away, and most of what is no text.
func cutText(b []byte) []byte {
	for i := range utf8.UTFMax {
		if utf8.Valid(b[:len(b)-i]) {
			return b[:len(b)-i]
		}
	}
	return b[:min(len(b), 4<<10)]
}

// addRequest adds the request of the latest attempt, unless there is none or it can no
// longer be put together. A test has no event, and so its payload from there.
func (v *visit) addRequest(data *deliveryData, attempts []webhook.Attempt) error {
	if len(attempts) == 0 {
		return nil
	}
	latest := attempts[len(attempts)-1]
	r, err := v.view.Request(v.ctx(), latest)
	if errors.Is(err, webhook.ErrNotFound) || errors.Is(err, webhook.ErrEventGone) || errors.Is(err, webhook.ErrSecretUnreadable) ||
		errors.Is(err, webhook.ErrPayloadMissing) || errors.Is(err, webhook.ErrPayloadDamaged) ||
		errors.Is(err, webhook.ErrPayloadUnreachable) {
		return nil
	}
	if err != nil {
		return err
	}
	data.Request = &requestView{Number: latest.Number, Method: r.Method, URL: v.url(r.URL), Headers: headersOf(r.Header), Signed: r.Signed}
	data.Request.Masked = slices.ContainsFunc(data.Request.Headers, func(h headerShape) bool { return h.Value == "…" })
	if data.Test {
		data.Payload = payloadViewOf(webhook.EventStatus{EventRecord: webhook.EventRecord{Payload: r.Body}})
		data.Payload.Test = true
	}
	return nil
}

// eventData is what the page of an event shows.
type eventData struct {
	Event     eventShape
	Payload   *payloadView
	Table     deliveryTable
	Truncated bool
	Endpoints []endpointName // whom it can be sent to
}

// maxEventDeliveries is how many deliveries of an event its page lists.
const maxEventDeliveries = 50

// eventPage is an event and what became of it.
func eventPage(v *visit) error {
	id, err := v.id("event_id")
	if err != nil {
		return err
	}
	e, err := v.view.Event(v.ctx(), id)
	if err != nil {
		return err
	}
	list, err := v.view.Deliveries(v.ctx(), webhook.DeliveryQuery{EventID: id, Limit: maxEventDeliveries})
	if err != nil {
		return err
	}
	data := eventData{Event: eventOf(e), Payload: payloadViewOf(e), Truncated: list.Next != ""}
	if data.Table, err = v.deliveryTable(list.Deliveries, true); err != nil {
		return err
	}
	narrow, ok := v.view.Within(e.Tenant)
	if !ok {
		return errNotFound
	}
	endpoints, err := narrow.Endpoints(v.ctx(), uuid.Nil, maxEventDeliveries)
	if err != nil {
		return err
	}
	for _, endpoint := range endpoints {
		if endpoint.State != webhook.EndpointDisabled {
			data.Endpoints = append(data.Endpoints, v.endpointName(endpoint))
		}
	}
	return v.render(http.StatusOK, "event.html", e.Type, data)
}
