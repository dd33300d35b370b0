package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

const (
	// Rides on notice_streak.
	insertNotice query = `
		INSERT INTO {{prefix}}notice (id, endpoint_id, tenant, kind, streak, created_at, due_at, attempts, detail)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (endpoint_id, kind, streak) DO NOTHING`

	// A notice's event: seq is the rowid that it got.
	insertNoticeEvent query = insertEvent + `(?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)`

	selectNotices query = `SELECT id, endpoint_id, tenant, kind, streak, created_at, due_at, attempts, detail FROM {{prefix}}notice `

	// Rides on notice_due.
	selectDueNotices query = selectNotices + `WHERE due_at > 0 AND due_at <= ? ORDER BY due_at LIMIT ?`

	// Ride on the primary key, notice_tenant and notice_endpoint.
	selectLastNotices     query = selectNotices + `WHERE id < ?1 ORDER BY id DESC LIMIT ?2`
	selectTenantNotices   query = selectNotices + `WHERE id < ?1 AND tenant = ?3 ORDER BY id DESC LIMIT ?2`
	selectEndpointNotices query = selectNotices + `WHERE id < ?1 AND endpoint_id = ?3 AND (?4 OR tenant = ?5) ORDER BY id DESC LIMIT ?2`

	// Rides on the primary key.
	updateNotice query = `UPDATE {{prefix}}notice SET due_at = ?, attempts = ? WHERE id = ?`

	// Ride on notice_created and the primary key.
	selectOldNotices query = `SELECT id FROM {{prefix}}notice WHERE created_at < ? ORDER BY created_at LIMIT ?`
	deleteNotice     query = `DELETE FROM {{prefix}}notice WHERE id = ?`
)

// AddNotices implements [webhook.NoticeStore].
func (s *Store) AddNotices(ctx context.Context, notices []webhook.NoticeRecord) (added []uuid.UUID, err error) {
	if len(notices) == 0 {
		return nil, nil
	}
	err = s.write(ctx, "adding notices", nil, func(ctx context.Context, c *sql.Conn) error {
		added, err = s.addNotices(ctx, c, notices)
		return err
	})
	return added, err
}

// addNotices adds notices in a transaction that holds the write lock.
func (s *Store) addNotices(ctx context.Context, c *sql.Conn, notices []webhook.NoticeRecord) ([]uuid.UUID, error) {
	var added []uuid.UUID
	for i := range notices {
		n := &notices[i]
		isNew, err := changed(c.ExecContext(ctx, s.sql(insertNotice), blob(n.ID), blob(n.EndpointID), n.Tenant, string(n.Kind),
			micros(n.Streak), micros(n.CreatedAt), micros(n.DueAt), n.Attempts, present(n.Detail)))
		if err != nil {
			return nil, err
		}
		if !isNew {
			continue
		}
		added = append(added, n.ID)
		if n.Event == nil {
			continue
		}
		if err := s.addEvent(ctx, c, n.Event); err != nil {
			return nil, err
		}
	}
	return added, nil
}

// addEvent writes an event without a key, and its outbox entry.
func (s *Store) addEvent(ctx context.Context, c *sql.Conn, e *webhook.EventRecord) error {
	result, err := c.ExecContext(ctx, s.sql(insertNoticeEvent), blob(e.ID), e.Tenant, e.Type, e.ResourceID, e.ResourceVersion,
		"", e.ContentType, microsOr(e.CreatedAt, now()), present(e.Payload))
	if err != nil {
		return err
	}
	seq, err := result.LastInsertId()
	if err != nil {
		return err
	}
	_, err = c.ExecContext(ctx, s.sql(insertOutboxOne), seq)
	return err
}

// DueNotices implements [webhook.NoticeStore].
func (s *Store) DueNotices(ctx context.Context, now time.Time, limit int) ([]webhook.NoticeRecord, error) {
	return s.queryNotices(ctx, "looking for due notices", selectDueNotices, micros(now), max(limit, 0))
}

func (s *Store) queryNotices(ctx context.Context, doing string, q query, args ...any) ([]webhook.NoticeRecord, error) {
	var found []webhook.NoticeRecord
	err := s.read(ctx, doing, func(ctx context.Context) error {
		found = nil
		rows, err := s.db.QueryContext(ctx, s.sql(q), args...)
		return scanAll(rows, err, func(rows *sql.Rows) error {
			var n webhook.NoticeRecord
			var streak, created, due int64
			err := rows.Scan(&n.ID, &n.EndpointID, &n.Tenant, &n.Kind, &streak, &created, &due, &n.Attempts, &n.Detail)
			n.Streak, n.CreatedAt, n.DueAt = fromMicros(streak), fromMicros(created), fromMicros(due)
			found = append(found, n)
			return err
		})
	})
	return found, err
}

// SettleNotices implements [webhook.NoticeStore].
func (s *Store) SettleNotices(ctx context.Context, notices []webhook.NoticeRecord) error {
	if len(notices) == 0 {
		return nil
	}
	return s.write(ctx, "settling notices", nil, func(ctx context.Context, c *sql.Conn) error {
		for i := range notices {
			n := &notices[i]
			if _, err := c.ExecContext(ctx, s.sql(updateNotice), micros(n.DueAt), n.Attempts, blob(n.ID)); err != nil {
				return err
			}
		}
		return nil
	})
}

// ListNotices implements [webhook.NoticeStore].
func (s *Store) ListNotices(ctx context.Context, p webhook.ListNoticesParams) ([]webhook.NoticeRecord, error) {
	before := p.Before
	if before == uuid.Nil {
		before = uuid.Max
	}
	tenant, limited := p.Scope.Tenant()
	q, args := selectLastNotices, []any{blob(before), max(p.Limit, 0)}
	switch {
	case p.EndpointID != uuid.Nil:
		q, args = selectEndpointNotices, append(args, blob(p.EndpointID), !limited, tenant)
	case limited:
		q, args = selectTenantNotices, append(args, tenant)
	}
	return s.queryNotices(ctx, "listing notices", q, args...)
}

// removeNotices removes what dispatchers did, and what was told, before some times.
func (s *Store) removeNotices(ctx context.Context, p webhook.MaintainParams) error {
	const doing = "removing old notices"
	if !p.ActivityBefore.IsZero() {
		err := s.write(ctx, doing, nil, func(ctx context.Context, c *sql.Conn) error {
			_, err := c.ExecContext(ctx, s.sql(deleteActivity), micros(p.ActivityBefore))
			return err
		})
		if err != nil {
			return err
		}
	}
	for more := !p.NoticesBefore.IsZero(); more; {
		err := s.write(ctx, doing, nil, func(ctx context.Context, c *sql.Conn) error {
			var old [][]byte
			rows, err := c.QueryContext(ctx, s.sql(selectOldNotices), micros(p.NoticesBefore), removedPerWrite)
			err = scanAll(rows, err, func(rows *sql.Rows) error {
				var id []byte
				err := rows.Scan(&id)
				old = append(old, id)
				return err
			})
			if err != nil {
				return err
			}
			more = len(old) == removedPerWrite
			for _, id := range old {
				if _, err := c.ExecContext(ctx, s.sql(deleteNotice), id); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
