package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

const (
	// All ride on the primary key of delivery.
	updatePending query = `
		UPDATE {{prefix}}delivery
		SET lane = ?, next_attempt_at = ?, lease_until = 0, lease_token = x'', sent_at = 0,
			attempts = attempts + ?, last_status = ?, last_class = ?
		WHERE id = ? AND lease_token = ?`

	updateHandedBack query = `
		UPDATE {{prefix}}delivery
		SET lane = ?, next_attempt_at = ?, lease_until = 0, lease_token = x'', sent_at = 0
		WHERE id = ? AND lease_token = ?`

	selectOwner    query = `SELECT endpoint_id, tenant FROM {{prefix}}delivery WHERE id = ?`
	deleteDelivery query = `DELETE FROM {{prefix}}delivery WHERE id = ?`

	insertLog  query = `INSERT INTO {{prefix}}delivery_log ` + finishedRow
	insertDead query = `INSERT INTO {{prefix}}delivery_dead ` + finishedRow

	// The attempt that ends a delivery, if there is one, is the last one.
	finishedRow query = `
		(id, event_seq, event_id, endpoint_id, run, tenant, event_type, state, reason, attempts,
		created_at, finished_at, last_status, last_class, skipped)
		SELECT id, event_seq, event_id, endpoint_id, run, tenant, event_type, ?1, ?2, attempts + ?3,
			created_at, ?4, iif(?5, ?6, last_status), iif(?5, ?7, last_class), skipped
		FROM {{prefix}}delivery WHERE id = ?8 AND lease_token = ?9`

	insertAttempt query = `
		INSERT INTO {{prefix}}attempt
		(delivery_id, number, lease_token, started_at, latency, status, class, error, location,
		excerpt, truncated, body_hash, late)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT DO NOTHING`

	selectAttemptLate query = `
		SELECT late FROM {{prefix}}attempt WHERE delivery_id = ? AND number = ? AND lease_token = ?`

	selectKnown query = `
		SELECT EXISTS (SELECT 1 FROM {{prefix}}delivery WHERE id = ?1)
			OR EXISTS (SELECT 1 FROM {{prefix}}delivery_log WHERE id = ?1)
			OR EXISTS (SELECT 1 FROM {{prefix}}delivery_dead WHERE id = ?1)`
)

// recorder applies the results of one Record under the lock.
type recorder struct {
	pending, handedBack, log, dead, owner, remove, attempt, attemptLate, known *sql.Stmt

	now    int64
	counts counts
	result webhook.RecordResult
}

func (s *Store) newRecorder(ctx context.Context, c *sql.Conn) (*recorder, statements, error) {
	st, err := s.prepareAll(ctx, c, updatePending, updateHandedBack, insertLog, insertDead,
		selectOwner, deleteDelivery, insertAttempt, selectAttemptLate, selectKnown)
	if err != nil {
		return nil, nil, err
	}
	return &recorder{
		pending: st[0], handedBack: st[1], log: st[2], dead: st[3],
		owner: st[4], remove: st[5], attempt: st[6], attemptLate: st[7], known: st[8],
		counts: counts{},
	}, st, nil
}

// Record implements [webhook.DeliveryStore].
func (s *Store) Record(ctx context.Context, p webhook.RecordParams) (webhook.RecordResult, error) {
	if len(p.Results) == 0 {
		return webhook.RecordResult{}, nil
	}
	for i := range p.Results {
		if err := checkState(p.Results[i].State); err != nil {
			return webhook.RecordResult{}, err
		}
	}
	var result webhook.RecordResult
	err := s.write(ctx, "recording results", nil, func(ctx context.Context, c *sql.Conn) error {
		r, st, err := s.newRecorder(ctx, c)
		if err != nil {
			return err
		}
		defer st.close()
		r.now = micros(p.Now)
		for i := range p.Results {
			if err := r.record(ctx, &p.Results[i]); err != nil {
				return fmt.Errorf("delivery %s: %w", p.Results[i].DeliveryID, err)
			}
		}
		result = r.result
		keys := make(map[webhook.OrderKey]struct{})
		for i := range p.Results {
			if key := p.Results[i].Order; key != nil {
				keys[*key] = struct{}{}
			}
		}
		if result.Released, err = s.releaseAll(ctx, c, keys, p.Now); err != nil {
			return err
		}
		return s.saveCounts(ctx, c, r.counts)
	})
	if err != nil {
		return webhook.RecordResult{}, err
	}
	return result, nil
}

func checkState(state webhook.DeliveryState) error {
	if state == webhook.StatePending || state.Final() {
		return nil
	}
	return &webhook.InvalidError{
		Field:   "Result.State",
		Problem: fmt.Sprintf("is %q: want %s or a final state", state, webhook.StatePending),
	}
}

func (r *recorder) record(ctx context.Context, res *webhook.Result) error {
	held, err := r.apply(ctx, res)
	if err != nil {
		return err
	}
	if held {
		if res.Attempt == nil {
			return nil
		}
		return r.logAttempt(ctx, res, false)
	}
	return r.late(ctx, res)
}

// apply changes the delivery, if the lease still holds it.
func (r *recorder) apply(ctx context.Context, res *webhook.Result) (held bool, err error) {
	if res.State == webhook.StatePending {
		if res.Attempt == nil {
			return changed(r.handedBack.ExecContext(ctx, int(res.Lane), micros(res.NextAttemptAt),
				blob(res.DeliveryID), blob(res.Token)))
		}
		return changed(r.pending.ExecContext(ctx, int(res.Lane), micros(res.NextAttemptAt),
			counted(res), res.Attempt.Status, string(res.Attempt.Class), blob(res.DeliveryID), blob(res.Token)))
	}
	f := finish{id: res.DeliveryID, token: blob(res.Token), state: res.State, reason: res.Reason}
	if res.Attempt != nil {
		f.attempted, f.attempts = true, counted(res)
		f.status, f.class = res.Attempt.Status, string(res.Attempt.Class)
	}
	return r.finish(ctx, f)
}

// counted is by how much the attempt of a result raises their number.
func counted(res *webhook.Result) int {
	if res.Uncounted {
		return 0
	}
	return 1
}

// finish is how a delivery ends.
type finish struct {
	id        uuid.UUID
	token     []byte
	state     webhook.DeliveryState
	reason    string
	attempted bool // an attempt ended it, of the status and class
	attempts  int  // 1 when that attempt counts, otherwise 0
	status    int
	class     string
}

// finish moves the delivery out of the unfinished ones.
func (r *recorder) finish(ctx context.Context, f finish) (held bool, err error) {
	insert, reason := r.dead, text(f.reason)
	if f.state == webhook.StateDelivered {
		insert, reason = r.log, ""
	}
	held, err = changed(insert.ExecContext(ctx, string(f.state), reason, f.attempts, r.now,
		f.attempted, f.status, f.class, blob(f.id), f.token))
	if err != nil || !held {
		return held, err
	}
	var endpoint uuid.UUID
	var tenant string
	if err := r.owner.QueryRowContext(ctx, blob(f.id)).Scan(&endpoint, &tenant); err != nil {
		return true, err
	}
	r.counts.end(f.state, endpoint, tenant, r.now)
	_, err = r.remove.ExecContext(ctx, blob(f.id))
	return true, err
}

// late deals with a result whose lease is lost. The lease may have been lost to
// this very result, recorded before by a call that seemed to fail.
func (r *recorder) late(ctx context.Context, res *webhook.Result) error {
	if res.Attempt == nil {
		r.result.Lost = append(r.result.Lost, res.DeliveryID)
		return nil
	}
	var late bool
	err := r.attemptLate.QueryRowContext(ctx, blob(res.DeliveryID), res.Attempt.Number, blob(res.Token)).Scan(&late)
	switch {
	case err == nil:
		if late {
			r.result.Lost = append(r.result.Lost, res.DeliveryID)
		}
		return nil
	case !errors.Is(err, sql.ErrNoRows):
		return err
	}
	r.result.Lost = append(r.result.Lost, res.DeliveryID)
	var known bool
	if err := r.known.QueryRowContext(ctx, blob(res.DeliveryID)).Scan(&known); err != nil || !known {
		return err
	}
	return r.logAttempt(ctx, res, true)
}

func (r *recorder) logAttempt(ctx context.Context, res *webhook.Result, late bool) error {
	a := res.Attempt
	logged, err := changed(r.attempt.ExecContext(ctx, blob(res.DeliveryID), a.Number, blob(res.Token),
		micros(a.StartedAt), int64(a.Latency), a.Status, string(a.Class), text(a.Error), text(a.Location),
		a.Excerpt, a.Truncated, a.BodyHash, late))
	if logged {
		r.counts.attempt(a)
	}
	return err
}

const (
	// Rides on the unique index of endpoint.id.
	selectWithdrawn query = `
		SELECT 1 FROM {{prefix}}endpoint WHERE id = ? AND (state = 'disabled' OR deleted_at <> 0)`

	// Rides on delivery_endpoint.
	selectCancellable query = `
		SELECT id, lease_token FROM {{prefix}}delivery
		WHERE endpoint_id = ? AND lease_until <= ? ORDER BY id LIMIT ?`

	// cancelledPerWrite keeps the lock short.
	cancelledPerWrite = 200
)

// CancelDeliveries implements [webhook.DeliveryStore].
func (s *Store) CancelDeliveries(ctx context.Context, p webhook.CancelDeliveriesParams) (int, error) {
	total := 0
	for total < p.Limit {
		want := min(p.Limit-total, cancelledPerWrite)
		n, err := s.cancelBatch(ctx, p, want)
		if err != nil {
			return total, err
		}
		total += n
		if n < want {
			break
		}
	}
	return total, nil
}

func (s *Store) cancelBatch(ctx context.Context, p webhook.CancelDeliveriesParams, limit int) (int, error) {
	n := 0
	err := s.write(ctx, "cancelling deliveries", nil, func(ctx context.Context, c *sql.Conn) error {
		n = 0
		var one int
		err := c.QueryRowContext(ctx, s.sql(selectWithdrawn), blob(p.EndpointID)).Scan(&one)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		var ending []finish
		rows, err := c.QueryContext(ctx, s.sql(selectCancellable), blob(p.EndpointID), micros(p.Now), limit)
		err = scanAll(rows, err, func(rows *sql.Rows) error {
			f := finish{state: webhook.StateCancelled, reason: p.Reason}
			err := rows.Scan(&f.id, &f.token)
			f.token = present(f.token) // drivers may give an empty blob as nil
			ending = append(ending, f)
			return err
		})
		if err != nil {
			return err
		}
		n, err = s.finishAll(ctx, c, micros(p.Now), ending, nil)
		return err
	})
	return n, err
}
