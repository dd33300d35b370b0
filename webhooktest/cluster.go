package webhooktest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

var (
	_ webhook.ClusterStore = (*Store)(nil)
	_ webhook.SplitStore   = (*Store)(nil)
)

// cluster is what dispatchers share.
type cluster struct {
	beats  map[uuid.UUID]time.Time // dispatcher → last heard of
	serves map[uuid.UUID]string    // dispatcher →
	splits map[string]webhook.HostSplit
	health map[uuid.UUID]webhook.HealthRecord
	probes map[uuid.UUID]time.Time // endpoint → until when the probe is taken
}

func newCluster() cluster {
	return cluster{
		beats:  map[uuid.UUID]time.Time{},
		serves: map[uuid.UUID]string{},
		splits: map[string]webhook.HostSplit{},
		health: map[uuid.UUID]webhook.HealthRecord{},
		probes: map[uuid.UUID]time.Time{},
	}
}

// Heartbeat implements [webhook.ClusterStore].
func (s *Store) Heartbeat(ctx context.Context, p webhook.HeartbeatParams) ([]webhook.Member, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cluster.beats[p.Dispatcher] = stored(p.Now)
	s.cluster.serves[p.Dispatcher] = p.Serves
	var alive []webhook.Member
	for id, at := range s.cluster.beats {
		if at.Before(p.DeadBefore) {
			delete(s.cluster.beats, id)
			continue
		}
		alive = append(alive, webhook.Member{ID: id, Serves: s.cluster.serves[id]})
	}
	slices.SortFunc(alive, func(a, b webhook.Member) int { return compareIDs(a.ID, b.ID) })
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
		h.OpenUntil = stored(h.OpenUntil)
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

// ListOpened implements [webhook.ClusterStore].
func (s *Store) ListOpened(ctx context.Context, now time.Time) ([]uuid.UUID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var opened []uuid.UUID
	for id, h := range s.cluster.health {
		if h.OpenUntil.After(now) {
			opened = append(opened, id)
		}
	}
	return opened, ctx.Err()
}

// SaveSplit implements [webhook.SplitStore].
func (s *Store) SaveSplit(ctx context.Context, split webhook.HostSplit) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	split.Until, split.NotBefore = stored(split.Until), stored(split.NotBefore)
	have := s.cluster.splits[split.Host]
	if order := split.NotBefore.Compare(have.NotBefore); order > 0 || order == 0 && !split.Until.Before(have.Until) {
		s.cluster.splits[split.Host] = split
	}
	return ctx.Err()
}

// ListSplits implements [webhook.SplitStore].
func (s *Store) ListSplits(ctx context.Context, now time.Time) ([]webhook.HostSplit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var splits []webhook.HostSplit
	for _, split := range s.cluster.splits {
		if split.Until.After(now) || split.NotBefore.After(now) {
			splits = append(splits, split)
		}
	}
	slices.SortFunc(splits, func(a, b webhook.HostSplit) int { return strings.Compare(a.Host, b.Host) })
	return splits, ctx.Err()
}
