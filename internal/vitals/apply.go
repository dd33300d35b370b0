package vitals

import (
	"slices"
	"time"
)

const (
	// windowLength is how long latencies are gathered before they become the window
	// before.
	windowLength = 30 * time.Minute

	// deadDays bounds the days of which dead deliveries are counted one by one; what
	// died earlier is added to the first of them.
	deadDays = 62

	// Degraded: under 80 % of the attempts of 4 hours, 20 at least, until 90 %.
	degradedOver  = 4 * time.Hour
	degradedSpan  = 3 * time.Hour
	degradedLeast = 20
	degradedUnder = 0.80
	degradedUntil = 0.90

	// A configuration is suspected at 95 % of the latest 20 failures; after a
	// rotation, 5 refusals in a row that began within the hour are enough.
	suspectedLeast = codes * 95 / 100
	refusalsLeast  = 5
	refusalsWithin = time.Hour

	// Successes are suspicious when they take a few milliseconds and once took ten
	// times as long.
	suddenly      = 5 * time.Millisecond
	usuallyLeast  = 50 * time.Millisecond
	suddenTimes   = 10
	suddenSamples = 20
)

// Kind is what a finding is about.
type Kind uint8

// The kinds of findings.
const (
	StreakBegan Kind = iota
	StreakDay        // 24 hours of it
	StreakEnded
	Died // a first delivery in a streak, or without one
	BecameDegraded
	ConfigurationSuspected
	Flapped
)

// Finding is something to be told once: Streak is the same whoever finds it.
type Finding struct {
	Kind   Kind
	Streak time.Time
	Dead   int64 // of Died: how many so far
}

// Rules is what is known otherwise when a state is looked at.
type Rules struct {
	Now time.Time
	// Epoch is when the endpoint came into the state active.
	Epoch time.Time
	// Rotated is when its secret was last rotated; zero if never.
	Rotated time.Time
	// LowScore is the score under which LowSince is set.
	LowScore int
}

// Apply takes a delta into the state, which may be nil for none, and returns what
// came to light.
func (s *State) Apply(d *Delta, r Rules) []Finding {
	var found []Finding
	if !s.Epoch.Equal(r.Epoch) {
		s.Epoch = r.Epoch
		s.Run, s.LowSince = Run{}, time.Time{}
		s.Streak = Streak{}
	}
	if d != nil && !d.Empty() {
		s.count(d)
		found = append(found, s.streak(d)...)
	}
	if st := &s.Streak; st.Open && !st.Day && r.Now.Sub(st.Since) >= day {
		st.Day = true
		found = append(found, Finding{Kind: StreakDay, Streak: st.Since})
	}
	s.drop(r.Now)
	if s.degrade(r.Now) {
		found = append(found, Finding{Kind: BecameDegraded, Streak: s.DegradedSince})
	}
	if s.suspect(r) {
		found = append(found, Finding{Kind: ConfigurationSuspected, Streak: s.SuspectedSince})
	}
	switch {
	case s.Outcomes.Known == 0 || s.Score() >= r.LowScore:
		s.LowSince = time.Time{}
	case s.LowSince.IsZero():
		s.LowSince = r.Now
	}
	if d != nil && d.flaps > 0 {
		s.Flaps += d.flaps
		s.LastFlap = d.lastFlap
		// Once an hour: one that flaps does so for long.
		found = append(found, Finding{Kind: Flapped, Streak: d.lastFlap.Truncate(time.Hour)})
	}
	return found
}

// count takes in what needs no judgement.
func (s *State) count(d *Delta) {
	for i := range d.buckets {
		b := &d.buckets[i]
		if b.At.IsZero() {
			continue
		}
		s.Fine = s.Fine.add(b.At, &b.Counts, b.At.Add(-time.Hour))
		hour := b.At.Truncate(Coarse)
		s.Coarse = s.Coarse.add(hour, &b.Counts, hour.Add(-day))
		s.FineCourse.add(b.At, &d.latencies[i])
		s.CoarseCourse.add(hour, &d.latencies[i])
	}
	s.At = later(s.At, later(d.lastGood, d.lastBad))
	s.LastSuccess = later(s.LastSuccess, d.lastGood)
	if d.lastBad.After(s.LastFailure) {
		s.LastFailure, s.LastStatus, s.LastClass = d.lastBad, d.lastStatus, d.lastClass
	}
	s.Outcomes.append(d.outcomes)
	s.Run = d.After(s.Run)
	if d.codes.n > 0 {
		s.Codes = append(slices.Clone(d.codes.list[:d.codes.n]), s.Codes...)
		s.Codes = s.Codes[:min(len(s.Codes), codes)]
	}
	s.measure(d)
	s.bury(d)
}

// measure takes in the latencies.
func (s *State) measure(d *Delta) {
	at := d.buckets[1].At
	if age := at.Sub(s.Latencies.Since); !at.IsZero() && age >= windowLength {
		if m := s.Latencies.Good.Percentile(0.5); s.Latencies.Good.Count() >= suddenSamples && !s.SuspiciousSuccess {
			if s.UsualLatency == 0 {
				s.UsualLatency = m
			}
			s.UsualLatency += (m - s.UsualLatency) / 5
		}
		s.Before = s.Latencies
		s.Latencies = Window{Since: at}
	}
	for i := range d.latencies {
		s.Latencies.All.merge(&d.latencies[i])
	}
	s.Latencies.Good.merge(&d.good)
	now := &s.Latencies.Good
	if now.Count() < suddenSamples {
		return
	}
	m := now.Percentile(0.5)
	s.SuspiciousSuccess = m <= suddenly && s.UsualLatency >= max(usuallyLeast, suddenTimes*m)
}

// bury counts dead deliveries.
func (s *State) bury(d *Delta) {
	if d.dead == 0 {
		return
	}
	on := d.firstDead.Truncate(day)
	i := slices.IndexFunc(s.Dead, func(have Deaths) bool { return have.Day.Equal(on) })
	if i < 0 {
		i = len(s.Dead)
		s.Dead = append(s.Dead, Deaths{Day: on, First: d.firstDead})
	}
	s.Dead[i].N += d.dead
	if len(s.Dead) > deadDays {
		s.Dead[1].N += s.Dead[0].N
		s.Dead[1].First = s.Dead[0].First
		s.Dead = s.Dead[1:]
	}
}

// streak follows the order of what happened, as far as the delta knows it.
func (s *State) streak(d *Delta) (found []Finding) {
	failed := func(at time.Time) {
		st := &s.Streak
		if at.IsZero() || st.Open || !st.Since.IsZero() && at.Sub(st.Since) < quiet {
			return
		}
		*st = Streak{Since: at, Open: true}
		found = append(found, Finding{Kind: StreakBegan, Streak: at})
	}
	succeeded := func(at time.Time) {
		if at.IsZero() || !s.Streak.Open {
			return
		}
		s.Streak.Open = false
		found = append(found, Finding{Kind: StreakEnded, Streak: s.Streak.Since})
	}
	if d.badFirst {
		failed(d.firstBad)
		succeeded(d.firstGood)
	} else {
		succeeded(d.firstGood)
		failed(d.firstBad)
	}
	if d.lastGood.After(d.firstBad) {
		succeeded(d.lastGood)
	}
	if d.tail > 0 {
		failed(d.tailSince)
		failed(d.lastBad)
	}
	if d.dead > 0 {
		st := &s.Streak
		switch {
		case st.Since.IsZero():
			// It died of something that is no failure.
			*st = Streak{Since: d.firstDead, Dead: true}
		case !st.Open && st.Dead && d.firstDead.Sub(st.Since) >= quiet:
			*st = Streak{Since: d.firstDead, Dead: true}
		case st.Dead:
			return found
		default:
			st.Dead = true
		}
		found = append(found, Finding{Kind: Died, Streak: st.Since, Dead: d.dead})
	}
	return found
}

// drop forgets buckets that are too old to count.
func (s *State) drop(now time.Time) {
	s.Fine = slices.DeleteFunc(s.Fine, func(b Bucket) bool { return !b.At.Add(Fine).After(now.Add(-time.Hour)) })
	s.Coarse = slices.DeleteFunc(s.Coarse, func(b Bucket) bool { return !b.At.Add(Coarse).After(now.Add(-day)) })
	s.FineCourse.drop(now.Add(-time.Hour - Fine))
	s.CoarseCourse.drop(now.Add(-day - Coarse))
}

// degrade reports whether the endpoint has just become degraded.
func (s *State) degrade(now time.Time) bool {
	from := now.Add(-degradedOver)
	sum := s.Coarse.Since(from, Coarse)
	judged := sum.Judged()
	rate := float64(sum[OK]) / float64(max(judged, 1))
	switch {
	case !s.DegradedSince.IsZero():
		if judged == 0 || rate >= degradedUntil {
			s.DegradedSince = time.Time{}
		}
	case judged >= degradedLeast && rate < degradedUnder && s.spans(from, now.Add(-degradedSpan)):
		s.DegradedSince = now
		return true
	}
	return false
}

// spans reports whether there were attempts between two times, to within an hour.
func (s *State) spans(from, until time.Time) bool {
	return slices.ContainsFunc(s.Coarse, func(b Bucket) bool {
		return b.At.Add(Coarse).After(from) && !b.At.After(until) && b.Judged() > 0
	})
}

// suspect reports whether a wrong configuration has just become likely.
func (s *State) suspect(r Rules) bool {
	if s.Healthy() && s.Outcomes.Known > 0 {
		s.Codes, s.Suspected, s.SuspectedSince = nil, Suspicion{}, time.Time{}
		return false
	}
	now, ok := s.suspicion(r)
	if !ok {
		s.Suspected, s.SuspectedSince = Suspicion{}, time.Time{}
		return false
	}
	known := !s.SuspectedSince.IsZero() && s.Suspected.Status == now.Status
	s.Suspected = now
	if !known {
		s.SuspectedSince = r.Now
	}
	return !known
}

func (s *State) suspicion(r Rules) (found Suspicion, ok bool) {
	rotated := time.Time{}
	since := s.Run.Since.Sub(r.Rotated)
	if !r.Rotated.IsZero() && s.Run.Failures > 0 && since >= 0 && since <= refusalsWithin {
		rotated = r.Rotated
	}
	if !rotated.IsZero() && s.Run.Failures >= refusalsLeast && len(s.Codes) >= refusalsLeast &&
		!slices.ContainsFunc(s.Codes[:refusalsLeast], func(c int16) bool { return !refusal(c) }) {
		return Suspicion{Status: int(s.Codes[0]), Rotated: rotated}, true
	}
	if len(s.Codes) < codes {
		return Suspicion{}, false
	}
	counts := make(map[int16]int, codes)
	for _, c := range s.Codes {
		counts[c]++
		if counts[c] < suspectedLeast || c < 400 || c >= 500 {
			continue
		}
		found = Suspicion{Status: int(c)}
		if refusal(c) {
			found.Rotated = rotated
		}
		return found, true
	}
	return Suspicion{}, false
}

// refusal reports whether a status says that the sender was not believed.
func refusal(status int16) bool { return status == 401 || status == 403 }

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
