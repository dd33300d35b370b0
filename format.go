package webhook

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Values of this package get printed: into logs, errors, panics and bug reports, with
// %+v and whatever logs a struct. Those that hold a payload, a credential, what a
// receiver answered, or a URL whose path and query are as good as one print without
// it. Encoders such as encoding/json are asked for the whole value on purpose and give
// it, but for what nobody is shown: secrets, keys and the values of custom headers.

// Headers are an endpoint's custom headers by name. Their values are credentials as
// often as not: fmt, log/slog and encoding/json show the names only.
type Headers map[string]string

// Format leaves the values out of whatever prints the headers.
func (h Headers) Format(f fmt.State, _ rune) { io.WriteString(f, h.LogValue().String()) }

// LogValue leaves the values out, for log/slog.
func (h Headers) LogValue() slog.Value {
	return slog.StringValue(strings.Join(slices.Sorted(maps.Keys(h)), ","))
}

// MarshalJSON redacts the values.
func (h Headers) MarshalJSON() ([]byte, error) {
	if h == nil {
		return []byte("null"), nil
	}
	names := make(map[string]string, len(h))
	for name := range h {
		names[name] = redacted
	}
	return json.Marshal(names)
}

// origin is what may be printed of a URL: its path and query may be credentials.
func origin(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

func write(f fmt.State, v slog.LogValuer) { io.WriteString(f, v.LogValue().String()) }

// Format leaves the payload out of whatever prints the event.
func (e Event) Format(f fmt.State, _ rune) { write(f, e) }

// LogValue leaves the payload out, for log/slog.
func (e Event) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("tenant", e.Tenant),
		slog.String("type", e.Type),
		slog.String("resource", e.ResourceID),
		slog.Int64("resource_version", e.ResourceVersion),
		slog.String("idempotency_key", e.IdempotencyKey),
		slog.String("content_type", e.ContentType),
		slog.Int("payload_bytes", len(e.Payload)),
	)
}

// Format leaves the payload out of whatever prints the record.
func (e EventRecord) Format(f fmt.State, _ rune) { write(f, e) }

// LogValue leaves the payload out, for log/slog.
func (e EventRecord) LogValue() slog.Value { return slog.GroupValue(e.attrs()...) }

func (e EventRecord) attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("id", e.ID.String()),
		slog.Int64("sequence", e.Sequence),
		slog.String("tenant", e.Tenant),
		slog.String("type", e.Type),
		slog.String("resource", e.ResourceID),
		slog.Int64("resource_version", e.ResourceVersion),
		slog.String("idempotency_key", e.IdempotencyKey),
		slog.String("content_type", e.ContentType),
		slog.Int("payload_bytes", e.PayloadSize()),
		slog.Time("created_at", e.CreatedAt),
	}
}

// Format leaves the payload out of whatever prints the status.
func (s EventStatus) Format(f fmt.State, _ rune) { write(f, s) }

// LogValue leaves the payload out, for log/slog.
func (s EventStatus) LogValue() slog.Value {
	return slog.GroupValue(append(s.attrs(), slog.Bool("fanned_out", s.FannedOut), slog.Bool("unmatched", s.Unmatched))...)
}

// Format leaves what the receiver answered out of whatever prints the test.
func (p LogTestParams) Format(f fmt.State, _ rune) { write(f, p) }

// LogValue leaves what the receiver answered out, for log/slog.
func (p LogTestParams) LogValue() slog.Value { return p.Attempt.LogValue() }

// Format counts the events: they are not meant for a line of text.
func (l EventListing) Format(f fmt.State, _ rune) { write(f, l) }

// LogValue counts the events, for log/slog.
func (l EventListing) LogValue() slog.Value {
	return slog.GroupValue(slog.Int("events", len(l.Events)), slog.Bool("more", l.More))
}

// Format counts the events: they are not meant for a line of text.
func (p EventPage) Format(f fmt.State, _ rune) { write(f, p) }

// LogValue counts the events, for log/slog.
func (p EventPage) LogValue() slog.Value {
	return slog.GroupValue(slog.Int("events", len(p.Events)), slog.Bool("more", p.More))
}

// Format leaves the payload out of whatever prints the delivery.
func (c Claimed) Format(f fmt.State, _ rune) { write(f, c) }

// LogValue leaves the payload out, for log/slog.
func (c Claimed) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("delivery", c.DeliveryID.String()),
		slog.String("endpoint", c.EndpointID.String()),
		slog.Any("event", c.Event),
		slog.Int("run", c.Run),
		slog.Int("lane", int(c.Lane)),
		slog.Int("attempts", c.Attempts),
		slog.Time("created_at", c.CreatedAt),
		slog.Time("due_at", c.DueAt),
		slog.Bool("taken_over", c.TakenOver),
		slog.Bool("ordering_skipped", c.OrderingSkipped),
	)
}

// Format leaves what the receiver answered out of whatever prints the result.
func (r Result) Format(f fmt.State, _ rune) { write(f, r) }

// LogValue leaves what the receiver answered out, for log/slog.
func (r Result) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.String("delivery", r.DeliveryID.String()),
		slog.String("state", string(r.State)),
		slog.String("reason", r.Reason),
		slog.Time("next_attempt_at", r.NextAttemptAt),
		slog.Int("lane", int(r.Lane)),
	}
	if r.Attempt != nil {
		attrs = append(attrs, slog.Any("attempt", *r.Attempt), slog.Bool("counted", !r.Uncounted))
	}
	return slog.GroupValue(attrs...)
}

// LogValue tells the number of the results, for log/slog.
func (p RecordParams) LogValue() slog.Value {
	return slog.GroupValue(slog.Time("now", p.Now), slog.Int("results", len(p.Results)))
}

// Format leaves what the receiver answered out of whatever prints the attempt.
func (a Attempt) Format(f fmt.State, _ rune) { write(f, a) }

// LogValue leaves what the receiver answered out, for log/slog.
func (a Attempt) LogValue() slog.Value { return slog.GroupValue(a.attrs()...) }

func (a Attempt) attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("delivery", a.DeliveryID.String()),
		slog.String("event", a.EventID.String()),
		slog.String("endpoint", a.EndpointID.String()),
		slog.String("tenant", a.Tenant),
		slog.Int("attempt", a.Number),
		slog.Time("started_at", a.StartedAt),
		slog.Duration("latency", a.Latency),
		slog.Int("status", a.Status),
		slog.String("class", string(a.Class)),
		slog.String("error", a.Error),
		slog.Int("excerpt_bytes", len(a.Excerpt)),
		slog.Bool("late", a.Late),
	}
}

// Format leaves what the receiver answered out of whatever prints the report.
func (r AttemptReport) Format(f fmt.State, _ rune) { write(f, r) }

// LogValue leaves what the receiver answered out, for log/slog.
func (r AttemptReport) LogValue() slog.Value {
	return slog.GroupValue(append(
		r.attrs(),
		slog.String("type", r.EventType),
		slog.Int("run", r.Run),
		slog.String("state", string(r.State)),
		slog.String("reason", r.Reason),
		slog.Time("next_attempt_at", r.NextAttemptAt),
		slog.Bool("counted", !r.Uncounted),
	)...)
}

// Format leaves credentials out of whatever prints the endpoint: the secret, header
// values, the TLS key, and the URL's path and query.
func (e Endpoint) Format(f fmt.State, _ rune) { write(f, e) }

// LogValue leaves credentials out, for log/slog.
func (e Endpoint) LogValue() slog.Value {
	return slog.GroupValue(append(
		[]slog.Attr{slog.String("id", e.ID.String())},
		append(
			e.attrs(),
			slog.String("state", string(e.State)),
			slog.String("state_reason", e.StateReason),
			slog.Time("state_changed_at", e.StateChangedAt),
			slog.Int("secrets", len(e.Secrets)),
			slog.Int64("revision", e.Revision),
			slog.Time("created_at", e.CreatedAt),
			slog.Time("updated_at", e.UpdatedAt),
		)...,
	)...)
}

// Format leaves credentials out of whatever prints the parameters: the secret, header
// values, the TLS key, and the URL's path and query.
func (p EndpointParams) Format(f fmt.State, _ rune) { write(f, p) }

// LogValue leaves credentials out, for log/slog.
func (p EndpointParams) LogValue() slog.Value { return slog.GroupValue(p.attrs()...) }

func (p EndpointParams) attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("tenant", p.Tenant),
		slog.String("url", origin(p.URL)),
		slog.String("types", strings.Join(p.Types, ",")),
		slog.String("description", p.Description),
		slog.Int("filter_bytes", len(p.Filter)),
		slog.Any("headers", p.Headers),
		slog.Bool("adaptive_rate", p.AdaptiveRate),
		slog.Bool("at_most_once", p.AtMostOnce),
		slog.Int("burst", p.Burst),
		slog.Bool("envelope", p.Envelope),
		slog.Int("max_in_flight", p.MaxInFlight),
		slog.Bool("newest_first", p.NewestFirst),
		slog.String("ordering", string(p.Ordering)),
		slog.Float64("rate_limit", p.RateLimit),
		slog.Int("shed_backlog", p.ShedBacklog),
		slog.Any("retry", p.Retry),
		slog.Any("secret", p.Secret),
		slog.Any("tls", p.TLS),
		slog.Duration("timeout", p.Timeout),
	}
}

// Format prints the changed fields, as EndpointParams prints them.
func (u EndpointUpdate) Format(f fmt.State, _ rune) { write(f, u) }

// LogValue tells the changed fields, as EndpointParams tells them.
func (u EndpointUpdate) LogValue() slog.Value {
	var attrs []slog.Attr
	if u.URL != nil {
		attrs = append(attrs, slog.String("url", origin(*u.URL)))
	}
	if u.Types != nil {
		attrs = append(attrs, slog.String("types", strings.Join(u.Types, ",")))
	}
	if u.Description != nil {
		attrs = append(attrs, slog.String("description", *u.Description))
	}
	if u.Filter != nil {
		attrs = append(attrs, slog.Int("filter_bytes", len(*u.Filter)))
	}
	if u.Headers != nil {
		attrs = append(attrs, slog.Any("headers", *u.Headers))
	}
	if u.AdaptiveRate != nil {
		attrs = append(attrs, slog.Bool("adaptive_rate", *u.AdaptiveRate))
	}
	if u.AtMostOnce != nil {
		attrs = append(attrs, slog.Bool("at_most_once", *u.AtMostOnce))
	}
	if u.Burst != nil {
		attrs = append(attrs, slog.Int("burst", *u.Burst))
	}
	if u.Envelope != nil {
		attrs = append(attrs, slog.Bool("envelope", *u.Envelope))
	}
	if u.MaxInFlight != nil {
		attrs = append(attrs, slog.Int("max_in_flight", *u.MaxInFlight))
	}
	if u.NewestFirst != nil {
		attrs = append(attrs, slog.Bool("newest_first", *u.NewestFirst))
	}
	if u.Ordering != nil {
		attrs = append(attrs, slog.String("ordering", string(*u.Ordering)))
	}
	if u.RateLimit != nil {
		attrs = append(attrs, slog.Float64("rate_limit", *u.RateLimit))
	}
	if u.ShedBacklog != nil {
		attrs = append(attrs, slog.Int("shed_backlog", *u.ShedBacklog))
	}
	if u.Retry != nil {
		attrs = append(attrs, slog.Any("retry", *u.Retry))
	}
	if u.Timeout != nil {
		attrs = append(attrs, slog.Duration("timeout", *u.Timeout))
	}
	if u.TLS != nil {
		attrs = append(attrs, slog.Any("tls", *u.TLS))
	}
	if u.IfRevision != 0 {
		attrs = append(attrs, slog.Int64("if_revision", u.IfRevision))
	}
	return slog.GroupValue(attrs...)
}

// Format leaves the documents, of which some are sealed, and the URL's path and query
// out of whatever prints the record.
func (e EndpointRecord) Format(f fmt.State, _ rune) { write(f, e) }

// LogValue leaves the documents and the URL's path and query out, for log/slog.
func (e EndpointRecord) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("id", e.ID.String()),
		slog.String("tenant", e.Tenant),
		slog.String("url", origin(e.URL)),
		slog.String("types", strings.Join(e.Types, ",")),
		slog.String("state", string(e.State)),
		slog.String("state_reason", e.StateReason),
		slog.Int64("revision", e.Revision),
		slog.Time("updated_at", e.UpdatedAt),
		slog.Bool("deleted", !e.DeletedAt.IsZero()),
	)
}

// Format leaves the proxy's credentials out of whatever prints it.
func (p EgressProxy) Format(f fmt.State, _ rune) { write(f, p) }

// LogValue leaves the proxy's credentials out, for log/slog.
func (p EgressProxy) LogValue() slog.Value {
	return slog.GroupValue(slog.String("url", origin(p.URL)), slog.Any("target_fault_status", p.TargetFaultStatus))
}

// MarshalJSON leaves the proxy's credentials out.
func (p EgressProxy) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		URL               string `json:"URL"`
		TargetFaultStatus []int  `json:"TargetFaultStatus"`
	}{origin(p.URL), p.TargetFaultStatus})
}

// Format leaves the request, which is an opaque document here, out of whatever prints
// the job.
func (r ReplayJobRecord) Format(f fmt.State, _ rune) { write(f, r) }

// LogValue leaves the request out, for log/slog.
func (r ReplayJobRecord) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("id", r.ID.String()),
		slog.String("endpoint", r.EndpointID.String()),
		slog.String("tenant", r.Tenant),
		slog.String("state", string(r.State)),
		slog.Int("matched", r.Matched),
		slog.Int("handled", r.Handled),
		slog.Int("created", r.Created),
	)
}

// Format leaves the payload out of whatever prints the candidate.
func (c ReplayCandidate) Format(f fmt.State, _ rune) { write(f, c) }

// LogValue leaves the payload out, for log/slog.
func (c ReplayCandidate) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("cursor", c.Cursor.String()),
		slog.Any("event", c.Event),
		slog.String("state", string(c.State)),
	)
}

// Format leaves the candidates out of whatever prints the page.
func (p ReplayPage) Format(f fmt.State, _ rune) { write(f, p) }

// LogValue counts the candidates, for log/slog.
func (p ReplayPage) LogValue() slog.Value {
	return slog.GroupValue(
		slog.Int("candidates", len(p.Candidates)),
		slog.String("next", p.Next.String()),
		slog.Bool("more", p.More),
	)
}

// Format prints the job as it prints alone.
func (w ReplayWork) Format(f fmt.State, _ rune) { write(f, w) }

// LogValue shows the job as it shows alone, for log/slog.
func (w ReplayWork) LogValue() slog.Value {
	return slog.GroupValue(slog.Any("job", w.Job), slog.Int("waiting", w.Waiting))
}

// Format leaves the documents out of whatever prints the notice.
func (n NoticeRecord) Format(f fmt.State, _ rune) { write(f, n) }

// LogValue leaves the documents out, for log/slog.
func (n NoticeRecord) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("id", n.ID.String()),
		slog.String("kind", string(n.Kind)),
		slog.String("endpoint", n.EndpointID.String()),
		slog.String("tenant", n.Tenant),
		slog.Time("streak", n.Streak),
		slog.Time("created_at", n.CreatedAt),
		slog.Time("due_at", n.DueAt),
		slog.Int("attempts", n.Attempts),
	)
}

// LogValue tells the numbers, for log/slog.
func (p SaveVitalsParams) LogValue() slog.Value {
	return slog.GroupValue(slog.Int("vitals", len(p.Vitals)), slog.Int("notices", len(p.Notices)))
}
