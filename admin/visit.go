package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/admin/internal/scope"
)

// maxBodyBytes is the largest body of a request: an endpoint with a filter, headers
// and certificates of the largest size fits.
const maxBodyBytes = 256 << 10

// visit is one request of one principal. It is all that handlers get, and its view is
// their only way to data.
type visit struct {
	handler   *Handler
	w         http.ResponseWriter
	r         *http.Request
	values    *http.Request // has the path's values
	principal principal
	view      *scope.View
	// op and query are the API's operation and its parameters, which it knows all of.
	op    *operation
	query url.Values
	// local is the path below the mount point, and base the way up from it to the
	// mount point: "./", "../", …
	local, base string
}

func (v *visit) ctx() context.Context { return v.r.Context() }

// isAPI reports whether a program asks, and not a browser for a page.
func (v *visit) isAPI() bool { return v.local == "/api" || strings.HasPrefix(v.local, "/api/") }

// id returns an id of the path. What is no id at all is as unknown as any other.
func (v *visit) id(name string) (uuid.UUID, error) {
	value := v.values.PathValue(name)
	id, err := uuid.Parse(value)
	// Parse also takes forms that are not the one we write.
	if err != nil || id.String() != strings.ToLower(value) {
		return uuid.Nil, errNotFound
	}
	return id, nil
}

// endpointOfPath is the endpoint whose id stands in the path.
func (v *visit) endpointOfPath() (webhook.Endpoint, error) {
	id, err := v.id("endpoint_id")
	if err != nil {
		return webhook.Endpoint{}, err
	}
	return v.view.Endpoint(v.ctx(), id)
}

// readJSON reads the body into dst. Unknown fields are refused, and so is anything
// that does not say that it is JSON: browsers cannot send that across origins.
func (v *visit) readJSON(dst any) error {
	kind, _, err := mime.ParseMediaType(v.r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" && kind != "application/merge-patch+json" {
		return problem{Status: http.StatusUnsupportedMediaType, Code: "unsupported_media_type", Detail: "Send application/json."}
	}
	decoder := json.NewDecoder(v.r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(dst); err != nil {
		return badBody(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return badBody(errors.New("there is something behind the value"))
	}
	return nil
}

// readOptionalJSON is readJSON where the body may be left out.
func (v *visit) readOptionalJSON(dst any) error {
	if v.r.ContentLength == 0 {
		return nil
	}
	return v.readJSON(dst)
}

func badBody(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return err
	}
	if p, ok := errors.AsType[problem](err); ok {
		return p
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		return badField(wrong.Field, "is "+article(wrong.Value)+", which does not fit")
	}
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return badField(strings.Trim(field, `"`), "is unknown")
	}
	return problem{Status: http.StatusBadRequest, Code: "bad_json", Detail: "The body is no JSON of the kind that is expected here."}
}

func article(kind string) string {
	if kind != "" && strings.ContainsRune("aeiou", rune(kind[0])) {
		return "an " + kind
	}
	return "a " + kind
}

// writeJSON answers with a shape.
func (v *visit) writeJSON(status int, shape any) error {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(true)
	if err := encoder.Encode(shape); err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "application/json")
	v.w.WriteHeader(status)
	_, _ = v.w.Write(body.Bytes())
	return nil
}

// writeNothing answers 204.
func (v *visit) writeNothing() error {
	v.w.WriteHeader(http.StatusNoContent)
	return nil
}

// created says where a new thing is, below the handler's root, and returns the status of
// the answer: one that an earlier request with the same Idempotency-Key made is not new.
func (v *visit) created(where string, id uuid.UUID, before bool) int {
	v.w.Header().Set("Location", v.base+where+id.String())
	if before {
		v.w.Header().Set("Idempotent-Replayed", "true")
		return http.StatusOK
	}
	return http.StatusCreated
}
