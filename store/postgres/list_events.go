package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/outhook/webhook"
)

// ListEvents implements [webhook.LogStore]. A tenant's events ride on
// event_tenant_idx, those of one resource of a tenant on event_resource_idx, and all
// on event_pkey; whether an event waits on outbox_pkey and outbox_moved_idx, and
// whether it was unmatched on unmatched_pkey.
func (s *core) ListEvents(ctx context.Context, p webhook.ListEventsParams) (webhook.EventListing, error) {
	listing := webhook.EventListing{Next: p.After}
	if p.Limit <= 0 {
		return listing, nil
	}
	listing, err := s.listEvents(ctx, p, min(lookedAt, glance+firstLook*p.Limit))
	if err == nil && listing.More && len(listing.Events) < p.Limit {
		rest := p
		rest.After, rest.Limit = listing.Next, p.Limit-len(listing.Events)
		var more webhook.EventListing
		more, err = s.listEvents(ctx, rest, lookedAt)
		more.Events = append(listing.Events, more.Events...)
		listing = more
	}
	if err != nil {
		return webhook.EventListing{}, fmt.Errorf("postgres: listing events: %w", err)
	}
	return listing, nil
}

// listEvents lists what lies within scan rows.
func (s *core) listEvents(ctx context.Context, p webhook.ListEventsParams, scan int) (webhook.EventListing, error) {
	listing := webhook.EventListing{Next: p.After}
	q, args := s.eventsStatement(p, scan)
	err := collect(ctx, s.db, &q, func(r rows) error {
		var e webhook.EventStatus
		var waiting, mark bool
		if err := r.Scan(&mark, &e.ID, &e.Sequence, &e.Tenant, &e.Type, &e.ResourceID, &e.ResourceVersion, &e.ContentType,
			&e.CreatedAt, &waiting, &e.Unmatched); err != nil {
			return err
		}
		if mark { // of how far was looked
			listing.Next = webhook.EventPosition{Sequence: e.Sequence, ID: e.ID}
			listing.More = waiting
			return nil
		}
		e.FannedOut = !waiting
		e.CreatedAt = e.CreatedAt.UTC()
		listing.Events = append(listing.Events, e)
		return nil
	}, args...)
	if n := len(listing.Events); n == p.Limit {
		last := &listing.Events[n-1]
		listing.Next, listing.More = webhook.EventPosition{Sequence: last.Sequence, ID: last.ID}, true
	}
	return listing, err
}

// eventsStatement is a walk along an index, what of it the filters let through, and a
// row that marks the end of the walk.
func (s *core) eventsStatement(p webhook.ListEventsParams, scan int) (statement, []any) {
	var args []any
	parameter := func(value any, as string) string {
		args = append(args, value)
		return fmt.Sprintf("$%d::%s", len(args), as)
	}
	tenant, limited := p.Scope.Tenant()
	order, from := "id", "true"
	if limited {
		order, from = "seq", "tenant = "+parameter(tenant, "text")
	}
	direction, beyond := "DESC", "<"
	if p.OldestFirst {
		direction, beyond = "ASC", ">"
	}
	switch {
	case p.After == (webhook.EventPosition{}):
	case limited:
		from += " AND seq " + beyond + " " + parameter(p.After.Sequence, "bigint")
	default:
		from += " AND id " + beyond + " " + parameter(s.db.id(p.After.ID), "uuid")
	}
	var filters []string
	if p.Type != "" {
		filters = append(filters, "e.type = "+parameter(p.Type, "text"))
	}
	switch resource := "resource_id = "; {
	case p.ResourceID != "" && limited:
		from += " AND " + resource + parameter(p.ResourceID, "text") + " AND resource_id <> ''"
	case p.ResourceID != "":
		filters = append(filters, "e."+resource+parameter(p.ResourceID, "text"))
	}
	if p.Unmatched {
		filters = append(filters, "EXISTS (SELECT FROM "+s.table("unmatched")+" u WHERE u.event_id = e.id)")
	}
	if !p.From.IsZero() {
		filters = append(filters, "e.created_at >= "+parameter(micros(p.From), "timestamptz"))
	}
	if !p.Until.IsZero() {
		filters = append(filters, "e.created_at < "+parameter(micros(p.Until), "timestamptz"))
	}
	if len(filters) == 0 {
		scan = p.Limit
	}
	scan = max(scan, p.Limit)
	looked := parameter(scan, "integer")
	cut := "false"
	if p.OldestFirst && !p.SettledAt.IsZero() {
		cut = "bool_or(w.created_at >= " + parameter(micros(p.SettledAt), "timestamptz") + ") OVER (ORDER BY w." + order + ")"
	}
	where := "true"
	if len(filters) > 0 {
		where = strings.Join(filters, " AND ")
	}
	const columns = "id, seq, tenant, type, resource_id, resource_version, content_type, created_at"
	ordered := " ORDER BY " + order + " " + direction
	text := `
WITH walk AS MATERIALIZED (
    SELECT w.*, row_number() OVER () AS looked, ` + cut + ` AS unsettled
    FROM (SELECT ` + columns + ` FROM ` + s.table("event") + ` WHERE ` + from + ordered + ` LIMIT ` + looked + `) w
), found AS MATERIALIZED (
    SELECT ` + columns + ` FROM walk e WHERE NOT unsettled AND ` + where + ordered + ` LIMIT ` + parameter(p.Limit, "integer") + `
)
(SELECT false, ` + columns + `,
       EXISTS (SELECT FROM ` + s.table("outbox") + ` o WHERE o.position = e.seq)
           OR EXISTS (SELECT FROM ` + s.table("outbox") + ` o WHERE o.event_id = e.id AND o.after_endpoint IS NOT NULL),
       EXISTS (SELECT FROM ` + s.table("unmatched") + ` u WHERE u.event_id = e.id)
 FROM found e` + ordered + `)
UNION ALL
(SELECT true, ` + columns + `, looked = ` + looked + `, false FROM walk WHERE NOT unsettled ORDER BY looked DESC LIMIT 1)`
	return statement{text: text, replan: true}, args
}
