package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

const (
	// Rides on the primary key of delivery.
	updateSent query = `UPDATE {{prefix}}delivery SET sent_at = ? WHERE id = ? AND lease_token = ?`

	// Rides on delivery_sent, which holds what is being sent.
	selectUnknown query = `
		SELECT id, event_id, endpoint_id, tenant, attempts, sent_at, lease_token FROM {{prefix}}delivery
		WHERE sent_at > 0 AND lease_until <= ? LIMIT ?`

	// Rides on delivery_claim, in order.
	selectOverdue query = `
		SELECT id, lease_token, next_attempt_at,
			created_at < ?5 AND (attempts > 0 OR ?6) AND lease_until <= ?1
		FROM {{prefix}}delivery
		WHERE endpoint_id = ?2 AND lane = ?3 AND next_attempt_at >= ?4 AND next_attempt_at <= ?1
		ORDER BY next_attempt_at, id LIMIT ?7`
)

// MarkSent implements [webhook.OnceStore].
func (s *Store) MarkSent(ctx context.Context, p webhook.MarkSentParams) ([]uuid.UUID, error) {
	if len(p.Leases) == 0 {
		return nil, nil
	}
	var lost []uuid.UUID
	err := s.write(ctx, "marking deliveries as sent", nil, func(ctx context.Context, c *sql.Conn) error {
		lost = nil
		for _, lease := range p.Leases {
			held, err := changed(c.ExecContext(ctx, s.sql(updateSent), micros(p.Now), blob(lease.DeliveryID), blob(lease.Token)))
			if err != nil {
				return err
			}
			if !held {
				lost = append(lost, lease.DeliveryID)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return lost, nil
}

// unknown are the deliveries of unknown outcome.
func (s *Store) unknown(ctx context.Context, q queryer, p webhook.EndUnknownParams) (ending []finish, attempts []*webhook.Attempt, err error) {
	rows, err := q.QueryContext(ctx, s.sql(selectUnknown), micros(p.ExpiredBefore), min(p.Limit, cancelledPerWrite))
	err = scanAll(rows, err, func(rows *sql.Rows) error {
		f := finish{
			state: webhook.StateDead, reason: webhook.ReasonOutcomeUnknown,
			attempted: true, attempts: 1, class: string(webhook.ClassOutcomeUnknown),
		}
		a := &webhook.Attempt{Class: webhook.ClassOutcomeUnknown}
		var sentAt int64
		err := rows.Scan(&f.id, &a.EventID, &a.EndpointID, &a.Tenant, &a.Number, &sentAt, &f.token)
		f.token = present(f.token) // drivers may give an empty blob as nil
		a.DeliveryID, a.StartedAt = f.id, fromMicros(sentAt)
		a.Number++
		ending, attempts = append(ending, f), append(attempts, a)
		return err
	})
	return ending, attempts, err
}

// EndUnknown implements [webhook.OnceStore]. It takes the lock only when there are any.
func (s *Store) EndUnknown(ctx context.Context, p webhook.EndUnknownParams) (ended []webhook.EndedDeliveries, err error) {
	none := false
	err = s.read(ctx, "looking for deliveries of unknown outcome", func(ctx context.Context) error {
		ending, _, err := s.unknown(ctx, s.db, p)
		none = len(ending) == 0
		return err
	})
	if err != nil || none {
		return nil, err
	}
	err = s.write(ctx, "ending deliveries of unknown outcome", nil, func(ctx context.Context, c *sql.Conn) error {
		ending, attempts, err := s.unknown(ctx, c, p)
		if err != nil {
			return err
		}
		finished, err := s.finishAll(ctx, c, micros(p.Now), ending, attempts)
		if err == nil && finished != len(ending) {
			err = fmt.Errorf("%d of %d deliveries vanished under the lock", len(ending)-finished, len(ending))
		}
		ended = endedOf(attempts)
		return err
	})
	if err != nil {
		return nil, err
	}
	return ended, nil
}

// endedOf counts by endpoint the deliveries that attempts are of.
func endedOf(attempts []*webhook.Attempt) []webhook.EndedDeliveries {
	var ended []webhook.EndedDeliveries
	at := make(map[uuid.UUID]int)
	for _, a := range attempts {
		i, known := at[a.EndpointID]
		if !known {
			i = len(ended)
			at[a.EndpointID] = i
			ended = append(ended, webhook.EndedDeliveries{EndpointID: a.EndpointID, Tenant: a.Tenant})
		}
		ended[i].Deliveries++
	}
	return ended
}

// finishAll ends deliveries, with the attempts that end them, if given. Those are under
// no lease: what their holders may still say comes late, and is logged too. It runs
// under the lock.
func (s *Store) finishAll(ctx context.Context, c *sql.Conn, now int64, ending []finish, attempts []*webhook.Attempt) (n int, err error) {
	r, st, err := s.newRecorder(ctx, c)
	if err != nil {
		return 0, err
	}
	defer st.close()
	r.now = now
	for i, f := range ending {
		finished, err := r.finish(ctx, f)
		if err != nil {
			return 0, err
		}
		if !finished {
			continue
		}
		n++
		if attempts == nil {
			continue
		}
		res := webhook.Result{Lease: webhook.Lease{DeliveryID: f.id}, Attempt: attempts[i]}
		if err := r.logAttempt(ctx, &res, false); err != nil {
			return 0, err
		}
	}
	return n, s.saveCounts(ctx, c, r.counts)
}

// EndOverdue implements [webhook.WindowStore].
func (s *Store) EndOverdue(ctx context.Context, p webhook.EndOverdueParams) (webhook.EndOverdueResult, error) {
	var result webhook.EndOverdueResult
	find := func(ctx context.Context, q queryer) (ending []finish, err error) {
		result = webhook.EndOverdueResult{DueFrom: p.DueFrom}
		looked := 0
		rows, err := q.QueryContext(ctx, s.sql(selectOverdue), micros(p.Now), blob(p.EndpointID), int(p.Lane),
			micros(p.DueFrom), micros(p.BegunBefore), p.Unattempted, p.Limit)
		err = scanAll(rows, err, func(rows *sql.Rows) error {
			f := finish{state: webhook.StateDead, reason: p.Reason}
			var dueAt int64
			var overdue bool
			err := rows.Scan(&f.id, &f.token, &dueAt, &overdue)
			f.token = present(f.token) // drivers may give an empty blob as nil
			looked++
			result.DueFrom = fromMicros(dueAt)
			if overdue {
				ending = append(ending, f)
			}
			return err
		})
		result.More = looked == p.Limit
		return ending, err
	}
	none := false
	err := s.read(ctx, "looking for overdue deliveries", func(ctx context.Context) error {
		ending, err := find(ctx, s.db)
		none = len(ending) == 0
		return err
	})
	if err != nil || none {
		return result, err
	}
	err = s.write(ctx, "ending overdue deliveries", nil, func(ctx context.Context, c *sql.Conn) error {
		ending, err := find(ctx, c)
		if err != nil {
			return err
		}
		result.Ended, err = s.finishAll(ctx, c, micros(p.Now), ending, nil)
		return err
	})
	if err != nil {
		return webhook.EndOverdueResult{}, err
	}
	return result, nil
}
