package webhook

import (
	"context"
	"sync"
	"time"
)

// lazyTimeout is a context that ends with its parent or after a time, and sets a timer
// only if somebody waits for that. What it is for seldom does, and happens at every
// attempt.
type lazyTimeout struct {
	context.Context // the parent

	deadline time.Time

	mu     sync.Mutex
	real   context.Context // made when it is first waited for
	cancel context.CancelFunc
	ended  bool
}

// withLazyTimeout returns a context like that of [context.WithTimeout], for use by one
// goroutine and what it starts; call the function when it is not needed any longer.
func withLazyTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	c := &lazyTimeout{Context: parent, deadline: time.Now().Add(d)}
	return c, c.end
}

// Deadline implements [context.Context].
func (c *lazyTimeout) Deadline() (time.Time, bool) {
	if d, ok := c.Context.Deadline(); ok && d.Before(c.deadline) {
		return d, true
	}
	return c.deadline, true
}

// Done implements [context.Context].
func (c *lazyTimeout) Done() <-chan struct{} { return c.waited().Done() }

// Err implements [context.Context].
func (c *lazyTimeout) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.real != nil:
		return c.real.Err()
	case c.Context.Err() != nil:
		return c.Context.Err()
	case c.ended:
		return context.Canceled
	case !time.Now().Before(c.deadline):
		return context.DeadlineExceeded
	}
	return nil
}

// waited returns the context with a timer.
func (c *lazyTimeout) waited() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real == nil {
		c.real, c.cancel = context.WithDeadline(c.Context, c.deadline)
		if c.ended {
			c.cancel()
		}
	}
	return c.real
}

func (c *lazyTimeout) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.cancel != nil {
		c.cancel()
	}
}
