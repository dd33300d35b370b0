package storetest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// eachHeartbeat makes Heartbeat return something else.
func eachHeartbeat(change func(alive []webhook.Member) []webhook.Member) func(*store) {
	return func(s *store) {
		s.heartbeat = func(ctx context.Context, p webhook.HeartbeatParams) ([]webhook.Member, error) {
			alive, err := s.Store.Heartbeat(ctx, p)
			return change(alive), err
		}
	}
}

// eachHealth makes LoadHealth return something else.
func eachHealth(change func(*webhook.HealthRecord)) func(*store) {
	return func(s *store) {
		s.loadHealth = func(ctx context.Context, p webhook.LoadHealthParams) ([]webhook.HealthRecord, error) {
			loaded, err := s.Store.LoadHealth(ctx, p)
			for i := range loaded {
				change(&loaded[i])
			}
			return loaded, err
		}
	}
}

func brokenCluster() []broken {
	return []broken{
		{"returns the dispatchers in another order", eachHeartbeat(func(alive []webhook.Member) []webhook.Member {
			slices.Reverse(alive)
			return alive
		}), []string{"a heartbeat returns who is alive, in order", "what a dispatcher serves is told to the others"}},
		{"keeps to itself what dispatchers serve", eachHeartbeat(func(alive []webhook.Member) []webhook.Member {
			for i := range alive {
				alive[i].Serves = ""
			}
			return alive
		}), []string{"what a dispatcher serves is told to the others"}},
		{"lists circuits that are no longer open", func(s *store) {
			s.listOpened = func(ctx context.Context, _ time.Time) ([]uuid.UUID, error) {
				return s.Store.ListOpened(ctx, time.Time{})
			}
		}, []string{"open circuits are listed"}},
		{"lists splits that are over", func(s *store) {
			s.listSplits = func(ctx context.Context, _ time.Time) ([]webhook.HostSplit, error) {
				return s.Store.ListSplits(ctx, time.Time{})
			}
		}, []string{"a split is listed until it is over"}},
		{"lets a renewal win over a failure", func(s *store) {
			s.saveSplit = func(ctx context.Context, split webhook.HostSplit) error {
				list, err := s.Store.ListSplits(ctx, time.Time{})
				for _, have := range list {
					if split.NotBefore.Before(have.NotBefore) {
						split.NotBefore = have.NotBefore
					}
				}
				return errors.Join(err, s.Store.SaveSplit(ctx, split))
			}
		}, []string{"the later failure wins, then the later end"}},
		{"never forgets a dispatcher", func(s *store) {
			s.heartbeat = func(ctx context.Context, p webhook.HeartbeatParams) ([]webhook.Member, error) {
				p.DeadBefore = time.Time{}
				return s.Store.Heartbeat(ctx, p)
			}
		}, []string{"a dispatcher that is not heard of is forgotten"}},
		{"forgets a dispatcher too soon", func(s *store) {
			s.heartbeat = func(ctx context.Context, p webhook.HeartbeatParams) ([]webhook.Member, error) {
				p.DeadBefore = p.Now.Add(-time.Second)
				return s.Store.Heartbeat(ctx, p)
			}
		}, []string{"a dispatcher that is not heard of is forgotten"}},
		{"keeps a dispatcher that left", func(s *store) {
			s.leave = func(context.Context, uuid.UUID) error { return nil }
		}, []string{"a dispatcher that leaves is forgotten at once"}},
		{"re-encodes the state", eachHealth(func(h *webhook.HealthRecord) {
			h.State = bytes.ReplaceAll(h.State, []byte(" "), nil)
		}), []string{"health is stored byte for byte, the latest wins"}},
		{"lets what is older win", func(s *store) {
			s.saveHealth = func(ctx context.Context, health []webhook.HealthRecord) error {
				for _, h := range health {
					h.UpdatedAt = time.Now()
					if err := s.Store.SaveHealth(ctx, []webhook.HealthRecord{h}); err != nil {
						return err
					}
				}
				return nil
			}
		}, []string{"health is stored byte for byte, the latest wins"}},
		{"leaves out what is not stored", func(s *store) {
			s.loadHealth = func(ctx context.Context, p webhook.LoadHealthParams) ([]webhook.HealthRecord, error) {
				loaded, err := s.Store.LoadHealth(ctx, p)
				return slices.DeleteFunc(loaded, func(h webhook.HealthRecord) bool { return h.UpdatedAt.IsZero() }), err
			}
		}, []string{"nothing stored is a zero time", "valid leases are counted, whoever has them"}},
		{"counts leases that are over", func(s *store) {
			s.loadHealth = func(ctx context.Context, p webhook.LoadHealthParams) ([]webhook.HealthRecord, error) {
				p.Now = time.Time{}
				return s.Store.LoadHealth(ctx, p)
			}
		}, []string{"valid leases are counted, whoever has them"}},
		{"gives the probe to everybody", func(s *store) {
			s.takeProbes = func(context.Context, webhook.TakeProbesParams) (map[uuid.UUID]time.Time, error) {
				return nil, nil
			}
		}, []string{"one dispatcher at a time gets the probe", "of many that want the probe at once one gets it"}},
		{"never gives the probe again", func(s *store) {
			s.takeProbes = func(ctx context.Context, p webhook.TakeProbesParams) (map[uuid.UUID]time.Time, error) {
				p.Now = time.Time{}
				return s.Store.TakeProbes(ctx, p)
			}
		}, []string{"one dispatcher at a time gets the probe"}},
	}
}
