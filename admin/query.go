package admin

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/admin/internal/scope"
)

// Limits of lists.
const (
	defaultPage       = 50
	maxPage           = 100
	maxParameterBytes = 512
)

// param is a parameter of an operation's query.
type param struct {
	name string
	doc  string
	kind paramKind
	// operators is true of a parameter that only operators have.
	operators bool
	// oneOf lists the values, where they are few.
	oneOf []string
}

type paramKind int

const (
	textParam paramKind = iota
	idParam
	timeParam
	numberParam
	boolParam
)

// Parameters that several operations have.
var (
	cursorParam = param{name: "cursor", doc: "next_cursor of the page before, with the same other parameters."}
	limitParam  = param{name: "limit", kind: numberParam, doc: "How long a page is at most: 1 to 100, as a rule 50."}
	fromParam   = param{name: "from", kind: timeParam, doc: "Only what was made from then on."}
	untilParam  = param{name: "until", kind: timeParam, doc: "Only what was made before."}
	tenantParam = param{name: "tenant", operators: true, doc: "Only what belongs to this tenant."}
)

// readQuery takes the query's parameters and refuses those that the operation does not
// have: a filter that is not understood must not look as if it had been applied.
func (v *visit) readQuery(op *operation) error {
	query, err := url.ParseQuery(v.r.URL.RawQuery)
	if err != nil {
		return problem{Status: 400, Code: "bad_request", Detail: "The query cannot be read."}
	}
	return v.checkQuery(op, query)
}

// checkQuery takes the parameters of an operation.
func (v *visit) checkQuery(op *operation, query url.Values) error {
	for name, values := range query {
		i := slices.IndexFunc(op.params, func(p param) bool { return p.name == name && (!p.operators || v.principal.operator) })
		switch {
		case i < 0:
			return badParameter(shorten(name), "is unknown here")
		case len(values) > 1:
			return badParameter(name, "occurs more than once")
		case len(values[0]) > maxParameterBytes:
			return badParameter(name, "is longer than "+strconv.Itoa(maxParameterBytes)+" bytes")
		case !utf8.ValidString(values[0]) || strings.ContainsRune(values[0], 0):
			return badParameter(name, "is no text")
		case len(op.params[i].oneOf) > 0 && !slices.Contains(op.params[i].oneOf, values[0]):
			return badParameter(name, "is none of "+strings.Join(op.params[i].oneOf, ", "))
		}
	}
	v.op, v.query = op, query
	return nil
}

func shorten(name string) string {
	if len(name) > 64 {
		name = name[:64]
	}
	return strings.ToValidUTF8(name, "�")
}

// within is the visit's view, narrowed to the tenant that an operator asks for.
func (v *visit) within() *scope.View {
	if !v.query.Has("tenant") {
		return v.view
	}
	if narrow, ok := v.view.Within(v.query.Get("tenant")); ok {
		return narrow
	}
	return v.view
}

// queryID returns an id of the query; zero when it is not there.
func (v *visit) queryID(name string) (uuid.UUID, error) {
	value := v.query.Get(name)
	if value == "" {
		return uuid.Nil, nil
	}
	id, err := uuid.Parse(value)
	if err != nil || len(value) != 36 {
		return uuid.Nil, badParameter(name, "is no id")
	}
	return id, nil
}

// queryTimes returns the limits of a filter by time; zero where there is none.
func (v *visit) queryTimes() (from, until time.Time, err error) {
	for name, at := range map[string]*time.Time{"from": &from, "until": &until} {
		value := v.query.Get(name)
		if value == "" {
			continue
		}
		t, err := time.Parse(time.RFC3339Nano, value)
		if err != nil {
			return from, until, badParameter(name, "is no time such as 2006-01-02T15:04:05Z")
		}
		*at = t.UTC()
	}
	return from, until, nil
}

// refusedQuery makes what the library refuses of a list's filter a refusal of the
// parameter. A cursor of another list is refused in the words of one that is none.
func refusedQuery(err error) error {
	if errors.Is(err, webhook.ErrCursor) {
		return badParameter("cursor", "is none of this list")
	}
	if refused, ok := errors.AsType[*webhook.InvalidError](err); ok {
		return badParameter(fieldName(refused.Field), refused.Problem)
	}
	return err
}

// queryNumber returns a number of the query from 1 to most.
func (v *visit) queryNumber(name string, otherwise, most int) (int, error) {
	value := v.query.Get(name)
	if value == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > most {
		return 0, badParameter(name, "is not 1 to "+strconv.Itoa(most))
	}
	return n, nil
}

// listPage is where a page of a list begins, and how long it is at most.
type listPage struct {
	from  uuid.UUID // the last id of the page before; zero on the first
	limit int
}

// page reads the parameters of a list.
func (v *visit) page() (listPage, error) {
	limit, err := v.queryNumber("limit", defaultPage, maxPage)
	if err != nil {
		return listPage{}, err
	}
	from, err := v.readCursor()
	return listPage{from: from, limit: limit}, err
}

// A cursor is the last id of a page, and a hash of what it was a page of: operation,
// principal's tenant, filter. One that was made for anything else is refused, all in
// the same words. It need not be secret, nor signed: a list is limited to the view
// whatever its cursor says.
const cursorHashBytes = 16

func (v *visit) readCursor() (uuid.UUID, error) {
	value := v.query.Get("cursor")
	if value == "" {
		return uuid.Nil, nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(value)
	if err != nil || len(raw) != 16+cursorHashBytes {
		return uuid.Nil, badParameter("cursor", "is none of this list")
	}
	last := uuid.UUID(raw[:16])
	if v.cursor(last) != value {
		return uuid.Nil, badParameter("cursor", "is none of this list")
	}
	return last, nil
}

// cursor makes the cursor of the page that ends with last.
func (v *visit) cursor(last uuid.UUID) string {
	filter := url.Values{}
	for name, values := range v.query {
		if name != "cursor" && name != "limit" {
			filter[name] = values
		}
	}
	h := sha256.New()
	for _, part := range []string{v.op.id, strconv.FormatBool(v.principal.operator), v.principal.tenant, filter.Encode(), string(last[:])} {
		_, _ = h.Write([]byte(strconv.Itoa(len(part)) + ":" + part))
	}
	return base64.RawURLEncoding.EncodeToString(append(last[:], h.Sum(nil)[:cursorHashBytes]...))
}

// listShape is a page of a list.
type listShape[T any] struct {
	Items      []T    `json:"items"`
	NextCursor string `json:"next_cursor,omitempty" doc:"Where the next page begins; left out on the last one."`
}

// writeList answers with a page of what was asked for with one more than the limit,
// so that it is known whether there is a further page.
func writeList[T, S any](v *visit, p listPage, list []T, id func(T) uuid.UUID, shape func(T) S) error {
	page := listShape[S]{Items: make([]S, 0, min(len(list), p.limit))}
	for i, item := range list {
		if i == p.limit {
			page.NextCursor = v.cursor(id(list[i-1]))
			break
		}
		page.Items = append(page.Items, shape(item))
	}
	return v.writeJSON(200, page)
}
