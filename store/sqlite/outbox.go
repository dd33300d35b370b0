package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

const (
	insertKey query = `
		INSERT INTO {{prefix}}idempotency_key (tenant, key, event_id) VALUES (?, ?, ?)
		ON CONFLICT DO NOTHING`

	// Rides on the primary key of idempotency_key.
	selectKey query = `SELECT event_id FROM {{prefix}}idempotency_key WHERE tenant = ? AND key = ?`

	insertEvent query = `
		INSERT INTO {{prefix}}event
		(id, tenant, type, resource_id, resource_version, idempotency_key, content_type, created_at, payload, trace_parent,
		payload_ref)
		VALUES `

	// The rows of one INSERT get neighbouring sequences, since nobody else can
	// write. Rides on the rowid of event.
	insertOutbox query = `
		INSERT INTO {{prefix}}outbox (event_seq, after_endpoint)
		SELECT seq, zeroblob(16) FROM {{prefix}}event WHERE seq BETWEEN ? AND ? ORDER BY seq`

	insertOutboxOne query = `INSERT INTO {{prefix}}outbox (event_seq, after_endpoint) VALUES (?, zeroblob(16))`

	eventColumns    = 11
	eventsPerInsert = maxParameters / eventColumns
)

// InsertEvents implements [webhook.OutboxStore]. In the transaction of the host
// it opens a savepoint, so that an error leaves nothing half written and the
// transaction as it was.
func (s *Store) InsertEvents(ctx context.Context, tx *sql.Tx, events []webhook.EventRecord) ([]webhook.EnqueueResult, error) {
	if tx == nil {
		return nil, &webhook.InvalidError{Field: "tx", Problem: "is nil"}
	}
	if len(events) == 0 {
		return nil, nil
	}
	if _, err := tx.ExecContext(ctx, "SAVEPOINT webhook_insert"); err != nil {
		return nil, fmt.Errorf("sqlite: inserting events: %w", err)
	}
	results, err := s.insertEvents(ctx, tx, events)
	if err != nil {
		// Without the savepoint there is no more that could be done: SQLite has
		// then ended the transaction, or the driver has.
		_, _ = tx.ExecContext(context.WithoutCancel(ctx), "ROLLBACK TO webhook_insert")
		_, _ = tx.ExecContext(context.WithoutCancel(ctx), "RELEASE webhook_insert")
		return nil, fmt.Errorf("sqlite: inserting events: %w", s.orUnmigrated(err))
	}
	if _, err := tx.ExecContext(ctx, "RELEASE webhook_insert"); err != nil {
		return nil, fmt.Errorf("sqlite: inserting events: %w", err)
	}
	return results, nil
}

// execer runs one statement: on the transaction, or prepared on it.
type execer func(ctx context.Context, args ...any) (sql.Result, error)

// inserter is one call of InsertEvents. A call with many events prepares what it
// repeats.
type inserter struct {
	s          *Store
	tx         *sql.Tx
	key, batch execer // insertKey, and insertEvent with a full batch
}

func (s *Store) insertEvents(ctx context.Context, tx *sql.Tx, events []webhook.EventRecord) ([]webhook.EnqueueResult, error) {
	in := &inserter{s: s, tx: tx, key: direct(tx, s.sql(insertKey))}
	if len(events) >= eventsPerInsert {
		st, err := in.prepare(ctx)
		defer st.close()
		if err != nil {
			return nil, err
		}
	}
	return in.insert(ctx, events)
}

func direct(tx *sql.Tx, text string) execer {
	return func(ctx context.Context, args ...any) (sql.Result, error) { return tx.ExecContext(ctx, text, args...) }
}

func (in *inserter) prepare(ctx context.Context) (statements, error) {
	var all statements
	for _, p := range []struct {
		text string
		exec *execer
	}{
		{in.s.sql(insertKey), &in.key},
		{in.s.sql(insertEvent) + placeholders(eventsPerInsert, eventColumns), &in.batch},
	} {
		st, err := in.tx.PrepareContext(ctx, p.text)
		if err != nil {
			return all, err
		}
		all = append(all, st)
		*p.exec = st.ExecContext
	}
	return all, nil
}

func (in *inserter) insert(ctx context.Context, events []webhook.EventRecord) ([]webhook.EnqueueResult, error) {
	results := make([]webhook.EnqueueResult, len(events))
	batch := make([]*webhook.EventRecord, 0, min(len(events), eventsPerInsert))
	for i := range events {
		e := &events[i]
		result, err := in.takeKey(ctx, e)
		if err != nil {
			return nil, err
		}
		results[i] = result
		if !result.Duplicate {
			batch = append(batch, e)
		}
		if len(batch) == eventsPerInsert {
			if err := in.insertBatch(ctx, batch); err != nil {
				return nil, err
			}
			batch = batch[:0]
		}
	}
	return results, in.insertBatch(ctx, batch)
}

// takeKey makes the event's idempotency key its own, or finds whose it is.
func (in *inserter) takeKey(ctx context.Context, e *webhook.EventRecord) (webhook.EnqueueResult, error) {
	first := webhook.EnqueueResult{EventID: e.ID}
	if e.IdempotencyKey == "" {
		return first, nil
	}
	taken, err := changed(in.key(ctx, e.Tenant, e.IdempotencyKey, blob(e.ID)))
	if err != nil || taken {
		return first, err
	}
	var id uuid.UUID
	if err := in.tx.QueryRowContext(ctx, in.s.sql(selectKey), e.Tenant, e.IdempotencyKey).Scan(&id); err != nil {
		return first, err
	}
	return webhook.EnqueueResult{EventID: id, Duplicate: true}, nil
}

func (in *inserter) insertBatch(ctx context.Context, batch []*webhook.EventRecord) error {
	if len(batch) == 0 {
		return nil
	}
	args := make([]any, 0, len(batch)*eventColumns)
	createdAt := now()
	for _, e := range batch {
		args = append(args, blob(e.ID), e.Tenant, e.Type, e.ResourceID, e.ResourceVersion,
			e.IdempotencyKey, e.ContentType, microsOr(e.CreatedAt, createdAt), present(e.Payload),
			sql.NullString{String: e.TraceParent, Valid: e.TraceParent != ""}, orNull(e.PayloadRef))
	}
	exec := in.batch
	if exec == nil || len(batch) < eventsPerInsert {
		exec = direct(in.tx, in.s.sql(insertEvent)+placeholders(len(batch), eventColumns))
	}
	result, err := exec(ctx, args...)
	if err != nil {
		return err
	}
	last, err := result.LastInsertId()
	if err != nil {
		return err
	}
	if len(batch) == 1 {
		_, err = in.tx.ExecContext(ctx, in.s.sql(insertOutboxOne), last)
		return err
	}
	_, err = in.tx.ExecContext(ctx, in.s.sql(insertOutbox), last-int64(len(batch))+1, last)
	return err
}

const (
	// Rides on the rowid of event.
	selectEvents query = `
		SELECT seq, id, tenant, type, resource_id, resource_version, content_type, created_at, payload, trace_parent, payload_ref
		FROM {{prefix}}event WHERE seq IN `

	selectEventsWithoutPayload query = `
		SELECT seq, id, tenant, type, resource_id, resource_version, content_type, created_at, NULL, trace_parent, payload_ref
		FROM {{prefix}}event WHERE seq IN `

	eventsPerSelect = 500
)

type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// loadEvents adds to into the events with the given sequences that it lacks.
// Events never change, so what it holds already is as good as new.
func (s *Store) loadEvents(ctx context.Context, q queryer, into map[int64]*webhook.EventRecord, seqs []int64, text query) error {
	missing := make([]any, 0, len(seqs))
	asked := make(map[int64]bool, len(seqs))
	for _, seq := range seqs {
		if into[seq] == nil && !asked[seq] {
			asked[seq] = true
			missing = append(missing, seq)
		}
	}
	for len(missing) > 0 {
		n := min(len(missing), eventsPerSelect)
		list := "(" + strings.Repeat("?,", n-1) + "?)"
		rows, err := q.QueryContext(ctx, s.sql(text)+list, missing[:n]...)
		err = scanAll(rows, err, func(rows *sql.Rows) error {
			var trace sql.NullString
			var ref []byte
			e, err := scanEvent(rows, &trace, &ref)
			e.TraceParent, e.PayloadRef = trace.String, ref
			into[e.Sequence] = e
			return err
		})
		if err != nil {
			return err
		}
		missing = missing[n:]
	}
	return nil
}

func scanEvent(row scanner, more ...any) (*webhook.EventRecord, error) {
	var e webhook.EventRecord
	var createdAt int64
	columns := []any{
		&e.Sequence, &e.ID, &e.Tenant, &e.Type, &e.ResourceID, &e.ResourceVersion,
		&e.ContentType, &createdAt, &e.Payload,
	}
	err := row.Scan(append(columns, more...)...)
	e.CreatedAt = fromMicros(createdAt)
	return &e, err
}
