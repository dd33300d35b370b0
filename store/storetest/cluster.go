package storetest

import (
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// clusterTests are about the optional [webhook.ClusterStore]; a store that is
// none passes them by.
func clusterTests[Tx any]() []test[Tx] {
	on := func(name string, run func(*env[Tx], webhook.ClusterStore)) test[Tx] {
		return test[Tx]{name: name, run: func(e *env[Tx]) {
			if store, ok := e.store.(webhook.ClusterStore); ok {
				run(e, store)
			}
		}}
	}
	return []test[Tx]{
		on("a heartbeat returns who is alive, in order", func(e *env[Tx], s webhook.ClusterStore) {
			a, b := uuid.UUID{1}, uuid.UUID{2}
			e.equal([]uuid.UUID{b}, e.beat(s, b, e.now), "alive after the first heartbeat")
			e.equal([]uuid.UUID{a, b}, e.beat(e.db.Connect(e.t).(webhook.ClusterStore), a, e.now), "alive after the second")
			e.equal([]uuid.UUID{a, b}, e.beat(s, b, e.at(time.Second)), "alive after a repeated one")
		}),
		on("a dispatcher that is not heard of is forgotten", func(e *env[Tx], s webhook.ClusterStore) {
			a, b := uuid.UUID{1}, uuid.UUID{2}
			e.beat(s, a, e.now)
			e.beat(s, b, e.at(5*time.Second))
			e.equal([]uuid.UUID{a, b}, e.beat(s, b, e.at(10*time.Second)), "alive at the limit")
			e.equal([]uuid.UUID{b}, e.beat(s, b, e.at(10*time.Second+time.Microsecond)), "alive past it")
			e.equal([]uuid.UUID{a, b}, e.beat(s, a, e.at(11*time.Second)), "alive when it comes back")
		}),
		on("a dispatcher that leaves is forgotten at once", func(e *env[Tx], s webhook.ClusterStore) {
			a, b := uuid.UUID{1}, uuid.UUID{2}
			e.beat(s, a, e.now)
			e.beat(s, b, e.now)
			e.must(s.Leave(e.ctx, a), "leave")
			e.must(s.Leave(e.ctx, a), "leave again")
			e.equal([]uuid.UUID{b}, e.beat(s, b, e.now), "alive")
		}),
		on("health is stored byte for byte, the latest wins", func(e *env[Tx], s webhook.ClusterStore) {
			id, other := uuid.UUID{1}, uuid.UUID{2}
			e.must(s.SaveHealth(e.ctx, []webhook.HealthRecord{
				{EndpointID: id, UpdatedAt: e.now, State: []byte(`{"n": 1.50}`)},
				{EndpointID: other, UpdatedAt: e.now, State: []byte(`{}`)},
			}), "save")
			e.must(s.SaveHealth(e.ctx, []webhook.HealthRecord{{EndpointID: id, UpdatedAt: e.at(-time.Second), State: []byte(`{"old":true}`)}}), "save what is older")
			got := e.health(s, id)
			e.sameBytes([]byte(`{"n": 1.50}`), got.State, "state")
			e.equal(e.now, got.UpdatedAt, "time of the state")
			e.must(s.SaveHealth(e.ctx, []webhook.HealthRecord{{EndpointID: id, UpdatedAt: e.at(time.Second), State: []byte(`{"n":2}`)}}), "save what is newer")
			e.sameBytes([]byte(`{"n":2}`), e.health(s, id).State, "state")
			e.sameBytes([]byte(`{}`), e.health(s, other).State, "state of the other")
		}),
		on("what a dispatcher serves is told to the others", func(e *env[Tx], s webhook.ClusterStore) {
			a, b := uuid.UUID{1}, uuid.UUID{2}
			serves := `{"regions": ["eu"]}`
			_, err := s.Heartbeat(e.ctx, webhook.HeartbeatParams{Now: e.now, Dispatcher: a, Serves: serves})
			e.must(err, "send a heartbeat")
			alive, err := s.Heartbeat(e.ctx, webhook.HeartbeatParams{Now: e.now, Dispatcher: b, Serves: "b"})
			e.must(err, "send a heartbeat")
			e.need(2, len(alive), "dispatchers alive")
			e.equal(serves, alive[0].Serves, "what the other serves")
			e.equal("b", alive[1].Serves, "what it serves itself")
			alive, err = s.Heartbeat(e.ctx, webhook.HeartbeatParams{Now: e.now, Dispatcher: a})
			e.must(err, "send a heartbeat")
			e.equal("", alive[0].Serves, "what it serves by its latest heartbeat")
		}),
		on("open circuits are listed", func(e *env[Tx], s webhook.ClusterStore) {
			open := func(id uuid.UUID, at, until time.Time) {
				e.must(s.SaveHealth(e.ctx, []webhook.HealthRecord{{EndpointID: id, UpdatedAt: at, State: []byte(`{}`), OpenUntil: until}}), "save")
			}
			list := func(at time.Time) []uuid.UUID {
				opened, err := s.ListOpened(e.ctx, at)
				e.must(err, "list open circuits")
				return opened
			}
			e.equal(0, len(list(e.now)), "open circuits at first")
			open(uuid.UUID{1}, e.now, e.at(time.Minute))
			open(uuid.UUID{2}, e.now, e.at(2*time.Minute))
			open(uuid.UUID{3}, e.now, time.Time{})
			e.sameSet([]uuid.UUID{{1}, {2}}, list(e.now), "open circuits")
			e.equal(e.at(time.Minute), e.health(s, uuid.UUID{1}).OpenUntil, "open until")
			e.sameSet([]uuid.UUID{{2}}, list(e.at(time.Minute)), "open circuits a minute later")
			open(uuid.UUID{2}, e.at(time.Second), time.Time{})
			e.sameSet([]uuid.UUID{{1}}, list(e.now), "open circuits after one has closed")
		}),
		on("nothing stored is a zero time", func(e *env[Tx], s webhook.ClusterStore) {
			e.truth(e.health(s, uuid.UUID{9}).UpdatedAt.IsZero(), "the time of what is not there is not zero")
			e.must(s.SaveHealth(e.ctx, nil), "save nothing")
			none, err := s.LoadHealth(e.ctx, webhook.LoadHealthParams{Now: e.now})
			e.must(err, "load nothing")
			e.equal(0, len(none), "entries for no endpoints")
		}),
		on("valid leases are counted, whoever has them", func(e *env[Tx], s webhook.ClusterStore) {
			endpoint := e.deliveries(5, "acme")
			e.need(3, len(e.claim(e.now, oldest(endpoint, webhook.LaneFirst, 3))), "deliveries claimed")
			load := func(at time.Time) int {
				loaded, err := s.LoadHealth(e.ctx, webhook.LoadHealthParams{Now: at, Endpoints: []uuid.UUID{endpoint.ID}})
				e.must(err, "load")
				e.need(1, len(loaded), "entries")
				return loaded[0].Leased
			}
			e.equal(3, load(e.now), "leased")
			e.equal(0, load(e.at(24*time.Hour)), "leased when all leases are over")
		}),
		on("one dispatcher at a time gets the probe", func(e *env[Tx], s webhook.ClusterStore) {
			id, other := uuid.UUID{1}, uuid.UUID{2}
			until := e.at(90 * time.Second)
			e.equal(0, len(e.probe(s, e.now, until, id)), "held at first")
			held := e.probe(e.db.Connect(e.t).(webhook.ClusterStore), e.at(time.Second), e.at(100*time.Second), id, other)
			e.equal(map[uuid.UUID]time.Time{id: until}, held, "held by the first")
			e.equal(0, len(e.probe(s, until, e.at(200*time.Second), id)), "held when its time is over")
			e.must(s.SaveHealth(e.ctx, []webhook.HealthRecord{{EndpointID: id, UpdatedAt: until, State: []byte(`{}`)}}), "save")
			e.equal(0, len(e.probe(s, until, e.at(200*time.Second), id)), "held after it was given back")
		}),
		on("of many that want the probe at once one gets it", func(e *env[Tx], s webhook.ClusterStore) {
			id := uuid.UUID{1}
			got := make(chan struct{}, 16)
			e.concurrently(8, func(int) error {
				held, err := e.db.Connect(e.t).(webhook.ClusterStore).TakeProbes(e.ctx, webhook.TakeProbesParams{
					Now: e.now, Until: e.at(time.Minute), Endpoints: []uuid.UUID{id},
				})
				if err == nil && len(held) == 0 {
					got <- struct{}{}
				}
				return err
			})
			e.equal(1, len(got), "dispatchers that got the probe")
		}),
	}
}

// beat sends a heartbeat; who has not been heard of for 10 s is dead.
func (e *env[Tx]) beat(s webhook.ClusterStore, id uuid.UUID, at time.Time) []uuid.UUID {
	e.t.Helper()
	members, err := s.Heartbeat(e.ctx, webhook.HeartbeatParams{Now: at, DeadBefore: at.Add(-10 * time.Second), Dispatcher: id})
	e.must(err, "send a heartbeat")
	alive := make([]uuid.UUID, len(members))
	for i, m := range members {
		alive[i] = m.ID
	}
	return alive
}

func (e *env[Tx]) health(s webhook.ClusterStore, id uuid.UUID) webhook.HealthRecord {
	e.t.Helper()
	loaded, err := s.LoadHealth(e.ctx, webhook.LoadHealthParams{Now: e.now, Endpoints: []uuid.UUID{id}})
	e.must(err, "load health")
	e.need(1, len(loaded), "entries of health")
	return loaded[0]
}

func (e *env[Tx]) probe(s webhook.ClusterStore, now, until time.Time, ids ...uuid.UUID) map[uuid.UUID]time.Time {
	e.t.Helper()
	held, err := s.TakeProbes(e.ctx, webhook.TakeProbesParams{Now: now, Until: until, Endpoints: ids})
	e.must(err, "take probes")
	return held
}

// splitTests are about the optional [webhook.SplitStore].
func splitTests[Tx any]() []test[Tx] {
	on := func(name string, run func(*env[Tx], webhook.SplitStore)) test[Tx] {
		return test[Tx]{name: name, run: func(e *env[Tx]) {
			if store, ok := e.store.(webhook.SplitStore); ok {
				run(e, store)
			}
		}}
	}
	return []test[Tx]{
		on("a split is listed until it is over", func(e *env[Tx], s webhook.SplitStore) {
			a := webhook.HostSplit{Host: "https://a:443", Until: e.at(time.Minute)}
			b := webhook.HostSplit{Host: "https://b:443", NotBefore: e.at(2 * time.Minute)}
			e.split(s, b)
			e.split(s, a)
			e.equal([]webhook.HostSplit{a, b}, e.splits(s, e.now), "splits")
			e.equal([]webhook.HostSplit{b}, e.splits(s, e.at(time.Minute)), "splits when one is over")
			e.equal(0, len(e.splits(s, e.at(2*time.Minute))), "splits when both are")
		}),
		on("the later failure wins, then the later end", func(e *env[Tx], s webhook.SplitStore) {
			const host = "https://a:443"
			saved := func(until, notBefore time.Time) webhook.HostSplit {
				e.split(s, webhook.HostSplit{Host: host, Until: until, NotBefore: notBefore})
				list := e.splits(s, e.now)
				e.need(1, len(list), "splits")
				return list[0]
			}
			first := webhook.HostSplit{Host: host, Until: e.at(time.Minute)}
			e.equal(first, saved(first.Until, time.Time{}), "the first")
			e.equal(first, saved(e.at(time.Second), time.Time{}), "after one that ends sooner")
			failed := webhook.HostSplit{Host: host, NotBefore: e.at(10 * time.Minute)}
			e.equal(failed, saved(time.Time{}, failed.NotBefore), "after a failure")
			e.equal(failed, saved(e.at(time.Hour), time.Time{}), "after somebody who does not know of it renewed it")
			again := webhook.HostSplit{Host: host, Until: e.at(time.Hour), NotBefore: failed.NotBefore}
			e.equal(again, saved(again.Until, again.NotBefore), "after somebody who knows of it")
		}),
	}
}

func (e *env[Tx]) split(s webhook.SplitStore, split webhook.HostSplit) {
	e.t.Helper()
	e.must(s.SaveSplit(e.ctx, split), "save a split")
}

func (e *env[Tx]) splits(s webhook.SplitStore, now time.Time) []webhook.HostSplit {
	e.t.Helper()
	list, err := s.ListSplits(e.ctx, now)
	e.must(err, "list splits")
	return list
}
