package webhook

import (
	"time"

	"github.com/outhook/webhook/internal/scheduler"
)

// tenantsInterval is how often [DispatcherConfig.TenantLimits] is asked again.
const tenantsInterval = time.Minute

// tenantPlace is a tenant with endpoints that are this dispatcher's.
type tenantPlace struct {
	limits    TenantLimits
	endpoints int
}

// joinTenant takes up one more endpoint of a tenant.
func (l *loop) joinTenant(now time.Time, name string) {
	if l.r.cfg.TenantLimits == nil {
		return
	}
	t := l.tenants[name]
	if t == nil {
		t = &tenantPlace{limits: l.r.tenantLimits(name)}
		l.tenants[name] = t
		l.sched.SetTenant(now, name, t.limits.spec())
	}
	t.endpoints++
}

// leaveTenant gives up an endpoint of a tenant, and with the last one the tenant.
func (l *loop) leaveTenant(now time.Time, name string) {
	t := l.tenants[name]
	if t == nil {
		return
	}
	if t.endpoints--; t.endpoints == 0 {
		delete(l.tenants, name)
		l.sched.SetTenant(now, name, scheduler.TenantSpec{})
	}
}

// limits returns what a tenant is allowed whose endpoints were taken up.
func (l *loop) limits(name string) TenantLimits {
	if t := l.tenants[name]; t != nil {
		return t.limits
	}
	return TenantLimits{}
}

// takeTenants asks again what tenants are allowed, and applies what changed.
func (l *loop) takeTenants() {
	now := l.now()
	if l.relearnRegions() {
		l.assignAll()
	}
	changed := make(map[string]bool)
	for name, t := range l.tenants {
		limits := l.r.tenantLimits(name)
		if limits == t.limits {
			continue
		}
		t.limits = limits
		l.sched.SetTenant(now, name, limits.spec())
		changed[name] = true
	}
	if len(changed) == 0 {
		return
	}
	for id, p := range l.places {
		if t := l.r.registry.get(id); p.taken && t != nil && changed[t.record.Tenant] {
			l.setEndpoint(now, p, t)
		}
	}
}
