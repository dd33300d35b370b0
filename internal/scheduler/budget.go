package scheduler

import (
	"math"
	"time"
)

const (
	budgetWindow = 60 * time.Second
	budgetBucket = 5 * time.Second
	// One bucket more than the window holds: retries are counted over the whole
	// window and the bucket that is only partly in it, attempts only over whole
	// buckets, so that rounding never allows a retry too many.
	budgetBuckets = int(budgetWindow/budgetBucket) + 1
)

// retryBudget counts an endpoint's attempts and retries over the last 60 s.
type retryBudget struct {
	bucket   int64 // number of the newest bucket since 1970
	attempts [budgetBuckets]uint32
	retries  [budgetBuckets]uint32
}

func (b *retryBudget) roll(now int64) int {
	bucket := now / int64(budgetBucket)
	if gone := bucket - b.bucket; gone >= int64(budgetBuckets) || b.bucket == 0 {
		*b = retryBudget{bucket: bucket}
	} else {
		for ; b.bucket < bucket; b.bucket++ {
			i := int((b.bucket + 1) % int64(budgetBuckets))
			b.attempts[i], b.retries[i] = 0, 0
		}
	}
	return int(b.bucket % int64(budgetBuckets))
}

// count takes an attempt of a delivery: above number 1 it is a retry.
func (b *retryBudget) count(now int64, number int) {
	i := b.roll(now)
	b.attempts[i]++
	if number > 1 {
		b.retries[i]++
	}
}

// sums returns the attempts and retries of the window.
func (b *retryBudget) sums(now int64) (attempts, retries int) {
	newest := b.roll(now)
	oldest := (newest + 1) % budgetBuckets
	for i := range budgetBuckets {
		retries += int(b.retries[i])
		if i != oldest {
			attempts += int(b.attempts[i])
		}
	}
	return attempts, retries
}

// left is how many retries the budget has left, with pending already given out.
func (b *retryBudget) left(now int64, c *Config, pending int) int {
	attempts, retries := b.sums(now)
	allowed := c.RetryShare * float64(attempts)
	if c.RetryFloor > 0 {
		allowed += float64(budgetWindow) / float64(c.RetryFloor)
	}
	return max(0, int(math.Floor(allowed+1e-9))-retries-pending)
}

// nextChange is when the window moves on, which is when a budget that is used
// up may have something again.
func (b *retryBudget) nextChange(now int64) int64 {
	return (now/int64(budgetBucket) + 1) * int64(budgetBucket)
}
