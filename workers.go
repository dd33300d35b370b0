package webhook

import (
	"sync"
	"sync/atomic"
)

// maxIdleWorkers is how many goroutines are kept for the next jobs.
const maxIdleWorkers = 512

// workers runs short jobs in goroutines that are kept for the next ones: a request
// needs a larger stack than a new goroutine has, and growing it costs about as much as
// signing does.
type workers struct {
	running *sync.WaitGroup
	idle    atomic.Int32
	jobs    chan func()     // unbuffered: somebody must be waiting
	over    <-chan struct{} // nobody waits for jobs any longer
}

func newWorkers(running *sync.WaitGroup, over <-chan struct{}) *workers {
	return &workers{running: running, jobs: make(chan func()), over: over}
}

// run runs a job, in a goroutine that waits for one or in a new one.
func (w *workers) run(job func()) {
	select {
	case w.jobs <- job:
	default:
		w.running.Go(func() { w.work(job) })
	}
}

func (w *workers) work(job func()) {
	for {
		job()
		if w.idle.Add(1) > maxIdleWorkers {
			w.idle.Add(-1)
			return
		}
		select {
		case job = <-w.jobs:
			w.idle.Add(-1)
		case <-w.over:
			return
		}
	}
}
