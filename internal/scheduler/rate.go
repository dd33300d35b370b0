package scheduler

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// bucket is a token bucket on x/time/rate. Tokens are asked for with TokensAt
// when work is granted, less those pending for slots already given out, and taken
// with AllowN when the request starts; Reserve and Wait are never used, since their debts pile up.
type bucket struct {
	lim   *rate.Limiter
	limit float64
	burst int
}

// batchTime is how much of a high rate is granted at once, so that a rate of
// 1,000/s does not mean 1,000 claims per second.
const batchTime = 50 * time.Millisecond

// update sets limit and burst; tokens that were saved up stay, up to the burst.
func (b *bucket) update(now time.Time, limit float64, burst int) {
	burst = max(1, burst)
	switch {
	case b.lim == nil:
		b.lim = rate.NewLimiter(rate.Limit(limit), burst)
	case b.limit == limit && b.burst == burst:
		return
	default:
		b.lim.SetBurstAt(now, burst)
		b.lim.SetLimitAt(now, rate.Limit(limit))
	}
	b.limit, b.burst = limit, burst
}

// refill sets the level, for a bucket that was stored: a new limiter starts
// full, and would grant a fresh burst at every hand-over.
func (b *bucket) refill(now time.Time, tokens float64) {
	b.lim = rate.NewLimiter(rate.Limit(b.limit), b.burst)
	if spent := int(math.Ceil(float64(b.burst) - tokens)); spent > 0 {
		b.lim.AllowN(now, min(spent, b.burst))
	}
}

// free is how many requests may be granted now, with pending already granted.
func (b *bucket) free(now time.Time, pending int) int {
	return int(math.Floor(b.lim.TokensAt(now))) - pending
}

// isEmpty reports whether nothing may be granted now; without a bucket there is no limit.
func (b *bucket) isEmpty(now time.Time, pending int) bool {
	return b != nil && b.free(now, pending) <= 0
}

// nextAt is when there will be something to grant, once free is zero.
func (b *bucket) nextAt(now time.Time, pending int) time.Time {
	batch := min(float64(b.burst), math.Max(1, b.limit*batchTime.Seconds()))
	missing := batch + float64(pending) - b.lim.TokensAt(now)
	wait := time.Duration(missing/b.limit*float64(time.Second)) + time.Microsecond
	return now.Add(max(wait, time.Microsecond))
}

// take uses one token, which is there if it was reserved.
func (b *bucket) take(now time.Time) bool { return b.lim.AllowN(now, 1) }

func burstOf(limit float64, burst int) int {
	if burst > 0 {
		return burst
	}
	return max(1, int(math.Ceil(limit)))
}

// adaptive finds a rate for an endpoint that has none of its own, from the
// throughput that it answered with success. It does nothing until the endpoint
// shows overload; then the limit is cut below the observed throughput, and
// grows slowly while more than 95 % of the attempts succeed.
type adaptive struct {
	limit float64 // requests per second; zero: not engaged
	// The present interval, and the throughput of the last one.
	since   int64
	ok, bad int
	last    float64
	cut     bool // the limit was cut in this interval
	calm    int  // intervals without overload in a row
}

const (
	adaptiveInterval = 5 * time.Second
	adaptiveCut      = 0.8
	adaptiveGrowth   = 1.1
	// After ten minutes without overload and without the limit being reached it
	// is lifted.
	adaptiveCalm = int(10 * time.Minute / adaptiveInterval)
)

// trouble takes an attempt that failed, was throttled or was slow, and cuts the
// limit once per interval when there are too many.
func (a *adaptive) trouble(now int64, c *Config) {
	a.bad++
	overloaded := a.bad >= 2 && a.bad*20 > a.ok+a.bad
	if overloaded && !a.cut {
		elapsed := float64(now-a.since) / float64(time.Second)
		throughput := a.last
		if elapsed >= 1 {
			throughput = math.Max(throughput, float64(a.ok)/elapsed)
		}
		if a.limit > 0 {
			throughput = math.Min(throughput, a.limit)
		}
		a.limit = math.Max(c.AdaptiveFloor, adaptiveCut*throughput)
		a.cut, a.calm = true, 0
	}
}

// roll closes an interval that has passed, with ceiling the endpoint's own rate.
func (a *adaptive) roll(now int64, ceiling float64) {
	elapsed := now - a.since
	if elapsed < int64(adaptiveInterval) {
		return
	}
	if a.since != 0 {
		a.last = float64(a.ok) / (float64(elapsed) / float64(time.Second))
	}
	used := a.last >= 0.7*a.limit
	if a.limit > 0 && !a.cut {
		a.calm++
		if used {
			a.limit *= adaptiveGrowth
			a.calm = 0
		}
		if a.calm >= adaptiveCalm || ceiling > 0 && a.limit >= ceiling {
			a.limit, a.calm = 0, 0
		}
	}
	a.since, a.ok, a.bad, a.cut = now, 0, 0, false
}
