package webhook

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
)

// leaseKeeper knows the leases of a dispatcher and renews them at a third of
// their time, until their results are in the database.
type leaseKeeper struct {
	r *run

	mu     sync.Mutex
	held   map[uuid.UUID]heldLease // by delivery
	counts map[uuid.UUID]int       // by endpoint
}

type heldLease struct {
	endpoint uuid.UUID
	token    uuid.UUID
	until    time.Time // by the database's clock
}

func newLeaseKeeper(r *run) *leaseKeeper {
	return &leaseKeeper{r: r, held: make(map[uuid.UUID]heldLease), counts: make(map[uuid.UUID]int)}
}

// hold takes up the leases of a claim.
func (k *leaseKeeper) hold(claimed []Claimed, token uuid.UUID, until time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range claimed {
		c := &claimed[i]
		k.drop(c.DeliveryID) // an earlier lease of ours that had run out
		k.held[c.DeliveryID] = heldLease{endpoint: c.EndpointID, token: token, until: until}
		k.counts[c.EndpointID]++
	}
}

// drop forgets a lease. The caller holds the lock.
func (k *leaseKeeper) drop(delivery uuid.UUID) {
	l, ok := k.held[delivery]
	if !ok {
		return
	}
	delete(k.held, delivery)
	if k.counts[l.endpoint]--; k.counts[l.endpoint] == 0 {
		delete(k.counts, l.endpoint)
	}
}

// heldFor counts the leases on deliveries of each of the endpoints.
func (k *leaseKeeper) heldFor(endpoints []uuid.UUID) map[uuid.UUID]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	counts := make(map[uuid.UUID]int)
	for _, id := range endpoints {
		if n := k.counts[id]; n > 0 {
			counts[id] = n
		}
	}
	return counts
}

// until returns when the lease ends; false when it is not held.
func (k *leaseKeeper) until(l Lease) (time.Time, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	held, ok := k.held[l.DeliveryID]
	return held.until, ok && held.token == l.Token
}

// forget drops the leases whose results have been written.
func (k *leaseKeeper) forget(results []Result) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range results {
		if k.held[results[i].DeliveryID].token == results[i].Token {
			k.drop(results[i].DeliveryID)
		}
	}
}

// run renews until stop is closed or ctx ends.
func (k *leaseKeeper) run(ctx context.Context, stop <-chan struct{}) {
	clock := k.r.d.clock.clock
	for {
		timer, cancel := clock.NewTimer(k.r.cfg.Lease / 12)
		select {
		case <-timer:
		case <-stop:
			cancel()
			return
		case <-ctx.Done():
			cancel()
			return
		}
		k.renew(ctx)
	}
}

// renew prolongs the leases of which a third has passed.
func (k *leaseKeeper) renew(ctx context.Context) {
	now := k.r.d.clock.now()
	old := k.older(now.Add(k.r.cfg.Lease * 2 / 3))
	for len(old) > 0 {
		batch := old[:min(len(old), maxBatch)]
		old = old[len(batch):]
		until := now.Add(k.r.cfg.Lease)
		lost, err := k.r.core.backend.Renew(ctx, RenewParams{Now: now, LeaseUntil: until, Leases: batch})
		if err != nil {
			// Two thirds of the time are left for further tries.
			k.r.core.log.WarnContext(ctx, "webhook: leases not renewed yet", "leases", len(batch), "error", err)
			return
		}
		k.renewed(batch, until, lost)
	}
}

// older returns the leases that end before the given time.
func (k *leaseKeeper) older(end time.Time) []Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	var leases []Lease
	for id, l := range k.held {
		if l.until.Before(end) {
			leases = append(leases, Lease{DeliveryID: id, Token: l.token})
		}
	}
	return leases
}

func (k *leaseKeeper) renewed(leases []Lease, until time.Time, lost []uuid.UUID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range leases {
		if held := k.held[l.DeliveryID]; held.token == l.Token {
			held.until = until
			k.held[l.DeliveryID] = held
		}
	}
	for _, id := range lost {
		k.drop(id)
	}
}
