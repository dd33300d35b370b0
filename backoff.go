package webhook

import (
	"context"
	"math/rand/v2"
	"time"
)

// Waits between tries of something of our own that fails, such as the database.
const (
	backoffBase = 100 * time.Millisecond
	backoffMax  = 5 * time.Second
)

// backoff spaces tries: 100 ms, doubling to 5 s, each between half and all of
// that. The zero value is ready.
type backoff struct {
	failures int
}

// next returns the wait before the next try.
func (b *backoff) next() time.Duration {
	d := min(backoffBase<<min(b.failures, 10), backoffMax)
	b.failures++
	return d/2 + rand.N(d/2+1)
}

// sleep waits before the next try; false means that ctx ended.
func (b *backoff) sleep(ctx context.Context) bool {
	t := time.NewTimer(b.next())
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (b *backoff) reset() { b.failures = 0 }
