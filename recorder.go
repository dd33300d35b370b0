package webhook

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Batching of results (docs/design.md §2): they are written within flushDelay or at
// maxBatch, whichever comes first.
const (
	flushDelay = 18 * time.Millisecond
	maxBatch   = 1000

	// maxUnrecorded bounds the results that wait while the database is away.
	// Sending pauses when it is reached.
	maxUnrecorded = 10_000
)

// recorder writes results to the store in batches. Attempts add results from
// their goroutines; run is the one goroutine that writes. While the database is
// away results wait, and are written when it is back.
type recorder struct {
	store DeliveryStore
	ping  func(context.Context) error // whether the database answers
	now   func() time.Time
	log   *slog.Logger
	// recorded is called from run with each batch that is in the database, and
	// what the store said to it.
	recorded func(batch []Result, res RecordResult)
	// limit is how many results may wait before nothing more is sent.
	limit int

	mu      sync.Mutex
	pending []Result
	writing int // taken from pending and not yet in the database

	filled chan struct{} // cap 1: pending became non-empty
	full   chan struct{} // cap 1: pending reached maxBatch
}

func newRecorder(backend Backend, now func() time.Time, log *slog.Logger, recorded func([]Result, RecordResult)) *recorder {
	return &recorder{
		store: backend,
		ping: func(ctx context.Context) error {
			_, err := backend.Now(ctx)
			return err
		},
		now:      now,
		log:      log,
		recorded: recorded,
		limit:    maxUnrecorded,
		filled:   make(chan struct{}, 1),
		full:     make(chan struct{}, 1),
	}
}

// add takes a result. It never blocks: what may be in flight is bounded, and
// nothing new is sent while saturated reports true.
func (r *recorder) add(res Result) {
	r.mu.Lock()
	r.pending = append(r.pending, res)
	n := len(r.pending)
	r.mu.Unlock()
	if n == 1 {
		poke(r.filled)
	}
	if n == maxBatch {
		poke(r.full)
	}
}

// saturated reports whether so many results wait that nothing should be sent.
func (r *recorder) saturated() bool { return r.unrecorded() >= r.limit }

// unrecorded is how many results wait.
func (r *recorder) unrecorded() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pending) + r.writing
}

func (r *recorder) take() []Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(len(r.pending), maxBatch)
	batch := r.pending[:n:n]
	r.pending = r.pending[n:]
	if len(r.pending) == 0 {
		r.pending = nil
	}
	r.writing = n
	return batch
}

// run writes batches until stop is closed and nothing is left, or ctx ends.
func (r *recorder) run(ctx context.Context, stop <-chan struct{}) {
	timer := time.NewTimer(flushDelay)
	defer timer.Stop()
	for {
		select {
		case <-r.filled:
		case <-stop:
			r.drain(ctx)
			return
		case <-ctx.Done():
			return
		}
		timer.Reset(flushDelay)
		select {
		case <-timer.C:
		case <-r.full:
		case <-stop:
		case <-ctx.Done():
			return
		}
		r.drainFull(ctx)
	}
}

// drainFull writes one batch, and more while they are full. What came meanwhile
// and fills none waits its time: written at once it would be many small batches.
func (r *recorder) drainFull(ctx context.Context) {
	for r.writeNext(ctx) && r.waiting() >= maxBatch {
	}
	if r.waiting() > 0 {
		poke(r.filled) // add does so only for the first
	}
}

// drain writes until nothing waits.
func (r *recorder) drain(ctx context.Context) {
	for r.writeNext(ctx) {
	}
}

// writeNext writes a batch; false means that there was none, or that ctx ended.
func (r *recorder) writeNext(ctx context.Context) bool {
	batch := r.take()
	if len(batch) == 0 || !r.write(ctx, batch) {
		return false
	}
	r.mu.Lock()
	r.writing = 0
	r.mu.Unlock()
	return true
}

func (r *recorder) waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pending)
}

// write puts one batch into the database, however long that takes. It returns
// false when ctx ended first; the leases then run out and the deliveries are
// attempted again.
func (r *recorder) write(ctx context.Context, batch []Result) bool {
	var wait backoff
	for {
		res, err := r.store.Record(ctx, RecordParams{Now: r.now(), Results: batch})
		if err == nil {
			r.recorded(batch, res)
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		r.log.WarnContext(ctx, "webhook: results not recorded yet", "results", len(batch), "error", err)
		if !wait.sleep(ctx) {
			return false
		}
		if wait.failures < 3 || r.ping(ctx) != nil {
			continue
		}
		// The database is there but keeps refusing the batch: one result in it
		// must not hold up the others.
		if half := len(batch) / 2; half > 0 {
			return r.write(ctx, batch[:half]) && r.write(ctx, batch[half:])
		}
		batch = []Result{withoutDetail(batch[0])}
	}
}

// withoutDetail strips a result of what came from the receiver.
func withoutDetail(res Result) Result {
	if res.Attempt != nil {
		bare := *res.Attempt
		bare.Excerpt, bare.BodyHash, bare.Location, bare.Error = nil, nil, "", "the detail could not be stored"
		res.Attempt = &bare
	}
	return res
}

// poke sends on a channel with a buffer of one, unless it is full.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
