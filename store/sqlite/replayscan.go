package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

const (
	// Each branch rides, in order, on the index by endpoint and id.
	selectFinished query = `
		SELECT * FROM (SELECT id, event_seq, run, state FROM {{prefix}}delivery_log
			WHERE endpoint_id = ?1 AND id > ?2 AND finished_at >= ?3 AND finished_at < ?4 AND created_at < ?6 ORDER BY id LIMIT ?5)
		UNION ALL SELECT * FROM (SELECT id, event_seq, run, state FROM {{prefix}}delivery_dead
			WHERE endpoint_id = ?1 AND id > ?2 AND finished_at >= ?3 AND finished_at < ?4 AND created_at < ?6 ORDER BY id LIMIT ?5)
		ORDER BY 1 LIMIT ?5`

	// Rides on the unique index of event.id, in order.
	selectStored query = `
		SELECT seq FROM {{prefix}}event WHERE id > ? AND id < ? ORDER BY id LIMIT ?`

	// Rides on delivery_run, delivery_log_run and delivery_dead_run: the runs of an
	// event to an endpoint, of which the unfinished one counts as the last. Where a dead
	// one is the last of those that are left, the one after it was delivered.
	selectLatestRun query = `
		SELECT run, state FROM (
			SELECT 1 AS open, run, 'pending' AS state FROM {{prefix}}delivery WHERE event_seq = ?1 AND endpoint_id = ?2
			UNION ALL SELECT 0, run, state FROM {{prefix}}delivery_log WHERE event_seq = ?1 AND endpoint_id = ?2
			UNION ALL SELECT 0, run, iif(replayed, 'delivered', state) FROM {{prefix}}delivery_dead WHERE event_seq = ?1 AND endpoint_id = ?2
		) ORDER BY open DESC, run DESC LIMIT 1`

	// Rides on the unique index of outbox.event_seq.
	selectWaits query = `SELECT EXISTS (SELECT 1 FROM {{prefix}}outbox WHERE event_seq = ?)`
)

func fromMicrosOf(t time.Time) int64 {
	if t.IsZero() {
		return math.MinInt64
	}
	return micros(t)
}

func toMicrosOf(t time.Time) int64 {
	if t.IsZero() {
		return math.MaxInt64
	}
	return micros(t)
}

func within(t, from, to time.Time) bool {
	return (from.IsZero() || !t.Before(from)) && (to.IsZero() || t.Before(to))
}

// looked is a row that may be replayed.
type looked struct {
	cursor uuid.UUID
	seq    int64
	run    int
	state  webhook.DeliveryState
}

// FinishedDeliveries implements [webhook.ReplayWorkStore].
func (s *Store) FinishedDeliveries(ctx context.Context, p webhook.FinishedDeliveriesParams) (webhook.ReplayPage, error) {
	return s.replayPage(ctx, p.After, p.Limit, selectEventsWithoutPayload, func(ctx context.Context, c *sql.Conn) ([]looked, error) {
		var all []looked
		rows, err := c.QueryContext(ctx, s.sql(selectFinished), blob(p.EndpointID), blob(p.After),
			fromMicrosOf(p.FinishedFrom), toMicrosOf(p.FinishedTo), p.Limit, toMicrosOf(p.BegunTo))
		err = scanAll(rows, err, func(rows *sql.Rows) error {
			var l looked
			err := rows.Scan(&l.cursor, &l.seq, &l.run, &l.state)
			all = append(all, l)
			return err
		})
		return all, err
	}, func(ctx context.Context, st statements, l *looked, e *webhook.EventRecord) (bool, error) {
		if e == nil || !slices.Contains(p.States, l.state) || !within(e.CreatedAt, p.EventsFrom, p.EventsTo) {
			return false, nil
		}
		run, state, err := latestRun(ctx, st, l.seq, p.EndpointID)
		return run == l.run && state == l.state, err
	})
}

// StoredEvents implements [webhook.ReplayWorkStore].
func (s *Store) StoredEvents(ctx context.Context, p webhook.StoredEventsParams) (webhook.ReplayPage, error) {
	columns := selectEventsWithoutPayload
	if p.Payload {
		columns = selectEvents
	}
	return s.replayPage(ctx, p.After, p.Limit, columns, func(ctx context.Context, c *sql.Conn) ([]looked, error) {
		var all []looked
		rows, err := c.QueryContext(ctx, s.sql(selectStored), blob(p.After), blob(p.Until), p.Limit)
		err = scanAll(rows, err, func(rows *sql.Rows) error {
			var l looked
			err := rows.Scan(&l.seq)
			all = append(all, l)
			return err
		})
		return all, err
	}, func(ctx context.Context, st statements, l *looked, e *webhook.EventRecord) (bool, error) {
		if e == nil {
			return false, nil
		}
		l.cursor = e.ID
		if e.Tenant != p.Tenant || !within(e.CreatedAt, p.EventsFrom, p.EventsTo) {
			return false, nil
		}
		var waits bool
		if err := st[1].QueryRowContext(ctx, l.seq).Scan(&waits); err != nil || waits {
			return false, err
		}
		var err error
		_, l.state, err = latestRun(ctx, st, l.seq, p.EndpointID)
		return l.state == "" || l.state.Final(), err
	})
}

// replayPage looks at a page of rows, reads their events and keeps what fits.
func (s *Store) replayPage(ctx context.Context, after uuid.UUID, limit int, columns query,
	look func(context.Context, *sql.Conn) ([]looked, error),
	fits func(context.Context, statements, *looked, *webhook.EventRecord) (bool, error),
) (page webhook.ReplayPage, err error) {
	err = s.read(ctx, "looking for what to replay", func(ctx context.Context) error {
		page = webhook.ReplayPage{Next: after}
		conn, err := s.db.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }() // back to the pool; it has no error of its own
		all, err := look(ctx, conn)
		if err != nil {
			return err
		}
		page.More = len(all) >= limit
		events := make(map[int64]*webhook.EventRecord, len(all))
		seqs := make([]int64, len(all))
		for i := range all {
			seqs[i] = all[i].seq
		}
		if err := s.loadEvents(ctx, conn, events, seqs, columns); err != nil {
			return err
		}
		st, err := s.prepareAll(ctx, conn, selectLatestRun, selectWaits)
		if err != nil {
			return err
		}
		defer st.close()
		for i := range all {
			l, e := &all[i], events[all[i].seq]
			ok, err := fits(ctx, st, l, e)
			if err != nil {
				return err
			}
			if l.cursor != uuid.Nil {
				page.Next = l.cursor
			}
			if ok {
				page.Candidates = append(page.Candidates, webhook.ReplayCandidate{Cursor: l.cursor, Event: *e, State: l.state})
			}
		}
		return nil
	})
	return page, err
}

func latestRun(ctx context.Context, st statements, seq int64, endpoint uuid.UUID) (run int, state webhook.DeliveryState, err error) {
	err = st[0].QueryRowContext(ctx, seq, blob(endpoint)).Scan(&run, &state)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, "", nil
	}
	return run, state, err
}
