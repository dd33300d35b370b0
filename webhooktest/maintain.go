package webhooktest

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// removedAtOnce is how much is removed while everybody else waits.
const removedAtOnce = 500

// counterKey is what counters are kept by.
type counterKey struct {
	day      time.Time
	endpoint uuid.UUID
}

// duty is who does something for all, and until when.
type duty struct {
	holder uuid.UUID
	until  time.Time
}

// counters returns those of an endpoint on the day of at. The lock is held.
func (s *Store) countersOf(endpoint uuid.UUID, tenant string, at time.Time) *webhook.DayCounters {
	k := counterKey{dayOf(at), endpoint}
	c := s.counters[k]
	if c == nil {
		c = &webhook.DayCounters{Day: k.day, EndpointID: endpoint, Tenant: tenant}
		s.counters[k] = c
	}
	return c
}

func dayOf(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }

func (s *Store) countAttempt(a *webhook.Attempt) {
	c := s.countersOf(a.EndpointID, a.Tenant, a.StartedAt)
	c.Attempts++
	if a.Number > 1 {
		c.Retries++
	}
	c.LogBytes += int64(len(a.Excerpt) + len(a.Error) + len(a.Location))
}

func (s *Store) countEnd(d *delivery) {
	c := s.countersOf(d.EndpointID, d.Tenant, d.FinishedAt)
	switch d.State {
	case webhook.StateDelivered:
		c.Delivered++
	case webhook.StateDead:
		c.Dead++
	case webhook.StateCancelled:
		c.Cancelled++
	case webhook.StateShed:
		c.Shed++
	}
}

// ListCounters implements [webhook.CounterStore]. The counters here are never late.
func (s *Store) ListCounters(ctx context.Context, p webhook.ListCountersParams) ([]webhook.DayCounters, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []webhook.DayCounters
	for _, c := range s.counters {
		switch {
		case !p.Scope.Includes(c.Tenant):
		case p.EndpointID != uuid.Nil && c.EndpointID != p.EndpointID:
		case !p.From.IsZero() && c.Day.Before(dayOf(p.From)):
		case !p.Until.IsZero() && !c.Day.Before(dayOf(p.Until)):
		case !p.AfterDay.IsZero() && cmp.Or(c.Day.Compare(dayOf(p.AfterDay)), compareIDs(c.EndpointID, p.AfterEndpoint)) <= 0:
		default:
			found = append(found, *c)
		}
	}
	slices.SortFunc(found, func(a, b webhook.DayCounters) int {
		return cmp.Or(a.Day.Compare(b.Day), compareIDs(a.EndpointID, b.EndpointID))
	})
	return found[:max(0, min(len(found), p.Limit))], ctx.Err()
}

// TakeDuty implements [webhook.SystemStore].
func (s *Store) TakeDuty(ctx context.Context, p webhook.DutyParams) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if has := s.duties[p.Name]; has.holder != p.Holder && has.until.After(p.Now) {
		return false, nil
	}
	s.duties[p.Name] = duty{p.Holder, stored(p.Until)}
	return true, nil
}

// Maintain implements [webhook.SystemStore]: it removes what has been kept for long
// enough.
func (s *Store) Maintain(ctx context.Context, p webhook.MaintainParams) error {
	s.forgetFares(p)
	err := s.inBatches(ctx, s.endedBefore(p.DeliveriesBefore, p.DeadBefore), func(deliveries []uuid.UUID) {
		for _, id := range deliveries {
			delete(s.deliveries, id)
			delete(s.attempts, id)
		}
	})
	if err != nil {
		return err
	}
	s.removeReplayJobs(p.EventsBefore)
	return s.inBatches(ctx, s.createdBefore(p.EventsBefore), func(events []uuid.UUID) {
		awaited := s.awaited()
		for _, id := range events {
			e := s.events[id]
			if e == nil || awaited[id] {
				continue // gone, or needed again meanwhile
			}
			s.removeEvent(e)
		}
	})
}

// removeReplayJobs removes jobs that ended before a time.
func (s *Store) removeReplayJobs(before time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, job := range s.replayJobs {
		if !job.FinishedAt.IsZero() && job.FinishedAt.Before(before) {
			delete(s.replayJobs, id)
		}
	}
}

// endedBefore returns the finished deliveries that were delivered before one time,
// or ended otherwise before another.
func (s *Store) endedBefore(delivered, otherwise time.Time) []uuid.UUID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []uuid.UUID
	for id, d := range s.deliveries {
		before := otherwise
		if d.State == webhook.StateDelivered {
			before = delivered
		}
		if d.State.Final() && d.FinishedAt.Before(before) {
			ids = append(ids, id)
		}
	}
	return ids
}

// createdBefore returns the events of before a time that nothing waits for.
func (s *Store) createdBefore(before time.Time) []uuid.UUID {
	s.mu.Lock()
	defer s.mu.Unlock()
	awaited := s.awaited()
	var ids []uuid.UUID
	for id, e := range s.events {
		if e.CreatedAt.Before(before) && e.fannedOut && !awaited[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// awaited returns the events that have unfinished deliveries. The lock is held.
func (s *Store) awaited() map[uuid.UUID]bool {
	awaited := map[uuid.UUID]bool{}
	for _, deliveries := range s.unfinished {
		for _, d := range deliveries {
			awaited[d.EventID] = true
		}
	}
	return awaited
}

// inBatches calls remove, under the lock, for a few ids at a time, and lets others
// have the lock in between.
func (s *Store) inBatches(ctx context.Context, ids []uuid.UUID, remove func([]uuid.UUID)) error {
	for batch := range slices.Chunk(ids, removedAtOnce) {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.mu.Lock()
		remove(batch)
		s.mu.Unlock()
	}
	return ctx.Err()
}
