package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

var (
	_ webhook.ClusterStore = (*Store)(nil)
	_ webhook.ClusterStore = (*SQLStore)(nil)
)

// The three parts see the table as it was before: the own row is added to what
// the others are. Rides on dispatcher_pkey; the table holds a row per process.
const heartbeatSQL = `
WITH beat AS (
    INSERT INTO {{schema}}.dispatcher (id, seen_at) VALUES ($1::uuid, $2::timestamptz)
    ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at
), dead AS (
    DELETE FROM {{schema}}.dispatcher WHERE seen_at < $3::timestamptz AND id <> $1::uuid
)
SELECT id FROM {{schema}}.dispatcher WHERE seen_at >= $3::timestamptz AND id <> $1::uuid
UNION ALL SELECT $1::uuid
ORDER BY 1`

// Rides on dispatcher_pkey.
const leaveSQL = `DELETE FROM {{schema}}.dispatcher WHERE id = $1::uuid`

// In the order of the ids, so that two dispatchers that save the same endpoints
// wait for one another and do not deadlock. Rides on endpoint_health_pkey.
const saveHealthSQL = `
INSERT INTO {{schema}}.endpoint_health AS h (endpoint_id, updated_at, state, shed_until)
SELECT id, updated_at, state, nullif(shed_until, '0001-01-01 00:00:00Z')
FROM unnest($1::uuid[], $2::timestamptz[], $3::bytea[], $4::timestamptz[]) AS r (id, updated_at, state, shed_until) ORDER BY id
ON CONFLICT (endpoint_id) DO UPDATE
SET updated_at = excluded.updated_at, state = excluded.state, shed_until = excluded.shed_until, probe_until = '-infinity'
WHERE h.updated_at <= excluded.updated_at`

// Leased deliveries stand at the front of their lane, where claims find them, so
// they are among the first rows of it; looking at no more than 1,000 keeps an
// endpoint with millions from being counted. Rides on endpoint_health_pkey and
// delivery_claim_idx.
const loadHealthSQL = `
SELECT r.id, CASE WHEN h.updated_at > '-infinity' THEN h.updated_at END, coalesce(h.state, ''), h.shed_until, l.leased
FROM unnest($2::uuid[]) AS r (id)
LEFT JOIN {{schema}}.endpoint_health h ON h.endpoint_id = r.id
CROSS JOIN LATERAL (
    SELECT count(*) AS leased
    FROM generate_series(0, 2) AS lane
    CROSS JOIN LATERAL (
        SELECT lease_until FROM {{schema}}.delivery
        WHERE endpoint_id = r.id AND delivery.lane = lane.lane
        ORDER BY next_attempt_at LIMIT 1000
    ) d
    WHERE d.lease_until > $1::timestamptz
) l`

// In the order of the ids, as saveHealthSQL. A conflicting row that another
// process changes meanwhile is waited for and looked at as it is then. Rides on
// endpoint_health_pkey.
const takeProbesSQL = `
INSERT INTO {{schema}}.endpoint_health AS h (endpoint_id, probe_until)
SELECT id, $2::timestamptz FROM unnest($3::uuid[]) AS r (id) ORDER BY id
ON CONFLICT (endpoint_id) DO UPDATE SET probe_until = excluded.probe_until
WHERE h.probe_until <= $1::timestamptz
RETURNING endpoint_id`

// Rides on endpoint_health_pkey.
const readProbesSQL = `
SELECT endpoint_id, probe_until FROM {{schema}}.endpoint_health
WHERE endpoint_id = ANY ($1::uuid[]) AND probe_until > '-infinity'`

// Heartbeat implements [webhook.ClusterStore].
func (s *core) Heartbeat(ctx context.Context, p webhook.HeartbeatParams) ([]uuid.UUID, error) {
	alive, err := s.collectIDs(ctx, s.db, &s.sql.heartbeat, s.db.id(p.Dispatcher), micros(p.Now), micros(p.DeadBefore))
	if err != nil {
		return nil, fmt.Errorf("postgres: sending a heartbeat: %w", err)
	}
	return alive, nil
}

// Leave implements [webhook.ClusterStore].
func (s *core) Leave(ctx context.Context, dispatcher uuid.UUID) error {
	if _, err := s.db.exec(ctx, &s.sql.leave, s.db.id(dispatcher)); err != nil {
		return fmt.Errorf("postgres: signing a dispatcher off: %w", err)
	}
	return nil
}

// SaveHealth implements [webhook.ClusterStore].
func (s *core) SaveHealth(ctx context.Context, health []webhook.HealthRecord) error {
	if len(health) == 0 {
		return nil
	}
	ids := make([]uuid.UUID, len(health))
	updated := make([]time.Time, len(health))
	states := make([][]byte, len(health))
	shed := make([]time.Time, len(health))
	for i, h := range health {
		ids[i], updated[i], states[i], shed[i] = h.EndpointID, micros(h.UpdatedAt), blob(h.State), micros(h.ShedUntil)
	}
	if _, err := s.db.exec(ctx, &s.sql.saveHealth, s.db.uuids(ids), s.db.times(updated), s.db.bytes(states), s.db.times(shed)); err != nil {
		return fmt.Errorf("postgres: saving the health of %d endpoints: %w", len(ids), err)
	}
	return nil
}

// LoadHealth implements [webhook.ClusterStore].
func (s *core) LoadHealth(ctx context.Context, p webhook.LoadHealthParams) ([]webhook.HealthRecord, error) {
	if len(p.Endpoints) == 0 {
		return nil, nil
	}
	loaded := make([]webhook.HealthRecord, 0, len(p.Endpoints))
	err := collect(ctx, s.db, &s.sql.loadHealth, func(r rows) error {
		var h webhook.HealthRecord
		var updated, shed *time.Time
		if err := r.Scan(&h.EndpointID, &updated, &h.State, &shed, &h.Leased); err != nil {
			return err
		}
		if shed != nil {
			h.ShedUntil = shed.UTC()
		}
		if updated != nil {
			h.UpdatedAt = updated.UTC()
		}
		loaded = append(loaded, h)
		return nil
	}, micros(p.Now), s.db.uuids(p.Endpoints))
	if err != nil {
		return nil, fmt.Errorf("postgres: loading the health of %d endpoints: %w", len(p.Endpoints), err)
	}
	return loaded, nil
}

// TakeProbes implements [webhook.ClusterStore]. Who did not get a probe is read
// in a statement of its own, which sees what the first one waited for.
func (s *core) TakeProbes(ctx context.Context, p webhook.TakeProbesParams) (map[uuid.UUID]time.Time, error) {
	if len(p.Endpoints) == 0 {
		return nil, nil
	}
	taken, err := s.collectIDs(ctx, s.db, &s.sql.takeProbes, micros(p.Now), micros(p.Until), s.db.uuids(p.Endpoints))
	if err != nil {
		return nil, fmt.Errorf("postgres: taking %d probes: %w", len(p.Endpoints), err)
	}
	missed := slices.DeleteFunc(slices.Clone(p.Endpoints), func(id uuid.UUID) bool { return slices.Contains(taken, id) })
	held := make(map[uuid.UUID]time.Time, len(missed))
	if len(missed) == 0 {
		return held, nil
	}
	for _, id := range missed {
		held[id] = p.Now // given back between the two statements: free again at once
	}
	err = collect(ctx, s.db, &s.sql.readProbes, func(r rows) error {
		var id uuid.UUID
		var until time.Time
		if err := r.Scan(&id, &until); err != nil {
			return err
		}
		held[id] = until.UTC()
		return nil
	}, s.db.uuids(missed))
	if err != nil {
		return nil, fmt.Errorf("postgres: reading who holds %d probes: %w", len(missed), err)
	}
	return held, nil
}
