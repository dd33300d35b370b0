package webhook

import (
	"context"
	"fmt"
	"time"
)

const (
	// erasedAtOnce is how much is erased in one transaction.
	erasedAtOnce = 500

	// erasePause is how long is waited where only requests in flight are left.
	erasePause = 500 * time.Millisecond
)

// EraseOptions say how [Hooks.EraseTenant] erases.
type EraseOptions struct {
	// Counters erases what was counted for the tenant per endpoint and day as well.
	// False keeps it: numbers that costs are attributed by, with the tenant's name and
	// the ids of its endpoints and nothing of what was sent. Days that are not counted
	// yet, today and yesterday, are lost to them in either case.
	Counters bool
}

// EraseTenant removes everything that is stored of a tenant: its endpoints with their
// secrets, its events with their payloads and idempotency keys, its deliveries with
// their attempts, its replay jobs and what was noticed about its endpoints. What stays
// of an endpoint is its id and tenant, so that every dispatcher learns that it is gone.
//
// It goes by small batches that get in nobody's way, waits for requests that are in
// flight, for a lease at most, and returns when nothing is left. It may be called again
// after it was interrupted, from any process, and goes on. Stop enqueuing for the
// tenant before: what is enqueued meanwhile may stay. The log that the host keeps of
// what [Config.Logger] and observers told is the host's to erase.
//
// Payloads in a [PayloadStore] are removed last; one that cannot be is told as an error, and
// removed by the next call or by upkeep. Those of transactions that were rolled back are
// not known to be the tenant's: they go within three days, as [PayloadLister] says, or
// with the folder of the tenant ([PayloadKey.Folder]).
//
// Whoever may erase is the host's to decide: the admin handler does not offer it.
func (h *Hooks[Tx]) EraseTenant(ctx context.Context, tenant string, o EraseOptions) error {
	if err := h.core.limits.checkTenant("tenant", tenant); err != nil {
		return err
	}
	if err := h.core.erase(ctx, tenant, o); err != nil {
		return fmt.Errorf("erase a tenant: %w", err)
	}
	return nil
}

func (c *core) erase(ctx context.Context, tenant string, o EraseOptions) error {
	if err := c.deleteEndpoints(ctx, tenant); err != nil {
		return err
	}
	for {
		now, err := c.now(ctx)
		if err != nil {
			return err
		}
		progress, err := c.backend.EraseTenant(ctx, EraseTenantParams{Now: now, Tenant: tenant, Counters: o.Counters, Limit: erasedAtOnce})
		if err == nil && progress.Done {
			return c.removePayloads(ctx)
		}
		if err != nil {
			return err
		}
		if progress.Removed > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(erasePause):
		}
	}
}

func (c *core) deleteEndpoints(ctx context.Context, tenant string) error {
	scope := TenantScope(tenant)
	for {
		list, err := c.backend.ListEndpoints(ctx, ListEndpointsParams{Scope: scope, Limit: maxListLimit})
		if err != nil || len(list) == 0 {
			return err
		}
		for i := range list {
			if err := c.endpoints.Delete(ctx, scope, list[i].ID); err != nil {
				return err
			}
		}
	}
}
