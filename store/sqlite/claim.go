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
	// A skip scan of delivery_claim: one seek to the next endpoint, and one to
	// the first unleased row of each of its lanes.
	selectReady query = `
		WITH RECURSIVE e (id) AS (
			SELECT (SELECT min(endpoint_id) FROM {{prefix}}delivery WHERE endpoint_id > ?1)
			UNION ALL
			SELECT (SELECT min(endpoint_id) FROM {{prefix}}delivery WHERE endpoint_id > e.id) FROM e WHERE e.id IS NOT NULL
		), due (id, first, retry, replay) AS (
			SELECT id,
				(SELECT next_attempt_at FROM {{prefix}}delivery
					WHERE endpoint_id = e.id AND lane = 0 AND lease_until <= ?2 ORDER BY next_attempt_at LIMIT 1),
				(SELECT next_attempt_at FROM {{prefix}}delivery
					WHERE endpoint_id = e.id AND lane = 1 AND lease_until <= ?2 ORDER BY next_attempt_at LIMIT 1),
				(SELECT next_attempt_at FROM {{prefix}}delivery
					WHERE endpoint_id = e.id AND lane = 2 AND lease_until <= ?2 ORDER BY next_attempt_at LIMIT 1)
			FROM e WHERE id IS NOT NULL
		)
		SELECT id, first, retry, replay FROM due
		WHERE first IS NOT NULL OR retry IS NOT NULL OR replay IS NOT NULL
		LIMIT ?3`

	// Rides on delivery_claim in either direction: no sort, and no more rows
	// than the limit and those under a lease.
	selectOldest query = selectDue + ` ORDER BY next_attempt_at, id LIMIT ?`
	selectNewest query = selectDue + ` ORDER BY next_attempt_at DESC, id DESC LIMIT ?`

	selectDue query = `
		SELECT id, event_seq, run, attempts, created_at, next_attempt_at, lease_until, order_key, skipped
		FROM {{prefix}}delivery
		WHERE endpoint_id = ? AND lane = ? AND next_attempt_at <= ? AND lease_until <= ? AND sent_at = 0
			AND next_attempt_at >= ?`

	// Rides on the unique index of endpoint.id.
	selectClaimable query = `
		SELECT revision FROM {{prefix}}endpoint WHERE id = ? AND state = 'active' AND deleted_at = 0`

	// Rides on the primary key of delivery.
	updateClaimed query = `UPDATE {{prefix}}delivery SET lease_until = ?, lease_token = ? WHERE id = ?`

	updateRenewed query = `
		UPDATE {{prefix}}delivery SET lease_until = ? WHERE id = ? AND lease_token = ?`
)

// Ready implements [webhook.DeliveryStore].
func (s *Store) Ready(ctx context.Context, p webhook.ReadyParams) ([]webhook.ReadyLane, error) {
	var lanes []webhook.ReadyLane
	err := s.read(ctx, "looking for ready endpoints", func(ctx context.Context) error {
		lanes = lanes[:0]
		rows, err := s.db.QueryContext(ctx, s.sql(selectReady), blob(p.After), micros(p.Now), p.Limit)
		return scanAll(rows, err, func(rows *sql.Rows) error {
			var id uuid.UUID
			var due [3]sql.NullInt64 // by lane
			if err := rows.Scan(&id, &due[0], &due[1], &due[2]); err != nil {
				return err
			}
			for lane, at := range due {
				if at.Valid {
					lanes = append(lanes, webhook.ReadyLane{
						EndpointID: id, Lane: webhook.Lane(lane), DueAt: fromMicros(at.Int64),
					})
				}
			}
			return nil
		})
	})
	return lanes, err
}

// claim is one call of Claim. It looks for due deliveries without the lock
// first: when there are none it never takes it, and otherwise it has read their
// events, which never change, before it does.
type claim struct {
	s      *Store
	p      webhook.ClaimParams
	events map[int64]*webhook.EventRecord
	picked []picked
}

type picked struct {
	webhook.Claimed
	seq int64
}

// Claim implements [webhook.DeliveryStore].
func (s *Store) Claim(ctx context.Context, p webhook.ClaimParams) ([]webhook.Claimed, error) {
	cl := &claim{s: s, p: p, events: make(map[int64]*webhook.EventRecord)}
	if err := s.read(ctx, "looking for due deliveries", cl.look); err != nil || len(cl.picked) == 0 {
		return nil, err
	}
	if err := s.write(ctx, "claiming deliveries", nil, cl.take); err != nil {
		return nil, err
	}
	claimed := make([]webhook.Claimed, len(cl.picked))
	for i, d := range cl.picked {
		claimed[i] = d.Claimed
	}
	return claimed, nil
}

func (cl *claim) look(ctx context.Context) error {
	conn, err := cl.s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // back to the pool; it has no error of its own
	return cl.pick(ctx, conn)
}

// take runs under the lock.
func (cl *claim) take(ctx context.Context, c *sql.Conn) error {
	if err := cl.pick(ctx, c); err != nil {
		return err
	}
	update, err := c.PrepareContext(ctx, cl.s.sql(updateClaimed))
	if err != nil {
		return err
	}
	defer func() { _ = update.Close() }() // releases memory only
	until, token := micros(cl.p.LeaseUntil), blob(cl.p.Token)
	for i := range cl.picked {
		if _, err := update.ExecContext(ctx, until, token, blob(cl.picked[i].DeliveryID)); err != nil {
			return err
		}
	}
	return nil
}

// pick finds what the requests ask for, with the events.
func (cl *claim) pick(ctx context.Context, c *sql.Conn) error {
	cl.picked = cl.picked[:0]
	seen := make(map[uuid.UUID]bool) // a lane may be asked for in both directions
	revisions := make(map[uuid.UUID]int64)

	st, err := cl.s.prepareAll(ctx, c, selectClaimable, selectOldest, selectNewest)
	if err != nil {
		return err
	}
	defer st.close()
	for _, r := range cl.p.Requests {
		revision, known := revisions[r.EndpointID]
		if !known {
			revision, err = claimableRevision(ctx, st[0], r.EndpointID)
			if err != nil {
				return err
			}
			revisions[r.EndpointID] = revision
		}
		if revision == notClaimable || r.Limit <= 0 {
			continue
		}
		direction := st[1]
		if r.Newest {
			direction = st[2]
		}
		if err := cl.pickLane(ctx, direction, r, revision, seen); err != nil {
			return err
		}
	}
	return cl.addEvents(ctx, c)
}

const notClaimable = -1

func claimableRevision(ctx context.Context, st *sql.Stmt, endpoint uuid.UUID) (int64, error) {
	var revision int64
	err := st.QueryRowContext(ctx, blob(endpoint)).Scan(&revision)
	if errors.Is(err, sql.ErrNoRows) {
		return notClaimable, nil
	}
	return revision, err
}

func (cl *claim) pickLane(
	ctx context.Context, st *sql.Stmt, r webhook.ClaimRequest, revision int64, seen map[uuid.UUID]bool,
) error {
	at := micros(cl.p.Now)
	// The lane's other direction may have picked some of the same rows.
	already := 0
	for i := range cl.picked {
		if cl.picked[i].EndpointID == r.EndpointID && cl.picked[i].Lane == r.Lane {
			already++
		}
	}
	room := r.Limit
	rows, err := st.QueryContext(ctx, blob(r.EndpointID), int(r.Lane), at, at, micros(r.Since), r.Limit+already)
	return scanAll(rows, err, func(rows *sql.Rows) error {
		d := picked{Claimed: webhook.Claimed{
			EndpointID: r.EndpointID, Lane: r.Lane, Newest: r.Newest, EndpointRevision: revision,
		}}
		var createdAt, dueAt, leaseUntil int64
		var key sql.NullString
		if err := rows.Scan(&d.DeliveryID, &d.seq, &d.Run, &d.Attempts, &createdAt, &dueAt, &leaseUntil,
			&key, &d.OrderingSkipped); err != nil {
			return err
		}
		if key.Valid {
			d.Order = &webhook.OrderKey{EndpointID: r.EndpointID, Key: key.String}
		}
		if room == 0 || seen[d.DeliveryID] {
			return nil
		}
		room--
		seen[d.DeliveryID] = true
		d.CreatedAt, d.DueAt, d.TakenOver = fromMicros(createdAt), fromMicros(dueAt), leaseUntil != 0
		cl.picked = append(cl.picked, d)
		return nil
	})
}

func (cl *claim) addEvents(ctx context.Context, c *sql.Conn) error {
	seqs := make([]int64, len(cl.picked))
	for i, d := range cl.picked {
		seqs[i] = d.seq
	}
	if err := cl.s.loadEvents(ctx, c, cl.events, seqs, selectEvents); err != nil {
		return err
	}
	for i := range cl.picked {
		d := &cl.picked[i]
		e := cl.events[d.seq]
		if e == nil {
			return fmt.Errorf("the event of delivery %s is missing", d.DeliveryID)
		}
		d.Event = *e
	}
	return nil
}

// Renew implements [webhook.DeliveryStore].
func (s *Store) Renew(ctx context.Context, p webhook.RenewParams) ([]uuid.UUID, error) {
	if len(p.Leases) == 0 {
		return nil, nil
	}
	var lost []uuid.UUID
	err := s.write(ctx, "renewing leases", nil, func(ctx context.Context, c *sql.Conn) error {
		lost = nil
		update, err := c.PrepareContext(ctx, s.sql(updateRenewed))
		if err != nil {
			return err
		}
		defer func() { _ = update.Close() }() // releases memory only
		until := micros(p.LeaseUntil)
		for _, lease := range p.Leases {
			held, err := changed(update.ExecContext(ctx, until, blob(lease.DeliveryID), blob(lease.Token)))
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
