package storetest

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// allFinal are the states that a finished delivery may be in.
var allFinal = []webhook.DeliveryState{webhook.StateDelivered, webhook.StateDead, webhook.StateCancelled, webhook.StateShed}

// replayJobTests are about keeping replay jobs.
func replayJobTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "a replay job is kept as it was made", run: func(e *env[Tx]) {
			endpoint := e.endpoint("acme", "*")
			job := e.newJob(endpoint)
			job.Reason, job.Matched, job.Handled, job.Created, job.Cursor = "why", 7, 5, 3, newID()
			job.DueAt = e.at(time.Minute)
			e.must(e.store.CreateReplayJob(e.ctx, job), "create a replay job")
			e.equal(job, e.getJob(job.ID), "job")
			e.wantError(webhook.ErrConflict, e.store.CreateReplayJob(e.ctx, job), "create it again")
			_, err := e.store.GetReplayJob(e.ctx, webhook.AllTenants(), newID())
			e.wantError(webhook.ErrNotFound, err, "get an unknown job")
		}},
		{name: "replay jobs are found within their scope only", run: func(e *env[Tx]) {
			endpoint := e.endpoint("acme", "*")
			job := e.job(endpoint)
			for scope, seen := range map[webhook.Scope]int{webhook.AllTenants(): 1, webhook.TenantScope("acme"): 1, webhook.TenantScope("other"): 0, {}: 0} {
				_, err := e.store.GetReplayJob(e.ctx, scope, job.ID)
				e.equal(seen == 0, errors.Is(err, webhook.ErrNotFound), "not found in %v", scope)
				for _, of := range []uuid.UUID{uuid.Nil, endpoint.ID} {
					e.equal(seen, len(e.jobs(webhook.ListReplayJobsParams{Scope: scope, EndpointID: of})), "listed in %v", scope)
				}
			}
			e.truth(!e.cancelJob(webhook.TenantScope("other"), job.ID), "another tenant's job was cancelled")
			e.equal(webhook.ReplayRunning, e.getJob(job.ID).State, "state")
		}},
		{name: "replay jobs are listed newest first, by endpoint, in pages", run: func(e *env[Tx]) {
			a, b := e.endpoint("acme", "*"), e.endpoint("acme", "*")
			var all, ofA []webhook.ReplayJobRecord
			for i := range 5 {
				endpoint := a
				if i%2 == 1 {
					endpoint = b
				}
				job := e.job(endpoint)
				all = append([]webhook.ReplayJobRecord{job}, all...)
				if i%2 == 0 {
					ofA = append([]webhook.ReplayJobRecord{job}, ofA...)
				}
			}
			for _, scope := range []webhook.Scope{webhook.AllTenants(), webhook.TenantScope("acme")} {
				e.equal(all, e.jobs(webhook.ListReplayJobsParams{Scope: scope}), "jobs")
				e.equal(ofA, e.jobs(webhook.ListReplayJobsParams{Scope: scope, EndpointID: a.ID}), "jobs of an endpoint")
				page, err := e.store.ListReplayJobs(e.ctx, webhook.ListReplayJobsParams{Scope: scope, Before: all[1].ID, Limit: 2})
				e.must(err, "list replay jobs")
				e.equal(all[2:4], page, "the second page")
			}
		}},
		{name: "a replay job that is cancelled ends and is not worked on", run: func(e *env[Tx]) {
			job := e.job(e.endpoint("acme", "*"))
			token := newID()
			e.need(job.ID, e.takeJob(e.now, token).Job.ID, "job taken")
			e.truth(e.cancelJob(webhook.TenantScope("acme"), job.ID), "not cancelled")
			got := e.getJob(job.ID)
			e.equal(webhook.ReplayCancelled, got.State, "state")
			e.equal(e.at(time.Second), got.FinishedAt, "finished at")
			_, held := e.advance(webhook.AdvanceReplayJobParams{Now: e.now, JobID: job.ID, Token: token, Cursor: newID(), DueAt: e.now, State: webhook.ReplayRunning})
			e.truth(!held, "a cancelled job was advanced")
			e.equal(got, e.getJob(job.ID), "job")
			e.noJob(e.at(24 * time.Hour))
			e.truth(!e.cancelJob(webhook.AllTenants(), job.ID), "cancelled twice")
			e.truth(!e.cancelJob(webhook.AllTenants(), newID()), "an unknown job was cancelled")
		}},
	}
}

// replayScanTests are about what may be replayed.
func replayScanTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "finished deliveries are looked at in pages, each once", run: func(e *env[Tx]) {
			endpoint := e.deliveries(7, "acme")
			e.deliveries(2, "other")
			var want []uuid.UUID
			for i, held := range e.claim(e.now, oldest(endpoint, webhook.LaneFirst, plenty)) {
				result := delivered(held, e.now)
				if i%3 == 0 {
					result = dead(held, e.now, "over")
				}
				e.record(e.now, result)
				want = append(want, held.Event.ID)
			}
			for _, limit := range []int{1, 3, 7, 100} {
				var got []uuid.UUID
				p := webhook.FinishedDeliveriesParams{EndpointID: endpoint.ID, States: allFinal, Limit: limit}
				for range 20 {
					page := e.finished(p)
					e.truth(len(page.Candidates) <= limit, "a page of %d holds %d", limit, len(page.Candidates))
					for _, c := range page.Candidates {
						got = append(got, c.Event.ID)
						e.truth(compareIDs(c.Cursor, p.After) > 0 && compareIDs(c.Cursor, page.Next) <= 0, "a cursor is outside of its page")
						e.equal([2]string{"acme", "order.created"}, [2]string{c.Event.Tenant, c.Event.Type}, "event")
					}
					p.After = page.Next
					if !page.More {
						break
					}
				}
				e.sameSet(want, got, "events")
			}
		}},
		{name: "only the latest run of an event may be replayed, once it is finished", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			look := func() []webhook.DeliveryState {
				var states []webhook.DeliveryState
				for _, c := range e.finished(webhook.FinishedDeliveriesParams{EndpointID: endpoint.ID, States: allFinal, Limit: plenty}).Candidates {
					states = append(states, c.State)
				}
				return states
			}
			e.equal(0, len(look()), "candidates while the first run is pending")
			held := e.claimOne(e.now, endpoint, webhook.LaneFirst)
			e.equal(0, len(look()), "candidates while the first run is in flight")
			e.record(e.now, dead(held, e.now, "over"))
			e.equal([]webhook.DeliveryState{webhook.StateDead}, look(), "candidates when it is dead")
			e.startRun(e.now, held.Event.ID, endpoint)
			e.equal(0, len(look()), "candidates while the second run is pending")
			e.record(e.now, delivered(e.claimOne(e.now, endpoint, webhook.LaneReplay), e.now))
			e.equal([]webhook.DeliveryState{webhook.StateDelivered}, look(), "candidates when the second is delivered")
			e.startRun(e.now, held.Event.ID, endpoint)
			e.record(e.now, dead(e.claimOne(e.now, endpoint, webhook.LaneReplay), e.now, "over"))
			e.equal([]webhook.DeliveryState{webhook.StateDead}, look(), "candidates when the third is dead")
		}},
		{name: "a dead run is not replayed again when the delivered one after it is gone", run: func(e *env[Tx]) {
			endpoint := e.delivery("acme")
			held := e.claimOne(e.now, endpoint, webhook.LaneFirst)
			e.record(e.now, dead(held, e.now, "over"))
			e.startRun(e.now, held.Event.ID, endpoint)
			again := e.claimOne(e.now, endpoint, webhook.LaneReplay)
			e.record(e.now, delivered(again, e.now))
			at := e.at(10 * day)
			e.maintain(webhook.MaintainParams{Now: at, DeliveriesBefore: at.Add(-7 * day), DeadBefore: at.Add(-30 * day)})
			e.gone(again.DeliveryID)
			e.equal(webhook.StateDead, e.getDelivery(held.DeliveryID).State, "state of the first run")
			page := e.finished(webhook.FinishedDeliveriesParams{EndpointID: endpoint.ID, States: allFinal, Limit: plenty})
			e.equal(0, len(page.Candidates), "candidates")
			stored := e.stored(e.storedParams(endpoint)).Candidates
			e.need(1, len(stored), "stored events")
			e.equal(webhook.StateDelivered, stored[0].State, "state of the latest run")
		}},
		{name: "replay jobs are removed with the events of their time, unless they run", run: func(e *env[Tx]) {
			endpoint := e.endpoint("acme", "*")
			ended, running := e.job(endpoint), e.job(endpoint)
			e.truth(e.cancelJob(webhook.AllTenants(), ended.ID), "not cancelled")
			e.maintain(webhook.MaintainParams{Now: e.at(20 * day), EventsBefore: e.at(-10 * day)})
			e.getJob(ended.ID)
			e.maintain(webhook.MaintainParams{Now: e.at(31 * day)})
			e.getJob(ended.ID)
			e.maintain(webhook.MaintainParams{Now: e.at(31 * day), EventsBefore: e.at(day)})
			_, err := e.store.GetReplayJob(e.ctx, webhook.AllTenants(), ended.ID)
			e.wantError(webhook.ErrNotFound, err, "get the job that ended")
			e.getJob(running.ID)
		}},
		{name: "finished deliveries are narrowed by state and times", run: func(e *env[Tx]) {
			endpoint := e.endpoint("acme", "*")
			var events []uuid.UUID // enqueued at 0, 1, 2 and 3 s, finished a minute later
			for i, state := range allFinal {
				at := e.at(time.Duration(i) * time.Second)
				event := e.event("acme", "order.created")
				event.CreatedAt = at
				events = append(events, event.ID)
				e.enqueue(event)
				e.fanOutAt(at)
				held := e.claimOne(at, endpoint, webhook.LaneFirst)
				e.record(at.Add(time.Minute), webhook.Result{Lease: held.lease(), State: state, Reason: "over", Attempt: attempt(held, at, 200)})
			}
			found := func(want []uuid.UUID, what string, narrow func(*webhook.FinishedDeliveriesParams)) {
				p := webhook.FinishedDeliveriesParams{EndpointID: endpoint.ID, States: allFinal, Limit: plenty}
				narrow(&p)
				e.sameSet(want, candidates(e.finished(p)), what)
			}
			found(events, "all", func(*webhook.FinishedDeliveriesParams) {})
			for i, state := range allFinal {
				found(events[i:i+1], string(state), func(p *webhook.FinishedDeliveriesParams) { p.States = []webhook.DeliveryState{state} })
			}
			found(events[1:3], "enqueued from 1 s to 3 s", func(p *webhook.FinishedDeliveriesParams) {
				p.EventsFrom, p.EventsTo = e.at(time.Second), e.at(3*time.Second)
			})
			found(events[:2], "begun before 2 s", func(p *webhook.FinishedDeliveriesParams) { p.BegunTo = e.at(2 * time.Second) })
			found(events[1:3], "finished from 1 s to 3 s", func(p *webhook.FinishedDeliveriesParams) {
				p.FinishedFrom, p.FinishedTo = e.at(61*time.Second), e.at(63*time.Second)
			})
		}},
		{name: "stored events tell the state of their latest run", run: func(e *env[Tx]) {
			endpoint := e.endpoint("acme", "order.*")
			e.endpoint("acme", "invoice.*")
			never, pending, ended, again := e.event("acme", "invoice.paid"), e.event("acme", "order.created"), e.event("acme", "order.created"), e.event("acme", "order.created")
			foreign, waits := e.event("other", "order.created"), e.event("acme", "order.created")
			e.enqueue(never, pending, ended, again, foreign)
			e.fanOut()
			for _, held := range e.claim(e.now, oldest(endpoint, webhook.LaneFirst, plenty)) {
				switch held.Event.ID {
				case ended.ID, again.ID:
					e.record(e.now, dead(held, e.now, "over"))
				default:
					e.record(e.now, handBack(held, e.now))
				}
			}
			e.startRun(e.now, again.ID, endpoint)
			e.record(e.now, delivered(e.claimOne(e.now, endpoint, webhook.LaneReplay), e.now))
			e.enqueue(waits)
			states := map[uuid.UUID]webhook.DeliveryState{}
			for _, c := range e.stored(e.storedParams(endpoint)).Candidates {
				states[c.Event.ID] = c.State
				e.equal(c.Event.ID, c.Cursor, "cursor")
			}
			e.equal(map[uuid.UUID]webhook.DeliveryState{
				never.ID: "", ended.ID: webhook.StateDead, again.ID: webhook.StateDelivered,
			}, states, "events and states")
		}},
		{name: "stored events are looked at in pages, within their times and ids", run: func(e *env[Tx]) {
			endpoint := e.endpoint("acme", "order.*")
			var events []webhook.EventRecord
			for i := range 6 {
				event := e.event("acme", "invoice.paid")
				event.CreatedAt = e.at(time.Duration(i) * time.Second)
				events = append(events, event)
			}
			e.enqueue(events...)
			e.fanOut()
			ids := eventIDs(events...)
			for _, limit := range []int{1, 4, 6, 100} {
				var got []uuid.UUID
				p := e.storedParams(endpoint)
				p.Limit = limit
				for range 20 {
					page := e.stored(p)
					got = append(got, candidates(page)...)
					p.After = page.Next
					if !page.More {
						break
					}
				}
				e.equal(ids, got, "events in pages of %d", limit)
			}
			p := e.storedParams(endpoint)
			p.EventsFrom, p.EventsTo = e.at(time.Second), e.at(3*time.Second)
			e.equal(ids[1:3], candidates(e.stored(p)), "enqueued from 1 s to 3 s")
			p = e.storedParams(endpoint)
			p.After, p.Until = ids[1], ids[4]
			e.equal(ids[2:4], candidates(e.stored(p)), "between two ids")
		}},
		{name: "stored events come with their payload if it is asked for", run: func(e *env[Tx]) {
			endpoint := e.endpoint("acme", "order.*")
			event := e.event("acme", "invoice.paid")
			event.Payload = []byte(`{"b" : 1}`)
			e.enqueue(event)
			e.fanOut()
			p := e.storedParams(endpoint)
			for _, want := range [][]byte{nil, event.Payload} {
				p.Payload = want != nil
				page := e.stored(p)
				e.need(1, len(page.Candidates), "events")
				e.sameBytes(want, page.Candidates[0].Event.Payload, "payload")
			}
		}},
	}
}

// replayWorkTests are about working on replay jobs.
func replayWorkTests[Tx any]() []test[Tx] {
	return []test[Tx]{
		{name: "a replay job is leased to one at a time", run: func(e *env[Tx]) {
			job := e.job(e.endpoint("acme", "*"))
			e.noJob(e.at(-time.Second)) // not due
			work := e.takeJob(e.now, newID())
			e.equal(job, work.Job, "job taken")
			e.noJob(e.at(leaseTime - time.Second))
			e.equal(job.ID, e.takeJob(e.at(leaseTime), newID()).Job.ID, "job taken over")
		}},
		{name: "the replay job that has been due longest is taken first", run: func(e *env[Tx]) {
			endpoint := e.endpoint("acme", "*")
			var want []uuid.UUID
			for i := range 3 {
				job := e.newJob(endpoint)
				job.DueAt = e.at(-time.Duration(i) * time.Minute)
				e.must(e.store.CreateReplayJob(e.ctx, job), "create a replay job")
				want = append([]uuid.UUID{job.ID}, want...)
			}
			var got []uuid.UUID
			for range want {
				got = append(got, e.takeJob(e.now, newID()).Job.ID)
			}
			e.equal(want, got, "jobs taken")
		}},
		{name: "of many that want a replay job at once one gets it", run: func(e *env[Tx]) {
			e.job(e.endpoint("acme", "*"))
			stores := make([]webhook.Store[Tx], 6)
			for i := range stores {
				stores[i] = e.db.Connect(e.t)
			}
			var got atomic.Int32
			e.concurrently(len(stores), func(i int) error {
				_, ok, err := stores[i].TakeReplayJob(e.ctx, webhook.TakeReplayJobParams{Now: e.now, LeaseUntil: e.at(leaseTime), Token: newID()})
				if ok {
					got.Add(1)
				}
				return err
			})
			e.equal(int32(1), got.Load(), "times that the job was taken")
		}},
		{name: "advancing a replay job begins runs and moves it, once", run: func(e *env[Tx]) {
			endpoint, events := e.ended(3)
			job := e.job(endpoint)
			token := newID()
			e.equal(0, e.takeJob(e.now, token).Waiting, "replays that wait at first")
			step := webhook.AdvanceReplayJobParams{
				Now: e.at(time.Second), JobID: job.ID, Token: token, Cursor: newID(), Handled: 4, Events: events[:2],
				DueAt: e.at(time.Minute), State: webhook.ReplayRunning,
			}
			created, held := e.advance(step)
			e.equal([2]any{2, true}, [2]any{created, held}, "runs begun, and whether the job was held")
			created, held = e.advance(step)
			e.equal([2]any{0, false}, [2]any{created, held}, "runs begun by the same step again, and whether the job was held")
			want := job
			want.Cursor, want.Handled, want.Created, want.DueAt = step.Cursor, 4, 2, step.DueAt
			e.equal(want, e.getJob(job.ID), "job")
			for _, held := range e.claim(e.at(time.Second), oldest(endpoint, webhook.LaneReplay, plenty)) {
				e.equal([2]any{1, e.at(time.Second)}, [2]any{held.Run, held.CreatedAt}, "run and its beginning")
			}

			token = newID()
			e.noJob(e.at(59 * time.Second))
			work := e.takeJob(e.at(time.Minute), token) // at once: the lease was given back
			e.equal(2, work.Waiting, "replays that wait")
			step.Now, step.Token, step.Events, step.Handled, step.State = e.at(time.Minute), token, events[2:], 1, webhook.ReplayDone
			created, _ = e.advance(step)
			e.equal(1, created, "runs begun")
			got := e.getJob(job.ID)
			e.equal([3]any{webhook.ReplayDone, 5, 3}, [3]any{got.State, got.Handled, got.Created}, "state, handled and created")
			e.equal(e.at(time.Minute), got.FinishedAt, "finished at")
			e.noJob(e.at(24 * time.Hour))
		}},
		{name: "a replay job begins no run beside an unfinished one, nor of what is not there", run: func(e *env[Tx]) {
			endpoint, events := e.ended(3)
			e.startRun(e.now, events[0], endpoint)
			foreign := e.event("other", "order.created")
			e.enqueue(foreign)
			e.fanOut()
			job := e.job(endpoint)
			token := newID()
			e.equal(1, e.takeJob(e.now, token).Waiting, "replays that wait")
			created, _ := e.advance(webhook.AdvanceReplayJobParams{
				Now: e.now, JobID: job.ID, Token: token, DueAt: e.now, State: webhook.ReplayRunning,
				Events: []uuid.UUID{events[0], events[1], newID(), foreign.ID},
			})
			e.equal(1, created, "runs begun")
			e.equal(1, e.getJob(job.ID).Created, "runs counted")
			claimed := e.claim(e.now, oldest(endpoint, webhook.LaneReplay, plenty))
			var got []uuid.UUID
			for _, held := range claimed {
				got = append(got, held.Event.ID)
			}
			e.sameSet(events[:2], got, "events with a run")
		}},
		{name: "a replay job is not advanced by who does not hold it", run: func(e *env[Tx]) {
			endpoint, events := e.ended(1)
			job := e.job(endpoint)
			first, second := newID(), newID()
			e.takeJob(e.now, first)
			e.takeJob(e.at(leaseTime), second)
			for _, token := range []uuid.UUID{first, newID(), {}} {
				created, held := e.advance(webhook.AdvanceReplayJobParams{
					Now: e.now, JobID: job.ID, Token: token, Cursor: newID(), DueAt: e.now, State: webhook.ReplayDone, Events: events,
				})
				e.equal([2]any{0, false}, [2]any{created, held}, "runs begun, and whether the job was held")
			}
			e.equal(job, e.getJob(job.ID), "job")
			e.equal(0, len(e.claim(e.now, oldest(endpoint, webhook.LaneReplay, plenty))), "runs")
		}},
		{name: "a replay job begins nothing for an endpoint that is disabled or deleted", run: func(e *env[Tx]) {
			endpoint, events := e.ended(1)
			job := e.job(endpoint)
			token := newID()
			e.takeJob(e.now, token)
			step := webhook.AdvanceReplayJobParams{
				Now: e.now, JobID: job.ID, Token: token, Cursor: newID(), DueAt: e.now, State: webhook.ReplayRunning, Events: events,
			}
			endpoint = e.setState(endpoint, webhook.EndpointDisabled)
			_, _, err := e.store.AdvanceReplayJob(e.ctx, step)
			e.wantError(webhook.ErrEndpointDisabled, err, "advance a job of a disabled endpoint")
			e.deleteEndpoint(endpoint)
			_, _, err = e.store.AdvanceReplayJob(e.ctx, step)
			e.wantError(webhook.ErrNotFound, err, "advance a job of a deleted endpoint")
			e.equal(job, e.getJob(job.ID), "job")

			step.Events, step.State, step.Reason = nil, webhook.ReplayFailed, "endpoint deleted"
			_, held := e.advance(step)
			e.truth(held, "the refusal cost the lease")
			e.equal("endpoint deleted", e.getJob(job.ID).Reason, "reason")
		}},
	}
}

// ended makes n deliveries that are dead, and returns their events.
func (e *env[Tx]) ended(n int) (webhook.EndpointRecord, []uuid.UUID) {
	e.t.Helper()
	endpoint := e.deliveries(n, "acme")
	var events []uuid.UUID
	for _, held := range e.claim(e.now, oldest(endpoint, webhook.LaneFirst, plenty)) {
		e.record(e.now, dead(held, e.now, "over"))
		events = append(events, held.Event.ID)
	}
	e.need(n, len(events), "deliveries ended")
	return endpoint, events
}

func (e *env[Tx]) newJob(endpoint webhook.EndpointRecord) webhook.ReplayJobRecord {
	return webhook.ReplayJobRecord{
		ID: newID(), EndpointID: endpoint.ID, Tenant: endpoint.Tenant, State: webhook.ReplayRunning,
		Request: []byte(`{"a" : 1}`), CreatedAt: e.now, DueAt: e.now,
	}
}

func (e *env[Tx]) job(endpoint webhook.EndpointRecord) webhook.ReplayJobRecord {
	e.t.Helper()
	job := e.newJob(endpoint)
	e.must(e.store.CreateReplayJob(e.ctx, job), "create a replay job")
	return job
}

func (e *env[Tx]) getJob(id uuid.UUID) webhook.ReplayJobRecord {
	e.t.Helper()
	job, err := e.store.GetReplayJob(e.ctx, webhook.AllTenants(), id)
	e.must(err, "get a replay job")
	return job
}

func (e *env[Tx]) jobs(p webhook.ListReplayJobsParams) []webhook.ReplayJobRecord {
	e.t.Helper()
	p.Limit = plenty
	jobs, err := e.store.ListReplayJobs(e.ctx, p)
	e.must(err, "list replay jobs")
	return jobs
}

func (e *env[Tx]) cancelJob(scope webhook.Scope, id uuid.UUID) bool {
	e.t.Helper()
	cancelled, err := e.store.CancelReplayJob(e.ctx, webhook.CancelReplayJobParams{Now: e.at(time.Second), Scope: scope, JobID: id})
	e.must(err, "cancel a replay job")
	return cancelled
}

func (e *env[Tx]) takeJob(at time.Time, token uuid.UUID) webhook.ReplayWork {
	e.t.Helper()
	work, ok, err := e.store.TakeReplayJob(e.ctx, webhook.TakeReplayJobParams{Now: at, LeaseUntil: at.Add(leaseTime), Token: token})
	e.must(err, "take a replay job")
	e.need(true, ok, "there is a replay job")
	return work
}

func (e *env[Tx]) noJob(at time.Time) {
	e.t.Helper()
	_, ok, err := e.store.TakeReplayJob(e.ctx, webhook.TakeReplayJobParams{Now: at, LeaseUntil: at.Add(leaseTime), Token: newID()})
	e.must(err, "take a replay job")
	e.need(false, ok, "there is a replay job")
}

func (e *env[Tx]) advance(p webhook.AdvanceReplayJobParams) (created int, held bool) {
	e.t.Helper()
	created, held, err := e.store.AdvanceReplayJob(e.ctx, p)
	e.must(err, "advance a replay job")
	return created, held
}

func (e *env[Tx]) finished(p webhook.FinishedDeliveriesParams) webhook.ReplayPage {
	e.t.Helper()
	page, err := e.store.FinishedDeliveries(e.ctx, p)
	e.must(err, "look at finished deliveries")
	return page
}

func (e *env[Tx]) storedParams(endpoint webhook.EndpointRecord) webhook.StoredEventsParams {
	return webhook.StoredEventsParams{EndpointID: endpoint.ID, Tenant: endpoint.Tenant, Until: uuid.Max, Limit: plenty}
}

func (e *env[Tx]) stored(p webhook.StoredEventsParams) webhook.ReplayPage {
	e.t.Helper()
	page, err := e.store.StoredEvents(e.ctx, p)
	e.must(err, "look at stored events")
	return page
}

func candidates(page webhook.ReplayPage) []uuid.UUID {
	ids := make([]uuid.UUID, len(page.Candidates))
	for i, c := range page.Candidates {
		ids[i] = c.Event.ID
	}
	return ids
}
