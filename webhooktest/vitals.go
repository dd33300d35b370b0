package webhooktest

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// fares is how endpoints fare, what dispatchers did, and what is to be told.
type fares struct {
	vitals   map[uuid.UUID]webhook.VitalsRecord
	activity map[activityKey][]byte
	notices  map[uuid.UUID]*webhook.NoticeRecord
	told     map[noticeKey]bool
}

type activityKey struct {
	at         time.Time
	dispatcher uuid.UUID
}

type noticeKey struct {
	endpoint uuid.UUID
	kind     webhook.NoticeKind
	streak   time.Time
}

func keyOf(n *webhook.NoticeRecord) noticeKey {
	return noticeKey{n.EndpointID, n.Kind, stored(n.Streak)}
}

func newFares() fares {
	return fares{
		vitals:   map[uuid.UUID]webhook.VitalsRecord{},
		activity: map[activityKey][]byte{},
		notices:  map[uuid.UUID]*webhook.NoticeRecord{},
		told:     map[noticeKey]bool{},
	}
}

// LoadVitals implements [webhook.VitalsStore].
func (s *Store) LoadVitals(ctx context.Context, endpoints []uuid.UUID) ([]webhook.VitalsRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var loaded []webhook.VitalsRecord
	for _, id := range endpoints {
		if v, ok := s.fares.vitals[id]; ok {
			v.Data = slices.Clone(v.Data)
			loaded = append(loaded, v)
		}
	}
	return loaded, ctx.Err()
}

// SaveVitals implements [webhook.VitalsStore].
func (s *Store) SaveVitals(ctx context.Context, p webhook.SaveVitalsParams) ([]uuid.UUID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var stale []uuid.UUID
	saved := map[uuid.UUID]bool{}
	for _, v := range p.Vitals {
		if s.fares.vitals[v.EndpointID].Version != v.Version {
			stale = append(stale, v.EndpointID)
			continue
		}
		v.Version++
		v.Data = slices.Clone(v.Data)
		s.fares.vitals[v.EndpointID] = v
		saved[v.EndpointID] = true
	}
	for i := range p.Notices {
		if saved[p.Notices[i].EndpointID] {
			s.addNotice(&p.Notices[i])
		}
	}
	return stale, ctx.Err()
}

// ListUnwell implements [webhook.VitalsStore].
func (s *Store) ListUnwell(ctx context.Context, p webhook.ListUnwellParams) ([]uuid.UUID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []uuid.UUID
	for id, v := range s.fares.vitals {
		e := s.endpoints[id]
		if e != nil && e.DeletedAt.IsZero() && p.Scope.Includes(e.Tenant) &&
			v.Level >= max(p.Level, webhook.LevelUnsteady) && compareIDs(id, p.After) > 0 {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, compareIDs)
	return ids[:min(len(ids), max(p.Limit, 0))], ctx.Err()
}

// ReadHealth implements [webhook.HealthStore].
func (s *Store) ReadHealth(ctx context.Context, p webhook.ReadHealthParams) ([]webhook.HealthRow, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := make([]webhook.HealthRow, len(p.Endpoints))
	for i, id := range p.Endpoints {
		r := &rows[i]
		r.EndpointID = id
		r.Circuit = slices.Clone(s.cluster.health[id].State)
		r.Vitals = slices.Clone(s.fares.vitals[id].Data)
		r.Pending = min(len(s.unfinished[id]), max(p.CountUpTo, 0))
		for _, d := range s.unfinished[id] {
			due := d.NextAttemptAt
			if !due.After(p.Now) && !d.leasedAt(p.Now) && (r.OldestDueAt.IsZero() || due.Before(r.OldestDueAt)) {
				r.OldestDueAt = due
			}
		}
	}
	return rows, ctx.Err()
}

// CountEndpoints implements [webhook.HealthStore].
func (s *Store) CountEndpoints(ctx context.Context, scope webhook.Scope) (webhook.EndpointCounts, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var n webhook.EndpointCounts
	for id, e := range s.endpoints {
		if !e.DeletedAt.IsZero() || !scope.Includes(e.Tenant) {
			continue
		}
		switch e.State {
		case webhook.EndpointPaused:
			n.Paused++
		case webhook.EndpointDisabled:
			n.Disabled++
		case webhook.EndpointActive:
			n.Active++
			switch s.fares.vitals[id].Level {
			case webhook.LevelFailing:
				n.Failing++
			case webhook.LevelUnsteady:
				n.Unsteady++
			case webhook.LevelWell:
			}
		}
	}
	return n, ctx.Err()
}

// SaveActivity implements [webhook.HealthStore].
func (s *Store) SaveActivity(ctx context.Context, activity []webhook.ActivityRecord) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range activity {
		s.fares.activity[activityKey{stored(a.At), a.Dispatcher}] = slices.Clone(a.Data)
	}
	return ctx.Err()
}

// ListActivity implements [webhook.HealthStore].
func (s *Store) ListActivity(ctx context.Context, from, until time.Time) ([]webhook.ActivityRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []webhook.ActivityRecord
	for k, data := range s.fares.activity {
		if !k.at.Before(from) && k.at.Before(until) {
			found = append(found, webhook.ActivityRecord{At: k.at, Dispatcher: k.dispatcher, Data: slices.Clone(data)})
		}
	}
	slices.SortFunc(found, func(a, b webhook.ActivityRecord) int {
		return cmp.Or(a.At.Compare(b.At), compareIDs(a.Dispatcher, b.Dispatcher))
	})
	return found, ctx.Err()
}

// addNotice reports whether there was none like it. The lock is held.
func (s *Store) addNotice(n *webhook.NoticeRecord) bool {
	if s.fares.told[keyOf(n)] {
		return false
	}
	s.fares.told[keyOf(n)] = true
	kept := *n
	kept.Streak, kept.CreatedAt, kept.DueAt = stored(n.Streak), stored(n.CreatedAt), stored(n.DueAt)
	kept.Detail = slices.Clone(n.Detail)
	kept.Event = nil
	s.fares.notices[n.ID] = &kept
	if n.Event == nil {
		return true
	}
	s.sequence++
	e := &event{EventRecord: *n.Event}
	e.Sequence = s.sequence
	e.Payload = slices.Clone(n.Event.Payload)
	e.CreatedAt = stored(e.CreatedAt)
	if e.CreatedAt.IsZero() {
		e.CreatedAt = stored(s.now())
	}
	s.events[e.ID] = e
	s.insertEntry(&entry{event: e, position: e.Sequence})
	return true
}

// AddNotices implements [webhook.NoticeStore].
func (s *Store) AddNotices(ctx context.Context, notices []webhook.NoticeRecord) ([]uuid.UUID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var added []uuid.UUID
	for i := range notices {
		if s.addNotice(&notices[i]) {
			added = append(added, notices[i].ID)
		}
	}
	return added, ctx.Err()
}

// DueNotices implements [webhook.NoticeStore].
func (s *Store) DueNotices(ctx context.Context, now time.Time, limit int) ([]webhook.NoticeRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := s.noticesWhere(func(n *webhook.NoticeRecord) bool { return !n.DueAt.IsZero() && !n.DueAt.After(now) })
	slices.SortFunc(due, func(a, b webhook.NoticeRecord) int { return cmp.Or(a.DueAt.Compare(b.DueAt), compareIDs(a.ID, b.ID)) })
	return due[:min(len(due), max(limit, 0))], ctx.Err()
}

func (s *Store) noticesWhere(wanted func(*webhook.NoticeRecord) bool) []webhook.NoticeRecord {
	var found []webhook.NoticeRecord
	for _, n := range s.fares.notices {
		if wanted(n) {
			shown := *n
			shown.Detail = slices.Clone(n.Detail)
			found = append(found, shown)
		}
	}
	return found
}

// SettleNotices implements [webhook.NoticeStore].
func (s *Store) SettleNotices(ctx context.Context, notices []webhook.NoticeRecord) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range notices {
		if n := s.fares.notices[notices[i].ID]; n != nil {
			n.DueAt, n.Attempts = stored(notices[i].DueAt), notices[i].Attempts
		}
	}
	return ctx.Err()
}

// ListNotices implements [webhook.NoticeStore].
func (s *Store) ListNotices(ctx context.Context, p webhook.ListNoticesParams) ([]webhook.NoticeRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.noticesWhere(func(n *webhook.NoticeRecord) bool {
		return p.Scope.Includes(n.Tenant) && (p.EndpointID == uuid.Nil || n.EndpointID == p.EndpointID) &&
			(p.Before == uuid.Nil || compareIDs(n.ID, p.Before) < 0)
	})
	slices.SortFunc(list, func(a, b webhook.NoticeRecord) int { return compareIDs(b.ID, a.ID) })
	return list[:min(len(list), max(p.Limit, 0))], ctx.Err()
}

// forgetFares removes what is old. The lock is not held.
func (s *Store) forgetFares(p webhook.MaintainParams) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.fares.activity {
		if k.at.Before(p.ActivityBefore) {
			delete(s.fares.activity, k)
		}
	}
	for id := range s.fares.vitals {
		if e := s.endpoints[id]; e != nil && !e.DeletedAt.IsZero() && e.DeletedAt.Before(p.DeletedBefore) {
			delete(s.fares.vitals, id)
		}
	}
	for id, n := range s.fares.notices {
		if n.CreatedAt.Before(p.NoticesBefore) {
			delete(s.fares.notices, id)
			delete(s.fares.told, keyOf(n))
		}
	}
}
