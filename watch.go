package webhook

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	// reconcilePage is how many endpoints one Ready call looks at.
	reconcilePage = 5000

	// reconcileShare bounds what reconciliation costs: it runs at every poll, but
	// sleeps at least this many times as long as it took.
	reconcileShare = 20

	// cancelBatch is how many deliveries of an abandoned endpoint are cancelled
	// in one transaction.
	cancelBatch = 500
)

// watch starts what looks out for things that nobody told of. All of it ends
// with ctx.
func (r *run) watch(ctx context.Context, workers *sync.WaitGroup) {
	every := func(d time.Duration, doing string, do func(context.Context) error) {
		workers.Go(func() { r.repeat(ctx, d, doing, do) })
	}
	every(r.cfg.PollInterval, "poll", func(ctx context.Context) error {
		poke(r.fanOut.wake)
		poke(r.reconciled)
		poke(r.turns)
		return errors.Join(r.registry.refresh(ctx), r.cluster.pollOpened(ctx))
	})
	every(clockInterval, "measure the clock", r.d.clock.measure)
	every(upkeepInterval, "do the upkeep", r.upkeep)
	every(overdueInterval, "end overdue deliveries", r.endOverdue)
	if r.cfg.TenantLimits != nil {
		every(tenantsInterval, "ask for tenants' limits", func(context.Context) error {
			poke(r.loop.tenantsC)
			return nil
		})
	}
	if r.cluster.store != nil {
		every(r.loop.sched.BacklogInterval(), "count backlogs", func(context.Context) error {
			poke(r.loop.backlogC)
			return nil
		})
	}
	if r.telling.observer != nil {
		every(r.cfg.PollInterval, "tell the observer", r.sample)
	}
	workers.Go(func() { r.reconcile(ctx) })
	workers.Go(func() { r.giveTurns(ctx) })
	workers.Go(func() { r.replay(ctx) })
	if n, ok := r.core.backend.(Notifier); ok {
		workers.Go(func() { r.hear(ctx, n) })
	}
}

// repeat does something now and then every d. Failures are logged and made up
// for by the next time.
func (r *run) repeat(ctx context.Context, d time.Duration, doing string, do func(context.Context) error) {
	for ctx.Err() == nil {
		if err := do(ctx); err != nil && ctx.Err() == nil {
			r.core.log.WarnContext(ctx, "webhook: cannot "+doing, "error", err)
		}
		if !r.sleep(ctx, d) {
			return
		}
	}
}

// sleep waits by the dispatcher's clock; false means that ctx ended.
func (r *run) sleep(ctx context.Context, d time.Duration) bool {
	timer, stop := r.d.clock.clock.NewTimer(d)
	defer stop()
	select {
	case <-timer:
		return true
	case <-ctx.Done():
		return false
	}
}

// reconcile tells the loop what is due according to the store, whenever it is
// poked: what other processes left, what an expired lease set free, and whatever
// else nobody told of. It also settles what abandoned endpoints have pending.
func (r *run) reconcile(ctx context.Context) {
	stop := r.core.waker.listenDue(r.reconciled)
	defer stop()
	for {
		select {
		case <-r.reconciled:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		if err := r.reconcileOnce(ctx); err != nil && ctx.Err() == nil {
			r.core.log.WarnContext(ctx, "webhook: cannot reconcile", "error", err)
		}
		if pause := reconcileShare*time.Since(began) - r.cfg.PollInterval; pause > 0 && !r.sleep(ctx, pause) {
			return
		}
	}
}

func (r *run) reconcileOnce(ctx context.Context) error {
	var after uuid.UUID
	var oldest oldestDue
	for {
		now := r.d.clock.now()
		lanes, err := r.core.backend.Ready(ctx, ReadyParams{Now: now, After: after, Limit: reconcilePage})
		if err != nil {
			return err
		}
		if len(lanes) == 0 {
			r.telling.waited(&oldest)
			return nil
		}
		oldest.look(r, lanes, now)
		after = lanes[len(lanes)-1].EndpointID
		if err := r.settleAbandoned(ctx, lanes); err != nil {
			return err
		}
		r.loop.ready(lanes)
	}
}

// settleAbandoned cancels the deliveries of disabled and deleted endpoints.
func (r *run) settleAbandoned(ctx context.Context, lanes []ReadyLane) error {
	var last uuid.UUID
	for _, lane := range lanes {
		if lane.EndpointID == last {
			continue
		}
		last = lane.EndpointID
		t := r.registry.get(lane.EndpointID)
		if t == nil {
			continue
		}
		reason, ok := t.abandoned()
		if !ok {
			continue
		}
		for n := cancelBatch; n == cancelBatch; {
			var err error
			n, err = r.core.backend.CancelDeliveries(ctx, CancelDeliveriesParams{
				Now: r.d.clock.now(), EndpointID: lane.EndpointID, Reason: reason, Limit: cancelBatch,
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// hear listens to the signals of other processes, and begins again when it can
// no longer hear them.
func (r *run) hear(ctx context.Context, n Notifier) {
	var wait backoff
	for ctx.Err() == nil {
		err := n.Listen(ctx, func() {
			wait.reset()
			r.listening.Store(true)
			// What was signalled while nobody listened is looked for now.
			poke(r.fanOut.wake)
		}, func(s Signal) { r.signalled(ctx, s) })
		r.listening.Store(false)
		if ctx.Err() != nil {
			return
		}
		r.core.log.WarnContext(ctx, "webhook: signals not heard, polling", "error", err)
		if !wait.sleep(ctx) {
			return
		}
	}
}

func (r *run) signalled(ctx context.Context, s Signal) {
	word, ids := s.parts()
	switch word {
	case SignalEvents:
		poke(r.fanOut.wake)
	case SignalEndpoints:
		if err := r.registry.refresh(ctx); err != nil && ctx.Err() == nil {
			r.core.log.WarnContext(ctx, "webhook: cannot read endpoints", "error", err)
		}
	case SignalReady:
		r.toldReady(ids)
	case SignalOpened:
		r.cluster.wantHealth(ids)
	case SignalHosts:
		poke(r.cluster.splitsC)
	}
}

// toldReady takes in that another dispatcher fanned events out to endpoints of
// this one.
func (r *run) toldReady(ids []uuid.UUID) {
	if len(ids) == 0 {
		poke(r.reconciled)
		return
	}
	now := r.d.clock.now()
	lanes := make([]ReadyLane, len(ids))
	for i, id := range ids {
		lanes[i] = ReadyLane{EndpointID: id, Lane: LaneFirst, DueAt: now}
	}
	r.loop.ready(lanes)
}
