package admin

import (
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// defaultActionsPerMinute is the default of [Config.ActionsPerMinute].
const defaultActionsPerMinute = 60

// maxLimited is how many principals a limiter knows before it forgets those that have
// not used up anything.
const maxLimited = 10_000

// limiter bounds how often a principal may ask for what causes requests to receivers or
// long reads. A tenant's members share one bound.
type limiter struct {
	perMinute int // 0: no bound

	mu      sync.Mutex // protects buckets
	buckets map[string]*rate.Limiter
}

func newLimiter(perMinute int) *limiter {
	return &limiter{perMinute: perMinute, buckets: map[string]*rate.Limiter{}}
}

// allow reports whether the principal may go on, or else after how long.
func (l *limiter) allow(p principal) (wait time.Duration, ok bool) {
	if l.perMinute == 0 {
		return 0, true
	}
	key := "t" + p.tenant
	if p.operator {
		key = "o" + p.name
	}
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buckets[key]
	if b == nil {
		l.forget(now)
		b = rate.NewLimiter(rate.Limit(float64(l.perMinute)/60), l.perMinute)
		l.buckets[key] = b
	}
	if b.AllowN(now, 1) {
		return 0, true
	}
	missing := 1 - b.TokensAt(now)
	return time.Duration(missing / float64(b.Limit()) * float64(time.Second)), false
}

// forget makes room by what a new bucket would be the same as.
func (l *limiter) forget(now time.Time) {
	if len(l.buckets) < maxLimited {
		return
	}
	for key, b := range l.buckets {
		if b.TokensAt(now) >= float64(l.perMinute) {
			delete(l.buckets, key)
		}
	}
}

// limit refuses a visit that comes too soon after others of the same principal.
func (v *visit) limit() error {
	wait, ok := v.handler.limiter.allow(v.principal)
	if ok {
		return nil
	}
	v.w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	return problem{Status: http.StatusTooManyRequests, Code: "too_many_requests", Detail: "That was too often. Try again in a moment."}
}
