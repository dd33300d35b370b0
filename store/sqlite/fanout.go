package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

const (
	// Rides on the rowid of outbox.
	selectOutbox query = `
		SELECT position, event_seq, after_endpoint FROM {{prefix}}outbox
		WHERE position > 0 ORDER BY position LIMIT ?`

	// An entry that another process has taken or moved meanwhile is not found.
	deleteOutbox query = `
		DELETE FROM {{prefix}}outbox WHERE position = ? AND event_seq = ? AND after_endpoint = ?`

	moveOutbox query = `
		UPDATE {{prefix}}outbox
		SET position = (SELECT max(position) + 1 FROM {{prefix}}outbox), after_endpoint = ?
		WHERE position = ? AND event_seq = ? AND after_endpoint = ?`

	insertUnmatched query = `
		INSERT INTO {{prefix}}unmatched (event_seq, matched_at) VALUES (?, ?) ON CONFLICT DO NOTHING`

	insertDelivery query = `
		INSERT INTO {{prefix}}delivery
		(id, event_seq, event_id, endpoint_id, run, tenant, event_type, lane, next_attempt_at,
		lease_until, lease_token, attempts, created_at, last_status, last_class)
		VALUES `

	// Fan-out is safe against being repeated: a delivery exists once.
	orSkipDelivery query = ` ON CONFLICT (event_seq, endpoint_id, run) DO NOTHING`

	// Rides on endpoint_health_shed, which holds the few that have been shed.
	selectShedding query = `SELECT endpoint_id FROM {{prefix}}endpoint_health WHERE shed_until > 0 AND shed_until > ?`

	insertShed query = `
		INSERT INTO {{prefix}}delivery_dead
		(id, event_seq, event_id, endpoint_id, run, tenant, event_type, state, reason, attempts,
		created_at, finished_at, last_status, last_class)
		VALUES (?, ?, ?, ?, 0, ?, ?, 'shed', ?, 0, ?, ?, 0, '') ON CONFLICT DO NOTHING`

	// One that waits for its turn.
	insertOrdered query = `
		INSERT INTO {{prefix}}delivery
		(id, event_seq, event_id, endpoint_id, run, tenant, event_type, lane, next_attempt_at,
		lease_until, lease_token, attempts, created_at, last_status, last_class, order_key)
		VALUES (?, ?, ?, ?, 0, ?, ?, 3, ?, 0, x'', 0, ?, 0, '', ?) ON CONFLICT DO NOTHING`

	deliveryRow = `(?,?,?,?,0,?,?,0,?,0,x'',0,?,0,'')`
	// deliveryArgs are the parameters in deliveryRow.
	deliveryArgs        = 8
	deliveriesPerInsert = maxParameters / deliveryArgs

	// fanOutPerWrite bounds the events and the deliveries of one transaction,
	// whatever the caller would allow, so that the lock is held for a few
	// milliseconds only.
	fanOutPerWrite = 250
)

type outboxEntry struct {
	position, seq int64
	after         uuid.UUID
}

// fanOut is one call of FanOut. What it reads before it has the lock is either
// immutable (events) or checked again under the lock (outbox entries, the
// endpoint revision), so the lock is held only to match and to write.
type fanOut struct {
	s       *Store
	p       webhook.FanOutParams
	entries []outboxEntry
	seqs    []int64 // of the entries
	events  map[int64]*webhook.EventRecord
	payload bool // whether events has payloads
	result  webhook.FanOutResult

	delete, move, unmatched *sql.Stmt // on the connection that has the lock

	pending   []any // arguments of deliveries not yet inserted
	endpoints map[uuid.UUID]struct{}
	shedding  map[uuid.UUID]bool
	counts    counts                        // of what is shed
	ordered   map[webhook.OrderKey]struct{} // keys that got a delivery
	ids       []uuid.UUID                   // reused by Match
}

// FanOut implements [webhook.FanOutStore]. It does at most 250 events and 250
// deliveries in one transaction, however many p allows.
func (s *Store) FanOut(ctx context.Context, p webhook.FanOutParams) (webhook.FanOutResult, error) {
	p.MaxEvents = min(p.MaxEvents, fanOutPerWrite)
	p.MaxDeliveries = min(p.MaxDeliveries, fanOutPerWrite)
	f := &fanOut{s: s, p: p, events: make(map[int64]*webhook.EventRecord)}
	empty, err := s.outboxEmpty(ctx)
	if err != nil || empty {
		return webhook.FanOutResult{}, err
	}
	if err := s.write(ctx, "fanning out", f.read, f.write); err != nil {
		return webhook.FanOutResult{}, err
	}
	return f.result, nil
}

// outboxEmpty spares an idle dispatcher the lock.
func (s *Store) outboxEmpty(ctx context.Context) (empty bool, err error) {
	err = s.read(ctx, "looking into the outbox", func(ctx context.Context) error {
		var entry outboxEntry
		err := s.db.QueryRowContext(ctx, s.sql(selectOutbox), 1).Scan(&entry.position, &entry.seq, &entry.after)
		empty = errors.Is(err, sql.ErrNoRows)
		if empty {
			return nil
		}
		return err
	})
	return empty, err
}

// read takes note of the oldest entries and their events.
func (f *fanOut) read(ctx context.Context, c *sql.Conn) error {
	if err := f.refresh(ctx, c); err != nil {
		return err
	}
	f.entries, f.seqs = f.entries[:0], f.seqs[:0]
	rows, err := c.QueryContext(ctx, f.s.sql(selectOutbox), f.p.MaxEvents)
	err = scanAll(rows, err, func(rows *sql.Rows) error {
		var e outboxEntry
		if err := rows.Scan(&e.position, &e.seq, &e.after); err != nil {
			return err
		}
		f.entries = append(f.entries, e)
		f.seqs = append(f.seqs, e.seq)
		return nil
	})
	if err != nil {
		return err
	}
	return f.load(ctx, c)
}

// load reads the events that are not there yet, with payloads if the matcher
// wants them now.
func (f *fanOut) load(ctx context.Context, c *sql.Conn) error {
	text := selectEventsWithoutPayload
	if f.p.Matcher.WantsPayload() {
		text = selectEvents
		if !f.payload {
			f.payload = true
			clear(f.events)
		}
	}
	return f.s.loadEvents(ctx, c, f.events, f.seqs, text)
}

// refresh brings the matcher to the endpoint revision that c sees. It is called
// without the lock, so that many changes need not be read under it, and again
// with the lock, when nothing can change any more.
func (f *fanOut) refresh(ctx context.Context, c *sql.Conn) error {
	m := f.p.Matcher
	endpoints, revision, err := f.s.changedEndpoints(ctx, c, m.Revision(), -1)
	if err != nil || revision == m.Revision() {
		return err
	}
	if err := m.Apply(endpoints, revision); err != nil {
		return fmt.Errorf("applying endpoints: %w", err)
	}
	return nil
}

// write runs under the lock.
func (f *fanOut) write(ctx context.Context, c *sql.Conn) error {
	f.result = webhook.FanOutResult{}
	f.pending = f.pending[:0]
	f.endpoints = make(map[uuid.UUID]struct{})
	f.ordered = make(map[webhook.OrderKey]struct{})

	if err := f.refresh(ctx, c); err != nil {
		return err
	}
	if err := f.load(ctx, c); err != nil {
		return err
	}
	if err := f.loadShedding(ctx, c); err != nil {
		return err
	}
	st, err := f.s.prepareAll(ctx, c, deleteOutbox, moveOutbox, insertUnmatched)
	if err != nil {
		return err
	}
	defer st.close()
	f.delete, f.move, f.unmatched = st[0], st[1], st[2]

	for _, entry := range f.entries {
		if f.result.Deliveries >= f.p.MaxDeliveries {
			f.result.More = true
			break
		}
		if err := f.event(ctx, c, entry); err != nil {
			return err
		}
	}
	if err := f.flush(ctx, c); err != nil {
		return err
	}
	if _, err := f.s.releaseAll(ctx, c, f.ordered, f.p.Now); err != nil {
		return err
	}
	if err := f.s.saveCounts(ctx, c, f.counts); err != nil {
		return err
	}
	if len(f.entries) >= f.p.MaxEvents {
		f.result.More = true
	}
	f.result.Endpoints = make([]uuid.UUID, 0, len(f.endpoints))
	for id := range f.endpoints {
		f.result.Endpoints = append(f.result.Endpoints, id)
	}
	return nil
}

// loadShedding reads which endpoints are being shed.
func (f *fanOut) loadShedding(ctx context.Context, c *sql.Conn) error {
	f.shedding, f.counts = nil, counts{}
	rows, err := c.QueryContext(ctx, f.s.sql(selectShedding), micros(f.p.Now))
	return scanAll(rows, err, func(rows *sql.Rows) error {
		var id uuid.UUID
		if err := rows.Scan(&id); err != nil {
			return err
		}
		if f.shedding == nil {
			f.shedding = make(map[uuid.UUID]bool)
			f.result.Shed = make(map[uuid.UUID]int)
		}
		f.shedding[id] = true
		return nil
	})
}

// shed records a delivery as finished, without its ever having waited.
func (f *fanOut) shed(ctx context.Context, c *sql.Conn, id uuid.UUID, event *webhook.EventRecord, endpoint uuid.UUID) error {
	now := micros(f.p.Now)
	_, err := c.ExecContext(ctx, f.s.sql(insertShed), blob(id), event.Sequence, blob(event.ID), blob(endpoint),
		event.Tenant, event.Type, webhook.ReasonShed, now, now)
	f.counts.end(webhook.StateShed, endpoint, event.Tenant, now)
	f.result.Shed[endpoint]++
	f.result.Deliveries++
	return err
}

func (f *fanOut) event(ctx context.Context, c *sql.Conn, entry outboxEntry) error {
	event := f.events[entry.seq]
	if event == nil {
		return fmt.Errorf("event %d of the outbox is missing", entry.seq)
	}

	var more bool
	f.ids, more = f.p.Matcher.Match(f.ids[:0], event, entry.after, f.p.MaxDeliveries-f.result.Deliveries)
	take := f.remove
	if more {
		take = f.moveBehind
	}
	taken, err := take(ctx, entry)
	if err != nil {
		return err
	}
	if !taken {
		f.result.More = true
		return nil
	}

	f.result.Events++
	if f.result.OldestCreatedAt.IsZero() || event.CreatedAt.Before(f.result.OldestCreatedAt) {
		f.result.OldestCreatedAt = event.CreatedAt
	}
	if !more {
		f.result.Finished++
	} else {
		f.result.More = true
	}
	if len(f.ids) == 0 && !more && entry.after == uuid.Nil {
		f.result.Unmatched++
		_, err := f.unmatched.ExecContext(ctx, entry.seq, micros(f.p.Now))
		return err
	}
	return f.deliver(ctx, c, event)
}

// remove takes the entry out of the outbox, and reports whether it was still there.
func (f *fanOut) remove(ctx context.Context, entry outboxEntry) (bool, error) {
	return changed(f.delete.ExecContext(ctx, entry.position, entry.seq, blob(entry.after)))
}

// moveBehind puts the entry behind all the others, for the endpoints that are
// still to come, and reports whether it was still there.
func (f *fanOut) moveBehind(ctx context.Context, entry outboxEntry) (bool, error) {
	last := entry.after
	if len(f.ids) > 0 {
		last = f.ids[len(f.ids)-1]
	}
	return changed(f.move.ExecContext(ctx, blob(last), entry.position, entry.seq, blob(entry.after)))
}

func (f *fanOut) deliver(ctx context.Context, c *sql.Conn, event *webhook.EventRecord) error {
	due := micros(f.p.Now)
	ids, err := f.s.ids.New(f.p.Now, len(f.ids))
	if err != nil {
		return fmt.Errorf("making delivery ids: %w", err)
	}
	for i, endpoint := range f.ids {
		if f.shedding[endpoint] {
			if err := f.shed(ctx, c, ids[i], event, endpoint); err != nil {
				return err
			}
			continue
		}
		if key, ok := f.p.Matcher.Ordering(endpoint).Key(event); ok {
			if err := f.deliverOrdered(ctx, c, ids[i], event, webhook.OrderKey{EndpointID: endpoint, Key: key}); err != nil {
				return err
			}
			continue
		}
		f.pending = append(f.pending, blob(ids[i]), event.Sequence, blob(event.ID), blob(endpoint),
			event.Tenant, event.Type, due, due)
		f.endpoints[endpoint] = struct{}{}
		f.result.Deliveries++
		if len(f.pending) == deliveriesPerInsert*deliveryArgs {
			if err := f.flush(ctx, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// deliverOrdered makes a delivery that waits for its turn.
func (f *fanOut) deliverOrdered(ctx context.Context, c *sql.Conn, id uuid.UUID, event *webhook.EventRecord, key webhook.OrderKey) error {
	due := micros(f.p.Now)
	_, err := c.ExecContext(ctx, f.s.sql(insertOrdered), blob(id), event.Sequence, blob(event.ID), blob(key.EndpointID),
		event.Tenant, event.Type, due, due, key.Key)
	f.ordered[key] = struct{}{}
	f.endpoints[key.EndpointID] = struct{}{}
	f.result.Deliveries++
	return err
}

func (f *fanOut) flush(ctx context.Context, c *sql.Conn) error {
	n := len(f.pending) / deliveryArgs
	if n == 0 {
		return nil
	}
	text := f.s.sql(insertDelivery) + repeat(deliveryRow, n) + f.s.sql(orSkipDelivery)
	if _, err := c.ExecContext(ctx, text, f.pending...); err != nil {
		return err
	}
	f.pending = f.pending[:0]
	return nil
}
