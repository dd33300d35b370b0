package webhook

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// recordingStore is the part of a Backend that a recorder uses.
type recordingStore struct {
	Backend

	mu      sync.Mutex
	down    bool
	refuses uuid.UUID // a result with this delivery and an excerpt is refused
	batches [][]Result
}

func (s *recordingStore) Now(context.Context) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return time.Time{}, errors.New("the database is away")
	}
	return time.Now(), nil
}

func (s *recordingStore) Record(_ context.Context, p RecordParams) (RecordResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return RecordResult{}, errors.New("the database is away")
	}
	for _, r := range p.Results {
		if r.DeliveryID == s.refuses && len(r.Attempt.Excerpt) > 0 {
			return RecordResult{}, errors.New("the database refuses the excerpt")
		}
	}
	s.batches = append(s.batches, p.Results)
	return RecordResult{}, nil
}

func (s *recordingStore) recorded() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, b := range s.batches {
		n += len(b)
	}
	return n
}

func result() Result {
	id := uuid.New()
	return Result{Lease: Lease{DeliveryID: id}, State: StateDelivered, Attempt: &Attempt{DeliveryID: id, Excerpt: []byte("ok")}}
}

// startRecorder runs a recorder on the store; the returned function stops it.
func startRecorder(ctx context.Context, s *recordingStore) (r *recorder, stop func()) {
	r = newRecorder(s, time.Now, slog.New(slog.DiscardHandler), func([]Result, RecordResult) {})
	over := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { r.run(ctx, over) })
	return r, func() { close(over); running.Wait() }
}

func TestResultsAreWrittenTogetherAndSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &recordingStore{}
		r, stop := startRecorder(t.Context(), s)
		for range 300 {
			r.add(result())
		}
		time.Sleep(20 * time.Millisecond) // virtual; the bound of docs/design.md §2
		synctest.Wait()
		assert.Equal(t, 300, s.recorded())
		assert.Len(t, s.batches, 1)
		stop()
	})
}

func TestAFullBatchIsWrittenAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &recordingStore{}
		r, stop := startRecorder(t.Context(), s)
		for range maxBatch {
			r.add(result())
		}
		synctest.Wait() // no time passes
		assert.Equal(t, maxBatch, s.recorded())
		stop()
	})
}

func TestResultsWaitWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &recordingStore{down: true}
		r, stop := startRecorder(t.Context(), s)
		for range maxUnrecorded {
			r.add(result())
		}
		time.Sleep(time.Hour) // virtual
		assert.Zero(t, s.recorded())
		assert.True(t, r.saturated(), "sending pauses")

		s.mu.Lock()
		s.down = false
		s.mu.Unlock()
		time.Sleep(2 * backoffMax) // virtual
		synctest.Wait()

		assert.Equal(t, maxUnrecorded, s.recorded())
		assert.False(t, r.saturated())
		for _, b := range s.batches {
			assert.LessOrEqual(t, len(b), maxBatch)
		}
		stop()
	})
}

func TestOneResultThatTheDatabaseRefusesDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel() // B01
	synctest.Test(t, func(t *testing.T) {
		bad := result()
		s := &recordingStore{refuses: bad.DeliveryID}
		r, stop := startRecorder(t.Context(), s)
		for range 99 {
			r.add(result())
		}
		r.add(bad)
		time.Sleep(time.Minute) // virtual
		synctest.Wait()

		require.Equal(t, 100, s.recorded())
		for _, b := range s.batches {
			for _, got := range b {
				if got.DeliveryID == bad.DeliveryID {
					assert.Empty(t, got.Attempt.Excerpt)
					assert.NotEmpty(t, got.Attempt.Error)
				}
			}
		}
		assert.Equal(t, "ok", string(bad.Attempt.Excerpt), "the caller's result is not changed")
		stop()
	})
}

func TestStoppingWritesWhatIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &recordingStore{}
		r, stop := startRecorder(t.Context(), s)
		for range 2500 {
			r.add(result())
		}
		stop()
		assert.Equal(t, 2500, s.recorded())
	})
}
