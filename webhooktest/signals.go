package webhooktest

import (
	"context"

	"github.com/outhook/webhook"
)

// listener is one Listen call. Its channel is drained by that call; a signal
// that finds it full is dropped, as a listener with so many waiting is awake.
type listener struct{ signals chan webhook.Signal }

// Notify implements [webhook.Notifier].
func (s *Store) Notify(ctx context.Context, signal webhook.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.listeners {
		select {
		case l.signals <- signal:
		default:
		}
	}
	return ctx.Err()
}

// Listen implements [webhook.Notifier].
func (s *Store) Listen(ctx context.Context, ready func(), handle func(webhook.Signal)) error {
	l := &listener{signals: make(chan webhook.Signal, 64)}
	s.mu.Lock()
	s.listeners[l] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, l)
	}()

	ready()
	for {
		select {
		case signal := <-l.signals:
			handle(signal)
		case <-ctx.Done():
			return nil
		}
	}
}
