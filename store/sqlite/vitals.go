package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

const (
	// Ride on the primary key of endpoint_vitals.
	selectVitals query = `SELECT version, level, data FROM {{prefix}}endpoint_vitals WHERE endpoint_id = ?`
	upsertVitals query = `
		INSERT INTO {{prefix}}endpoint_vitals AS v (endpoint_id, version, level, data) VALUES (?, ?, ?, ?)
		ON CONFLICT (endpoint_id) DO UPDATE SET version = excluded.version, level = excluded.level, data = excluded.data
		WHERE v.version = excluded.version - 1`

	// Rides on the primary key of endpoint_vitals, in order, and of endpoint.
	selectVitalsPage query = `
		SELECT endpoint_id, EXISTS (SELECT 1 FROM {{prefix}}endpoint e
			WHERE e.id = endpoint_id AND e.deleted_at > 0 AND e.deleted_at < ?)
		FROM {{prefix}}endpoint_vitals WHERE endpoint_id > ? ORDER BY endpoint_id LIMIT ?`
	deleteVitals query = `DELETE FROM {{prefix}}endpoint_vitals WHERE endpoint_id = ?`

	// Rides on endpoint_vitals_unwell and on the primary key of endpoint.
	selectUnwell query = `
		SELECT v.endpoint_id FROM {{prefix}}endpoint_vitals v
		WHERE v.level > 0 AND v.level >= ? AND v.endpoint_id > ?
			AND EXISTS (SELECT 1 FROM {{prefix}}endpoint e WHERE e.id = v.endpoint_id AND e.deleted_at = 0)
		ORDER BY v.endpoint_id LIMIT ?`

	// Rides on endpoint_tenant and on the primary key of endpoint_vitals.
	selectTenantUnwell query = `
		SELECT e.id FROM {{prefix}}endpoint e
		WHERE e.tenant = ?4 AND e.id > ?2 AND e.deleted_at = 0
			AND EXISTS (SELECT 1 FROM {{prefix}}endpoint_vitals v
				WHERE v.endpoint_id = e.id AND v.level > 0 AND v.level >= ?1)
		ORDER BY e.id LIMIT ?3`

	// Rides on the primary keys of both tables.
	selectFares query = `
		SELECT (SELECT state FROM {{prefix}}endpoint_health WHERE endpoint_id = ?1),
			(SELECT data FROM {{prefix}}endpoint_vitals WHERE endpoint_id = ?1)`

	// Rides on delivery_claim: what is leased stands before the first that is not, and
	// is no more than may be in flight.
	selectOldestDue query = `
		SELECT next_attempt_at FROM {{prefix}}delivery
		WHERE endpoint_id = ? AND lane = ? AND next_attempt_at <= ? AND lease_until <= ?
		ORDER BY next_attempt_at LIMIT 1`

	// Rides on delivery_claim.
	countPending query = `SELECT count(*) FROM (SELECT 1 FROM {{prefix}}delivery WHERE endpoint_id = ? LIMIT ?)`

	// All endpoints of a tenant, or all there are. Rides on endpoint_tenant for a
	// tenant, and on the primary key of endpoint_vitals.
	countEndpoints query = `
		SELECT coalesce(sum(e.state = 'active'), 0), coalesce(sum(e.state = 'paused'), 0), coalesce(sum(e.state = 'disabled'), 0),
			coalesce(sum(e.state = 'active' AND coalesce(v.level, 0) >= 2), 0),
			coalesce(sum(e.state = 'active' AND coalesce(v.level, 0) = 1), 0)
		FROM {{prefix}}endpoint e LEFT JOIN {{prefix}}endpoint_vitals v ON v.endpoint_id = e.id
		WHERE e.deleted_at = 0`
	countTenantEndpoints query = countEndpoints + ` AND e.tenant = ?`

	// Ride on the primary key of activity.
	upsertActivity query = `
		INSERT INTO {{prefix}}activity (at, dispatcher, data) VALUES (?, ?, ?)
		ON CONFLICT (at, dispatcher) DO UPDATE SET data = excluded.data`
	selectActivity query = `SELECT at, dispatcher, data FROM {{prefix}}activity WHERE at >= ? AND at < ? ORDER BY at, dispatcher`
	deleteActivity query = `DELETE FROM {{prefix}}activity WHERE at < ?`
)

// LoadVitals implements [webhook.VitalsStore].
func (s *Store) LoadVitals(ctx context.Context, endpoints []uuid.UUID) ([]webhook.VitalsRecord, error) {
	var loaded []webhook.VitalsRecord
	err := s.reading(ctx, "loading endpoints' vitals", []query{selectVitals}, func(ctx context.Context, st statements) error {
		loaded = nil
		for _, id := range endpoints {
			v := webhook.VitalsRecord{EndpointID: id}
			rows, err := st[0].QueryContext(ctx, blob(id))
			err = scanAll(rows, err, func(rows *sql.Rows) error {
				err := rows.Scan(&v.Version, &v.Level, &v.Data)
				loaded = append(loaded, v)
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return loaded, err
}

// reading prepares statements on one connection and reads with them.
func (s *Store) reading(ctx context.Context, doing string, queries []query, fn func(context.Context, statements) error) error {
	return s.read(ctx, doing, func(ctx context.Context) error {
		conn, err := s.db.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }() // back to the pool; it has no error of its own
		st, err := s.prepareAll(ctx, conn, queries...)
		if err != nil {
			return err
		}
		defer st.close()
		return fn(ctx, st)
	})
}

// SaveVitals implements [webhook.VitalsStore].
func (s *Store) SaveVitals(ctx context.Context, p webhook.SaveVitalsParams) ([]uuid.UUID, error) {
	if len(p.Vitals) == 0 {
		return nil, nil
	}
	var stale []uuid.UUID
	err := s.write(ctx, "saving endpoints' vitals", nil, func(ctx context.Context, c *sql.Conn) error {
		stale = nil
		st, err := s.prepareAll(ctx, c, upsertVitals)
		if err != nil {
			return err
		}
		defer st.close()
		for i := range p.Vitals {
			v := &p.Vitals[i]
			saved, err := changed(st[0].ExecContext(ctx, blob(v.EndpointID), v.Version+1, int(v.Level), present(v.Data)))
			if err != nil {
				return err
			}
			if !saved {
				stale = append(stale, v.EndpointID)
			}
		}
		notices := slices.DeleteFunc(slices.Clone(p.Notices), func(n webhook.NoticeRecord) bool { return slices.Contains(stale, n.EndpointID) })
		_, err = s.addNotices(ctx, c, notices)
		return err
	})
	return stale, err
}

// ListUnwell implements [webhook.VitalsStore].
func (s *Store) ListUnwell(ctx context.Context, p webhook.ListUnwellParams) ([]uuid.UUID, error) {
	text, args := selectUnwell, []any{int(p.Level), blob(p.After), max(p.Limit, 0)}
	if tenant, limited := p.Scope.Tenant(); limited {
		text, args = selectTenantUnwell, append(args, tenant)
	}
	var ids []uuid.UUID
	err := s.read(ctx, "listing endpoints with trouble", func(ctx context.Context) error {
		ids = nil
		rows, err := s.db.QueryContext(ctx, s.sql(text), args...)
		return scanAll(rows, err, func(rows *sql.Rows) error {
			var id uuid.UUID
			err := rows.Scan(&id)
			ids = append(ids, id)
			return err
		})
	})
	return ids, err
}

// ReadHealth implements [webhook.HealthStore].
func (s *Store) ReadHealth(ctx context.Context, p webhook.ReadHealthParams) ([]webhook.HealthRow, error) {
	var found []webhook.HealthRow
	queries := []query{selectFares, selectOldestDue, countPending}
	err := s.reading(ctx, "reading endpoints' health", queries, func(ctx context.Context, st statements) error {
		found = make([]webhook.HealthRow, len(p.Endpoints))
		for i, id := range p.Endpoints {
			found[i].EndpointID = id
			if err := readHealth(ctx, st, &found[i], p); err != nil {
				return err
			}
		}
		return nil
	})
	return found, err
}

// readHealth reads one endpoint's; st are those of ReadHealth.
func readHealth(ctx context.Context, st statements, h *webhook.HealthRow, p webhook.ReadHealthParams) error {
	id := blob(h.EndpointID)
	if err := st[0].QueryRowContext(ctx, id).Scan(&h.Circuit, &h.Vitals); err != nil {
		return err
	}
	for _, lane := range []webhook.Lane{webhook.LaneFirst, webhook.LaneRetry, webhook.LaneReplay} {
		rows, err := st[1].QueryContext(ctx, id, int(lane), micros(p.Now), micros(p.Now))
		err = scanAll(rows, err, func(rows *sql.Rows) error {
			var at int64
			err := rows.Scan(&at)
			if due := fromMicros(at); h.OldestDueAt.IsZero() || due.Before(h.OldestDueAt) {
				h.OldestDueAt = due
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return st[2].QueryRowContext(ctx, id, max(p.CountUpTo, 0)).Scan(&h.Pending)
}

// CountEndpoints implements [webhook.HealthStore].
func (s *Store) CountEndpoints(ctx context.Context, scope webhook.Scope) (n webhook.EndpointCounts, err error) {
	text, args := countEndpoints, []any(nil)
	if tenant, limited := scope.Tenant(); limited {
		text, args = countTenantEndpoints, []any{tenant}
	}
	err = s.read(ctx, "counting endpoints", func(ctx context.Context) error {
		return s.db.QueryRowContext(ctx, s.sql(text), args...).Scan(&n.Active, &n.Paused, &n.Disabled, &n.Failing, &n.Unsteady)
	})
	return n, err
}

// SaveActivity implements [webhook.HealthStore].
func (s *Store) SaveActivity(ctx context.Context, activity []webhook.ActivityRecord) error {
	if len(activity) == 0 {
		return nil
	}
	return s.write(ctx, "saving what dispatchers did", nil, func(ctx context.Context, c *sql.Conn) error {
		for _, a := range activity {
			if _, err := c.ExecContext(ctx, s.sql(upsertActivity), micros(a.At), blob(a.Dispatcher), present(a.Data)); err != nil {
				return err
			}
		}
		return nil
	})
}

// ListActivity implements [webhook.HealthStore].
func (s *Store) ListActivity(ctx context.Context, from, until time.Time) ([]webhook.ActivityRecord, error) {
	var found []webhook.ActivityRecord
	err := s.read(ctx, "listing what dispatchers did", func(ctx context.Context) error {
		found = nil
		rows, err := s.db.QueryContext(ctx, s.sql(selectActivity), micros(from), micros(until))
		return scanAll(rows, err, func(rows *sql.Rows) error {
			var a webhook.ActivityRecord
			var at int64
			err := rows.Scan(&at, &a.Dispatcher, &a.Data)
			a.At = fromMicros(at)
			found = append(found, a)
			return err
		})
	})
	return found, err
}

// removeVitals removes the vitals of endpoints that were deleted before a time.
func (s *Store) removeVitals(ctx context.Context, before time.Time) error {
	const doing = "removing vitals of deleted endpoints"
	after := uuid.Nil
	for more := !before.IsZero(); more; {
		var gone [][]byte
		err := s.read(ctx, doing, func(ctx context.Context) error {
			gone = nil
			seen, last := 0, after
			rows, err := s.db.QueryContext(ctx, s.sql(selectVitalsPage), micros(before), blob(after), lookedAt)
			err = scanAll(rows, err, func(rows *sql.Rows) error {
				var deleted bool
				err := rows.Scan(&last, &deleted)
				if seen++; deleted {
					gone = append(gone, bytes.Clone(blob(last)))
				}
				return err
			})
			after, more = last, seen == lookedAt
			return err
		})
		if err != nil {
			return err
		}
		err = s.removeInBatches(ctx, doing, len(gone), []query{deleteVitals}, func(ctx context.Context, st statements, i int) error {
			_, err := st[0].ExecContext(ctx, gone[i])
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
