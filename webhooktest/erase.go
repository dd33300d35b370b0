package webhooktest

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// EraseTenant implements [webhook.EraseStore].
func (s *Store) EraseTenant(ctx context.Context, p webhook.EraseTenantParams) (webhook.EraseProgress, error) {
	if err := ctx.Err(); err != nil {
		return webhook.EraseProgress{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	removed, held := 0, false
	gone := func(endpoint uuid.UUID) bool {
		e := s.endpoints[endpoint]
		return e == nil || !e.DeletedAt.IsZero()
	}
	for id, d := range s.deliveries {
		switch {
		case d.Tenant != p.Tenant || !gone(d.EndpointID):
		case removed == p.Limit:
			return webhook.EraseProgress{Removed: removed}, nil
		case d.leasedAt(p.Now):
			held = true
		default:
			delete(s.deliveries, id)
			delete(s.unfinished[d.EndpointID], id)
			delete(s.attempts, id)
			removed++
		}
	}
	if held {
		return webhook.EraseProgress{Removed: removed}, nil
	}
	for _, e := range s.events {
		if e.Tenant != p.Tenant {
			continue
		}
		if removed == p.Limit {
			return webhook.EraseProgress{Removed: removed}, nil
		}
		s.removeEvent(e)
		s.outbox = slices.DeleteFunc(s.outbox, func(o *entry) bool { return o.event == e && !o.held })
		removed++
	}
	maps.DeleteFunc(s.replayJobs, func(_ uuid.UUID, j *replayJob) bool { return j.Tenant == p.Tenant })
	maps.DeleteFunc(s.fares.notices, func(_ uuid.UUID, n *webhook.NoticeRecord) bool { return n.Tenant == p.Tenant })
	if p.Counters {
		maps.DeleteFunc(s.counters, func(_ counterKey, c *webhook.DayCounters) bool { return c.Tenant == p.Tenant })
	}
	done := true
	for id, e := range s.endpoints {
		if e.Tenant != p.Tenant {
			continue
		}
		if e.DeletedAt.IsZero() {
			done = false
			continue
		}
		if e.URL != "" {
			removed++
		}
		delete(s.fares.vitals, id)
		delete(s.cluster.health, id)
		maps.DeleteFunc(s.orderHolds, func(k webhook.OrderKey, _ time.Time) bool { return k.EndpointID == id })
		*e = webhook.EndpointRecord{
			ID: e.ID, Tenant: e.Tenant, State: e.State, Revision: e.Revision,
			CreatedAt: e.CreatedAt, UpdatedAt: e.UpdatedAt, DeletedAt: e.DeletedAt,
		}
	}
	return webhook.EraseProgress{Removed: removed, Done: done}, nil
}
