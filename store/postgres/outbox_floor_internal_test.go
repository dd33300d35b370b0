package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestOutboxIsLookedAtFromWhereNothingWasBelowForAWhile(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var f outboxFloor
	look := func(after time.Duration, first, last int64) (from int64) {
		now = now.Add(after)
		from = f.from(now)
		f.looked(from, first, last, now, now.Add(time.Millisecond))
		return from
	}
	const soon = 600 * time.Millisecond

	assert.Zero(t, look(0, 100, 199), "nothing is known")
	assert.Zero(t, look(soon, 200, 250), "100 might be committed after 200")
	assert.Zero(t, look(soon, 90, 300), "and 90 was: it is time for a whole look anyway")
	assert.Zero(t, look(soon, 301, 310))
	assert.Zero(t, look(soon, 311, 320), "whole looks have found nothing below 90 for a while")
	assert.EqualValues(t, 90, look(soon, 321, 330))
	assert.Zero(t, look(soon, 331, 340), "every second it is looked for what took longer")
	assert.EqualValues(t, 90, look(soon, 0, 0))
	assert.Zero(t, look(soon, 0, 0), "there is nothing")
	assert.EqualValues(t, 311, look(soon, 0, 0))
	look(2*time.Second, 0, 0)
	look(2*time.Second, 0, 0)
	assert.EqualValues(t, 340, look(soon, 350, 350), "above the highest that has been seen")
}

func TestWholeLooksAtTheOutboxTakeASmallPartOfTheTime(t *testing.T) {
	t.Parallel()
	now := time.Now()
	f := outboxFloor{at: 7, nextAt: now}

	assert.Zero(t, f.from(now))
	f.looked(0, 8, 9, now, now.Add(200*time.Millisecond))

	assert.EqualValues(t, 7, f.from(now.Add(3*time.Second)))
	assert.Zero(t, f.from(now.Add(5*time.Second)))

	f.looked(0, 8, 9, now, now.Add(time.Hour))
	assert.Zero(t, f.from(now.Add(time.Hour+wholeAtMost)), "the process stood still")
}

// A transaction of the host that takes long may have enqueued any number of events, while
// others went on above them.
func TestWhatWasCommittedLateIsLookedAtUntilThereIsNoneOfIt(t *testing.T) {
	t.Parallel()
	const late, batch = 5000, 100
	now := time.Now()
	var f outboxFloor
	waiting := late // from position 1 on
	above := int64(late)
	look := func(committed bool) {
		now = now.Add(10 * time.Millisecond)
		from, first := f.from(now), above+1
		above += 10 // all of which each look finds
		last := above
		if committed && waiting > 0 && from <= late {
			first, last = late-int64(waiting)+1, 0
			waiting -= batch
		}
		f.looked(from, first, max(last, first), now, now.Add(time.Millisecond))
	}
	for range 1000 {
		look(false)
	}
	assert.Greater(t, f.at, int64(late))

	looks := 0
	for ; waiting > 0 && looks < 1000; looks++ {
		look(true)
	}

	assert.LessOrEqual(t, looks, 100+late/batch, "a second until it is found, and then one look after the other")
	for range 1000 {
		look(true)
	}
	assert.Greater(t, f.at, int64(late), "and then nothing is expected there any more")
}
