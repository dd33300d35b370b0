package webhook

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime"
	"strings"
	"time"
)

// envelope is what stands before the payload in an enveloped body (docs/design.md §5).
type envelope struct {
	ID              string    `json:"id"`
	Type            string    `json:"type"`
	Timestamp       time.Time `json:"timestamp"`
	IdempotencyKey  string    `json:"idempotency_key"`
	ResourceID      string    `json:"resource_id,omitempty"`
	ResourceVersion int64     `json:"resource_version,omitempty"`
	ContentType     string    `json:"content_type,omitempty"`
}

// bodyOf is what is signed and sent, and its media type: the payload, or, where the
// endpoint asks for it, that in an envelope. It is the same in each attempt.
func bodyOf(t *target, d *Claimed) (body []byte, contentType string, err error) {
	e := &d.Event
	if !t.options.Envelope {
		return e.Payload, cmp.Or(e.ContentType, mediaJSON), nil
	}
	head := envelope{
		ID: e.ID.String(), Type: e.Type, Timestamp: e.CreatedAt.UTC(),
		IdempotencyKey: idempotencyKey(e.ID.String(), t.id),
		ResourceID:     e.ResourceID, ResourceVersion: e.ResourceVersion,
	}
	readable := holdsJSON(e)
	if !readable {
		head.ContentType = e.ContentType
	}
	body, err = json.Marshal(head)
	if err != nil { // cannot be: words, a number and a time of this era
		return nil, "", fmt.Errorf("write the envelope of event %s: %w", e.ID, err)
	}
	body = body[:len(body)-1] // without its last brace
	if readable {
		body = append(body, `,"data":`...)
		body = append(body, e.Payload...)
		return append(body, '}'), mediaJSON, nil
	}
	body = append(body, `,"data_base64":"`...)
	body = base64.StdEncoding.AppendEncode(body, e.Payload)
	return append(body, `"}`...), mediaJSON, nil
}

// holdsJSON reports whether a payload can stand in a JSON document as it is. One without
// a content type was checked when it was enqueued.
func holdsJSON(e *EventRecord) bool {
	if e.ContentType == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(e.ContentType)
	return err == nil && (media == mediaJSON || strings.HasSuffix(media, "+json")) && json.Valid(e.Payload)
}
