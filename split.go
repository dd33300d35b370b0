package webhook

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/outhook/webhook/internal/scheduler"
)

const (
	// splitFor is for how many heartbeats a host is split at a time; it is renewed at
	// half of that.
	splitFor = 10

	// hotBeats is for how many heartbeats in a row a host must be hot before it is.
	hotBeats = 3

	// hotShare is the part of a dispatcher's slots that a hot host takes.
	hotShare = 2

	// wholeAfterFailure is for how long a host that failed is not split again: the time
	// in which a circuit that opens again counts as flapping.
	wholeAfterFailure = 10 * time.Minute
)

// splits reports whether hosts may be split: only those whose cap is so high that one
// dispatcher's slots may be too few for it.
func (c *cluster) splits() bool { return c.splitStore != nil && c.r.cfg.splittable() }

func (c *DispatcherConfig) splittable() bool {
	hot := func(limit int) bool { return limit < 0 || limit > c.MaxInFlight/hotShare }
	return hot(c.MaxInFlightPerHost) || slices.ContainsFunc(c.Isolation.HostCaps, func(h HostCap) bool { return hot(h.MaxInFlight) })
}

// watchHosts has hosts split that take much of this dispatcher's slots while more waits
// for them, and put together again when their endpoints fail: one dispatcher then sees
// all of the failures, and its circuits, probes and slow lane are the host's.
func (l *loop) watchHosts(now time.Time) {
	c := l.r.cluster
	a := c.assigned.Load()
	if !c.splits() || len(a.members) < 2 {
		clear(l.hot)
		return
	}
	beat := l.r.cfg.HeartbeatInterval
	l.sched.Hosts(func(h scheduler.HostState) {
		split := a.splits[h.Name]
		switch {
		case failing(h):
			delete(l.hot, h.Name)
			if a.split[h.Name] {
				l.r.core.log.Warn("webhook: host fails and is no longer split", "host", h.Name, "open", h.Open, "endpoints", h.Endpoints)
				c.saveSplit(HostSplit{Host: h.Name, NotBefore: now.Add(wholeAfterFailure)})
			}
		case split.NotBefore.After(now):
		case a.split[h.Name]:
			busy := hotShare * len(a.members) * h.InFlight * 2
			if busy >= l.r.cfg.MaxInFlight && split.Until.Sub(now) < splitFor*beat/2 {
				c.saveSplit(HostSplit{Host: h.Name, Until: now.Add(splitFor * beat), NotBefore: now})
			}
		case h.Waiting && h.InFlight*hotShare >= l.r.cfg.MaxInFlight:
			if l.hot[h.Name]++; l.hot[h.Name] == hotBeats {
				delete(l.hot, h.Name)
				l.r.core.log.Info("webhook: host is hot and will be split", "host", h.Name, "in_flight", h.InFlight)
				c.saveSplit(HostSplit{Host: h.Name, Until: now.Add(splitFor * beat), NotBefore: now})
			}
		default:
			delete(l.hot, h.Name)
		}
	})
}

// failing reports whether more than a tenth of a host's endpoints have an open circuit.
// That some are dead is the rule where there are thousands.
func failing(h scheduler.HostState) bool { return 10*h.Open > h.Endpoints }

// saveSplit has a split stored, and the others told.
func (c *cluster) saveSplit(s HostSplit) {
	c.mu.Lock()
	c.toSplit[s.Host] = s
	c.mu.Unlock()
	poke(c.split)
}

func (c *cluster) saveSplits(ctx context.Context) error {
	batch := take(&c.mu, c.toSplit, healthBatch)
	for host, s := range batch {
		if err := c.splitStore.SaveSplit(ctx, s); err != nil {
			c.mu.Lock()
			for host, s := range batch { // those that are saved are saved again, which changes nothing
				if _, newer := c.toSplit[host]; !newer {
					c.toSplit[host] = s
				}
			}
			c.mu.Unlock()
			return err
		}
		c.r.core.log.DebugContext(ctx, "webhook: split saved", "host", host, "until", s.Until)
	}
	if err := c.loadSplits(ctx); err != nil {
		return err
	}
	if c.notifier != nil && len(batch) > 0 {
		return c.notifier.Notify(ctx, SignalHosts)
	}
	return nil
}

// loadSplits reads which hosts are split, at each heartbeat and when somebody tells.
func (c *cluster) loadSplits(ctx context.Context) error {
	if !c.splits() {
		return nil
	}
	splits, err := c.splitStore.ListSplits(ctx, c.r.d.clock.now())
	if err != nil {
		return err
	}
	c.assign(func() { c.splitHosts = splits })
	return nil
}

// assign changes what endpoints are assigned by, and assigns them anew.
func (c *cluster) assign(change func()) {
	c.mu.Lock()
	change()
	c.assigned.Store(newAssignment(c.members, c.splitHosts, c.r.d.clock.now()))
	c.mu.Unlock()
	poke(c.r.loop.membersC)
}

// region returns a tenant's region as the loop has learnt it; false where it has not.
func (c *cluster) region(tenant string) (region string, known bool) {
	if c.r.cfg.TenantLimits == nil || !c.assigned.Load().limited {
		return "", true
	}
	v, ok := c.regions.Load(tenant)
	if !ok {
		return "", false
	}
	return v.(string), true
}

// learnRegion asks for a tenant's region if it is needed and not known. Only the loop
// asks.
func (l *loop) learnRegion(tenant string) (region string) {
	c := l.r.cluster
	region, known := c.region(tenant)
	if !known {
		region = l.r.tenantLimits(tenant).Region
		c.regions.Store(tenant, region)
	}
	return region
}

// relearnRegions asks again for all regions, and reports whether one has changed.
func (l *loop) relearnRegions() (changed bool) {
	c := l.r.cluster
	c.regions.Range(func(key, value any) bool {
		if region := l.r.tenantLimits(key.(string)).Region; region != value.(string) {
			c.regions.Store(key, region)
			changed = true
		}
		return true
	})
	return changed
}

// reportUnserved reports tenants that nobody serves. Each is reported by one dispatcher,
// unless that one has missed heartbeats.
func (l *loop) reportUnserved() {
	members := l.r.cluster.assigned.Load().members
	for _, tenant := range slices.Sorted(maps.Keys(l.unserved)) {
		lasted := l.beats - l.unserved[tenant]
		if lasted < deadAfterBeats || (lasted-deadAfterBeats)%unservedEvery != 0 || !l.r.cluster.reports(members, tenant) {
			continue
		}
		l.r.core.log.Error("webhook: no dispatcher serves a tenant that has endpoints", "tenant", tenant)
		if o, ok := l.r.cfg.Observer.(UnservedObserver); ok {
			l.r.attempts.Go(func() { l.r.observe(func() { o.TenantUnserved(tenant) }) })
		}
	}
}
