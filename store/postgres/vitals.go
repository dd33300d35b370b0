package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// Rides on endpoint_vitals_pkey.
const loadVitalsSQL = `
SELECT endpoint_id, version, level, data FROM {{schema}}.endpoint_vitals WHERE endpoint_id = ANY ($1::uuid[])`

// In the order of the ids, so that two dispatchers that save the same endpoints wait
// for one another and do not deadlock. A row that another one changes meanwhile is
// waited for and looked at as it is then. Rides on endpoint_vitals_pkey.
const saveVitalsSQL = `
INSERT INTO {{schema}}.endpoint_vitals AS v (endpoint_id, version, level, data)
SELECT id, version + 1, level, data
FROM unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::bytea[]) AS r (id, version, level, data) ORDER BY id
ON CONFLICT (endpoint_id) DO UPDATE SET version = excluded.version, level = excluded.level, data = excluded.data
WHERE v.version = excluded.version - 1
RETURNING endpoint_id`

// Looks at a page of vitals. Rides on endpoint_vitals_pkey, in order, and on endpoint_pkey.
const removeVitalsSQL = `
WITH page AS MATERIALIZED (
    SELECT endpoint_id FROM {{schema}}.endpoint_vitals WHERE endpoint_id > $1::uuid ORDER BY endpoint_id LIMIT $3::integer
), gone AS (
    DELETE FROM {{schema}}.endpoint_vitals WHERE endpoint_id = ANY (ARRAY(
        SELECT endpoint_id FROM page
        WHERE (SELECT true FROM {{schema}}.endpoint e WHERE e.id = page.endpoint_id AND e.deleted_at < $2::timestamptz LIMIT 1)
    ))
)
SELECT endpoint_id FROM page ORDER BY endpoint_id`

// removeVitals removes the vitals of endpoints that were deleted before a time.
func (s *core) removeVitals(ctx context.Context, before time.Time) error {
	if before.IsZero() {
		return nil
	}
	var after uuid.UUID
	err := s.inBatches(ctx, func() (more bool, err error) {
		page, err := s.collectIDs(ctx, s.db, &s.sql.removeVitals, s.db.id(after), micros(before), removedAtOnce)
		if len(page) > 0 {
			after = page[len(page)-1]
		}
		return len(page) == removedAtOnce, err
	})
	if err != nil {
		return fmt.Errorf("postgres: removing vitals of deleted endpoints: %w", err)
	}
	return nil
}

// Rides on endpoint_vitals_unwell_idx and endpoint_pkey.
const listUnwellSQL = `
SELECT v.endpoint_id FROM {{schema}}.endpoint_vitals v
WHERE v.level > 0 AND v.level >= $1::smallint AND v.endpoint_id > $2::uuid
  AND EXISTS (SELECT FROM {{schema}}.endpoint e WHERE e.id = v.endpoint_id AND e.deleted_at IS NULL)
ORDER BY v.endpoint_id LIMIT $3::integer`

// Rides on endpoint_tenant_idx and endpoint_vitals_pkey.
const listTenantUnwellSQL = `
SELECT e.id FROM {{schema}}.endpoint e
WHERE e.tenant = $4::text AND e.id > $2::uuid AND e.deleted_at IS NULL
  AND EXISTS (SELECT FROM {{schema}}.endpoint_vitals v
              WHERE v.endpoint_id = e.id AND v.level > 0 AND v.level >= $1::smallint)
ORDER BY e.id LIMIT $3::integer`

// Of each lane the first delivery that is due and not leased: those that are leased
// stand before it, and are no more than may be in flight. Counting stops at the bound.
// Rides on endpoint_health_pkey, endpoint_vitals_pkey and delivery_claim_idx.
const readHealthSQL = `
SELECT r.id, coalesce((SELECT h.state FROM {{schema}}.endpoint_health h WHERE h.endpoint_id = r.id), ''),
       coalesce((SELECT v.data FROM {{schema}}.endpoint_vitals v WHERE v.endpoint_id = r.id), ''), d.oldest, p.pending
FROM unnest($2::uuid[]) AS r (id)
CROSS JOIN LATERAL (
    SELECT min(first.next_attempt_at) AS oldest
    FROM generate_series(0, 2) AS lane
    CROSS JOIN LATERAL (
        SELECT next_attempt_at FROM {{schema}}.delivery
        WHERE endpoint_id = r.id AND delivery.lane = lane.lane AND next_attempt_at <= $1::timestamptz AND lease_until <= $1::timestamptz
        ORDER BY next_attempt_at LIMIT 1
    ) first
) d
CROSS JOIN LATERAL (
    SELECT count(*) AS pending
    FROM (SELECT FROM {{schema}}.delivery WHERE endpoint_id = r.id LIMIT $3::integer) counted
) p`

// All endpoints of a tenant, or all there are: a few thousand, or some ten thousands.
// Rides on endpoint_tenant_idx for a tenant, and on endpoint_vitals_unwell_idx.
const (
	countEndpointsSQL = `
SELECT count(*) FILTER (WHERE e.state = 'active'),
       count(*) FILTER (WHERE e.state = 'paused'),
       count(*) FILTER (WHERE e.state = 'disabled'),
       count(*) FILTER (WHERE e.state = 'active' AND v.level >= 2),
       count(*) FILTER (WHERE e.state = 'active' AND v.level = 1)
FROM {{schema}}.endpoint e
LEFT JOIN {{schema}}.endpoint_vitals v ON v.endpoint_id = e.id AND v.level > 0
WHERE e.deleted_at IS NULL`

	countTenantEndpointsSQL = countEndpointsSQL + ` AND e.tenant = $1::text`
)

// Rides on activity_pkey.
const saveActivitySQL = `
INSERT INTO {{schema}}.activity (at, dispatcher, data)
SELECT at, dispatcher, data FROM unnest($1::timestamptz[], $2::uuid[], $3::bytea[]) AS r (at, dispatcher, data)
ORDER BY at, dispatcher
ON CONFLICT (at, dispatcher) DO UPDATE SET data = excluded.data`

// Rides on activity_pkey.
const listActivitySQL = `
SELECT at, dispatcher, data FROM {{schema}}.activity
WHERE at >= $1::timestamptz AND at < $2::timestamptz ORDER BY at, dispatcher`

// Rides on activity_pkey.
const removeActivitySQL = `DELETE FROM {{schema}}.activity WHERE at < $1::timestamptz`

// LoadVitals implements [webhook.VitalsStore].
func (s *core) LoadVitals(ctx context.Context, endpoints []uuid.UUID) ([]webhook.VitalsRecord, error) {
	if len(endpoints) == 0 {
		return nil, nil
	}
	var loaded []webhook.VitalsRecord
	err := collect(ctx, s.db, &s.sql.loadVitals, func(r rows) error {
		var v webhook.VitalsRecord
		err := r.Scan(&v.EndpointID, &v.Version, &v.Level, &v.Data)
		loaded = append(loaded, v)
		return err
	}, s.db.uuids(endpoints))
	if err != nil {
		return nil, fmt.Errorf("postgres: loading the vitals of %d endpoints: %w", len(endpoints), err)
	}
	return loaded, nil
}

// SaveVitals implements [webhook.VitalsStore].
func (s *core) SaveVitals(ctx context.Context, p webhook.SaveVitalsParams) (stale []uuid.UUID, err error) {
	if len(p.Vitals) == 0 {
		return nil, nil
	}
	ids := make([]uuid.UUID, len(p.Vitals))
	versions := make([]int64, len(p.Vitals))
	levels := make([]int16, len(p.Vitals))
	data := make([][]byte, len(p.Vitals))
	for i := range p.Vitals {
		v := &p.Vitals[i]
		ids[i], versions[i], levels[i], data[i] = v.EndpointID, v.Version, int16(v.Level), blob(v.Data)
	}
	err = s.db.atomically(ctx, func(tx conn) error {
		saved, err := s.collectIDs(ctx, tx, &s.sql.saveVitals, s.db.uuids(ids), s.db.int64s(versions), s.db.int16s(levels), s.db.bytes(data))
		if err != nil {
			return err
		}
		isSaved := make(map[uuid.UUID]bool, len(saved))
		for _, id := range saved {
			isSaved[id] = true
		}
		stale = slices.DeleteFunc(slices.Clone(ids), func(id uuid.UUID) bool { return isSaved[id] })
		notices := slices.DeleteFunc(slices.Clone(p.Notices), func(n webhook.NoticeRecord) bool { return !isSaved[n.EndpointID] })
		_, err = s.addNotices(ctx, tx, notices)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: saving the vitals of %d endpoints: %w", len(ids), err)
	}
	return stale, nil
}

// ListUnwell implements [webhook.VitalsStore].
func (s *core) ListUnwell(ctx context.Context, p webhook.ListUnwellParams) ([]uuid.UUID, error) {
	if p.Limit <= 0 {
		return nil, nil
	}
	q, args := &s.sql.listUnwell, []any{int16(p.Level), s.db.id(p.After), p.Limit}
	if tenant, limited := p.Scope.Tenant(); limited {
		q, args = &s.sql.listTenantUnwell, append(args, tenant)
	}
	ids, err := s.collectIDs(ctx, s.db, q, args...)
	if err != nil {
		return nil, fmt.Errorf("postgres: listing endpoints with trouble: %w", err)
	}
	return ids, nil
}

// ReadHealth implements [webhook.HealthStore].
func (s *core) ReadHealth(ctx context.Context, p webhook.ReadHealthParams) ([]webhook.HealthRow, error) {
	if len(p.Endpoints) == 0 {
		return nil, nil
	}
	found := make([]webhook.HealthRow, 0, len(p.Endpoints))
	err := collect(ctx, s.db, &s.sql.readHealth, func(r rows) error {
		var h webhook.HealthRow
		var oldest *time.Time
		if err := r.Scan(&h.EndpointID, &h.Circuit, &h.Vitals, &oldest, &h.Pending); err != nil {
			return err
		}
		if oldest != nil {
			h.OldestDueAt = oldest.UTC()
		}
		found = append(found, h)
		return nil
	}, micros(p.Now), s.db.uuids(p.Endpoints), max(p.CountUpTo, 0))
	if err != nil {
		return nil, fmt.Errorf("postgres: reading the health of %d endpoints: %w", len(p.Endpoints), err)
	}
	return found, nil
}

// CountEndpoints implements [webhook.HealthStore].
func (s *core) CountEndpoints(ctx context.Context, scope webhook.Scope) (n webhook.EndpointCounts, err error) {
	q, args := &s.sql.countEndpoints, []any(nil)
	if tenant, limited := scope.Tenant(); limited {
		q, args = &s.sql.countTenantEndpoints, []any{tenant}
	}
	err = collect(ctx, s.db, q, func(r rows) error {
		return r.Scan(&n.Active, &n.Paused, &n.Disabled, &n.Failing, &n.Unsteady)
	}, args...)
	if err != nil {
		return webhook.EndpointCounts{}, fmt.Errorf("postgres: counting endpoints: %w", err)
	}
	return n, nil
}

// SaveActivity implements [webhook.HealthStore].
func (s *core) SaveActivity(ctx context.Context, activity []webhook.ActivityRecord) error {
	if len(activity) == 0 {
		return nil
	}
	at := make([]time.Time, len(activity))
	ids := make([]uuid.UUID, len(activity))
	data := make([][]byte, len(activity))
	for i, a := range activity {
		at[i], ids[i], data[i] = micros(a.At), a.Dispatcher, blob(a.Data)
	}
	if _, err := s.db.exec(ctx, &s.sql.saveActivity, s.db.times(at), s.db.uuids(ids), s.db.bytes(data)); err != nil {
		return fmt.Errorf("postgres: saving what dispatchers did: %w", err)
	}
	return nil
}

// ListActivity implements [webhook.HealthStore].
func (s *core) ListActivity(ctx context.Context, from, until time.Time) ([]webhook.ActivityRecord, error) {
	var found []webhook.ActivityRecord
	err := collect(ctx, s.db, &s.sql.listActivity, func(r rows) error {
		var a webhook.ActivityRecord
		err := r.Scan(&a.At, &a.Dispatcher, &a.Data)
		a.At = a.At.UTC()
		found = append(found, a)
		return err
	}, micros(from), micros(until))
	if err != nil {
		return nil, fmt.Errorf("postgres: listing what dispatchers did: %w", err)
	}
	return found, nil
}

// Rides on notice_streak_idx.
const insertNoticesSQL = `
INSERT INTO {{schema}}.notice (id, endpoint_id, streak, created_at, due_at, attempts, kind, tenant, detail)
SELECT id, endpoint_id, streak, created_at, nullif(due_at, '0001-01-01 00:00:00+00'::timestamptz), attempts, kind, tenant, detail
FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[], $6::bigint[], $7::text[], $8::text[], $9::bytea[])
    WITH ORDINALITY AS r (id, endpoint_id, streak, created_at, due_at, attempts, kind, tenant, detail, ord)
ORDER BY ord
ON CONFLICT (endpoint_id, kind, streak) DO NOTHING
RETURNING id`

const noticeColumns = `id, endpoint_id, streak, created_at, due_at, attempts, kind, tenant, detail`

// Rides on notice_due_idx.
const dueNoticesSQL = `
SELECT ` + noticeColumns + ` FROM {{schema}}.notice
WHERE due_at IS NOT NULL AND due_at <= $1::timestamptz ORDER BY due_at LIMIT $2::integer`

// Rides on notice_pkey.
const settleNoticesSQL = `
UPDATE {{schema}}.notice n
SET due_at = nullif(r.due_at, '0001-01-01 00:00:00+00'::timestamptz), attempts = r.attempts
FROM unnest($1::uuid[], $2::timestamptz[], $3::bigint[]) AS r (id, due_at, attempts)
WHERE n.id = r.id`

// Ride on notice_pkey, notice_tenant_idx and notice_endpoint_idx.
const (
	selectNoticesSQL = `
SELECT ` + noticeColumns + ` FROM {{schema}}.notice
WHERE id < $1::uuid`
	noticeOrder = `
ORDER BY id DESC LIMIT $2::integer`

	listNoticesSQL         = selectNoticesSQL + noticeOrder
	listTenantNoticesSQL   = selectNoticesSQL + ` AND tenant = $3::text` + noticeOrder
	listEndpointNoticesSQL = selectNoticesSQL + ` AND endpoint_id = $3::uuid AND ($4::boolean OR tenant = $5::text)` + noticeOrder
)

// Rides on notice_created_idx.
const removeNoticesSQL = `
DELETE FROM {{schema}}.notice
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {{schema}}.notice WHERE created_at < $1::timestamptz ORDER BY created_at LIMIT $2::integer
))`

// AddNotices implements [webhook.NoticeStore].
func (s *core) AddNotices(ctx context.Context, notices []webhook.NoticeRecord) (added []uuid.UUID, err error) {
	err = s.db.atomically(ctx, func(tx conn) error {
		added, err = s.addNotices(ctx, tx, slices.Clone(notices))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: adding %d notices: %w", len(notices), err)
	}
	return added, nil
}

// addNotices puts the notices in the order in which everybody writes them.
func (s *core) addNotices(ctx context.Context, tx conn, notices []webhook.NoticeRecord) ([]uuid.UUID, error) {
	if len(notices) == 0 {
		return nil, nil
	}
	slices.SortFunc(notices, func(a, b webhook.NoticeRecord) int {
		return cmp.Or(compareIDs(a.EndpointID, b.EndpointID), strings.Compare(string(a.Kind), string(b.Kind)), a.Streak.Compare(b.Streak))
	})
	n := len(notices)
	ids, endpoints := make([]uuid.UUID, n), make([]uuid.UUID, n)
	streaks, created, due := make([]time.Time, n), make([]time.Time, n), make([]time.Time, n)
	attempts, kinds, tenants, details := make([]int64, n), make([]string, n), make([]string, n), make([][]byte, n)
	for i := range notices {
		r := &notices[i]
		ids[i], endpoints[i], streaks[i], created[i], due[i] = r.ID, r.EndpointID, micros(r.Streak), micros(r.CreatedAt), micros(r.DueAt)
		attempts[i], kinds[i], tenants[i], details[i] = int64(r.Attempts), text(string(r.Kind)), r.Tenant, blob(r.Detail)
	}
	e := s.db
	added, err := s.collectIDs(ctx, tx, &s.sql.insertNotices, e.uuids(ids), e.uuids(endpoints), e.times(streaks), e.times(created), e.times(due),
		e.int64s(attempts), e.texts(kinds), e.texts(tenants), e.bytes(details))
	if err != nil {
		return nil, err
	}
	var events []webhook.EventRecord
	for i := range notices {
		if notices[i].Event != nil && slices.Contains(added, notices[i].ID) {
			events = append(events, *notices[i].Event)
		}
	}
	if len(events) == 0 {
		return added, nil
	}
	_, err = s.insertEvents(ctx, tx, e, events)
	return added, err
}

// DueNotices implements [webhook.NoticeStore].
func (s *core) DueNotices(ctx context.Context, now time.Time, limit int) ([]webhook.NoticeRecord, error) {
	if limit <= 0 {
		return nil, nil
	}
	found, err := s.collectNotices(ctx, &s.sql.dueNotices, micros(now), limit)
	if err != nil {
		return nil, fmt.Errorf("postgres: looking for due notices: %w", err)
	}
	return found, nil
}

func (s *core) collectNotices(ctx context.Context, q *statement, args ...any) (found []webhook.NoticeRecord, err error) {
	err = collect(ctx, s.db, q, func(r rows) error {
		var n webhook.NoticeRecord
		var due *time.Time
		var kind string
		if err := r.Scan(&n.ID, &n.EndpointID, &n.Streak, &n.CreatedAt, &due, &n.Attempts, &kind, &n.Tenant, &n.Detail); err != nil {
			return err
		}
		n.Kind, n.Streak, n.CreatedAt = webhook.NoticeKind(kind), n.Streak.UTC(), n.CreatedAt.UTC()
		if due != nil {
			n.DueAt = due.UTC()
		}
		found = append(found, n)
		return nil
	}, args...)
	return found, err
}

// SettleNotices implements [webhook.NoticeStore].
func (s *core) SettleNotices(ctx context.Context, notices []webhook.NoticeRecord) error {
	if len(notices) == 0 {
		return nil
	}
	ids, due, attempts := make([]uuid.UUID, len(notices)), make([]time.Time, len(notices)), make([]int64, len(notices))
	for i := range notices {
		ids[i], due[i], attempts[i] = notices[i].ID, micros(notices[i].DueAt), int64(notices[i].Attempts)
	}
	if _, err := s.db.exec(ctx, &s.sql.settleNotices, s.db.uuids(ids), s.db.times(due), s.db.int64s(attempts)); err != nil {
		return fmt.Errorf("postgres: settling %d notices: %w", len(ids), err)
	}
	return nil
}

// ListNotices implements [webhook.NoticeStore].
func (s *core) ListNotices(ctx context.Context, p webhook.ListNoticesParams) ([]webhook.NoticeRecord, error) {
	if p.Limit <= 0 {
		return nil, nil
	}
	before := p.Before
	if before == uuid.Nil {
		before = uuid.Max
	}
	tenant, limited := p.Scope.Tenant()
	q, args := &s.sql.listNotices, []any{s.db.id(before), p.Limit}
	switch {
	case p.EndpointID != uuid.Nil:
		q, args = &s.sql.listEndpointNotices, append(args, s.db.id(p.EndpointID), !limited, tenant)
	case limited:
		q, args = &s.sql.listTenantNotices, append(args, tenant)
	}
	found, err := s.collectNotices(ctx, q, args...)
	if err != nil {
		return nil, fmt.Errorf("postgres: listing notices: %w", err)
	}
	return found, nil
}

// removeNotices removes what dispatchers did, and what was told, before some times.
func (s *core) removeNotices(ctx context.Context, p webhook.MaintainParams) error {
	if !p.ActivityBefore.IsZero() {
		if _, err := s.db.exec(ctx, &s.sql.removeActivity, micros(p.ActivityBefore)); err != nil {
			return fmt.Errorf("postgres: removing what dispatchers did: %w", err)
		}
	}
	for n := int64(removedAtOnce); !p.NoticesBefore.IsZero() && n == removedAtOnce; {
		var err error
		if n, err = s.db.exec(ctx, &s.sql.removeNotices, micros(p.NoticesBefore), removedAtOnce); err != nil {
			return fmt.Errorf("postgres: removing old notices: %w", err)
		}
	}
	return nil
}
