package storetest

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// referring returns an event whose payload is kept elsewhere.
func (e *env[Tx]) referring(tenant string) webhook.EventRecord {
	event := e.event(tenant, "order.created")
	event.Payload, event.PayloadRef = nil, []byte(`{"size":"\u0000"}`)
	return event
}

// payloadsGone returns the payloads that are to be removed.
func (e *env[Tx]) payloadsGone(after uuid.UUID, limit int) []webhook.PayloadKey {
	e.t.Helper()
	gone, err := e.store.GonePayloads(e.ctx, after, limit)
	e.must(err, "list payloads of removed events")
	return gone
}

func payloadTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "what a payload must be comes back with its event", run: func(e *env[Tx]) {
			endpoint := e.endpoint("acme", "*")
			keyed := e.referring("acme")
			keyed.IdempotencyKey = "k"
			events := []webhook.EventRecord{e.referring("acme"), keyed}
			for i := range events { // alone
				e.enqueue(events[i])
			}
			batch := []webhook.EventRecord{e.referring("acme"), e.event("acme", "order.created")}
			e.enqueue(batch...)
			events = append(events, batch...)
			for _, event := range events {
				e.sameBytes(event.PayloadRef, e.getEvent(event.ID).PayloadRef, "reference, read")
			}
			m := newMatcher()
			e.fanOutWith(m, plenty, plenty)
			e.need(len(events), len(m.seen), "events matched")
			for i, seen := range m.seen {
				e.sameBytes(events[i].PayloadRef, seen.PayloadRef, "reference, matched")
			}
			stored := e.stored(e.storedParams(e.endpoint("acme", "*")))
			e.need(len(events), len(stored.Candidates), "events stored")
			want := make(map[uuid.UUID][]byte)
			for _, event := range events {
				want[event.ID] = event.PayloadRef
			}
			for _, c := range stored.Candidates {
				e.sameBytes(want[c.Event.ID], c.Event.PayloadRef, "reference, of a stored event")
			}
			claimed := e.claim(e.now, oldest(endpoint, webhook.LaneFirst, plenty))
			e.need(len(events), len(claimed), "deliveries claimed")
			for _, c := range claimed {
				e.sameBytes(want[c.Event.ID], c.Event.PayloadRef, "reference, claimed")
			}
		}},
		{name: "the payload of a removed event is known until it is forgotten", run: func(e *env[Tx]) {
			removed := []webhook.EventRecord{e.referring("acme"), e.referring("other"), e.referring("acme")}
			inside, young := e.event("acme", "order.created"), e.referring("acme")
			young.ID, young.CreatedAt = idAt(e.at(10*day)), e.at(10*day)
			e.enqueue(append(removed, inside, young)...)
			e.fanOut()
			e.need(0, len(e.payloadsGone(uuid.Nil, plenty)), "payloads of removed events")

			e.must(e.store.Maintain(e.ctx, webhook.MaintainParams{Now: e.at(40 * day), EventsBefore: e.at(5 * day)}), "maintain")

			_, err := e.store.GetEvent(e.ctx, webhook.AllTenants(), inside.ID)
			e.wantError(webhook.ErrNotFound, err, "get the event with its payload inside")
			want := make(map[webhook.PayloadKey]bool)
			for _, event := range removed {
				want[webhook.PayloadKey{Tenant: event.Tenant, EventID: event.ID}] = true
			}
			got := make(map[webhook.PayloadKey]bool)
			var after uuid.UUID
			for range removed {
				page := e.payloadsGone(after, 1)
				e.need(1, len(page), "payloads on a page")
				e.truth(compareIDs(page[0].EventID, after) > 0, "the pages are in no order")
				got[page[0]], after = true, page[0].EventID
			}
			e.equal(want, got, "payloads of removed events")
			e.equal(0, len(e.payloadsGone(after, plenty)), "payloads after the last one")

			e.must(e.store.ForgetPayloads(e.ctx, eventIDs(removed[0], removed[2])), "forget payloads")
			e.equal([]webhook.PayloadKey{{Tenant: "other", EventID: removed[1].ID}}, e.payloadsGone(uuid.Nil, plenty), "payloads not forgotten")
			e.must(e.store.ForgetPayloads(e.ctx, nil), "forget nothing")
		}},
		{name: "the payloads of an erased tenant are to be removed", run: func(e *env[Tx]) {
			waiting, done := e.referring("acme"), e.referring("acme")
			e.enqueue(done, e.event("acme", "order.created"), e.referring("other"))
			e.fanOut()
			e.enqueue(waiting)
			_, erased := e.erase("acme", e.now)
			e.equal(true, erased, "done")
			var gone []uuid.UUID
			for _, key := range e.payloadsGone(uuid.Nil, plenty) {
				e.equal("acme", key.Tenant, "tenant")
				gone = append(gone, key.EventID)
			}
			e.sameSet(eventIDs(waiting, done), gone, "payloads to be removed")
		}},
		{name: "an event is absent until its transaction has committed", run: func(e *env[Tx]) {
			committed, rolledBack, open := e.referring("acme"), e.referring("acme"), e.referring("acme")
			e.enqueue(committed)
			tx := e.begin()
			tx.insert(rolledBack)
			tx.rollback()
			tx = e.begin()
			tx.insert(open)
			unknown := newID()
			ids := append(eventIDs(committed, rolledBack, open), unknown)
			absent, err := e.store.AbsentEvents(e.ctx, ids)
			e.must(err, "look for events")
			e.sameSet([]uuid.UUID{rolledBack.ID, open.ID, unknown}, absent, "absent events")
			tx.commit()
			absent, err = e.store.AbsentEvents(e.ctx, ids)
			e.must(err, "look for events")
			e.sameSet([]uuid.UUID{rolledBack.ID, unknown}, absent, "absent events after the commit")
			absent, err = e.store.AbsentEvents(e.ctx, nil)
			e.must(errors.Join(err, context.Cause(e.ctx)), "look for no events")
			e.equal(0, len(absent), "absent ones of none")
		}},
	}
}
