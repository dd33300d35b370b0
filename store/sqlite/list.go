package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"strings"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/timeid"
)

const (
	// listedPerPart bounds the rows of a table that one part of a list looks at, where
	// the filters leave some of them out.
	listedPerPart = 10_000

	// fewEvents is up to how many events of a resource are looked up one by one.
	fewEvents = 500

	// Rides on event_resource.
	selectResourceEvents query = `
		SELECT count(*) FROM (SELECT 1 FROM {{prefix}}event
			WHERE resource_id = ?1 AND resource_id <> '' AND (?2 OR tenant = ?3) LIMIT ?4)`
)

// ListDeliveries implements [webhook.LogStore].
func (s *Store) ListDeliveries(ctx context.Context, p webhook.ListDeliveriesParams) (webhook.DeliveryListing, error) {
	if p.Limit <= 0 {
		return webhook.DeliveryListing{}, nil
	}
	var listing webhook.DeliveryListing
	err := s.read(ctx, "listing deliveries", func(ctx context.Context) error {
		listing = webhook.DeliveryListing{}
		l := deliveryList{p: p}
		if err := l.narrow(ctx, s); err != nil {
			return err
		}
		text, args := l.statement()
		if text == "" {
			return nil
		}
		rows, err := s.db.QueryContext(ctx, s.sql(text), args...)
		return scanAll(rows, err, func(rows *sql.Rows) error {
			d, err := scanDelivery(rows)
			if d.State == "" { // the mark of how far was looked
				listing.Next = d.ID
				return err
			}
			listing.Deliveries = append(listing.Deliveries, d)
			return err
		})
	})
	if n := len(listing.Deliveries); n == p.Limit {
		listing.Next = listing.Deliveries[n-1].ID
	}
	return listing, err
}

// table is one of the tables of deliveries.
type table struct {
	name    query
	columns query
	holds   func(*webhook.ListDeliveriesParams, webhook.DeliveryState) bool
}

var tables = []table{
	{
		name:    "{{prefix}}delivery",
		columns: unfinishedColumns,
		holds:   func(_ *webhook.ListDeliveriesParams, s webhook.DeliveryState) bool { return s == "" || !s.Final() },
	},
	{
		name:    "{{prefix}}delivery_log",
		columns: finishedColumns,
		holds: func(p *webhook.ListDeliveriesParams, s webhook.DeliveryState) bool {
			return (s == "" || s == webhook.StateDelivered) && (p.Status == "" || p.Status == webhook.Status2xx)
		},
	},
	{
		name:    "{{prefix}}delivery_dead",
		columns: finishedColumns,
		holds: func(_ *webhook.ListDeliveriesParams, s webhook.DeliveryState) bool {
			return s == "" || s.Final() && s != webhook.StateDelivered
		},
	},
}

// deliveryList builds the statement of one part of a list: from each table that may
// hold what is wanted as many of the newest as are looked at, and of these what the
// filters let through. It is one statement, so that a delivery that moves meanwhile is
// seen exactly once.
type deliveryList struct {
	p webhook.ListDeliveriesParams
	// fewEvents is set when the resource has few.
	fewEvents bool
}

func (l *deliveryList) narrow(ctx context.Context, s *Store) error {
	if l.p.ResourceID == "" || l.p.EventID != uuid.Nil {
		return nil
	}
	tenant, limited := l.p.Scope.Tenant()
	var n int
	err := s.db.QueryRowContext(ctx, s.sql(selectResourceEvents), l.p.ResourceID, !limited, tenant, fewEvents+1).Scan(&n)
	l.fewEvents = n <= fewEvents
	return err
}

// fragment is a piece of SQL and its arguments.
type fragment struct {
	text query
	args []any
}

func (f *fragment) add(text query, args ...any) {
	f.text += text
	f.args = append(f.args, args...)
}

func (l *deliveryList) statement() (query, []any) {
	var ends, parts fragment
	for _, t := range tables {
		if !t.holds(&l.p, l.p.State) {
			continue
		}
		part, end := l.from(t)
		if parts.text != "" {
			parts.text += "\nUNION ALL "
		}
		parts.add(part.text, part.args...)
		if end.text != "" {
			if ends.text != "" {
				ends.text += " UNION ALL "
			}
			ends.add(end.text, end.args...)
		}
	}
	switch {
	case parts.text == "":
		return "", nil
	case ends.text == "":
		return parts.text + "\nORDER BY 1 DESC LIMIT ?", append(parts.args, l.p.Limit)
	}
	// What lies beyond where the first of the walks ended belongs to the next part.
	var all fragment
	all.add("WITH ended (id) AS (SELECT max(id) FROM ("+ends.text+"))\n", ends.args...)
	all.add("SELECT * FROM (SELECT * FROM ("+parts.text+")", parts.args...)
	all.add("\nWHERE id >= coalesce((SELECT id FROM ended), x'') ORDER BY id DESC LIMIT ?)", l.p.Limit)
	all.add("\nUNION ALL SELECT id, id, id, 0, '', '', '', '', 0, 0, 0, 0, 0, '', 0, 0 FROM ended WHERE id IS NOT NULL")
	return all.text, all.args
}

// within are the conditions on where in the order a part of the list lies.
func (l *deliveryList) within(column query) fragment {
	var f fragment
	before := uuid.Max
	if l.p.Before != uuid.Nil {
		before = l.p.Before
	}
	if !l.p.Until.IsZero() {
		if end := timeid.End(l.p.Until); bytes.Compare(end[:], before[:]) < 0 {
			before = end
		}
	}
	f.add(column+" < ?", blob(before))
	if !l.p.From.IsZero() {
		f.add(" AND "+column+" >= ?", blob(timeid.First(l.p.From)))
	}
	return f
}

// filters are the conditions on the columns of the list but for the one that the way
// into the table covers.
func (l *deliveryList) filters(covered string) fragment {
	var f fragment
	add := func(name string, set bool, condition query, args ...any) {
		if !set || name == covered {
			return
		}
		if f.text != "" {
			f.text += " AND "
		}
		f.add(condition, args...)
	}
	tenant, limited := l.p.Scope.Tenant()
	add("endpoint", l.p.EndpointID != uuid.Nil, "endpoint_id = ?", blob(l.p.EndpointID))
	add("tenant", limited, "tenant = ?", tenant)
	add("type", l.p.EventType != "", "event_type = ?", l.p.EventType)
	// Of what is delivered there is one state.
	add("state", l.p.State != "" && l.p.State != webhook.StateDelivered, "state = ?", string(l.p.State))
	first, last, _ := l.p.Status.Bounds()
	add("status", l.p.Status != "", "last_status BETWEEN ? AND ?", first, last)
	add("from", !l.p.From.IsZero(), "created_at >= ?", micros(l.p.From))
	add("until", !l.p.Until.IsZero(), "created_at < ?", micros(l.p.Until))
	add("resource", l.p.ResourceID != "",
		"(SELECT resource_id FROM {{prefix}}event WHERE {{prefix}}event.id = event_id) = ?", l.p.ResourceID)
	return f
}

// from selects from one table. Each way into it has its index: that of the event; of
// the endpoint; for a tenant, that of each of its endpoints; the primary key. It also
// selects how far a walk came that did not come to its end.
func (l *deliveryList) from(t table) (part, end fragment) {
	tenant, limited := l.p.Scope.Tenant()
	var way, filters fragment
	within := l.within("id")
	switch {
	case l.p.EventID != uuid.Nil:
		way.add("event_seq = (SELECT seq FROM {{prefix}}event WHERE id = ?)", blob(l.p.EventID))
		if l.p.EndpointID != uuid.Nil {
			way.add(" AND endpoint_id = ?", blob(l.p.EndpointID))
		}
		return l.gather(t, way, l.filters("endpoint")), fragment{}
	case l.fewEvents:
		way.add("event_seq IN (SELECT seq FROM {{prefix}}event WHERE resource_id = ? AND resource_id <> ''", l.p.ResourceID)
		if limited {
			way.add(" AND tenant = ?", tenant)
		}
		way.add(")")
		return l.gather(t, way, l.filters("resource")), fragment{}
	case l.p.EndpointID != uuid.Nil:
		way.add("endpoint_id = ? AND ", blob(l.p.EndpointID))
		filters = l.filters("endpoint")
	case limited:
		return l.fromEach(t, tenant)
	default:
		filters = l.filters("")
	}
	way.add(within.text, within.args...)
	scan := l.scan(filters)
	walk := fragment{args: append(way.args, scan)}
	walk.text = "SELECT " + t.columns + " FROM " + t.name + " WHERE " + way.text + " ORDER BY id DESC LIMIT ?"
	part.add("SELECT * FROM (SELECT * FROM ("+walk.text+")", walk.args...)
	if filters.text != "" {
		part.add(" WHERE "+filters.text, filters.args...)
		end.add("SELECT (SELECT id FROM "+t.name+" WHERE "+way.text+" ORDER BY id DESC LIMIT 1 OFFSET ?) AS id", append(way.args, scan-1)...)
	}
	part.add(" LIMIT ?)", l.p.Limit)
	return part, end
}

func (l *deliveryList) scan(filters fragment) int {
	if filters.text == "" {
		return l.p.Limit
	}
	return max(l.p.Limit, listedPerPart)
}

// gather finds all, and sorts them: the pluses keep SQLite from walking an index in the
// order of ids through what other events have.
func (l *deliveryList) gather(t table, way, filters fragment) fragment {
	within := l.within("+id")
	var f fragment
	f.add("SELECT * FROM (SELECT "+t.columns+" FROM "+t.name+" WHERE "+way.text, way.args...)
	f.add(" AND "+within.text, within.args...)
	if filters.text != "" {
		f.add(" AND "+strictly(filters.text, t), filters.args...)
	}
	f.add(" ORDER BY +id DESC LIMIT ?)", l.p.Limit)
	return f
}

// strictly makes conditions on the columns of the list ones on those of the table.
func strictly(text query, t table) query {
	if t.name != tables[0].name {
		return text
	}
	return query(strings.ReplaceAll(string(text), "state = ?", "iif(lease_until = 0, 'pending', 'in_flight') = ?"))
}

// fromEach selects the newest of each of a tenant's endpoints.
func (l *deliveryList) fromEach(t table, tenant string) (part, end fragment) {
	filters := l.filters("")
	within := l.within("newest.id")
	scan := l.scan(l.filters("tenant"))
	part.add(`SELECT * FROM (SELECT * FROM (SELECT `+t.columns+` FROM `+t.name+` WHERE id IN (
		SELECT of_endpoint.id FROM {{prefix}}endpoint AS mine CROSS JOIN `+t.name+` AS of_endpoint
		WHERE mine.tenant = ? AND of_endpoint.id IN (
			SELECT id FROM `+t.name+` AS newest WHERE newest.endpoint_id = mine.id AND `+within.text+`
			ORDER BY newest.id DESC LIMIT ?)))`, append(append([]any{tenant}, within.args...), scan)...)
	part.add(" WHERE "+filters.text, filters.args...)
	part.add(" ORDER BY id DESC LIMIT ?)", l.p.Limit)
	end.add(`SELECT max((SELECT newest.id FROM `+t.name+` AS newest WHERE newest.endpoint_id = mine.id AND `+within.text+`
		ORDER BY newest.id DESC LIMIT 1 OFFSET ?)) AS id`, append(within.args, scan-1)...)
	end.add(" FROM {{prefix}}endpoint AS mine WHERE mine.tenant = ?", tenant)
	return part, end
}
