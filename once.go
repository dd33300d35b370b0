package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/google/uuid"
)

// endUnknownBatch is how many deliveries end in one transaction.
const endUnknownBatch = 500

// errNotHeld says that a delivery went to another dispatcher.
var errNotHeld = errors.New("the lease is no longer held")

// endUnknown ends the deliveries to at-most-once endpoints whose dispatcher died after
// it had marked them as sent.
func (r *run) endUnknown(ctx context.Context) error {
	for n := endUnknownBatch; n == endUnknownBatch && ctx.Err() == nil; {
		var err error
		n, err = r.core.backend.EndUnknown(ctx, EndUnknownParams{Now: r.d.clock.now(), Limit: endUnknownBatch})
		if err != nil {
			return fmt.Errorf("end deliveries of unknown outcome: %w", err)
		}
		if n > 0 {
			r.core.log.WarnContext(ctx, "webhook: deliveries ended that may have arrived: their dispatcher died", "deliveries", n)
		}
	}
	return nil
}

// marker marks deliveries to at-most-once endpoints before they are sent. While one
// write is on its way those that come gather for the next.
type marker struct {
	r *run

	mu      sync.Mutex
	waiting []*mark
	writing bool
}

// mark is one to be written.
type mark struct {
	lease Lease
	done  chan error // cap 1
}

// mark returns when the mark is committed. After an error it may be or not, and the
// delivery must not be sent.
func (m *marker) mark(lease Lease) error {
	k := &mark{lease: lease, done: make(chan error, 1)}
	m.mu.Lock()
	m.waiting = append(m.waiting, k)
	begin := !m.writing
	m.writing = true
	m.mu.Unlock()
	if begin {
		m.r.attempts.Go(m.write)
	}
	return <-k.done
}

// write writes what waits until nothing does.
func (m *marker) write() {
	for {
		m.mu.Lock()
		batch := m.waiting[:min(len(m.waiting), maxBatch)]
		m.waiting = m.waiting[len(batch):]
		m.writing = len(batch) > 0
		m.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		m.writeBatch(batch)
	}
}

func (m *marker) writeBatch(batch []*mark) {
	p := MarkSentParams{Now: m.r.d.clock.now(), Leases: make([]Lease, len(batch))}
	for i, k := range batch {
		p.Leases[i] = k.lease
	}
	ctx, cancel := context.WithTimeout(m.r.attemptCtx, m.r.cfg.RequestTimeout)
	defer cancel()
	lost, err := m.r.core.backend.MarkSent(ctx, p)
	gone := make(map[uuid.UUID]bool, len(lost))
	for _, id := range lost {
		gone[id] = true
	}
	for _, k := range batch {
		if err == nil && gone[k.lease.DeliveryID] {
			k.done <- errNotHeld
			continue
		}
		k.done <- err
	}
}
