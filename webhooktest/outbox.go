package webhooktest

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// InsertEvents implements [webhook.OutboxStore].
func (s *Store) InsertEvents(ctx context.Context, tx *Tx, events []webhook.EventRecord) ([]webhook.EnqueueResult, error) {
	if tx == nil {
		return nil, &webhook.InvalidError{Field: "tx", Problem: "is nil"}
	}
	firsts, err := s.takeKeys(ctx, tx, events)
	if err != nil {
		return nil, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if tx.done {
		return nil, ErrTxDone
	}
	results := make([]webhook.EnqueueResult, len(events))
	for i := range events {
		record := events[i]
		first, keyed := firsts[key{record.Tenant, record.IdempotencyKey}]
		if keyed && first != record.ID {
			results[i] = webhook.EnqueueResult{EventID: first, Duplicate: true}
			continue
		}
		tx.events = append(tx.events, s.newEvent(record))
		results[i] = webhook.EnqueueResult{EventID: record.ID}
	}
	return results, nil
}

func (s *Store) newEvent(record webhook.EventRecord) *event {
	key := record.IdempotencyKey
	s.sequence++
	record.Sequence = s.sequence
	record.IdempotencyKey = ""
	record.Payload, record.PayloadRef = bytes.Clone(record.Payload), bytes.Clone(record.PayloadRef)
	if record.CreatedAt.IsZero() {
		record.CreatedAt = s.now()
	}
	record.CreatedAt = stored(record.CreatedAt)
	return &event{EventRecord: record, key: key}
}

// takeKeys reserves the events' idempotency keys for tx, and returns the event
// that each key stands for. It takes them in one order, so that two calls with
// the same keys cannot wait for each other.
func (s *Store) takeKeys(ctx context.Context, tx *Tx, events []webhook.EventRecord) (map[key]uuid.UUID, error) {
	wanted := map[key]uuid.UUID{}
	for _, e := range events {
		k := key{e.Tenant, e.IdempotencyKey}
		if _, seen := wanted[k]; e.IdempotencyKey != "" && !seen {
			wanted[k] = e.ID
		}
	}
	inOrder := make([]key, 0, len(wanted))
	for k := range wanted {
		inOrder = append(inOrder, k)
	}
	slices.SortFunc(inOrder, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.name, b.name))
	})
	for _, k := range inOrder {
		first, err := s.takeKey(ctx, tx, k, wanted[k])
		if err != nil {
			return nil, err
		}
		wanted[k] = first
	}
	return wanted, nil
}

// takeKey reserves one key for tx and returns the event it stands for. It waits
// for another transaction that holds the key to end.
func (s *Store) takeKey(ctx context.Context, tx *Tx, k key, eventID uuid.UUID) (uuid.UUID, error) {
	for {
		s.mu.Lock()
		if tx.done {
			s.mu.Unlock()
			return uuid.Nil, ErrTxDone
		}
		holder := s.keys[k]
		if holder == nil {
			holder = &keyHolder{eventID: eventID, tx: tx}
			s.keys[k] = holder
			tx.keys = append(tx.keys, k)
		}
		other := holder.tx
		first := holder.eventID
		s.mu.Unlock()

		if other == nil || other == tx {
			return first, nil
		}
		select {
		case <-other.ended:
		case <-ctx.Done():
			return uuid.Nil, ctx.Err()
		}
	}
}
