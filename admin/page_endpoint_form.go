package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

func endpointFormPages() []route {
	return []route{
		{method: http.MethodGet, pattern: "/endpoints/new", mutates: true, serve: newEndpointPage},
		{method: http.MethodPost, pattern: "/endpoints/new", mutates: true, serve: createEndpointForm},
		{method: http.MethodGet, pattern: "/endpoints/{endpoint_id}/edit", mutates: true, serve: editEndpointPage},
		{method: http.MethodPost, pattern: "/endpoints/{endpoint_id}/edit", mutates: true, serve: updateEndpointForm},
	}
}

// endpointForm is what the form of an endpoint shows.
type endpointForm struct {
	Action, Cancel, Submit string
	Back                   *endpointName
	Problem                string
	Revision               int64

	Basics, Texts, Numbers []formField
	Types                  formField
	Choices                []typeChoice
	All                    bool // the pattern * is chosen
	NewestFirst            bool
	AdaptiveRate           bool
	HasHeaders             bool // there are some that are not shown
	ShowMore               bool
}

type typeChoice struct {
	EventType

	Chosen bool
}

// endpointDraft is what a form of an endpoint says: the texts as they were typed.
type endpointDraft struct {
	tenant, url, description, filter, headers, secret string
	timeout, rateLimit, burst, maxInFlight            string

	types        []string
	newestFirst  bool
	adaptiveRate bool
	dropHeaders  bool
}

// readDraft reads the form.
func readDraft(form url.Values) endpointDraft {
	d := endpointDraft{
		tenant: form.Get("tenant"), url: strings.TrimSpace(form.Get("url")), description: form.Get("description"),
		filter: strings.TrimSpace(form.Get("filter")), headers: form.Get("headers"), secret: strings.TrimSpace(form.Get("secret")),
		timeout: strings.TrimSpace(form.Get("timeout_seconds")), rateLimit: strings.TrimSpace(form.Get("rate_limit")),
		burst: strings.TrimSpace(form.Get("burst")), maxInFlight: strings.TrimSpace(form.Get("max_in_flight")),
		newestFirst: form.Has("newest_first"), adaptiveRate: form.Has("adaptive_rate"), dropHeaders: form.Has("drop_headers"),
	}
	for _, pattern := range slices.Concat(form["type"], strings.FieldsFunc(form.Get("types"), func(r rune) bool { return strings.ContainsRune(" ,\t\r\n", r) })) {
		if !slices.Contains(d.types, pattern) {
			d.types = append(d.types, pattern)
		}
	}
	return d
}

// input makes of a draft what the JSON API would get.
func (d *endpointDraft) input(isNew bool) (endpointInput, error) {
	var in endpointInput
	in.URL = given(d.url)
	in.Types = given(d.types)
	in.Description = given(d.description)
	in.NewestFirst, in.AdaptiveRate = given(d.newestFirst), given(d.adaptiveRate)
	if isNew {
		in.Tenant, in.Secret = given(d.tenant), given(d.secret)
	} else if d.url == "" {
		in.URL.Set = false
	}
	in.Filter.Set = true
	if d.filter != "" {
		if !json.Valid([]byte(d.filter)) {
			return in, badField("filter", "is no JSON")
		}
		in.Filter.Value = json.RawMessage(d.filter)
	}
	headers, err := parseHeaders(d.headers)
	if err != nil {
		return in, err
	}
	in.Headers = field[map[string]string]{Set: isNew || len(headers) > 0 || d.dropHeaders, Value: headers}
	for _, number := range []struct {
		name, text string
		set        func(float64)
	}{
		{"timeout_seconds", d.timeout, func(f float64) { in.TimeoutSeconds = given(f) }},
		{"rate_limit", d.rateLimit, func(f float64) { in.RateLimit = given(f) }},
	} {
		f := 0.0
		if number.text != "" {
			if f, err = strconv.ParseFloat(number.text, 64); err != nil {
				return in, badField(number.name, "is no number")
			}
		}
		number.set(f)
	}
	for _, number := range []struct {
		name, text string
		set        func(int)
	}{
		{"burst", d.burst, func(n int) { in.Burst = given(n) }},
		{"max_in_flight", d.maxInFlight, func(n int) { in.MaxInFlight = given(n) }},
	} {
		n := 0
		if number.text != "" {
			if n, err = strconv.Atoi(number.text); err != nil {
				return in, badField(number.name, "is no whole number")
			}
		}
		number.set(n)
	}
	return in, nil
}

func given[T any](value T) field[T] { return field[T]{Set: true, Value: value} }

// parseHeaders reads headers, one a line. It quotes none: they are credentials.
func parseHeaders(text string) (map[string]string, error) {
	headers := map[string]string{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		if !ok || name == "" {
			return nil, badField("headers", fmt.Sprintf("line %d is no Name: value", n))
		}
		if _, twice := headers[name]; twice {
			return nil, badField("headers", fmt.Sprintf("line %d has a name that stood there before", n))
		}
		headers[name] = strings.TrimSpace(value)
	}
	return headers, nil
}

// endpointForm makes the form that shows a draft and what is wrong with it. before is
// the endpoint that is changed; nil for a new one.
func (v *visit) endpointForm(d *endpointDraft, before *webhook.Endpoint, errors map[string]string) endpointForm {
	f := endpointForm{
		Action: "endpoints/new", Cancel: "endpoints", Submit: "Add the endpoint", NewestFirst: d.newestFirst, AdaptiveRate: d.adaptiveRate,
	}
	urlField := formField{
		Name: "url", Label: "URL", Value: d.url, Type: "url", Placeholder: "https://example.com/webhooks", Required: true, Mono: true,
		Hint: "Events are posted here. It must be public and speak HTTPS.",
	}
	if before != nil {
		id := before.ID.String()
		f.Action, f.Cancel, f.Submit = "endpoints/"+id+"/edit", "endpoints/"+id, "Save"
		name := v.endpointName(*before)
		f.Back, f.Revision = &name, before.Revision
		f.HasHeaders = len(before.Headers) > 0
		if v.url(before.URL) != before.URL {
			// An operator does not see the query, so that it cannot stand in the field.
			urlField.Hint = "Now " + v.url(before.URL) + ". Leave it empty to keep it, or enter all of it."
			urlField.Required, urlField.Placeholder = false, ""
		}
	}
	if v.principal.operator && before == nil {
		f.Basics = append(f.Basics, formField{Name: "tenant", Label: "Tenant", Value: d.tenant, Required: true, Hint: "Whose endpoint it is, for ever."})
	}
	f.Basics = append(f.Basics, urlField,
		formField{Name: "description", Label: "Description", Value: d.description, Hint: "For you. Optional."})

	var rest []string
	for _, t := range v.handler.eventTypes {
		f.Choices = append(f.Choices, typeChoice{EventType: t, Chosen: slices.Contains(d.types, t.Name)})
	}
	for _, pattern := range d.types {
		known := slices.ContainsFunc(f.Choices, func(c typeChoice) bool { return c.Name == pattern })
		switch {
		case pattern == "*" && len(f.Choices) > 0:
			f.All = true
		case !known:
			rest = append(rest, pattern)
		}
	}
	f.Types = formField{
		Name: "types", Label: "Event types", Rows: 3, Value: strings.Join(rest, "\n"), Error: errors["types"],
		Hint: "One a line: * for all, order.* for whatever begins with order., or an exact type.",
	}
	if len(f.Choices) > 0 {
		f.Types.Label, f.Types.Rows = "Other patterns", 2
	}

	headersHint := "One a line, such as Authorization: Bearer … They are stored sealed and never shown again."
	if f.HasHeaders {
		headersHint = "Sent now: " + strings.Join(headerNames(before.Headers), ", ") + ". Their values are not shown. Leave this empty to keep them, or enter all of them, one a line."
	}
	f.Texts = []formField{
		{Name: "headers", Label: "Headers of your own", Rows: 3, Value: d.headers, Hint: headersHint},
		{Name: "filter", Label: "Filter", Rows: 4, Value: d.filter, Hint: `A condition on the payload, as JSON: {"data.amount": {"$gte": 1000}}. Empty means all.`},
	}
	f.Numbers = []formField{
		{Name: "timeout_seconds", Label: "Timeout, seconds", Value: d.timeout, Placeholder: "as a rule 10", Hint: "At most 30."},
		{Name: "rate_limit", Label: "Requests a second", Value: d.rateLimit, Placeholder: "no limit", Hint: "What is over waits."},
		{Name: "burst", Label: "Burst", Value: d.burst, Placeholder: "a second’s worth", Hint: "How many may go at once under that limit."},
		{Name: "max_in_flight", Label: "At the same time", Value: d.maxInFlight, Placeholder: "as a rule 20", Hint: "Requests in flight."},
	}
	if before == nil {
		f.Texts = append(f.Texts, formField{Name: "secret", Label: "Signing secret", Mono: true, Hint: "Optional: whsec_… of your own. As a rule one is made, and shown once."})
	}
	for _, fields := range [][]formField{f.Basics, f.Texts, f.Numbers} {
		for i := range fields {
			fields[i].Error = errors[fields[i].Name]
		}
	}
	f.ShowMore = d.headers != "" || d.filter != "" || d.timeout+d.rateLimit+d.burst+d.maxInFlight != "" || d.newestFirst || d.adaptiveRate
	for _, fields := range [][]formField{f.Texts, f.Numbers} {
		f.ShowMore = f.ShowMore || slices.ContainsFunc(fields, func(x formField) bool { return x.Error != "" })
	}
	f.Problem = leftOver(errors, f.Basics, f.Texts, f.Numbers, []formField{f.Types})
	return f
}

// leftOver says what is wrong with fields that a form does not have.
func leftOver(errors map[string]string, shown ...[]formField) string {
	var lines []string
	for name, detail := range errors {
		if !slices.ContainsFunc(slices.Concat(shown...), func(f formField) bool { return f.Name == name }) {
			lines = append(lines, name+": "+detail)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, " ")
}

func newEndpointPage(v *visit) error {
	d := &endpointDraft{}
	if v.principal.operator {
		d.tenant = v.r.URL.Query().Get("tenant")
	}
	return v.render(http.StatusOK, "endpoint_form.html", "Add an endpoint", v.endpointForm(d, nil, nil))
}

// createEndpointForm makes the endpoint and shows its secret, this once.
func createEndpointForm(v *visit) error {
	form, err := v.form()
	if err != nil {
		return err
	}
	d := readDraft(form)
	if !v.principal.operator {
		d.tenant = v.principal.tenant
	}
	e, err := v.createFromDraft(&d)
	if err != nil {
		errors, ok := v.fieldErrors(err)
		if !ok {
			return err
		}
		return v.render(http.StatusUnprocessableEntity, "endpoint_form.html", "Add an endpoint", v.endpointForm(&d, nil, errors))
	}
	return v.renderSecret(http.StatusCreated, e, secretData{
		Fresh: e.Secret.Reveal(), Created: true, Headline: "The endpoint is ready.", Address: "endpoints/" + e.ID.String(),
	})
}

func (v *visit) createFromDraft(d *endpointDraft) (webhook.Endpoint, error) {
	in, err := d.input(true)
	if err != nil {
		return webhook.Endpoint{}, err
	}
	p, err := in.params()
	if err != nil {
		return webhook.Endpoint{}, err
	}
	return v.createEndpoint(p)
}

func editEndpointPage(v *visit) error {
	e, err := v.endpointOfPath()
	if err != nil {
		return err
	}
	d := v.draftOf(e)
	return v.render(http.StatusOK, "endpoint_form.html", "Edit the endpoint", v.endpointForm(&d, &e, nil))
}

// draftOf is the form of an endpoint as it is.
func (v *visit) draftOf(e webhook.Endpoint) endpointDraft {
	d := endpointDraft{
		tenant: e.Tenant, url: e.URL, description: e.Description, filter: string(e.Filter), types: e.Types,
		newestFirst: e.NewestFirst, adaptiveRate: e.AdaptiveRate,
	}
	if v.url(e.URL) != e.URL {
		d.url = ""
	}
	if e.Timeout > 0 {
		d.timeout = strconv.FormatFloat(e.Timeout.Seconds(), 'f', -1, 64)
	}
	if e.RateLimit > 0 {
		d.rateLimit = strconv.FormatFloat(e.RateLimit, 'f', -1, 64)
	}
	if e.Burst > 0 {
		d.burst = strconv.Itoa(e.Burst)
	}
	if e.MaxInFlight > 0 {
		d.maxInFlight = strconv.Itoa(e.MaxInFlight)
	}
	return d
}

// updateEndpointForm saves the endpoint, unless somebody else did in the meantime.
func updateEndpointForm(v *visit) error {
	id, err := v.id("endpoint_id")
	if err != nil {
		return err
	}
	form, err := v.form()
	if err != nil {
		return err
	}
	d := readDraft(form)
	revision, err := strconv.ParseInt(form.Get("revision"), 10, 64)
	if err != nil || revision <= 0 {
		return problem{Status: http.StatusBadRequest, Code: "bad_form", Detail: "The form does not say what it changes."}
	}
	err = v.updateFromDraft(id, &d, revision)
	if err == nil {
		return v.redirect("endpoints/" + id.String() + "?done=saved")
	}
	errors, ok := v.fieldErrors(err)
	if !ok && !isConflict(err) {
		return err
	}
	before, readErr := v.view.Endpoint(v.ctx(), id)
	if readErr != nil {
		return readErr
	}
	f := v.endpointForm(&d, &before, errors)
	if ok {
		// What was read before the form was filled in still is what it changes.
		f.Revision = revision
		return v.render(http.StatusUnprocessableEntity, "endpoint_form.html", "Edit the endpoint", f)
	}
	f.Problem = "Somebody else has changed this endpoint in the meantime. What you see is what you entered: saving again replaces what they did."
	return v.render(http.StatusConflict, "endpoint_form.html", "Edit the endpoint", f)
}

func (v *visit) updateFromDraft(id uuid.UUID, d *endpointDraft, revision int64) error {
	in, err := d.input(false)
	if err != nil {
		return err
	}
	u, err := in.update()
	if err != nil {
		return err
	}
	u.IfRevision = revision
	_, err = v.updateEndpoint(id, u)
	return err
}
