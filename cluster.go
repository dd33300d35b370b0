package webhook

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook/internal/membership"
	"github.com/outhook/webhook/internal/scheduler"
)

const (
	// deadAfterBeats is how many heartbeats a dispatcher may miss before the
	// others take its endpoints over (docs/design.md §3: 2 s and 10 s).
	deadAfterBeats = 5

	// signalPause is the time in which signals to other dispatchers are gathered.
	signalPause = 20 * time.Millisecond

	// cutOffAfterBeats is after how many heartbeats without success a dispatcher
	// that has others beside it claims nothing more: they may have taken over.
	cutOffAfterBeats = deadAfterBeats - 1

	// signalEndpoints is how many endpoints one signal lists at most, and
	// signalBurst how many signals follow one another; beyond that everybody looks
	// for themselves.
	signalEndpoints = 300
	signalBurst     = 10

	// storePatience bounds a call to the store, so that one which hangs does not
	// keep the dispatcher from ever asking again.
	storePatience = 30 * time.Second

	// healthBatch is how many endpoints are loaded or saved at a time.
	healthBatch = 1000
)

// cluster is a dispatcher's place among those that share the database. Endpoints
// are shared out by host, so that host caps are exact too. Who owns what is an
// optimisation: while dispatchers disagree, leases keep each delivery single.
type cluster struct {
	r        *run
	id       uuid.UUID
	store    ClusterStore // nil: every endpoint is this dispatcher's
	notifier Notifier     // nil: others find out by polling

	splitStore SplitStore // nil: no host is split

	assigned atomic.Pointer[assignment]
	regions  sync.Map // tenant → region, as far as they were needed; the loop writes it

	// Database time in nanoseconds: when the last heartbeat that got through was
	// sent, and the last one that told of others.
	beaten, shared atomic.Int64

	mu         sync.Mutex // protects the work below, which the goroutines take from it
	toLoad     map[uuid.UUID]struct{}
	toSave     map[uuid.UUID]HealthRecord
	toTell     map[Signal]map[uuid.UUID]struct{}
	toSplit    map[string]HostSplit
	members    []Member // what the assignment is made from
	splitHosts []HostSplit

	load, save, tell, split, splitsC chan struct{} // cap 1 each: there is work
}

func newCluster(r *run) *cluster {
	c := &cluster{
		r:       r,
		id:      uuid.New(),
		toLoad:  make(map[uuid.UUID]struct{}),
		toSave:  make(map[uuid.UUID]HealthRecord),
		toTell:  make(map[Signal]map[uuid.UUID]struct{}),
		toSplit: make(map[string]HostSplit),
		load:    make(chan struct{}, 1),
		split:   make(chan struct{}, 1),
		splitsC: make(chan struct{}, 1),
		save:    make(chan struct{}, 1),
		tell:    make(chan struct{}, 1),
	}
	c.store, _ = r.core.backend.(ClusterStore)
	c.notifier, _ = r.core.backend.(Notifier)
	c.splitStore, _ = c.store.(SplitStore)
	c.members = []Member{{ID: c.id, Serves: r.cfg.Serves.encode()}}
	c.assigned.Store(newAssignment(c.members, nil, time.Time{}))
	return c
}

// owns reports whether an endpoint is this dispatcher's. Of a tenant that the loop has
// not learnt of yet it says so, and the loop will know.
func (c *cluster) owns(t *target) bool {
	region, known := c.region(t.record.Tenant)
	return !known || c.assigned.Load().owner(t, region) == c.id
}

// reports reports whether this dispatcher is the one that tells of a tenant.
func (c *cluster) reports(members []uuid.UUID, tenant string) bool {
	return membership.Owner(members, tenant) == c.id
}

// start starts the goroutines that share the work out; they end with ctx.
func (c *cluster) start(ctx context.Context, workers *sync.WaitGroup) {
	if c.store == nil {
		return
	}
	workers.Go(func() {
		c.r.repeat(ctx, c.r.cfg.HeartbeatInterval, "send a heartbeat", c.beat)
	})
	if c.splits() {
		workers.Go(func() { c.serve(ctx, c.split, 0, "save how hosts are split", c.saveSplits) })
		workers.Go(func() { c.serve(ctx, c.splitsC, 0, "read how hosts are split", c.loadSplits) })
	}
	workers.Go(func() { c.serve(ctx, c.load, 0, "load endpoints' health", c.loadAll) })
	workers.Go(func() { c.serve(ctx, c.save, 0, "save endpoints' health", c.saveAll) })
	if c.notifier != nil {
		workers.Go(func() { c.serve(ctx, c.tell, signalPause, "signal", c.tellAll) })
	}
}

// serve does the work whenever there is some, until ctx ends, and tries again
// what fails.
func (c *cluster) serve(ctx context.Context, work chan struct{}, pause time.Duration, doing string, do func(context.Context) error) {
	var wait backoff
	for {
		select {
		case <-work:
		case <-ctx.Done():
			return
		}
		if pause > 0 && !c.r.sleep(ctx, pause) {
			return
		}
		if err := patiently(ctx, storePatience, do); err != nil && ctx.Err() == nil {
			c.r.core.log.WarnContext(ctx, "webhook: cannot "+doing, "error", err)
			poke(work)
			if !wait.sleep(ctx) {
				return
			}
			continue
		}
		wait.reset()
	}
}

// patiently bounds how long a call takes.
func patiently(ctx context.Context, atMost time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	return do(ctx)
}

// beat sends a heartbeat and tells the loop who is alive. One that gets no answer
// before the others stop waiting is given up.
func (c *cluster) beat(ctx context.Context) error {
	if c.store == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, max(deadAfterBeats*c.r.cfg.HeartbeatInterval, time.Second))
	defer cancel()
	if err := c.r.d.clock.settle(ctx); err != nil {
		return err
	}
	now := c.r.d.clock.now()
	members, err := c.store.Heartbeat(ctx, HeartbeatParams{
		Now:        now,
		DeadBefore: now.Add(-deadAfterBeats * c.r.cfg.HeartbeatInterval),
		Dispatcher: c.id,
		Serves:     c.r.cfg.Serves.encode(),
	})
	if err != nil {
		// Nobody else is taken for dead because of our own trouble.
		return err
	}
	c.beaten.Store(now.UnixNano())
	if len(members) > 1 {
		c.shared.Store(now.UnixNano())
	}
	c.assign(func() { c.members = members })
	poke(c.splitsC)
	return nil
}

// cutOff reports whether the other dispatchers may have taken this one for dead,
// because its heartbeats do not get through or because it stood still. It then
// claims nothing, or two would send to each of its endpoints, with caps and
// circuits of their own. But sending counts for more than caps: one that has known
// of no other for a while goes on, since nobody would take its place, and after
// the time of a lease so does everyone, since it may be the same with the others.
func (c *cluster) cutOff(now time.Time) bool {
	lease := c.r.cfg.Lease
	if c.store == nil || now.Sub(time.Unix(0, c.shared.Load())) > 2*lease {
		return false
	}
	silent := now.Sub(time.Unix(0, c.beaten.Load()))
	return silent > cutOffAfterBeats*c.r.cfg.HeartbeatInterval && silent <= lease
}

// leave saves what is left to save and makes room for the others.
func (c *cluster) leave(ctx context.Context) {
	if c.store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backoffMax)
	defer cancel()
	if err := c.saveAll(ctx); err != nil {
		c.r.core.log.WarnContext(ctx, "webhook: endpoints' health not saved", "error", err)
	}
	// Those who stay take over after the last heartbeat has grown old, if not now.
	if err := c.store.Leave(ctx, c.id); err != nil {
		c.r.core.log.WarnContext(ctx, "webhook: dispatcher not signed off", "error", err)
	}
}

// wantHealth has the health of endpoints loaded and given to the loop.
func (c *cluster) wantHealth(ids []uuid.UUID) {
	if len(ids) == 0 {
		return
	}
	c.mu.Lock()
	for _, id := range ids {
		c.toLoad[id] = struct{}{}
	}
	c.mu.Unlock()
	poke(c.load)
}

func (c *cluster) loadAll(ctx context.Context) error {
	for {
		wanted := take(&c.mu, c.toLoad, healthBatch)
		if len(wanted) == 0 {
			return nil
		}
		ids := slices.Collect(maps.Keys(wanted))
		before := c.r.leases.heldFor(ids)
		health, err := c.store.LoadHealth(ctx, LoadHealthParams{Now: c.r.d.clock.now(), Endpoints: ids})
		if err != nil {
			c.wantHealth(ids)
			return err
		}
		after := c.r.leases.heldFor(ids)
		loaded := make([]loadedHealth, len(health))
		for i, h := range health {
			id := h.EndpointID
			loaded[i] = loadedHealth{HealthRecord: h, own: max(before[id], after[id])}
		}
		c.r.loop.healthLoaded(loaded)
	}
}

// loadedHealth is what the store knows of an endpoint.
type loadedHealth struct {
	HealthRecord

	own int // of Leased, those of this dispatcher
}

// snapshot reads the stored state; false when there is none that can be read.
func (h *loadedHealth) snapshot() (s scheduler.Snapshot, ok bool) {
	ok = !h.UpdatedAt.IsZero() && json.Unmarshal(h.State, &s) == nil
	return s, ok
}

// openCircuits returns which of the endpoints have an open circuit, according to what
// is stored.
func (c *cluster) openCircuits(ctx context.Context, endpoints map[uuid.UUID]*target) (map[uuid.UUID]bool, error) {
	open := make(map[uuid.UUID]bool)
	if c.store == nil || len(endpoints) == 0 {
		return open, nil
	}
	for ids := range slices.Chunk(slices.Collect(maps.Keys(endpoints)), healthBatch) {
		health, err := c.store.LoadHealth(ctx, LoadHealthParams{Now: c.r.d.clock.now(), Endpoints: ids})
		if err != nil {
			return nil, err
		}
		for _, h := range health {
			l := loadedHealth{HealthRecord: h}
			snap, ok := l.snapshot()
			open[h.EndpointID] = ok && !snap.Circuit.OpenedAt.IsZero()
		}
	}
	return open, nil
}

// keep has an endpoint's state stored.
func (c *cluster) keep(id uuid.UUID, snap scheduler.Snapshot, shedUntil time.Time) {
	if c.store == nil {
		return
	}
	state, err := json.Marshal(snap)
	if err != nil { // cannot be: numbers, times and words
		c.r.core.log.Error("webhook: endpoint's health not saved", "endpoint", id, "error", err)
		return
	}
	c.mu.Lock()
	c.toSave[id] = HealthRecord{EndpointID: id, UpdatedAt: snap.At, State: state, OpenUntil: openUntil(snap), ShedUntil: shedUntil}
	c.mu.Unlock()
	poke(c.save)
}

func openUntil(snap scheduler.Snapshot) time.Time {
	if snap.Circuit.State == scheduler.Closed {
		return time.Time{}
	}
	return snap.Circuit.OpenUntil
}

// pollOpened looks for openings that nobody told of, where nobody can.
func (c *cluster) pollOpened(ctx context.Context) error {
	if c.store == nil || c.r.listening.Load() {
		return nil
	}
	opened, err := c.store.ListOpened(ctx, c.r.d.clock.now())
	if err == nil && len(opened) > 0 {
		c.r.loop.toldOpened(opened)
	}
	return err
}

func (c *cluster) saveAll(ctx context.Context) error {
	for {
		batch := take(&c.mu, c.toSave, healthBatch)
		if len(batch) == 0 {
			return nil
		}
		health := make([]HealthRecord, 0, len(batch))
		for _, h := range batch {
			health = append(health, h)
		}
		if err := c.store.SaveHealth(ctx, health); err != nil {
			c.mu.Lock()
			for id, h := range batch {
				if _, newer := c.toSave[id]; !newer {
					c.toSave[id] = h
				}
			}
			c.mu.Unlock()
			return err
		}
	}
}

// takeProbes takes the right to probe for the grants that are probes, and returns
// those that other dispatchers hold.
func (c *cluster) takeProbes(ctx context.Context, ask []asked, now, until time.Time) (map[uuid.UUID]time.Time, error) {
	if c.store == nil {
		return nil, nil
	}
	var ids []uuid.UUID
	for i := range ask {
		if ask[i].Probe {
			ids = append(ids, ask[i].Endpoint)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	held, err := c.store.TakeProbes(ctx, TakeProbesParams{Now: now, Until: until, Endpoints: ids})
	if err != nil {
		return nil, fmt.Errorf("take probes: %w", err)
	}
	return held, nil
}

// signal has other dispatchers told about endpoints.
func (c *cluster) signal(s Signal, ids ...uuid.UUID) {
	if c.store == nil || c.notifier == nil || len(ids) == 0 || len(c.assigned.Load().members) < 2 {
		return
	}
	c.mu.Lock()
	set := c.toTell[s]
	if set == nil {
		set = make(map[uuid.UUID]struct{})
		c.toTell[s] = set
	}
	for _, id := range ids {
		set[id] = struct{}{}
	}
	c.mu.Unlock()
	poke(c.tell)
}

// tellAll sends the signals. One that fails is not repeated: polling covers it.
func (c *cluster) tellAll(ctx context.Context) error {
	var errs []error
	for s, set := range take(&c.mu, c.toTell, math.MaxInt) {
		ids := slices.Collect(maps.Keys(set))
		if len(ids) > signalBurst*signalEndpoints {
			errs = append(errs, c.notifier.Notify(ctx, s))
			continue
		}
		for some := range slices.Chunk(ids, signalEndpoints) {
			errs = append(errs, c.notifier.Notify(ctx, s.about(some)))
		}
	}
	return errors.Join(errs...)
}

// take removes up to n entries of a map and returns them.
func take[K comparable, V any](mu *sync.Mutex, from map[K]V, n int) map[K]V {
	mu.Lock()
	defer mu.Unlock()
	taken := make(map[K]V, min(n, len(from)))
	for k, v := range from {
		if len(taken) == n {
			break
		}
		taken[k] = v
		delete(from, k)
	}
	return taken
}

// about adds a list of endpoints to a signal. One without a list is about any
// endpoint.
func (s Signal) about(ids []uuid.UUID) Signal {
	raw := make([]byte, 0, 16*len(ids))
	for _, id := range ids {
		raw = append(raw, id[:]...)
	}
	return s + " " + Signal(base64.RawURLEncoding.EncodeToString(raw))
}

// parts splits a signal into its word and its list, which is empty for one that
// has none or that cannot be read.
func (s Signal) parts() (word Signal, ids []uuid.UUID) {
	text, list, _ := strings.Cut(string(s), " ")
	raw, err := base64.RawURLEncoding.DecodeString(list)
	if err != nil || len(raw)%16 != 0 {
		return Signal(text), nil
	}
	for ; len(raw) > 0; raw = raw[16:] {
		ids = append(ids, uuid.UUID(raw[:16]))
	}
	return Signal(text), ids
}
