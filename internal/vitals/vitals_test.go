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

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ok(at time.Time) *Sample {
	return &Sample{At: at, Latency: 80 * time.Millisecond, Status: 200, Outcome: Succeeded, Ended: true}
}

func bad(at time.Time, status int) *Sample {
	return &Sample{At: at, Latency: 80 * time.Millisecond, Status: status, Class: "http_5xx", Outcome: Failed}
}

// endpoint is a state that is followed through a test.
type endpoint struct {
	State
	rules Rules
	found []Finding
}

func (e *endpoint) see(samples ...*Sample) []Finding {
	var d Delta
	for _, s := range samples {
		d.Add(s)
		e.rules.Now = s.At
	}
	found := e.Apply(&d, e.rules)
	e.found = append(e.found, found...)
	return found
}

func (e *endpoint) look(at time.Time) []Finding {
	e.rules.Now = at
	found := e.Apply(nil, e.rules)
	e.found = append(e.found, found...)
	return found
}

func kinds(found []Finding) []Kind {
	list := []Kind{}
	for _, f := range found {
		list = append(list, f.Kind)
	}
	return list
}

func many(n int, sample func(i int) *Sample) []*Sample {
	list := []*Sample{}
	for i := range n {
		list = append(list, sample(i))
	}
	return list
}

func TestScoreWeighsTheLatestFiftyByAge(t *testing.T) {
	t.Parallel()
	var e endpoint
	assert.Equal(t, 100, e.Score(), "of whom nothing is known")
	e.see(ok(noon), bad(noon, 500))
	// One of two, the newer one failed: e^-0.05 / (1 + e^-0.05).
	want := 100 * math.Exp(-0.05) / (1 + math.Exp(-0.05))
	assert.Equal(t, int(math.Round(want)), e.Score())

	e.see(many(50, func(int) *Sample { return bad(noon, 500) })...)
	assert.Equal(t, 0, e.Score(), "after fifty failures")
	e.see(ok(noon))
	all := (1 - math.Exp(-0.05*50)) / (1 - math.Exp(-0.05))
	assert.Equal(t, int(math.Round(100/all)), e.Score(), "the newest success alone")
	assert.Equal(t, 5, e.Score())
}

func TestHealthyIsTwentyAttemptsWithoutAFailure(t *testing.T) {
	t.Parallel()
	var e endpoint
	assert.True(t, e.Healthy())
	e.see(bad(noon, 500))
	for i := range 19 {
		e.see(ok(noon))
		assert.False(t, e.Healthy(), "after %d successes", i+1)
	}
	e.see(ok(noon))
	assert.True(t, e.Healthy())
}

func TestPercentilesAreRightToWithinATenth(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Int64Range(int64(time.Millisecond), int64(60*time.Second)), 1, 300).Draw(t, "latencies")
		var l Latencies
		for _, d := range list {
			l.Add(time.Duration(d))
		}
		slices.Sort(list)
		for _, part := range []float64{0.5, 0.95, 0.99} {
			want := float64(list[int(math.Ceil(part*float64(len(list))))-1])
			got := float64(l.Percentile(part))
			if got < want*0.9 || got > want*1.1 {
				t.Fatalf("p%v of %d: got %v, want %v", part, len(list), time.Duration(got), time.Duration(want))
			}
		}
	})
	var none Latencies
	assert.Zero(t, none.Percentile(0.5))
}

func TestAStreakIsToldOnceWhateverTheEndpointDoes(t *testing.T) {
	t.Parallel()
	var e endpoint
	assert.Equal(t, []Kind{StreakBegan}, kinds(e.see(ok(noon), bad(noon.Add(time.Second), 500), bad(noon.Add(2*time.Second), 500))))
	assert.Equal(t, noon.Add(time.Second), e.found[0].Streak, "the streak begins with its first failure")
	assert.Empty(t, e.see(bad(noon.Add(time.Minute), 500)))
	found := e.see(ok(noon.Add(2 * time.Minute)))
	assert.Equal(t, []Finding{{Kind: StreakEnded, Streak: noon.Add(time.Second)}}, found)
	assert.Empty(t, e.see(bad(noon.Add(3*time.Minute), 500), ok(noon.Add(4*time.Minute))), "within the quiet time")
	assert.Equal(t, []Kind{StreakBegan, StreakEnded}, kinds(e.see(bad(noon.Add(20*time.Minute), 500), ok(noon.Add(21*time.Minute)))))
	assert.Equal(t, []Kind{StreakBegan}, kinds(e.see(bad(noon.Add(40*time.Minute), 500))))
	assert.Empty(t, e.look(noon.Add(24*time.Hour)))
	assert.Equal(t, []Kind{StreakDay}, kinds(e.look(noon.Add(24*time.Hour+40*time.Minute))))
	assert.Empty(t, e.look(noon.Add(30*time.Hour)), "the day is told once")
	e.rules.Epoch = noon.Add(31 * time.Hour)
	assert.Empty(t, e.look(noon.Add(31*time.Hour)), "resuming ends the streak without a word")
	assert.Zero(t, e.Run)
	assert.Equal(t, []Kind{StreakBegan}, kinds(e.see(bad(noon.Add(31*time.Hour+time.Minute), 500))))
}

// Fails each second time, at any pace: what is told stays bounded.
func TestAFlakyEndpointIsToldOfSixTimesAnHourAtMost(t *testing.T) {
	t.Parallel()
	var e endpoint
	for i := range 3600 {
		at := noon.Add(time.Duration(i) * time.Second)
		e.see(bad(at, 500), ok(at.Add(500*time.Millisecond)))
	}
	n := 0
	for _, f := range e.found {
		if f.Kind == StreakBegan {
			n++
		}
	}
	assert.Equal(t, 6, n)
}

func TestADeadDeliveryIsToldOncePerStreak(t *testing.T) {
	t.Parallel()
	dead := func(at time.Time) *Sample {
		s := bad(at, 400)
		s.Ended, s.Dead = true, true
		return s
	}
	var e endpoint
	found := e.see(dead(noon), dead(noon.Add(time.Second)))
	assert.Equal(t, []Finding{{Kind: StreakBegan, Streak: noon}, {Kind: Died, Streak: noon, Dead: 2}}, found)
	assert.Empty(t, e.see(dead(noon.Add(time.Hour))))
	assert.Equal(t, []Kind{StreakEnded}, kinds(e.see(ok(noon.Add(2*time.Hour)))))
	assert.Equal(t, []Kind{StreakBegan, Died}, kinds(e.see(dead(noon.Add(25*time.Hour)))))
	n, first := e.DeadSince(noon.Add(-time.Hour))
	assert.Equal(t, int64(4), n)
	assert.Equal(t, noon, first)
	n, first = e.DeadSince(noon.Add(15 * time.Hour))
	assert.Equal(t, int64(1), n, "those of the second day")
	assert.Equal(t, noon.Add(25*time.Hour), first)

	var gone endpoint
	var d Delta
	d.AddDead(3, noon)
	assert.Equal(t, []Finding{{Kind: Died, Streak: noon, Dead: 3}}, gone.Apply(&d, Rules{Now: noon}), "without a failure")
	d = Delta{}
	d.AddDead(1, noon.Add(time.Minute))
	assert.Empty(t, gone.Apply(&d, Rules{Now: noon}))
}

func TestDeadDaysAreBounded(t *testing.T) {
	t.Parallel()
	var e endpoint
	for i := range 100 {
		var d Delta
		d.AddDead(1, noon.AddDate(0, 0, i))
		e.Apply(&d, Rules{Now: noon.AddDate(0, 0, i)})
	}
	assert.Len(t, e.Dead, deadDays)
	n, first := e.DeadSince(time.Time{})
	assert.Equal(t, int64(100), n)
	assert.Equal(t, noon, first)
}

func TestDegradedIsUnderEightyPercentOverFourHours(t *testing.T) {
	t.Parallel()
	hour := func(e *endpoint, i, good, failed int) []Finding {
		at := noon.Add(time.Duration(i) * time.Hour)
		return e.see(append(many(good, func(int) *Sample { return ok(at) }), many(failed, func(int) *Sample { return bad(at, 500) })...)...)
	}
	var e endpoint
	for i := range 3 {
		assert.NotContains(t, kinds(hour(&e, i, 10, 10)), BecameDegraded, "in hour %d it is not known yet", i)
	}
	assert.Contains(t, kinds(hour(&e, 3, 10, 10)), BecameDegraded)
	assert.NotContains(t, kinds(hour(&e, 4, 10, 10)), BecameDegraded, "told once")
	for i := 5; i < 10; i++ {
		hour(&e, i, 100, 0)
	}
	assert.Zero(t, e.DegradedSince)

	var fine, rare endpoint
	for i := range 8 {
		hour(&fine, i, 81, 19)
		hour(&rare, i, 1, 2)
	}
	assert.NotContains(t, kinds(fine.found), BecameDegraded, "81 % are enough")
	assert.NotContains(t, kinds(rare.found), BecameDegraded, "15 attempts are too few")
}

func TestOneStatusOfAllFailuresIsSuspected(t *testing.T) {
	t.Parallel()
	status := func(e *endpoint, n, code int) []Finding {
		return e.see(many(n, func(int) *Sample { return bad(noon, code) })...)
	}
	var e endpoint
	assert.NotContains(t, kinds(status(&e, 19, 404)), ConfigurationSuspected, "19 failures are too few")
	assert.Contains(t, kinds(status(&e, 1, 500)), ConfigurationSuspected, "19 of 20 are 95 %")
	assert.Equal(t, Suspicion{Status: 404}, e.Suspected)
	assert.NotContains(t, kinds(status(&e, 1, 404)), ConfigurationSuspected, "told once")
	status(&e, 1, 500)
	assert.Equal(t, Suspicion{}, e.Suspected, "18 of 20 are not")
	status(&e, 20, 404)
	e.see(many(20, func(int) *Sample { return ok(noon) })...)
	assert.Equal(t, Suspicion{}, e.Suspected, "when it is healthy again")

	var server endpoint
	assert.NotContains(t, kinds(status(&server, 40, 500)), ConfigurationSuspected, "a 5xx is no configuration")
}

func TestRefusalsRightAfterARotationPointToIt(t *testing.T) {
	t.Parallel()
	e := endpoint{rules: Rules{Rotated: noon.Add(-time.Minute)}}
	e.see(ok(noon.Add(-time.Hour)))
	assert.NotContains(t, kinds(e.see(many(4, func(int) *Sample { return bad(noon, 401) })...)), ConfigurationSuspected)
	assert.Contains(t, kinds(e.see(bad(noon, 403))), ConfigurationSuspected, "five refusals in a row")
	assert.Equal(t, Suspicion{Status: 403, Rotated: noon.Add(-time.Minute)}, e.Suspected)

	late := endpoint{rules: Rules{Rotated: noon.Add(-2 * time.Hour)}}
	assert.NotContains(t, kinds(late.see(many(10, func(int) *Sample { return bad(noon, 401) })...)), ConfigurationSuspected, "two hours later")
}

func TestSuccessesThatSuddenlyTakeNoTimeAreSuspicious(t *testing.T) {
	t.Parallel()
	var e endpoint
	takes := func(at time.Time, d time.Duration) {
		e.see(many(40, func(int) *Sample { s := ok(at); s.Latency = d; return s })...)
	}
	for i := range 4 {
		takes(noon.Add(time.Duration(i)*time.Hour), 200*time.Millisecond)
	}
	assert.InDelta(t, 200, e.UsualLatency.Milliseconds(), 20)
	assert.False(t, e.SuspiciousSuccess)
	takes(noon.Add(5*time.Hour), 2*time.Millisecond)
	assert.True(t, e.SuspiciousSuccess)
	takes(noon.Add(6*time.Hour), 2*time.Millisecond)
	assert.True(t, e.SuspiciousSuccess, "what is suspicious does not become usual")
	takes(noon.Add(7*time.Hour), 210*time.Millisecond)
	assert.False(t, e.SuspiciousSuccess)
}

func TestCountsAreOfTheirTime(t *testing.T) {
	t.Parallel()
	var e endpoint
	e.see(bad(noon.Add(-30*time.Hour), 500))
	e.see(bad(noon.Add(-23*time.Hour), 404), bad(noon.Add(-2*time.Hour), 302))
	throttled := &Sample{At: noon, Status: 429, Retry: true}
	gone := &Sample{At: noon, Status: 410, Ended: true, Dead: true}
	e.see(bad(noon.Add(-30*time.Minute), 0), ok(noon), throttled, gone)

	hour, day := e.Hour(noon), e.Day(noon)
	assert.Equal(t, Counts{OK: 1, Broken: 1, Throttled: 1, Gone: 1, Retries: 1, Delivered: 1, Dead: 1}, hour)
	assert.Equal(t, Counts{OK: 1, Broken: 1, Throttled: 1, Gone: 1, Retries: 1, Delivered: 1, Dead: 1, Client: 1, Redirect: 1}, day)
	assert.Equal(t, int64(4), hour.Attempts())
	assert.Equal(t, int64(2), hour.Judged(), "429 and 410 say nothing about health")
	e.look(noon.Add(50 * time.Hour))
	assert.Empty(t, e.Fine)
	assert.Empty(t, e.Coarse, "what is too old is forgotten")
}

// How attempts are cut into deltas, and deltas appended to one another, changes
// nothing but what falls into one delta.
func TestDeltasAddUpHoweverTheyAreCut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 120).Draw(t, "attempts")
		whole, parts := new(Delta), new(Delta)
		part := new(Delta)
		at := noon
		for range n {
			at = at.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "pause")) * time.Second)
			s := Sample{
				At: at, Latency: time.Duration(rapid.IntRange(1, 5000).Draw(t, "ms")) * time.Millisecond,
				Outcome: Outcome(rapid.IntRange(0, 2).Draw(t, "outcome")), Retry: rapid.Bool().Draw(t, "retry"),
				Status: rapid.SampledFrom([]int{0, 302, 404, 500}).Draw(t, "status"),
			}
			s.Ended = rapid.Bool().Draw(t, "ended")
			s.Dead = s.Ended && s.Outcome != Succeeded
			whole.Add(&s)
			part.Add(&s)
			if rapid.Bool().Draw(t, "cut") {
				parts.Append(part)
				part = new(Delta)
			}
		}
		parts.Append(part)
		var a, b State
		foundA, foundB := a.Apply(whole, Rules{Now: at}), b.Apply(parts, Rules{Now: at})
		assert.Equal(t, foundA, foundB)
		assert.Equal(t, a, b)
	})
}

func TestAStateIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	var e endpoint
	e.rules = Rules{Rotated: noon, Epoch: noon.Add(-time.Hour), LowScore: 10}
	for i := range 30 {
		at := noon.Add(time.Duration(i) * time.Hour)
		e.see(ok(at), bad(at.Add(time.Second), 401), bad(at.Add(time.Minute), 401))
		e.see(many(60, func(k int) *Sample {
			s := bad(at.Add(time.Duration(k)*time.Minute), 401)
			s.Latency = time.Duration(1<<(k%16)) * time.Millisecond
			return s
		})...)
	}
	var d Delta
	d.AddDead(2, noon)
	d.AddFlap(noon)
	e.Apply(&d, e.rules)
	e.Mark = math.MaxUint64
	text, err := json.Marshal(&e.State)
	require.NoError(t, err)
	var read State
	require.NoError(t, json.Unmarshal(text, &read))
	assert.Equal(t, e.State, read)
	assert.Less(t, len(text), 3500, "bytes of a busy endpoint")

	var quiet endpoint
	quiet.see(ok(noon))
	text, err = json.Marshal(&quiet.State)
	require.NoError(t, err)
	assert.Less(t, len(text), 500, "bytes of a quiet one")
}

func TestAnAttemptCostsNoMemory(t *testing.T) {
	var d Delta
	good, failed := ok(noon), bad(noon, 500)
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		d.Add(good)
		d.Add(failed)
	}))
}

func BenchmarkAdd(b *testing.B) {
	var d Delta
	s := bad(noon, 500)
	b.ReportAllocs()
	for range b.N {
		d.Add(s)
	}
}

func BenchmarkApplyWithJSON(b *testing.B) {
	var e endpoint
	for i := range 30 {
		at := noon.Add(time.Duration(i) * time.Hour)
		e.see(many(60, func(k int) *Sample { return ok(at.Add(time.Duration(k) * time.Minute)) })...)
	}
	text, err := json.Marshal(&e.State)
	require.NoError(b, err)
	b.ReportMetric(float64(len(text)), "bytes")
	for range b.N {
		var s State
		_ = json.Unmarshal(text, &s)
		var d Delta
		d.Add(ok(noon.Add(31 * time.Hour)))
		s.Apply(&d, Rules{Now: noon.Add(31 * time.Hour)})
		_, _ = json.Marshal(&s)
	}
}
