package scheduler_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/scheduler"
)

func TestASilentEndpointGetsNothingMore(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{})
	e := b.endpoint(1, nil)
	b.s.Restore(b.now, e, scheduler.Snapshot{At: b.now, LastSuccess: b.now, Latency: 50 * time.Millisecond})
	b.add(e, scheduler.Live, 1)
	require.Equal(t, 1, b.drain())
	b.now = b.now.Add(260 * time.Millisecond)
	b.add(e, scheduler.Live, 5)
	assert.Zero(t, b.drain(), "it takes 50 ms as a rule")
	b.finish(e, ok200)
	assert.Equal(t, 5, b.drain())
}

func TestAnEndpointThatIsAlwaysSlowIsNotSilent(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduler.Config{})
	e := b.endpoint(1, nil)
	b.s.Restore(b.now, e, scheduler.Snapshot{At: b.now, LastSuccess: b.now, Latency: 8 * time.Second})
	b.add(e, scheduler.Live, 1)
	require.Equal(t, 1, b.drain())
	b.now = b.now.Add(4 * time.Second)
	b.add(e, scheduler.Live, 5)
	assert.Equal(t, 1, b.drain(), "two at a time, as for any without a recent success")
}
