package webhooktest

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

var _ webhook.ClusterStore = (*Store)(nil)

// cluster is what dispatchers share.
type cluster struct {
	beats  map[uuid.UUID]time.Time // dispatcher → last heard of
	health map[uuid.UUID]webhook.HealthRecord
	probes map[uuid.UUID]time.Time // endpoint → until when the probe is taken
}

func newCluster() cluster {
	return cluster{
		beats:  map[uuid.UUID]time.Time{},
		health: map[uuid.UUID]webhook.HealthRecord{},
		probes: map[uuid.UUID]time.Time{},
	}
}

// Heartbeat implements [webhook.ClusterStore].
func (s *Store) Heartbeat(ctx context.Context, p webhook.HeartbeatParams) ([]uuid.UUID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cluster.beats[p.Dispatcher] = stored(p.Now)
	var alive []uuid.UUID
	for id, at := range s.cluster.beats {
		if at.Before(p.DeadBefore) {
			delete(s.cluster.beats, id)
			continue
		}
		alive = append(alive, id)
	}
	slices.SortFunc(alive, compareIDs)
	return alive, ctx.Err()
}

// Leave implements [webhook.ClusterStore].
func (s *Store) Leave(ctx context.Context, dispatcher uuid.UUID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.cluster.beats, dispatcher)
	return ctx.Err()
}

// SaveHealth implements [webhook.ClusterStore].
func (s *Store) SaveHealth(ctx context.Context, health []webhook.HealthRecord) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range health {
		h.UpdatedAt = stored(h.UpdatedAt)
		h.ShedUntil = stored(h.ShedUntil)
		if s.cluster.health[h.EndpointID].UpdatedAt.After(h.UpdatedAt) {
			continue
		}
		h.State = slices.Clone(h.State)
		h.Leased = 0
		s.cluster.health[h.EndpointID] = h
		delete(s.cluster.probes, h.EndpointID)
	}
	return ctx.Err()
}

// LoadHealth implements [webhook.ClusterStore].
func (s *Store) LoadHealth(ctx context.Context, p webhook.LoadHealthParams) ([]webhook.HealthRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	loaded := make([]webhook.HealthRecord, 0, len(p.Endpoints))
	for _, id := range p.Endpoints {
		h := s.cluster.health[id]
		h.EndpointID = id
		h.State = slices.Clone(h.State)
		for _, d := range s.unfinished[id] {
			if d.leasedAt(p.Now) {
				h.Leased++
			}
		}
		loaded = append(loaded, h)
	}
	return loaded, ctx.Err()
}

// TakeProbes implements [webhook.ClusterStore].
func (s *Store) TakeProbes(ctx context.Context, p webhook.TakeProbesParams) (map[uuid.UUID]time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := map[uuid.UUID]time.Time{}
	for _, id := range p.Endpoints {
		if until := s.cluster.probes[id]; until.After(p.Now) {
			held[id] = until
			continue
		}
		s.cluster.probes[id] = stored(p.Until)
	}
	return held, ctx.Err()
}
