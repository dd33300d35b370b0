package webhook

import (
	"time"

	"github.com/outhook/webhook/internal/scheduler"
)

// floorGrace is how far floors stay behind the present: what is due now may be committed
// a little later, by this process or another.
const floorGrace = 2 * time.Second

// floor is the due time below which a lane of an endpoint holds nothing to claim, so that
// claims begin to look there. What is finished stays in a database's index for as long as
// some transaction might still see it, at the very end where claims begin: without a
// floor, each claim would pass over all that was delivered since a backup began.
//
// It is a hint. What is below it nevertheless, such as a delivery whose lease has run
// out, is found by reconciliation, which tells when it was due.
type floor struct {
	at time.Time // zero: nothing is known

	// What has been told since the last claim began, which may have missed it: whether
	// anything, and the earliest of it.
	news     bool
	earliest time.Time
}

// told lowers the floor to a delivery that became due then.
func (f *floor) told(due time.Time) {
	if !f.news || due.Before(f.earliest) {
		f.news, f.earliest = true, due
	}
	f.at = lower(f.at, due)
}

// raise raises the floor to what a claim found out.
func (f *floor) raise(at time.Time) {
	if f.news {
		at = lower(at, f.earliest)
	}
	if at.After(f.at) {
		f.at = at
	}
}

func lower(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// floors are those of the lanes that are claimed from.
type floors [LaneWaiting]floor

// begin takes in that a claim begins, of which there is one at a time.
func (f *floors) begin() {
	for i := range f {
		f[i].news = false
	}
}

// asked is a grant as it is asked of the store, with the floors of the moment.
type asked struct {
	scheduler.Grant

	place  *place // nil: given up before that
	floors floors
}

// oldest is how many deliveries are asked for from the old end of each lane.
func (a *asked) oldest() [LaneWaiting]int {
	return [...]int{LaneFirst: a.Oldest - a.Retries, LaneRetry: a.Retries, LaneReplay: a.Replay}
}

// brought is what a claim brought for an endpoint.
type brought struct {
	scheduler.Claimed

	oldest  [LaneWaiting]int       // from the old end of each lane
	lastDue [LaneWaiting]time.Time // of those
}

func (b *brought) add(c *Claimed) {
	if !c.Newest {
		b.oldest[c.Lane]++
		if c.DueAt.After(b.lastDue[c.Lane]) {
			b.lastDue[c.Lane] = c.DueAt
		}
	}
	switch {
	case c.Lane == LaneReplay:
		b.Replay++
	case c.Newest:
		b.Newest++
	default:
		b.Oldest++
		if c.Lane == LaneRetry {
			b.Retries++
		}
	}
}

// raiseFloors takes in how far up a claim has emptied its endpoints' lanes.
func (l *loop) raiseFloors(reply *claimReply, got map[scheduler.ID]*brought) {
	highest := reply.at.Add(-floorGrace)
	for i := range reply.asked {
		a := &reply.asked[i]
		p := l.places[a.Endpoint]
		if _, held := reply.held[a.Endpoint]; p == nil || p != a.place || held {
			continue // another dispatcher had it meanwhile, or nothing was looked for
		}
		b := got[a.Endpoint]
		for lane, limit := range a.oldest() {
			if limit <= 0 {
				continue
			}
			at := highest
			if b != nil && b.oldest[lane] >= limit && b.lastDue[lane].Before(at) {
				at = b.lastDue[lane] // there may be more from there on
			}
			p.floors[lane].raise(at)
		}
	}
}
