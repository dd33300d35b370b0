package sqlite

import (
	"context"
	"database/sql"

	"github.com/outhook/webhook"
)

// ListEvents implements [webhook.LogStore]. A tenant's events ride on event_tenant,
// those of one resource of a tenant on event_resource, and all on the unique index of
// event.id.
func (s *Store) ListEvents(ctx context.Context, p webhook.ListEventsParams) (webhook.EventListing, error) {
	listing := webhook.EventListing{Next: p.After}
	if p.Limit <= 0 {
		return listing, nil
	}
	q := listEvents(p)
	err := s.read(ctx, "listing events", func(ctx context.Context) error {
		listing = webhook.EventListing{Next: p.After}
		rows, err := s.db.QueryContext(ctx, s.sql(q.text), q.args...)
		return scanAll(rows, err, func(rows *sql.Rows) error {
			var status webhook.EventStatus
			var mark bool
			e, err := scanEvent(rows, &mark, &status.FannedOut, &status.Unmatched)
			if mark { // of how far was looked
				listing.Next = webhook.EventPosition{Sequence: e.Sequence, ID: e.ID}
				listing.More = status.Unmatched
				return err
			}
			status.EventRecord = *e
			status.Payload = nil
			listing.Events = append(listing.Events, status)
			return err
		})
	})
	if err != nil {
		return webhook.EventListing{}, err
	}
	if n := len(listing.Events); n == p.Limit {
		last := &listing.Events[n-1]
		listing.Next, listing.More = webhook.EventPosition{Sequence: last.Sequence, ID: last.ID}, true
	}
	return listing, nil
}

// listEvents is a walk along an index, what of it the filters let through, and a row
// that marks the end of the walk.
func listEvents(p webhook.ListEventsParams) fragment {
	tenant, limited := p.Scope.Tenant()
	direction, beyond, order := query("DESC"), query("<"), query("id")
	if p.OldestFirst {
		direction, beyond = "ASC", ">"
	}
	var way, filters fragment
	and := func(f *fragment, text query, args ...any) {
		if f.text != "" {
			f.text += " AND "
		}
		f.add(text, args...)
	}
	started := p.After != (webhook.EventPosition{})
	if limited {
		order = "seq"
		and(&way, "tenant = ?", tenant)
		if started {
			and(&way, "seq "+beyond+" ?", p.After.Sequence)
		}
	} else if started {
		and(&way, "id "+beyond+" ?", blob(p.After.ID))
	}
	switch {
	case p.ResourceID != "" && limited:
		and(&way, "resource_id = ? AND resource_id <> ''", p.ResourceID)
	case p.ResourceID != "":
		and(&filters, "resource_id = ?", p.ResourceID)
	}
	if p.Type != "" {
		and(&filters, "type = ?", p.Type)
	}
	if p.Unmatched {
		and(&filters, "EXISTS (SELECT 1 FROM {{prefix}}unmatched WHERE event_seq = seq)")
	}
	if !p.From.IsZero() {
		and(&filters, "created_at >= ?", micros(p.From))
	}
	if !p.Until.IsZero() {
		and(&filters, "created_at < ?", micros(p.Until))
	}
	scan := p.Limit
	if filters.text != "" {
		scan = max(scan, listedPerPart)
	}

	const columns = "seq, id, tenant, type, resource_id, resource_version, content_type, created_at"
	var f fragment
	f.add("WITH walk AS (SELECT " + columns + ", row_number() OVER () AS looked")
	if p.OldestFirst && !p.SettledAt.IsZero() {
		f.add(", max(created_at >= ?) OVER (ORDER BY "+order+") AS unsettled", micros(p.SettledAt))
	} else {
		f.add(", 0 AS unsettled")
	}
	f.add(" FROM (SELECT " + columns + " FROM {{prefix}}event")
	if way.text != "" {
		f.add(" WHERE "+way.text, way.args...)
	}
	f.add(" ORDER BY "+order+" "+direction+" LIMIT ?))\n", scan)
	f.add("SELECT * FROM (SELECT " + columns + ", NULL AS payload, 0 AS mark," +
		" NOT EXISTS (SELECT 1 FROM {{prefix}}outbox WHERE event_seq = seq) AS fanned_out," +
		" EXISTS (SELECT 1 FROM {{prefix}}unmatched WHERE event_seq = seq) AS unmatched FROM walk WHERE NOT unsettled")
	if filters.text != "" {
		f.add(" AND "+filters.text, filters.args...)
	}
	f.add(" ORDER BY looked LIMIT ?)\n", p.Limit)
	f.add("UNION ALL SELECT * FROM (SELECT "+columns+", NULL, 1, 0, looked = ? FROM walk WHERE NOT unsettled ORDER BY looked DESC LIMIT 1)", scan)
	return f
}
