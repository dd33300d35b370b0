package webhook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook/internal/filter"
	"github.com/outhook/webhook/internal/loadcache"
)

const (
	// payloadCacheBytes is how much of what was read from a PayloadStore is kept in
	// memory, so that an event with many endpoints is read once and not once for each.
	payloadCacheBytes = 64 << 20

	// payloadsAtOnce is how many payloads of one call are put at a time.
	payloadsAtOnce = 8

	// payloadPatience is for how long a delivery waits for a payload that is missing or
	// damaged: a volume that is not mounted or a restore that goes on is mended by then.
	payloadPatience = day
)

// payloads are those that are kept in a PayloadStore.
type payloads struct {
	store     PayloadStore // nil: there is none
	threshold int
	cache     *loadcache.Cache[uuid.UUID]
}

// newPayloads fills in the defaults of a configuration.
func newPayloads(cfg *Config) (*payloads, error) {
	p := &payloads{store: cfg.PayloadStore, threshold: cfg.PayloadThreshold, cache: loadcache.New[uuid.UUID](payloadCacheBytes)}
	switch {
	case cfg.MaxPayload < 0:
		return nil, invalid("Config.MaxPayload", "is negative")
	case cfg.PayloadThreshold < 0:
		return nil, invalid("Config.PayloadThreshold", "is negative")
	case cfg.PayloadThreshold > 0 && cfg.PayloadStore == nil:
		return nil, invalid("Config.PayloadThreshold", "is set, but Config.PayloadStore is not")
	}
	if p.threshold == 0 {
		p.threshold = DefaultPayloadThreshold
	}
	if cfg.MaxPayload == 0 {
		cfg.MaxPayload = DefaultMaxPayload
		if p.store != nil {
			cfg.MaxPayload = DefaultMaxStoredPayload
		}
	}
	return p, nil
}

// payloadRef is what a payload must be, as it stands in EventRecord.PayloadRef.
type payloadRef struct {
	Size   int    `json:"size"`
	SHA256 string `json:"sha256"`
}

func refOf(payload []byte) payloadRef {
	sum := sha256.Sum256(payload)
	return payloadRef{Size: len(payload), SHA256: hex.EncodeToString(sum[:])}
}

// PayloadSize is the size of the payload in bytes, wherever it is kept.
func (e *EventRecord) PayloadSize() int {
	var ref payloadRef
	if len(e.Payload) == 0 && len(e.PayloadRef) > 0 && json.Unmarshal(e.PayloadRef, &ref) == nil {
		return ref.Size
	}
	return len(e.Payload)
}

func (e *EventRecord) payloadKey() PayloadKey { return PayloadKey{Tenant: e.Tenant, EventID: e.ID} }

// PayloadFault says why an event's payload cannot be shown.
type PayloadFault string

// What may be wrong with a payload that is kept in a [PayloadStore].
const (
	PayloadMissing     PayloadFault = "missing"     // it is not there
	PayloadDamaged     PayloadFault = "damaged"     // it is another one than was put
	PayloadUnreachable PayloadFault = "unreachable" // the payload store does not answer, or there is none
)

// faultOf sorts the errors of load.
func faultOf(err error) PayloadFault {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrPayloadMissing):
		return PayloadMissing
	case errors.Is(err, ErrPayloadDamaged):
		return PayloadDamaged
	}
	return PayloadUnreachable
}

// put moves those payloads that are large enough to the PayloadStore.
func (p *payloads) put(ctx context.Context, records []EventRecord) error {
	if p.store == nil {
		return nil
	}
	var large []*EventRecord
	for i := range records {
		if len(records[i].Payload) > p.threshold {
			large = append(large, &records[i])
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, payloadsAtOnce)
	var workers sync.WaitGroup
	for _, rec := range large {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		workers.Go(func() {
			defer func() { <-slots }()
			if err := p.putOne(ctx, rec); err != nil {
				cancel(err)
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}

func (p *payloads) putOne(ctx context.Context, rec *EventRecord) error {
	ref, err := json.Marshal(refOf(rec.Payload))
	if err != nil {
		return err
	}
	if err := p.store.Put(ctx, rec.payloadKey(), rec.Payload); err != nil {
		return fmt.Errorf("put a payload of %d bytes: %w", len(rec.Payload), err)
	}
	rec.Payload, rec.PayloadRef = nil, ref
	return nil
}

// dropDuplicates removes what was put for events that were not written. A payload that
// stays is found later, as that of a transaction that was rolled back.
func (c *core) dropDuplicates(ctx context.Context, records []EventRecord, results []EnqueueResult) {
	for i := range results {
		if !results[i].Duplicate || len(records[i].PayloadRef) == 0 {
			continue
		}
		if err := c.payloads.store.Delete(ctx, records[i].payloadKey()); err != nil {
			c.log.WarnContext(ctx, "webhook: the payload of a duplicate stays for now", "event", records[i].ID, "error", err)
		}
	}
}

// read returns an event's payload from the PayloadStore, if it is what was put.
func (p *payloads) read(ctx context.Context, e *EventRecord) ([]byte, error) {
	if len(e.PayloadRef) == 0 {
		return e.Payload, nil
	}
	if p.store == nil {
		return nil, fmt.Errorf("%w: Config.PayloadStore is not set", ErrPayloadUnreachable)
	}
	var want payloadRef
	if err := json.Unmarshal(e.PayloadRef, &want); err != nil {
		return nil, fmt.Errorf("%w: its reference is unreadable", ErrPayloadDamaged)
	}
	payload, err := p.store.Get(ctx, e.payloadKey())
	switch {
	case errors.Is(err, ErrPayloadMissing):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrPayloadUnreachable, err)
	}
	if refOf(payload) != want {
		return nil, ErrPayloadDamaged
	}
	return payload, nil
}

// share is read for many who want the same at about the same time.
func (p *payloads) share(ctx context.Context, e *EventRecord) ([]byte, error) {
	if len(e.PayloadRef) == 0 {
		return e.Payload, nil
	}
	return p.cache.Get(ctx, e.ID, func(ctx context.Context) ([]byte, error) { return p.read(ctx, e) })
}

// fetchPayload reads the payload of a claimed delivery.
func (r *run) fetchPayload(ctx context.Context, c *Claimed, timeout time.Duration) (err error) {
	if len(c.Event.PayloadRef) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c.Event.Payload, err = r.core.payloads.share(ctx, &c.Event)
	return err
}

// withoutPayload is what becomes of a delivery whose payload cannot be read: not its
// endpoint's doing, so it waits and is tried again without using up attempts, and its log
// says why. One that is missing or damaged for good ends as dead, with a reason of its
// own.
func (r *run) withoutPayload(c *Claimed, lease Lease, started time.Time, err error) sent {
	r.logHeld(c, "read the payload", err)
	s := r.holdBack(c, lease, started, err)
	if s.result.Attempt == nil || started.Sub(c.CreatedAt) < payloadPatience {
		return s
	}
	switch faultOf(err) {
	case PayloadMissing:
		s.result.State, s.result.Reason = StateDead, ReasonPayloadMissing
	case PayloadDamaged:
		s.result.State, s.result.Reason = StateDead, ReasonPayloadDamaged
	case PayloadUnreachable:
	}
	return s
}

// filteredOut reports whether the endpoint's filter leaves out an event that fan-out could
// not look at. Runs that somebody asked for are not filtered.
func filteredOut(t *target, c *Claimed) bool {
	if len(c.Event.PayloadRef) == 0 || len(t.options.Filter) == 0 || c.Run != 0 || c.Attempts > 0 {
		return false
	}
	f, err := filter.Compile(t.options.Filter)
	return err == nil && !f.Match(c.Event.Payload)
}
