package postgres

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// A skip scan: from each endpoint in the index to the next, then for each lane
// the first delivery that is not leased. Leased ones are at most as many as the
// endpoint's cap. Rides on delivery_claim_idx.
const readySQL = `
WITH RECURSIVE e (id) AS (
    SELECT (SELECT endpoint_id FROM {{schema}}.delivery
            WHERE endpoint_id > $2::uuid ORDER BY endpoint_id LIMIT 1)
    UNION ALL
    SELECT (SELECT endpoint_id FROM {{schema}}.delivery
            WHERE endpoint_id > e.id ORDER BY endpoint_id LIMIT 1)
    FROM e WHERE e.id IS NOT NULL
)
SELECT e.id, l0.due, l1.due, l2.due
FROM e
LEFT JOIN LATERAL (SELECT next_attempt_at AS due FROM {{schema}}.delivery
    WHERE endpoint_id = e.id AND lane = 0 AND lease_until <= $1::timestamptz
    ORDER BY next_attempt_at LIMIT 1) l0 ON true
LEFT JOIN LATERAL (SELECT next_attempt_at AS due FROM {{schema}}.delivery
    WHERE endpoint_id = e.id AND lane = 1 AND lease_until <= $1::timestamptz
    ORDER BY next_attempt_at LIMIT 1) l1 ON true
LEFT JOIN LATERAL (SELECT next_attempt_at AS due FROM {{schema}}.delivery
    WHERE endpoint_id = e.id AND lane = 2 AND lease_until <= $1::timestamptz
    ORDER BY next_attempt_at LIMIT 1) l2 ON true
WHERE e.id IS NOT NULL AND num_nonnulls(l0.due, l1.due, l2.due) > 0
LIMIT $3::integer`

// One look into the index per request, from the end that it asks for. The limits
// leave the planner no choice but to look up each one. Rides on endpoint_pkey,
// delivery_claim_idx (the rows are found in order, so nothing is sorted), the
// rows' own addresses (they are locked, so they stay where they are) and
// event_pkey. The newest are taken from what the oldest left: a backward scan
// returns those of one posting list, which are due at the same time, forwards.
//
// The planner knows only how many rows an endpoint has on average, which one with a
// million spoils. So it is told the largest of the limits as a number of its own, or
// it would take the statement for a costly one and compile it (JIT) for 100 ms; and
// rows are updated by a list of addresses, or it would join with the whole table.
//
// Most claims ask for the oldest only, and planning is most of what a small claim
// costs: hence two statements.
const (
	claimOldestSQL = "WITH oldest AS (" + claimLookup + "), found AS MATERIALIZED (" +
		"SELECT *, false AS newest FROM oldest" + claimUpdate

	claimSQL = "WITH oldest AS (" + claimLookup + "), newest AS (" + claimLookupNewest + "), found AS MATERIALIZED (" +
		"SELECT *, false AS newest FROM oldest UNION ALL SELECT *, true FROM newest" + claimUpdate

	claimLookup = claimFrom + "$5::uuid[], $6::smallint[], $7::bigint[], $8::timestamptz[]" + claimLateral +
		claimOrder + claimLock
	claimLookupNewest = claimFrom + "$9::uuid[], $10::smallint[], $11::bigint[], $12::timestamptz[]" + claimLateral +
		claimRest + claimOrder + " DESC" + claimLock

	claimFrom = `
    SELECT d.id, d.row, d.taken_over, p.revision
    FROM unnest(`
	claimLateral = `) AS r (endpoint_id, lane, wanted, since)
    CROSS JOIN LATERAL (
        SELECT revision FROM {{schema}}.endpoint
        WHERE id = r.endpoint_id AND state = 'active' AND deleted_at IS NULL
        LIMIT 1
    ) p
    CROSS JOIN LATERAL (SELECT * FROM (
        SELECT id, ctid AS row, lease_token IS NOT NULL AS taken_over FROM {{schema}}.delivery
        WHERE endpoint_id = r.endpoint_id AND lane = r.lane
          AND next_attempt_at >= r.since AND next_attempt_at <= $1::timestamptz AND lease_until <= $1::timestamptz AND sent_at IS NULL`
	claimRest = `
          AND ctid NOT IN (SELECT row FROM oldest)`
	claimOrder = `
        ORDER BY next_attempt_at`
	claimLock = `
        LIMIT r.wanted
        FOR UPDATE SKIP LOCKED
    ) q LIMIT $4::bigint) d
`
	claimUpdate = `
), claimed AS (
    UPDATE {{schema}}.delivery
    SET lease_token = $2::uuid, lease_until = $3::timestamptz
    WHERE ctid = ANY (ARRAY(SELECT row FROM found))
    RETURNING id, endpoint_id, event_id, run, lane, attempts, created_at, next_attempt_at, order_key, skipped
)
SELECT c.id, c.endpoint_id, c.run, c.lane, c.attempts, c.created_at, c.next_attempt_at,
       f.taken_over, f.newest, f.revision, c.order_key, c.skipped,
       e.id, e.seq, e.tenant, e.type, e.resource_id, e.resource_version, e.content_type, e.payload, e.created_at,
       coalesce(e.trace_parent, ''), e.payload_ref
FROM claimed c
JOIN found f ON f.id = c.id
JOIN {{schema}}.event e ON e.id = c.event_id`
)

// Rides on delivery_pkey.
const renewSQL = `
WITH l AS MATERIALIZED (
    SELECT * FROM unnest($2::uuid[], $3::uuid[]) AS l (id, token)
), renewed AS (
    UPDATE {{schema}}.delivery d SET lease_until = $1::timestamptz
    FROM l WHERE d.id = l.id AND d.lease_token = l.token
    RETURNING d.id
)
SELECT l.id FROM l WHERE NOT EXISTS (SELECT FROM renewed r WHERE r.id = l.id)`

// Ready implements [webhook.DeliveryStore].
func (s *core) Ready(ctx context.Context, p webhook.ReadyParams) ([]webhook.ReadyLane, error) {
	var ready []webhook.ReadyLane
	err := collect(ctx, s.db, &s.sql.ready, func(r rows) error {
		var endpoint uuid.UUID
		var due [3]*time.Time
		if err := r.Scan(&endpoint, &due[webhook.LaneFirst], &due[webhook.LaneRetry], &due[webhook.LaneReplay]); err != nil {
			return err
		}
		for lane, at := range due {
			if at != nil {
				ready = append(ready, webhook.ReadyLane{EndpointID: endpoint, Lane: webhook.Lane(lane), DueAt: at.UTC()})
			}
		}
		return nil
	}, micros(p.Now), s.db.id(p.After), p.Limit)
	if err != nil {
		return nil, fmt.Errorf("postgres: listing ready endpoints: %w", err)
	}
	return ready, nil
}

// claimRequests are the requests of one direction, as columns.
type claimRequests struct {
	endpoints []uuid.UUID
	lanes     []int16
	wanted    []int64
	since     []time.Time
}

func (r *claimRequests) args(e encoder) []any {
	return []any{e.uuids(r.endpoints), e.int16s(r.lanes), e.int64s(r.wanted), e.times(r.since)}
}

// Claim implements [webhook.DeliveryStore].
func (s *core) Claim(ctx context.Context, p webhook.ClaimParams) ([]webhook.Claimed, error) {
	var direction [2]claimRequests
	total, most := 0, 0
	for _, r := range p.Requests {
		if r.Limit <= 0 {
			continue
		}
		d := &direction[0]
		if r.Newest {
			d = &direction[1]
		}
		d.endpoints = append(d.endpoints, r.EndpointID)
		d.lanes = append(d.lanes, int16(r.Lane))
		d.wanted = append(d.wanted, int64(r.Limit))
		d.since = append(d.since, micros(r.Since))
		total += r.Limit
		most = max(most, r.Limit)
	}
	if total == 0 {
		return nil, nil
	}

	claimed := make([]webhook.Claimed, 0, min(total, 1024))
	q := &s.sql.claimOldest
	args := append([]any{micros(p.Now), s.db.id(p.Token), micros(p.LeaseUntil), int64(most)}, direction[0].args(s.db)...)
	if len(direction[1].endpoints) > 0 {
		q, args = &s.sql.claim, append(args, direction[1].args(s.db)...)
	}
	err := collect(ctx, s.db, q, func(r rows) error {
		claimed = append(claimed, webhook.Claimed{})
		return scanClaimed(r, &claimed[len(claimed)-1])
	}, args...)
	if err != nil {
		return nil, fmt.Errorf("postgres: claiming deliveries: %w", err)
	}
	return claimed, nil
}

func scanClaimed(r rows, c *webhook.Claimed) error {
	e := &c.Event
	var key *string
	if err := r.Scan(&c.DeliveryID, &c.EndpointID, &c.Run, &c.Lane, &c.Attempts, &c.CreatedAt, &c.DueAt,
		&c.TakenOver, &c.Newest, &c.EndpointRevision, &key, &c.OrderingSkipped,
		&e.ID, &e.Sequence, &e.Tenant, &e.Type, &e.ResourceID, &e.ResourceVersion, &e.ContentType,
		&e.Payload, &e.CreatedAt, &e.TraceParent, &e.PayloadRef); err != nil {
		return err
	}
	if key != nil {
		c.Order = &webhook.OrderKey{EndpointID: c.EndpointID, Key: *key}
	}
	c.CreatedAt, c.DueAt, e.CreatedAt = c.CreatedAt.UTC(), c.DueAt.UTC(), e.CreatedAt.UTC()
	return nil
}

// Renew implements [webhook.DeliveryStore].
func (s *core) Renew(ctx context.Context, p webhook.RenewParams) ([]uuid.UUID, error) {
	if len(p.Leases) == 0 {
		return nil, nil
	}
	ids, tokens := columnsOf(p.Leases)
	lost, err := s.collectIDs(ctx, s.db, &s.sql.renew, micros(p.LeaseUntil), s.db.uuids(ids), s.db.uuids(tokens))
	if err != nil {
		return nil, fmt.Errorf("postgres: renewing %d leases: %w", len(ids), err)
	}
	return lost, nil
}

func (s *core) collectIDs(ctx context.Context, c conn, q *statement, args ...any) (ids []uuid.UUID, err error) {
	err = collect(ctx, c, q, func(r rows) error {
		var id uuid.UUID
		if err := r.Scan(&id); err != nil {
			return err
		}
		ids = append(ids, id)
		return nil
	}, args...)
	return ids, err
}

func compareIDs(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }

// columnsOf returns leases as the arrays that statements take, in the order in which all
// statements lock deliveries: two that touch the same ones at once then wait for one
// another, but never in a circle.
func columnsOf(leases []webhook.Lease) (ids, tokens []uuid.UUID) {
	leases = slices.SortedFunc(slices.Values(leases), func(a, b webhook.Lease) int {
		return compareIDs(a.DeliveryID, b.DeliveryID)
	})
	ids, tokens = make([]uuid.UUID, len(leases)), make([]uuid.UUID, len(leases))
	for i, l := range leases {
		ids[i], tokens[i] = l.DeliveryID, l.Token
	}
	return ids, tokens
}
