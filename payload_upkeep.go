package webhook

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

const (
	// orphanAge is how old a payload without an event is when it is removed: no
	// transaction of a host is open for as long.
	orphanAge = 2 * day

	// orphansEvery is how often the PayloadStore is looked through.
	orphansEvery = day

	// dutyOrphans is the duty of doing it. It is not given back when it was done, so
	// that nobody does it again before its time is over.
	dutyOrphans = "orphaned payloads"

	// payloadsPerPage is how many payloads are looked at at a time.
	payloadsPerPage = 1000
)

// removePayloads removes the payloads of events that were removed.
func (c *core) removePayloads(ctx context.Context) error {
	var failed []error
	for after := uuid.Nil; ; {
		gone, err := c.backend.GonePayloads(ctx, after, payloadsPerPage)
		if err != nil || len(gone) == 0 {
			return errors.Join(append(failed, err)...)
		}
		if c.payloads.store == nil {
			return errors.New("payloads are to be removed from a payload store, and Config.PayloadStore is not set")
		}
		done := make([]uuid.UUID, 0, len(gone))
		for _, key := range gone {
			if err := c.payloads.store.Delete(ctx, key); err != nil {
				failed = append(failed[:min(len(failed), 3)], fmt.Errorf("remove payload %s: %w", key.EventID, err))
				continue
			}
			done = append(done, key.EventID)
		}
		if err := c.backend.ForgetPayloads(ctx, done); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		after = gone[len(gone)-1].EventID
	}
}

// sweepPayloads removes, once a day, payloads whose event was never committed.
func (r *run) sweepPayloads(ctx context.Context) error {
	lister, ok := r.core.payloads.store.(PayloadLister)
	if !ok {
		return nil
	}
	now := r.d.clock.now()
	duty := DutyParams{Name: dutyOrphans, Holder: uuid.New(), Now: now, Until: now.Add(orphansEvery)}
	if held, err := r.core.backend.TakeDuty(ctx, duty); err != nil || !held {
		return err
	}
	err := r.core.removeOrphans(ctx, lister, now.Add(-orphanAge))
	if err == nil {
		return nil
	}
	duty.Until = duty.Now
	giving, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	_, back := r.core.backend.TakeDuty(giving, duty)
	return errors.Join(err, back)
}

func (c *core) removeOrphans(ctx context.Context, lister PayloadLister, before time.Time) error {
	page := make(map[uuid.UUID]PayloadKey, payloadsPerPage)
	for key, err := range lister.List(ctx) {
		if err != nil {
			return fmt.Errorf("list payloads: %w", err)
		}
		if !madeAt(key.EventID).Before(before) {
			continue
		}
		page[key.EventID] = key
		if len(page) == payloadsPerPage {
			if err := c.removeAbsent(ctx, page); err != nil {
				return err
			}
			clear(page)
		}
	}
	return c.removeAbsent(ctx, page)
}

// removeAbsent removes those of the payloads that have no event.
func (c *core) removeAbsent(ctx context.Context, page map[uuid.UUID]PayloadKey) error {
	ids := make([]uuid.UUID, 0, len(page))
	for id := range page {
		ids = append(ids, id)
	}
	absent, err := c.backend.AbsentEvents(ctx, ids)
	if err != nil {
		return fmt.Errorf("look for the events of payloads: %w", err)
	}
	for _, id := range absent {
		if err := c.payloads.store.Delete(ctx, page[id]); err != nil {
			return fmt.Errorf("remove orphaned payload %s: %w", id, err)
		}
	}
	if len(absent) > 0 {
		c.log.InfoContext(ctx, "webhook: removed payloads whose events were never committed", "payloads", len(absent))
	}
	return nil
}

// madeAt is the time in an id (UUID version 7).
func madeAt(id uuid.UUID) time.Time {
	var ms [8]byte
	copy(ms[2:], id[:6])
	return time.UnixMilli(int64(binary.BigEndian.Uint64(ms[:]))).UTC()
}
