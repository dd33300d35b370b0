package webhook

import (
	"time"

	"github.com/outhook/webhook/internal/scheduler"
)

// When the loop claims. Each claim costs the database much the same, however few
// deliveries it brings, so what becomes ready is gathered; but what can be sent at once
// waits for nothing but claims.
const (
	// maxClaims is how many claims are under way at a time: were there only one, what
	// becomes ready right after it began would wait for it and for the next.
	maxClaims = 2

	// claimPause is the shortest time between a claim and a second one beside it: each
	// costs the database much the same, however few deliveries it brings.
	claimPause = 5 * time.Millisecond

	// patientPause is the shortest time between claims for nothing that is urgent, such
	// as retries and probes. Those become due one by one and can wait for one another, or
	// for a claim that goes anyway.
	patientPause = 25 * time.Millisecond

	// claimPatience is how long a dispatcher that has more work than slots waits for
	// 1/claimShare of those that come and go to become free, before it claims for
	// fewer. It begins a second claim only for as many.
	claimPatience = 3 * time.Millisecond
	claimShare    = 2
)

// mayClaim reports whether another claim may begin beside those under way.
func (l *loop) mayClaim() bool {
	switch l.claiming {
	case 0:
		return true
	case maxClaims:
		return false
	}
	t := l.sched.Totals()
	return t.Queued > 0 && (!l.scarce || l.free(t) >= l.turning(t)/claimShare)
}

// pause is how long the next claim has to wait because of the one before.
func (l *loop) pause() time.Duration {
	t := l.sched.Totals()
	switch {
	case l.scarce || t.Queued == 0:
		return 0
	case t.Urgent == 0:
		return patientPause - time.Since(l.begun)
	case l.claiming > 0:
		return claimPause - time.Since(l.begun)
	}
	return 0
}

// isSmall reports whether a claim would be small although there is work for a large
// one and much is in flight, so that more slots are about to become free.
func (l *loop) isSmall() bool {
	t := l.sched.Totals()
	enough := l.turning(t) / claimShare
	return l.scarce && t.Queued > 0 && t.InFlight-t.Slow >= enough && l.free(t) < enough
}

// turning is how many slots come and go: slow requests keep theirs.
func (l *loop) turning(t scheduler.Totals) int { return l.r.cfg.MaxInFlight - t.Slow }

func (l *loop) free(t scheduler.Totals) int { return l.r.cfg.MaxInFlight - t.InFlight - t.Reserved }

// timer fires when the scheduler may grant something that it cannot grant now.
func (l *loop) timer() (<-chan time.Time, func()) {
	if !l.mayClaim() {
		return nil, func() {}
	}
	if pause := l.pause(); pause > 0 {
		t := time.NewTimer(pause)
		return t.C, func() { t.Stop() }
	}
	now := l.now()
	at, ok := l.sched.NextWake(now)
	if ok && l.retryAt.After(at) {
		at = l.retryAt
	}
	if held := l.heldAt.Add(claimPatience); ok && !l.heldAt.IsZero() && held.After(at) {
		at = held
	}
	if !ok {
		return nil, func() {}
	}
	return l.r.d.clock.clock.NewTimer(max(at.Sub(now), 0))
}
