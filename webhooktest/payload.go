package webhooktest

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// removeEvent removes an event with what belongs to it alone. The lock is held.
func (s *Store) removeEvent(e *event) {
	delete(s.events, e.ID)
	delete(s.keys, key{e.Tenant, e.key})
	if len(e.PayloadRef) > 0 {
		s.gone[e.ID] = e.Tenant
	}
}

// GonePayloads implements [webhook.PayloadRefStore].
func (s *Store) GonePayloads(ctx context.Context, after uuid.UUID, limit int) ([]webhook.PayloadKey, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var gone []webhook.PayloadKey
	for id, tenant := range s.gone {
		if compareIDs(id, after) > 0 {
			gone = append(gone, webhook.PayloadKey{Tenant: tenant, EventID: id})
		}
	}
	slices.SortFunc(gone, func(a, b webhook.PayloadKey) int { return compareIDs(a.EventID, b.EventID) })
	return gone[:max(0, min(len(gone), limit))], nil
}

// ForgetPayloads implements [webhook.PayloadRefStore].
func (s *Store) ForgetPayloads(ctx context.Context, events []uuid.UUID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range events {
		delete(s.gone, id)
	}
	return nil
}

// AbsentEvents implements [webhook.PayloadRefStore].
func (s *Store) AbsentEvents(ctx context.Context, ids []uuid.UUID) ([]uuid.UUID, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var absent []uuid.UUID
	for _, id := range ids {
		if s.events[id] == nil {
			absent = append(absent, id)
		}
	}
	return absent, nil
}
