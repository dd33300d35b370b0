package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// claimParams makes Claim work with other parameters than those given.
func claimParams(change func(*webhook.ClaimParams)) func(*store) {
	return func(s *store) {
		s.claim = func(ctx context.Context, p webhook.ClaimParams) ([]webhook.Claimed, error) {
			p.Requests = slices.Clone(p.Requests)
			change(&p)
			return s.Store.Claim(ctx, p)
		}
	}
}

// eachRequest makes Claim change every request.
func eachRequest(change func(*webhook.ClaimRequest)) func(*store) {
	return claimParams(func(p *webhook.ClaimParams) {
		for i := range p.Requests {
			change(&p.Requests[i])
		}
	})
}

// eachClaimed makes Claim change what it returns.
func eachClaimed(change func(*webhook.Claimed)) func(*store) {
	return func(s *store) {
		s.claim = func(ctx context.Context, p webhook.ClaimParams) ([]webhook.Claimed, error) {
			claimed, err := s.Store.Claim(ctx, p)
			for i := range claimed {
				change(&claimed[i])
			}
			return claimed, err
		}
	}
}

// eachResult makes Record change every result.
func eachResult(change func(*webhook.Result)) func(*store) {
	return func(s *store) {
		s.record = func(ctx context.Context, p webhook.RecordParams) (webhook.RecordResult, error) {
			p.Results = slices.Clone(p.Results)
			for i := range p.Results {
				if a := p.Results[i].Attempt; a != nil {
					copied := *a
					p.Results[i].Attempt = &copied
				}
				change(&p.Results[i])
			}
			return s.Store.Record(ctx, p)
		}
	}
}

// holders remembers who holds which delivery until when.
type holders struct {
	mu    sync.Mutex // protects held
	held  map[uuid.UUID]webhook.Lease
	until map[uuid.UUID]time.Time
}

// watchClaims makes the store remember the holders.
func watchClaims(s *store) *holders {
	h := &holders{held: map[uuid.UUID]webhook.Lease{}, until: map[uuid.UUID]time.Time{}}
	s.claim = func(ctx context.Context, p webhook.ClaimParams) ([]webhook.Claimed, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		claimed, err := s.Store.Claim(ctx, p)
		for _, c := range claimed {
			h.held[c.DeliveryID] = webhook.Lease{DeliveryID: c.DeliveryID, Token: p.Token}
			h.until[c.DeliveryID] = p.LeaseUntil
		}
		return claimed, err
	}
	return h
}

func (h *holders) holder(id uuid.UUID) webhook.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held[id]
}

func brokenClaims() []broken {
	return []broken{
		{"claims what another holds", func(s *store) {
			h := watchClaims(s)
			claim := s.claim
			s.claim = func(ctx context.Context, p webhook.ClaimParams) ([]webhook.Claimed, error) {
				h.mu.Lock()
				for _, lease := range h.held {
					for _, request := range p.Requests {
						_, _ = s.Store.Record(ctx, webhook.RecordParams{Now: p.Now, Results: []webhook.Result{{
							Lease: lease, State: webhook.StatePending, NextAttemptAt: p.Now, Lane: request.Lane,
						}}})
					}
				}
				h.mu.Unlock()
				return claim(ctx, p)
			}
		}, []string{
			"a leased delivery is not claimed again while the lease is valid",
			"several processes never claim the same delivery",
			"several processes take each expired lease over once",
			"a late hand-back takes the delivery from nobody",
		}},
		{
			"claims before the time", claimParams(func(p *webhook.ClaimParams) { p.Now = p.Now.Add(time.Second) }),
			[]string{"a delivery is not claimed before it is due", "a retry is not claimed before its time"},
		},
		{
			"claims more than asked for", eachRequest(func(r *webhook.ClaimRequest) { r.Limit = plenty }),
			[]string{
				"no more deliveries are claimed than asked for, those due longest first",
				"one claim serves several endpoints and lanes, each up to its limit",
			},
		},
		{
			"claims the newest always", eachRequest(func(r *webhook.ClaimRequest) { r.Newest = true }),
			[]string{"no more deliveries are claimed than asked for, those due longest first"},
		},
		{
			"claims the oldest always", eachRequest(func(r *webhook.ClaimRequest) { r.Newest = false }),
			[]string{"the newest are claimed first if asked for", "the newest that are due are claimed, not those of the future"},
		},
		{
			"looks for the oldest from the beginning", eachRequest(func(r *webhook.ClaimRequest) {
				if !r.Newest {
					r.Since = time.Time{}
				}
			}),
			[]string{"the oldest are claimed from a time on if asked for"},
		},
		{
			"takes the newest however old", eachRequest(func(r *webhook.ClaimRequest) { r.Since = time.Time{} }),
			[]string{"the newest are claimed back to a time if asked for"},
		},
		{"gives the same delivery to two requests of a claim", func(s *store) {
			s.claim = func(ctx context.Context, p webhook.ClaimParams) ([]webhook.Claimed, error) {
				claimed, err := s.Store.Claim(ctx, p)
				if len(p.Requests) > 1 && len(claimed) > 0 {
					claimed = append(claimed, claimed[0])
				}
				return claimed, err
			}
		}, []string{"oldest and newest of a lane in one claim do not overlap", "one claim serves several endpoints and lanes, each up to its limit"}},
		{
			"mixes the lanes", eachRequest(func(r *webhook.ClaimRequest) { r.Lane = webhook.LaneFirst }),
			[]string{"each lane is claimed by itself"},
		},
		{"serves the first request of a claim only", claimParams(func(p *webhook.ClaimParams) {
			p.Requests = p.Requests[:min(1, len(p.Requests))]
		}), []string{"one claim serves several endpoints and lanes, each up to its limit"}},
		{"fails for an endpoint that it does not know", func(s *store) {
			s.claim = func(ctx context.Context, p webhook.ClaimParams) ([]webhook.Claimed, error) {
				for _, r := range p.Requests {
					if _, err := s.Store.GetEndpoint(ctx, webhook.AllTenants(), r.EndpointID); err != nil {
						return nil, err
					}
				}
				return s.Store.Claim(ctx, p)
			}
		}, []string{"an endpoint that nobody knows yields nothing", "a paused, disabled or deleted endpoint yields nothing from that moment"}},
		{"learns of a pause later", func(s *store) {
			s.updateEndpoint = func(ctx context.Context, e webhook.EndpointRecord) (webhook.EndpointRecord, error) {
				state := e.State
				e.State = webhook.EndpointActive
				e, err := s.Store.UpdateEndpoint(ctx, e)
				e.State = state
				return e, err
			}
		}, []string{"a paused, disabled or deleted endpoint yields nothing from that moment"}},
		{"withdraws the deliveries of a paused endpoint", func(s *store) {
			s.updateEndpoint = func(ctx context.Context, e webhook.EndpointRecord) (webhook.EndpointRecord, error) {
				paused := e.State == webhook.EndpointPaused
				if paused {
					e.State = webhook.EndpointDisabled
				}
				e, err := s.Store.UpdateEndpoint(ctx, e)
				if paused && err == nil {
					_, err = s.Store.CancelDeliveries(ctx, webhook.CancelDeliveriesParams{EndpointID: e.ID, Limit: plenty})
				}
				return e, err
			}
		}, []string{"claims, results and pauses at once lose and double nothing"}},
		{
			"tells an old revision of the endpoint", eachClaimed(func(c *webhook.Claimed) { c.EndpointRevision = 1 }),
			[]string{"a claim tells the endpoint's revision of that moment"},
		},
		{
			"claims without the payload", eachClaimed(func(c *webhook.Claimed) { c.Event.Payload = nil }),
			[]string{"a due delivery is claimed with the event that it carries", "maintenance never removes what is unfinished, however old"},
		},
		{
			"counts a run's beginning from its claim", eachClaimed(func(c *webhook.Claimed) { c.CreatedAt = c.CreatedAt.Add(time.Minute) }),
			[]string{"a due delivery is claimed with the event that it carries", "a retry is not claimed before its time"},
		},
		{
			"never tells of a take-over", eachClaimed(func(c *webhook.Claimed) { c.TakenOver = false }),
			[]string{"an expired lease is taken over by anyone"},
		},
		{"tells of a take-over ever after", func(s *store) {
			seen := map[uuid.UUID]bool{}
			s.claim = func(ctx context.Context, p webhook.ClaimParams) ([]webhook.Claimed, error) {
				claimed, err := s.Store.Claim(ctx, p)
				for i := range claimed {
					claimed[i].TakenOver = seen[claimed[i].DeliveryID]
					seen[claimed[i].DeliveryID] = true
				}
				return claimed, err
			}
		}, []string{
			"a lease that was taken over counts as such only once",
			"handing back counts no attempt and frees the delivery at once",
		}},
		{
			"leases for ever", claimParams(func(p *webhook.ClaimParams) { p.LeaseUntil = p.LeaseUntil.Add(1000 * time.Hour) }),
			[]string{
				"an expired lease is taken over by anyone",
				"ready lists a delivery whose lease has expired as due",
				"cancelling leaves what is under a valid lease, and takes it once that has expired",
			},
		},
		{"does not renew", func(s *store) {
			s.renew = func(context.Context, webhook.RenewParams) ([]uuid.UUID, error) { return nil, nil }
		}, []string{"renewing keeps a lease valid", "renewing tells which leases are lost, and changes nothing of theirs"}},
		{"renews for whoever asks", func(s *store) {
			h := watchClaims(s)
			s.renew = func(ctx context.Context, p webhook.RenewParams) ([]uuid.UUID, error) {
				lost, err := s.Store.Renew(ctx, p)
				for i := range p.Leases {
					p.Leases[i] = h.holder(p.Leases[i].DeliveryID)
				}
				_, _ = s.Store.Renew(ctx, p)
				return lost, err
			}
		}, []string{"renewing tells which leases are lost, and changes nothing of theirs"}},
		{"lists what is leased as ready", func(s *store) {
			s.ready = func(ctx context.Context, p webhook.ReadyParams) ([]webhook.ReadyLane, error) {
				p.Now = p.Now.Add(1000 * time.Hour)
				return s.Store.Ready(ctx, p)
			}
		}, []string{"ready leaves out what is under a valid lease and what is finished"}},
		{"lists one lane of an endpoint", func(s *store) {
			s.ready = func(ctx context.Context, p webhook.ReadyParams) ([]webhook.ReadyLane, error) {
				lanes, err := s.Store.Ready(ctx, p)
				return slices.CompactFunc(lanes, func(a, b webhook.ReadyLane) bool { return a.EndpointID == b.EndpointID }), err
			}
		}, []string{"ready lists lanes with their earliest due time"}},
		{"lists active endpoints only", func(s *store) {
			s.ready = func(ctx context.Context, p webhook.ReadyParams) ([]webhook.ReadyLane, error) {
				lanes, err := s.Store.Ready(ctx, p)
				return slices.DeleteFunc(lanes, func(l webhook.ReadyLane) bool {
					e, err := s.Store.GetEndpoint(ctx, webhook.AllTenants(), l.EndpointID)
					return err != nil || e.State != webhook.EndpointActive
				}), err
			}
		}, []string{"ready lists endpoints that are not active as well"}},
		{"limits lanes where endpoints are meant", func(s *store) {
			s.ready = func(ctx context.Context, p webhook.ReadyParams) ([]webhook.ReadyLane, error) {
				lanes, err := s.Store.Ready(ctx, p)
				slices.Reverse(lanes)
				return lanes, err
			}
		}, []string{"ready pages by endpoint in ascending order"}},
	}
}

func brokenResults() []broken {
	return []broken{
		{
			"counts every attempt", eachResult(func(r *webhook.Result) { r.Uncounted = false }),
			[]string{"an attempt that does not count is logged and uses up nothing"},
		},
		{"does not log attempts that do not count", eachResult(func(r *webhook.Result) {
			if r.Uncounted {
				r.Attempt = nil
			}
		}), []string{"an attempt that does not count is logged and uses up nothing"}},
		{"does not fence results", func(s *store) {
			h := watchClaims(s)
			s.record = func(ctx context.Context, p webhook.RecordParams) (webhook.RecordResult, error) {
				p.Results = slices.Clone(p.Results)
				for i, r := range p.Results {
					p.Results[i].Lease = h.holder(r.DeliveryID)
					p.Results[i].DeliveryID = r.DeliveryID
				}
				return s.Store.Record(ctx, p)
			}
		}, []string{
			"the result of a lost lease changes nothing and is logged as late",
			"two leases of one delivery cannot both be used, whatever the order",
			"a late hand-back takes the delivery from nobody",
			"several processes take each expired lease over once",
		}},
		{"lets a late result end a finished delivery anew", func(s *store) {
			late := map[uuid.UUID]bool{}
			s.record = func(ctx context.Context, p webhook.RecordParams) (webhook.RecordResult, error) {
				recorded, err := s.Store.Record(ctx, p)
				for _, r := range p.Results {
					if slices.Contains(recorded.Lost, r.DeliveryID) && r.State == webhook.StateDelivered {
						late[r.DeliveryID] = true
					}
				}
				return recorded, err
			}
			s.getDelivery = func(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.Delivery, error) {
				d, err := s.Store.GetDelivery(ctx, scope, id)
				if late[id] {
					d.State = webhook.StateDelivered
				}
				return d, err
			}
		}, []string{
			"a late result after the delivery was finished changes nothing and is logged as late",
			"a lease that was handed back is lost",
		}},
		{"does not tell what was lost", func(s *store) {
			s.record = func(ctx context.Context, p webhook.RecordParams) (webhook.RecordResult, error) {
				_, err := s.Store.Record(ctx, p)
				return webhook.RecordResult{}, err
			}
		}, []string{
			"the result of a lost lease changes nothing and is logged as late",
			"a lease that was handed back is lost",
			"a result for a delivery that nobody knows is lost and harms no other",
		}},
		{"fails for a delivery that it does not know", func(s *store) {
			s.record = func(ctx context.Context, p webhook.RecordParams) (webhook.RecordResult, error) {
				for _, r := range p.Results {
					if _, err := s.Store.GetDelivery(ctx, webhook.AllTenants(), r.DeliveryID); err != nil {
						return webhook.RecordResult{}, err
					}
				}
				return s.Store.Record(ctx, p)
			}
		}, []string{"a result for a delivery that nobody knows is lost and harms no other"}},
		{"refuses a result after the lease has expired", func(s *store) {
			h := watchClaims(s)
			s.record = func(ctx context.Context, p webhook.RecordParams) (webhook.RecordResult, error) {
				p.Results = slices.Clone(p.Results)
				for i, r := range p.Results {
					h.mu.Lock()
					if p.Now.After(h.until[r.DeliveryID]) {
						p.Results[i].Token = newID()
					}
					h.mu.Unlock()
				}
				return s.Store.Record(ctx, p)
			}
		}, []string{"an expired lease that nobody took over still records its result"}},
		{"retries at once", func(s *store) {
			s.record = func(ctx context.Context, p webhook.RecordParams) (webhook.RecordResult, error) {
				p.Results = slices.Clone(p.Results)
				for i := range p.Results {
					p.Results[i].NextAttemptAt = p.Now
				}
				return s.Store.Record(ctx, p)
			}
		}, []string{"a retry is not claimed before its time", "a retry is scheduled for its time in its lane"}},
		{
			"retries in the lane of first attempts", eachResult(func(r *webhook.Result) { r.Lane = webhook.LaneFirst }),
			[]string{"each lane is claimed by itself", "results of many deliveries are recorded by one call", "ready lists lanes with their earliest due time"},
		},
		{"loses the attempt of a finished delivery", eachResult(func(r *webhook.Result) {
			if r.State.Final() {
				r.Attempt = nil
			}
		}), []string{
			"a delivered delivery is finished, with its attempt",
			"attempts of all leases stay in the log when the delivery is finished",
			"a batch of which a part was recorded before records the rest",
		}},
		{"counts a hand-back as an attempt", eachResult(func(r *webhook.Result) {
			if r.Attempt == nil {
				r.Attempt = &webhook.Attempt{Number: 1, Tenant: "acme"}
			}
		}), []string{"handing back counts no attempt and frees the delivery at once", "every final state is kept with its reason"}},
		{"keeps the lease of what is handed back", eachResult(func(r *webhook.Result) {
			if r.Attempt == nil {
				r.Token = newID()
			}
		}), []string{"handing back counts no attempt and frees the delivery at once"}},
		{
			"forgets the reason", eachResult(func(r *webhook.Result) { r.Reason = "" }),
			[]string{"every final state is kept with its reason"},
		},
		{"takes shed for dead", eachResult(func(r *webhook.Result) {
			if r.State == webhook.StateShed {
				r.State = webhook.StateDead
			}
		}), []string{"every final state is kept with its reason", "a delivery can be read in every state"}},
		{"claims a cancelled delivery again", eachResult(func(r *webhook.Result) {
			if r.State == webhook.StateCancelled {
				r.State = webhook.StatePending
			}
		}), []string{"a finished delivery is never claimed again"}},
		{"records the first hundred results", func(s *store) {
			s.record = func(ctx context.Context, p webhook.RecordParams) (webhook.RecordResult, error) {
				p.Results = p.Results[:min(100, len(p.Results))]
				return s.Store.Record(ctx, p)
			}
		}, []string{"results of many deliveries are recorded by one call"}},
		{"fails without results", func(s *store) {
			s.record = func(ctx context.Context, p webhook.RecordParams) (webhook.RecordResult, error) {
				if len(p.Results) == 0 {
					return webhook.RecordResult{}, errors.New("syntax error at end of input")
				}
				return s.Store.Record(ctx, p)
			}
		}, []string{"recording nothing is harmless"}},
		{"logs an attempt again when it is recorded again", func(s *store) {
			seen := map[webhook.Lease]bool{}
			s.record = func(ctx context.Context, p webhook.RecordParams) (webhook.RecordResult, error) {
				p.Results = slices.Clone(p.Results)
				for i, r := range p.Results {
					if seen[r.Lease] {
						p.Results[i].Token = newID()
					}
					seen[r.Lease] = true
				}
				return s.Store.Record(ctx, p)
			}
		}, []string{
			"recording a finished result again changes nothing",
			"recording a retry again changes nothing, also when it was claimed in the meantime",
			"recording a late result again logs it once",
			"a batch of which a part was recorded before records the rest",
		}},
		{"fails for what was recorded before", func(s *store) {
			seen := map[webhook.Lease]bool{}
			s.record = func(ctx context.Context, p webhook.RecordParams) (webhook.RecordResult, error) {
				for _, r := range p.Results {
					if seen[r.Lease] && r.Attempt != nil {
						return webhook.RecordResult{}, errors.New("duplicate key")
					}
					seen[r.Lease] = true
				}
				return s.Store.Record(ctx, p)
			}
		}, []string{"a batch of which a part was recorded before records the rest"}},
		{"has no partition for a far day", func(s *store) {
			s.record = func(ctx context.Context, p webhook.RecordParams) (webhook.RecordResult, error) {
				if time.Until(p.Now) > 48*time.Hour {
					return webhook.RecordResult{}, errors.New("no partition found for row")
				}
				return s.Store.Record(ctx, p)
			}
		}, []string{"a delivery is finished on a day that nothing was prepared for"}},
		{"fails for text that is not UTF-8", func(s *store) {
			s.record = func(ctx context.Context, p webhook.RecordParams) (webhook.RecordResult, error) {
				for _, r := range p.Results {
					if !utf8.ValidString(r.Reason) || strings.Contains(r.Reason, "\x00") {
						return webhook.RecordResult{}, errors.New("invalid byte sequence for encoding UTF8")
					}
				}
				return s.Store.Record(ctx, p)
			}
		}, []string{"what a receiver sent cannot break recording"}},
		{
			"cancels what is under a lease", cancelParams(func(p *webhook.CancelDeliveriesParams) { p.Now = p.Now.Add(1000 * time.Hour) }),
			[]string{
				"cancelling leaves what is under a valid lease, and takes it once that has expired",
				"cancelling finishes the deliveries of a disabled endpoint",
			},
		},
		{
			"cancels without a limit", cancelParams(func(p *webhook.CancelDeliveriesParams) { p.Limit = plenty }),
			[]string{"cancelling stops at its limit"},
		},
		{"does not cancel what is deleted", func(s *store) {
			s.cancelDeliveries = func(ctx context.Context, p webhook.CancelDeliveriesParams) (int, error) {
				if _, err := s.Store.GetEndpoint(ctx, webhook.AllTenants(), p.EndpointID); err != nil {
					return 0, nil
				}
				return s.Store.CancelDeliveries(ctx, p)
			}
		}, []string{"cancelling finishes the deliveries of a deleted endpoint, of all lanes, attempts kept"}},
		{"cancels whatever the endpoint's state", func(s *store) {
			s.cancelDeliveries = func(ctx context.Context, p webhook.CancelDeliveriesParams) (int, error) {
				e, err := s.Store.GetEndpoint(ctx, webhook.AllTenants(), p.EndpointID)
				if err == nil {
					e.State = webhook.EndpointDisabled
					_, _ = s.Store.UpdateEndpoint(ctx, e)
				}
				return s.Store.CancelDeliveries(ctx, p)
			}
		}, []string{"cancelling touches no endpoint that is active or paused"}},
		{"cancels the deliveries of every endpoint", func(s *store) {
			s.cancelDeliveries = func(ctx context.Context, p webhook.CancelDeliveriesParams) (int, error) {
				all, err := s.Store.ListEndpoints(ctx, webhook.ListEndpointsParams{Scope: webhook.AllTenants(), Limit: plenty})
				for _, e := range all {
					e.State = webhook.EndpointDisabled
					_, _ = s.Store.UpdateEndpoint(ctx, e)
					other := p
					other.EndpointID = e.ID
					_, _ = s.Store.CancelDeliveries(ctx, other)
				}
				return 0, err
			}
		}, []string{"cancelling touches no other endpoint"}},
	}
}

// cancelParams makes CancelDeliveries work with other parameters.
func cancelParams(change func(*webhook.CancelDeliveriesParams)) func(*store) {
	return func(s *store) {
		s.cancelDeliveries = func(ctx context.Context, p webhook.CancelDeliveriesParams) (int, error) {
			change(&p)
			return s.Store.CancelDeliveries(ctx, p)
		}
	}
}
