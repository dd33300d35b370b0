package postgres

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// Rides on payload_gone_pkey.
const (
	insertGonePayloadsSQL = `
INSERT INTO {{schema}}.payload_gone (event_id, tenant)
SELECT g.event_id, g.tenant FROM unnest($1::uuid[], $2::text[]) AS g (event_id, tenant)
ON CONFLICT DO NOTHING`

	gonePayloadsSQL = `
SELECT event_id, tenant FROM {{schema}}.payload_gone
WHERE event_id > $1::uuid ORDER BY event_id LIMIT $2::integer`

	forgetPayloadsSQL = `DELETE FROM {{schema}}.payload_gone WHERE event_id = ANY ($1::uuid[])`
)

// One look into the index for each, since a join might read it whole. Rides on
// event_pkey.
const absentEventsSQL = `
SELECT i.id FROM unnest($1::uuid[]) AS i (id)
WHERE (SELECT true FROM {{schema}}.event WHERE id = i.id LIMIT 1) IS NULL`

// GonePayloads implements [webhook.PayloadRefStore].
func (s *core) GonePayloads(ctx context.Context, after uuid.UUID, limit int) ([]webhook.PayloadKey, error) {
	var gone []webhook.PayloadKey
	err := collect(ctx, s.db, &s.sql.gonePayloads, func(r rows) error {
		var key webhook.PayloadKey
		err := r.Scan(&key.EventID, &key.Tenant)
		gone = append(gone, key)
		return err
	}, s.db.id(after), max(limit, 0))
	if err != nil {
		return nil, fmt.Errorf("postgres: listing payloads of removed events: %w", err)
	}
	return gone, nil
}

// ForgetPayloads implements [webhook.PayloadRefStore].
func (s *core) ForgetPayloads(ctx context.Context, events []uuid.UUID) error {
	if len(events) == 0 {
		return nil
	}
	if _, err := s.db.exec(ctx, &s.sql.forgetPayloads, s.db.uuids(events)); err != nil {
		return fmt.Errorf("postgres: forgetting %d payloads: %w", len(events), err)
	}
	return nil
}

// AbsentEvents implements [webhook.PayloadRefStore].
func (s *core) AbsentEvents(ctx context.Context, ids []uuid.UUID) ([]uuid.UUID, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	absent, err := s.collectIDs(ctx, s.db, &s.sql.absentEvents, s.db.uuids(ids))
	if err != nil {
		return nil, fmt.Errorf("postgres: looking for %d events: %w", len(ids), err)
	}
	return absent, nil
}
