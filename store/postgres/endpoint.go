package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// Types travel as JSON, which every driver can send and scan; NULLs are replaced,
// so that a row scans into plain values.
const (
	endpointColumns = `
       e.id, e.tenant, e.url, array_to_json(e.types)::text, e.state, e.state_reason, e.state_changed_at,
       e.revision, e.created_at, e.updated_at, e.deleted_at, e.options, e.secrets, e.headers, e.ordering`

	typesParameter = `ARRAY(SELECT json_array_elements_text($4::text::json))`
)

// Rides on endpoint_revision_pkey and endpoint_pkey.
const createEndpointSQL = `
WITH r AS (
    UPDATE {{schema}}.endpoint_revision SET revision = revision + 1 WHERE one RETURNING revision
)
INSERT INTO {{schema}}.endpoint AS e
    (id, tenant, url, types, state, state_reason, state_changed_at, created_at, updated_at, deleted_at,
     options, secrets, headers, ordering, revision)
SELECT $1::uuid, $2::text, $3::text, ` + typesParameter + `, $5::text, $6::text,
       $7::timestamptz, coalesce($8::timestamptz, statement_timestamp()),
       coalesce($9::timestamptz, statement_timestamp()), $10::timestamptz, $11::bytea, $12::bytea, $13::bytea, $14::text, r.revision
FROM r
ON CONFLICT DO NOTHING
RETURNING` + endpointColumns

// Locks the endpoint before the counter: every writer takes the two in this
// order. Rides on endpoint_pkey and endpoint_revision_pkey.
const updateEndpointSQL = `
WITH old AS MATERIALIZED (
    SELECT id FROM {{schema}}.endpoint
    WHERE id = $1::uuid AND tenant = $2::text AND revision = $15::bigint AND deleted_at IS NULL
    FOR UPDATE
), r AS (
    UPDATE {{schema}}.endpoint_revision SET revision = revision + 1
    WHERE one AND EXISTS (SELECT FROM old)
    RETURNING revision
)
UPDATE {{schema}}.endpoint e
SET url = $3::text, types = ` + typesParameter + `, state = $5::text, state_reason = $6::text,
    state_changed_at = $7::timestamptz,
    created_at = coalesce($8::timestamptz, e.created_at),
    updated_at = coalesce($9::timestamptz, statement_timestamp()),
    deleted_at = $10::timestamptz, options = $11::bytea, secrets = $12::bytea, headers = $13::bytea,
    ordering = $14::text, revision = r.revision
FROM r
WHERE e.id = $1::uuid
RETURNING` + endpointColumns

// Rides on endpoint_pkey.
const findEndpointSQL = `
SELECT count(*) FROM {{schema}}.endpoint
WHERE id = $1::uuid AND tenant = $2::text AND deleted_at IS NULL`

// Rides on endpoint_pkey.
const getEndpointSQL = `
SELECT` + endpointColumns + `
FROM {{schema}}.endpoint e
WHERE e.id = $1::uuid AND e.deleted_at IS NULL AND ($2::boolean OR e.tenant = $3::text)`

// Rides on endpoint_pkey, in order.
const listEndpointsSQL = `
SELECT` + endpointColumns + `
FROM {{schema}}.endpoint e
WHERE e.id > $1::uuid AND e.deleted_at IS NULL
ORDER BY e.id
LIMIT $2::integer`

// Rides on endpoint_tenant_idx, in order.
const listTenantEndpointsSQL = `
SELECT` + endpointColumns + `
FROM {{schema}}.endpoint e
WHERE e.tenant = $3::text AND e.id > $1::uuid AND e.deleted_at IS NULL
ORDER BY e.id
LIMIT $2::integer`

// The counter and what follows it, in one snapshot. Rides on endpoint_revision_idx,
// in order, and does not touch it when nothing changed. The limit tells the planner
// that there is one counter: it would expect thousands, and compile the statement.
const changedEndpointsSQL = `
SELECT r.revision, e.id IS NOT NULL,
       coalesce(e.id, '00000000-0000-0000-0000-000000000000'::uuid), coalesce(e.tenant, ''), coalesce(e.url, ''),
       coalesce(array_to_json(e.types)::text, '[]'), coalesce(e.state, ''), coalesce(e.state_reason, ''),
       e.state_changed_at, coalesce(e.revision, 0),
       coalesce(e.created_at, statement_timestamp()), coalesce(e.updated_at, statement_timestamp()),
       e.deleted_at, e.options, e.secrets, e.headers, coalesce(e.ordering, '')
FROM (SELECT revision FROM {{schema}}.endpoint_revision LIMIT 1) r
LEFT JOIN LATERAL (
    SELECT * FROM {{schema}}.endpoint
    WHERE revision > $1::bigint AND r.revision > $1::bigint
    ORDER BY revision
    LIMIT $2::integer
) e ON true
ORDER BY e.revision`

// endpointRow scans endpointColumns.
type endpointRow struct {
	webhook.EndpointRecord
	types                     string
	stateChangedAt, deletedAt *time.Time
}

func (e *endpointRow) into() []any {
	return []any{
		&e.ID, &e.Tenant, &e.URL, &e.types, &e.State, &e.StateReason, &e.stateChangedAt,
		&e.Revision, &e.CreatedAt, &e.UpdatedAt, &e.deletedAt, &e.Options, &e.Secrets, &e.Headers, &e.Ordering,
	}
}

func (e *endpointRow) record() (webhook.EndpointRecord, error) {
	if err := json.Unmarshal([]byte(e.types), &e.Types); err != nil {
		return webhook.EndpointRecord{}, fmt.Errorf("reading the types of endpoint %s: %w", e.ID, err)
	}
	e.CreatedAt, e.UpdatedAt = e.CreatedAt.UTC(), e.UpdatedAt.UTC()
	if e.stateChangedAt != nil {
		e.StateChangedAt = e.stateChangedAt.UTC()
	}
	if e.deletedAt != nil {
		e.DeletedAt = e.deletedAt.UTC()
	}
	return e.EndpointRecord, nil
}

func (s *core) collectEndpoints(ctx context.Context, c conn, q *statement, args ...any) (all []webhook.EndpointRecord, err error) {
	err = collect(ctx, c, q, func(r rows) error {
		var row endpointRow
		if err := r.Scan(row.into()...); err != nil {
			return err
		}
		record, err := row.record()
		all = append(all, record)
		return err
	}, args...)
	return all, err
}

func (s *core) endpointArgs(e webhook.EndpointRecord) ([]any, error) {
	for _, field := range [...]struct{ name, value string }{
		{"Tenant", e.Tenant}, {"URL", e.URL}, {"StateReason", e.StateReason},
	} {
		if !storable(field.value) {
			return nil, &webhook.InvalidError{Field: "EndpointRecord." + field.name, Problem: "is not UTF-8 without NUL"}
		}
	}
	types := e.Types
	if types == nil {
		types = []string{}
	}
	for _, t := range types {
		if !storable(t) {
			return nil, &webhook.InvalidError{Field: "EndpointRecord.Types", Problem: "is not UTF-8 without NUL"}
		}
	}
	encoded, err := json.Marshal(types)
	if err != nil {
		return nil, err
	}
	return []any{
		s.db.id(e.ID), e.Tenant, e.URL, string(encoded), string(e.State), e.StateReason,
		timestamp(e.StateChangedAt), timestamp(e.CreatedAt), timestamp(e.UpdatedAt), timestamp(e.DeletedAt),
		e.Options, e.Secrets, e.Headers, string(e.Ordering),
	}, nil
}

// CreateEndpoint implements [webhook.EndpointStore].
func (s *core) CreateEndpoint(ctx context.Context, e webhook.EndpointRecord) (webhook.EndpointRecord, error) {
	args, err := s.endpointArgs(e)
	if err != nil {
		return webhook.EndpointRecord{}, err
	}
	created, err := s.collectEndpoints(ctx, s.db, &s.sql.createEndpoint, args...)
	if err != nil {
		return webhook.EndpointRecord{}, fmt.Errorf("postgres: creating endpoint %s: %w", e.ID, orUnmigrated(err))
	}
	if len(created) == 0 {
		return webhook.EndpointRecord{}, fmt.Errorf("postgres: creating endpoint %s, whose id exists: %w", e.ID, webhook.ErrConflict)
	}
	return created[0], nil
}

// UpdateEndpoint implements [webhook.EndpointStore].
func (s *core) UpdateEndpoint(ctx context.Context, e webhook.EndpointRecord) (webhook.EndpointRecord, error) {
	args, err := s.endpointArgs(e)
	if err != nil {
		return webhook.EndpointRecord{}, err
	}
	updated, err := s.collectEndpoints(ctx, s.db, &s.sql.updateEndpoint, append(args, e.Revision)...)
	if err != nil {
		return webhook.EndpointRecord{}, fmt.Errorf("postgres: updating endpoint %s: %w", e.ID, err)
	}
	if len(updated) > 0 {
		return updated[0], nil
	}

	var there int
	err = collect(ctx, s.db, &s.sql.findEndpoint, func(r rows) error { return r.Scan(&there) }, s.db.id(e.ID), e.Tenant)
	if err != nil {
		return webhook.EndpointRecord{}, fmt.Errorf("postgres: updating endpoint %s: %w", e.ID, err)
	}
	reason := webhook.ErrNotFound
	if there > 0 {
		reason = webhook.ErrConflict
	}
	return webhook.EndpointRecord{}, fmt.Errorf("postgres: updating endpoint %s: %w", e.ID, reason)
}

// GetEndpoint implements [webhook.EndpointStore].
func (s *core) GetEndpoint(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.EndpointRecord, error) {
	tenant, limited := scope.Tenant()
	found, err := s.collectEndpoints(ctx, s.db, &s.sql.getEndpoint, s.db.id(id), !limited, tenant)
	if err != nil {
		return webhook.EndpointRecord{}, fmt.Errorf("postgres: reading endpoint %s: %w", id, orUnmigrated(err))
	}
	if len(found) == 0 {
		return webhook.EndpointRecord{}, fmt.Errorf("postgres: endpoint %s: %w", id, webhook.ErrNotFound)
	}
	return found[0], nil
}

// ListEndpoints implements [webhook.EndpointStore].
func (s *core) ListEndpoints(ctx context.Context, p webhook.ListEndpointsParams) ([]webhook.EndpointRecord, error) {
	q, args := &s.sql.listEndpoints, []any{s.db.id(p.After), max(p.Limit, 0)}
	if tenant, limited := p.Scope.Tenant(); limited {
		q, args = &s.sql.listTenantEndpoints, append(args, tenant)
	}
	found, err := s.collectEndpoints(ctx, s.db, q, args...)
	if err != nil {
		return nil, fmt.Errorf("postgres: listing endpoints: %w", orUnmigrated(err))
	}
	return found, nil
}

// ChangedEndpoints implements [webhook.EndpointStore].
func (s *core) ChangedEndpoints(ctx context.Context, since int64, limit int) ([]webhook.EndpointRecord, int64, error) {
	changed, revision, err := s.changed(ctx, s.db, since, limit)
	if err != nil {
		return nil, 0, fmt.Errorf("postgres: reading endpoints changed since revision %d: %w", since, err)
	}
	return changed, revision, nil
}

func (s *core) changed(ctx context.Context, c conn, since int64, limit int) (changed []webhook.EndpointRecord, revision int64, err error) {
	err = collect(ctx, c, &s.sql.changedEndpoints, func(r rows) error {
		var row endpointRow
		var there bool
		if err := r.Scan(append([]any{&revision, &there}, row.into()...)...); err != nil {
			return err
		}
		if !there {
			return nil
		}
		record, err := row.record()
		changed = append(changed, record)
		return err
	}, since, limit)
	return changed, revision, err
}
