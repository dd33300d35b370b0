package webhook

import (
	"cmp"
	"fmt"
	"math"
	"net/url"
	"strings"
	"time"

	"github.com/outhook/webhook/internal/scheduler"
)

// IsolationConfig says how far a [Dispatcher] keeps endpoints, hosts and tenants
// from delaying one another, beyond the caps in [DispatcherConfig]. Its zero value
// means the defaults, which are those of docs/design.md §3. Where a field says so, a
// negative value turns the rule off.
type IsolationConfig struct {
	// BacklogFloor is the part of an endpoint's slots that goes to its oldest
	// deliveries while it has a backlog; the rest goes to new ones. Default 0.2;
	// negative: no floor.
	BacklogFloor float64

	// HostCaps replace [DispatcherConfig.MaxInFlightPerHost] for the hosts that
	// they name. The first one that matches decides.
	HostCaps []HostCap

	// ReplayShare is the part of the slots, of an endpoint and of the dispatcher,
	// that replays may have. Default 0.1; negative: replays are like others.
	ReplayShare float64

	// RetryFloor is the time in which an endpoint may always have one retry,
	// whatever RetryShare says. Default 10 s; negative: no floor.
	RetryFloor time.Duration

	// RetryShare is the part of an endpoint's attempts over 60 s that may be
	// retries. Default 0.2; negative: no retry budget.
	RetryShare float64

	// ShedBacklog is how many deliveries may wait for their first attempt at an
	// endpoint that answers but does not keep up. Over it, and while what waits has
	// grown over ShedGrowth, new ones are recorded as [StateShed] instead of waiting
	// too: they can be replayed, and a [SheddingObserver] is told. Never in an
	// outage, and never for an endpoint with an Ordering: what is shed would leave a gap
	// in it. Default 100,000; negative: nothing is shed. See
	// [EndpointParams.ShedBacklog] and [TenantLimits.ShedBacklog]. It needs a store
	// that is a [ClusterStore].
	ShedBacklog int

	// ShedGrowth is the time over which a backlog must have grown. Default 10
	// minutes; at least a second.
	ShedGrowth time.Duration

	// SlowAfter is the moving average latency over which an endpoint, and the age
	// over which a request in flight, counts as slow. Default 3 s; negative:
	// nothing is slow.
	SlowAfter time.Duration

	// SlowShare is the part of [DispatcherConfig.MaxInFlight], and of each host's
	// cap, that slow endpoints share. Default 0.25; at most 1.
	SlowShare float64
}

// HostCap is a cap for the hosts that match a pattern.
type HostCap struct {
	// Pattern is a host name, or "*." and a domain, which means all names under
	// the domain. It holds for all schemes and ports, each with a cap of its own.
	Pattern string
	// MaxInFlight caps the requests in flight to one scheme, host and port. Zero is
	// refused; negative: no cap.
	MaxInFlight int
}

// TenantLimits is what [DispatcherConfig.TenantLimits] allows a tenant. Zero fields mean
// the dispatcher's defaults.
type TenantLimits struct {
	// Burst is how many requests may go at once under RateLimit. Zero means one
	// second's worth, at least 1.
	Burst int

	// EndpointBurst and EndpointRateLimit hold for each of the tenant's endpoints
	// that has no rate limit of its own. Zero means no limit.
	EndpointBurst     int
	EndpointRateLimit float64

	// MaxInFlightPerEndpoint caps the requests in flight to each of the tenant's
	// endpoints that does not say otherwise. An endpoint's own cap may be lower but
	// not higher, where both are set.
	MaxInFlightPerEndpoint int

	// RateLimit is how many requests per second go to all of the tenant's
	// endpoints together. With several dispatchers it holds for each of them.
	// Zero means no limit.
	RateLimit float64

	// ShedBacklog replaces [IsolationConfig.ShedBacklog] for the tenant's endpoints;
	// negative: they are not shed. An endpoint's own may be less but not more, where
	// both are set.
	ShedBacklog int

	// Region is where the tenant belongs: the dispatchers whose
	// [DispatcherConfig.Serves] names it send for the tenant, and those that serve
	// everybody. All dispatchers must be told the same.
	Region string

	// Weight is the tenant's weight in the fair share. Zero means 1; from 0.01 to
	// 1,000.
	Weight float64
}

func (c *IsolationConfig) validate() *InvalidError {
	share := func(field string, v float64) *InvalidError {
		if math.IsNaN(v) || v > 1 {
			return invalid(field, fmt.Sprintf("is %v, over 1", v))
		}
		return nil
	}
	for _, err := range []*InvalidError{
		share("BacklogFloor", c.BacklogFloor),
		share("ReplayShare", c.ReplayShare),
		share("RetryShare", c.RetryShare),
		share("SlowShare", c.SlowShare),
	} {
		if err != nil {
			return err
		}
	}
	if c.SlowShare < 0 {
		return invalid("SlowShare", "is negative")
	}
	if c.ShedGrowth < 0 || c.ShedGrowth > 0 && c.ShedGrowth < time.Second {
		return invalid("ShedGrowth", fmt.Sprintf("is %v, want at least a second", c.ShedGrowth))
	}
	for i, h := range c.HostCaps {
		if err := h.validate(); err != nil {
			return err.in(fmt.Sprintf("HostCaps[%d]", i))
		}
	}
	return nil
}

func (h HostCap) validate() *InvalidError {
	name := strings.TrimPrefix(h.Pattern, "*.")
	switch {
	case name == "" || strings.ContainsAny(name, "*/:@ "):
		return invalid("Pattern", fmt.Sprintf("is %q, not a host name or *. and a domain", h.Pattern))
	case h.MaxInFlight == 0:
		return invalid("MaxInFlight", "is zero")
	}
	return nil
}

func (h HostCap) matches(name string) bool {
	pattern := strings.ToLower(h.Pattern)
	if domain, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasSuffix(name, domain)
	}
	return name == pattern
}

// hostCap returns the cap that is set for a host; 0 means the default.
func (c *IsolationConfig) hostCap(rawURL string) int {
	if len(c.HostCaps) == 0 {
		return 0
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return 0
	}
	name := strings.ToLower(u.Hostname())
	for _, h := range c.HostCaps {
		if h.matches(name) {
			return h.MaxInFlight
		}
	}
	return 0
}

// schedulerConfig translates the dispatcher's configuration.
func (r *run) schedulerConfig() scheduler.Config {
	i := &r.cfg.Isolation
	return scheduler.Config{
		BacklogFloor: i.BacklogFloor,
		EndpointMax:  r.cfg.MaxInFlightPerEndpoint,
		GlobalMax:    r.cfg.MaxInFlight,
		HostMax:      r.cfg.MaxInFlightPerHost,
		NewCircuit:   r.cfg.Breaker.circuits(),
		Off:          r.off,
		ProbeLease:   r.cfg.Lease,
		ReplayShare:  i.ReplayShare,
		RetryFloor:   i.RetryFloor,
		RetryShare:   i.RetryShare,
		ShedBacklog:  int64(cmp.Or(i.ShedBacklog, DefaultShedBacklog)),
		ShedGrowth:   cmp.Or(i.ShedGrowth, DefaultShedGrowth),
		SlowAfter:    i.SlowAfter,
		SlowShare:    i.SlowShare,
	}
}

// spec is what the scheduler needs to know of an endpoint.
func (r *run) spec(t *target, limits TenantLimits) scheduler.EndpointSpec {
	s := scheduler.EndpointSpec{
		Adaptive:    t.options.AdaptiveRate,
		Burst:       t.options.Burst,
		Host:        t.host,
		HostMax:     r.cluster.hostCap(t),
		ID:          t.record.ID,
		MaxInFlight: t.options.MaxInFlight,
		NewestFirst: t.options.NewestFirst,
		Ordered:     t.record.Ordering != OrderingNone,
		Paused:      !t.sendable(),
		Rate:        t.options.RateLimit,
		ShedBacklog: int64(shedBacklog(t.options.ShedBacklog, limits.ShedBacklog)),
		Tenant:      t.record.Tenant,
		Timeout:     r.timeout(t),
	}
	if limit := limits.MaxInFlightPerEndpoint; limit > 0 && (s.MaxInFlight <= 0 || s.MaxInFlight > limit) {
		s.MaxInFlight = limit
	}
	if s.Rate == 0 {
		s.Rate, s.Burst = max(limits.EndpointRateLimit, 0), max(limits.EndpointBurst, 0)
	}
	return s
}

// shedBacklog is what an endpoint may have waiting, by its own setting and its
// tenant's: the lesser, where both are set. 0 is the dispatcher's.
func shedBacklog(own, tenants int) int {
	switch {
	case tenants == 0, own > 0 && (tenants < 0 || own < tenants):
		return own
	default:
		return tenants
	}
}

// hostCap is this dispatcher's cap for an endpoint's host; 0 means the default.
func (c *cluster) hostCap(t *target) int {
	limit := c.r.cfg.Isolation.hostCap(t.record.URL)
	a := c.assigned.Load()
	if !a.split[t.host] {
		return limit
	}
	region, _ := c.region(t.record.Tenant)
	return a.share(c.id, t, region, cmp.Or(limit, c.r.cfg.MaxInFlightPerHost))
}

// tenantLimits asks the host what a tenant is allowed; the defaults, if that panics.
func (r *run) tenantLimits(tenant string) (limits TenantLimits) {
	if r.cfg.TenantLimits == nil {
		return TenantLimits{}
	}
	defer func() {
		if v := recover(); v != nil {
			r.core.log.Error("webhook: panic in DispatcherConfig.TenantLimits", "tenant", tenant, "panic", fmt.Sprintf("%T", v))
			limits = TenantLimits{}
		}
	}()
	return r.cfg.TenantLimits(tenant)
}

func (l TenantLimits) spec() scheduler.TenantSpec {
	// A weight that is not there any longer is 1 again.
	weight := l.Weight
	if weight <= 0 {
		weight = 1
	}
	return scheduler.TenantSpec{Burst: max(l.Burst, 0), Rate: max(l.RateLimit, 0), Weight: weight}
}
