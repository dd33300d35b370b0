package webhook

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook/internal/egress"
	"github.com/outhook/webhook/internal/filter"
	"github.com/outhook/webhook/internal/matcher"
)

// What one fan-out transaction does at most (docs/design.md §2).
const (
	fanOutEvents     = 1000
	fanOutDeliveries = 1000

	// fanOutPayloads is for how long a fan-out transaction reads from a PayloadStore
	// what filters are to look at. What it does not get to is filtered when it is sent.
	fanOutPayloads = 2 * time.Second
)

// fanOut turns the outbox into deliveries. Its run is the one goroutine that
// uses the matcher.
type fanOut struct {
	r       *run
	wake    chan struct{} // cap 1
	matcher *endpointMatcher
}

func newFanOut(r *run) *fanOut {
	return &fanOut{r: r, wake: make(chan struct{}, 1), matcher: newEndpointMatcher(r.registry)}
}

// run fans out whenever it is woken, until ctx ends.
func (f *fanOut) run(ctx context.Context) {
	stop := f.r.core.waker.listen(f.wake)
	defer stop()
	var wait backoff
	for ctx.Err() == nil {
		err := f.drain(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			f.r.core.log.WarnContext(ctx, "webhook: fan-out waits for the database", "error", err)
			if !wait.sleep(ctx) {
				return
			}
			continue
		}
		wait.reset()
		select {
		case <-f.wake:
		case <-ctx.Done():
		}
	}
}

// drain fans out until the outbox holds nothing that it could take.
func (f *fanOut) drain(ctx context.Context) error {
	if f.matcher.Revision() < 0 {
		if err := f.load(ctx); err != nil {
			return err
		}
	}
	for ctx.Err() == nil {
		now := f.r.d.clock.now()
		began := time.Now()
		done := f.matcher.begin(ctx)
		res, err := f.r.core.backend.FanOut(ctx, FanOutParams{
			Now:           now,
			MaxEvents:     fanOutEvents,
			MaxDeliveries: fanOutDeliveries,
			Matcher:       f.matcher,
		})
		done()
		f.tell(&res, err, now, time.Since(began))
		if err != nil {
			return fmt.Errorf("fan out: %w", err)
		}
		f.announce(res.Endpoints, now)
		f.r.tellShed(res.Shed)
		if !res.More {
			return nil
		}
	}
	return nil
}

// tell tells the observer of a fan-out that did something.
func (f *fanOut) tell(res *FanOutResult, err error, now time.Time, took time.Duration) {
	o := f.r.telling.observer
	if o == nil || res.Events == 0 && err == nil {
		return
	}
	report := FanOutReport{
		Took: took, Events: res.Events, Unmatched: res.Unmatched, Deliveries: res.Deliveries, Failed: err != nil,
	}
	if !res.OldestCreatedAt.IsZero() {
		report.Lag = max(now.Add(took).Sub(res.OldestCreatedAt), 0)
	}
	f.r.observe(func() { o.FanOutDone(report) })
}

// announce tells the loop, and the dispatchers whose endpoints they are, of new
// deliveries.
func (f *fanOut) announce(endpoints []uuid.UUID, now time.Time) {
	if len(endpoints) == 0 {
		return
	}
	own := make([]arrival, 0, len(endpoints))
	var others []uuid.UUID
	for _, id := range endpoints {
		if t := f.r.registry.get(id); t == nil || f.r.cluster.owns(t) {
			own = append(own, arrival{id, f.matcher.matched[id]})
		} else {
			others = append(others, id)
		}
	}
	f.r.loop.arrive(own, now)
	f.r.cluster.signal(SignalReady, others...)
}

// load fills the matcher before the first fan-out, in pages and outside of a
// transaction; the fan-out then applies what has changed since.
func (f *fanOut) load(ctx context.Context) error {
	if err := f.r.core.eachChanged(ctx, f.matcher.Revision(), f.matcher.Apply); err != nil {
		return fmt.Errorf("load endpoints: %w", err)
	}
	return nil
}

// endpointMatcher is the [Matcher] of a dispatcher: an index in memory. It tells
// the registry of the endpoints that it learns of.
type endpointMatcher struct {
	*matcher.Matcher

	registry *registry
	ordered  map[uuid.UUID]Ordering // of the endpoints that have one
	matched  map[uuid.UUID]int      // deliveries by endpoint, in the present fan-out
	reading  context.Context        //nolint:containedctx // of the present fan-out: for payloads that are kept elsewhere
}

func newEndpointMatcher(r *registry) *endpointMatcher {
	return &endpointMatcher{
		Matcher: matcher.New(), registry: r,
		ordered: make(map[uuid.UUID]Ordering), matched: make(map[uuid.UUID]int),
	}
}

// Apply implements [Matcher].
func (m *endpointMatcher) Apply(endpoints []EndpointRecord, revision int64) error {
	changed := make([]matcher.Endpoint, 0, len(endpoints))
	var removed []uuid.UUID
	for i := range endpoints {
		rec := &endpoints[i]
		delete(m.ordered, rec.ID)
		if !rec.DeletedAt.IsZero() {
			removed = append(removed, rec.ID)
			continue
		}
		changed = append(changed, subscription(rec))
		if rec.Ordering != OrderingNone {
			m.ordered[rec.ID] = rec.Ordering
		}
	}
	m.registry.apply(endpoints)
	m.Matcher.Apply(revision, changed, removed)
	return nil
}

// subscription is what the matcher needs to know of an endpoint.
func subscription(rec *EndpointRecord) matcher.Endpoint {
	e := matcher.Endpoint{ID: rec.ID, Tenant: rec.Tenant, Patterns: rec.Types}
	if f := optionsOf(rec).Filter; len(f) > 0 {
		// A filter that does not compile got into the database by another hand.
		// Sending too much is visible; sending nothing would lose events.
		if compiled, err := filter.Compile(f); err == nil {
			e.Filter = compiled
		}
	}
	return e
}

// Ordering implements [Matcher].
func (m *endpointMatcher) Ordering(endpoint uuid.UUID) Ordering {
	if len(m.ordered) == 0 {
		return OrderingNone
	}
	return m.ordered[endpoint]
}

// Match implements [Matcher].
func (m *endpointMatcher) Match(dst []uuid.UUID, e *EventRecord, after uuid.UUID, max int) (ids []uuid.UUID, more bool) {
	before := len(dst)
	payload, readable := e.Payload, true
	if len(e.PayloadRef) > 0 && m.WantsPayloadOf(e.Tenant, e.Type) {
		payload, readable = m.payloadOf(e)
	}
	if readable {
		ids, more = m.Matcher.Match(dst, e.Tenant, e.Type, payload, after, max)
	} else {
		ids, more = m.MatchTypes(dst, e.Tenant, e.Type, after, max)
	}
	for _, id := range ids[before:] {
		m.matched[id]++
	}
	return ids, more
}

// begin readies the matcher for a fan-out, which ends with the returned function.
func (m *endpointMatcher) begin(ctx context.Context) (done func()) {
	clear(m.matched)
	m.reading, done = context.WithTimeout(ctx, fanOutPayloads)
	return done
}

// payloadOf reads a payload that is kept elsewhere. Where it cannot, the event goes to
// every endpoint of its type, each of which then shows what is wrong, or filters it when
// it is sent: a filter that cannot be asked must not make an event disappear.
func (m *endpointMatcher) payloadOf(e *EventRecord) (payload []byte, ok bool) {
	defer func() {
		if v := recover(); v != nil {
			m.registry.core.log.Error("webhook: panic in the payload store", "event", e.ID, "panic", fmt.Sprintf("%T", v))
			payload, ok = nil, false
		}
	}()
	payload, err := m.registry.core.payloads.share(m.reading, e)
	if err != nil && m.reading.Err() == nil {
		m.registry.core.log.Warn("webhook: an event is filtered when it is sent: cannot read its payload", "event", e.ID,
			"tenant", e.Tenant, "error", egress.Detail(err))
	}
	return payload, err == nil
}
