package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// withOrdering makes the store keep endpoints with another ordering.
func withOrdering(change func(webhook.Ordering) webhook.Ordering) func(*store) {
	return func(s *store) {
		s.createEndpoint = func(ctx context.Context, e webhook.EndpointRecord) (webhook.EndpointRecord, error) {
			e.Ordering = change(e.Ordering)
			return s.Store.CreateEndpoint(ctx, e)
		}
	}
}

// withoutOrder makes results leave the turn to ReleaseOrdered.
func withoutOrder(s *store) {
	s.record = func(ctx context.Context, p webhook.RecordParams) (webhook.RecordResult, error) {
		p.Results = slices.Clone(p.Results)
		for i := range p.Results {
			p.Results[i].Order = nil
		}
		return s.Store.Record(ctx, p)
	}
}

func eachRelease(change func(*webhook.ReleaseOrderedParams)) func(*store) {
	return func(s *store) {
		s.releaseOrdered = func(ctx context.Context, p webhook.ReleaseOrderedParams) (webhook.ReleaseOrderedResult, error) {
			change(&p)
			return s.Store.ReleaseOrdered(ctx, p)
		}
	}
}

func eachReleased(change func(*webhook.ReleaseOrderedResult)) func(*store) {
	return func(s *store) {
		s.releaseOrdered = func(ctx context.Context, p webhook.ReleaseOrderedParams) (webhook.ReleaseOrderedResult, error) {
			r, err := s.Store.ReleaseOrdered(ctx, p)
			change(&r)
			return r, err
		}
	}
}

func eachDelivery(change func(*webhook.Delivery)) func(*store) {
	return func(s *store) {
		s.getDelivery = func(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.Delivery, error) {
			d, err := s.Store.GetDelivery(ctx, scope, id)
			change(&d)
			return d, err
		}
		s.listDeliveries = func(ctx context.Context, p webhook.ListDeliveriesParams) (webhook.DeliveryListing, error) {
			list, err := s.Store.ListDeliveries(ctx, p)
			for i := range list.Deliveries {
				change(&list.Deliveries[i])
			}
			return list, err
		}
	}
}

func brokenOrder() []broken {
	return []broken{
		{"keeps no order", withOrdering(func(webhook.Ordering) webhook.Ordering { return webhook.OrderingNone }), []string{
			"one delivery of a key at a time is claimable, in the order of enqueuing",
			"a failed delivery keeps its turn",
			"keys do not wait for one another, and neither does what has none",
			"an ordering per endpoint keeps all events in order",
			"one that waits for its turn says so",
			"nothing goes before an earlier event that waits for fan-out",
			"an earlier event that only partly reached its endpoints holds up the others",
			"a crash keeps the order: the expired lease is taken over, and nothing else",
			"cancelling one that waits changes no turn",
			"hastening one that waits does not let it pass",
			"a replay takes its place by its event, and passes nothing in flight",
			"one in flight is never overtaken",
		}},
		{"cancels nothing", func(s *store) {
			s.cancelDelivery = func(context.Context, webhook.CancelDeliveryParams) (bool, error) { return true, nil }
		}, []string{
			"cancelling whose turn it is gives the turn to the next",
			"cancelling one that waits changes no turn",
		}},
		{"orders all events of an endpoint alike", withOrdering(func(o webhook.Ordering) webhook.Ordering {
			if o == webhook.OrderingPerResource {
				return webhook.OrderingPerEndpoint
			}
			return o
		}), []string{
			"keys do not wait for one another, and neither does what has none",
			"one delivery of a key at a time is claimable, in the order of enqueuing",
		}},
		{"gives no turn when a delivery ends", withoutOrder, []string{
			"one delivery of a key at a time is claimable, in the order of enqueuing",
			"a failed delivery keeps its turn",
		}},
		{"finds no turn", func(s *store) {
			s.releaseOrdered = func(context.Context, webhook.ReleaseOrderedParams) (webhook.ReleaseOrderedResult, error) {
				return webhook.ReleaseOrderedResult{}, nil
			}
		}, []string{
			"a turn that a result left free is found",
			"keys are looked at page by page",
			"after the hold the next passes, marked, and the others after it",
			"one that was overtaken goes first when it is due, and lets others pass when it fails again",
			"an endpoint that was paused begins its hold anew",
			"cancelling what is in flight keeps the next until it cannot be on its way",
		}},
		{"looks at all keys at once", eachRelease(func(p *webhook.ReleaseOrderedParams) { p.Limit = plenty }), []string{"keys are looked at page by page"}},
		{"says that there are no more keys", eachReleased(func(r *webhook.ReleaseOrderedResult) { r.More = false }), []string{"keys are looked at page by page"}},
		{"does not tell what it released", eachReleased(func(r *webhook.ReleaseOrderedResult) { r.Released = nil }), []string{"a turn that a result left free is found"}},
		{"holds nothing up for long", eachRelease(func(p *webhook.ReleaseOrderedParams) { p.HeldBefore = p.Now }), []string{
			"after the hold the next passes, marked, and the others after it",
			"an endpoint that was paused begins its hold anew",
		}},
		{"forgets holds", eachRelease(func(p *webhook.ReleaseOrderedParams) { p.HeldBefore = time.Time{} }), []string{
			"after the hold the next passes, marked, and the others after it",
			"one that was overtaken goes first when it is due, and lets others pass when it fails again",
		}},
		{"does not mark what passes", eachClaimed(func(c *webhook.Claimed) { c.OrderingSkipped = false }), []string{
			"after the hold the next passes, marked, and the others after it",
			"one that was overtaken goes first when it is due, and lets others pass when it fails again",
		}},
		{"marks everything as skipped", eachClaimed(func(c *webhook.Claimed) { c.OrderingSkipped = true }), []string{
			"one delivery of a key at a time is claimable, in the order of enqueuing",
			"after the hold the next passes, marked, and the others after it",
		}},
		{"forgets the mark in the list", eachDelivery(func(d *webhook.Delivery) { d.OrderingSkipped = false }), []string{"after the hold the next passes, marked, and the others after it"}},
		{"does not say what waits", eachDelivery(func(d *webhook.Delivery) { d.AwaitsTurn = false }), []string{"one that waits for its turn says so"}},
		{"lists what waits as ready", func(s *store) {
			s.ready = func(ctx context.Context, p webhook.ReadyParams) ([]webhook.ReadyLane, error) {
				ready, err := s.Store.Ready(ctx, p)
				for _, r := range slices.Clone(ready) {
					r.Lane = webhook.LaneRetry
					ready = append(ready, r)
				}
				return ready, err
			}
		}, []string{"one that waits for its turn says so"}},
		{"claims what waits", func(s *store) {
			s.claim = func(ctx context.Context, p webhook.ClaimParams) ([]webhook.Claimed, error) {
				for _, r := range slices.Clone(p.Requests) {
					r.Lane = webhook.LaneWaiting
					p.Requests = append(p.Requests, r)
				}
				return s.Store.Claim(ctx, p)
			}
		}, []string{
			"one delivery of a key at a time is claimable, in the order of enqueuing",
			"nothing goes before an earlier event that waits for fan-out",
			"cancelling what is in flight keeps the next until it cannot be on its way",
			"several processes never have two of a key in flight, nor out of order",
		}},
		{"tells of no order", eachClaimed(func(c *webhook.Claimed) { c.Order = nil }), []string{
			"one delivery of a key at a time is claimable, in the order of enqueuing",
			"keys do not wait for one another, and neither does what has none",
		}},
		{"begins no replays", func(s *store) {
			s.startRun = func(ctx context.Context, p webhook.StartRunParams) (uuid.UUID, bool, error) {
				return uuid.New(), true, nil
			}
		}, []string{
			"a replay to an ordered endpoint that nothing waits for goes at once",
			"a replay takes its place by its event, and passes nothing in flight",
		}},
		{"keeps an ordering for ever", func(s *store) {
			s.updateEndpoint = func(ctx context.Context, e webhook.EndpointRecord) (webhook.EndpointRecord, error) {
				old, err := s.Store.GetEndpoint(ctx, webhook.AllTenants(), e.ID)
				if err != nil {
					return webhook.EndpointRecord{}, err
				}
				e.Ordering = old.Ordering
				return s.Store.UpdateEndpoint(ctx, e)
			}
		}, []string{"an ordering that is changed holds for new deliveries, and the old ones drain in theirs"}},
	}
}

func brokenEndings() []broken {
	const counted = "what ends as unknown is counted by endpoint, and may be given time"
	eachOverdue := func(change func(*webhook.EndOverdueParams)) func(*store) {
		return func(s *store) {
			s.endOverdue = func(ctx context.Context, p webhook.EndOverdueParams) (webhook.EndOverdueResult, error) {
				change(&p)
				return s.Store.EndOverdue(ctx, p)
			}
		}
	}
	return []broken{
		{"marks nothing as sent", func(s *store) {
			s.markSent = func(context.Context, webhook.MarkSentParams) ([]uuid.UUID, error) { return nil, nil }
		}, []string{
			"what is marked as sent is claimed by nobody after its lease, and ends as unknown",
			"a result that comes after the end as unknown is late, and in the log",
			"a lease that is lost marks nothing", counted,
			"no more end as unknown than the limit",
		}},
		{"ends nothing as unknown", func(s *store) {
			s.endUnknown = func(context.Context, webhook.EndUnknownParams) ([]webhook.EndedDeliveries, error) { return nil, nil }
		}, []string{counted, "what is marked as sent is claimed by nobody after its lease, and ends as unknown", "no more end as unknown than the limit"}},
		{"ends all that are unknown at once", func(s *store) {
			s.endUnknown = func(ctx context.Context, p webhook.EndUnknownParams) ([]webhook.EndedDeliveries, error) {
				p.Limit = plenty
				return s.Store.EndUnknown(ctx, p)
			}
		}, []string{"no more end as unknown than the limit"}},
		{"ends what is sent before its lease does", func(s *store) {
			s.endUnknown = func(ctx context.Context, p webhook.EndUnknownParams) ([]webhook.EndedDeliveries, error) {
				p.ExpiredBefore = p.ExpiredBefore.Add(time.Minute)
				return s.Store.EndUnknown(ctx, p)
			}
		}, []string{counted, "what is marked as sent is claimed by nobody after its lease, and ends as unknown"}},
		{"counts what ended as unknown for one endpoint", func(s *store) {
			s.endUnknown = func(ctx context.Context, p webhook.EndUnknownParams) ([]webhook.EndedDeliveries, error) {
				ended, err := s.Store.EndUnknown(ctx, p)
				for i := range ended {
					ended[0].Deliveries += ended[i].Deliveries * min(i, 1)
				}
				return ended[:min(len(ended), 1)], err
			}
		}, []string{counted}},
		{"keeps the mark", func(s *store) {
			marked := map[uuid.UUID]bool{}
			s.markSent = func(ctx context.Context, p webhook.MarkSentParams) ([]uuid.UUID, error) {
				for _, l := range p.Leases {
					marked[l.DeliveryID] = true
				}
				return s.Store.MarkSent(ctx, p)
			}
			s.claim = func(ctx context.Context, p webhook.ClaimParams) ([]webhook.Claimed, error) {
				claimed, err := s.Store.Claim(ctx, p)
				return slices.DeleteFunc(claimed, func(c webhook.Claimed) bool { return marked[c.DeliveryID] }), err
			}
		}, []string{"a result takes the mark away"}},
		{"marks under any lease", func(s *store) {
			s.markSent = func(ctx context.Context, p webhook.MarkSentParams) ([]uuid.UUID, error) {
				_, err := s.Store.MarkSent(ctx, p)
				return nil, err
			}
		}, []string{"a lease that is lost marks nothing"}},
		{"ends what has never been attempted", eachOverdue(func(p *webhook.EndOverdueParams) { p.Unattempted = true }), []string{"what began before a time and has been attempted ends, and nothing else"}},
		{"ends whatever is due", eachOverdue(func(p *webhook.EndOverdueParams) { p.BegunBefore = p.Now }), []string{"what began before a time and has been attempted ends, and nothing else"}},
		{"ends what is in flight", func(s *store) {
			h := watchClaims(s)
			s.endOverdue = func(ctx context.Context, p webhook.EndOverdueParams) (webhook.EndOverdueResult, error) {
				h.mu.Lock()
				for _, lease := range h.held {
					_, _ = s.Store.Record(ctx, webhook.RecordParams{Now: p.Now, Results: []webhook.Result{{Lease: lease, State: webhook.StatePending, NextAttemptAt: p.Now, Lane: p.Lane}}})
				}
				h.mu.Unlock()
				return s.Store.EndOverdue(ctx, p)
			}
		}, []string{"what is in flight does not end for its window"}},
		{"looks at all that are overdue", eachOverdue(func(p *webhook.EndOverdueParams) { p.Limit = plenty }), []string{"overdue deliveries are looked at page by page"}},
	}
}
