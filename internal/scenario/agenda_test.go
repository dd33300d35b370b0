package scenario

import (
	"container/heap"
	"slices"
	"time"

	"github.com/outhook/webhook/internal/scheduler"
)

// backlog holds first deliveries by creation, those of one instant in one batch.
type backlog struct {
	batches []batch
	n       int
}

type batch struct {
	created time.Time
	n       int
}

func (b *backlog) add(created time.Time, n int) {
	b.batches = append(b.batches, batch{created, n})
	b.n += n
}

// putBack returns one that was taken from the oldest end.
func (b *backlog) putBack(created time.Time) {
	b.batches = slices.Insert(b.batches, 0, batch{created, 1})
	b.n++
}

func (b *backlog) oldest() delivery {
	first := &b.batches[0]
	created := first.created
	if first.n--; first.n == 0 {
		b.batches = b.batches[1:]
	}
	b.n--
	return delivery{created: created, due: created}
}

func (b *backlog) newest(since time.Time) (delivery, bool) {
	if b.n == 0 || b.batches[len(b.batches)-1].created.Before(since) {
		return delivery{}, false
	}
	last := &b.batches[len(b.batches)-1]
	created := last.created
	if last.n--; last.n == 0 {
		b.batches = b.batches[:len(b.batches)-1]
	}
	b.n--
	return delivery{created: created, due: created}, true
}

func (e *endpoint) putBack(d delivery) {
	switch {
	case d.lane == scheduler.Replay:
		e.replays++
	case d.attempts > 0:
		heap.Push(&e.retries, d)
		e.w.retrying[e] = true
	default:
		e.live.putBack(d.created)
	}
}

// agenda holds what will happen, by time and in the order of planning.
type agenda []*entry

type entry struct {
	at  time.Time
	seq uint64
	do  func()
}

func (w *world) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.agenda, &entry{at: time.Now().Add(d), seq: w.seq, do: do})
}

func (w *world) every(d time.Duration, do func()) {
	w.after(d, func() {
		do()
		w.every(d, do)
	})
}

func (a *agenda) Len() int { return len(*a) }

func (a *agenda) Less(i, j int) bool {
	x, y := (*a)[i], (*a)[j]
	if x.at.Equal(y.at) {
		return x.seq < y.seq
	}
	return x.at.Before(y.at)
}

func (a *agenda) Swap(i, j int) { (*a)[i], (*a)[j] = (*a)[j], (*a)[i] }

func (a *agenda) Push(x any) { *a = append(*a, x.(*entry)) }

func (a *agenda) Pop() any {
	old := *a
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*a = old[:len(old)-1]
	return e
}

// retryHeap holds retries by due time.
type retryHeap []delivery

func (h *retryHeap) Len() int { return len(*h) }

func (h *retryHeap) Less(i, j int) bool { return (*h)[i].due.Before((*h)[j].due) }

func (h *retryHeap) Swap(i, j int) { (*h)[i], (*h)[j] = (*h)[j], (*h)[i] }

func (h *retryHeap) Push(x any) { *h = append(*h, x.(delivery)) }

func (h *retryHeap) Pop() any {
	old := *h
	d := old[len(old)-1]
	*h = old[:len(old)-1]
	return d
}
