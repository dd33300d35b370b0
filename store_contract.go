package webhook

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// OrderStore lets the deliveries of an ordering key go one after the other.
//
// A delivery to an endpoint with an [Ordering] that gives its event a key is written
// in LaneWaiting, by fan-out and by runs alike. At most one delivery of a key, the
// one whose turn it is, stands in another lane, and a store makes sure of that
// itself, by a unique index for instance: so no two of them are ever claimed at once.
//
// The turn goes to the waiting delivery with the lowest event sequence, and only when
// no event of the tenant with a lower sequence, and for a resource's key only of the
// resource, waits in the outbox for fan-out to the endpoint. It goes when nobody has
// it, and away from an unleased delivery that has it when
//   - one with a lower sequence waits, or
//   - that delivery has been overtaken before and is not due, or
//   - that delivery has been attempted, has had the turn since before
//     [ReleaseOrderedParams.HeldBefore], and its endpoint has been active since then.
//
// In the last two cases it waits again, as overtaken, and the next one goes. Overtaken
// deliveries get no turn before they are due, unless nothing else waits. A delivery
// that gets its turn while one with a lower sequence is unfinished is marked
// OrderingSkipped.
//
// FanOut, Record and CancelDelivery give a key's next turn in their own transaction,
// runs as they are begun; ReleaseOrdered finds whatever else is free. While a
// delivery that was cancelled under a lease may still be on its way, its key's turn
// goes to nobody.
type OrderStore interface {
	// ReleaseOrdered looks at up to p.Limit keys for which deliveries wait, in the
	// order of endpoints and keys after p.After, and gives the turns that are free.
	ReleaseOrdered(ctx context.Context, p ReleaseOrderedParams) (ReleaseOrderedResult, error)
}

// OrderKey is what deliveries to an endpoint are kept in order by: the id of a
// resource, or empty for all events alike.
type OrderKey struct {
	EndpointID uuid.UUID
	Key        string
}

// ReleaseOrderedParams pages through ordering keys.
type ReleaseOrderedParams struct {
	Now time.Time
	// HeldBefore is since when a delivery must have had its turn for others to pass
	// it. Zero: none passes for that.
	HeldBefore time.Time
	After      OrderKey // zero starts at the beginning
	Limit      int      // keys
}

// ReleaseOrderedResult tells whose turn it is now.
type ReleaseOrderedResult struct {
	// Released are the lanes of the deliveries that got a turn, and when each is due.
	Released []ReadyLane
	// Next is the last key looked at; More is false when it was the last of all.
	Next OrderKey
	More bool
}

// OnceStore keeps deliveries at most once (docs/design.md §4).
type OnceStore interface {
	// MarkSent marks leased deliveries as about to be sent, at p.Now, and returns the
	// ids of those that are no longer held by their token. The mark is taken away when
	// a result makes the delivery pending. A marked delivery is not claimed any more,
	// whatever becomes of its lease.
	MarkSent(ctx context.Context, p MarkSentParams) (lost []uuid.UUID, err error)

	// EndUnknown finishes up to p.Limit marked deliveries whose lease has expired as
	// dead with [ReasonOutcomeUnknown]: nobody knows whether they arrived. Each gets
	// an attempt of the class outcome_unknown in its log, begun when it was marked,
	// which counts. It returns how many it finished, for each endpoint once, in any
	// order.
	EndUnknown(ctx context.Context, p EndUnknownParams) ([]EndedDeliveries, error)
}

// MarkSentParams says what is about to be sent.
type MarkSentParams struct {
	Now    time.Time
	Leases []Lease
}

// EndUnknownParams limits [OnceStore.EndUnknown].
type EndUnknownParams struct {
	Now time.Time
	// ExpiredBefore is until when, at the latest, a lease was valid; it is not after Now.
	ExpiredBefore time.Time
	Limit         int
}

// EndedDeliveries counts deliveries to an endpoint that ended.
type EndedDeliveries struct {
	EndpointID uuid.UUID
	Tenant     string
	Deliveries int
}

// WindowStore ends deliveries whose retry window has passed.
type WindowStore interface {
	// EndOverdue looks at up to p.Limit due deliveries of a lane, in the order in which
	// they became due, from p.DueFrom on, and finishes as dead those of them that began
	// before p.BegunBefore, unless they are under a valid lease, or have never been
	// attempted and p.Unattempted is not set.
	EndOverdue(ctx context.Context, p EndOverdueParams) (EndOverdueResult, error)
}

// EndOverdueParams says which deliveries are overdue.
type EndOverdueParams struct {
	Now         time.Time
	EndpointID  uuid.UUID
	Lane        Lane
	BegunBefore time.Time
	Unattempted bool
	Reason      string
	DueFrom     time.Time
	Limit       int // more than become due at one instant
}

// EndOverdueResult tells how far the look got.
type EndOverdueResult struct {
	Ended int
	// DueFrom is where the next look begins; More is false when this was the last.
	DueFrom time.Time
	More    bool
}
