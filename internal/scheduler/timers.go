package scheduler

import "container/heap"

// timer wakes an endpoint or a tenant. It is part of its owner.
type timer struct {
	at  int64 // nanoseconds since 1970
	pos int   // in the heap, from 1; 0: not set
	ep  *endpoint
	tn  *tenant
}

// timers is a heap of what waits for an instant, so that waiting costs nothing
// until then.
type timers []*timer

func (h *timers) set(t *timer, at int64) {
	t.at = at
	if t.pos == 0 {
		heap.Push(h, t)
		return
	}
	heap.Fix(h, t.pos-1)
}

func (h *timers) clear(t *timer) {
	if t.pos != 0 {
		heap.Remove(h, t.pos-1)
	}
}

// due removes and returns a timer whose time has come.
func (h *timers) due(now int64) *timer {
	if len(*h) == 0 || (*h)[0].at > now {
		return nil
	}
	return heap.Pop(h).(*timer)
}

func (h *timers) Len() int           { return len(*h) }
func (h *timers) Less(i, j int) bool { return (*h)[i].at < (*h)[j].at }
func (h *timers) Swap(i, j int) {
	t := *h
	t[i], t[j] = t[j], t[i]
	t[i].pos, t[j].pos = i+1, j+1
}

// Push implements heap.Interface.
func (h *timers) Push(x any) {
	t := x.(*timer)
	*h = append(*h, t)
	t.pos = len(*h)
}

// Pop implements heap.Interface.
func (h *timers) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.pos = 0
	return t
}
