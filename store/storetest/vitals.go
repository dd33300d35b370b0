package storetest

import (
	"bytes"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

func vitalsTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "vitals are stored byte for byte, with a version that counts", run: func(e *env[Tx]) {
			a, b := uuid.UUID{1}, uuid.UUID{2}
			e.equal(0, len(e.vitals(a, b)), "vitals of whom nothing is known")
			e.equal(0, len(e.saveVitals(vital(a, 0, webhook.LevelWell, `{"n": 1.50}`), vital(b, 0, webhook.LevelFailing, `{}`))), "stale")
			e.equal(0, len(e.saveVitals(vital(a, 1, webhook.LevelUnsteady, `{"n": 2 }`))), "stale when saved again")
			got := e.vitals(a, b, uuid.UUID{3})
			e.need(2, len(got), "vitals stored")
			e.equal(vital(a, 2, webhook.LevelUnsteady, `{"n": 2 }`), got[0], "vitals of one")
			e.equal(vital(b, 1, webhook.LevelFailing, `{}`), got[1], "vitals of the other")
		}},
		{name: "vitals of another version are left as they are, and so are their notices", run: func(e *env[Tx]) {
			a, b := uuid.UUID{1}, uuid.UUID{2}
			e.saveVitals(vital(a, 0, 0, `1`), vital(b, 0, 0, `1`))
			stale, err := e.store.SaveVitals(e.ctx, webhook.SaveVitalsParams{
				Vitals:  []webhook.VitalsRecord{vital(a, 0, 0, `2`), vital(b, 1, 0, `2`)},
				Notices: []webhook.NoticeRecord{e.notice(a, "acme", webhook.NoticeFailing), e.notice(b, "acme", webhook.NoticeFailing)},
			})
			e.must(err, "save vitals")
			e.equal([]uuid.UUID{a}, stale, "stale")
			got := e.vitals(a, b)
			e.need(2, len(got), "vitals stored")
			e.sameBytes([]byte(`1`), got[0].Data, "those of another version")
			e.sameBytes([]byte(`2`), got[1].Data, "those of the stored version")
			notices := e.notices(webhook.ListNoticesParams{Scope: webhook.AllTenants(), Limit: plenty})
			e.need(1, len(notices), "notices added")
			e.equal(b, notices[0].EndpointID, "the notice's endpoint")
		}},
		{name: "the vitals of endpoints that were deleted for a while are removed", run: func(e *env[Tx]) {
			all := e.endpoints(3, "acme", "*")
			unknown := uuid.UUID{1}
			for _, id := range append(endpointIDs(all...), unknown) {
				e.saveVitals(vital(id, 0, webhook.LevelFailing, `{}`))
			}
			old, young := all[0], all[1]
			old.DeletedAt, young.DeletedAt = e.now, e.at(time.Hour)
			e.update(old)
			e.update(young)
			e.maintain(webhook.MaintainParams{Now: e.at(2 * time.Hour)})
			e.equal(4, len(e.vitals(append(endpointIDs(all...), unknown)...)), "vitals kept where none are to be removed")
			e.maintain(webhook.MaintainParams{Now: e.at(2 * time.Hour), DeletedBefore: e.at(time.Minute)})
			var left []uuid.UUID
			for _, v := range e.vitals(append(endpointIDs(all...), unknown)...) {
				left = append(left, v.EndpointID)
			}
			e.sameSet([]uuid.UUID{young.ID, all[2].ID, unknown}, left, "vitals left")
		}},
		{name: "of many that save the same version one does", run: func(e *env[Tx]) {
			var saved atomic.Int64
			for version := range int64(3) {
				e.concurrently(6, func(int) error {
					stale, err := e.db.Connect(e.t).SaveVitals(e.ctx, webhook.SaveVitalsParams{
						Vitals: []webhook.VitalsRecord{vital(uuid.UUID{1}, version, 0, `1`)},
					})
					if len(stale) == 0 && err == nil {
						saved.Add(1)
					}
					return err
				})
			}
			e.equal(int64(3), saved.Load(), "saved")
		}},
		{name: "endpoints with trouble are listed by level, scope and page", run: func(e *env[Tx]) {
			all := append(e.endpoints(5, "acme", "*"), e.endpoints(2, "umbrella", "*")...)
			levels := []webhook.VitalsLevel{2, 0, 1, 2, 2, 2, 1}
			for i, endpoint := range all {
				e.saveVitals(vital(endpoint.ID, 0, levels[i], `{}`))
			}
			e.saveVitals(vital(uuid.UUID{1}, 0, webhook.LevelFailing, `{}`)) // of no endpoint
			e.deleteEndpoint(all[4])
			acme, everyone := webhook.TenantScope("acme"), webhook.AllTenants()
			list := func(p webhook.ListUnwellParams) []uuid.UUID {
				ids, err := e.store.ListUnwell(e.ctx, p)
				e.must(err, "list endpoints with trouble")
				return ids
			}
			e.equal(endpointIDs(all[0], all[2], all[3]), list(webhook.ListUnwellParams{Scope: acme, Limit: plenty}), "those of a tenant")
			e.equal(endpointIDs(all[0], all[2], all[3], all[5], all[6]), list(webhook.ListUnwellParams{Scope: everyone, Limit: plenty}), "all")
			e.equal(endpointIDs(all[0], all[3], all[5]), list(webhook.ListUnwellParams{Scope: everyone, Level: webhook.LevelFailing, Limit: plenty}), "those that fail")
			e.equal(endpointIDs(all[3]), list(webhook.ListUnwellParams{Scope: acme, After: all[2].ID, Limit: 1}), "the next page of a tenant")
			e.equal(endpointIDs(all[3], all[5]), list(webhook.ListUnwellParams{Scope: everyone, After: all[2].ID, Limit: 2}), "the next page of all")
			e.equal(0, len(list(webhook.ListUnwellParams{Scope: everyone})), "those of a page of none")
		}},
	}
}

func healthTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "health is a row for each endpoint, with what was stored", run: func(e *env[Tx]) {
			a, b := uuid.UUID{1}, uuid.UUID{2}
			e.saveVitals(vital(b, 0, 0, `{"v": 1}`))
			cluster, shared := e.store.(webhook.ClusterStore)
			if shared {
				e.must(cluster.SaveHealth(e.ctx, []webhook.HealthRecord{{EndpointID: b, UpdatedAt: e.now, State: []byte(`{"c": 2}`)}}), "save health")
			}
			got := e.readHealth(e.now, plenty, a, b)
			e.equal(webhook.HealthRow{EndpointID: a}, normal(got[0]), "the row of whom nothing is known")
			e.sameBytes([]byte(`{"v": 1}`), got[1].Vitals, "vitals")
			if shared {
				e.sameBytes([]byte(`{"c": 2}`), got[1].Circuit, "circuit")
			}
		}},
		{name: "the oldest due delivery is due and not leased, and pending ones are counted up to a bound", run: func(e *env[Tx]) {
			endpoint := e.deliveries(5, "acme")
			other := e.endpoint("umbrella", "*")
			row := e.readHealth(e.now, plenty, endpoint.ID, other.ID)
			e.equal(e.now, row[0].OldestDueAt, "oldest due at first")
			e.equal(5, row[0].Pending, "pending at first")
			e.truth(row[1].OldestDueAt.IsZero() && row[1].Pending == 0, "another endpoint has something pending: %v", row[1])
			e.truth(e.readHealth(e.at(-time.Second), plenty, endpoint.ID)[0].OldestDueAt.IsZero(), "something is due before its time")

			claimed := e.claim(e.now, oldest(endpoint, webhook.LaneFirst, 4))
			e.need(4, len(claimed), "deliveries claimed")
			e.record(e.now, delivered(claimed[0], e.now), retry(claimed[1], e.now, e.at(time.Second)), dead(claimed[2], e.now, "window"))
			last := e.claim(e.at(time.Second), oldest(endpoint, webhook.LaneFirst, 1))
			e.need(1, len(last), "deliveries claimed later")
			row = e.readHealth(e.at(2*time.Second), plenty, endpoint.ID)
			e.equal(e.at(time.Second), row[0].OldestDueAt, "oldest due: the retry, since the others are leased")
			e.equal(3, row[0].Pending, "pending")
			e.equal(2, e.readHealth(e.at(2*time.Second), 2, endpoint.ID)[0].Pending, "pending, counted up to 2")
			e.equal(0, e.readHealth(e.at(2*time.Second), 0, endpoint.ID)[0].Pending, "pending, not counted")
			e.equal(e.now, e.readHealth(e.at(time.Hour), plenty, endpoint.ID)[0].OldestDueAt, "oldest due when the leases are over")
		}},
		{name: "endpoints are counted by state and level, deleted ones and those of others not", run: func(e *env[Tx]) {
			acme := e.endpoints(7, "acme", "*")
			e.endpoint("umbrella", "*")
			e.setState(acme[0], webhook.EndpointPaused)
			e.setState(acme[1], webhook.EndpointDisabled)
			e.deleteEndpoint(acme[2])
			for i, level := range []webhook.VitalsLevel{2, 2, 2, 2, 1, 0} {
				e.saveVitals(vital(acme[i].ID, 0, level, `{}`))
			}
			count := func(scope webhook.Scope) webhook.EndpointCounts {
				n, err := e.store.CountEndpoints(e.ctx, scope)
				e.must(err, "count endpoints")
				return n
			}
			e.equal(webhook.EndpointCounts{Active: 4, Paused: 1, Disabled: 1, Failing: 1, Unsteady: 1}, count(webhook.TenantScope("acme")), "those of a tenant")
			e.equal(webhook.EndpointCounts{Active: 5, Paused: 1, Disabled: 1, Failing: 1, Unsteady: 1}, count(webhook.AllTenants()), "all")
			e.equal(webhook.EndpointCounts{}, count(webhook.TenantScope("nobody")), "those of nobody")
		}},
		{name: "what a dispatcher did replaces what it said before of the same time", run: func(e *env[Tx]) {
			a, b := uuid.UUID{1}, uuid.UUID{2}
			save := func(at time.Time, dispatcher uuid.UUID, data string) {
				e.must(e.store.SaveActivity(e.ctx, []webhook.ActivityRecord{{At: at, Dispatcher: dispatcher, Data: []byte(data)}}), "save what a dispatcher did")
			}
			save(e.at(time.Minute), b, `{"n":  1}`)
			save(e.at(time.Minute), a, `{"n":2}`)
			save(e.now, b, `{"n":3}`)
			save(e.at(time.Minute), b, `{"n":  4}`)
			save(e.at(2*time.Minute), b, `{"n":5}`)
			e.must(e.store.SaveActivity(e.ctx, nil), "save nothing")
			got, err := e.store.ListActivity(e.ctx, e.now, e.at(2*time.Minute))
			e.must(err, "list what dispatchers did")
			e.equal([]webhook.ActivityRecord{
				{At: e.now, Dispatcher: b, Data: []byte(`{"n":3}`)},
				{At: e.at(time.Minute), Dispatcher: a, Data: []byte(`{"n":2}`)},
				{At: e.at(time.Minute), Dispatcher: b, Data: []byte(`{"n":  4}`)},
			}, got, "what dispatchers did")
		}},
	}
}

func noticeTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "of an endpoint, kind and streak there is one notice, whoever adds it", run: func(e *env[Tx]) {
			a, b := newID(), newID()
			first := e.notice(a, "acme", webhook.NoticeFailing)
			again := e.notice(a, "acme", webhook.NoticeFailing)
			other := e.notice(b, "acme", webhook.NoticeFailing)
			otherKind := e.notice(a, "acme", webhook.NoticeRecovered)
			otherStreak := e.notice(a, "acme", webhook.NoticeFailing)
			otherStreak.Streak = e.at(time.Microsecond)
			e.sameSet([]uuid.UUID{first.ID}, e.addNotices(first), "added at first")
			e.sameSet([]uuid.UUID{other.ID, otherKind.ID, otherStreak.ID}, e.addNotices(again, other, otherKind, otherStreak, first), "added then")
			e.equal(0, len(e.addNotices()), "added of none")

			var added atomic.Int64
			e.concurrently(6, func(int) error {
				ids, err := e.db.Connect(e.t).AddNotices(e.ctx, []webhook.NoticeRecord{e.notice(a, "acme", webhook.NoticeDead), e.notice(b, "acme", webhook.NoticeDead)})
				added.Add(int64(len(ids)))
				return err
			})
			e.equal(int64(2), added.Load(), "added by many at once")
		}},
		{name: "a notice is stored whole", run: func(e *env[Tx]) {
			n := e.notice(newID(), "acme", webhook.NoticeDisabled)
			n.Attempts = 3
			e.addNotices(n)
			got := e.notices(webhook.ListNoticesParams{Scope: webhook.AllTenants(), Limit: plenty})
			e.need(1, len(got), "notices")
			e.equal(n, got[0], "notice")
		}},
		{name: "the event of a notice is enqueued with it, and once", run: func(e *env[Tx]) {
			endpoint := e.endpoint("operator", "*")
			failing := newID()
			n, again := e.notice(failing, "acme", webhook.NoticeFailing), e.notice(failing, "acme", webhook.NoticeFailing)
			event, second := e.event("operator", "endpoint.failing"), e.event("operator", "endpoint.failing")
			event.Payload = []byte(`{"a":  1}`)
			n.Event, again.Event = &event, &second
			stale := e.notice(newID(), "acme", webhook.NoticeFailing)
			stale.Event = &second
			e.addNotices(n)
			e.addNotices(again)
			_, err := e.store.SaveVitals(e.ctx, webhook.SaveVitalsParams{
				Vitals: []webhook.VitalsRecord{vital(stale.EndpointID, 7, 0, `{}`)}, Notices: []webhook.NoticeRecord{again},
			})
			e.must(err, "save vitals that are not stored")
			e.fanOut()
			e.equal([]uuid.UUID{endpoint.ID}, e.reached(event.ID), "endpoints that the event reached")
			e.equal(0, len(e.reached(second.ID)), "deliveries of the event of a notice that was there")
			e.sameBytes([]byte(`{"a":  1}`), e.getEvent(event.ID).Payload, "payload")
		}},
		{name: "due notices come in the order in which they are due, until they are settled", run: func(e *env[Tx]) {
			at := []time.Time{e.at(2 * time.Second), e.now, e.at(time.Second), {}, e.at(time.Hour)}
			list := make([]webhook.NoticeRecord, len(at))
			for i := range list {
				list[i] = e.notice(newID(), "acme", webhook.NoticeFailing)
				list[i].DueAt = at[i]
			}
			e.addNotices(list...)
			e.equal([]uuid.UUID{list[1].ID, list[2].ID, list[0].ID}, e.dueNotices(e.at(2*time.Second), plenty), "due")
			e.equal([]uuid.UUID{list[1].ID}, e.dueNotices(e.at(time.Minute), 1), "the first one due")
			told, later := list[1], list[2]
			told.DueAt, told.Attempts = time.Time{}, 1
			later.DueAt, later.Attempts = e.at(time.Minute), 2
			e.must(e.store.SettleNotices(e.ctx, []webhook.NoticeRecord{told, later}), "settle notices")
			e.must(e.store.SettleNotices(e.ctx, nil), "settle none")
			e.equal([]uuid.UUID{list[0].ID}, e.dueNotices(e.at(2*time.Second), plenty), "due when two are settled")
			e.equal([]uuid.UUID{list[0].ID, list[2].ID}, e.dueNotices(e.at(time.Minute), plenty), "due when one is due again")
			all := e.notices(webhook.ListNoticesParams{Scope: webhook.AllTenants(), Limit: plenty})
			e.need(len(list), len(all), "notices")
			e.equal(2, all[2].Attempts, "attempts of the one that is due again")
		}},
		{name: "notices are listed newest first, by scope, endpoint and page", run: func(e *env[Tx]) {
			a, b := newID(), newID()
			list := []webhook.NoticeRecord{
				e.notice(a, "acme", webhook.NoticeFailing), e.notice(b, "umbrella", webhook.NoticeFailing),
				e.notice(a, "acme", webhook.NoticeRecovered), e.notice(a, "acme", webhook.NoticeDisabled),
			}
			e.addNotices(list...)
			show := func(p webhook.ListNoticesParams) []uuid.UUID { return noticeIDs(e.notices(p)) }
			acme, everyone := webhook.TenantScope("acme"), webhook.AllTenants()
			e.equal(noticeIDs([]webhook.NoticeRecord{list[3], list[2], list[1], list[0]}), show(webhook.ListNoticesParams{Scope: everyone, Limit: plenty}), "all")
			e.equal(noticeIDs([]webhook.NoticeRecord{list[3], list[2], list[0]}), show(webhook.ListNoticesParams{Scope: acme, Limit: plenty}), "a tenant's")
			e.equal(noticeIDs([]webhook.NoticeRecord{list[1]}), show(webhook.ListNoticesParams{Scope: everyone, EndpointID: b, Limit: plenty}), "an endpoint's")
			e.equal(0, len(show(webhook.ListNoticesParams{Scope: acme, EndpointID: b, Limit: plenty})), "those of another tenant's endpoint")
			e.equal(noticeIDs([]webhook.NoticeRecord{list[2], list[1]}), show(webhook.ListNoticesParams{Scope: everyone, Before: list[3].ID, Limit: 2}), "a page")
			e.equal(0, len(show(webhook.ListNoticesParams{Scope: everyone})), "those of a page of none")
		}},
		{name: "old notices and what dispatchers did long ago are removed", run: func(e *env[Tx]) {
			old, young := e.notice(newID(), "acme", webhook.NoticeFailing), e.notice(newID(), "acme", webhook.NoticeFailing)
			old.CreatedAt = e.at(-40 * day)
			e.addNotices(old, young)
			d := uuid.UUID{1}
			e.must(e.store.SaveActivity(e.ctx, []webhook.ActivityRecord{{At: e.at(-50 * time.Hour), Dispatcher: d, Data: []byte(`1`)}, {At: e.at(-time.Hour), Dispatcher: d, Data: []byte(`2`)}}), "save")
			left := func() (notices, did int) {
				list, err := e.store.ListActivity(e.ctx, e.at(-100*day), e.at(day))
				e.must(err, "list what dispatchers did")
				return len(e.notices(webhook.ListNoticesParams{Scope: webhook.AllTenants(), Limit: plenty})), len(list)
			}
			e.maintain(webhook.MaintainParams{Now: e.now})
			notices, did := left()
			e.equal([2]int{2, 2}, [2]int{notices, did}, "left when all is kept")
			e.maintain(webhook.MaintainParams{Now: e.now, NoticesBefore: e.at(-30 * day), ActivityBefore: e.at(-48 * time.Hour)})
			notices, did = left()
			e.equal([2]int{1, 1}, [2]int{notices, did}, "left")
			e.equal(1, len(e.addNotices(old)), "added again when it was forgotten")
		}},
	}
}

func vital(id uuid.UUID, version int64, level webhook.VitalsLevel, data string) webhook.VitalsRecord {
	return webhook.VitalsRecord{EndpointID: id, Version: version, Level: level, Data: []byte(data)}
}

func (e *env[Tx]) saveVitals(vitals ...webhook.VitalsRecord) (stale []uuid.UUID) {
	e.t.Helper()
	stale, err := e.store.SaveVitals(e.ctx, webhook.SaveVitalsParams{Vitals: vitals})
	e.must(err, "save vitals")
	return stale
}

// vitals loads vitals, in the order of the endpoints.
func (e *env[Tx]) vitals(ids ...uuid.UUID) []webhook.VitalsRecord {
	e.t.Helper()
	loaded, err := e.store.LoadVitals(e.ctx, ids)
	e.must(err, "load vitals")
	slices.SortFunc(loaded, func(a, b webhook.VitalsRecord) int { return bytes.Compare(a.EndpointID[:], b.EndpointID[:]) })
	return loaded
}

// readHealth reads rows, in the order of the endpoints given.
func (e *env[Tx]) readHealth(now time.Time, countUpTo int, ids ...uuid.UUID) []webhook.HealthRow {
	e.t.Helper()
	rows, err := e.store.ReadHealth(e.ctx, webhook.ReadHealthParams{Now: now, Endpoints: ids, CountUpTo: countUpTo})
	e.must(err, "read health")
	e.need(len(ids), len(rows), "rows")
	slices.SortFunc(rows, func(a, b webhook.HealthRow) int {
		return slices.Index(ids, a.EndpointID) - slices.Index(ids, b.EndpointID)
	})
	return rows
}

// normal makes empty documents nil.
func normal(h webhook.HealthRow) webhook.HealthRow {
	if len(h.Circuit) == 0 {
		h.Circuit = nil
	}
	if len(h.Vitals) == 0 {
		h.Vitals = nil
	}
	return h
}

func (e *env[Tx]) notice(endpoint uuid.UUID, tenant string, kind webhook.NoticeKind) webhook.NoticeRecord {
	return webhook.NoticeRecord{
		ID: newID(), EndpointID: endpoint, Tenant: tenant, Kind: kind,
		Streak: e.now, CreatedAt: e.now, DueAt: e.now, Detail: []byte(`{"reason":  "r"}`),
	}
}

func (e *env[Tx]) addNotices(notices ...webhook.NoticeRecord) []uuid.UUID {
	e.t.Helper()
	added, err := e.store.AddNotices(e.ctx, notices)
	e.must(err, "add %d notices", len(notices))
	return added
}

func (e *env[Tx]) notices(p webhook.ListNoticesParams) []webhook.NoticeRecord {
	e.t.Helper()
	list, err := e.store.ListNotices(e.ctx, p)
	e.must(err, "list notices")
	return list
}

func (e *env[Tx]) dueNotices(now time.Time, limit int) []uuid.UUID {
	e.t.Helper()
	due, err := e.store.DueNotices(e.ctx, now, limit)
	e.must(err, "look for due notices")
	return noticeIDs(due)
}

func noticeIDs(notices []webhook.NoticeRecord) []uuid.UUID {
	var ids []uuid.UUID
	for _, n := range notices {
		ids = append(ids, n.ID)
	}
	return ids
}
