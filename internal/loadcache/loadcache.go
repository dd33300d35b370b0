// Package loadcache keeps what is dear to load and wanted by many at about the same time:
// whoever wants it while it is being loaded waits for that instead of loading it again.
package loadcache

import (
	"container/list"
	"context"
	"errors"
	"sync"
)

// Cache keeps the bytes that were wanted last, up to a number of them. It is safe for
// concurrent use. Nobody may change what it returns.
type Cache[K comparable] struct {
	max int

	mu      sync.Mutex // protects what follows
	entries map[K]*entry[K]
	recent  *list.List // of *entry[K] that are loaded, the last wanted first
	used    int
}

type entry[K comparable] struct {
	key    K
	loaded chan struct{} // closed when what follows is set
	value  []byte
	err    error
	place  *list.Element // in recent; nil while it is being loaded; the cache's lock protects it
}

// New returns an empty cache that keeps up to max bytes.
func New[K comparable](max int) *Cache[K] {
	return &Cache[K]{max: max, entries: make(map[K]*entry[K]), recent: list.New()}
}

// errGivenUp is what those get who waited for a load that panicked.
var errGivenUp = errors.New("loadcache: loading was given up")

// Get returns what is kept of the key, or what load returns, which is kept. Errors are
// not kept. Of those that want a key at once one loads; the others wait for it, as long
// as their own contexts last, and load for themselves if that one's ended.
func (c *Cache[K]) Get(ctx context.Context, key K, load func(context.Context) ([]byte, error)) ([]byte, error) {
	for {
		c.mu.Lock()
		e := c.entries[key]
		if e == nil {
			e = &entry[K]{key: key, loaded: make(chan struct{}), err: errGivenUp}
			c.entries[key] = e
			c.mu.Unlock()
			return c.load(ctx, e, load)
		}
		if e.place != nil {
			c.recent.MoveToFront(e.place)
		}
		c.mu.Unlock()
		select {
		case <-e.loaded:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if e.err == nil || !errors.Is(e.err, context.Canceled) && !errors.Is(e.err, context.DeadlineExceeded) {
			return e.value, e.err
		}
	}
}

func (c *Cache[K]) load(ctx context.Context, e *entry[K], load func(context.Context) ([]byte, error)) ([]byte, error) {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		defer close(e.loaded)
		if e.err != nil || len(e.value) > c.max {
			delete(c.entries, e.key)
			return
		}
		e.place = c.recent.PushFront(e)
		for c.used += len(e.value); c.used > c.max; {
			oldest := c.recent.Remove(c.recent.Back()).(*entry[K])
			delete(c.entries, oldest.key)
			c.used -= len(oldest.value)
		}
	}()
	e.value, e.err = load(ctx)
	return e.value, e.err
}
