package webhook

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
)

func TestWorkersRunEveryJobAndEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var running sync.WaitGroup
		over := make(chan struct{})
		w := newWorkers(&running, over)
		var ran atomic.Int32
		release := make(chan struct{})
		for range maxIdleWorkers + 100 {
			w.run(func() { <-release; ran.Add(1) })
		}
		close(release)
		synctest.Wait()
		assert.EqualValues(t, maxIdleWorkers+100, ran.Load(), "all at once: none waits for another")
		assert.EqualValues(t, maxIdleWorkers, w.idle.Load(), "no more are kept")

		for range 10 {
			w.run(func() { ran.Add(1) })
			synctest.Wait()
		}
		assert.EqualValues(t, maxIdleWorkers+110, ran.Load())
		assert.EqualValues(t, maxIdleWorkers, w.idle.Load(), "those that waited ran them")

		close(over)
		running.Wait() // none is left, or the bubble would not end
	})
}
