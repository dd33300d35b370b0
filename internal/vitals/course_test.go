package vitals

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func took(at time.Time, d time.Duration) *Sample {
	s := ok(at)
	s.Latency = d
	return s
}

func TestLatenciesAreOfTheirTime(t *testing.T) {
	t.Parallel()
	var e endpoint
	for i := range 30 { // two and a half hours, slower and slower
		at := noon.Add(time.Duration(i) * Fine)
		e.see(many(50, func(int) *Sample { return took(at, time.Duration(i+1)*10*time.Millisecond) })...)
		e.see(took(at, 5*time.Second))
	}
	near := func(want, got time.Duration) { assert.InEpsilon(t, want, got, 0.1) }
	for i := 18; i < 30; i++ {
		p, ok := e.FineCourse.Find(noon.Add(time.Duration(i) * Fine))
		require.True(t, ok, "bucket %d", i)
		p50, p95, p99 := p.Durations()
		near(time.Duration(i+1)*10*time.Millisecond, p50)
		near(time.Duration(i+1)*10*time.Millisecond, p95)
		near(5*time.Second, p99)
	}
	assert.LessOrEqual(t, len(e.FineCourse.Past)+len(e.FineCourse.Open), 13)
	hour, ok := e.CoarseCourse.Find(noon.Add(time.Hour))
	require.True(t, ok)
	p50, _, _ := hour.Durations()
	near(185*time.Millisecond, p50)
	_, ok = e.CoarseCourse.Find(noon.Add(3 * time.Hour))
	assert.False(t, ok)

	e.look(noon.Add(50 * time.Hour))
	assert.True(t, e.FineCourse.IsZero())
	assert.True(t, e.CoarseCourse.IsZero(), "what is too old is forgotten")
}

// Two processes see one endpoint and store what they saw one after the other: as long
// as the later one is no more than a bucket behind, nothing is lost.
func TestLatenciesOfSeveralProcessesAddUp(t *testing.T) {
	t.Parallel()
	var e endpoint
	e.see(many(10, func(int) *Sample { return took(noon, 10*time.Millisecond) })...)
	e.see(took(noon.Add(Fine), 10*time.Millisecond))
	e.see(many(90, func(int) *Sample { return took(noon, time.Second) })...)
	p, ok := e.FineCourse.Find(noon)
	require.True(t, ok)
	p50, _, _ := p.Durations()
	assert.InEpsilon(t, time.Second, p50, 0.1)

	e.see(took(noon.Add(2*Fine), 10*time.Millisecond))
	e.see(many(1000, func(int) *Sample { return took(noon, time.Millisecond) })...)
	again, _ := e.FineCourse.Find(noon)
	assert.Equal(t, p, again, "what is over by then stays as it is")
	e.see(took(noon.Add(-Fine), 100*time.Millisecond))
	alone, ok := e.FineCourse.Find(noon.Add(-Fine))
	require.True(t, ok, "but what is all there is counts")
	p50, _, _ = alone.Durations()
	assert.InEpsilon(t, 100*time.Millisecond, p50, 0.1)
}

// In whatever order latencies come: buckets are in the order of their times, each once,
// and those that were the latest when all of theirs came are right.
func TestACourseIsInOrderAndReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var c Course
		for range rapid.IntRange(0, 60).Draw(t, "buckets") {
			var l Latencies
			for range rapid.IntRange(0, 3).Draw(t, "latencies") {
				l.Add(time.Duration(rapid.IntRange(1, 100_000).Draw(t, "ms")) * time.Millisecond)
			}
			c.add(noon.Add(time.Duration(rapid.IntRange(-5, 20).Draw(t, "at"))*Fine), &l)
		}
		var times []time.Time
		for _, p := range c.Past {
			times = append(times, p.At)
		}
		for i := range c.Open {
			times = append(times, c.Open[i].At)
		}
		for i := 1; i < len(times); i++ {
			if !times[i].After(times[i-1]) {
				t.Fatalf("not in order: %v", times)
			}
		}
		if len(c.Open) > openBuckets {
			t.Fatalf("%d are open", len(c.Open))
		}
		text, err := json.Marshal(c)
		require.NoError(t, err)
		var read Course
		require.NoError(t, json.Unmarshal(text, &read))
		require.Equal(t, c, read)
	})
}

func TestACourseOfAnotherHandIsRead(t *testing.T) {
	t.Parallel()
	var c Course
	require.NoError(t, json.Unmarshal([]byte(`{"past":[1772366400,-5,99,1000,7],"open":[{"at":1772367000,"all":[70,1,3,2]}],"more":1}`), &c))
	assert.Equal(t, []Percentiles{{At: noon, P50: 0, P95: cells - 1, P99: cells - 1}}, c.Past)
	assert.Equal(t, int64(2), c.Open[0].Count())
	require.Error(t, json.Unmarshal([]byte(`{"past":"x"}`), &c))
}

// What latencies over time cost: a dozen bytes for a bucket that is over.
func TestACourseIsSmall(t *testing.T) {
	t.Parallel()
	var c Course
	for i := range 25 {
		var l Latencies
		for n := range 1000 {
			l.Add(time.Duration(80+math.Exp(float64(n)/150)) * time.Millisecond)
		}
		c.add(noon.Add(time.Duration(i)*Coarse), &l)
	}
	text, err := json.Marshal(c)
	require.NoError(t, err)
	require.Len(t, c.Past, 23)
	past := slices.Index(text, ']')
	assert.Less(t, past/23, 16, "bytes of a bucket that is over: %s", text)
	assert.Less(t, len(text)-past, 400, "bytes of those that are open")
}
