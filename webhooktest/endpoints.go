package webhooktest

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// CreateEndpoint implements [webhook.EndpointStore].
func (s *Store) CreateEndpoint(ctx context.Context, e webhook.EndpointRecord) (webhook.EndpointRecord, error) {
	if err := ctx.Err(); err != nil {
		return webhook.EndpointRecord{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endpoints[e.ID] != nil {
		return webhook.EndpointRecord{}, webhook.ErrConflict
	}
	return s.putEndpoint(e), nil
}

// UpdateEndpoint implements [webhook.EndpointStore].
func (s *Store) UpdateEndpoint(ctx context.Context, e webhook.EndpointRecord) (webhook.EndpointRecord, error) {
	if err := ctx.Err(); err != nil {
		return webhook.EndpointRecord{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.endpoints[e.ID]
	if have == nil || have.Tenant != e.Tenant || !have.DeletedAt.IsZero() {
		return webhook.EndpointRecord{}, webhook.ErrNotFound
	}
	if have.Revision != e.Revision {
		return webhook.EndpointRecord{}, webhook.ErrConflict
	}
	return s.putEndpoint(e), nil
}

// putEndpoint writes an endpoint under a new revision. The lock is held.
func (s *Store) putEndpoint(e webhook.EndpointRecord) webhook.EndpointRecord {
	s.revision++
	e = cloneEndpoint(e)
	e.Revision = s.revision
	e.CreatedAt = stored(e.CreatedAt)
	e.UpdatedAt = stored(e.UpdatedAt)
	e.StateChangedAt = stored(e.StateChangedAt)
	e.DeletedAt = stored(e.DeletedAt)
	s.endpoints[e.ID] = &e
	return cloneEndpoint(e)
}

// GetEndpoint implements [webhook.EndpointStore].
func (s *Store) GetEndpoint(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.EndpointRecord, error) {
	if err := ctx.Err(); err != nil {
		return webhook.EndpointRecord{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.endpoints[id]
	if e == nil || !e.DeletedAt.IsZero() || !scope.Includes(e.Tenant) {
		return webhook.EndpointRecord{}, webhook.ErrNotFound
	}
	return cloneEndpoint(*e), nil
}

// ListEndpoints implements [webhook.EndpointStore].
func (s *Store) ListEndpoints(ctx context.Context, p webhook.ListEndpointsParams) ([]webhook.EndpointRecord, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []webhook.EndpointRecord
	for _, e := range s.endpoints {
		if e.DeletedAt.IsZero() && p.Scope.Includes(e.Tenant) && compareIDs(e.ID, p.After) > 0 {
			found = append(found, cloneEndpoint(*e))
		}
	}
	slices.SortFunc(found, func(a, b webhook.EndpointRecord) int { return compareIDs(a.ID, b.ID) })
	return found[:max(0, min(len(found), p.Limit))], nil
}

// ChangedEndpoints implements [webhook.EndpointStore].
func (s *Store) ChangedEndpoints(ctx context.Context, since int64, limit int) ([]webhook.EndpointRecord, int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := s.changedSince(since)
	return changed[:min(len(changed), limit)], s.revision, nil
}

// changedSince returns what changed after a revision, in the order of the
// changes. The lock is held.
func (s *Store) changedSince(revision int64) []webhook.EndpointRecord {
	var changed []webhook.EndpointRecord
	for _, e := range s.endpoints {
		if e.Revision > revision {
			changed = append(changed, cloneEndpoint(*e))
		}
	}
	slices.SortFunc(changed, func(a, b webhook.EndpointRecord) int { return cmp.Compare(a.Revision, b.Revision) })
	return changed
}

func cloneEndpoint(e webhook.EndpointRecord) webhook.EndpointRecord {
	e.Types = slices.Clone(e.Types)
	e.Options = bytes.Clone(e.Options)
	e.Secrets = bytes.Clone(e.Secrets)
	e.Headers = bytes.Clone(e.Headers)
	return e
}
