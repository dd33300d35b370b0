package storetest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// eachMaintain makes Maintain do something else than it was told to.
func eachMaintain(change func(*webhook.MaintainParams)) func(*store) {
	return func(s *store) {
		s.maintain = func(ctx context.Context, p webhook.MaintainParams) error {
			change(&p)
			return s.Store.Maintain(ctx, p)
		}
	}
}

// eachCounter makes ListCounters return something else, knowing how often the store
// was maintained and whether something was removed.
func eachCounter(change func(c []webhook.DayCounters, maintained int, removed bool) []webhook.DayCounters) func(*store) {
	return func(s *store) {
		var calls atomic.Int32
		var removed atomic.Bool
		s.maintain = func(ctx context.Context, p webhook.MaintainParams) error {
			calls.Add(1)
			if !p.DeliveriesBefore.IsZero() {
				removed.Store(true)
			}
			return s.Store.Maintain(ctx, p)
		}
		s.listCounters = func(ctx context.Context, p webhook.ListCountersParams) ([]webhook.DayCounters, error) {
			found, err := s.Store.ListCounters(ctx, p)
			return change(found, int(calls.Load()), removed.Load()), err
		}
	}
}

// listCountersOf makes ListCounters look for something else.
func listCountersOf(change func(*webhook.ListCountersParams)) func(*store) {
	return func(s *store) {
		s.listCounters = func(ctx context.Context, p webhook.ListCountersParams) ([]webhook.DayCounters, error) {
			change(&p)
			return s.Store.ListCounters(ctx, p)
		}
	}
}

// remembersMaintenance calls what it is given with the store and the last time
// before which it was told to remove something.
func remembersMaintenance(of func(webhook.MaintainParams) time.Time, breaking func(s *store, before func() time.Time)) func(*store) {
	return func(s *store) {
		var before atomic.Pointer[time.Time]
		before.Store(new(time.Time))
		s.maintain = func(ctx context.Context, p webhook.MaintainParams) error {
			at := of(p)
			before.Store(&at)
			return s.Store.Maintain(ctx, p)
		}
		breaking(s, func() time.Time { return *before.Load() })
	}
}

func brokenRetention() []broken {
	return []broken{
		{"removes nothing", func(s *store) {
			s.maintain = func(ctx context.Context, _ webhook.MaintainParams) error { return ctx.Err() }
		}, []string{
			"delivered and dead deliveries are removed after their own time, with their attempts",
			"an event is removed with its key when nothing waits for it",
			"much is removed in one call, and what is cancelled goes on with the next",
		}},
		{"removes dead deliveries as soon as delivered ones", eachMaintain(func(p *webhook.MaintainParams) {
			if p.DeadBefore.Before(p.DeliveriesBefore) {
				p.DeadBefore = p.DeliveriesBefore
			}
		}), []string{
			"delivered and dead deliveries are removed after their own time, with their attempts",
			"attempts live as long as their delivery",
		}},
		{"removes everything when it is not told from when", eachMaintain(func(p *webhook.MaintainParams) {
			if p.DeliveriesBefore.IsZero() {
				p.DeliveriesBefore = p.Now
			}
		}), []string{"what is young is kept, and with a zero time everything is"}},
		{"removes attempts by their own age", remembersMaintenance(
			func(p webhook.MaintainParams) time.Time { return p.DeliveriesBefore },
			func(s *store, before func() time.Time) {
				s.listAttempts = func(ctx context.Context, scope webhook.Scope, id uuid.UUID) ([]webhook.Attempt, error) {
					attempts, err := s.Store.ListAttempts(ctx, scope, id)
					var young []webhook.Attempt
					for _, a := range attempts {
						if !a.StartedAt.Before(before()) {
							young = append(young, a)
						}
					}
					return young, err
				}
			}), []string{"attempts live as long as their delivery"}},
		{"keeps attempts of what is gone", func(s *store) {
			s.listAttempts = func(ctx context.Context, scope webhook.Scope, id uuid.UUID) ([]webhook.Attempt, error) {
				if _, err := s.Store.GetDelivery(ctx, scope, id); err != nil {
					return []webhook.Attempt{{DeliveryID: id}}, nil
				}
				return s.Store.ListAttempts(ctx, scope, id)
			}
		}, []string{"delivered and dead deliveries are removed after their own time, with their attempts"}},
		{"removes events by their age alone", remembersMaintenance(
			func(p webhook.MaintainParams) time.Time { return p.EventsBefore },
			func(s *store, before func() time.Time) {
				s.getEvent = func(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.EventStatus, error) {
					e, err := s.Store.GetEvent(ctx, scope, id)
					if e.CreatedAt.Before(before()) {
						return webhook.EventStatus{}, webhook.ErrNotFound
					}
					return e, err
				}
			}), []string{"an event that something waits for is never removed"}},
		{"goes on when it is told to end", func(s *store) {
			s.maintain = func(ctx context.Context, p webhook.MaintainParams) error {
				return s.Store.Maintain(context.WithoutCancel(ctx), p)
			}
		}, []string{"much is removed in one call, and what is cancelled goes on with the next"}},
		{"counts a day each time", eachCounter(func(c []webhook.DayCounters, maintained int, _ bool) []webhook.DayCounters {
			for i := range c {
				c[i].Attempts *= int64(maintained)
			}
			return c
		}), []string{"counters tell what happened, per endpoint and day, however often they are made"}},
		{"counts what is left", eachCounter(func(c []webhook.DayCounters, _ int, removed bool) []webhook.DayCounters {
			if removed {
				return nil
			}
			return c
		}), []string{
			"counters tell what happened, per endpoint and day, however often they are made",
			"what is removed was counted before",
		}},
		{
			"lists the counters of every tenant", listCountersOf(func(p *webhook.ListCountersParams) { p.Scope = webhook.AllTenants() }),
			[]string{"counters are listed by tenant, endpoint and day, in pages"},
		},
		{"lists the counters of the last day as well", listCountersOf(func(p *webhook.ListCountersParams) {
			if !p.Until.IsZero() {
				p.Until = p.Until.Add(day)
			}
		}), []string{"counters are listed by tenant, endpoint and day, in pages"}},
		{"gives a duty to everybody", func(s *store) {
			s.takeDuty = func(context.Context, webhook.DutyParams) (bool, error) { return true, nil }
		}, []string{"one at a time has a duty", "of many that want a duty at once one gets it"}},
		{"does not let a duty be prolonged", func(s *store) {
			s.takeDuty = func(ctx context.Context, p webhook.DutyParams) (bool, error) {
				p.Holder = newID()
				return s.Store.TakeDuty(ctx, p)
			}
		}, []string{"one at a time has a duty"}},
	}
}
