package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/timeid"
)

const (
	// removedPerWrite keeps the lock short.
	removedPerWrite = 200

	// lookedAt is how many rows are looked at for old ones at a time.
	lookedAt = 2000

	// Finished deliveries in the order of their ids, which begin with the time at
	// which they were made. Rides on the primary keys.
	selectOldLog  query = `SELECT id, finished_at FROM {{prefix}}delivery_log WHERE id > ? AND id < ? ORDER BY id LIMIT ?`
	selectOldDead query = `SELECT id, finished_at FROM {{prefix}}delivery_dead WHERE id > ? AND id < ? ORDER BY id LIMIT ?`

	deleteOldLog  query = `DELETE FROM {{prefix}}delivery_log WHERE id = ?`
	deleteOldDead query = `DELETE FROM {{prefix}}delivery_dead WHERE id = ?`

	// Rides on the beginning of the primary key of attempt.
	deleteAttempts query = `DELETE FROM {{prefix}}attempt WHERE delivery_id = ?`

	// Events in the order in which they were enqueued. Rides on the rowid of event,
	// on delivery_run and on the unique index of outbox.event_seq.
	selectOldEvents query = `
		SELECT seq, created_at, EXISTS (SELECT 1 FROM {{prefix}}delivery WHERE event_seq = seq)
			OR EXISTS (SELECT 1 FROM {{prefix}}outbox WHERE event_seq = seq)
		FROM {{prefix}}event WHERE seq > ? ORDER BY seq LIMIT ?`

	// Only if it is not needed again by now.
	deleteEvent query = `
		DELETE FROM {{prefix}}event
		WHERE seq = ?1 AND NOT EXISTS (SELECT 1 FROM {{prefix}}delivery WHERE event_seq = ?1)
			AND NOT EXISTS (SELECT 1 FROM {{prefix}}outbox WHERE event_seq = ?1)`

	selectEventKey query = `SELECT id, tenant, idempotency_key, payload_ref IS NOT NULL FROM {{prefix}}event WHERE seq = ?`

	deleteKey query = `DELETE FROM {{prefix}}idempotency_key WHERE tenant = ? AND key = ? AND event_id = ?`

	deleteUnmatched query = `DELETE FROM {{prefix}}unmatched WHERE event_seq = ?`
)

// Maintain implements [webhook.SystemStore]. It removes what is old, a little at a
// time, and copies what the write-ahead log holds into the database, as far as that
// waits for nobody, so that the host's own commits have less of it to do. What has
// become free in the file is used again; the file does not shrink.
func (s *Store) Maintain(ctx context.Context, p webhook.MaintainParams) error {
	return errors.Join(
		s.removeDeliveries(ctx, "removing old deliveries", selectOldLog, deleteOldLog, p.DeliveriesBefore),
		s.removeDeliveries(ctx, "removing old dead deliveries", selectOldDead, deleteOldDead, p.DeadBefore),
		s.removeEvents(ctx, p.EventsBefore),
		s.removeNotices(ctx, p),
		s.removeVitals(ctx, p.DeletedBefore),
		s.removeOrderHolds(ctx, p.Now),
		s.removeReplayJobs(ctx, p.EventsBefore),
		s.checkpoint(ctx),
	)
}

func (s *Store) checkpoint(ctx context.Context) error {
	return s.read(ctx, "writing back the log", func(ctx context.Context) error {
		rows, err := s.db.QueryContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)")
		return scanAll(rows, err, func(*sql.Rows) error { return nil })
	})
}

// removeDeliveries removes the deliveries of one table that ended before a time,
// with their attempts.
func (s *Store) removeDeliveries(ctx context.Context, doing string, find, remove query, before time.Time) error {
	if before.IsZero() {
		return nil
	}
	after := uuid.Nil
	for more := true; more; {
		var old [][]byte
		err := s.read(ctx, doing, func(ctx context.Context) error {
			old = nil
			seen, last := 0, after
			rows, err := s.db.QueryContext(ctx, s.sql(find), blob(after), blob(timeid.End(before)), lookedAt)
			err = scanAll(rows, err, func(rows *sql.Rows) error {
				var finishedAt int64
				err := rows.Scan(&last, &finishedAt)
				if seen++; finishedAt < micros(before) {
					old = append(old, bytes.Clone(blob(last)))
				}
				return err
			})
			after, more = last, seen == lookedAt
			return err
		})
		if err != nil {
			return err
		}
		err = s.removeInBatches(ctx, doing, len(old), []query{remove, deleteAttempts}, func(ctx context.Context, st statements, i int) error {
			for _, statement := range st {
				if _, err := statement.ExecContext(ctx, old[i]); err != nil {
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

// removeEvents removes events from before a time that nothing waits for, with their
// keys. Events are nearly in the order of their times; where of many none is old
// enough, none is taken to follow.
func (s *Store) removeEvents(ctx context.Context, before time.Time) error {
	const doing = "removing old events"
	if before.IsZero() {
		return nil
	}
	after := int64(0)
	for more := true; more; {
		var old []int64
		err := s.read(ctx, doing, func(ctx context.Context) error {
			old = nil
			seen, last, aged := 0, after, false
			rows, err := s.db.QueryContext(ctx, s.sql(selectOldEvents), after, lookedAt)
			err = scanAll(rows, err, func(rows *sql.Rows) error {
				var createdAt int64
				var awaited bool
				err := rows.Scan(&last, &createdAt, &awaited)
				seen++
				if createdAt < micros(before) {
					aged = true
					if !awaited {
						old = append(old, last)
					}
				}
				return err
			})
			after, more = last, aged && seen == lookedAt
			return err
		})
		if err != nil {
			return err
		}
		queries := []query{selectEventKey, deleteEvent, deleteKey, deleteUnmatched, insertGonePayload}
		err = s.removeInBatches(ctx, doing, len(old), queries, func(ctx context.Context, st statements, i int) error {
			return removeEvent(ctx, st, old[i])
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// removeEvent removes one event; st are those of removeEvents.
func removeEvent(ctx context.Context, st statements, seq int64) error {
	var id uuid.UUID
	var tenant, key string
	var refers bool
	err := st[0].QueryRowContext(ctx, seq).Scan(&id, &tenant, &key, &refers)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	if gone, err := changed(st[1].ExecContext(ctx, seq)); err != nil || !gone {
		return err
	}
	if key != "" {
		if _, err := st[2].ExecContext(ctx, tenant, key, blob(id)); err != nil {
			return err
		}
	}
	if refers {
		if _, err := st[4].ExecContext(ctx, blob(id), tenant); err != nil {
			return err
		}
	}
	_, err = st[3].ExecContext(ctx, seq)
	return err
}

// removeInBatches calls remove for each of n things, a few in one transaction.
func (s *Store) removeInBatches(ctx context.Context, doing string, n int, queries []query, remove func(context.Context, statements, int) error) error {
	for from := 0; from < n; from += removedPerWrite {
		err := s.write(ctx, doing, nil, func(ctx context.Context, c *sql.Conn) error {
			st, err := s.prepareAll(ctx, c, queries...)
			if err != nil {
				return err
			}
			defer st.close()
			for i := from; i < min(n, from+removedPerWrite); i++ {
				if err := remove(ctx, st, i); err != nil {
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

// Rides on the primary key of duty.
const upsertDuty query = `
	INSERT INTO {{prefix}}duty (name, holder, until) VALUES (?1, ?2, ?4)
	ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
	WHERE until <= ?3 OR holder = excluded.holder`

// TakeDuty implements [webhook.SystemStore].
func (s *Store) TakeDuty(ctx context.Context, p webhook.DutyParams) (held bool, err error) {
	err = s.write(ctx, "taking a duty", nil, func(ctx context.Context, c *sql.Conn) error {
		held, err = changed(c.ExecContext(ctx, s.sql(upsertDuty), p.Name, blob(p.Holder), micros(p.Now), micros(p.Until)))
		return err
	})
	return held, err
}
