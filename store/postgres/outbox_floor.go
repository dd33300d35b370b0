package postgres

import (
	"sync"
	"time"
)

const (
	// outboxGrace is for how long a position must have been the lowest in the outbox
	// before nothing is expected below it any more. Positions are given out in the host's
	// transactions, which commit in another order.
	outboxGrace = 2 * time.Second

	// wholeEvery is how often the outbox is looked at from its beginning all the same, for
	// what the host took longer to commit; less often where that would be more than one
	// part in wholeShare of the time, but every wholeAtMost all the same: a look may have
	// taken long for other reasons, such as a process that stood still.
	wholeEvery  = time.Second
	wholeShare  = 20
	wholeAtMost = 10 * time.Second
)

// outboxFloor is the position that fan-outs begin to look at. An entry that has been taken
// stays in the index for as long as some transaction might still see it: while a backup
// runs, each look from the beginning passes over all that was enqueued since it began.
type outboxFloor struct {
	mu      sync.Mutex
	at      int64         // where looks begin
	next    int64         // was the lowest position when it was looked for last
	nextAt  time.Time     // when that was
	highest int64         // position seen
	wholeAt time.Time     // when the last look from the beginning ended
	took    time.Duration // how long that was
}

// from is the position to begin at; 0 is the beginning.
func (f *outboxFloor) from(now time.Time) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.wholeAt) >= min(max(wholeEvery, wholeShare*f.took), wholeAtMost) {
		return 0
	}
	return f.at
}

// looked takes in the positions of the first and the last entry that a look found, 0 if it
// found none.
func (f *outboxFloor) looked(from, first, last int64, began, ended time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if from == 0 {
		f.wholeAt, f.took = ended, ended.Sub(began)
	}
	f.highest = max(f.highest, last)
	if first == 0 {
		first = f.highest
	} else {
		// There may be any number from there on, of which a look takes but the first few.
		f.at, f.next = min(f.at, first), min(f.next, first)
	}
	if began.Sub(f.nextAt) >= outboxGrace {
		f.at, f.next, f.nextAt = f.next, first, began
	}
}
