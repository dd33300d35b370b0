package storetest

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

func eachCancelDelivery(change func(*store, *webhook.CancelDeliveryParams)) func(*store) {
	return func(s *store) {
		s.cancelDelivery = func(ctx context.Context, p webhook.CancelDeliveryParams) (bool, error) {
			change(s, &p)
			return s.Store.CancelDelivery(ctx, p)
		}
	}
}

func eachHasten(change func(*webhook.HastenDeliveryParams)) func(*store) {
	return func(s *store) {
		s.hastenDelivery = func(ctx context.Context, p webhook.HastenDeliveryParams) (bool, error) {
			change(&p)
			return s.Store.HastenDelivery(ctx, p)
		}
	}
}

// startsAnyway begins a run where the store would refuse to.
func startsAnyway(refusal error) func(*store) {
	return func(s *store) {
		s.startRun = func(ctx context.Context, p webhook.StartRunParams) (uuid.UUID, bool, error) {
			id, started, err := s.Store.StartRun(ctx, p)
			if err == refusal { //nolint:errorlint // the very one
				return uuid.New(), true, nil
			}
			return id, started, err
		}
	}
}

func brokenActions() []broken {
	return []broken{
		{"logs no attempt of a test", func(s *store) {
			s.logTest = func(ctx context.Context, p webhook.LogTestParams) error {
				p.Attempt.DeliveryID = newID()
				p.Attempt.Status = 0
				return s.Store.LogTest(ctx, p)
			}
		}, []string{"a test is in the log, and nowhere else"}},
		{
			"forgets why a delivery was cancelled", eachCancelDelivery(func(_ *store, p *webhook.CancelDeliveryParams) { p.Reason = "" }),
			[]string{"a delivery that is cancelled is finished for the reason given"},
		},
		{"cancels nothing that is in flight", func(s *store) {
			s.cancelDelivery = func(ctx context.Context, p webhook.CancelDeliveryParams) (bool, error) {
				if d, err := s.Store.GetDelivery(ctx, p.Scope, p.DeliveryID); err != nil || d.State == webhook.StateInFlight {
					return false, nil
				}
				return s.Store.CancelDelivery(ctx, p)
			}
		}, []string{"a delivery that is cancelled in flight ends, and its result is late"}},
		{
			"cancels deliveries of every tenant", eachCancelDelivery(func(_ *store, p *webhook.CancelDeliveryParams) { p.Scope = webhook.AllTenants() }),
			[]string{"what is finished, foreign or unknown is not cancelled"},
		},
		{"says of everything that it is cancelled", func(s *store) {
			s.cancelDelivery = func(ctx context.Context, p webhook.CancelDeliveryParams) (bool, error) {
				_, err := s.Store.CancelDelivery(ctx, p)
				return true, err
			}
		}, []string{"what is finished, foreign or unknown is not cancelled"}},
		{"hastens nothing", func(s *store) {
			s.hastenDelivery = func(context.Context, webhook.HastenDeliveryParams) (bool, error) { return true, nil }
		}, []string{"a hastened delivery is due at once, in its lane", "what is in flight, finished, foreign or unknown is not hastened"}},
		{"makes what is due before due at the given time", func(s *store) {
			s.getDelivery = func(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.Delivery, error) {
				d, err := s.Store.GetDelivery(ctx, scope, id)
				d.NextAttemptAt = d.NextAttemptAt.Add(time.Hour)
				return d, err
			}
		}, []string{"what is due already keeps its place when it is hastened"}},
		{
			"hastens deliveries of every tenant", eachHasten(func(p *webhook.HastenDeliveryParams) { p.Scope = webhook.AllTenants() }),
			[]string{"what is in flight, finished, foreign or unknown is not hastened"},
		},
		{
			"hastens what is under a lease", eachHasten(func(p *webhook.HastenDeliveryParams) { p.Now = p.Now.Add(24 * time.Hour) }),
			[]string{"what is in flight, finished, foreign or unknown is not hastened"},
		},
		{"begins a replay as a first delivery", func(s *store) {
			s.getDelivery = func(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.Delivery, error) {
				d, err := s.Store.GetDelivery(ctx, scope, id)
				d.Run = max(0, d.Run-1)
				return d, err
			}
		}, []string{
			"a replay is a further run in its own lane, and the runs before stay",
			"an event can be replayed to an endpoint that never had it",
		}},
		{"says of every replay that it began a run", func(s *store) {
			s.startRun = func(ctx context.Context, p webhook.StartRunParams) (uuid.UUID, bool, error) {
				id, _, err := s.Store.StartRun(ctx, p)
				return id, true, err
			}
		}, []string{"while a run is unfinished a replay is that run", "of many replays at once one begins a run"}},
		{
			"replays across tenants", startsAnyway(webhook.ErrNotFound),
			[]string{"nothing is replayed across tenants, nor to what is not there"},
		},
		{"replays outside of the scope", func(s *store) {
			s.startRun = func(ctx context.Context, p webhook.StartRunParams) (uuid.UUID, bool, error) {
				p.Scope = webhook.AllTenants()
				return s.Store.StartRun(ctx, p)
			}
		}, []string{"nothing is replayed across tenants, nor to what is not there"}},
		{
			"replays to disabled endpoints", startsAnyway(webhook.ErrEndpointDisabled),
			[]string{"a disabled endpoint refuses a replay, a paused one takes it"},
		},
	}
}
