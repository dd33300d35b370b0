package storetest

import (
	"context"

	"github.com/outhook/webhook"
)

func brokenErasure() []broken {
	const all = "an erased tenant leaves nothing, and others are left alone"
	erasing := func(change func(s *store, ctx context.Context, p *webhook.EraseTenantParams)) func(*store) {
		return func(s *store) {
			s.eraseTenant = func(ctx context.Context, p webhook.EraseTenantParams) (webhook.EraseProgress, error) {
				change(s, ctx, &p)
				return s.Store.EraseTenant(ctx, p)
			}
		}
	}
	return []broken{
		{"erases another tenant", erasing(func(_ *store, _ context.Context, p *webhook.EraseTenantParams) { p.Tenant = "other" }), []string{all}},
		{"erases what is on its way", erasing(func(_ *store, _ context.Context, p *webhook.EraseTenantParams) { p.Now = p.Now.Add(2 * leaseTime) }), []string{all}},
		{"says that it is done and does nothing", func(s *store) {
			s.eraseTenant = func(context.Context, webhook.EraseTenantParams) (webhook.EraseProgress, error) {
				return webhook.EraseProgress{Done: true}, nil
			}
		}, []string{all, "endpoints that are not deleted are not erased"}},
		{
			"keeps counters always", erasing(func(_ *store, _ context.Context, p *webhook.EraseTenantParams) { p.Counters = false }),
			[]string{"counters are erased when that is asked for"},
		},
	}
}
