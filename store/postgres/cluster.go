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
	_ webhook.SplitStore   = (*Store)(nil)
	_ webhook.SplitStore   = (*SQLStore)(nil)
)

// The three parts see the table as it was before: the own row is added to what
// the others are. Rides on dispatcher_pkey; the table holds a row per process.
const heartbeatSQL = `
WITH beat AS (
    INSERT INTO {{schema}}.dispatcher (id, seen_at, serves) VALUES ($1::uuid, $2::timestamptz, $4::text)
    ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, serves = excluded.serves
), dead AS (
    DELETE FROM {{schema}}.dispatcher WHERE seen_at < $3::timestamptz AND id <> $1::uuid
)
SELECT id, serves FROM {{schema}}.dispatcher WHERE seen_at >= $3::timestamptz AND id <> $1::uuid
UNION ALL SELECT $1::uuid, $4::text
ORDER BY 1`

// Rides on dispatcher_pkey.
const leaveSQL = `DELETE FROM {{schema}}.dispatcher WHERE id = $1::uuid`

// In the order of the ids, so that two dispatchers that save the same endpoints
// wait for one another and do not deadlock. Rides on endpoint_health_pkey.
const saveHealthSQL = `
INSERT INTO {{schema}}.endpoint_health AS h (endpoint_id, updated_at, state, shed_until, open_until)
SELECT id, updated_at, state, nullif(shed_until, '0001-01-01 00:00:00Z'), nullif(open_until, '0001-01-01 00:00:00Z')
FROM unnest($1::uuid[], $2::timestamptz[], $3::bytea[], $4::timestamptz[], $5::timestamptz[])
    AS r (id, updated_at, state, shed_until, open_until) ORDER BY id
ON CONFLICT (endpoint_id) DO UPDATE
SET updated_at = excluded.updated_at, state = excluded.state, shed_until = excluded.shed_until,
    open_until = excluded.open_until, probe_until = '-infinity'
WHERE h.updated_at <= excluded.updated_at`

// Leased deliveries stand at the front of their lane, where claims find them, so
// they are among the first rows of it; looking at no more than 1,000 keeps an
// endpoint with millions from being counted. Rides on endpoint_health_pkey and
// delivery_claim_idx.
const loadHealthSQL = `
SELECT r.id, CASE WHEN h.updated_at > '-infinity' THEN h.updated_at END, coalesce(h.state, ''), h.shed_until, h.open_until, l.leased
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

// Rides on endpoint_health_open_idx, which holds those with an open circuit.
const listOpenedSQL = `SELECT endpoint_id FROM {{schema}}.endpoint_health WHERE open_until > $1::timestamptz`

// Rides on host_split_pkey.
const saveSplitSQL = `
INSERT INTO {{schema}}.host_split AS s (host, until, not_before)
VALUES ($1::text, coalesce($2::timestamptz, '-infinity'), coalesce($3::timestamptz, '-infinity'))
ON CONFLICT (host) DO UPDATE SET until = excluded.until, not_before = excluded.not_before
WHERE (s.not_before, s.until) <= (excluded.not_before, excluded.until)`

// The table holds the few hosts that are hot, or were.
const listSplitsSQL = `
SELECT host, CASE WHEN until > '-infinity' THEN until END, CASE WHEN not_before > '-infinity' THEN not_before END
FROM {{schema}}.host_split WHERE until > $1::timestamptz OR not_before > $1::timestamptz ORDER BY host`

// Heartbeat implements [webhook.ClusterStore].
func (s *core) Heartbeat(ctx context.Context, p webhook.HeartbeatParams) ([]webhook.Member, error) {
	var alive []webhook.Member
	err := collect(ctx, s.db, &s.sql.heartbeat, func(r rows) error {
		var m webhook.Member
		err := r.Scan(&m.ID, &m.Serves)
		alive = append(alive, m)
		return err
	}, s.db.id(p.Dispatcher), micros(p.Now), micros(p.DeadBefore), p.Serves)
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
	shed, open := make([]time.Time, len(health)), make([]time.Time, len(health))
	for i, h := range health {
		ids[i], updated[i], states[i] = h.EndpointID, micros(h.UpdatedAt), blob(h.State)
		shed[i], open[i] = micros(h.ShedUntil), micros(h.OpenUntil)
	}
	_, err := s.db.exec(ctx, &s.sql.saveHealth, s.db.uuids(ids), s.db.times(updated), s.db.bytes(states), s.db.times(shed), s.db.times(open))
	if err != nil {
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
		var updated, shed, open *time.Time
		if err := r.Scan(&h.EndpointID, &updated, &h.State, &shed, &open, &h.Leased); err != nil {
			return err
		}
		if shed != nil {
			h.ShedUntil = shed.UTC()
		}
		if open != nil {
			h.OpenUntil = open.UTC()
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

// ListOpened implements [webhook.ClusterStore].
func (s *core) ListOpened(ctx context.Context, now time.Time) ([]uuid.UUID, error) {
	opened, err := s.collectIDs(ctx, s.db, &s.sql.listOpened, micros(now))
	if err != nil {
		return nil, fmt.Errorf("postgres: listing open circuits: %w", err)
	}
	return opened, nil
}

// SaveSplit implements [webhook.SplitStore].
func (s *core) SaveSplit(ctx context.Context, split webhook.HostSplit) error {
	_, err := s.db.exec(ctx, &s.sql.saveSplit, split.Host, timestamp(split.Until), timestamp(split.NotBefore))
	if err != nil {
		return fmt.Errorf("postgres: saving how a host is split: %w", err)
	}
	return nil
}

// ListSplits implements [webhook.SplitStore].
func (s *core) ListSplits(ctx context.Context, now time.Time) ([]webhook.HostSplit, error) {
	var splits []webhook.HostSplit
	err := collect(ctx, s.db, &s.sql.listSplits, func(r rows) error {
		var split webhook.HostSplit
		var until, notBefore *time.Time
		if err := r.Scan(&split.Host, &until, &notBefore); err != nil {
			return err
		}
		if until != nil {
			split.Until = until.UTC()
		}
		if notBefore != nil {
			split.NotBefore = notBefore.UTC()
		}
		splits = append(splits, split)
		return nil
	}, micros(now))
	if err != nil {
		return nil, fmt.Errorf("postgres: listing split hosts: %w", err)
	}
	return splits, nil
}
