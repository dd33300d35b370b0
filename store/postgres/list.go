package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/timeid"
)

const (
	// lookedAt bounds the rows of a table that one part of a list looks at, where the
	// filters leave some of them out: some ten milliseconds' worth. It begins with
	// glance of them, and firstLook for each one wanted, which as a rule are enough.
	lookedAt  = 5_000
	glance    = 200
	firstLook = 20

	// fewRows is up to how many rows are all found and sorted, where there is no index
	// in the order of the list.
	fewRows = 5_000

	// fewEvents is up to how many events of a resource are looked up one by one, each
	// in every partition.
	fewEvents = 200

	// fewEndpoints is up to how many endpoints of a tenant are looked at one by one.
	// A tenant with more of them is so large a part of the whole that reading the
	// newest deliveries of all, and keeping its own, finds them soon.
	fewEndpoints = 200

	// skew is how far the time at which a delivery finished may seem to lie before the
	// one at which it was made.
	skew = time.Minute
)

// ListDeliveries implements [webhook.LogStore].
func (s *core) ListDeliveries(ctx context.Context, p webhook.ListDeliveriesParams) (webhook.DeliveryListing, error) {
	if p.Limit <= 0 {
		return webhook.DeliveryListing{}, nil
	}
	listing, err := s.list(ctx, p)
	if err != nil {
		return webhook.DeliveryListing{}, fmt.Errorf("postgres: listing deliveries: %w", err)
	}
	return listing, nil
}

func (s *core) list(ctx context.Context, p webhook.ListDeliveriesParams) (webhook.DeliveryListing, error) {
	l := &deliveryList{s: s, p: p}
	if foreign, err := l.narrow(ctx); err != nil || foreign {
		return webhook.DeliveryListing{}, err
	}
	l.scan = min(lookedAt, glance+firstLook*p.Limit)
	listing, err := l.run(ctx)
	if err != nil || len(listing.Deliveries) == p.Limit || listing.Next == uuid.Nil {
		return listing, err
	}
	// Positions stay what they are, so going on from one is as good as one statement.
	rest := *l
	rest.scan, rest.p.Before, rest.p.Limit = lookedAt, listing.Next, p.Limit-len(listing.Deliveries)
	more, err := rest.run(ctx)
	more.Deliveries = append(listing.Deliveries, more.Deliveries...)
	return more, err
}

// run lists what lies within l.scan rows of each table.
func (l *deliveryList) run(ctx context.Context) (webhook.DeliveryListing, error) {
	q, ok := l.statement()
	if !ok {
		return webhook.DeliveryListing{}, nil
	}
	var listing webhook.DeliveryListing
	err := collect(ctx, l.s.db, &q, func(r rows) error {
		d, err := scanDelivery(r)
		if d.State == "" { // the mark of how far was looked
			listing.Next = d.ID
			return err
		}
		listing.Deliveries = append(listing.Deliveries, d)
		return err
	}, l.args...)
	if n := len(listing.Deliveries); n == l.p.Limit {
		listing.Next = listing.Deliveries[n-1].ID
	}
	return listing, err
}

// deliveryList builds the statement of one part of a list: for each table that may
// hold what is wanted, the way into it that meets the fewest rows, in the order of the
// list if there is an index for that. It is one statement, so that a delivery that
// moves meanwhile is seen exactly once.
type deliveryList struct {
	s *core
	p webhook.ListDeliveriesParams

	// What the filters come to, where that are few.
	events    []uuid.UUID // of the resource; nil: many, or no resource
	endpoints []uuid.UUID // of the tenant; nil: many, or of no need
	fewOpen   bool        // unfinished deliveries of the endpoint, or of endpoints

	scan   int // rows of each table to look at, where filters leave some out
	args   []any
	walks  []string // CTEs
	parts  []string // SELECTs of what the filters let through
	ends   []string // SELECTs of how far a walk came that did not come to its end
	bounds string
}

func (l *deliveryList) parameter(value any, as string) string {
	l.args = append(l.args, value)
	return fmt.Sprintf("$%d::%s", len(l.args), as)
}

func (l *deliveryList) table(name string) string { return quote(l.s.config.Schema) + "." + name }

// narrow finds out what the filters come to. Each look is bounded. It reports whether
// the endpoint is of another tenant than the scope.
func (l *deliveryList) narrow(ctx context.Context) (foreign bool, err error) {
	tenant, limited := l.p.Scope.Tenant()
	if l.p.EndpointID != uuid.Nil && limited {
		if own, err := l.s.isTenantsEndpoint(ctx, tenant, l.p.EndpointID); err != nil || !own {
			return true, err
		}
	}
	if l.p.EventID != uuid.Nil {
		return false, nil
	}
	if l.p.ResourceID != "" {
		events, err := l.s.resourceEvents(ctx, l.p.Scope, l.p.ResourceID)
		if err != nil {
			return false, err
		}
		if len(events) <= fewEvents {
			l.events = append([]uuid.UUID{}, events...)
			return false, nil
		}
	}
	open := []uuid.UUID{l.p.EndpointID}
	if l.p.EndpointID == uuid.Nil {
		if !limited {
			return false, nil
		}
		if open, err = l.s.tenantEndpoints(ctx, tenant); err != nil {
			return false, err
		}
		if len(open) > fewEndpoints {
			return false, nil
		}
		l.endpoints = append([]uuid.UUID{}, open...)
	}
	l.fewOpen, err = l.s.hasFewOpen(ctx, open)
	return false, err
}

// statement returns the statement, or false when no table can hold what is wanted.
func (l *deliveryList) statement() (q statement, ok bool) {
	l.args, l.walks, l.parts, l.ends, l.bounds = nil, nil, nil, nil, "" // those of the part before
	if l.p.Before != uuid.Nil {
		l.bounds += " AND d.id < " + l.parameter(l.s.db.id(l.p.Before), "uuid")
	}
	if !l.p.From.IsZero() {
		l.bounds += " AND d.id >= " + l.parameter(l.s.db.id(timeid.First(l.p.From)), "uuid") +
			" AND d.created_at >= " + l.parameter(micros(l.p.From), "timestamptz")
	}
	if !l.p.Until.IsZero() {
		l.bounds += " AND d.id < " + l.parameter(l.s.db.id(timeid.End(l.p.Until)), "uuid") +
			" AND d.created_at < " + l.parameter(micros(l.p.Until), "timestamptz")
	}
	if l.wants(webhook.StatePending) || l.wants(webhook.StateInFlight) {
		l.add("delivery", pendingColumns, l.intoOpen())
	}
	delivered := l.p.Status == "" || l.p.Status == webhook.Status2xx
	if l.wants(webhook.StateDelivered) && delivered {
		l.add("delivery_log", deliveredColumns, l.into())
	}
	if l.wants(webhook.StateDead) || l.wants(webhook.StateCancelled) || l.wants(webhook.StateShed) {
		l.add("delivery_dead", deadColumns, l.into())
	}
	if len(l.parts) == 0 {
		return statement{}, false
	}
	text := ""
	if len(l.walks) > 0 {
		text = "WITH " + strings.Join(l.walks, ",\n") + "\n"
	}
	all := strings.Join(l.parts, "\nUNION ALL\n")
	limit := l.parameter(l.p.Limit, "integer")
	if len(l.ends) == 0 {
		return statement{text: text + "SELECT * FROM (\n" + all + "\n) d ORDER BY d.id DESC LIMIT " + limit, replan: true}, true
	}
	// What lies beyond where the first of the walks ended belongs to the next part.
	text += ", ended AS MATERIALIZED (SELECT id FROM (" + strings.Join(l.ends, " UNION ALL ") + ") e ORDER BY id DESC LIMIT 1)\n" +
		"(SELECT * FROM (\n" + all + "\n) d WHERE d.id >= coalesce((SELECT id FROM ended), '00000000-0000-0000-0000-000000000000') ORDER BY d.id DESC LIMIT " + limit + ")\n" +
		"UNION ALL SELECT id, id, id, 0, '', '', '', '', 0, NULL, 'epoch', NULL, 0::smallint, '', false, false FROM ended"
	return statement{text: text, replan: true}, true
}

func (l *deliveryList) wants(state webhook.DeliveryState) bool {
	return l.p.State == "" || l.p.State == state
}

// way is how a table is looked through: the rows that meet condition, by an index on
// it. What is ordered comes newest first and may be left early; each is a way for each
// of the tenant's endpoints.
type way struct {
	condition string
	ordered   bool
	each      bool
	filters   []string // what condition does not cover, of the columns of the list
}

// filters are the conditions of the list that covered does not name.
func (l *deliveryList) filters(covered ...string) []string {
	var all []string
	add := func(name string, set bool, condition func() string) {
		if set && !slices.Contains(covered, name) {
			all = append(all, condition())
		}
	}
	tenant, limited := l.p.Scope.Tenant()
	add("event", l.p.EventID != uuid.Nil, func() string { return "d.event_id = " + l.parameter(l.s.db.id(l.p.EventID), "uuid") })
	add("endpoint", l.p.EndpointID != uuid.Nil, func() string { return "d.endpoint_id = " + l.parameter(l.s.db.id(l.p.EndpointID), "uuid") })
	add("tenant", limited, func() string { return "d.tenant = " + l.parameter(tenant, "text") })
	add("type", l.p.EventType != "", func() string { return "d.event_type = " + l.parameter(l.p.EventType, "text") })
	// Of what is delivered there is one state.
	add("state", l.p.State != "" && l.p.State != webhook.StateDelivered, func() string { return "d.state = " + l.parameter(string(l.p.State), "text") })
	add("status", l.p.Status != "", func() string {
		first, last, _ := l.p.Status.Bounds()
		return "d.last_status BETWEEN " + l.parameter(first, "integer") + " AND " + l.parameter(last, "integer")
	})
	add("resource", l.p.ResourceID != "", func() string {
		// Rides on event_pkey.
		return "(SELECT e.resource_id FROM " + l.table("event") + " e WHERE e.id = d.event_id) = " + l.parameter(l.p.ResourceID, "text")
	})
	return all
}

// intoOpen is the way into the unfinished deliveries. Those of one event ride on
// delivery_event_idx, few of an endpoint on delivery_claim_idx, all others on
// delivery_pkey.
func (l *deliveryList) intoOpen() way {
	if w, ok := l.byEvent(); ok {
		return w
	}
	switch {
	case l.fewOpen && l.p.EndpointID != uuid.Nil:
		return way{condition: "d.endpoint_id = " + l.parameter(l.s.db.id(l.p.EndpointID), "uuid"), filters: l.filters("endpoint", "tenant")}
	case l.fewOpen:
		return way{condition: "d.endpoint_id = ANY (" + l.parameter(l.s.db.uuids(l.endpoints), "uuid[]") + ")", filters: l.filters("tenant")}
	}
	return way{condition: "true", ordered: true, filters: l.filters()}
}

// byEvent is the way in by one event, or by the few of a resource.
func (l *deliveryList) byEvent() (way, bool) {
	switch {
	case l.p.EventID != uuid.Nil:
		return way{condition: "d.event_id = " + l.parameter(l.s.db.id(l.p.EventID), "uuid"), filters: l.filters("event")}, true
	case l.events != nil:
		return way{condition: "d.event_id = ANY (" + l.parameter(l.s.db.uuids(l.events), "uuid[]") + ")", filters: l.filters("resource")}, true
	}
	return way{}, false
}

// into is the way into the finished deliveries. It rides on the tables' indexes by
// event and endpoint, by endpoint and id, or by id.
func (l *deliveryList) into() way {
	if w, ok := l.byEvent(); ok {
		return w
	}
	switch {
	case l.p.EndpointID != uuid.Nil:
		return way{condition: "d.endpoint_id = " + l.parameter(l.s.db.id(l.p.EndpointID), "uuid"), ordered: true, filters: l.filters("endpoint", "tenant")}
	case l.endpoints != nil:
		// With "=" the planner would take the order by endpoint for granted, and
		// might read what is a small partition by id, once for each endpoint.
		return way{condition: "d.endpoint_id = ANY (ARRAY[o.id])", ordered: true, each: true, filters: l.filters("tenant")}
	}
	return way{condition: "true", ordered: true, filters: l.filters()}
}

// add adds one table.
func (l *deliveryList) add(table, columns string, w way) {
	scan := l.p.Limit
	if len(w.filters) > 0 {
		scan = max(scan, l.scan)
	}
	if w.each && len(l.endpoints) > 0 {
		scan = max(l.p.Limit, scan/len(l.endpoints))
	}
	condition := w.condition + l.bounds
	if table != "delivery" && !l.p.From.IsZero() {
		// Leaves out the partitions of days before.
		condition += " AND d.finished_at >= " + l.parameter(micros(l.p.From.Add(-skew)), "timestamptz")
	}
	inner := "SELECT" + columns + " FROM " + l.table(table) + " d\n    WHERE " + condition
	where := ""
	if len(w.filters) > 0 {
		where = "\n    WHERE " + strings.Join(w.filters, " AND ")
	}
	if !w.ordered {
		// All are found first: the planner likes to look for them among the newest of
		// all, in order.
		l.parts = append(l.parts, "(SELECT * FROM ("+inner+" OFFSET 0) d"+where+"\n    ORDER BY d.id DESC LIMIT "+l.parameter(l.p.Limit, "integer")+")")
		return
	}
	order := "d.id DESC"
	if w.each {
		order = "d.endpoint_id DESC, d.id DESC" // which only the index by both serves
	}
	inner += "\n    ORDER BY " + order + " LIMIT " + l.parameter(scan, "integer")
	if len(w.filters) == 0 && !w.each {
		l.parts = append(l.parts, "("+inner+")")
		return
	}
	name := fmt.Sprintf("walk%d", len(l.walks))
	numbered := "SELECT d.*, row_number() OVER () AS looked FROM (" + inner + ") d"
	if w.each {
		numbered = "SELECT d.* FROM unnest(" + l.parameter(l.s.db.uuids(l.endpoints), "uuid[]") + ") AS o (id)\n    CROSS JOIN LATERAL (" + numbered + ") d"
	}
	l.walks = append(l.walks, name+" AS MATERIALIZED (\n    "+numbered+"\n)")
	l.parts = append(l.parts, "SELECT "+listColumns+" FROM "+name+" d"+where)
	l.ends = append(l.ends, "SELECT id FROM "+name+" WHERE looked = "+l.parameter(scan, "integer"))
}

// listColumns are those of pendingColumns and its like, by name.
const listColumns = `d.id, d.event_id, d.endpoint_id, d.run, d.tenant, d.event_type, d.state, d.reason, d.attempts,
       d.next_attempt_at, d.created_at, d.finished_at, d.last_status, d.last_class, d.awaits_turn, d.skipped`

// tenantEndpoints returns a tenant's endpoints, deleted ones included, or just
// more than fewEndpoints of them. It rides on endpoint_tenant_idx.
func (s *core) tenantEndpoints(ctx context.Context, tenant string) ([]uuid.UUID, error) {
	q := statement{
		text: "SELECT id FROM " + s.table("endpoint") + "\n" +
			"WHERE tenant = $1::text ORDER BY id LIMIT $2::integer",
		replan: true,
	}
	return s.collectIDs(ctx, s.db, &q, tenant, fewEndpoints+1)
}

// isTenantsEndpoint rides on endpoint_pkey.
func (s *core) isTenantsEndpoint(ctx context.Context, tenant string, id uuid.UUID) (own bool, err error) {
	q := statement{text: "SELECT EXISTS (SELECT FROM " + s.table("endpoint") + " WHERE id = $1::uuid AND tenant = $2::text)"}
	err = collect(ctx, s.db, &q, func(r rows) error { return r.Scan(&own) }, s.db.id(id), tenant)
	return own, err
}

// resourceEvents returns the events of a resource, or just more than fewEvents of
// them. It rides on event_resource_idx.
func (s *core) resourceEvents(ctx context.Context, scope webhook.Scope, resource string) ([]uuid.UUID, error) {
	tenant, limited := scope.Tenant()
	q := statement{
		text: "SELECT id FROM " + s.table("event") + "\n" +
			"WHERE resource_id = $1::text AND resource_id <> '' AND ($2::boolean OR tenant = $3::text) LIMIT $4::integer",
		replan: true,
	}
	return s.collectIDs(ctx, s.db, &q, resource, !limited, tenant, fewEvents+1)
}

// hasFewOpen reports whether endpoints have at most fewRows unfinished deliveries. It
// rides on delivery_claim_idx: looked up one by one, they are few each to the planner,
// which would rather read the whole table when it knows that one has most of it.
func (s *core) hasFewOpen(ctx context.Context, endpoints []uuid.UUID) (few bool, err error) {
	q := statement{
		text: "SELECT count(*) <= $2::integer FROM (\n" +
			"    SELECT FROM unnest($1::uuid[]) AS o (id)\n" +
			"    CROSS JOIN LATERAL (SELECT FROM " + s.table("delivery") + " WHERE endpoint_id = o.id LIMIT $2::integer + 1) x\n" +
			"    LIMIT $2::integer + 1\n" +
			") d",
		replan: true,
	}
	err = collect(ctx, s.db, &q, func(r rows) error { return r.Scan(&few) }, s.db.uuids(endpoints), fewRows)
	return few, err
}
