package storetest

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// eachBacklog makes CountBacklog be asked for something else.
func eachBacklog(change func(*webhook.BacklogRequest)) func(*store) {
	return func(s *store) {
		s.countBacklog = func(ctx context.Context, requests []webhook.BacklogRequest) ([]webhook.Backlog, error) {
			for i := range requests {
				change(&requests[i])
			}
			return s.Store.CountBacklog(ctx, requests)
		}
	}
}

func brokenShedding() []broken {
	const (
		shed   = "new deliveries to an endpoint that is shed are recorded as shed"
		limits = "counting a backlog ends at its limits"
		since  = "what became due since an instant is counted by itself"
		ends   = "shedding runs out by itself"
	)
	return []broken{
		{"counts a backlog to its end", eachBacklog(func(r *webhook.BacklogRequest) { r.Limit = plenty }), []string{limits}},
		{"counts what is new to its end", eachBacklog(func(r *webhook.BacklogRequest) { r.SinceLimit = plenty }), []string{limits}},
		{"counts from the instant on", eachBacklog(func(r *webhook.BacklogRequest) {
			if !r.Since.IsZero() {
				r.Since = r.Since.Add(-time.Microsecond)
			}
		}), []string{since}},
		{"counts all as new", eachBacklog(func(r *webhook.BacklogRequest) { r.Since = time.Unix(0, 0) }), []string{since}},
		{"leaves out what is leased", func(s *store) {
			s.countBacklog = func(ctx context.Context, requests []webhook.BacklogRequest) ([]webhook.Backlog, error) {
				counted, err := s.Store.CountBacklog(ctx, requests)
				for i, r := range requests {
					health, err := s.Store.LoadHealth(ctx, webhook.LoadHealthParams{Now: time.Now(), Endpoints: []uuid.UUID{r.EndpointID}})
					if err != nil {
						return nil, err
					}
					counted[i].Total -= health[0].Leased
				}
				return counted, err
			}
		}, []string{"a backlog is what was never attempted, leased or not"}},
		{"forgets until when an endpoint is shed", func(s *store) {
			s.saveHealth = func(ctx context.Context, health []webhook.HealthRecord) error {
				for i := range health {
					health[i].ShedUntil = time.Time{}
				}
				return s.Store.SaveHealth(ctx, health)
			}
		}, []string{"until when an endpoint is shed is stored with its health", shed, ends, "what was shed can be replayed, and is counted"}},
		{"never ends shedding", func(s *store) {
			s.saveHealth = func(ctx context.Context, health []webhook.HealthRecord) error {
				for i := range health {
					health[i].ShedUntil = health[i].ShedUntil.AddDate(1, 0, 0)
				}
				return s.Store.SaveHealth(ctx, health)
			}
		}, []string{"until when an endpoint is shed is stored with its health", ends}},
		{"says nothing of what it shed", func(s *store) {
			s.fanOut = func(ctx context.Context, p webhook.FanOutParams) (webhook.FanOutResult, error) {
				result, err := s.Store.FanOut(ctx, p)
				result.Shed = nil
				return result, err
			}
		}, []string{shed}},
		{"does not count what it shed against the limit", func(s *store) {
			s.fanOut = func(ctx context.Context, p webhook.FanOutParams) (webhook.FanOutResult, error) {
				p.MaxDeliveries++
				return s.Store.FanOut(ctx, p)
			}
		}, []string{"what is shed counts against the limit of a step"}},
	}
}
