package webhook

import (
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook/internal/scheduler"
	"github.com/outhook/webhook/internal/vitals"
)

const (
	// vitalsEvery is how often the vitals of an endpoint that is well are stored while
	// it has attempts, and vitalsUnwell those of another; what somebody wants to know
	// is stored sooner, after vitalsUrgent at the earliest.
	vitalsEvery  = 10 * time.Second
	vitalsUnwell = 5 * time.Second
	vitalsUrgent = time.Second

	// vitalsTick is how often it is looked for vitals to store while there are any, and
	// vitalsPause how often that may be when some are urgent.
	vitalsTick  = time.Second
	vitalsPause = 50 * time.Millisecond

	// vitalsBatch is how many endpoints are stored at a time, and so, at each tick:
	// that is what health costs the database at most. The others wait, and lose
	// nothing.
	vitalsBatch = 500

	// staleTries is how often vitals are merged that another dispatcher stored at the
	// same time, before they wait for the next tick.
	staleTries = 4

	// activityEvery is how often it is stored what this dispatcher did.
	activityEvery = 5 * time.Second

	// unwellEvery is how often it is read which endpoints have trouble.
	unwellEvery = time.Minute
)

// healthKeeper gathers how endpoints fare from the attempts of this dispatcher, and
// adds it to what is stored. Whose endpoint it is does not matter: what several
// dispatchers see is added up.
//
// Attempts report from their goroutines; run is the one that stores.
type healthKeeper struct {
	r       *run
	urgent  chan struct{} // cap 1: something is to be stored soon
	stirred chan struct{} // cap 1: it rests no more

	mu      sync.Mutex // protects what follows
	resting bool       // nothing waits to be stored
	entries map[uuid.UUID]*vitalEntry
	free    []*vitals.Delta // to be used again
	did     vitals.Bucket   // of the present 5 minutes
	before  []vitals.Bucket // of those before, not stored yet
	oldest  [2]time.Time    // due, of endpoints that are healthy and of others
	unwell  map[uuid.UUID]VitalsLevel

	// Owned by run.
	sending    map[uuid.UUID]*vitals.Delta // being stored; after an error perhaps stored
	mark       uint64                      // that tells whether it is
	activityAt time.Time
	unwellAt   time.Time
	left       bool
}

// vitalEntry is an endpoint of which something is known here.
type vitalEntry struct {
	delta    *vitals.Delta // not stored yet; nil when there is nothing
	since    time.Time     // when the delta began
	urgent   bool
	storedAt time.Time

	// As it was when it was last stored or loaded, with what is being stored.
	run    vitals.Run
	streak vitals.Streak
	level  VitalsLevel
	epoch  time.Time
	known  bool
}

func newHealthKeeper(r *run) *healthKeeper {
	return &healthKeeper{
		r:       r,
		urgent:  make(chan struct{}, 1),
		stirred: make(chan struct{}, 1),
		entries: make(map[uuid.UUID]*vitalEntry),
		unwell:  make(map[uuid.UUID]VitalsLevel),
	}
}

// sampleOf makes a sample of what became of a claimed delivery; false when there was no
// attempt, or one that is nobody's.
func sampleOf(s *sent) (vitals.Sample, bool) {
	a := s.result.Attempt
	if a == nil || s.result.Uncounted {
		return vitals.Sample{}, false
	}
	sample := vitals.Sample{
		At: a.StartedAt.Add(a.Latency), Latency: a.Latency, Status: a.Status, Class: string(a.Class),
		Retry: a.Number > 1,
		Ended: s.result.State.Final(), Dead: s.result.State == StateDead,
	}
	switch s.outcome {
	case scheduler.Success:
		sample.Outcome = vitals.Succeeded
	case scheduler.Failure, scheduler.Blocked:
		sample.Outcome = vitals.Failed
	case scheduler.Throttled, scheduler.Neutral:
	}
	return sample, true
}

// observe takes in an attempt, and reports why its endpoint is to be disabled, if it is.
func (k *healthKeeper) observe(id uuid.UUID, s *sent) (disable string) {
	sample, ok := sampleOf(s)
	if !ok {
		if s.result.State == StateDead {
			k.died(id, 1, k.r.d.clock.now())
		}
		return ""
	}
	if sample.Outcome == vitals.Failed && k.r.cfg.AutoDisable.ConsecutiveFailures > 0 {
		k.know(id)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.bucket(sample.At).Count(&sample)
	e := k.entry(id, sample.At)
	e.delta.Add(&sample)
	if e.streak.Turns(&sample) && !e.urgent {
		e.urgent = true
		poke(k.urgent)
	}
	if sample.Outcome != vitals.Failed || k.r.cfg.AutoDisable.ConsecutiveFailures <= 0 {
		return ""
	}
	return k.tooMany(id, e, &sample)
}

// tooMany reports whether the failures in a row have become too many. The lock is held.
func (k *healthKeeper) tooMany(id uuid.UUID, e *vitalEntry, s *vitals.Sample) string {
	t := k.r.registry.get(id)
	if t == nil || !t.sendable() {
		return ""
	}
	if !e.epoch.Equal(t.record.StateChangedAt) {
		e.run, e.epoch = vitals.Run{}, t.record.StateChangedAt
	}
	reason, _ := k.r.cfg.AutoDisable.tooMany(e.present(), s.At, retrySpan(k.r.retryPolicy(t)))
	return reason
}

// present is the run of failures with what was seen since.
func (e *vitalEntry) present() vitals.Run {
	if e.delta == nil {
		return e.run
	}
	return e.delta.After(e.run)
}

// entry returns the endpoint's entry with a delta. The lock is held.
func (k *healthKeeper) entry(id uuid.UUID, at time.Time) *vitalEntry {
	e := k.entries[id]
	if e == nil {
		e = new(vitalEntry)
		k.entries[id] = e
	}
	if e.delta == nil {
		if n := len(k.free); n > 0 {
			e.delta, k.free = k.free[n-1], k.free[:n-1]
		} else {
			e.delta = new(vitals.Delta)
		}
		e.since = at
	}
	if k.resting {
		k.resting = false
		poke(k.stirred)
	}
	return e
}

// bucket returns the counts of the present 5 minutes. The lock is held.
func (k *healthKeeper) bucket(at time.Time) *vitals.Counts {
	at = at.Truncate(vitals.Fine)
	if at.After(k.did.At) {
		if !k.did.At.IsZero() {
			k.before = append(k.before, k.did)
		}
		k.did = vitals.Bucket{At: at}
	}
	return &k.did.Counts
}

// know loads what is stored of an endpoint that this dispatcher knows nothing of: how
// many attempts failed before it was here. That the database is away does not hold an
// attempt up for long; then its failures are added up later.
func (k *healthKeeper) know(id uuid.UUID) {
	k.mu.Lock()
	e := k.entries[id]
	known := e != nil && e.known
	k.mu.Unlock()
	if known {
		return
	}
	ctx, cancel := context.WithTimeout(k.r.attemptCtx, k.r.cfg.RequestTimeout)
	defer cancel()
	loaded, err := k.r.core.backend.LoadVitals(ctx, []uuid.UUID{id})
	if err != nil {
		k.r.core.log.WarnContext(ctx, "webhook: cannot load how an endpoint fares", "endpoint", id, "error", err)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if e = k.entries[id]; e == nil {
		e = new(vitalEntry)
		k.entries[id] = e
	}
	if e.known {
		return
	}
	e.known = true
	for i := range loaded {
		v := readVitals(&loaded[i])
		e.run, e.streak, e.epoch, e.level = v.Run, v.Streak, v.Epoch, loaded[i].Level
	}
}

// died takes in deliveries that died in another way than by an attempt.
func (k *healthKeeper) died(id uuid.UUID, n int64, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.bucket(at)[vitals.Dead] += n
	e := k.entry(id, at)
	e.delta.AddDead(n, at)
	if !e.streak.Dead && !e.urgent {
		e.urgent = true
		poke(k.urgent)
	}
}

// flapped takes in that a circuit opened again shortly after it had closed.
func (k *healthKeeper) flapped(id uuid.UUID, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.entry(id, at).delta.AddFlap(at)
}

// isHealthy reports whether none of the latest 20 attempts of an endpoint failed, as far
// as that is stored. The lock is held.
func (k *healthKeeper) isHealthy(id uuid.UUID) bool {
	if e := k.entries[id]; e != nil && !e.storedAt.IsZero() {
		return e.level == LevelWell
	}
	return k.unwell[id] == LevelWell
}

// dueSince adds to oldest, which is of endpoints that are healthy and of others, since
// when deliveries of this dispatcher's endpoints have been due.
func (k *healthKeeper) dueSince(lanes []ReadyLane, now time.Time, oldest *[2]time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range lanes {
		if lanes[i].DueAt.After(now) {
			continue
		}
		t := k.r.registry.get(lanes[i].EndpointID)
		if t == nil || !t.sendable() || !k.r.cluster.owns(t) {
			continue
		}
		at := &oldest[1]
		if k.isHealthy(lanes[i].EndpointID) {
			at = &oldest[0]
		}
		if at.IsZero() || lanes[i].DueAt.Before(*at) {
			*at = lanes[i].DueAt
		}
	}
}

// waited takes in since when the oldest deliveries have been due.
func (k *healthKeeper) waited(oldest [2]time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.oldest = oldest
}

// run stores what was seen, until ctx ends.
func (k *healthKeeper) run(ctx context.Context) {
	for ctx.Err() == nil {
		k.tick(ctx)
		timer, stop := k.r.d.clock.clock.NewTimer(k.pause())
		select {
		case <-timer:
		case <-k.stirred:
		case <-k.urgent:
			// So that what belongs together is stored together.
			if !pauseFor(ctx, vitalsPause) {
				stop()
				return
			}
		case <-ctx.Done():
		}
		stop()
	}
}

// pause is how long it is until the next tick: of a dispatcher that sends nothing, until
// it says again that it is there.
func (k *healthKeeper) pause() time.Duration {
	k.mu.Lock()
	resting := k.resting
	k.mu.Unlock()
	if !resting {
		return vitalsTick
	}
	since := k.r.d.clock.now().Sub(k.activityAt)
	return min(max(activityEvery-since, vitalsTick), activityEvery)
}

// pauseFor waits by the machine's clock; false means that ctx ended.
func pauseFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// tick stores what is due. An error leaves it for the next tick.
func (k *healthKeeper) tick(ctx context.Context) {
	now := k.r.d.clock.now()
	err := patiently(ctx, storePatience, func(ctx context.Context) error {
		if now.Sub(k.unwellAt) >= unwellEvery || now.Before(k.unwellAt) {
			if err := k.readUnwell(ctx); err != nil {
				return err
			}
			k.unwellAt = now
		}
		if err := k.store(ctx, now, false); err != nil {
			return err
		}
		if now.Sub(k.activityAt) < activityEvery && !now.Before(k.activityAt) {
			return nil
		}
		k.activityAt = now
		return k.storeActivity(ctx, now)
	})
	if err != nil && ctx.Err() == nil {
		k.r.core.log.WarnContext(ctx, "webhook: cannot store how endpoints fare", "error", err)
	}
}

// leave stores all that is left, in batches, when nothing is sent any more.
func (k *healthKeeper) leave(ctx context.Context) {
	now := k.r.d.clock.now()
	k.left = true
	err := k.store(ctx, now, true)
	if err == nil {
		err = k.storeActivity(ctx, now)
	}
	if err != nil {
		k.r.core.log.WarnContext(ctx, "webhook: not all of how endpoints fare is stored", "error", err)
	}
}

func (k *healthKeeper) readUnwell(ctx context.Context) error {
	unwell := make(map[uuid.UUID]VitalsLevel)
	p := ListUnwellParams{Scope: AllTenants(), Level: LevelUnsteady, Limit: registryPage}
	for {
		ids, err := k.r.core.backend.ListUnwell(ctx, p)
		if err != nil {
			return err
		}
		for _, id := range ids {
			unwell[id] = LevelUnsteady
		}
		if len(ids) < p.Limit {
			break
		}
		p.After = ids[len(ids)-1]
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unwell = unwell
	return nil
}

// store stores the deltas that are due, or all.
func (k *healthKeeper) store(ctx context.Context, now time.Time, all bool) error {
	for {
		again := len(k.sending) > 0
		if !again {
			k.take(now, all)
			k.mark = rand.Uint64() | 1
		}
		if len(k.sending) == 0 {
			return nil
		}
		for range staleTries {
			if err := k.merge(ctx, now); err != nil {
				return err
			}
			if len(k.sending) == 0 {
				break
			}
		}
		k.putBack()
		if !all && !again {
			return nil
		}
	}
}

// take takes the deltas that are due, those that are urgent or have waited longest
// first.
func (k *healthKeeper) take(now time.Time, all bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	type waiting struct {
		id    uuid.UUID
		entry *vitalEntry
	}
	var due []waiting
	k.resting = true
	for id, e := range k.entries {
		k.resting = k.resting && e.delta == nil
		switch {
		case e.delta == nil:
			if e.level == LevelWell && now.Sub(e.storedAt) > time.Hour {
				delete(k.entries, id) // nothing that is not stored as well
			}
		case all, e.urgent && now.Sub(e.storedAt) >= vitalsUrgent, now.Sub(e.since) >= e.patience(), now.Before(e.since):
			due = append(due, waiting{id, e})
		}
	}
	if len(due) > vitalsBatch {
		slices.SortFunc(due, func(a, b waiting) int {
			if a.entry.urgent != b.entry.urgent {
				if a.entry.urgent {
					return -1
				}
				return 1
			}
			return a.entry.since.Compare(b.entry.since)
		})
		due = due[:vitalsBatch]
	}
	k.sending = make(map[uuid.UUID]*vitals.Delta, len(due))
	for _, w := range due {
		k.sending[w.id] = w.entry.delta
		w.entry.run = w.entry.present()
		w.entry.delta, w.entry.urgent = nil, false
	}
}

// patience is how long what was seen may wait to be stored.
func (e *vitalEntry) patience() time.Duration {
	if e.known && e.level == LevelWell {
		return vitalsEvery
	}
	return vitalsUnwell
}

// putBack makes deltas wait again that could not be stored because of others.
func (k *healthKeeper) putBack() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, d := range k.sending {
		e := k.entries[id]
		if e.delta != nil {
			d.Append(e.delta)
			k.recycle(e.delta)
		}
		e.delta = d
	}
	k.sending = nil
}

// recycle keeps a delta for the next endpoint. The lock is held.
func (k *healthKeeper) recycle(d *vitals.Delta) {
	if len(k.free) < 2*vitalsBatch {
		*d = vitals.Delta{}
		k.free = append(k.free, d)
	}
}

// merge adds what is being sent to what is stored, and leaves in sending what somebody
// else was faster with.
func (k *healthKeeper) merge(ctx context.Context, now time.Time) error {
	ids := slices.Collect(maps.Keys(k.sending))
	loaded, err := k.r.core.backend.LoadVitals(ctx, ids)
	if err != nil {
		return err
	}
	known := make(map[uuid.UUID]*VitalsRecord, len(loaded))
	for i := range loaded {
		known[loaded[i].EndpointID] = &loaded[i]
	}
	states := make(map[uuid.UUID]*vitals.State, len(ids))
	var p SaveVitalsParams
	for _, id := range ids {
		rec := known[id]
		if rec == nil {
			rec = &VitalsRecord{EndpointID: id}
		}
		v := readVitals(rec)
		if v.Mark == k.mark { // the answer to an earlier call was lost
			k.stored(id, &v, rec.Level, now)
			continue
		}
		findings := v.Apply(k.sending[id], k.r.rules(id, now, &v))
		v.Mark = k.mark
		states[id] = &v
		if err := k.r.addVitals(&p, rec, &v, findings, now); err != nil {
			return err
		}
	}
	if len(p.Vitals) == 0 {
		return nil
	}
	stale, err := k.r.core.backend.SaveVitals(ctx, p)
	if err != nil {
		return err
	}
	for i := range p.Vitals {
		if id := p.Vitals[i].EndpointID; !slices.Contains(stale, id) {
			k.stored(id, states[id], p.Vitals[i].Level, now)
		}
	}
	if len(p.Notices) > 0 {
		k.r.noticed()
	}
	return nil
}

// stored takes an endpoint off what is being sent.
func (k *healthKeeper) stored(id uuid.UUID, v *vitals.State, level VitalsLevel, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.recycle(k.sending[id])
	delete(k.sending, id)
	if e := k.entries[id]; e != nil {
		e.run, e.streak, e.epoch, e.level, e.known, e.storedAt = v.Run, v.Streak, v.Epoch, level, true, now
	}
}

// readVitals reads what is stored. What cannot be read, as only a hand in the database
// can bring about, is nothing.
func readVitals(rec *VitalsRecord) (v vitals.State) {
	if len(rec.Data) > 0 && json.Unmarshal(rec.Data, &v) != nil {
		return vitals.State{}
	}
	return v
}

func levelOf(v *vitals.State) VitalsLevel {
	switch statusOf(v) {
	case HealthFailing:
		return LevelFailing
	case HealthUnsteady:
		return LevelUnsteady
	case HealthHealthy, HealthUnknown:
	}
	return LevelWell
}

// rules is what is known of an endpoint besides its vitals.
func (r *run) rules(id uuid.UUID, now time.Time, v *vitals.State) vitals.Rules {
	rules := vitals.Rules{Now: now, Epoch: v.Epoch, LowScore: r.cfg.AutoDisable.lowScore()}
	if t := r.registry.get(id); t != nil {
		rules.Rotated = t.rotatedAt()
		if t.sendable() {
			rules.Epoch = t.record.StateChangedAt
		}
	}
	return rules
}

// rotatedAt is when the endpoint's secret was last rotated; zero if never.
func (t *target) rotatedAt() time.Time {
	if at := t.secretAt(); at.After(t.record.CreatedAt) {
		return at
	}
	return time.Time{}
}

// secretAt is since when the endpoint has its present secret; zero if it has none.
func (t *target) secretAt() time.Time {
	t.secretOnce.Do(func() {
		if secrets, err := secretsOf(&t.record); err == nil && len(secrets) > 0 {
			t.secretSince = secrets[0].CreatedAt
		}
	})
	return t.secretSince
}

// addVitals puts a state and what it brought to light among what is to be saved.
func (r *run) addVitals(p *SaveVitalsParams, rec *VitalsRecord, v *vitals.State, findings []vitals.Finding, now time.Time) error {
	data, err := json.Marshal(v)
	if err != nil { // cannot be: numbers, times and words
		return err
	}
	p.Vitals = append(p.Vitals, VitalsRecord{EndpointID: rec.EndpointID, Version: rec.Version, Level: levelOf(v), Data: data})
	t := r.registry.get(rec.EndpointID)
	if t == nil || !t.record.DeletedAt.IsZero() {
		return nil
	}
	for i := range findings {
		n, err := r.noticeOf(t, v, &findings[i], now)
		if err != nil {
			return err
		}
		p.Notices = append(p.Notices, n)
	}
	return nil
}

// storeActivity stores what this dispatcher did.
func (k *healthKeeper) storeActivity(ctx context.Context, now time.Time) error {
	k.mu.Lock()
	k.bucket(now)
	buckets := append(slices.Clone(k.before), k.did)
	a := activity{SeenAt: now, Left: k.left, OldestHealthy: k.oldest[0], OldestOther: k.oldest[1]}
	k.mu.Unlock()
	a.Gauges = k.r.gauges()

	records := make([]ActivityRecord, len(buckets))
	for i := range buckets {
		a.Counts = buckets[i : i+1]
		data, err := json.Marshal(a)
		if err != nil { // cannot be: numbers and times
			return err
		}
		records[i] = ActivityRecord{At: buckets[i].At, Dispatcher: k.r.cluster.id, Data: data}
	}
	if err := k.r.core.backend.SaveActivity(ctx, records); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.before = k.before[len(buckets)-1:] // what has become past meanwhile stays
	return nil
}
