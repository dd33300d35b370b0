package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// leaseTime is how long the suite's leases run (docs/design.md §2.3).
const leaseTime = 90 * time.Second

// plenty is a limit that is not meant to be reached.
const plenty = 1000

// env is what a test works with: a fresh database, a store on it, and a time
// from which all others are counted.
type env[Tx any] struct {
	t     testing.TB
	ctx   context.Context
	db    Database[Tx]
	store webhook.Store[Tx]
	now   time.Time
}

// at is a time relative to the test's beginning.
func (e *env[Tx]) at(d time.Duration) time.Time { return e.now.Add(d) }

func (e *env[Tx]) must(err error, doing string, args ...any) {
	e.t.Helper()
	if err != nil {
		e.t.Fatalf("%s: %v", fmt.Sprintf(doing, args...), err)
	}
}

func (e *env[Tx]) wantError(want, got error, doing string) {
	e.t.Helper()
	if !errors.Is(got, want) {
		e.t.Errorf("%s: got error %v, want %v", doing, got, want)
	}
}

// equal compares values, and times as instants.
func (e *env[Tx]) equal(want, got any, what string, args ...any) {
	e.t.Helper()
	if w, isTime := want.(time.Time); isTime {
		if g, ok := got.(time.Time); ok && w.Equal(g) {
			return
		}
	} else if reflect.DeepEqual(want, got) {
		return
	}
	e.t.Errorf("%s: got %v, want %v", fmt.Sprintf(what, args...), got, want)
}

// need is equal for what the rest of the test builds on.
func (e *env[Tx]) need(want, got any, what string, args ...any) {
	e.t.Helper()
	if !reflect.DeepEqual(want, got) {
		e.t.Fatalf("%s: got %v, want %v", fmt.Sprintf(what, args...), got, want)
	}
}

func (e *env[Tx]) truth(ok bool, format string, args ...any) {
	e.t.Helper()
	if !ok {
		e.t.Errorf(format, args...)
	}
}

// sameBytes compares contents; nil and empty are the same.
func (e *env[Tx]) sameBytes(want, got []byte, what string) {
	e.t.Helper()
	if !bytes.Equal(want, got) {
		e.t.Errorf("%s: got %d bytes %.60q, want %d bytes %.60q", what, len(got), got, len(want), want)
	}
}

// sameSet compares ids without regard to their order, and finds doubles.
func (e *env[Tx]) sameSet(want, got []uuid.UUID, what string) {
	e.t.Helper()
	counts := map[uuid.UUID]int{}
	for _, id := range got {
		counts[id]++
	}
	for _, id := range want {
		if counts[id] == 0 {
			e.t.Errorf("%s: %s is missing", what, id)
			return
		}
	}
	for id, n := range counts {
		if n > 1 {
			e.t.Errorf("%s: %s is there %d times", what, id, n)
			return
		}
	}
	if len(got) != len(want) {
		e.t.Errorf("%s: got %d, want %d", what, len(got), len(want))
	}
}

// concurrently runs fn n times at once and fails the test on the first error.
func (e *env[Tx]) concurrently(n int, fn func(i int) error) {
	e.t.Helper()
	var wg sync.WaitGroup
	failures := make([]error, n)
	for i := range n {
		wg.Go(func() { failures[i] = fn(i) })
	}
	wg.Wait()
	e.must(errors.Join(failures...), "run %d at once", n)
}

// --- the host ---

// hostTx is a transaction of the host. One that a failing test leaves open is
// rolled back at the end.
type hostTx[Tx any] struct {
	e    *env[Tx]
	tx   Tx
	done bool
}

func (e *env[Tx]) begin() *hostTx[Tx] {
	e.t.Helper()
	tx, err := e.db.Begin(e.ctx)
	e.must(err, "begin a host transaction")
	h := &hostTx[Tx]{e: e, tx: tx}
	e.t.Cleanup(func() {
		if !h.done {
			_ = e.db.Rollback(context.Background(), tx)
		}
	})
	return h
}

func (h *hostTx[Tx]) insert(events ...webhook.EventRecord) []webhook.EnqueueResult {
	h.e.t.Helper()
	results, err := h.e.store.InsertEvents(h.e.ctx, h.tx, events)
	h.e.must(err, "insert %d events", len(events))
	h.e.need(len(events), len(results), "results of InsertEvents")
	return results
}

func (h *hostTx[Tx]) commit() {
	h.e.t.Helper()
	h.done = true
	h.e.must(h.e.db.Commit(h.e.ctx, h.tx), "commit the host transaction")
}

func (h *hostTx[Tx]) rollback() {
	h.e.t.Helper()
	h.done = true
	h.e.must(h.e.db.Rollback(h.e.ctx, h.tx), "roll the host transaction back")
}

// event returns an event of the type to be enqueued.
func (e *env[Tx]) event(tenant, eventType string) webhook.EventRecord {
	return webhook.EventRecord{
		ID:        newID(),
		Tenant:    tenant,
		Type:      eventType,
		Payload:   []byte(`{}`),
		CreatedAt: e.now,
	}
}

// keyed returns an event with an idempotency key.
func (e *env[Tx]) keyed(tenant, key string) webhook.EventRecord {
	event := e.event(tenant, "order.created")
	event.IdempotencyKey = key
	return event
}

// eventsOf returns n events of the type.
func (e *env[Tx]) eventsOf(n int, tenant, eventType string) []webhook.EventRecord {
	events := make([]webhook.EventRecord, n)
	for i := range events {
		events[i] = e.event(tenant, eventType)
	}
	return events
}

// enqueue commits events in one transaction.
func (e *env[Tx]) enqueue(events ...webhook.EventRecord) []webhook.EnqueueResult {
	e.t.Helper()
	tx := e.begin()
	results := tx.insert(events...)
	tx.commit()
	return results
}

// enqueueIn commits events in a transaction of its own, from any goroutine.
func (e *env[Tx]) enqueueIn(store webhook.Store[Tx], commit bool, events ...webhook.EventRecord) ([]webhook.EnqueueResult, error) {
	tx, err := e.db.Begin(e.ctx)
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	results, err := store.InsertEvents(e.ctx, tx, events)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("insert events: %w", err), e.db.Rollback(e.ctx, tx))
	}
	if !commit {
		return results, e.db.Rollback(e.ctx, tx)
	}
	return results, e.db.Commit(e.ctx, tx)
}

// --- endpoints ---

func (e *env[Tx]) newEndpoint(tenant string, types ...string) webhook.EndpointRecord {
	return webhook.EndpointRecord{
		ID:             newID(),
		Tenant:         tenant,
		URL:            "https://hooks.example/in",
		Types:          types,
		State:          webhook.EndpointActive,
		StateChangedAt: e.now,
		CreatedAt:      e.now,
		UpdatedAt:      e.now,
		Options:        []byte(`{}`),
		Secrets:        []byte(`[]`),
	}
}

func (e *env[Tx]) endpoint(tenant string, types ...string) webhook.EndpointRecord {
	e.t.Helper()
	created, err := e.store.CreateEndpoint(e.ctx, e.newEndpoint(tenant, types...))
	e.must(err, "create an endpoint")
	return created
}

// endpoints creates n endpoints of a tenant for the types.
func (e *env[Tx]) endpoints(n int, tenant string, types ...string) []webhook.EndpointRecord {
	e.t.Helper()
	created := make([]webhook.EndpointRecord, n)
	for i := range created {
		created[i] = e.endpoint(tenant, types...)
	}
	return created
}

func (e *env[Tx]) update(record webhook.EndpointRecord) webhook.EndpointRecord {
	e.t.Helper()
	updated, err := e.store.UpdateEndpoint(e.ctx, record)
	e.must(err, "update an endpoint")
	return updated
}

func (e *env[Tx]) setState(record webhook.EndpointRecord, state webhook.EndpointState) webhook.EndpointRecord {
	e.t.Helper()
	record.State = state
	record.StateReason = "told to"
	return e.update(record)
}

func (e *env[Tx]) deleteEndpoint(record webhook.EndpointRecord) webhook.EndpointRecord {
	e.t.Helper()
	record.DeletedAt = e.at(time.Second)
	return e.update(record)
}

// --- fan-out ---

func (e *env[Tx]) fanOutWith(m *matcher, maxEvents, maxDeliveries int) webhook.FanOutResult {
	e.t.Helper()
	result, err := e.store.FanOut(e.ctx, webhook.FanOutParams{
		Now: e.now, MaxEvents: maxEvents, MaxDeliveries: maxDeliveries, Matcher: m,
	})
	e.must(err, "fan out")
	return result
}

// fanOut empties the outbox with a matcher that knows nothing yet.
func (e *env[Tx]) fanOut() {
	e.t.Helper()
	e.fanOutAt(e.now)
}

// fanOutAt is fanOut at another time.
func (e *env[Tx]) fanOutAt(now time.Time) {
	e.t.Helper()
	_, err := e.drain(e.store, now, plenty)
	e.must(err, "fan out")
}

// drain empties the outbox, from any goroutine, and returns how many entries it
// finished.
func (e *env[Tx]) drain(store webhook.Store[Tx], now time.Time, maxEvents int) (int, error) {
	m := newMatcher()
	finished := 0
	for {
		result, err := store.FanOut(e.ctx, webhook.FanOutParams{
			Now: now, MaxEvents: maxEvents, MaxDeliveries: plenty, Matcher: m,
		})
		if err != nil {
			return finished, err
		}
		finished += result.Finished
		if result.Events == 0 {
			return finished, nil
		}
	}
}

// --- deliveries ---

// leased is a claimed delivery with the token that holds it.
type leased struct {
	webhook.Claimed
	token uuid.UUID
}

func (l leased) lease() webhook.Lease {
	return webhook.Lease{DeliveryID: l.DeliveryID, Token: l.token}
}

// oldest asks for the deliveries of a lane that have been due longest.
func oldest(endpoint webhook.EndpointRecord, lane webhook.Lane, limit int) webhook.ClaimRequest {
	return webhook.ClaimRequest{EndpointID: endpoint.ID, Lane: lane, Limit: limit}
}

// newest asks for those that became due last.
func newest(endpoint webhook.EndpointRecord, lane webhook.Lane, limit int) webhook.ClaimRequest {
	return webhook.ClaimRequest{EndpointID: endpoint.ID, Lane: lane, Limit: limit, Newest: true}
}

func (e *env[Tx]) claim(at time.Time, requests ...webhook.ClaimRequest) []leased {
	e.t.Helper()
	claimed, err := e.claimFrom(e.store, at, requests...)
	e.must(err, "claim")
	return claimed
}

// claimFrom claims through a given store, from any goroutine.
func (e *env[Tx]) claimFrom(store webhook.Store[Tx], at time.Time, requests ...webhook.ClaimRequest) ([]leased, error) {
	token := newID()
	claimed, err := store.Claim(e.ctx, webhook.ClaimParams{
		Now: at, LeaseUntil: at.Add(leaseTime), Token: token, Requests: requests,
	})
	held := make([]leased, len(claimed))
	for i, c := range claimed {
		held[i] = leased{Claimed: c, token: token}
	}
	return held, err
}

// claimOne claims the one delivery that is due.
func (e *env[Tx]) claimOne(at time.Time, endpoint webhook.EndpointRecord, lane webhook.Lane) leased {
	e.t.Helper()
	claimed := e.claim(at, oldest(endpoint, lane, plenty))
	if len(claimed) != 1 {
		e.t.Fatalf("claimed %d deliveries, want 1", len(claimed))
	}
	return claimed[0]
}

// delivery makes one delivery, due at the test's beginning, to an endpoint of
// its own.
func (e *env[Tx]) delivery(tenant string) webhook.EndpointRecord {
	e.t.Helper()
	endpoint := e.endpoint(tenant, "*")
	e.enqueue(e.event(tenant, "order.created"))
	e.fanOut()
	return endpoint
}

// deliveries makes n deliveries to a new endpoint.
func (e *env[Tx]) deliveries(n int, tenant string) webhook.EndpointRecord {
	e.t.Helper()
	endpoint := e.endpoint(tenant, "*")
	e.enqueue(e.eventsOf(n, tenant, "order.created")...)
	e.fanOut()
	return endpoint
}

func (e *env[Tx]) record(at time.Time, results ...webhook.Result) webhook.RecordResult {
	e.t.Helper()
	recorded, err := e.store.Record(e.ctx, webhook.RecordParams{Now: at, Results: results})
	e.must(err, "record %d results", len(results))
	return recorded
}

// attempt is the next attempt of a leased delivery, with the outcome.
func attempt(l leased, startedAt time.Time, status int) *webhook.Attempt {
	a := &webhook.Attempt{
		DeliveryID: l.DeliveryID,
		EventID:    l.Event.ID,
		EndpointID: l.EndpointID,
		Tenant:     l.Event.Tenant,
		Number:     l.Attempts + 1,
		StartedAt:  startedAt,
		Latency:    125 * time.Millisecond,
		Status:     status,
	}
	switch {
	case status >= 500:
		a.Class = webhook.ClassHTTP5xx
		a.Error = "the endpoint answered with an error"
	case status >= 400:
		a.Class = webhook.ClassHTTP4xx
	}
	return a
}

func delivered(l leased, startedAt time.Time) webhook.Result {
	return webhook.Result{Lease: l.lease(), State: webhook.StateDelivered, Attempt: attempt(l, startedAt, 200)}
}

func dead(l leased, startedAt time.Time, reason string) webhook.Result {
	return webhook.Result{Lease: l.lease(), State: webhook.StateDead, Reason: reason, Attempt: attempt(l, startedAt, 503)}
}

func retry(l leased, startedAt, next time.Time) webhook.Result {
	return webhook.Result{
		Lease: l.lease(), State: webhook.StatePending, NextAttemptAt: next,
		Lane: webhook.LaneRetry, Attempt: attempt(l, startedAt, 503),
	}
}

func uncounted(l leased, startedAt, next time.Time) webhook.Result {
	a := attempt(l, startedAt, 0)
	a.Class, a.Error = webhook.ClassInternal, "secret is unreadable"
	r := handBack(l, next)
	r.Attempt, r.Uncounted = a, true
	return r
}

func handBack(l leased, next time.Time) webhook.Result {
	return webhook.Result{Lease: l.lease(), State: webhook.StatePending, NextAttemptAt: next, Lane: l.Lane}
}

// --- the log ---

func (e *env[Tx]) getEvent(id uuid.UUID) webhook.EventStatus {
	e.t.Helper()
	status, err := e.store.GetEvent(e.ctx, webhook.AllTenants(), id)
	e.must(err, "get event %s", id)
	return status
}

func (e *env[Tx]) getDelivery(id uuid.UUID) webhook.Delivery {
	e.t.Helper()
	d, err := e.store.GetDelivery(e.ctx, webhook.AllTenants(), id)
	e.must(err, "get delivery %s", id)
	return d
}

func (e *env[Tx]) attempts(deliveryID uuid.UUID) []webhook.Attempt {
	e.t.Helper()
	attempts, err := e.store.ListAttempts(e.ctx, webhook.AllTenants(), deliveryID)
	e.must(err, "list attempts")
	return attempts
}

// list returns all deliveries that the filter lets through.
func (e *env[Tx]) list(p webhook.ListDeliveriesParams) []webhook.Delivery {
	e.t.Helper()
	p.Limit = plenty
	var all []webhook.Delivery
	for {
		page, err := e.store.ListDeliveries(e.ctx, p)
		e.must(err, "list deliveries")
		all = append(all, page.Deliveries...)
		if page.Next == uuid.Nil {
			return all
		}
		p.Before = page.Next
	}
}

// reached returns the endpoints that an event has deliveries to.
func (e *env[Tx]) reached(eventID uuid.UUID) []uuid.UUID {
	e.t.Helper()
	var ids []uuid.UUID
	for _, d := range e.list(webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), EventID: eventID}) {
		ids = append(ids, d.EndpointID)
	}
	return ids
}

func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

func endpointIDs(endpoints ...webhook.EndpointRecord) []uuid.UUID {
	ids := make([]uuid.UUID, len(endpoints))
	for i, e := range endpoints {
		ids[i] = e.ID
	}
	return ids
}

func eventIDs(events ...webhook.EventRecord) []uuid.UUID {
	ids := make([]uuid.UUID, len(events))
	for i, e := range events {
		ids[i] = e.ID
	}
	return ids
}

func deliveryIDs(claimed ...leased) []uuid.UUID {
	ids := make([]uuid.UUID, len(claimed))
	for i, c := range claimed {
		ids[i] = c.DeliveryID
	}
	return ids
}
