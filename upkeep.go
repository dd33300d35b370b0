package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// upkeepInterval is how often upkeep is done.
	upkeepInterval = time.Hour

	// activityKept is for how long it is kept what dispatchers did when, and
	// noticesKept what was told.
	activityKept = 48 * time.Hour
	noticesKept  = 30 * day

	// deletedKept is for how long the vitals of a deleted endpoint are kept: a
	// dispatcher that has not heard of it would write them again.
	deletedKept = day

	// dutyUpkeep is the duty of doing it.
	dutyUpkeep = "upkeep"

	// dutyTime is for how long a duty is taken at a time, and so how long nobody
	// does it after the one who did has crashed. It is prolonged at a third.
	dutyTime = time.Minute

	// giveBackTimeout bounds giving a duty back when ctx has ended already.
	giveBackTimeout = 2 * time.Second
)

// errDutyLost ends upkeep that somebody else does by now.
var errDutyLost = errors.New("the duty went to another process")

// upkeep lets the store make partitions, count what happened and remove what has
// been kept for long enough, with payloads that are kept elsewhere, unless another process is doing so.
func (r *run) upkeep(ctx context.Context) error {
	return r.onDuty(ctx, dutyUpkeep, func(ctx context.Context) error {
		now := r.d.clock.now()
		maintained := r.core.backend.Maintain(ctx, MaintainParams{
			Now:              now,
			DeadBefore:       before(now, r.cfg.Retention.Dead),
			DeliveriesBefore: before(now, r.cfg.Retention.Deliveries),
			EventsBefore:     before(now, r.cfg.Retention.Events),
			ActivityBefore:   now.Add(-activityKept),
			NoticesBefore:    now.Add(-noticesKept),
			DeletedBefore:    now.Add(-deletedKept),
		})
		return errors.Join(maintained, r.core.removePayloads(ctx), r.sweepPayloads(ctx))
	})
}

// onDuty does something unless another process is doing it. It may take as long as it
// takes: the duty is prolonged meanwhile, and given back afterwards.
func (r *run) onDuty(ctx context.Context, duty string, do func(context.Context) error) error {
	if held, err := r.takeDuty(ctx, duty, dutyTime); err != nil || !held {
		return err
	}
	working, stop := context.WithCancelCause(ctx)
	var keeper sync.WaitGroup
	keeper.Go(func() { r.keepDuty(working, duty, stop) })

	err := do(working)
	if err != nil && errors.Is(context.Cause(working), errDutyLost) {
		err = fmt.Errorf("%w: %w", errDutyLost, err)
	}
	stop(nil)
	keeper.Wait()

	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	_, back := r.takeDuty(ending, duty, 0)
	return errors.Join(err, back)
}

func (r *run) takeDuty(ctx context.Context, name string, d time.Duration) (held bool, err error) {
	now := r.d.clock.now()
	return r.core.backend.TakeDuty(ctx, DutyParams{Name: name, Holder: r.cluster.id, Now: now, Until: now.Add(d)})
}

// keepDuty prolongs a duty until ctx ends, and calls lost when it went to another.
// That the database is away for a moment does not matter: nobody else can take the
// duty then, and work that two do is only done in vain.
func (r *run) keepDuty(ctx context.Context, name string, lost context.CancelCauseFunc) {
	for r.sleep(ctx, dutyTime/3) {
		held, err := r.takeDuty(ctx, name, dutyTime)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			r.core.log.WarnContext(ctx, "webhook: cannot prolong a duty", "duty", name, "error", err)
		case !held:
			lost(errDutyLost)
		}
	}
}
