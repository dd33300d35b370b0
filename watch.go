package webhook

import (
	"context"
	"errors"
	"math"
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

	// reconcilePause is the longest such sleep.
	reconcilePause = 20 * time.Second

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
		err := r.registry.refresh(ctx)
		if err == nil {
			r.polledAt.Store(r.d.clock.now().UnixNano())
		}
		return errors.Join(err, r.cluster.pollOpened(ctx))
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
	workers.Go(func() { r.settleAbandoned(ctx) })
	workers.Go(func() { r.lookAfterHealth(ctx) })
	if r.cfg.Notifications.Notify != nil {
		workers.Go(func() { r.tell(ctx) })
	}
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
	if d <= 0 {
		return ctx.Err() == nil
	}
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
// else nobody told of.
func (r *run) reconcile(ctx context.Context) {
	stop := r.core.waker.listenDue(r.reconciled)
	defer stop()
	var took pace
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
		if !r.sleep(ctx, took.rest(time.Since(began))-r.cfg.PollInterval) {
			return
		}
	}
}

// pace is how long what runs at every poll took last.
type pace time.Duration

// rest is how long it rests after it took so long. What took long but once says nothing:
// the database was away, or the process stood still.
func (p *pace) rest(took time.Duration) time.Duration {
	least := min(took, time.Duration(*p))
	*p = pace(took)
	return min(reconcileShare*least, reconcilePause)
}

func (r *run) reconcileOnce(ctx context.Context) error {
	var after uuid.UUID
	var oldest oldestDue
	var waited [2]time.Time
	for {
		now := r.d.clock.now()
		lanes, err := r.core.backend.Ready(ctx, ReadyParams{Now: now, After: after, Limit: reconcilePage})
		if err != nil {
			return err
		}
		if len(lanes) == 0 {
			r.telling.waited(&oldest)
			r.health.waited(waited)
			return nil
		}
		oldest.look(r, lanes, now)
		r.health.dueSince(lanes, now, &waited)
		after = lanes[len(lanes)-1].EndpointID
		r.noteAbandoned(lanes)
		r.loop.ready(lanes)
	}
}

// noteAbandoned has what disabled and deleted endpoints have pending settled.
func (r *run) noteAbandoned(lanes []ReadyLane) {
	for _, lane := range lanes {
		t := r.registry.get(lane.EndpointID)
		if t == nil {
			continue
		}
		if _, ok := t.abandoned(); !ok {
			continue
		}
		r.abandonedMu.Lock()
		r.abandoned[lane.EndpointID] = struct{}{}
		r.abandonedMu.Unlock()
		poke(r.settle)
	}
}

// settleAbandoned cancels what disabled and deleted endpoints have pending, in small
// batches and beside everything else: there may be millions. What fails is found again
// by the next reconciliation.
func (r *run) settleAbandoned(ctx context.Context) {
	for {
		select {
		case <-r.settle:
		case <-ctx.Done():
			return
		}
		for id := range take(&r.abandonedMu, r.abandoned, math.MaxInt) {
			if err := r.cancelAll(ctx, id); err != nil && ctx.Err() == nil {
				r.core.log.WarnContext(ctx, "webhook: cannot cancel an endpoint's deliveries", "endpoint", id, "error", err)
			}
		}
	}
}

// cancelAll cancels an endpoint's deliveries for as long as it is abandoned.
func (r *run) cancelAll(ctx context.Context, id uuid.UUID) error {
	for n := cancelBatch; n == cancelBatch; {
		t := r.registry.get(id)
		if t == nil {
			return nil
		}
		reason, ok := t.abandoned()
		if !ok {
			return nil
		}
		var err error
		n, err = r.core.backend.CancelDeliveries(ctx, CancelDeliveriesParams{
			Now: r.d.clock.now(), EndpointID: id, Reason: reason, Limit: cancelBatch,
		})
		if err != nil {
			return err
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
