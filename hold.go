package webhook

import (
	"time"

	"github.com/outhook/webhook/internal/egress"
)

// How long a delivery waits that cannot be sent through no fault of its endpoint,
// such as a secret that cannot be opened, a signer that fails, a broken egress
// proxy: a tenth of its age within these bounds, so that a fault that lasts for
// days does not fill the log.
const (
	leastHold = time.Minute
	mostHold  = 15 * time.Minute
	holdShare = 10
)

func holdTime(age time.Duration) time.Duration {
	return min(max(age/holdShare, leastHold), mostHold)
}

// holdBack makes a delivery wait for which no request could be made. The reason
// is logged as an attempt that does not count.
func (r *run) holdBack(c *Claimed, lease Lease, started time.Time, err error) sent {
	if r.attemptCtx.Err() != nil {
		return sent{result: handedBack(c, lease, c.DueAt)}
	}
	now := r.d.clock.now()
	res := egress.Result{Class: egress.Class(ClassInternal), Err: err, Latency: max(now.Sub(started), 0)}
	return uncounted(c, lease, r.core.attemptOf(c, started, &res), now.Add(holdTime(now.Sub(c.CreatedAt))))
}

// uncounted makes a delivery due again at the given time, after an attempt that is
// in its log and otherwise counts for nothing.
func uncounted(c *Claimed, lease Lease, a *Attempt, at time.Time) sent {
	s := sent{result: handedBack(c, lease, at)}
	s.result.Attempt, s.result.Uncounted = a, true
	return s
}

// logHeld tells operators why a delivery waits that is not its endpoint's doing.
func (r *run) logHeld(c *Claimed, doing string, err error) {
	if r.attemptCtx.Err() != nil {
		return
	}
	r.core.log.Error("webhook: delivery held: cannot "+doing, "delivery", c.DeliveryID, "endpoint", c.EndpointID,
		"tenant", c.Event.Tenant, "error", egress.Detail(err))
}
