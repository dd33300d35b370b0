package webhooktest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// matched is what one fan-out found for one entry.
type matched struct {
	entry     *entry
	endpoints []uuid.UUID
	orderings []webhook.Ordering // of the endpoints
	more      bool
}

// FanOut implements [webhook.FanOutStore]. The matcher is called without the
// lock, on entries that are held meanwhile; nothing is written before every
// match is known, so an error or a panic of the matcher leaves all as it was.
func (s *Store) FanOut(ctx context.Context, p webhook.FanOutParams) (webhook.FanOutResult, error) {
	if err := ctx.Err(); err != nil {
		return webhook.FanOutResult{}, err
	}
	entries := s.holdEntries(p.MaxEvents)
	defer s.releaseEntries(entries)
	if len(entries) == 0 {
		return webhook.FanOutResult{}, nil
	}

	// After the entries are taken, never before: only so does the matcher know
	// every endpoint that was created before the youngest of them committed.
	if err := s.refresh(p.Matcher); err != nil {
		return webhook.FanOutResult{}, err
	}

	var plan []matched
	room := p.MaxDeliveries
	for _, e := range entries {
		if room == 0 {
			break
		}
		record := e.event.EventRecord
		if !p.Matcher.WantsPayload() {
			record.Payload = nil
		}
		ids, more := p.Matcher.Match(nil, &record, e.after, room)
		room -= len(ids)
		orderings := make([]webhook.Ordering, len(ids))
		for i, id := range ids {
			orderings[i] = p.Matcher.Ordering(id)
		}
		plan = append(plan, matched{entry: e, endpoints: ids, orderings: orderings, more: more})
	}
	return s.applyFanOut(p.Now, plan), nil
}

func (s *Store) holdEntries(limit int) []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	var entries []*entry
	for _, e := range s.outbox {
		if len(entries) == limit {
			break
		}
		if !e.held {
			e.held = true
			entries = append(entries, e)
		}
	}
	return entries
}

func (s *Store) releaseEntries(entries []*entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		e.held = false
	}
}

func (s *Store) refresh(m webhook.Matcher) error {
	s.mu.Lock()
	revision := s.revision
	since := m.Revision()
	var changed []webhook.EndpointRecord
	if since != revision {
		changed = s.changedSince(since)
	}
	s.mu.Unlock()
	if since == revision {
		return nil
	}
	if err := m.Apply(changed, revision); err != nil {
		return fmt.Errorf("webhooktest: bring the matcher up to revision %d: %w", revision, err)
	}
	return nil
}

func (s *Store) applyFanOut(now time.Time, plan []matched) webhook.FanOutResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	var result webhook.FanOutResult
	reached := map[uuid.UUID]bool{}
	var keys []webhook.OrderKey
	for _, m := range plan {
		result.Events++
		created := m.entry.event.CreatedAt
		if result.OldestCreatedAt.IsZero() || created.Before(result.OldestCreatedAt) {
			result.OldestCreatedAt = created
		}
		for i, endpointID := range m.endpoints {
			id := s.insertDelivery(m.entry.event, endpointID, m.orderings[i], 0, webhook.LaneFirst, now)
			if d := s.deliveries[id]; d.ordered {
				keys = append(keys, *d.order())
			}
			result.Deliveries++
			if s.cluster.health[endpointID].ShedUntil.After(now) {
				s.finish(s.deliveries[id], webhook.StateShed, webhook.ReasonShed, now)
				if result.Shed == nil {
					result.Shed = map[uuid.UUID]int{}
				}
				result.Shed[endpointID]++
				continue
			}
			if !reached[endpointID] {
				reached[endpointID] = true
				result.Endpoints = append(result.Endpoints, endpointID)
			}
		}

		s.removeEntry(m.entry)
		if m.more {
			s.moveBehind(m)
			continue
		}
		m.entry.event.fannedOut = true
		result.Finished++
		if m.entry.after == uuid.Nil && len(m.endpoints) == 0 {
			m.entry.event.unmatched = true
			result.Unmatched++
		}
	}
	for _, key := range keys {
		s.release(key, now, time.Time{})
	}
	result.More = len(s.outbox) > 0
	return result
}

func (s *Store) removeEntry(e *entry) {
	s.outbox = slices.DeleteFunc(s.outbox, func(have *entry) bool { return have == e })
}

// moveBehind lets the events that wait pass one that has endpoints left.
func (s *Store) moveBehind(m matched) {
	if n := len(m.endpoints); n > 0 {
		m.entry.after = m.endpoints[n-1]
	}
	s.sequence++
	m.entry.position = s.sequence
	s.insertEntry(m.entry)
}
