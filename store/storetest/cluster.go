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
	alive, err := s.Heartbeat(e.ctx, webhook.HeartbeatParams{Now: at, DeadBefore: at.Add(-10 * time.Second), Dispatcher: id})
	e.must(err, "send a heartbeat")
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
