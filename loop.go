package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook/internal/scheduler"
)

const (
	// claimBatch is how many deliveries one claim asks for at most.
	claimBatch = 500

	// saturatedPause is how long claiming pauses while too many results wait for
	// the database.
	saturatedPause = 50 * time.Millisecond

	// showEvery is how often the scheduler's figures are shown.
	showEvery = 200 * time.Millisecond
)

// loop owns the scheduler: it is told what is ready and what is over, asks what
// may be sent, and claims that. What becomes ready or free while claims are under
// way goes into the next, so that claims grow with the load.
type loop struct {
	r     *run
	sched *scheduler.Scheduler

	workers *workers // for attempts

	// Written by others, read by run. Senders give up when over is closed.
	readyC   chan []ReadyLane
	arrivedC chan arrivals
	changedC chan []*target
	doneC    chan attemptOver
	claimedC chan claimReply
	healthC  chan []loadedHealth
	testC    chan testAsk
	waitsC   chan waitsAsk
	openedC  chan []uuid.UUID
	membersC chan struct{} // cap 1: who is alive may have changed
	tenantsC chan struct{} // cap 1: what tenants are allowed may have changed
	backlogC chan struct{} // cap 1: it is time to count backlogs
	countedC chan countedBacklogs
	over     chan struct{}

	// Owned by run.
	claiming int       // claims under way, but for
	probing  int       // those of probes
	begun    time.Time // when the last one began, by the machine's own clock
	scarce   bool      // the last plan ended for want of slots, not of work
	grants   []scheduler.Grant
	wait     backoff
	retryAt  time.Time // no claim before; zero unless claims fail
	heldAt   time.Time // since when a small claim waits to become larger; zero if none does
	places   map[uuid.UUID]*place
	assigned *assignment    // what the places are according to; nil at first
	unserved map[string]int // tenants that nobody serves → since which heartbeat
	hot      map[string]int // hosts → for how many heartbeats
	beats    int            // heartbeats seen
	tenants  map[string]*tenantPlace
	counting bool                   // backlogs are being counted
	shedding map[uuid.UUID]struct{} // whose new deliveries are shed
	shownAt  time.Time              // when totals were set

	totals atomic.Pointer[scheduler.Totals] // for others to read
}

// attemptOver tells the scheduler how an attempt ended.
type attemptOver struct {
	endpoint scheduler.ID
	scheduler.Result
}

// arrivals are the deliveries that one fan-out made.
type arrivals struct {
	at  time.Time
	own []arrival
}

// arrival is a number of deliveries, all due, to one endpoint.
type arrival struct {
	endpoint uuid.UUID
	n        int
}

// claimReply is what a claim brought for the grants.
type claimReply struct {
	grants  []scheduler.Grant
	asked   []asked // what they became, in the same order
	count   *int    // of claims under way, in which it is
	at      time.Time
	claimed []Claimed
	token   uuid.UUID
	until   time.Time
	held    map[uuid.UUID]time.Time // probes that other dispatchers are sending
	err     error
}

func newLoop(r *run) *loop {
	l := &loop{
		r:        r,
		readyC:   make(chan []ReadyLane, 16),
		arrivedC: make(chan arrivals, 16),
		changedC: make(chan []*target, 16),
		doneC:    make(chan attemptOver, r.cfg.MaxInFlight),
		claimedC: make(chan claimReply, maxClaims),
		healthC:  make(chan []loadedHealth, 4),
		testC:    make(chan testAsk),
		waitsC:   make(chan waitsAsk),
		membersC: make(chan struct{}, 1),
		tenantsC: make(chan struct{}, 1),
		backlogC: make(chan struct{}, 1),
		countedC: make(chan countedBacklogs, 1),
		places:   make(map[uuid.UUID]*place),
		tenants:  make(map[string]*tenantPlace),
		unserved: make(map[string]int),
		hot:      make(map[string]int),
		openedC:  make(chan []uuid.UUID, 1),
		shedding: make(map[uuid.UUID]struct{}),
		over:     make(chan struct{}),
	}
	l.sched = scheduler.New(r.schedulerConfig())
	l.workers = newWorkers(&r.attempts, l.over)
	return l
}

// ready tells of due deliveries. Safe from any goroutine.
func (l *loop) ready(lanes []ReadyLane) {
	select {
	case l.readyC <- lanes:
	case <-l.over:
	}
}

// arrive tells of deliveries that were just made, all of them. Safe from any goroutine.
func (l *loop) arrive(own []arrival, at time.Time) {
	select {
	case l.arrivedC <- arrivals{at, own}:
	case <-l.over:
	}
}

// endpointsChanged tells of new settings. Safe from any goroutine.
func (l *loop) endpointsChanged(changed []*target) {
	select {
	case l.changedC <- changed:
	case <-l.over:
	}
}

// healthLoaded tells what is stored about endpoints. Safe from any goroutine.
func (l *loop) healthLoaded(health []loadedHealth) {
	select {
	case l.healthC <- health:
	case <-l.over:
	}
}

// toldOpened tells which circuits are open. Safe from any goroutine.
func (l *loop) toldOpened(ids []uuid.UUID) {
	select {
	case l.openedC <- ids:
	case <-l.over:
	}
}

// done tells of the end of an attempt. Safe from any goroutine.
func (l *loop) done(res attemptOver) {
	select {
	case l.doneC <- res:
	case <-l.over:
	}
}

// run schedules until ctx ends.
func (l *loop) run(ctx context.Context) {
	defer close(l.over)
	for ctx.Err() == nil {
		l.claim(ctx)
		l.show()
		l.waitForNews(ctx)
	}
	for id, p := range l.places {
		if p.taken {
			l.keep(id, p)
		}
	}
	for n := l.claiming + l.probing; n > 0; n-- {
		l.handBack(<-l.claimedC)
	}
}

// show lets others read the scheduler's figures, a few times per second at most.
func (l *loop) show() {
	if now := time.Now(); now.Sub(l.shownAt) >= showEvery {
		l.shownAt = now
		totals := l.sched.Totals()
		l.totals.Store(&totals)
	}
}

// waitForNews waits for something to happen and takes in all that has.
func (l *loop) waitForNews(ctx context.Context) {
	timer, stop := l.timer()
	defer stop()
	select {
	case <-ctx.Done():
		return
	case <-timer:
	case lanes := <-l.readyC:
		l.takeReady(lanes)
	case a := <-l.arrivedC:
		l.takeArrived(a)
	case changed := <-l.changedC:
		l.takeChanged(changed)
	case res := <-l.doneC:
		l.takeDone(res)
	case reply := <-l.claimedC:
		l.takeClaimed(ctx, reply)
	case health := <-l.healthC:
		l.takeHealth(health)
	case ask := <-l.testC:
		l.takeTest(ask)
	case ask := <-l.waitsC:
		l.takeWaits(ask)
	case opened := <-l.openedC:
		l.takeOpened(opened)
	case <-l.membersC:
		l.takeMembers()
	case <-l.tenantsC:
		l.takeTenants()
	case <-l.backlogC:
		l.countBacklogs(ctx)
	case counted := <-l.countedC:
		l.takeCounted(ctx, counted)
	}
	// What came meanwhile is taken in before the next claim, so that it counts;
	// the rarer news wait for their turn above.
	for {
		select {
		case lanes := <-l.readyC:
			l.takeReady(lanes)
		case a := <-l.arrivedC:
			l.takeArrived(a)
		case res := <-l.doneC:
			l.takeDone(res)
		case reply := <-l.claimedC:
			l.takeClaimed(ctx, reply)
		default:
			return
		}
	}
}

func (l *loop) now() time.Time { return l.r.d.clock.now() }

func (l *loop) takeReady(lanes []ReadyLane) {
	now := l.now()
	for _, r := range lanes {
		p := l.place(r.EndpointID)
		switch {
		case p == nil: // another dispatcher's
		case p.taken:
			p.floors[r.Lane].told(r.DueAt)
			l.sched.Ready(now, r.EndpointID, r.DueAt, scheduler.Lane(r.Lane))
		default:
			p.early = append(p.early, r)
		}
	}
}

func (l *loop) takeArrived(a arrivals) {
	now := l.now()
	for _, n := range a.own {
		p := l.place(n.endpoint)
		switch {
		case p == nil: // another dispatcher's
		case p.taken:
			p.floors[LaneFirst].told(a.at)
			l.sched.Arrived(now, n.endpoint, n.n)
		default:
			p.early = append(p.early, ReadyLane{EndpointID: n.endpoint, Lane: LaneFirst, DueAt: a.at})
		}
	}
}

// place returns where the loop stands with an endpoint; nil for one that is another
// dispatcher's.
func (l *loop) place(id uuid.UUID) *place {
	if p := l.places[id]; p != nil {
		return p
	}
	return l.takeUnknown(id)
}

// takeUnknown takes up an endpoint of which a delivery has come before the news of
// the endpoint itself. It returns nil for one that is not this dispatcher's.
func (l *loop) takeUnknown(id uuid.UUID) *place {
	t := l.r.registry.get(id)
	if t == nil || !l.assign(t) {
		return nil
	}
	l.want([]uuid.UUID{id})
	return l.places[id]
}

// takeDone takes in the end of an attempt, and has kept and told what it changed.
func (l *loop) takeDone(res attemptOver) {
	now := l.now()
	change := l.sched.Done(now, res.endpoint, res.Result)
	if change == (scheduler.Change{}) {
		return
	}
	id := uuid.UUID(res.endpoint)
	p := l.places[id]
	if p == nil && !change.Opened {
		// Another dispatcher's by now. An opening is told, a closing never: that one
		// must see its own success.
		return
	}
	if change.Flapped {
		l.r.health.flapped(id, now)
	}
	if snap, ok := l.sched.Snapshot(now, res.endpoint); ok {
		l.store(id, p, snap)
		l.logCircuit(id, change, snap)
	}
	if change.Opened {
		l.r.cluster.signal(SignalOpened, id)
	}
}

func (l *loop) logCircuit(id uuid.UUID, change scheduler.Change, snap scheduler.Snapshot) {
	log := l.r.core.log
	l.tellCircuit(id, change, snap)
	switch {
	case change.Opened:
		log.Warn("webhook: circuit open", "endpoint", id, "until", snap.Circuit.OpenUntil, "flapped", change.Flapped)
	case change.Closed:
		log.Info("webhook: circuit closed", "endpoint", id)
	}
}

// tellCircuit tells the observer of a circuit that opened or closed.
func (l *loop) tellCircuit(id uuid.UUID, change scheduler.Change, snap scheduler.Snapshot) {
	o := l.r.telling.observer
	if o == nil || !change.Opened && !change.Closed {
		return
	}
	report := CircuitReport{EndpointID: id, State: CircuitClosed}
	if t := l.r.registry.get(id); t != nil {
		report.Tenant = t.record.Tenant
	}
	if change.Opened {
		report.State, report.Until, report.Flapped = CircuitOpen, snap.Circuit.OpenUntil, change.Flapped
	}
	l.r.observe(func() { o.CircuitChanged(report) })
}

// claim asks the scheduler what may be sent and leases that in the store.
func (l *loop) claim(ctx context.Context) {
	now := l.now()
	l.sched.Advance(now)
	if !l.mayClaim() || l.pause() > 0 || now.Before(l.retryAt) {
		return
	}
	if l.r.recorder.saturated() {
		l.retryAt = now.Add(saturatedPause)
		return
	}
	if l.r.cluster.cutOff(now) {
		l.retryAt = now.Add(l.r.cfg.HeartbeatInterval)
		return
	}
	if l.isSmall() {
		if l.heldAt.IsZero() {
			l.heldAt = now
		}
		if now.Sub(l.heldAt) < claimPatience {
			return
		}
	}
	l.heldAt = time.Time{}
	l.grants = l.sched.Plan(now, claimBatch, l.grants[:0])
	l.scarce = l.free(l.sched.Totals()) <= 0
	if len(l.grants) == 0 {
		return
	}
	// Probes have to be taken first, for which others do not wait.
	probes, others := splitProbes(l.grants)
	if len(probes) > 0 {
		l.begin(ctx, probes, &l.probing)
	}
	if len(others) > 0 {
		l.begin(ctx, others, &l.claiming)
	}
}

func splitProbes(grants []scheduler.Grant) (probes, others []scheduler.Grant) {
	others = make([]scheduler.Grant, 0, len(grants))
	for _, g := range grants {
		if g.Probe {
			probes = append(probes, g)
		} else {
			others = append(others, g)
		}
	}
	return probes, others
}

// begin has the grants claimed; the count is the one that the claim is in.
func (l *loop) begin(ctx context.Context, grants []scheduler.Grant, count *int) {
	*count++
	l.begun = time.Now()
	ask := make([]asked, len(grants))
	for i, g := range grants {
		ask[i] = l.ask(g)
	}
	l.r.attempts.Go(func() {
		began := time.Now()
		reply := l.r.claim(ctx, ask)
		l.r.tellClaim(&reply, time.Since(began))
		reply.grants, reply.count = grants, count
		l.claimedC <- reply
	})
}

// ask turns a grant into what is asked of the store: without a backlog the oldest
// deliveries are the new ones too, and one look finds them all.
func (l *loop) ask(g scheduler.Grant) asked {
	p := l.places[g.Endpoint]
	if p == nil {
		return asked{Grant: g}
	}
	if !p.backlogged && !g.FreshSince.IsZero() {
		g.Oldest += g.Newest
		g.Newest = 0
	}
	p.floors.begin()
	return asked{Grant: g, place: p, floors: p.floors}
}

// takeClaimed starts what a claim brought.
func (l *loop) takeClaimed(ctx context.Context, reply claimReply) {
	*reply.count--
	now := l.now()
	if reply.err != nil {
		l.settleFailed(now, reply)
		if ctx.Err() == nil {
			l.r.core.log.WarnContext(ctx, "webhook: claiming waits for the database", "error", reply.err)
			l.retryAt = now.Add(l.wait.next())
		}
		return
	}
	l.wait.reset()
	l.retryAt = time.Time{}
	if ctx.Err() != nil {
		l.handBack(reply)
		return
	}
	l.r.leases.hold(reply.claimed, reply.token, reply.until)

	counts := make(map[scheduler.ID]*brought, len(reply.grants))
	for i := range reply.claimed {
		id := scheduler.ID(reply.claimed[i].EndpointID)
		if counts[id] == nil {
			counts[id] = new(brought)
		}
		counts[id].add(&reply.claimed[i])
	}
	l.noteBacklogs(reply)
	l.raiseFloors(&reply, counts)
	for _, g := range reply.grants {
		got := scheduler.Claimed{}
		if c := counts[g.Endpoint]; c != nil {
			got = sharedOut(c.Claimed, g)
		}
		got.ProbeHeld = reply.held[g.Endpoint]
		l.sched.Settle(now, g, got)
	}
	probes := reply.count == &l.probing
	for i := range reply.claimed {
		c := &reply.claimed[i]
		flight, _ := l.sched.Start(now, c.EndpointID, scheduler.Attempt{
			Due:    c.DueAt,
			Lane:   scheduler.Lane(c.Lane),
			Number: c.Attempts + 1,
			Probe:  probes,
		})
		if flight == nil {
			l.r.handBack(c, reply.token)
			continue
		}
		l.workers.run(func() { l.r.attempt(c, reply.token, flight, probes) })
	}
}

// noteBacklogs remembers which endpoints have deliveries that are not new.
func (l *loop) noteBacklogs(reply claimReply) {
	fresh := make(map[uuid.UUID]time.Time, len(reply.grants))
	for _, g := range reply.grants {
		if g.FreshSince.IsZero() {
			continue
		}
		fresh[g.Endpoint] = g.FreshSince
		if p := l.places[g.Endpoint]; p != nil {
			p.backlogged = false
		}
	}
	for i := range reply.claimed {
		c := &reply.claimed[i]
		since, ok := fresh[c.EndpointID]
		if p := l.places[c.EndpointID]; p != nil && ok && c.Lane == LaneFirst && c.DueAt.Before(since) {
			p.backlogged = true
		}
	}
}

// sharedOut counts what was claimed from the old end for the new ones, as far as
// that is how it was granted.
func sharedOut(c scheduler.Claimed, g scheduler.Grant) scheduler.Claimed {
	if over := c.Oldest - g.Oldest; over > 0 {
		c.Oldest -= over
		c.Newest += over
	}
	return c
}

// settleFailed gives the slots of a failed claim back and keeps its endpoints
// ready.
func (l *loop) settleFailed(now time.Time, reply claimReply) {
	for _, g := range reply.grants {
		if p := l.places[g.Endpoint]; p != nil {
			p.floors = floors{} // another claim may have passed over what this one had locked
		}
		l.sched.Settle(now, g, scheduler.Claimed{})
		if g.Oldest-g.Retries+g.Newest > 0 {
			l.sched.Ready(now, g.Endpoint, now, scheduler.Live)
		}
		if g.Retries > 0 {
			l.sched.Ready(now, g.Endpoint, now, scheduler.Retry)
		}
		if g.Replay > 0 {
			l.sched.Ready(now, g.Endpoint, now, scheduler.Replay)
		}
	}
}

// handBack returns what a claim brought after the end of run, unsent.
func (l *loop) handBack(reply claimReply) {
	for i := range reply.claimed {
		l.r.handBack(&reply.claimed[i], reply.token)
	}
}

var errCutOff = errors.New("no heartbeat has got through for a while, and other dispatchers may have taken over")

// claim leases deliveries for the grants.
func (r *run) claim(ctx context.Context, ask []asked) claimReply {
	reply := claimReply{asked: ask}
	token, err := uuid.NewRandom()
	if err != nil {
		reply.err = fmt.Errorf("make a lease token: %w", err)
		return reply
	}
	// A claim that is cut off may still take place in the database: better let it
	// end and hand back what it brought.
	stopping := ctx
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.Lease/3)
	defer cancel()
	defer context.AfterFunc(stopping, func() { time.AfterFunc(r.lastWrites(), cancel) })()
	if reply.err = r.d.clock.settle(ctx); reply.err != nil {
		return reply
	}
	now := r.d.clock.now()
	if r.cluster.cutOff(now) { // it stood still since the grants were made
		reply.err = errCutOff
		return reply
	}
	reply.token, reply.at, reply.until = token, now, now.Add(r.cfg.Lease)
	if reply.held, reply.err = r.cluster.takeProbes(ctx, ask, now, reply.until); reply.err != nil {
		return reply
	}
	reply.claimed, reply.err = r.core.backend.Claim(ctx, ClaimParams{
		Now:        now,
		LeaseUntil: reply.until,
		Token:      token,
		Requests:   claimRequests(ask, reply.held),
	})
	return reply
}

// tellClaim tells the observer of a claim.
func (r *run) tellClaim(reply *claimReply, took time.Duration) {
	o := r.telling.observer
	if o == nil {
		return
	}
	now := r.d.clock.now()
	report := ClaimReport{Took: took, Claimed: len(reply.claimed), Failed: reply.err != nil}
	for i := range reply.claimed {
		report.Lag = max(report.Lag, now.Sub(reply.claimed[i].DueAt))
		if reply.claimed[i].TakenOver {
			report.TakenOver++
		}
	}
	r.observe(func() { o.ClaimDone(report) })
}

func claimRequests(ask []asked, held map[uuid.UUID]time.Time) []ClaimRequest {
	requests := make([]ClaimRequest, 0, len(ask))
	for i := range ask {
		a := &ask[i]
		if _, ok := held[a.Endpoint]; ok {
			continue
		}
		oldest := a.oldest()
		for _, r := range []ClaimRequest{
			{Lane: LaneRetry, Limit: oldest[LaneRetry]},
			{Lane: LaneFirst, Limit: oldest[LaneFirst]},
			{Lane: LaneFirst, Limit: a.Newest, Newest: true, Since: a.FreshSince},
			{Lane: LaneReplay, Limit: oldest[LaneReplay]},
		} {
			if r.Limit <= 0 {
				continue
			}
			if !r.Newest {
				r.Since = a.floors[r.Lane].at
			}
			r.EndpointID = a.Endpoint
			requests = append(requests, r)
		}
	}
	return requests
}
