package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

const (
	endpointColumns query = `id, tenant, url, types, state, state_reason, state_changed_at, revision,
		created_at, updated_at, deleted_at, options, secrets, headers, ordering`

	selectRevision query = `SELECT revision FROM {{prefix}}endpoint_revision WHERE one = 1`

	nextRevision query = `UPDATE {{prefix}}endpoint_revision SET revision = revision + 1 WHERE one = 1`

	insertEndpoint query = `
		INSERT INTO {{prefix}}endpoint (` + endpointColumns + `)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO NOTHING`

	updateEndpoint query = `
		UPDATE {{prefix}}endpoint
		SET url = ?, types = ?, state = ?, state_reason = ?, state_changed_at = ?, revision = ?,
			updated_at = ?, deleted_at = ?, options = ?, secrets = ?, headers = ?, ordering = ?
		WHERE id = ?`

	// Rides on the unique index of endpoint.id.
	selectEndpoint query = `SELECT ` + endpointColumns + ` FROM {{prefix}}endpoint WHERE id = ? AND deleted_at = 0`

	// Rides on the unique index of endpoint.id.
	selectEndpoints query = `
		SELECT ` + endpointColumns + ` FROM {{prefix}}endpoint
		WHERE id > ? AND deleted_at = 0 ORDER BY id LIMIT ?`

	// Rides on endpoint_tenant.
	selectTenantEndpoints query = `
		SELECT ` + endpointColumns + ` FROM {{prefix}}endpoint
		WHERE tenant = ? AND id > ? AND deleted_at = 0 ORDER BY id LIMIT ?`

	// Rides on the unique index of endpoint.revision. A negative limit is none.
	selectChanged query = `
		SELECT ` + endpointColumns + ` FROM {{prefix}}endpoint
		WHERE revision > ? ORDER BY revision LIMIT ?`
)

// CreateEndpoint implements [webhook.EndpointStore].
func (s *Store) CreateEndpoint(ctx context.Context, e webhook.EndpointRecord) (webhook.EndpointRecord, error) {
	types, err := json.Marshal(e.Types)
	if err != nil {
		return webhook.EndpointRecord{}, fmt.Errorf("sqlite: creating an endpoint: %w", err)
	}
	var stored webhook.EndpointRecord
	err = s.write(ctx, "creating an endpoint", nil, func(ctx context.Context, c *sql.Conn) error {
		revision, err := s.takeRevision(ctx, c)
		if err != nil {
			return err
		}
		at := now()
		created, err := changed(c.ExecContext(ctx, s.sql(insertEndpoint),
			blob(e.ID), e.Tenant, e.URL, string(types), string(e.State), e.StateReason,
			micros(e.StateChangedAt), revision, microsOr(e.CreatedAt, at), microsOr(e.UpdatedAt, at),
			micros(e.DeletedAt), e.Options, e.Secrets, e.Headers, string(e.Ordering)))
		if err != nil {
			return err
		}
		if !created {
			return webhook.ErrConflict
		}
		stored, err = s.endpointAt(ctx, c, revision)
		return err
	})
	if err != nil {
		return webhook.EndpointRecord{}, err
	}
	return stored, nil
}

// UpdateEndpoint implements [webhook.EndpointStore]. The time of creation stays
// as it is.
func (s *Store) UpdateEndpoint(ctx context.Context, e webhook.EndpointRecord) (webhook.EndpointRecord, error) {
	types, err := json.Marshal(e.Types)
	if err != nil {
		return webhook.EndpointRecord{}, fmt.Errorf("sqlite: updating an endpoint: %w", err)
	}
	var stored webhook.EndpointRecord
	err = s.write(ctx, "updating an endpoint", nil, func(ctx context.Context, c *sql.Conn) error {
		old, err := scanEndpoint(c.QueryRowContext(ctx, s.sql(selectEndpoint), blob(e.ID)))
		switch {
		case errors.Is(err, sql.ErrNoRows) || (err == nil && old.Tenant != e.Tenant):
			return webhook.ErrNotFound
		case err != nil:
			return err
		case old.Revision != e.Revision:
			return webhook.ErrConflict
		}
		revision, err := s.takeRevision(ctx, c)
		if err != nil {
			return err
		}
		at := now()
		_, err = c.ExecContext(ctx, s.sql(updateEndpoint),
			e.URL, string(types), string(e.State), e.StateReason, micros(e.StateChangedAt), revision,
			microsOr(e.UpdatedAt, at), micros(e.DeletedAt), e.Options, e.Secrets, e.Headers, string(e.Ordering), blob(e.ID))
		if err != nil {
			return err
		}
		stored, err = s.endpointAt(ctx, c, revision)
		return err
	})
	if err != nil {
		return webhook.EndpointRecord{}, err
	}
	return stored, nil
}

// takeRevision gives out the next revision. The lock makes commits follow one
// another in the order of their revisions.
func (s *Store) takeRevision(ctx context.Context, c *sql.Conn) (int64, error) {
	if _, err := c.ExecContext(ctx, s.sql(nextRevision)); err != nil {
		return 0, err
	}
	var revision int64
	err := c.QueryRowContext(ctx, s.sql(selectRevision)).Scan(&revision)
	return revision, err
}

// endpointAt reads the endpoint with the newest revision, deleted or not.
func (s *Store) endpointAt(ctx context.Context, c *sql.Conn, revision int64) (webhook.EndpointRecord, error) {
	return scanEndpoint(c.QueryRowContext(ctx, s.sql(selectChanged), revision-1, 1))
}

// GetEndpoint implements [webhook.EndpointStore].
func (s *Store) GetEndpoint(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.EndpointRecord, error) {
	var e webhook.EndpointRecord
	err := s.read(ctx, "reading an endpoint", func(ctx context.Context) error {
		var err error
		e, err = scanEndpoint(s.db.QueryRowContext(ctx, s.sql(selectEndpoint), blob(id)))
		if errors.Is(err, sql.ErrNoRows) || (err == nil && !scope.Includes(e.Tenant)) {
			return webhook.ErrNotFound
		}
		return err
	})
	if err != nil {
		return webhook.EndpointRecord{}, err
	}
	return e, nil
}

// ListEndpoints implements [webhook.EndpointStore].
func (s *Store) ListEndpoints(ctx context.Context, p webhook.ListEndpointsParams) ([]webhook.EndpointRecord, error) {
	limit := max(p.Limit, 0) // a negative one would mean all
	text, args := selectEndpoints, []any{blob(p.After), limit}
	if tenant, limited := p.Scope.Tenant(); limited {
		text, args = selectTenantEndpoints, []any{tenant, blob(p.After), limit}
	}
	var endpoints []webhook.EndpointRecord
	err := s.read(ctx, "listing endpoints", func(ctx context.Context) error {
		var err error
		endpoints, err = s.queryEndpoints(ctx, s.db, text, args...)
		return err
	})
	return endpoints, err
}

// ChangedEndpoints implements [webhook.EndpointStore].
func (s *Store) ChangedEndpoints(ctx context.Context, since int64, limit int) ([]webhook.EndpointRecord, int64, error) {
	var endpoints []webhook.EndpointRecord
	var revision int64
	err := s.read(ctx, "reading changed endpoints", func(ctx context.Context) error {
		var err error
		endpoints, revision, err = s.changedEndpoints(ctx, s.db, since, limit)
		return err
	})
	return endpoints, revision, err
}

type reader interface {
	queryer
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (s *Store) changedEndpoints(
	ctx context.Context, r reader, since int64, limit int,
) (endpoints []webhook.EndpointRecord, revision int64, err error) {
	if err := r.QueryRowContext(ctx, s.sql(selectRevision)).Scan(&revision); err != nil {
		return nil, 0, err
	}
	if revision == since {
		return nil, revision, nil
	}
	endpoints, err = s.queryEndpoints(ctx, r, selectChanged, since, limit)
	if err != nil {
		return nil, 0, err
	}
	// The second statement may have seen more than the first. The endpoint
	// written last is the one with the present revision, so what it saw is
	// everything up to the last one that it returned.
	if n := len(endpoints); n > 0 {
		revision = max(revision, endpoints[n-1].Revision)
	}
	return endpoints, revision, nil
}

func (s *Store) queryEndpoints(ctx context.Context, q queryer, text query, args ...any) ([]webhook.EndpointRecord, error) {
	var endpoints []webhook.EndpointRecord
	rows, err := q.QueryContext(ctx, s.sql(text), args...)
	err = scanAll(rows, err, func(rows *sql.Rows) error {
		e, err := scanEndpoint(rows)
		endpoints = append(endpoints, e)
		return err
	})
	return endpoints, err
}

func scanEndpoint(row scanner) (webhook.EndpointRecord, error) {
	var e webhook.EndpointRecord
	var types []byte
	var stateChangedAt, createdAt, updatedAt, deletedAt int64
	err := row.Scan(&e.ID, &e.Tenant, &e.URL, &types, &e.State, &e.StateReason, &stateChangedAt, &e.Revision,
		&createdAt, &updatedAt, &deletedAt, &e.Options, &e.Secrets, &e.Headers, &e.Ordering)
	if err != nil {
		return webhook.EndpointRecord{}, err
	}
	if err := json.Unmarshal(types, &e.Types); err != nil {
		return webhook.EndpointRecord{}, fmt.Errorf("reading the types of endpoint %s: %w", e.ID, err)
	}
	e.StateChangedAt, e.CreatedAt = fromMicros(stateChangedAt), fromMicros(createdAt)
	e.UpdatedAt, e.DeletedAt = fromMicros(updatedAt), fromMicros(deletedAt)
	return e, nil
}
