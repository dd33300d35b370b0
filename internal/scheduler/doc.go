// Package scheduler decides which endpoints may have how many deliveries
// claimed now, so that no endpoint, host or tenant delays another and none is
// made worse (docs/design.md §3).
//
// The package is pure: it does no I/O, starts no goroutine, reads no clock
// (every call gets now) and knows neither SQL nor HTTP. A [Scheduler] has one
// owner, the dispatcher's loop: no method may be called from two goroutines at
// once, and nothing in here locks.
//
// # How it is driven
//
//	Arrived tells how many deliveries a fan-out made
//	Ready   tells that an endpoint has something due (retries, notifications,
//	        reconciliation)
//	Plan    answers with grants: how many deliveries to claim for which
//	        endpoints; the slots are taken at once
//	Settle  tells what the claim found; what it did not find is given back
//	Start   is asked just before a claimed delivery is sent
//	Done    tells the result
//
// # Where an endpoint stands
//
// Every endpoint is in exactly one position. Only queued endpoints are looked
// at by Plan, so idle and parked ones cost nothing per tick:
//
//	idle      nothing due, nothing to wait for
//	timed     waits for an instant (next due time, open circuit, rate, budget)
//	queued    may be granted slots; stands in its tenant's queue
//	claiming  has a grant that is not settled yet
//	slots     its own slots are taken: its next Done moves it
//	gated     its host, the slow lane or the replay lane is full: the gate
//	          calls it when a slot comes free, tenants in turn
//	tenant    its tenant's rate is used up
//
// place is the one function that moves an endpoint between them.
package scheduler
