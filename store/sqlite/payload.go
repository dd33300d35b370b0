package sqlite

import (
	"context"
	"database/sql"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// Each rides on the primary key of payload_gone, and the last on the unique index of
// event.id.
const (
	insertGonePayload query = `INSERT INTO {{prefix}}payload_gone (event_id, tenant) VALUES (?, ?) ON CONFLICT DO NOTHING`

	selectGonePayloads query = `SELECT event_id, tenant FROM {{prefix}}payload_gone WHERE event_id > ? ORDER BY event_id LIMIT ?`

	deleteGonePayload query = `DELETE FROM {{prefix}}payload_gone WHERE event_id = ?`

	selectEventExists query = `SELECT EXISTS (SELECT 1 FROM {{prefix}}event WHERE id = ?)`
)

// GonePayloads implements [webhook.PayloadRefStore].
func (s *Store) GonePayloads(ctx context.Context, after uuid.UUID, limit int) ([]webhook.PayloadKey, error) {
	var gone []webhook.PayloadKey
	err := s.read(ctx, "listing payloads of removed events", func(ctx context.Context) error {
		gone = nil
		rows, err := s.db.QueryContext(ctx, s.sql(selectGonePayloads), blob(after), max(limit, 0))
		return scanAll(rows, err, func(rows *sql.Rows) error {
			var key webhook.PayloadKey
			err := rows.Scan(&key.EventID, &key.Tenant)
			gone = append(gone, key)
			return err
		})
	})
	return gone, err
}

// ForgetPayloads implements [webhook.PayloadRefStore].
func (s *Store) ForgetPayloads(ctx context.Context, events []uuid.UUID) error {
	return s.removeInBatches(ctx, "forgetting payloads", len(events), []query{deleteGonePayload},
		func(ctx context.Context, st statements, i int) error {
			_, err := st[0].ExecContext(ctx, blob(events[i]))
			return err
		})
}

// AbsentEvents implements [webhook.PayloadRefStore].
func (s *Store) AbsentEvents(ctx context.Context, ids []uuid.UUID) ([]uuid.UUID, error) {
	var absent []uuid.UUID
	err := s.reading(ctx, "looking for events", []query{selectEventExists}, func(ctx context.Context, st statements) error {
		absent = nil
		for _, id := range ids {
			var exists bool
			if err := st[0].QueryRowContext(ctx, blob(id)).Scan(&exists); err != nil {
				return err
			}
			if !exists {
				absent = append(absent, id)
			}
		}
		return nil
	})
	return absent, err
}
